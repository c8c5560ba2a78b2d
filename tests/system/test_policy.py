"""The policy as callers meet it: before a command runs, at exec time, in the audit log, and while it is being edited."""
import json
import os
import re
import signal
import struct
import subprocess
import threading
import time

from cove import TOP, read, wait_for
from test_template import small_root, use  # noqa: F401 (small_root is a fixture)

FORBIDDEN = "\U0001f6a8 Forbidden command detected: "


def base64_of(text):
    return subprocess.run(["base64", "-w0"], input=text, text=True, stdout=subprocess.PIPE, check=True).stdout


def audit_lines(server):
    return [json.loads(line) for line in read(server.config["audit_file"]).split("\n")[:-1]]  # a line that is being written has no end yet


def cove(server, *args):
    build = next(d for d in (f"{server.config['libexec_dir']}", f"{TOP}/.cove/build") if os.path.exists(f"{d}/cove"))
    return subprocess.run([f"{build}/cove", *args], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


# ------------------------------------------------------------------ before it runs

def test_a_disguised_command_is_refused_before_anything_runs(server, project):
    for command in ("r''m -r\\f /", "echo x; rm  -fr /tmp/y", "bash -c 'rm --recursive --force /'", "$(rm -rf /)"):
        reply = server.execute(project, "touch /workspace/ran", command)
        assert reply.status == 400 and reply.json["error"].startswith(FORBIDDEN), (command, reply)
    assert server.run(project, "ls /workspace") == ""


def test_words_that_only_mention_a_command_are_not_refused(server, project):
    assert server.run(project, 'echo "rm -rf is bad"') == "rm -rf is bad\n"
    assert server.execute(project, 'grep -r "rm -rf" /workspace').status == 200


# ------------------------------------------------------------------ at exec time

def test_what_was_hidden_from_the_text_is_refused_at_exec_time(server, project):
    hidden = base64_of("rm -rf /workspace/precious")
    ways = {
        "decoded": f"echo {hidden} | base64 -d | sh",
        "a script": f"echo {hidden} | base64 -d > /tmp/s; chmod +x /tmp/s; sh /tmp/s",
        "python": f"python3 -c \"import base64,os; os.system(base64.b64decode('{hidden}').decode())\"",
        "a variable": f"a=$(echo {base64_of('rm')} | base64 -d); $a -rf /workspace/precious",
        "a pattern": "/bin/r[m] -rf /workspace/precious",
    }
    server.run(project, "mkdir /workspace/precious")
    for name, command in ways.items():
        reply = server.execute(project, command)
        assert "cove: refused by policy" in reply.json["stderr"], (name, reply)
        assert server.run(project, "ls /workspace") == "precious\n", name


EXECS = """
import ctypes, os, subprocess, sys
libc = ctypes.CDLL(None, use_errno=True)
def attempt(name, call):
    pid = os.fork()
    if pid == 0:
        try:
            call()
        except OSError as e:
            os._exit(e.errno)
        os._exit(ctypes.get_errno() or 99)
    print(name, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
def vector(*words):
    return (ctypes.c_char_p * (len(words) + 1))(*words, None)
many = [str(i) for i in range(10000)]
long = "x" * 100000
attempt("ten-thousand", lambda: os.execv("/bin/true", ["true", *many]))
attempt("ten-thousand-evil", lambda: os.execv("/bin/rm", ["rm", "-r", *many, "-f"]))
attempt("long", lambda: os.execv("/bin/true", ["true", long, long]))
attempt("long-evil", lambda: os.execv("/bin/rm", ["rm", "-r", long, long, "-f"]))
attempt("bytes", lambda: os.execv("/bin/true", ["true", b"\\xff\\xfe\\x80"]))
attempt("bytes-evil", lambda: os.execv("/bin/rm", ["rm", b"\\xff\\xfe", "-rf", "/x"]))
attempt("execveat", lambda: libc.syscall(322, -100, b"/bin/rm", vector(b"rm", b"-rf", b"/a"), vector(), 0))
attempt("execveat-fd", lambda: libc.syscall(322, os.open("/bin/rm", os.O_RDONLY), b"", vector(b"rm", b"-rf", b"/b"), vector(), 0x1000))
attempt("fexecve", lambda: os.execve(os.open("/bin/rm", os.O_RDONLY), ["rm", "-rf", "/c"], {}))
attempt("other-name", lambda: os.execv("/bin/rm", ["ls", "-rf", "/x"]))
attempt("no-argv", lambda: libc.syscall(59, b"/bin/true", None, None))
attempt("bad-argv", lambda: libc.syscall(59, b"/bin/true", 8, None))
open("/tmp/script", "w").write("#!/bin/sh\\nrm -rf /workspace/precious\\n")
os.chmod("/tmp/script", 0o755)
attempt("shebang", lambda: os.execv("/tmp/script", ["script"]))
"""


def test_every_kind_of_execve_is_judged_by_all_of_its_arguments(server, project):
    hidden = base64_of(EXECS.replace("\\\\", "\\"))
    server.run(project, f"mkdir /workspace/precious; echo {hidden} | base64 -d > /tmp/execs.py")
    reply = server.execute(project, "python3 /tmp/execs.py")
    got = dict(line.split() for line in reply.json["stdout"].split("\n") if line)
    evil = {"ten-thousand-evil", "long-evil", "bytes-evil", "execveat", "execveat-fd", "fexecve", "other-name", "bad-argv"}
    assert {name for name, code in got.items() if code == "1"} - {"shebang"} == evil, (got, reply.json["stderr"])
    assert {got[name] for name in ("ten-thousand", "long", "bytes", "no-argv")} == {"0"}, got
    assert reply.json["stderr"].count("cove: refused by policy") >= len(evil) + 1, reply
    assert server.run(project, "ls /workspace") == "precious\n"


def test_ordinary_commands_with_very_many_arguments_run(server, project):
    out = server.run(project, "mkdir /tmp/m; cd /tmp/m; touch $(seq 3000); ls * | wc -l; seq 20000 | xargs echo | wc -w")
    assert out.split() == ["3000", "20000"]


def test_a_storm_of_execves_is_judged_and_none_is_lost(make_server):
    reply = make_server(pids_max=1000).execute("p", "for i in $(seq 400); do /bin/true || echo bad & done; wait; echo end")
    assert reply.json["stdout"] == "end\n" and reply.json["stderr"] == "", reply


def test_sections_for_a_tenant_or_template_hold_at_exec_time_too(make_server):
    server = make_server()
    key = server.add_key("acme")
    with open(policy_of(server), "a") as f:
        f.write('\n[tenant=acme]\ndeny  acme-only  words  /^id( |$)/  "not here"\n'
                '[template=nowhere]\ndeny  no-template  words  /^uname/  "not there"\n'
                '[execute template=base]\ndeny  base-only  words  /^hostname/  "not here either"\n')
    wait_for(lambda: server.execute("p", "id", key=key).status == 400, 5, "the section in force")
    assert server.execute("p", "hostname").json["rule"] == "base-only"
    hidden = f"echo {base64_of('id; uname; hostname; true')} | base64 -d | sh"
    theirs, ours = server.execute("p", hidden, key=key).json["stderr"], server.execute("p", hidden).json["stderr"]
    assert "(acme-only)" in theirs and "(base-only)" in theirs and "no-template" not in theirs, theirs
    assert "acme-only" not in ours and "(base-only)" in ours, ours


def start_by_e2b(server, sandbox, command):
    """Start of the e2b dialect, as its SDK calls it for a command; everything that the stream says."""
    message = json.dumps({"process": {"cmd": "/bin/bash", "args": ["-l", "-c", command], "envs": {}}}).encode()
    reply = server.request("POST", "/process.Process/Start", struct.pack(">BI", 0, len(message)) + message, headers={
        "Content-Type": "application/connect+json", "Connect-Protocol-Version": "1", "E2b-Sandbox-Id": sandbox, "E2b-Sandbox-Port": "49983"})
    assert reply.status == 200, reply
    return reply.body


def test_an_old_sandbox_is_judged_by_its_own_template_after_its_project_got_one_of_another(make_server, small_root):
    server = make_server(pool=0, reuse="2s")
    with open(policy_of(server), "a") as f:
        f.write('\n[template=base]\ndeny  base-only  words  /^id( |$)/  "not here"\n[template=small]\ndeny  small-only  words  /^stat( |$)/  "not there"\n')
    wait_for(lambda: server.execute("q", "id").status == 400, 30, "the sections in force")
    added = cove(server, "-c", f"{server.dir}/conf/cove.conf", "template", "add", "small", str(small_root))
    assert added.returncode == 0, added.stdout
    old = server.execute("p", "true").id
    use(server, "small")
    new = wait_for(lambda: next((i for i in [server.execute("p", "true").id] if i != old), None), 30, "a sandbox of the other template")
    for sandbox, allowed, refused, rule in ((old, "stat /", "id -u", b"base-only"), (new, "id -u", "stat /", b"small-only")):
        assert b'"exited":true' in start_by_e2b(server, sandbox, allowed), (sandbox, allowed)
        said = start_by_e2b(server, sandbox, refused)
        assert rule in said and b'"start"' not in said, (sandbox, said)
        assert server.execute(sandbox, refused).json["rule"] == rule.decode()
        assert server.execute(sandbox, allowed).status == 200


def test_a_background_process_is_still_judged_after_the_reply(server, project):
    hidden = base64_of("rm -rf /workspace/precious; touch /workspace/done")
    server.run(project, "mkdir /workspace/precious")
    server.run(project, f"(until [ -e /tmp/go ]; do sleep 0.05; done; echo {hidden} | base64 -d | sh) >/dev/null 2>&1 & echo")
    server.run(project, "touch /tmp/go")
    wait_for(lambda: "done" in server.run(project, "ls /workspace"), 10, "the background command")
    assert server.run(project, "ls /workspace") == "done\nprecious\n"


def test_after_the_death_of_the_judge_commands_go_on_and_are_judged(server, project):
    server.run(project, "true")
    judges = server.titles("cove: judge")
    assert len(judges) == 1
    os.kill(next(iter(judges)), signal.SIGKILL)
    assert server.run(project, "ls / >/dev/null; echo still here") == "still here\n"
    reply = server.execute(project, f"echo {base64_of('rm -rf /x')} | base64 -d | sh")
    assert "cove: refused by policy" in reply.json["stderr"], reply
    wait_for(lambda: len(server.titles("cove: judge")) == 1, 5, "one judge")


def test_after_a_restart_of_the_keeper_there_is_one_judge(make_server):
    server = make_server()
    server.run("p", "true")
    old = set(server.titles("cove: judge"))
    os.kill(server.keeper_pid, signal.SIGKILL)
    server.up()
    assert server.run("p", "ls / >/dev/null; echo x") == "x\n"
    wait_for(lambda: len(now := set(server.titles("cove: judge"))) == 1 and now != old, 10, "a judge in the old one's place")
    assert server.run("p", "ls / >/dev/null; echo y") == "y\n"


# ------------------------------------------------------------------ audit

def test_refusals_are_in_the_audit_log_and_its_chain_holds(make_server):
    server = make_server()
    assert server.execute("p", "shutdown now --token e2b_" + "5" * 40).status == 400
    server.execute("p", f"echo {base64_of('rm -rf /x')} | base64 -d | sh")
    lines = wait_for(lambda: len(audit_lines(server)) >= 2 and audit_lines(server), 5, "two lines")
    assert [line["event"] for line in lines[:2]] == ["refused", "exec-denied"]
    assert all(line["tenant"] and line["project"] == "p" and line["dialect"] == "execute" for line in lines)
    assert server.execute("p", "reboot").status == 400
    last = wait_for(lambda: len(audit_lines(server)) >= 3 and audit_lines(server)[2], 5, "a third line")
    assert last["key"] and last["sandbox"] == lines[1]["sandbox"]  # by which key, and in which sandbox it would have run
    assert "5" * 40 not in json.dumps(lines)  # secrets are taken out
    path = server.config["audit_file"]
    assert os.stat(path).st_mode & 0o027 == 0
    assert cove(server, "audit", "verify", path).returncode == 0
    text = read(path)
    with open(path, "w") as f:
        f.write(text.replace('"project":"p"', '"project":"q"', 1))
    broken = cove(server, "audit", "verify", path)
    assert broken.returncode == 1 and "1" in broken.stdout


def test_each_exec_time_denial_is_a_line_of_its_own(make_server):
    server = make_server()
    code = "import os\nfor a in (['rm','-rf','/x'],['shutdown','now'],['mkfs','x'],['rm','-rf','/y']):\n" \
           "    try: os.execv('/usr/bin/env', a)\n    except OSError: pass\n"
    server.execute("p", f"echo {base64_of(code)} | base64 -d | python3")
    lines = wait_for(lambda: len(audit_lines(server)) >= 4 and audit_lines(server), 5, "four lines")
    assert [line["command"] for line in lines] == ["rm -rf /x", "shutdown now", "mkfs x", "rm -rf /y"]


def told_in_audit(server):
    """How many denials the audit log tells of: its lines, and those that its "more" lines stand for."""
    lines = audit_lines(server)
    return sum(1 for x in lines if x["event"] == "exec-denied") + sum(x["count"] for x in lines if x["event"] == "more")


def test_a_loop_of_refused_execs_writes_a_bounded_number_of_lines_and_warns(make_server):
    """execv() and not execvp(): the folders of PATH would be tried one by one, which counts as one denial only if they follow quickly."""
    server = make_server(audit_rate=6, exec_refusals_max=0)
    loop = "import os\nfor i in range(400):\n    try: os.execv('/usr/bin/rm', ['rm', '-rf', '/x%d' % i, '\\1' * 3000])\n    except OSError: pass\n"
    began = time.monotonic()
    server.execute("p", f"echo {base64_of(loop)} | base64 -d | python3")
    most = 100 + (time.monotonic() - began) / 10 + 1  # the burst, and six a minute
    wait_for(lambda: told_in_audit(server) >= 400, 30, "every denial in the audit log, as a line or in a count")
    assert told_in_audit(server) == 400
    text = read(server.config["audit_file"])
    assert 100 <= text.count("exec-denied") <= most
    assert all(len(line) < 9000 for line in text.split("\n"))  # control characters do not make a line longer
    # The first warning comes at the first tick that finds a line left out, and the next one a minute later: its figure is of that moment.
    warned = [x for x in server.log_lines() if "audit log has reached" in x["event"]]
    assert len(warned) == 1 and 0 < warned[0]["lines_only_counted"] <= 400 - text.count("exec-denied")
    told = [line["count"] for line in server.log_lines() if line["event"] == "exec denied"]
    assert 1 <= len(told) < 100, "the server's log has at most one line a second for a sandbox"
    server.execute("q", "shutdown now")  # another sandbox has a rate of its own
    wait_for(lambda: [x for x in audit_lines(server) if x["project"] == "q"], 5, "another sandbox's line")


def test_with_audit_all_every_command_is_in_the_log(make_server):
    server = make_server()
    server.run("p", "echo before")
    with open(policy_of(server), "a") as f:
        f.write("\n[execute]\naudit = all\n")
    wait_for(lambda: server.run("p", "echo now") and audit_lines(server), 5, "a line")
    ran = [line for line in audit_lines(server) if line["event"] == "ran"]
    assert ran and all(line["command"] == "echo now" and line["project"] == "p" for line in ran)


# ------------------------------------------------------------------ live edits

def policy_of(server):
    return server.config["policy_file"]


def test_a_saved_edit_holds_within_moments_and_a_broken_one_changes_nothing(make_server):
    server = make_server()
    path = policy_of(server)
    good = read(path)
    assert server.execute("p", "frobnicate").status == 200
    with open(path, "w") as f:
        f.write(good + '\n[execute]\ndeny  no-frob  words  /^frobnicate\\b/  "no frobbing"\n')
    reply = wait_for(lambda: (r := server.execute("p", "frobnicate")).status == 400 and r, 5, "the new rule")
    assert reply.json["rule"] == "no-frob" and reply.json["reason"] == "no frobbing"
    status = cove(server, "-c", f"{server.dir}/conf/cove.conf", "policy", "status")
    assert status.returncode == 0 and "the same" in status.stdout, status.stdout
    shown = re.search(r'cove_policy_info{hash="(\w+)"} 1', server.request("GET", "/metrics").body.decode()).group(1)
    assert shown in status.stdout
    with open(path, "w") as f:
        f.write(good + '\ndeny  broken  words  /(/  "x"\n')
    refused = wait_for(lambda: [line for line in server.log_lines() if "refused" in line["event"]], 5, "the refusal in the log")
    assert f"{path}:" in refused[-1]["error"] and "broken" in refused[-1]["error"]
    status = cove(server, "-c", f"{server.dir}/conf/cove.conf", "policy", "status")
    assert status.returncode == 1 and "rule 'broken'" in status.stdout and f"generation {generation(server)}," in status.stdout
    assert server.execute("p", "frobnicate").status == 400  # the one before stays
    assert server.execute("p", "rm -rf /").status == 400


def test_whatever_is_put_in_the_files_place_the_old_policy_stays(make_server):
    server = make_server()
    path, folder = policy_of(server), os.path.dirname(policy_of(server))
    good, seen = read(path), 0
    bad = {
        "empty": b"", "no rule": b"# nothing\n", "binary": bytes(range(256)) * 40, "half-written": good.encode()[:-7],
        "not UTF-8": b"# \xff\xfe\n" + good.encode(), "huge": b"# x\n" * 3_000_000, "a loop": b"include policy.conf\n",
        "a missing include": b"include nowhere.conf\n" + good.encode(),
        "too many rules": b"".join(b'deny r%d words /^r%d/ "no"\n' % (i, i) for i in range(100_000)),
    }

    def refusals():
        return len([line for line in server.log_lines() if "refused" in line["event"]])

    for name, content in bad.items():
        with open(f"{folder}/.new", "wb") as f:
            f.write(content)
        os.rename(f"{folder}/.new", path)
        wait_for(lambda: refusals() > seen, 10, f"the refusal of: {name}")
        seen = refusals()
        assert server.execute("p", "rm -rf /").status == 400 and server.run("p", "echo x") == "x\n", name
    os.unlink(path)
    os.mkdir(path)
    wait_for(lambda: refusals() > seen, 10, "the refusal of a folder")
    assert server.execute("p", "rm -rf /").status == 400
    os.rmdir(path)
    with open(path, "w") as f:
        f.write(good + '\n[execute]\ndeny  late  words  /^late/  "no"\n')
    wait_for(lambda: server.execute("p", "late").status == 400, 10, "a good file again")


def generation(server):
    return int(re.search(r"cove_policy_generation (\d+)", server.request("GET", "/metrics").body.decode()).group(1))


def test_folders_and_files_that_come_later_are_read_and_watched(make_server, tmp_path):
    server = make_server()
    folder = os.path.dirname(policy_of(server))
    refused = lambda command: server.execute("p", command).status == 400

    def put(path, text):
        with open(path, "w") as f:
            f.write(text)

    assert not refused("one") and not refused("two")
    os.mkdir(f"{folder}/policy.d")
    put(f"{folder}/policy.d/10-one.conf", 'deny  one  words  /^one/  "no"\n')
    wait_for(lambda: refused("one"), 5, "a rule in a folder that was not there before")
    put(tmp_path / "two.conf", 'deny  two  words  /^two/  "no"\n')
    put(f"{folder}/policy.d/20-two.conf", f'include {tmp_path}/two.conf\n')
    wait_for(lambda: refused("two"), 5, "an included file")
    put(tmp_path / "two.conf", 'deny  two  words  /^deux/  "no"\n')
    wait_for(lambda: refused("deux") and not refused("two"), 5, "an edit of the included file")
    before = generation(server)
    server.add_key("somebody")  # another file of the same folder
    os.utime(policy_of(server))
    assert generation(server) == before  # nothing new is no new generation
    os.rename(f"{folder}/policy.d/10-one.conf", f"{folder}/policy.d/10-one.off")
    wait_for(lambda: not refused("one"), 5, "the rule to go with its file")
    assert generation(server) == before + 1


def test_an_operators_own_profile_holds_for_a_tenant_and_a_missing_one_is_refused(make_server):
    server = make_server()
    folder = os.path.dirname(policy_of(server))
    key, good = server.add_key("acme"), read(policy_of(server))
    look = "python3 -c 'import os; os.getcwd(); print(os.sched_getaffinity(0) and 1)' 2>&1 | tail -1"
    assert server.run("p", look) == "1\n" and server.run("p", look, key=key) == "1\n"
    os.mkdir(f"{folder}/profiles")
    with open(f"{folder}/profiles/mine.conf", "w") as f:
        f.write("include default.conf\nrefuse sched_getaffinity\n")
    with open(policy_of(server), "w") as f:
        f.write(good + "\n[tenant=acme]\nseccomp = mine\n")
    wait_for(lambda: "PermissionError" in server.run("p", look, key=key), 5, "the profile in the sandbox that is there already")
    assert server.run("p", look) == "1\n" and server.run("q", look) == "1\n"  # nobody else's, from the pool neither
    assert "PermissionError" in server.run("q", look, key=key)
    with open(policy_of(server), "w") as f:
        f.write(good + "\n[tenant=acme]\nseccomp = yours\n")
    lines = wait_for(lambda: [x for x in server.log_lines() if "refused" in x["event"]], 5, "the refusal")
    assert "seccomp = yours: there is no such profile" in lines[-1]["error"] and f"{policy_of(server)}:" in lines[-1]["error"]
    assert "PermissionError" in server.run("q", look, key=key)


def test_edits_under_load_lose_no_request_and_never_leave_it_without_a_policy(make_server):
    server = make_server(workers=2)
    path = policy_of(server)
    good, before = read(path), generation(server)
    wrk = subprocess.Popen(["wrk", "-t2", "-c6", "-d60s", "--timeout", "60s", "-s", f"{TOP}/tests/system/edits.lua",
                            "-H", f"X-API-Key: {server.key}", f"http://127.0.0.1:{server.http}"],
                           text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    server.projects.update({("wrk0", True), ("wrk1", True)})
    for i in range(100):
        text = good + f"\n# edit {i}\n" if i % 4 else good[: len(good) // 2] + "\ndeny broken"
        how = path + ".tmp" if i % 2 else path  # renamed over it, or written in place
        with open(how, "w") as f:
            f.write(text)
        if i % 2:
            os.rename(how, path)
        threading.Event().wait(0.04)
    with open(path, "w") as f:
        f.write(good + "\n# the last edit\n")
    wait_for(lambda: generation(server) > before + 3, 30, "edits that were taken up")
    wrk.send_signal(signal.SIGINT)
    out = wrk.communicate(timeout=60)[0]
    counts = {k: int(v) for k, v in re.findall(r"(\w+)=(\d+)", re.search("COUNTS (.*)", out).group(1))}
    assert counts["wrong"] == 0 and counts["lost"] == 0, out
    assert counts["fine"] > 10 and counts["refused"] > 10, out  # how many, a busy machine decides
    assert any("refused" in line["event"] for line in server.log_lines())  # the broken ones were seen as well
