"""What the keeper does for dialects to come: pausing in place, a longer or shorter life. Asked for as a worker asks."""
import fcntl
import json
import os
import re
import socket
import struct
import time

import pytest

from cove import TOP, read, wait_for
from test_front_keys import cove

HEAD = struct.Struct("=IIII")
HEADER = read(f"{TOP}/include/cove/msg.h")
MAGIC = int(re.search(r"MSG_MAGIC (0x\w+?)u", HEADER).group(1), 16)
CALLS = dict({name: 300 + i for i, name in enumerate(["CLAIM", "RETIRE", "EXTEND", "FREEZE", "THAW"])}, ATTRIBUTES=308)
DONE, BOX = 2, 305
OWN_PROJECT, END_FREEZES, END_KILLS = 1, 2, 4


def send(server, call, body, fds=()):
    """(type, body) of the answer; None if the keeper hung up."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
        s.settimeout(10)
        s.connect(f"{server.run_dir}/keeper.sock")
        socket.send_fds(s, [HEAD.pack(MAGIC, CALLS[call], HEAD.size + len(body), 1) + body], fds)
        answer = s.recv(4096)
    return (HEAD.unpack_from(answer)[1], answer[HEAD.size:]) if answer else None


def which(box, tenant="default"):
    return struct.pack("64s24s", tenant.encode(), box.removeprefix("sandbox_").encode())


def ask(server, call, box, tenant="default", ms=0):
    """True when it was done, else the keeper's words."""
    kind, body = send(server, call, which(box, tenant) + struct.pack("=QII", ms, 0, 0))
    return kind == DONE or body[8:].split(b"\0")[0].decode()


def sealed(data):
    fd = os.memfd_create("attributes", os.MFD_ALLOW_SEALING)
    os.write(fd, data)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
    return fd


def claim_own(server, flags=0, lifetime_ms=5_000, fds=()):
    """The id of a sandbox that has no project; None if the keeper hung up."""
    body = struct.pack("=64s132s128s24sIII8xQQ", b"default", b"", b"", b"", OWN_PROJECT | flags, 3, 0, 0, lifetime_ms)
    answer = send(server, "CLAIM", body, fds)
    assert answer is None or answer[0] == BOX, answer
    return answer and answer[1][:24].split(b"\0")[0].decode()


CLOCK = "(while :; do date +%s%N >>/workspace/ticks; sleep 0.02; done) & echo"


def longest_gap(server, project):
    ticks = [int(t) for t in server.run(project, "cat /workspace/ticks").split()]
    return max(b - a for a, b in zip(ticks, ticks[1:])) / 1e9


def test_a_paused_sandbox_stands_still_and_goes_on_where_it_was(server, project):
    box = server.execute(project, CLOCK).id
    wait_for(lambda: server.run(project, "wc -l </workspace/ticks") not in ("0\n", "1\n"))
    assert ask(server, "FREEZE", box) is True
    began = time.monotonic()
    wait_for(lambda: time.monotonic() - began > 1)
    assert ask(server, "THAW", box) is True
    wait_for(lambda: longest_gap(server, project) > 0.9, 10, "a tick after the pause")


def test_whoever_uses_a_paused_sandbox_sets_it_going_again(server, project):
    box = server.execute(project, "sleep 1000 & echo $! >/workspace/pid").id
    for name in (project, box):
        assert ask(server, "FREEZE", box) is True
        reply = server.execute(name, "kill -0 $(cat /workspace/pid) && echo lives")
        assert (reply.id, reply.json["stdout"]) == (box, "lives\n")


def test_pausing_twice_is_pausing_once(server, project):
    box = server.execute(project, "true").id
    assert [ask(server, call, box) for call in ("FREEZE", "FREEZE", "THAW", "THAW")] == [True] * 4
    assert server.execute(project, "true").id == box


def test_a_paused_sandbox_can_be_ended(server, project):
    box = server.execute(project, "sleep 1000 & echo").id
    assert ask(server, "FREEZE", box) is True
    assert server.post("/cleanup", {"projectId": project}).json == {"success": True}
    assert server.execute(project, "true").id != box


def test_a_pause_outlives_the_keeper(make_server):
    server = make_server()
    box = server.execute("p", CLOCK).id
    assert ask(server, "FREEZE", box) is True
    server.quickstart("up", "--no-install", "--set", "command_timeout=30s")  # another keeper
    assert ask(server, "FREEZE", box) is True  # it knows: there was nothing to do
    assert server.execute("p", "true").id == box


@pytest.mark.parametrize("call", ["FREEZE", "THAW", "EXTEND"])
def test_what_is_another_tenants_is_not_there(server, project, call):
    box = server.execute(project, "true").id
    assert "no sandbox" in ask(server, call, box, tenant="other", ms=1000)
    assert server.execute(project, "true").id == box


def test_a_life_can_be_made_longer_and_shorter(server, project):
    box = server.execute(project, "true").id
    assert ask(server, "EXTEND", box, ms=3600_000) is True
    assert server.execute(project, "true").id == box
    assert ask(server, "EXTEND", box, ms=1) is True
    wait_for(lambda: server.execute(project, "true").id != box)


@pytest.mark.parametrize("ms", [0, 366 * 86400_000, 2**64 - 1])
def test_a_life_without_measure_is_refused(server, project, ms):
    box = server.execute(project, "true").id
    assert "lifetime" in ask(server, "EXTEND", box, ms=ms)


# ------------------------------------------------------------------ sandboxes without a project


def test_a_sandbox_without_a_project_is_reached_by_its_id(server):
    first, second = claim_own(server), claim_own(server)
    assert first != second
    reply = server.execute(first, "echo here")
    assert (reply.id, reply.json["stdout"]) == (first, "here\n")


def test_attributes_are_kept_with_a_sandbox_and_go_with_it(make_server):
    server = make_server()
    box = claim_own(server, lifetime_ms=3600_000, fds=[sealed(b"color=blue")])
    path = f"{server.run_dir}/attributes/{box}"
    assert read(path) == "color=blue" and os.stat(path).st_mode & 0o777 == 0o640
    assert send(server, "ATTRIBUTES", which(box), [sealed(b"color=red")])[0] == DONE
    server.quickstart("up", "--no-install", "--set", "command_timeout=30s")  # another keeper
    assert read(path) == "color=red"
    assert ask(server, "EXTEND", box, ms=1) is True
    wait_for(lambda: not os.path.exists(path), 10, "attributes gone with their sandbox")


def test_only_a_sealed_memfd_is_taken_for_attributes(server):
    """A pipe that nobody writes to must not hold the keeper up."""
    read_end, write_end = os.pipe()
    assert claim_own(server, fds=[read_end]) is None
    assert claim_own(server, fds=[os.memfd_create("open", os.MFD_ALLOW_SEALING)]) is None
    assert claim_own(server, fds=[sealed(b"x" * (64 * 1024 + 1))]) is None
    assert claim_own(server)
    os.close(read_end)
    os.close(write_end)


def test_a_sandbox_may_be_frozen_at_its_end_and_comes_back_when_used(server):
    box = claim_own(server, END_FREEZES, lifetime_ms=500)

    def state():
        return [b["state"] for b in json.loads(cove(server, "ls", "--json").stdout) if b["id"] == box]

    wait_for(lambda: state() == ["frozen"], 10, "frozen at its end")
    assert server.execute(box, "echo back").json["stdout"] == "back\n"
    assert send(server, "EXTEND", which(box) + struct.pack("=QII", 1, END_KILLS, 0))[0] == DONE
