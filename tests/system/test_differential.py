"""Ordinary work gives the same output inside a sandbox as outside: a table of commands, run in both, compared.

Each runs in a folder of its own, with the same environment, and prints what it has to say and its exit code.
"""
import itertools
import os
import subprocess

import pytest

DATA = "printf 'b 2\\na 10\\nc 3\\na 1\\n\\nd -5\\n'"

FILES = [
    "mkdir -p a/b/c && touch a/b/c/f && find a | sort", "ln -s nowhere l; readlink l; test -e l; echo $?",
    "echo x > f; ln f g; stat -c %h f", "umask 077; touch f; stat -c %a f", "install -m 750 /dev/null f; stat -c %A f",
    "mkdir d; chmod 000 d; chmod 755 d; rmdir d; ls", "cp -a /usr/share/doc/bash/. d 2>/dev/null; ls d | wc -l",
    "truncate -s 1M f; stat -c %s f; du -k --apparent-size f", "fallocate -l 64K f; stat -c %s f",
    "echo a > f; echo b >> f; tac f", "mkfifo p; (echo through > p &); cat p", "touch -d '2001-02-03 04:05:06 UTC' f; stat -c %Y f",
    "dd of=f bs=1 count=3 2>/dev/null <<< abcdef; cat f", "split -b 2 - x <<< abcdef; cat x??", "mktemp -d -p . | wc -c",
    "mv -n nothing there; echo $?", "echo x > f; mkdir d; mv f d/; cat d/f", "rename() { :; }; mkdir a b; touch a/x; mv a/x b/y; ls b",
    "cat /etc/hostname >/dev/null; echo $?", "ls /nonexistent; echo $?", "echo $(( $(stat -f -c %S .) > 0 ))",
    "python3 -c \"import os; fd=os.open('.', os.O_TMPFILE|os.O_RDWR); os.write(fd,b'x'); os.link(f'/proc/self/fd/{fd}','t',follow_symlinks=True); print(open('t').read())\"",
    "python3 -c \"import os; os.setxattr('.', 'user.k', b'v'); print(os.getxattr('.', 'user.k'))\"",
    "python3 -c \"import mmap; f=open('m','w+b'); f.truncate(4096); m=mmap.mmap(f.fileno(),4096); m[:3]=b'abc'; m.flush(); print(open('m','rb').read(3))\"",
    "python3 -c \"import os; os.mkdir('d'); a=os.open('d',os.O_RDONLY); os.rename('d','e'); os.close(os.open('f',os.O_CREAT,dir_fd=a)); print(os.listdir('e'))\"",
]
TEXT = [f"{DATA} | {tool}" for tool in (
    "sort", "sort -n", "sort -k2n", "sort -u", "sort -r", "uniq -c", "wc", "wc -l", "head -2", "tail -2", "tac", "rev", "nl", "cut -d' ' -f2",
    "tr a-z A-Z", "tr -d '\\n'", "sed s/a/X/", "sed -n 2p", "sed '/^$/d'", "sed -E 's/([a-z]) (.*)/\\2 \\1/'", "awk '{ print $2 }'",
    "awk '{ s += $2 } END { print s }'", "awk 'NF'", "grep a", "grep -c a", "grep -v a", "grep -nE '[0-9]+$'", "grep -o '[a-z]'", "md5sum",
    "sha256sum", "base64", "od -c", "xxd", "paste -s -d,", "fold -w 3", "expand", "fmt", "column -t", "cat -A", "tee f | wc -c", "xargs -n2 echo",
    "xargs -P4 -n1 true", "gzip -c | gunzip", "bzip2 -c | bunzip2", "xz -c | unxz", "perl -pe 's/a/Z/'", "perl -ne 'print if /\\d\\d/'",
    "python3 -c 'import sys; print(sorted(sys.stdin.read().split()))'", "bash -c 'while read -r a b; do echo \"$b-$a\"; done'", "comm -12 - /dev/null",
    "join - /dev/null", "shuf --random-source=/dev/zero", "tsort 2>&1; true", "csplit -s - 3; cat xx00", "cksum", "sum", "diff - /dev/null", "cmp - /dev/null")]
SHELL = [
    "for i in 1 2 3; do echo $i; done", "set -e; false; echo no", "set -o pipefail; false | true; echo $?", "echo {a..e}{1..3}", "x=abc; echo ${x:1:1} ${#x} ${x/b/B}",
    "f() { local r=$1; echo $((r * 2)); }; f 21", "trap 'echo bye' EXIT; echo hi", "trap 'echo usr1' USR1; kill -USR1 $$; echo after", "(exit 7); echo $?",
    "sleep 0.1 & wait $!; echo $?", "sleep 5 & kill $!; wait $! 2>/dev/null; echo $?", "kill -9 $$", "kill -TERM $$", "timeout 0.2 sleep 5; echo $?", "cat <<< here", "cat << E\ndoc\nE",
    "exec 3> f; echo three >&3; exec 3>&-; cat f", "diff <(echo a) <(echo b); echo $?", "coproc cat; echo x >&${COPROC[1]}; read -r y <&${COPROC[0]}; echo $y", "mapfile -t a < <(seq 3); echo ${a[1]}",
    "printf '%s|%5d|%-5s|%x\\n' a 42 b 255", "echo $((2**40)) $((7/2)) $((-7%3))", "[[ abc =~ b(c) ]] && echo ${BASH_REMATCH[1]}", "declare -A m=([a]=1 [b]=2); echo ${m[b]}", "getopts ab: o -b x; echo $o $OPTARG",
    "seq 100000 | tail -1", "yes | head -100000 | wc -l", "ulimit -v unlimited; echo ok", "set -m; sleep 0.1 & fg >/dev/null; echo done", "sh -c 'echo $0' name", "env -i sh -c 'echo ${HOME-none}'", "nice -n 5 nice", "nohup echo x 2>/dev/null",
    "flock f -c 'echo locked'", "(flock -n 9 && echo got; (flock -n 9 || echo held) 9> g) 9> f", "script -qec 'tty | grep -c pts' /dev/null | tr -d '\\r'", "script -qec 'stty size >/dev/null; echo $?' /dev/null | tr -d '\\r'",
    "python3 -c \"import pty,os; p=pty.spawn(['echo','in a pty']); print(p)\" | tr -d '\\r'", "setsid sh -c 'echo session'", "mkfifo p; exec 5<>p; echo a >&5; read -r -u5 z; echo $z", "echo $BASH_VERSION | cut -d. -f1", "getconf PAGESIZE", "date -u -d @0 +%F", "TZ=UTC date -d '2020-02-30' 2>&1; echo $?", "locale -a | grep -c C", "id -u", "expr 3 + 4", "factor 360", "bc <<< '2^100' 2>/dev/null || echo none", "cal 2 2024 2>/dev/null | md5sum",
]
PYTHON = [f"python3 -c {code!r}" for code in (
    "print(sum(range(1000)))", "import json; print(json.dumps({'a': [1, None, 'ü']}))", "import hashlib; print(hashlib.sha256(b'x').hexdigest())", "import sqlite3; c=sqlite3.connect('d.db'); c.execute('create table t(x)'); c.execute('insert into t values(1)'); c.commit(); print(c.execute('select * from t').fetchall())",
    "import threading; l=[]; t=[threading.Thread(target=l.append,args=(i,)) for i in range(20)]; [x.start() for x in t]; [x.join() for x in t]; print(len(l))", "import multiprocessing as m; print(m.Pool(2).map(abs, [-1, 2, -3]))", "import multiprocessing.shared_memory as s; m=s.SharedMemory(create=True,size=10); m.buf[0]=5; print(m.buf[0]); m.close(); m.unlink()",
    "import subprocess; print(subprocess.run(['sh','-c','exit 3']).returncode)", "import socket; a,b=socket.socketpair(); a.send(b'x'); print(b.recv(1))", "import socket; s=socket.socket(); s.bind(('127.0.0.1',0)); s.listen(); c=socket.create_connection(s.getsockname()); d,_=s.accept(); c.send(b'hi'); print(d.recv(2))",
    "import socket; s=socket.socket(socket.AF_INET6); s.bind(('::1',0)); s.listen(); c=socket.create_connection(s.getsockname()[:2]); print('v6')", "import socket; a=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); a.bind(('127.0.0.1',0)); b=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); b.sendto(b'u',a.getsockname()); print(a.recv(1))", "import socket; s=socket.socket(socket.AF_UNIX); s.bind('s'); s.listen(); c=socket.socket(socket.AF_UNIX); c.connect('s'); print('unix')",
    "import os; r,w=os.pipe(); os.write(w,b'p'); print(os.read(r,1))", "import os; print(os.eventfd(3) >= 0, os.memfd_create('m') >= 0)", "import select; e=select.epoll(); print(e.poll(0))", "import signal,os; signal.signal(signal.SIGALRM,lambda *a: print('alarm')); signal.setitimer(signal.ITIMER_REAL,.05); signal.pause()", "import asyncio; print(asyncio.run(asyncio.sleep(.01, 'slept')))",
    "import fcntl; f=open('l','w'); fcntl.lockf(f,fcntl.LOCK_EX); print('locked')", "import ctypes; print(ctypes.CDLL(None).abs(-4))", "import tempfile; print(len(tempfile.mkdtemp()) > 4)", "import zipfile,io; b=io.BytesIO(); z=zipfile.ZipFile(b,'w'); z.writestr('a','b'); z.close(); print(zipfile.ZipFile(b).namelist())", "import tarfile; t=tarfile.open('t.tgz','w:gz'); open('a','w').write('x'); t.add('a'); t.close(); print(tarfile.open('t.tgz').getnames())", "import resource; print(resource.getrlimit(resource.RLIMIT_STACK)[0] > 0)", "import os; print(os.sched_getscheduler(0))", "import time; print(time.clock_gettime(time.CLOCK_MONOTONIC) > 0)", "import sys; sys.exit(5)", "import os; os.abort()", "1/0",
)]
BUILD = [
    "printf 'int main(){return 3;}' > a.c; gcc a.c -o a && ./a; echo $?", "printf '#include <stdio.h>\\nint main(){puts(\"hi\");}' > a.c; gcc -O2 -Wall a.c -o a && ./a",
    "printf 'int f(void){return 1;}' > f.c; printf 'int f(void);int main(){return f();}' > m.c; gcc -c f.c m.c && ar rcs libf.a f.o && gcc m.o -L. -lf -o m && ./m; echo $?", "printf 'all: b\\n\\t@echo all\\nb:\\n\\t@echo b\\n' > Makefile; make -s", "printf 'a:\\n\\tfalse\\n' > Makefile; make -s 2>/dev/null; echo $?", "printf 'x%%: ; @echo $@\\n' > Makefile; make -s -j4 x1 x2 x3 | sort",
    "printf '#include <iostream>\\nint main(){std::cout<<1;}' > a.cc; g++ a.cc -o a 2>/dev/null && ./a", "gcc -E -dM - < /dev/null | grep -c __x86_64__", "printf 'int main(){return *(int*)0;}' > a.c; gcc a.c -o a && ./a; echo $?", "printf '#include <pthread.h>\\nstatic void*t(void*a){return a;}int main(){pthread_t p;return pthread_create(&p,0,t,0)||pthread_join(p,0);}' > a.c; gcc a.c -o a -lpthread && ./a; echo $?",
    "git init -q . && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m one && git log --format=%s", "git init -q . && echo x > f && git add f && git status --short", "git init -q a && (cd a && echo x > f && git add f && git -c user.name=a -c user.email=a@b commit -qm m) && git clone -q a b && cat b/f", "git init -q . && echo a > f && git add f && echo b > f && git diff --stat | tail -1", "git init -q . && git hash-object -w --stdin <<< x",
    "mkdir d && echo x > d/f && tar czf t.tgz d && rm -r d && tar xzf t.tgz && cat d/f", "mkdir d; touch d/{1..50}; tar cf - d | tar tf - | wc -l", "echo x > f; tar cf t f --owner=5 --group=6; tar --numeric-owner -tvf t | awk '{print $2}'", "echo x | cpio -o 2>/dev/null | wc -c", "node -e 'console.log([3,1,2].sort())'", "node -e 'require(\"fs\").writeFileSync(\"f\",\"x\"); console.log(require(\"fs\").readFileSync(\"f\",\"utf8\"))'", "node -e 'process.exit(4)'; echo $?", "node -e 'const s=require(\"net\").createServer(c=>c.end(\"hi\")).listen(0,\"127.0.0.1\",()=>require(\"net\").connect(s.address().port,\"127.0.0.1\").on(\"data\",d=>{console.log(String(d));s.close()}))'", "node -e 'new Promise(r=>setTimeout(r,10)).then(()=>console.log(\"later\"))'", "node -e 'const{Worker}=require(\"worker_threads\");new Worker(\"console.log(1)\",{eval:true})'", "node -e 'console.log(require(\"child_process\").execSync(\"echo child\").toString().trim())'", "npm --version | grep -c '^[0-9]'", "mkdir p && cd p && npm init -y >/dev/null 2>&1 && node -e 'console.log(require(\"./package.json\").version)'", "perl -e 'fork // die; print \"x\\n\"; wait' | sort", "perl -MSocket -e 'socketpair(A,B,AF_UNIX,SOCK_STREAM,0) and print \"ok\\n\"'",
]
FORMATS = [f"printf '{f}\\n' {v}" for f, v in itertools.product(("%d", "%5.2f", "%o", "%e", "%s"), ("7", "255", "-3"))]
SEQUENCES = [f"seq {a} {b} | {t}" for (a, b), t in itertools.product(((1, 10), (95, 120), (1, 1000)), ("sort | head -3", "awk '{s+=$1} END {print s}'", "tail -1", "sha1sum", "paste -sd+ | bc 2>/dev/null | head -1"))]

COMMANDS = FILES + TEXT + SHELL + PYTHON + BUILD + FORMATS + SEQUENCES
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LC_ALL": "C.UTF-8", "npm_config_update_notifier": "false"}
AT_A_TIME = 40


def script(command, folder):
    return f"cd {folder}; exec </dev/null; {command}"


def outside(command, folder):
    done = subprocess.run(["bash", "-c", script(command, folder)], env=ENVIRONMENT, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, timeout=60, start_new_session=True)
    return done.stdout.decode(errors="replace"), done.returncode if done.returncode >= 0 else 128 - done.returncode


def inside(server, commands):
    """[(output, exit code)] of each, in one request: every one in a bash of its own, between lines that mark its end."""
    exports = " ".join(f"{k}={v}" for k, v in ENVIRONMENT.items())
    texts = []
    for i, command in enumerate(commands):
        quoted = script(command, f"/workspace/d{i}").replace("'", "'\\''")
        texts.append(f"rm -r /workspace/d{i} 2>/dev/null; mkdir -p /workspace/d{i}; env -i {exports} bash -c '{quoted}' 2>/dev/null; echo \"<<$?>>\"")
    out = server.run("differential", *texts, timeout=200)
    parts = out.split("<<")
    results, text = [], parts[0]
    for part in parts[1:]:
        code, _, rest = part.partition(">>\n")
        results.append((text, int(code)))
        text = rest
    return results


def test_there_are_a_few_hundred():
    assert len(COMMANDS) >= 200


@pytest.mark.parametrize("start", range(0, len(COMMANDS), AT_A_TIME))
def test_the_same_inside_as_outside(server, tmp_path, start):
    commands = COMMANDS[start:start + AT_A_TIME]
    got = inside(server, commands)
    assert len(got) == len(commands)
    differences = []
    for i, (command, result) in enumerate(zip(commands, got)):
        folder = tmp_path / str(i)
        folder.mkdir()
        want = outside(command, folder)
        if result != want:
            differences.append(f"{command}\n   outside: {want}\n   inside:  {result}")
    assert not differences, "\n".join(differences)
