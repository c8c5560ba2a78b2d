"""What confines each process of cove, as the kernel tells it: a list of all, and none that is not in the list.

What each cage refuses in detail is tried in tests/unit/test_confine.c (and tests/unit/test_init_filter.c for init).
"""
import concurrent.futures
import contextlib
import re
import subprocess

import pytest

from cove import namespace, status_field, title, wait_for
from test_builds import Build
from test_saving import bare, save

FILTER = "2"  # of Seccomp: in /proc/PID/status

# Title: seccomp, no_new_privs, root on the host, capabilities on the host. None: not looked at.
PROCESSES = [
    (r"cove: worker \d+", True, True, False, 0),
    (r"cove: judge", True, True, False, 0),
    (r"cove: gate", True, True, False, 0),
    (r"cove: resolver", True, True, False, 0),
    (r"cove: fetch", True, True, False, 0),
    (r"cove: builder", True, True, False, 0),
    (r"cove: starter", True, True, False, 0),
    (r"cove: saver", True, True, False, None),  # root of the one sandbox's ids
    (r"cove: spare saver", False, True, False, None),  # has no ids, has read nothing, and takes its filter with its order
    (r"cove: auth", True, True, True, None),   # PAM modules read the shadow file
    (r"cove: init .*", True, None, False, None),  # its capabilities are those of its own user namespace
    (r"cove: keeper|.*coved.*", False, None, True, None),  # makes namespaces, mounts and cgroups: it parses nothing that others wrote
]


def row_of(text):
    for pattern, *row in PROCESSES:
        if re.fullmatch(pattern, text):
            return row
    return None


def weakness(pid):
    """What this process lacks; None: nothing."""
    text = title(pid)
    row = row_of(text)
    if row is None:
        return f"{text!r} (pid {pid}) is in no list of what confines it"
    seccomp, no_new_privs, root, capabilities = row
    if seccomp and status_field(pid, "Seccomp") != FILTER:
        return f"{text!r} has no seccomp filter"
    if no_new_privs and status_field(pid, "NoNewPrivs") != "1":
        return f"{text!r} can gain privileges by execve"
    if (status_field(pid, "Uid").split()[1] == "0") != root:
        return f"{text!r} has user id {status_field(pid, 'Uid')}"
    if capabilities is not None and int(status_field(pid, "CapEff"), 16) & ~capabilities:
        return f"{text!r} has capabilities {status_field(pid, 'CapEff')}"
    return None


def is_confined(pid):
    """False: it is not, not yet, or not there any more."""
    with contextlib.suppress(OSError, IndexError):
        return status_field(pid, "Seccomp") == FILTER and weakness(pid) is None
    return False


def with_an_unconfined_gate(server):
    """The weakening: a process that calls itself the gate, and runs as root without a filter."""
    with open(f"{server.dir}/log/coved.log", "a") as log:
        server.false_gate = subprocess.Popen(["cove: gate", "600"], executable="/usr/bin/sleep", stderr=log,
                                             stdin=subprocess.DEVNULL)
    wait_for(lambda: len(server.titles("cove: gate")) > 1, what="the false gate")


@pytest.mark.weak(by=with_an_unconfined_gate)
def test_every_process_is_confined(target, attempt, tmp_path):
    tmp_path.chmod(0o755)
    (tmp_path / "stack").write_text("auth required pam_deny.so\naccount required pam_deny.so\n")
    server = target(pool=1, pam_dir=str(tmp_path), pam_service="stack")
    assert server.execute("confined", "sleep 60 & echo started").status == 200
    for name in ("worker", "judge", "gate", "resolver", "fetch", "builder", "auth", "init", "spare saver"):
        wait_for(lambda: server.titles(f"cove: {name}"), what=f"the {name}")
    ours = [pid for pid in server.pids() if title(pid).startswith("cove") or pid == server.keeper_pid]
    assert len(ours) >= 7
    for pid in ours:
        attempt(f"{title(pid)} is not confined", weakness(pid))
    if hasattr(server, "false_gate"):
        server.false_gate.kill()
        server.false_gate.wait()


def test_a_spare_saver_is_nobody(target, attempt):
    """Until its order comes it has no ids of any sandbox, and its capabilities are those of namespaces in which it is alone."""
    server = target(pool=1)
    pid = [*wait_for(lambda: server.titles("cove: spare saver"), what="the spare saver")][0]
    with open(f"/proc/{pid}/uid_map") as f:
        attempt("a spare saver has ids", f.read().strip())
    for kind in ("user", "mnt", "pid", "net", "ipc", "uts"):
        attempt(f"a spare saver shares a namespace ({kind})", namespace(pid, kind) == namespace(server.keeper_pid, kind) and "the host's")
    attempt("a spare saver is root", "0" in status_field(pid, "Uid").split() and status_field(pid, "Uid"))


def test_what_runs_for_a_moment_is_confined_too(target, attempt):
    """The starter runs when a template starts something, a saver while a sandbox is packed."""
    server = target(pool=1)
    Build(server, "starts", startCmd="touch /tmp/up; sleep 1000", readyCmd="test -e /tmp/up").ready()
    box = server.execute("p", "head -c 60000000 /dev/urandom >/workspace/noise", template="starts")
    starter = wait_for(lambda: [*server.titles("cove: starter")], what="the starter")
    for pid in starter:
        attempt("the starter is not confined", weakness(pid))
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        job = pool.submit(save, server, bare(box))
        found = wait_for(lambda: any(map(is_confined, server.titles("cove: saver"))) or job.done() and "none", 30, "a saver at work")
        assert job.result() is True
    attempt("no saver was seen confined", found == "none" and "a sandbox was packed without a filter")
