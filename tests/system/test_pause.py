"""What the keeper does for dialects to come: pausing in place, a longer or shorter life. Asked for as a worker asks."""
import re
import socket
import struct
import time

import pytest

from cove import TOP, read, wait_for

HEAD = struct.Struct("=IIII")
HEADER = read(f"{TOP}/include/cove/msg.h")
MAGIC = int(re.search(r"MSG_MAGIC (0x\w+?)u", HEADER).group(1), 16)
CALLS = {name: 300 + i for i, name in enumerate(["CLAIM", "RETIRE", "EXTEND", "FREEZE", "THAW"])}
DONE = 2


def ask(server, call, box, tenant="default", rest=b""):
    """True when it was done, else the keeper's words."""
    body = struct.pack("64s24s", tenant.encode(), box.removeprefix("sandbox_").encode()) + rest
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
        s.settimeout(10)
        s.connect(f"{server.run_dir}/keeper.sock")
        s.send(HEAD.pack(MAGIC, CALLS[call], HEAD.size + len(body), 1) + body)
        answer = s.recv(4096)
    if HEAD.unpack_from(answer)[1] == DONE:
        return True
    return answer[HEAD.size + 8:].split(b"\0")[0].decode()


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
    assert longest_gap(server, project) > 0.9


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
    rest = struct.pack("=Q", 1000) if call == "EXTEND" else b""
    assert "no sandbox" in ask(server, call, box, tenant="other", rest=rest)
    assert server.execute(project, "true").id == box


def test_a_life_can_be_made_longer_and_shorter(server, project):
    box = server.execute(project, "true").id
    assert ask(server, "EXTEND", box, rest=struct.pack("=Q", 3600_000)) is True
    assert server.execute(project, "true").id == box
    assert ask(server, "EXTEND", box, rest=struct.pack("=Q", 1)) is True
    wait_for(lambda: server.execute(project, "true").id != box)


@pytest.mark.parametrize("ms", [0, 366 * 86400_000, 2**64 - 1])
def test_a_life_without_measure_is_refused(server, project, ms):
    box = server.execute(project, "true").id
    assert "365 days" in ask(server, "EXTEND", box, rest=struct.pack("=Q", ms))
