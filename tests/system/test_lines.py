"""The lines of a process over WebSocket: GET /process_lines, through nginx and the gate. The relay API's bridge uses it too."""
import json
import os
import signal

import pytest

from cove import wait_for
from executor import Executor
from test_terminal import gate_pid
from websocket import BINARY, PING, PONG, TEXT, Refused, WebSocket, frame


class Lines(Executor):
    def __init__(self, server, project, key=True):
        super().__init__(server, project, key)
        self.ok("/run", cmd="true")
        self.id = server.execute(project, "true", key=self.key).id

    def open(self, process, query="", headers=None):
        return WebSocket(self.server, f"/process_lines?sandbox={self.id}&process={process}{query}",
                         {"X-API-Key": self.key, **(headers or {})})

    def numbered(self, process, query="", count=None):
        """The messages that come, as objects; all until the close, or `count` of them."""
        with self.open(process, "&numbered=1" + query) as ws:
            if count is not None:
                return [ws.json() for _ in range(count)]
            messages, closed = ws.closed()
            return [json.loads(m) for m in messages], closed


@pytest.fixture
def lines(server, project):
    return Lines(server, project)


ECHO = "while read -r line; do echo \"got $line\"; done"


def test_lines_go_in_and_come_out_to_everybody(lines):
    process = lines.start(ECHO, stdin=True)
    with lines.open(process) as one, lines.open(process) as two:
        one.send("first")
        assert one.recv() == "got first" and two.recv() == "got first"
        two.send("second\nthird\n")  # a message of several lines, ended by its sender
        two.raw(frame(BINARY, b"fourth"))  # bytes are taken, too
        for ws in (one, two):
            assert [ws.recv() for _ in range(3)] == ["got second", "got third", "got fourth"]


def test_a_late_joiner_gets_what_it_missed_and_numbers_say_which(lines):
    process = lines.start("seq 5; read x; echo end", stdin=True)
    assert lines.numbered(process, count=5) == [{"n": n, "line": str(n)} for n in range(1, 6)]
    assert lines.numbered(process, "&from=4", count=2) == [{"n": 4, "line": "4"}, {"n": 5, "line": "5"}]
    with lines.open(process, "&numbered=1&from=6") as ws:
        ws.send("go")
        assert ws.json() == {"n": 6, "line": "end"}
        assert ws.closed()[1].code == 1000


def test_the_end_of_the_process_is_told_to_every_client(lines):
    process = lines.start("echo up; read x; echo 'last words'; printf unfinished; exit 7", stdin=True)
    with lines.open(process) as one, lines.open(process) as two:
        assert one.recv() == two.recv() == "up"
        one.send("")
        for ws in (one, two):
            messages, closed = ws.closed()
            assert messages == ["last words", "unfinished"]
            assert (closed.code, closed.reason) == (1000, "exit code 7")
    assert lines.numbered(process)[0][-1] == {"n": 3, "line": "unfinished"}, "also to who comes afterwards"


def test_pings_are_answered(lines):
    with lines.open(lines.start("sleep 1000")) as ws:
        ws.raw(frame(PING, b"are you there"))
        while (answer := ws.read_frame())[1] == PING:  # the server's own
            pass
        assert answer[1:] == (PONG, b"are you there")


def test_a_gate_that_is_told_to_leave_says_so_and_the_client_goes_on_from_its_line(lines):
    process = lines.start("seq 3; read x; echo end", stdin=True)
    gate = gate_pid(lines)
    with lines.open(process) as ws:
        assert [ws.recv() for _ in range(3)] == ["1", "2", "3"]
        os.kill(gate, signal.SIGTERM)
        assert ws.closed()[1].code == 1012
    wait_for(lambda: set(lines.server.titles("cove: gate")) - {gate}, 30, "the next gate")
    with lines.open(process, "&numbered=1&from=4") as ws:
        ws.send("go")
        assert ws.json() == {"n": 4, "line": "end"}


def test_standard_error_is_not_part_of_it(lines):
    process = lines.start("echo one; echo two >&2; echo three; sleep 60")
    with lines.open(process) as ws:
        assert [ws.recv(), ws.recv()] == ["one", "three"]


def test_what_is_no_text_is_made_text(lines):
    process = lines.start(r"printf 'a\377b\303\n\000\n\n\303\244\n'")
    messages, _ = lines.numbered(process)
    assert [m["line"] for m in messages] == ["a\ufffdb\ufffd", "\0", "", "ä"]
    with lines.open(process) as ws:
        assert ws.closed()[0] == ["a\ufffdb\ufffd", "\0", "", "ä"]


def test_long_lines_are_one_message(lines):
    process = lines.start("head -c 1500000 /dev/zero | tr '\\0' x; echo; echo äöü | sed 's/.*/&&&&&&&&/; s/.*/&&&&&&&&/; s/.*/&&&&&&&&/; s/.*/&&&&&&&&/'")
    with lines.open(process) as ws:
        messages, _ = ws.closed()
    assert [len(m) for m in messages] == [1500000, 3 * 8 ** 4] and set(messages[1]) == set("äöü")
    messages, _ = lines.numbered(process)
    assert [len(m["line"]) for m in messages] == [1500000, 3 * 8 ** 4]


def test_a_line_longer_than_the_log_comes_in_pieces(make_server, project):
    lines = Lines(make_server(log_max="64K"), project)
    process = lines.start("read x; head -c 200000 /dev/zero | tr '\\0' x; echo; echo next", stdin=True)
    with lines.open(process, "&numbered=1") as ws:
        ws.send("go")
        messages = [json.loads(m) for m in ws.closed()[0]]
    assert sum(len(m["line"]) for m in messages if m["n"] == 1) == 200000 and messages[-1] == {"n": 2, "line": "next"}
    assert all(m.get("more") for m in messages[:-2]) and "more" not in messages[-2]


def test_the_process_waits_for_a_client_that_does_not_read(make_server, project):
    lines = Lines(make_server(log_max="64K"), project)
    process = lines.start("read x; i=0; while [ $i -lt 500 ]; do head -c 15000 /dev/zero | tr '\\0' x; echo; i=$((i+1)); "
                          "echo $i >/tmp/n; done; echo end", stdin=True)
    with lines.open(process) as ws:
        ws.send("go")
        wait_for(lambda: lines.sh("cat /tmp/n 2>/dev/null || true").strip(), 30, "it writes")
        seen = [""] * 3

        def stands():
            seen.append(lines.sh("cat /tmp/n"))
            return seen[-1] and seen[-1] == seen[-2] == seen[-3]

        wait_for(stands, 30, "it waits")
        assert int(seen[-1]) < 500
        assert int(open(f"/proc/{gate_pid(lines)}/statm").read().split()[1]) * 4096 < 32 << 20
        messages, closed = ws.closed()
    assert [len(m) for m in messages] == [15000] * 500 + [3] and closed.code == 1000, "nothing was lost"


def test_a_process_that_does_not_read_makes_its_writer_wait(lines):
    process = lines.start("touch /tmp/up; while [ ! -e /tmp/go ]; do sleep 0.05; done; wc -c", stdin=True)
    with lines.open(process) as ws:
        ws.socket.settimeout(1)
        sent = 0
        with pytest.raises(OSError):
            for _ in range(1000):
                ws.raw(frame(TEXT, b"x" * 99999))
                sent += 1
        assert 1 < sent < 200
        assert int(open(f"/proc/{gate_pid(lines)}/statm").read().split()[1]) * 4096 < 48 << 20
    lines.sh("touch /tmp/go")


def test_who_only_listens_and_a_process_without_input(lines):
    process = lines.start("echo hi; sleep 60")
    with lines.open(process, "&readonly=1") as ws:
        assert ws.recv() == "hi"
        ws.send("x")
        assert ws.closed()[1].code == 1008
    with lines.open(process) as ws:
        ws.send("x")
        messages, closed = ws.closed()
        assert closed.code == 4005 and "standard input" in closed.reason


@pytest.mark.parametrize("query, status, word", [("", 400, "process"), ("&process=nobody", 404, "process"), ("&process=1&from=0", 400, "from"),
                                                 ("&process=1&numbered=yes", 400, "numbered")])
def test_a_bad_query_names_the_field(lines, query, status, word):
    with pytest.raises(Refused) as e:
        WebSocket(lines.server, f"/process_lines?sandbox={lines.id}{query}", {"X-API-Key": lines.key})
    assert e.value.status == status and word in json.loads(e.value.body)["message"]
