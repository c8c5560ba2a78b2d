"""`cove`, the operator's tool, on a running instance."""
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

import pytest

from cove import TOP, read, wait_for
from test_front_keys import COVE, cove


def rows(server, *args):
    return json.loads(cove(server, "ls", "--json", *args).stdout)


def test_ls_shows_what_there_is_as_a_table_and_as_json(server, project):
    reply = server.execute(project, "sleep 30 & echo")
    mine = [r for r in rows(server) if r["project"] == project]
    assert [r["id"] for r in mine] == [reply.id] and mine[0]["tenant"] == "default" and mine[0]["state"] == "live"
    assert mine[0]["memory_bytes"] > 0 and mine[0]["processes"] >= 2
    assert reply.id in cove(server, "ls").stdout
    assert all(r["tenant"] == "" for r in rows(server, "--all") if r["state"] == "warm")
    assert rows(server, "--tenant", "nobody") == []


def test_top_sees_a_busy_sandbox(server, project):
    server.execute(project, "(while :; do :; done) & echo")
    top = json.loads(cove(server, "top", "--json", "--interval", "500ms").stdout)
    assert top[0]["project"] == project and top[0]["cpu_percent"] > 2  # however busy the machine is otherwise
    assert "CPU" in cove(server, "top", "--interval", "200ms").stdout


def test_exec_runs_inside_with_our_input_output_and_exit_code(server, project):
    reply = server.execute(project, "echo 1 > /workspace/f")
    done = subprocess.run([COVE, "-c", f"{server.dir}/conf/cove.conf", "exec", reply.id, "sh", "-c",
                           "cat /workspace/f -; echo err >&2; exit 7"], input="2\n", text=True, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (7, "1\n2\n", "err\n")
    assert "sandbox_" + reply.id == reply.json["sandboxId"]
    assert cove(server, "exec", "--user", "user", "sandbox_" + reply.id, "id", "-u").stdout == "1000\n"
    assert cove(server, "exec", project, "--", "hostname").stdout == server.run(project, "hostname")


def test_exec_is_inside_the_wall(server, project):
    server.execute(project, "true")
    assert cove(server, "exec", project, "unshare", "-U", "true", check=False).returncode != 0
    status = dict(x.split(":\t", 1) for x in cove(server, "exec", project, "cat", "/proc/self/status").stdout.strip().split("\n"))
    assert status["Seccomp"] == "2" and int(status["Seccomp_filters"]) >= 1
    # kcmp: the kernel allows it on oneself, the profile `build` allows it too, `default` does not.
    kcmp = ("import ctypes, os; l = ctypes.CDLL(None, use_errno=True); me = os.getpid(); "
            "print(l.syscall({'x86_64': 312, 'aarch64': 272}[os.uname().machine], me, me, 0, 0, 0), ctypes.get_errno())")
    assert cove(server, "exec", project, "python3", "-c", kcmp).stdout == "-1 1\n"
    assert cove(server, "exec", project, "cat", f"{server.dir}/conf/cove.conf", check=False).returncode != 0


def test_kill_ends_a_sandbox_and_all_in_it(server, project):
    reply = server.execute(project, "sleep 1000 & echo")
    init = server.init_of(reply)
    inside = server.inside(init)
    assert cove(server, "kill", reply.id[:8]).stdout.strip() == reply.id
    assert json.loads(cove(server, "kill", "--json", server.execute(project, "true").id).stdout)[0]["id"]
    wait_for(lambda: not any(os.path.exists(f"/proc/{p}") for p in [init, *inside]), 5, "its end")
    assert reply.id not in [r["id"] for r in rows(server)]


# ------------------------------------------------------------------ exec -t, at a terminal

class Terminal:
    """An operator at a terminal: a pty with `cove exec -it` in it."""

    def __init__(self, server, *args, rows=33, cols=111):
        self.master, slave = os.openpty()
        self.before = termios.tcgetattr(slave)
        self.slave, self.shown = slave, b""
        self.resize(rows, cols)
        env = {**os.environ, "TERM": "xterm-cove"}
        self.process = subprocess.Popen([COVE, "-c", f"{server.dir}/conf/cove.conf", "exec", "-it", *args], env=env,
                                        stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
                                        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))

    def resize(self, rows, cols):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def type(self, text):
        os.write(self.master, text.encode())

    def shows(self, text, seconds=10):
        end = time.monotonic() + seconds
        while text.encode() not in self.shown:
            assert time.monotonic() < end, (text, self.shown)
            if select.select([self.master], [], [], 0.1)[0]:
                self.shown += os.read(self.master, 65536)

    def done(self):
        code = self.process.wait(10)
        was = termios.tcgetattr(self.slave)
        os.close(self.master)
        os.close(self.slave)
        assert was == self.before, "the terminal is as it was"
        return code


def test_exec_with_a_terminal_is_a_terminal(server, project):
    server.execute(project, "true")
    at = Terminal(server, project, "bash", "--norc", "-c", "tty; stty size; echo $TERM; read -r line; echo got-$line; exit 9")
    at.shows("/dev/pts/")
    at.shows("33 111")
    at.shows("xterm-cove")
    at.type("hello\r")
    at.shows("got-hello")
    assert at.done() == 9


def test_the_windows_size_follows_and_control_c_goes_to_the_program(server, project):
    server.execute(project, "true")
    at = Terminal(server, project, "bash", "--norc", "-c",
                  'trap "echo size-\\$(stty size)" WINCH; trap "echo interrupted; exit 5" INT; echo ready; '
                  'while :; do sleep 0.1; done')
    at.shows("ready")
    at.resize(50, 140)
    at.shows("size-50 140")
    at.type("\x03")
    at.shows("interrupted")
    assert at.done() == 5


def test_what_was_started_at_a_terminal_ends_with_it(server, project):
    reply = server.execute(project, "true")
    at = Terminal(server, project, "bash", "--norc", "-c", "echo ready; sleep 1000")
    at.shows("ready")
    at.process.terminate()
    assert at.done() == 2
    wait_for(lambda: not server.inside(server.init_of(reply)), 5, "its end")


def test_a_terminal_works_with_input_from_a_pipe(server, project):
    server.execute(project, "true")
    done = subprocess.run([COVE, "-c", f"{server.dir}/conf/cove.conf", "exec", "-t", project, "cat"], input="from a pipe\n",
                          text=True, capture_output=True, timeout=20)
    assert done.returncode == 0 and "from a pipe" in done.stdout, "end of input is end of input"


# ------------------------------------------------------------------ logs

def start(server, project, command):
    return server.request("POST", "/start_process", {"cmd": command}, headers={"X-Project-Id": project}).json["id"]


def test_logs_lists_processes_and_shows_what_one_wrote(server, project):
    server.execute(project, "true")
    label = start(server, project, "echo out; echo err >&2; sleep 1000")
    assert cove(server, "logs", project).stdout.startswith("PROC")
    row = json.loads(cove(server, "logs", project, "--json").stdout)[0]
    assert row["running"] and row["log"] and "sleep 1000" in row["command"] and row["label"] == label
    wait_for(lambda: "err" in cove(server, "logs", project, label).stderr, 5, "its output")
    for which in (label, str(row["proc"])):
        assert cove(server, "logs", project, which).stdout == "out\n"
    records = [json.loads(line) for line in cove(server, "logs", project, label, "--json").stdout.splitlines()]
    assert {(r["stream"], r["text"]) for r in records} == {("stdout", "out\n"), ("stderr", "err\n")}
    assert all(abs(r["time_unix_ms"] / 1000 - time.time()) < 60 for r in records)


def test_logs_can_be_followed_to_the_end(server, project):
    server.execute(project, "true")
    label = start(server, project, "echo first; until [ -e /workspace/go ]; do sleep 0.05; done; echo last")
    follower = subprocess.Popen([COVE, "-c", f"{server.dir}/conf/cove.conf", "logs", project, label, "--follow"], text=True,
                                stdout=subprocess.PIPE)
    assert follower.stdout.readline() == "first\n"
    server.run(project, "touch /workspace/go")
    assert follower.stdout.read() == "last\n" and follower.wait(10) == 0


def test_what_a_sandbox_writes_does_not_steer_the_operators_terminal(server, project):
    server.execute(project, "true")
    label = start(server, project, "printf 'a\\033]0;title\\007b'; # \x1b[2J")
    wait_for(lambda: "title" in cove(server, "logs", project, label).stdout, 5, "its output")
    assert "\x1b" not in cove(server, "logs", project).stdout
    shown = subprocess.run(["script", "-qec", f"{COVE} -c {server.dir}/conf/cove.conf logs {project} {label}", "/dev/null"],
                           text=True, capture_output=True).stdout
    assert "title" in shown and "\x1b" not in shown and "\x07" not in shown


# ------------------------------------------------------------------ a sandbox's token (through nginx)

def with_token(server, token, host=None, path="/run", body=None, **headers):
    headers = {"X-Access-Token": token, **({"Host": host} if host else {}), **{k.replace("_", "-"): v for k, v in headers.items()}}
    return server.request("POST", path, body or {"cmd": "cat /workspace/whose"}, key=False, headers=headers)


def made_by_executor(server, project):
    """Port 8080 is the executor's only in sandboxes that its dialect made."""
    assert server.post("/run", {"cmd": "true"}, headers={"X-Project-Id": project}).status == 200


def test_a_token_opens_its_sandbox_and_nothing_else(server, project):
    boxes = {}
    for name in ("one", "two"):
        made_by_executor(server, f"{project}-{name}")
        boxes[name] = server.execute(f"{project}-{name}", f"echo {name} > /workspace/whose").id
    tokens = {name: cove(server, "token", box).stdout.strip() for name, box in boxes.items()}
    assert json.loads(cove(server, "token", boxes["one"], "--json").stdout) == {"id": boxes["one"], "token": tokens["one"]}
    host = {name: f"8080-{box}.cove.localhost" for name, box in boxes.items()}
    reply = with_token(server, tokens["one"], host["one"])
    assert reply.status == 200 and reply.json["stdout"] == "one\n"
    reply = with_token(server, tokens["one"], host["one"], X_Project_Id=f"{project}-two")
    assert reply.status == 200 and reply.json["stdout"] == "one\n", "the host's name says which"
    for token, where in ((tokens["one"], host["two"]), (tokens["one"], None), ("0" * 64, host["one"]), ("", host["one"]),
                         (tokens["one"][:-1], host["one"]), (tokens["one"].upper(), host["one"]), ("x" * 5000, host["one"])):
        assert with_token(server, token, where).status == 401, (token, where)
    assert with_token(server, tokens["one"], f"8080-{'a' * 20}.cove.localhost").status == 502
    for path, body in (("/execute", {"projectId": f"{project}-two", "commands": ["true"]}), ("/cleanup", {"projectId": project}),
                       ("/unbind_port", {})):
        assert with_token(server, tokens["one"], host["one"], path, body).status in (403, 404), path  # of 8080 are executor's paths
    assert with_token(server, tokens["one"], None, E2b_Sandbox_Id=boxes["one"], X_Project_Id=f"{project}-two").status == 403
    server.cleanup(f"{project}-one")
    wait_for(lambda: with_token(server, tokens["one"], host["one"]).status == 502, 5, "a dead sandbox's name to be nobody's")
    assert with_token(server, tokens["one"], None, E2b_Sandbox_Id=boxes["one"]).status == 401


def test_a_token_outlives_a_restart_and_is_in_no_log(make_server):
    server = make_server()
    made_by_executor(server, "t")
    box = server.execute("t", "echo t > /workspace/whose").id
    token = cove(server, "token", "t").stdout.strip()
    os.kill(server.keeper_pid, signal.SIGKILL)
    server.up()
    wait_for(lambda: with_token(server, token, f"8080-{box}.cove.localhost").status == 200, 10, "the same token")
    line = wait_for(lambda: [x for x in map(json.loads, read(f"{server.dir}/log/access.log").splitlines())
                             if x["key"] == f"box-{box}"], 5, "the access log's line")[0]
    assert line["tenant"] == "default"
    for name in os.listdir(f"{server.dir}/log"):
        assert token not in read(f"{server.dir}/log/{name}"), name
    secret = f"{server.config['state_dir']}/token-secret"
    assert os.stat(secret).st_mode & 0o777 == 0o600


@pytest.mark.parametrize("args", [["exec", "nosuchbox", "true"], ["kill", "nosuchbox"], ["logs", "nosuchbox"]])
def test_an_unknown_sandbox_is_told(server, args):
    done = cove(server, *args, check=False)
    assert done.returncode == 2 and "no sandbox 'nosuchbox'" in done.stderr


@pytest.mark.parametrize("args", [["exec"], ["kill"], ["logs"], ["ls", "x"], ["top", "--interval", "0"], ["nonsense"], []])
def test_wrong_usage_is_told(server, args):
    done = cove(server, *args, check=False)
    assert done.returncode == 2 and "usage" in done.stderr


def all_commands():
    """["ls"], ["key", "create"], ...: as `cove --help` and its groups list them."""
    usage = lambda *words: subprocess.run([COVE, *words, "--help"], text=True, capture_output=True, check=True).stdout
    for line in re.findall(r"^  cove .*", usage().split("examples:")[0], re.M):
        name = line.split()[1]
        inner = [x.split()[2:] for x in usage(name).split("\n") if x.startswith("  cove ")]
        yield from ([name, words[0]] for words in inner) if inner else [[name]]


def test_every_command_has_help_and_version():
    commands = list(all_commands())
    assert len(commands) > 18 and ["key", "create"] in commands
    for words in [[], *commands]:
        for flag, says in (("--help", "usage:"), ("--version", "cove ")):
            done = subprocess.run([COVE, *words, flag], text=True, capture_output=True)
            assert (done.returncode, done.stderr) == (0, "") and says in done.stdout, (words, flag, done)
    usage = subprocess.run([COVE, "ls", "--json", "--help"], text=True, capture_output=True)
    assert usage.returncode == 0 and usage.stdout.startswith("usage: cove ls ")


@pytest.mark.parametrize("args, says", [(["sl"], "no command 'sl'; did you mean 'ls'?"), (["key", "crate"], "did you mean 'create'?"),
                                        (["stauts"], "did you mean 'status'?"), (["wxyz"], "no command 'wxyz'\n")])
def test_an_unknown_word_is_named_with_a_suggestion(args, says):
    done = subprocess.run([COVE, *args], text=True, capture_output=True)
    assert done.returncode == 2 and says in done.stderr


@pytest.mark.parametrize("what", ["key", "operator", "tenant", "template", "snapshot", "store", None])
def test_list_and_ls_are_the_same_word(server, what):
    said = [cove(server, *([what] if what else []), word, "--json").stdout for word in ("ls", "list")]
    assert said[0] == said[1] and isinstance(json.loads(said[0]), list)


@pytest.mark.parametrize("args, next_step", [
    (["template", "show", "nosuch"], "`cove template ls` shows them"), (["template", "shwo", "x"], "cove template --help"),
    (["template", "show"], "usage: cove template show NAME [--json]\n"), (["store", "show", "nosuch"], "`cove store ls` shows them"),
    (["key", "revoke", "nosuch"], "`cove key list` shows them"), (["kill", "nosuch"], "`cove ls` shows them"),
    (["operator", "remove", "nosuch"], "`cove operator list` shows them"), (["snapshot", "rm", "nosuch"], "`cove snapshot ls` shows them")])
def test_an_error_ends_with_what_to_do_next(server, args, next_step):
    done = cove(server, *args, check=False)
    assert done.returncode == 2 and next_step in done.stderr and len(done.stderr.splitlines()) <= 2, done.stderr


def test_a_server_that_is_not_there_is_told_with_how_to_start_or_name_one(tmp_path):
    conf = tmp_path / "cove.conf"
    for says in ("-c FILE or $COVE_CONFIG", "./quickstart up"):
        done = subprocess.run([COVE, "-c", str(conf), "ls"], text=True, capture_output=True)
        assert done.returncode == 2 and says in done.stderr, done.stderr
        conf.write_text(f"run_dir = {tmp_path}/run\n")


def test_help_of_the_program_inside_is_the_programs(server, project):
    server.execute(project, "true")
    assert "Usage: ls" in cove(server, "exec", project, "ls", "--help").stdout


def test_a_sandbox_can_be_named_by_tenant_and_project(make_server):
    server = make_server()
    other = cove(server, "key", "create", "other").stdout.strip()
    mine, theirs = server.execute("same", "true"), server.execute("same", "true", key=other)
    done = cove(server, "kill", "same", check=False)
    assert done.returncode == 2 and "TENANT/PROJECT" in done.stderr
    assert cove(server, "kill", "other/same").stdout.strip() == theirs.id
    assert cove(server, "exec", "default/same", "hostname").stdout == server.run("same", "hostname")
    assert cove(server, "kill", "default/same").stdout.strip() == mine.id


def test_logs_of_a_process_without_a_log_say_what_is_wrong(server, project):
    server.execute(project, "true")
    done = cove(server, "logs", project, "1", check=False)
    assert done.returncode == 2 and "process '1' has no log" in done.stderr and "`cove logs SANDBOX`" in done.stderr


def test_status_is_one_screen_and_fails_when_the_server_is_down(make_server):
    server = make_server()
    server.execute("p", "true")
    shown = cove(server, "status").stdout
    assert "keeper     runs" in shown and "1 live" in shown and len(shown.split("\n")) < 12
    told = json.loads(cove(server, "status", "--json").stdout)
    assert told["keeper"] is True and told["workers"] == 1 and told["sandboxes"]["live"] == 1
    os.kill(server.keeper_pid, signal.SIGTERM)
    wait_for(lambda: "does not run" in cove(server, "status", check=False).stdout, 10, "the keeper's end")
    assert cove(server, "status", check=False).returncode == 1


def test_coved_check_lists_every_mistake_of_a_file(server, tmp_path):
    coved = f"{TOP}/.cove/inst/sbin/coved"
    conf = tmp_path / "cove.conf"
    conf.write_text("memroy_max = 1G\nthreads = many\n")
    done = subprocess.run([coved, "-c", conf, "--check"], text=True, capture_output=True)
    assert done.returncode == 2
    assert [x.split(": ", 1)[1] for x in done.stderr.strip().split("\n")] == [
        f"{conf}:1: memroy_max: no such key; did you mean memory_max?", f"{conf}:2: threads: 'many' is not a number"]
    conf.write_text("pool = 1\n")
    assert subprocess.run([coved, "-c", conf, "--check"], text=True, capture_output=True).returncode == 0


def test_doctor_finds_nothing_wrong_here_and_says_how_to_mend_what_is(server, tmp_path):
    done = cove(server, "doctor", "--json", check=False)
    findings = {d["check"]: d for d in json.loads(done.stdout)}
    broken = [d for d in findings.values() if d["finding"] == "fail" and d["check"] != "nginx"]
    assert not broken, broken
    conf = tmp_path / "cove.conf"
    keys = tmp_path / "keys"
    keys.write_text("nonsense\n")
    conf.write_text(f"run_dir = {tmp_path}\nkeys_file = {keys}\npolicy_file = {tmp_path}/nothing\n"
                    "worker_user = nobody-of-that-name\n")
    sick = subprocess.run([COVE, "-c", str(conf), "doctor", "--json"], text=True, capture_output=True)
    findings = {d["check"]: d for d in json.loads(sick.stdout)}
    assert sick.returncode == 1
    for check in ("keys", "policy", "users", "coved"):
        assert findings[check]["finding"] == "fail", check
        assert findings[check]["fix"], check
    assert "line 1" in findings["keys"]["what"]
    conf.write_text("threads = many\n")
    sick = subprocess.run([COVE, "-c", str(conf), "doctor"], text=True, capture_output=True)
    assert f"{conf}:1: threads" in sick.stdout


def test_every_command_is_in_the_manual_and_in_the_completion():
    usage = subprocess.run([COVE, "help"], text=True, capture_output=True).stdout
    commands = [line.split()[1] for line in re.findall(r"^  cove .*", usage.split("examples:")[0], re.M)]
    assert {"doctor", "ls", "top", "exec", "logs", "kill", "key", "policy", "version"} <= set(commands)
    manual, completion = read(f"{TOP}/man/cove.1"), read(f"{TOP}/cli/cove.bash")
    for command in commands:
        assert f".It Cm {command}" in manual, command
        assert command in completion.split("esac")[0], command


@pytest.mark.parametrize("words, wanted", [
    ("cove key cr", "create"), ("cove ver", "version"), ("cove -c x.conf tok", "token"), ("cove key create --ex", "--expires"),
    ("cove exec --t", "--tty"), ("cove top --js", "--json"), ("cove policy se", "seccomp")])
def test_completion_completes(words, wanted):
    assert complete(words) == wanted


def complete(words, path=""):
    script = (f'PATH={path}:$PATH; . {TOP}/cli/cove.bash; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _cove; '
              'echo "${COMPREPLY[@]}"')
    return subprocess.run(["bash", "-c", script], text=True, capture_output=True).stdout.strip()


def test_completion_knows_the_sandboxes_there_are(server, project, tmp_path):
    reply = server.execute(project, "true")
    (tmp_path / "cove").write_text(f'#!/bin/sh\nexec {COVE} -c {server.dir}/conf/cove.conf "$@"\n')
    (tmp_path / "cove").chmod(0o755)
    for command in ("exec", "logs", "kill", "token"):
        assert complete(f"cove {command} {reply.id[:6]}", tmp_path) == reply.id, command
        assert complete(f"cove {command} {project}", tmp_path) == project, command
    snapshot = cove(server, "snapshot", "make", reply.id).stdout.strip()
    assert complete(f"cove snapshot rm {snapshot[:8]}", tmp_path) == snapshot
    cove(server, "snapshot", "rm", snapshot)
    assert complete(f"cove network {project} eg", tmp_path) == "egress"
    assert complete("cove ls --tenant defa", tmp_path) == "default"
    assert complete("cove policy test --template ba", tmp_path) == "base" and complete("cove policy test --dialect exe", tmp_path) == "execute executor"
    assert complete("cove template show ba", tmp_path) == "base"
    assert complete("cove template show s", tmp_path) == "", "no command stands there"


def test_every_option_of_the_usage_is_in_the_manual_and_in_the_completion():
    usage = subprocess.run([COVE, "help"], text=True, capture_output=True).stdout
    manual, completion = read(f"{TOP}/man/cove.1"), read(f"{TOP}/cli/cove.bash")
    for line in usage.split("examples:")[0].splitlines()[1:]:
        for option in re.findall(r"--([a-z]+)", line):
            assert f"Fl -{option}" in manual and f"--{option}" in completion, (line, option)


@pytest.mark.parametrize("args", [["ls"], ["top", "--interval", "100ms"], ["doctor"], ["key", "list"], ["version"],
                                  ["policy", "check"], ["audit", "verify"]])
def test_every_listing_has_json_for_scripts(server, args):
    json.loads(cove(server, *args, "--json", check=False).stdout)


def test_the_policys_commands_tell_json_an_object_a_line(server, tmp_path):
    lines = lambda *args: [json.loads(line) for line in cove(server, "policy", *args, "--json", check=False).stdout.splitlines()]
    settings, *rules = lines("explain")
    assert settings["dialect"] == "execute" and settings["seccomp"] and len(rules) > 5
    assert all(rule["rule"] and rule["pattern"] and rule["file"] and rule["line"] > 0 for rule in rules)
    _, *forms = lines("explain", "rm -rf /")
    assert [f for f in forms if f["denied"] and f["rule"] and f["reason"]] and [f for f in forms if f["text"] == "rm -rf /"]
    one, other = tmp_path / "one.conf", tmp_path / "other.conf"
    one.write_text("[*]\ndeny cat raw /cat/ \"no cats\"\n")
    other.write_text("[*]\ndeny dog raw /dog/ \"no dogs\"\n")
    assert [(d["only_in"], d["rule"], d["allow"], d["reason"]) for d in lines("diff", str(one), str(other))] == [
        ("first", "cat", False, "no cats"), ("second", "dog", False, "no dogs")]
    assert lines("diff", str(one), str(one)) == []
    cases = tmp_path / "cases"
    cases.write_text("cat execute concat\n- execute cat\n")
    assert lines("test", "--cases", str(cases), "--file", str(one)) == [
        {"line": 2, "dialect": "execute", "command": "cat", "wanted": "-", "got": "cat"}, {"file": str(cases), "cases": 2, "wrong": 1}]
    shown = lines("seccomp", "show", "default")
    assert {"read", "openat"} <= {row["syscall"] for row in shown} and [row for row in shown if row.get("condition")]
    assert {row["only_in"] for row in lines("seccomp", "diff", "default", "strict")} <= {"first", "second"}
    assert cove(server, "policy", "seccomp", "show", "default").stdout.startswith("allow ")


def test_exec_tells_output_and_end_as_one_object(server, project):
    server.run(project, "true")
    done = cove(server, "exec", "--json", project, "sh", "-c", "echo out; echo err >&2; printf '\\377'; exit 3", check=False)
    told = json.loads(done.stdout)
    assert done.returncode == 3 and done.stderr == "" and told["exit_code"] == 3 and told["ended_by"] == "own"
    assert told["stdout"].startswith("out\n") and told["stderr"] == "err\n" and told["truncated"] is False
    killed = json.loads(cove(server, "exec", "--json", project, "sh", "-c", "kill -9 $$", check=False).stdout)
    assert killed["exit_code"] == 137 and "SIGKILL" in killed["reason"]
    much = json.loads(cove(server, "exec", "--json", project, "head", "-c", "9000000", "/dev/zero").stdout)
    assert much["truncated"] is True and len(much["stdout"]) == 8 << 20
    assert cove(server, "exec", "--json", "-t", project, "true", check=False).returncode == 2


def on_a_terminal(columns, *words, env=None):
    """What a person sees in a terminal of that many columns."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    child = subprocess.Popen([COVE, *words], stdout=theirs, stderr=theirs, env={**os.environ, **(env or {})})
    os.close(theirs)
    seen = b""
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:
            break
        if not part:
            break
        seen += part
    child.wait()
    os.close(ours)
    return seen.decode()


def test_tables_fit_the_terminal_and_have_colours_there_alone(server, project):
    server.run(project, "true")
    conf = ["-c", f"{server.dir}/conf/cove.conf"]
    wide = cove(server, "ls").stdout
    assert project in wide and "\033" not in wide
    seen = on_a_terminal(100, *conf, "ls")
    plain = re.sub(r"\033\[\d*m", "", seen).splitlines()
    assert "\033[1mSANDBOX" in seen and all(len(line) <= 100 for line in plain), seen
    assert plain[0].split()[:2] == ["SANDBOX", "STATE"] and any("…" in line for line in plain)
    assert "\033" not in on_a_terminal(100, *conf, "ls", env={"NO_COLOR": "1"})


@pytest.mark.parametrize("words, must_have", [(["ls"], ["SANDBOX", "STATE", "PROJECT", "LEFT"]), (["top", "--count", "1", "--interval", "100ms"], ["SANDBOX", "RATE", "CPU"]),
                                              (["key", "list"], ["KEY", "TENANT"]), (["tenant", "list"], ["TENANT", "SANDBOXES"])])
def test_a_terminal_of_80_columns_gets_fewer_columns_and_no_broken_lines(server, project, words, must_have):
    server.run(project, "true")
    plain = re.sub(r"\033\[\d*[mHJ]", "", on_a_terminal(80, "-c", f"{server.dir}/conf/cove.conf", *words)).splitlines()
    table = plain[[line.split()[:1] for line in plain].index(must_have[:1]):]
    assert set(must_have) <= set(table[0].split()) and len(table) > 1, table
    assert [line for line in table if len(line) > 80] == []


def test_help_shows_examples():
    text = subprocess.run([COVE, "--help"], text=True, capture_output=True).stdout
    assert "examples:" in text and "cove exec -it SANDBOX bash" in text
    assert "example: cove ls --tenant acme" in subprocess.run([COVE, "ls", "--help"], text=True, capture_output=True).stdout
