"""Using it all up: one sandbox, or one tenant, takes as much as it can of one thing. Its own limit stops it; the host's disk and
memory, the other sandboxes, the keeper and the workers go on as before. Not how fast: bench/noisy.py measures that."""
import concurrent.futures
import dataclasses
import os
import subprocess

import pytest

from cove import TOP, alive, read, wait_for
from executor import Executor

DISK_MAX = 64 << 20
POOL_SLACK = 4 << 20  # a quota group also counts metadata, and has a reserve for deleting at the limit (sandbox/box/disk_btrfs.c)


@dataclasses.dataclass
class Attack:
    name: str
    promise: str
    command: str
    cls: str = "exhaustion"
    opens_when_weak: bool = False


PY = "python3 -c \"{}\""
ATTACKS = [
    Attack("zip-bomb", "what an archive unpacks to counts as the sandbox's disk",
           "cd /tmp; head -c 200M /dev/zero | python3 -c \"import sys,zipfile; z=zipfile.ZipFile('b.zip','w',8); f=z.open('zeros','w',force_zip64=True)\n"
           "while b:=sys.stdin.buffer.read(1<<20): f.write(b)\nf.close(); z.close()\"; python3 -m zipfile -e b.zip out"),
    Attack("zip-members", "zip members with absolute names and .. stay inside",
           "cd /tmp; python3 -c \"import os,zipfile; z=zipfile.ZipFile('m.zip','w'); t=os.environ['HOST_TARGET']\n"
           "for n in (t,'../'*9+t): z.writestr(n,'owned')\nz.close(); zipfile.ZipFile('m.zip').extractall('/tmp')\"; exit 1"),
    Attack("tar-bomb", "a small archive of large holes and endless members stays within the disk",
           "cd /tmp; truncate -s 40M hole; for i in 1 2 3 4 5; do cp --sparse=always hole h$i; done; tar -cSf b.tar h?; mkdir out; tar -xf b.tar -C out; cat h? | cat > full"),
    Attack("fill-disk", "the disk of a sandbox ends at its limit", "cat /dev/zero > /tmp/full; for i in 1 2 3; do cat /dev/zero > /workspace/f$i; done"),
    Attack("fill-disk-by-deleted-files", "deleted files that are still open count as the sandbox's disk", "for i in 1 2 3 4 5 6 7 8; do exec {fd}> /tmp/x; rm /tmp/x; head -c 20M /dev/zero >&$fd; done"),
    Attack("fill-inodes", "files are limited", PY.format("n=0\nwhile n<100000: open('/tmp/%0200d'%n,'w').close(); n+=1")),
    Attack("fill-folders", "folders in folders are limited", PY.format("import os\nfor n in range(100000): os.mkdir('d'*200); os.chdir('d'*200)")),
    Attack("fill-shm", "/dev/shm has a limit, and counts as memory", "cat /dev/zero > /dev/shm/full; cat /dev/zero > /dev/shm/more"),
    Attack("fill-memory", "memory ends at its limit", PY.format("a=[]\nwhile 1: a.append(b'x'*(1<<20))")),
    Attack("fill-memory-by-pipes", "bytes that wait in pipes count as memory",
           PY.format("import os\nwhile 1:\n r,w=os.pipe(); os.set_blocking(w,0); os.write(w,b'x'*(1<<16))")),
    Attack("fill-pids", "processes end at their limit", PY.format("import os,time\nwhile os.fork(): pass\ntime.sleep(2)")),
    Attack("fill-pids-by-threads", "threads count as processes", PY.format("import threading,time\nwhile 1: threading.Thread(target=time.sleep,args=(2,),daemon=True).start()")),
    Attack("fill-open-files", "open files are limited", PY.format("import os\nwhile 1: os.open('/dev/null',0)")),
    Attack("fill-sockets", "sockets are limited", PY.format("import socket\ns=[]\nwhile 1: s+=socket.socketpair()")),
    Attack("fill-inotify", "inotify watches are limited", PY.format("import ctypes,sys\nc=ctypes.CDLL(None)\nwhile c.inotify_init()>=0: pass\nsys.exit(1)")),
    Attack("fill-message-queues", "message queues are limited", PY.format("import ctypes,sys\nc=ctypes.CDLL(None)\nwhile c.msgget(0,0o1600)>=0: pass\nsys.exit(1)")),
    Attack("fill-semaphores", "semaphores are limited", PY.format("import ctypes,sys\nc=ctypes.CDLL(None)\nn=0\nwhile n<40000 and c.semget(0,250,0o1600)>=0: n+=1\nsys.exit(1)")),
    Attack("fill-terminals", "terminals are limited", PY.format("import os\nwhile 1: os.openpty()")),
    Attack("fill-locks", "file locks are limited", PY.format("import fcntl,sys\nf=open('/tmp/l','w')\nfor i in range(4000): fcntl.lockf(f,fcntl.LOCK_EX|fcntl.LOCK_NB,1,2*i)\nsys.exit(1)")),
    Attack("fill-output", "output ends at its limit, and with it the command", "yes"),
    Attack("fill-timers", "timers are limited", PY.format("import ctypes,sys\nc=ctypes.CDLL(None)\nt=ctypes.c_void_p()\nn=0\nwhile n<50000 and c.timer_create(1,None,ctypes.byref(t))==0: n+=1\nsys.exit(1)")),
]


def test_a_sandbox_that_takes_all_terminals_leaves_others_some(server, project):
    """All sandboxes together have kernel.pty.max terminals, less those that the host keeps for itself."""
    command = PY.format("import os,time\nn=0\ntry:\n while n<100: os.open('/dev/ptmx',os.O_RDWR|os.O_NOCTTY); n+=1\nexcept OSError as e: print(n,e.strerror)")
    assert server.run(project, command).split(None, 1) == ["64", "No space left on device\n"]
    assert server.run(project + "-other", PY.format("import os\nos.open('/dev/ptmx',2)\nprint('one')")) == "one\n"


def memory_of(pids):
    return sum(int(read(f"/proc/{p}/statm", "0 0").split()[1]) * 4096 for p in pids)


def bytes_on_disk(server, box_id):
    """What one sandbox's files take: of its image, or of the pool, whose greatest volume is the greedy one's."""
    image, pool = f"{server.config['state_dir']}/boxes/{box_id}/disk.img", f"{server.config['state_dir']}/disk/pool"
    if os.path.exists(image):
        return os.stat(image).st_blocks * 512
    subprocess.run(["sync", "-f", pool], check=True)
    volumes = subprocess.run(["btrfs", "qgroup", "show", "--raw", "-r", pool], capture_output=True, text=True, check=True).stdout
    return -POOL_SLACK + max(int(line.split()[1]) for line in volumes.splitlines() if line.startswith("0/") and not line.startswith("0/5 "))


@pytest.mark.parametrize("scene", ["auto", "image"], indirect=True)
def test_no_sandbox_takes_more_than_its_own(scene, capsys):
    server, world = scene
    before = (server.keeper_pid, server.worker_pids)
    for attack in ATTACKS:
        reply = server.execute("greedy", f"export {world.environment()}; {attack.command}", timeout=90)
        assert reply.status == 200 and reply.json["exitCode"] != 0, (attack.name, reply)
        assert bytes_on_disk(server, reply.id) <= DISK_MAX, attack.name
        assert server.run("modest", "echo x > /workspace/x; cat /workspace/x; rm /workspace/x") == "x\n", attack.name
        assert not world.changed(), attack.name
        assert (server.keeper_pid, server.worker_pids) == before, attack.name
        server.cleanup("greedy")
    with capsys.disabled():
        print(f"\nattempts to use everything up: {len(ATTACKS)}, none did (disks: {read(server.run_dir + '/disk').split()[0]})")


def test_processes_that_write_without_end_fill_rings_and_nothing_else(scene):
    """Twenty of them; each ring is log_max and counts as the sandbox's memory, not the server's."""
    server, world = scene
    box = Executor(server, "rings")
    before = memory_of([server.keeper_pid, *server.worker_pids])
    ids = [box.start("yes " + "x" * 200) for _ in range(20)]
    box.sh("for i in $(seq 40); do [ $(cat /proc/[0-9]*/io 2>/dev/null | awk '/wchar/ { n += $2 } END { print (n > 100e6) }') = 1 ] && break; sleep 0.1; done")
    assert memory_of([server.keeper_pid, *server.worker_pids]) - before < 32 << 20
    assert server.run("modest", "echo fine") == "fine\n"
    for i in ids:
        box.ok("/kill_process", id=i)
    assert not world.changed()


def test_a_tenant_that_takes_the_whole_pool_leaves_others_a_sandbox(scene):
    server, _ = scene
    greedy = server.add_key("greedy")
    try:
        with concurrent.futures.ThreadPoolExecutor(8) as many:
            taken = list(many.map(lambda i: server.execute(f"pool{i}", "true", key=greedy).status, range(16)))
        assert set(taken) == {200}
        assert server.run("late", "echo there is one") == "there is one\n"
    finally:
        for i in range(16):
            server.cleanup(f"pool{i}", key=greedy)


def test_a_tenant_that_takes_every_slot_leaves_health_and_a_clear_answer(scene):
    server, _ = scene
    greedy = server.add_key("greedy")
    slots = 2 * (32 - 8)
    with concurrent.futures.ThreadPoolExecutor(slots + 16) as many:
        running = [many.submit(server.execute, "slots", "sleep 6", key=greedy, timeout=90) for _ in range(slots + 16)]
        refused = wait_for(lambda: next((f.result() for f in running if f.done() and f.result().status != 200), None), 30, "a refusal")
        assert refused.status == 503 and int(refused.headers["Retry-After"]) >= 1, refused
        assert server.request("GET", "/health").status == 200
        assert {f.result().status for f in running} <= {200, 503}
    assert server.run("modest", "echo again") == "again\n"


# ------------------------------------------------------------------ others' checkers, from Debian

STRESSORS = ["enosys", "sysinval", "sysbadaddr", "procfs", "dev", "kcmp", "sigio", "mknod", "chroot", "set", "prctl", "personality",
             "userfaultfd", "ptrace", "netlink-proc", "rawsock", "rawudp", "secretmem", "io-uring", "bad-ioctl"]


@pytest.mark.parametrize("user", ["root", "user"])
def test_stress_ng_s_syscall_fuzzers_change_nothing_outside(scene, user):
    """It knows hundreds of ways to call the kernel wrongly. Many are refused in here; the host must not notice any."""
    server, world = scene
    server.change_config(user=user)
    wait_for(lambda: server.execute("whoami", "whoami").json["stdout"] == user + "\n", 15, f"commands of {user}")
    before = (server.keeper_pid, sorted(server.inits))
    flags = " ".join(f"--{s} 1" for s in STRESSORS)
    reply = server.execute("stress", f"cd /tmp; timeout -k 1 20 stress-ng {flags} --timeout 5 --temp-path /tmp 2>&1", timeout=90)
    assert reply.status == 200 and "dispatching hogs" in reply.json["stdout"], reply
    assert not world.changed()
    assert server.keeper_pid == before[0] and set(before[1]) <= set(server.inits)
    assert server.run("modest", "echo fine") == "fine\n"


PROGRAMS = ["sbin/coved", *(f"libexec/cove/cove-{p}" for p in ("worker", "judge", "gate", "auth", "init"))]


@pytest.mark.parametrize("program", PROGRAMS)
def test_checksec_finds_our_programs_hardened(program):
    path = f"{TOP}/.cove/inst/{program}"
    out = subprocess.run(["checksec", f"--file={path}", "--format=json"], capture_output=True, text=True, check=True).stdout
    found = __import__("json").loads(out)[path]
    want = {"canary": "yes", "nx": "yes", "rpath": "no", "runpath": "no"}
    if not program.endswith("init"):  # static, without a loader: what it could harm is its own sandbox
        want |= {"relro": "full", "pie": "yes", "fortify_source": "yes"}
    assert {k: found[k] for k in want} == want


def test_keeper_and_workers_are_still_those_of_the_start(scene):
    server, _ = scene
    assert alive(server.keeper_pid) and not [e for e in server.log_lines() if "worker died" in str(e.get("event"))]
