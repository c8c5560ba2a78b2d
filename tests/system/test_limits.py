"""The wall: what a sandbox cannot see, do or use up."""
import json
import os
import stat
import secrets
import time

import pytest

from cove import namespace, read, status_field, wait_for


def rest_of(reply):
    return json.dumps({k: v for k, v in reply.json.items() if k not in ("stdout", "stderr")})


def test_a_sandbox_has_all_seven_namespaces_of_its_own(server, project):
    init = server.init_of(server.execute(project, "true"))
    for kind in ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup"):
        assert namespace(init, kind) != namespace("self", kind), kind


def test_a_sandbox_sees_only_its_own_processes(server, project):
    pids = server.run(project, "ls /proc | grep -c '^[0-9]'")
    assert int(pids) < 10
    assert server.run(project, "cat /proc/1/cmdline | tr '\\0' ' '").startswith("cove: init")


def test_the_host_s_files_are_not_there(server, project):
    here = os.path.realpath(server.dir)
    out = server.run(project, f"ls -d {here} {server.run_dir} /root/.ssh /sys/fs/cgroup/* 2>/dev/null | wc -l")
    assert out == "0\n"
    assert server.run(project, "cat /etc/shadow 2>/dev/null | wc -c") == "0\n"


def test_a_sandbox_cannot_change_what_others_share(server, project):
    server.execute(project + "-a", "echo evil > /usr/bin/cove-test-file; echo evil > /etc/cove-test-file")
    assert server.run(project + "-b", "ls /usr/bin/cove-test-file /etc/cove-test-file 2>/dev/null | wc -l") == "0\n"
    assert not os.path.exists("/usr/bin/cove-test-file")


def test_tmp_and_shm_are_private(server, project):
    name = "cove-test-" + secrets.token_hex(8)
    server.run(project + "-a", f"touch /tmp/{name} /dev/shm/{name}")
    assert server.run(project + "-b", f"ls /tmp /dev/shm | grep -c {name}; true") == "0\n"
    assert not os.path.exists(f"/tmp/{name}") and not os.path.exists(f"/dev/shm/{name}")


def test_the_network_is_its_own_and_the_host_s_loopback_is_not_in_it(server, project):
    assert server.run(project, "grep -o '^ *[a-z0-9]*:' /proc/net/dev | tr -d ' :'") == "lo\neth0\n"
    assert server.execute(project, "exec 3<>/dev/tcp/127.0.0.1/%d" % server.http).json["exitCode"] != 0


@pytest.mark.parametrize("attempt, why", [
    ("mount -t tmpfs none /mnt", "permission denied"), ("unshare -U true", "not permitted"),
    ("mount -o remount,rw /proc", "permission denied"), ("mknod /tmp/sda b 8 0", "permission denied"),
    ("echo 1 > /proc/sys/kernel/panic", "Read-only file system"), ("echo b > /proc/sysrq-trigger", "No such file"),
    ("head -c1 /proc/kcore", "No such file"), ("nsenter -t 1 -n true", "Permission denied"), ("dmesg", "not permitted")])
def test_root_inside_cannot_do_what_only_the_host_s_root_may(server, project, attempt, why):
    reply = server.execute(project, "id -u; " + attempt)
    assert reply.status == 200 and reply.json["exitCode"] != 0, reply
    assert reply.json["stdout"] == "0\n" and why.lower() in reply.json["stderr"].lower(), "by the wall, not by a missing program"


def test_workers_have_no_privileges(server):
    for pid in server.worker_pids:
        assert status_field(pid, "Uid").split() == ["61170"] * 4
        assert int(status_field(pid, "CapEff"), 16) == 0 and int(status_field(pid, "CapPrm"), 16) == 0
        assert status_field(pid, "NoNewPrivs") == "1"
        assert status_field(pid, "Seccomp") == "2"
        assert "0" not in status_field(pid, "Groups").split()


def test_commands_run_under_a_seccomp_filter_without_new_privileges_on_the_host(server, project):
    init = server.init_of(server.execute(project, "sleep 100 & echo"))
    for pid in wait_for(lambda: server.inside(init)):
        assert status_field(pid, "Seccomp") == "2"


def test_processes_name_themselves(server, project):
    reply = server.execute(project, "true")
    titles = list(server.titles("cove: ").values())
    assert "cove: keeper" in titles
    assert any(t.startswith("cove: worker ") for t in titles)
    assert f"cove: init {reply.id}" in titles


# ------------------------------------------------------------------ using it all up

# Not as a shell function: that one the policy knows.
BOMB = r"""printf '#!/bin/bash\n"$0" & "$0" & wait\n' > /tmp/b; chmod +x /tmp/b; /tmp/b"""


def test_a_fork_bomb_hurts_only_its_own_sandbox(server, project):
    began = time.monotonic()
    reply = server.execute(project + "-bomb", BOMB, timeout=30)
    assert time.monotonic() - began < 20
    assert reply.status in (200, 500) and reply.json["success"] is False, reply
    assert server.run(project + "-other", "echo fine") == "fine\n"
    assert len(server.pids()) < 1000
    # What it left running goes with the sandbox; until then there are no more of them than pids_max.
    init = server.init_of(server.execute(project + "-bomb", "true"))
    assert len(server.inside(init)) <= 128


def test_a_detached_fork_bomb_dies_at_the_deadline(server, project):
    bomb = r"""printf '#!/bin/bash\ntrap "" TERM HUP\nsetsid "$0" & setsid "$0" & wait\n' > /tmp/b; chmod +x /tmp/b; /tmp/b"""
    reply = server.execute(project, bomb, timeout=30)
    assert reply.status in (200, 500) and reply.json["success"] is False, reply
    init = server.init_of(server.execute(project, "true"))
    assert server.inside_titles(init) == []


def test_too_much_memory_kills_the_command_and_the_reply_names_the_limit(server, project):
    reply = server.execute(project, "head -c 1000000000 /dev/zero | tail -c 999999999 > /dev/null")
    assert reply.json["success"] is False
    assert "memory" in rest_of(reply) and "256 MiB" in rest_of(reply), reply
    assert server.run(project, "echo alive") == "alive\n"


def test_a_memory_hog_does_not_take_its_neighbours_along(server, project):
    first = server.execute(project, "sleep 1000 & echo")
    init = server.init_of(first)
    server.execute(project, "head -c 1000000000 /dev/zero | tail -c 999999999 > /dev/null")
    assert server.execute(project + "-other", "true").json["success"]
    assert server.init_of(server.execute(project, "true")) == init


def test_running_out_of_pids_is_told(server, project):
    reply = server.execute(project, "for i in $(seq 300); do sleep 30 & done; wait")
    assert reply.json["success"] is False
    assert "pids" in rest_of(reply) or "processes" in rest_of(reply) or "fork" in reply.json["stderr"], reply


def test_open_files_are_limited(server, project):
    assert server.run(project, "ulimit -n") == "4096\n"


def test_a_set_uid_program_on_the_host_is_never_made(server, project):
    reply = server.execute(project, "cp /bin/true /workspace/suid && chmod u+s /workspace/suid && echo made")
    assert reply.json["stdout"] == "made\n", "root of a sandbox may, for itself"
    made = os.stat(server.path_inside(server.init_of(reply), "/workspace/suid"))
    assert made.st_mode & stat.S_ISUID and made.st_uid >= 1000000, "whoever runs it on the host becomes nobody"


def test_a_symlink_out_of_the_sandbox_leads_nowhere(server, project):
    """Both links are there and lead to the sandbox's own files."""
    out = server.run(project, "ln -s /../../../../etc/hostname /workspace/l; ln -s /proc/self/root/../.. /workspace/m; "
                              "cat /workspace/l; hostname; ls /workspace/m/ | md5sum; ls / | md5sum").split("\n")
    assert out[0] == out[1] != read("/proc/sys/kernel/hostname").strip() and out[2] == out[3] != "", out


def test_proc_of_the_host_is_read_only_or_hidden(server, project):
    before = read("/proc/sys/kernel/hostname")
    reply = server.execute(project, "echo hacked > /proc/sys/kernel/hostname; hostname hacked; hostname")
    assert "Read-only file system" in reply.json["stderr"] and reply.json["stdout"] not in ("", "hacked\n"), reply
    assert read("/proc/sys/kernel/hostname") == before


def test_all_sandboxes_together_weigh_more_than_one_process_of_the_machine(session_server):
    """Else a command waits a tenth of a second behind the requests that start others."""
    found = [int(read(f"{d}/{name}")) / usual for d in session_server.cgroups()
             for name, usual in (("cpu.shares", 1024), ("cpu.weight", 100)) if os.path.exists(f"{d}/{name}")]
    assert found and all(weight == 8 for weight in found), found


def test_all_sandboxes_together_leave_processes_to_the_machine(session_server):
    """max_sandboxes x pids_max may be more than the machine has."""
    machine = min(int(read(f"/proc/sys/kernel/{name}")) for name in ("pid_max", "threads-max"))
    corner, = [d for d in session_server.cgroups() if os.path.exists(f"{d}/pids.max")]
    assert int(read(f"{corner}/pids.max")) == machine // 4 * 3


def test_a_bound_for_all_sandboxes_holds_in_each(make_server):
    server = make_server(pool=1)
    server.run("a", "true")
    corner, = [d for d in server.cgroups() if os.path.exists(f"{d}/pids.max")]
    there = int(read(f"{corner}/pids.current"))
    with open(f"{corner}/pids.max", "w") as f:
        f.write(str(there + 20))
    forks = "for i in $(seq 60); do sleep 20 2>/dev/null & done; jobs -p | wc -l"
    reply = server.execute("a", forks)
    assert "fork" in reply.json["stderr"], reply
    assert int(read(f"{corner}/pids.current")) <= there + 20
    assert server.request("GET", "/health").status == 200 and server.keeper_pid
