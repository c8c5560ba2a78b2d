"""`cove`, the operator's tool, on a running instance."""
import json
import os
import subprocess

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
    assert top[0]["project"] == project and top[0]["cpu_percent"] > 20
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
    assert cove(server, "exec", project, "cat", f"{server.dir}/conf/cove.conf", check=False).returncode != 0


def test_kill_ends_a_sandbox_and_all_in_it(server, project):
    reply = server.execute(project, "sleep 1000 & echo")
    init = server.init_of(reply)
    inside = server.inside(init)
    assert cove(server, "kill", reply.id[:8]).stdout.strip() == reply.id
    wait_for(lambda: not any(os.path.exists(f"/proc/{p}") for p in [init, *inside]), 5, "its end")
    assert reply.id not in [r["id"] for r in rows(server)]


def test_logs_lists_processes(server, project):
    server.execute(project, "true")
    assert cove(server, "logs", project).stdout.startswith("PROC")


@pytest.mark.parametrize("args", [["exec", "nosuchbox", "true"], ["kill", "nosuchbox"], ["logs", "nosuchbox"]])
def test_an_unknown_sandbox_is_told(server, args):
    done = cove(server, *args, check=False)
    assert done.returncode == 2 and "no sandbox 'nosuchbox'" in done.stderr


@pytest.mark.parametrize("args", [["exec"], ["kill"], ["logs"], ["ls", "x"], ["top", "--interval", "0"], ["nonsense"], []])
def test_wrong_usage_is_told(server, args):
    done = cove(server, *args, check=False)
    assert done.returncode == 2 and "usage" in done.stderr


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
    commands = [line.split()[1] for line in usage.splitlines()[1:]]
    assert {"doctor", "ls", "top", "exec", "logs", "kill", "key", "policy", "version"} <= set(commands)
    manual, completion = read(f"{TOP}/man/cove.1"), read(f"{TOP}/cli/cove.bash")
    for command in commands:
        assert f".It Cm {command}" in manual, command
        assert command in completion.split("esac")[0], command


def test_completion_completes():
    script = f'. {TOP}/cli/cove.bash; COMP_WORDS=(cove key cr); COMP_CWORD=2; _cove; echo "${{COMPREPLY[@]}}"'
    assert subprocess.run(["bash", "-c", script], text=True, capture_output=True).stdout == "create\n"
