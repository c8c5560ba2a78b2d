"""Terminals over WebSocket: GET /terminal, through nginx and the gate. docs/TERMINALS.md describes the messages."""
import concurrent.futures
import contextlib
import hashlib
import json
import os
import signal
import socket

import pytest

from cove import wait_for
from executor import Executor
from test_console import runs_out, session
from test_front_cli import cove
from test_front_keys import create
from websocket import BINARY, CLOSE, MORE, PING, PONG, TEXT, Closed, Refused, WebSocket, frame


class Terminals(Executor):
    def __init__(self, server, project, key=True):
        super().__init__(server, project, key)
        self.ok("/run", cmd="true")
        self.id = server.execute(project, "true", key=self.key).id

    @contextlib.contextmanager
    def open(self, query="", headers=None, credential=True, host="localhost"):
        """A terminal, with its "open" message read."""
        given = {"X-API-Key": self.key} if credential else {}
        with WebSocket(self.server, f"/terminal?sandbox={self.id}{query}", {**given, **(headers or {})}, host) as ws:
            ws.hello = ws.json() if "text=input" not in query else {}
            yield ws

    def refused(self, query="", headers=None, credential=True, **more):
        with pytest.raises(Refused) as e, self.open(query, headers, credential, **more):
            pass
        return e.value


@pytest.fixture
def terminals(server, project):
    return Terminals(server, project)


def gate_pid(terminals):
    """One that was told to leave stays for a moment beside the next."""
    found = wait_for(lambda: len(gates := terminals.server.titles("cove: gate")) == 1 and [*gates], 30, "one gate")
    return found[0]


SHELL = "&cmd=sh"  # no prompt of bash's, no bracketed paste


# ---------------------------------------------------------------------- bytes and sizes


def test_a_terminal_runs_a_shell_and_says_how_it_ended(terminals):
    with terminals.open("&rows=30&cols=100") as ws:
        assert ws.hello["type"] == "open" and ws.hello["sandbox"] == terminals.id and ws.hello["offset"] == 0
        ws.send(b"stty size; test -t 0 && echo is-a-''tty; echo $TERM; exit 3\n")
        messages, closed = ws.closed()
    out = b"".join(m for m in messages if isinstance(m, bytes))
    assert b"30 100" in out and b"is-a-tty" in out and b"xterm-256color" in out
    assert json.loads(messages[-1]) == {"type": "exit", "code": 3, "reason": "exit code 3"}
    assert (closed.code, closed.reason) == (1000, "exit code 3")


def test_text_messages_resize_and_type(terminals):
    with terminals.open(SHELL) as ws:
        ws.send(json.dumps({"type": "resize", "rows": 50, "cols": 132}))
        while not isinstance(message := ws.recv(), str):
            pass  # the shell's prompt
        assert json.loads(message) == {"type": "size", "rows": 50, "cols": 132}
        ws.send(json.dumps({"type": "input", "data": "stty size\n"}))
        ws.until("50 132")


def test_with_text_input_every_message_is_typed_and_only_output_comes(terminals):
    """As xterm.js's own attach addon does it."""
    with terminals.open(SHELL + "&text=input") as ws:
        ws.send('echo {"type":"resize"}\n')
        ws.until("type:resize")


@pytest.mark.parametrize("message, word", [("{", "body"), ("[]", "body"), ('{"type":"dance"}', "type"), ('{"rows":1}', "type"),
                                           ('{"type":"resize","rows":0,"cols":80}', "rows"),
                                           ('{"type":"resize","rows":24,"cols":100000}', "cols"),
                                           ('{"type":"resize","rows":24}', "cols"), ('{"type":5}', "type")])
def test_a_bad_control_message_closes_with_1008_and_names_the_field(terminals, message, word):
    with terminals.open(SHELL) as ws:
        ws.send(message)
        _, closed = ws.closed()
        assert closed.code == 1008 and word in closed.reason


def test_much_input_and_output_arrive_whole(terminals):
    """More than a terminal takes at a time: whoever sends waits."""
    with terminals.open("&cmd=stty+raw+-echo;echo+ready;head+-c+800000+|+md5sum") as ws:
        ws.until("ready")
        for _ in range(8):
            ws.send(b"x" * 100000)
        ws.until(hashlib.md5(b"x" * 800000).hexdigest())
    with terminals.open("&cmd=seq+100000") as ws:
        messages, closed = ws.closed()
    out = b"".join(m for m in messages if isinstance(m, bytes))
    assert closed.code == 1000 and out.split() == [b"%d" % n for n in range(1, 100001)]


def test_who_starts_a_terminal_sees_all_of_it_however_late_the_gate_looks(terminals):
    gate = gate_pid(terminals)

    def output():
        with terminals.open("&cmd=seq+100000;touch+/tmp/written") as ws:
            return b"".join(m for m in ws.closed()[0] if isinstance(m, bytes))

    os.kill(gate, signal.SIGSTOP)
    try:
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            job = pool.submit(output)
            wait_for(lambda: terminals.sh("ls /tmp").split().count("written"), 30, "the program's end")
            os.kill(gate, signal.SIGCONT)
            assert job.result().split() == [b"%d" % n for n in range(1, 100001)]
    finally:
        os.kill(gate, signal.SIGCONT)


# ---------------------------------------------------------------------- several viewers, coming back


def test_several_viewers_see_the_same_and_a_late_one_gets_the_last_screenful(terminals):
    with terminals.open(SHELL) as one:
        one.send(b"echo fir''st\n")
        one.until("first")
        with terminals.open(f"&process={one.hello['process']}") as two:
            two.until("first")
            two.send(b"echo sec''ond\n")
            one.until("second")
            two.until("second")


def test_a_client_comes_back_where_it_was(terminals):
    with terminals.open(SHELL) as ws:
        process, seen = ws.hello["process"], b""
        ws.send(b"stty -echo; PS1=; echo one; echo rea''dy\n")
        seen += ws.until("ready\r\n")
    offset = len(seen)
    with terminals.open(f"&process={process}&offset={offset}") as ws:
        assert ws.hello["offset"] == offset and ws.hello["lost"] == 0
        ws.send(b"echo two; exit\n")
        messages, _ = ws.closed()
    with terminals.open(f"&process={process}&offset={offset}") as ws:  # it has ended, and its log is still there
        again, closed = ws.closed()
    assert b"".join(m for m in messages if isinstance(m, bytes)) == b"two\r\n"
    assert again[0] == b"two\r\n" and closed.code == 1000


def test_what_was_overwritten_is_told(make_server, project):
    terminals = Terminals(make_server(log_max="64K"), project)
    with terminals.open("&cmd=stty+-onlcr;seq+100000;read+x") as ws:
        process = ws.hello["process"]
        ws.until("\n100000\n")
    with terminals.open(f"&process={process}&offset=0") as ws:
        assert ws.hello["lost"] > 400000 and ws.hello["offset"] == ws.hello["lost"]
        assert ws.until("\n100000\n").count(b"\n") < 20000


def test_the_size_follows_whoever_writes(terminals):
    with terminals.open(SHELL + "&rows=24&cols=80") as one, \
            terminals.open(f"&process={one.hello['process']}") as two:
        one.send(b"stty size\n")
        one.until("24 80")
        two.send('{"type":"resize","rows":40,"cols":120}')  # a viewer's window is its own business
        two.send(b"stty size\n")  # until it writes
        two.until("40 120")
        one.send(b"stty size\n")
        one.until("24 80")


def test_a_viewer_that_may_only_look_is_closed_when_it_writes(terminals):
    with terminals.open(SHELL) as one:
        with terminals.open(f"&process={one.hello['process']}&readonly=1") as two:
            assert two.hello["readOnly"] is True
            one.send(b"echo lo''ok\n")
            two.until("look")
            two.send(b"echo not-''typed\n")
            assert two.closed()[1].code == 1008
        one.send(b"echo on''ward\n")
        assert b"not-typed" not in one.until("onward")


# ---------------------------------------------------------------------- who may


def test_a_terminal_needs_a_key_and_only_its_owner_finds_it(terminals, project):
    assert terminals.refused(credential=False).status == 401
    assert terminals.refused(headers={"X-API-Key": "e2b_" + "0" * 40}).status == 401
    stranger = terminals.server.add_key("stranger")
    assert terminals.refused(headers={"X-API-Key": stranger}).status == 404


def test_a_sandboxs_token_opens_its_terminal_and_no_other(terminals, project):
    token = cove(terminals.server, "token", terminals.id).stdout.strip()
    other = Terminals(terminals.server, project[:80] + "-other")
    with terminals.open(SHELL, {"X-Access-Token": token}, credential=False) as ws:
        ws.send(b"exit\n")
    assert other.refused(headers={"X-Access-Token": token}, credential=False).status == 401


def test_a_page_sends_its_key_as_a_subprotocol(terminals):
    token = cove(terminals.server, "token", terminals.id).stdout.strip()
    for secret in (f"cove.key.{terminals.key}", f"cove.token.{token}"):
        headers = {"Sec-WebSocket-Protocol": f"cove.terminal, {secret}", "Origin": "https://elsewhere.example"}
        with terminals.open(SHELL, headers, credential=False) as ws:
            assert "Sec-WebSocket-Protocol: cove.terminal\r\n" in ws.head and secret not in ws.head
            ws.send(b"exit\n")


def test_a_browser_sees_the_refusal_as_a_close_code(terminals):
    headers = {"Origin": "http://localhost"}
    for more, code in (({"X-API-Key": terminals.key}, 4404), ({}, 4401)):
        with WebSocket(terminals.server, "/terminal?sandbox=" + "a" * 20, {**headers, **more}) as ws:
            assert ws.closed()[1].code == code


# ---------------------------------------------------------------------- policy, limits, bad input


def test_the_policy_judges_a_terminals_command(terminals):
    refused = terminals.refused("&cmd=rm+-rf+/")
    assert refused.status == 403 and b"Forbidden command" in refused.body


def test_a_terminal_counts_as_a_background_process(make_server, project):
    terminals = Terminals(make_server(tenant_processes=1), project)
    with terminals.open(SHELL) as ws:
        assert terminals.refused(SHELL).status == 429
        ws.send(b"exit\n")
        assert ws.closed()[1].code == 1000
    with terminals.open(SHELL):
        pass


@pytest.mark.parametrize("query, field", [("&rows=0&cols=1", "rows"), ("&rows=1", "rows"), ("&rows=x&cols=1", "rows"),
                                          ("&offset=-1", "offset"), ("&process=", "process"), ("&readonly=yes", "readonly"),
                                          ("&text=out", "text"), ("&cwd=relative", "cwd")])
def test_a_bad_query_names_the_field(terminals, query, field):
    refused = terminals.refused(query)
    assert refused.status == 400 and field in json.loads(refused.body)["message"]


def test_what_is_no_handshake_is_refused_before_anything_starts(terminals):
    for headers in ({"Upgrade": None}, {"Upgrade": "h2c"}, {"Sec-WebSocket-Version": "8"}, {"Sec-WebSocket-Version": None},
                    {"Sec-WebSocket-Key": None}, {"Sec-WebSocket-Key": "short"}, {"Sec-WebSocket-Key": "!" * 24}):
        assert terminals.refused(headers=headers).status == 426, headers
    assert terminals.request("POST", f"/terminal?sandbox={terminals.id}").status == 405
    assert "bash" not in terminals.sh("ps ax")


def test_what_is_not_there_is_404(terminals):
    assert terminals.refused("&process=999999").status == 404
    assert terminals.refused("&process=nobody").status == 404
    process = terminals.ok("/start_process", cmd="sleep 60")["id"]
    refused = terminals.refused(f"&process={process}")
    assert refused.status == 409 and b"no terminal" in refused.body


# ---------------------------------------------------------------------- endings


def test_the_end_of_the_sandbox_closes_with_its_own_code(terminals):
    with terminals.open(SHELL) as ws:
        terminals.server.request("POST", "/cleanup", {"projectId": terminals.project})
        closed = ws.closed()[1]
        assert closed.code == 4000 and "sandbox ended" in closed.reason


def test_a_killed_process_says_so(terminals):
    with terminals.open(SHELL) as ws:
        listed = [p for p in terminals.processes()["processes"] if p["status"] == "running"]
        terminals.ok("/kill_process", id=listed[-1]["id"])
        messages, closed = ws.closed()
    assert closed.code == 1000 and json.loads(messages[-1])["code"] == 137, (messages, closed)


def test_a_gate_that_is_told_to_leave_says_so_and_the_next_one_serves(terminals):
    gate = gate_pid(terminals)
    with terminals.open(SHELL) as ws:
        process = ws.hello["process"]
        ws.send(b"echo bef''ore\n")
        ws.until("before")
        os.kill(gate, signal.SIGTERM)
        assert ws.closed()[1].code == 1012
    wait_for(lambda: set(terminals.server.titles("cove: gate")) - {gate}, 30, "the next gate")
    with terminals.open(f"&process={process}&offset=0") as ws:
        ws.until("before")


def test_an_idle_connection_is_closed_with_its_own_code(make_server, project):
    terminals = Terminals(make_server(port_idle="3s"), project)
    with terminals.open(SHELL) as ws:
        messages, closed = ws.closed()
        assert closed.code == 4002 and "too long" in closed.reason


def test_connections_and_bytes_are_counted_per_sandbox(terminals):
    def shown():
        listed = json.loads(cove(terminals.server, "ls", "--json").stdout)
        return next(x for x in listed if x["id"] == terminals.id)

    with terminals.open(SHELL) as ws:
        ws.send(b"head -c 100000 /dev/zero | tr '\\0' x; echo; echo en''d\n")
        ws.until("end")
        now = wait_for(lambda: (row := shown())["bytes_out"] > 100000 and row, what="the bytes are counted")
        assert now["connections"] == 1 and now["connections_total"] == 1 and now["bytes_in"] > 40
        metrics = terminals.server.request("GET", "/metrics", key=False).body.decode()
        assert f'cove_sandbox_connections{{sandbox="{terminals.id}"}} 1\n' in metrics
        assert f'cove_sandbox_traffic_bytes_total{{sandbox="{terminals.id}",direction="out"}} {now["bytes_out"]}\n' in metrics
    wait_for(lambda: shown()["connections"] == 0, 30, "the connection's end")


# ---------------------------------------------------------------------- frames


def test_pings_are_answered_also_between_fragments(terminals):
    with terminals.open(SHELL) as ws:
        ws.raw(frame(PING, b"are you there"), frame(BINARY, b"echo fra", fin=False), frame(PING, b"2"),
               frame(MORE, b"g''", fin=False), frame(MORE, b"mented\n"))
        pongs, out = [], b""
        while b"fragmented" not in out:
            _, opcode, data = ws.read_frame()
            pongs += [data] if opcode == PONG else []
            out += data if opcode == BINARY else b""
        assert pongs == [b"are you there", b"2"]


@pytest.mark.skipif(os.environ.get("COVE_TEST_LONG") != "yes", reason="waits half a minute for a ping; COVE_TEST_LONG=yes")
def test_the_server_pings_every_half_minute(terminals):
    """What an answered and an unanswered ping leads to is tests/unit/test_websocket.c's, with a shorter time."""
    with terminals.open("&cmd=sleep+100") as ws:
        assert ws.read_frame()[1] == PING
        ws.raw(frame(PONG))
        assert ws.read_frame()[1] == PING


@pytest.mark.parametrize("what, frames, code", [
    ("unmasked", [frame(BINARY, b"x", masked=False)], 1002),
    ("a reserved bit", [bytes([0xC2]) + frame(BINARY, b"x")[1:]], 1002),
    ("an unknown opcode", [frame(3, b"x")], 1002),
    ("a fragmented ping", [frame(PING, b"x", fin=False)], 1005),
    ("a long ping", [frame(PING, b"x" * 126)], 1005),
    ("a continuation of nothing", [frame(MORE, b"x")], 1002),
    ("a message inside a message", [frame(TEXT, b"x", fin=False), frame(TEXT, b"x")], 1002),
    ("a close code of one byte", [frame(CLOSE, b"x")], 1005),
    ("a close code that must not travel", [frame(CLOSE, b"\x03\xed")], 1002),
    ("text that is not UTF-8", [frame(TEXT, b"\xff\xfe")], 1007),
    ("a message that claims a gigabyte", [frame(BINARY, b"x", length=1 << 30)], 1009),
    ("a message that claims to be endless", [frame(BINARY, b"x", length=(1 << 63) - 1)], 1009),
    ("fragments that add up", [frame(BINARY, b"x" * 600000, fin=False), frame(MORE, b"x" * 600000)], 1009),
    ("fragments without end", [frame(BINARY, b"", fin=False)] + [frame(MORE, b"", fin=False)] * 5000, 1008),
])
def test_a_malformed_frame_closes_that_socket_alone(terminals, what, frames, code):
    with terminals.open(SHELL) as other, terminals.open(f"&process={other.hello['process']}") as ws:
        with contextlib.suppress(ConnectionError, BrokenPipeError):
            ws.raw(*frames)
        _, closed = ws.closed()
        assert closed.code == code, (what, closed)
        other.send(b"echo still-''here\n")
        other.until("still-here")


# No conformance suite could be installed (Autobahn's is for Python 2): these are the cases of RFC 6455 that its chapters are about.

def with_bits(bits, data):
    return bytes([bits]) + data[1:]


@pytest.mark.parametrize("bits", [0x40, 0x20, 0x10, 0x50, 0x70])
@pytest.mark.parametrize("opcode", [TEXT, BINARY, PING, CLOSE])
def test_each_reserved_bit_is_refused(terminals, bits, opcode):
    with terminals.open(SHELL) as ws:
        ws.raw(with_bits(0x80 | bits | opcode, frame(opcode, b"")))
        assert ws.closed()[1].code in (1002, 1005, 1006)


@pytest.mark.parametrize("opcode", [3, 4, 5, 6, 7, 11, 12, 13, 14, 15])
def test_each_reserved_opcode_is_refused(terminals, opcode):
    with terminals.open(SHELL) as ws:
        ws.raw(frame(opcode, b""))
        assert ws.closed()[1].code in (1002, 1005, 1006)


@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 128, 65535, 65536, 65537])
def test_every_way_to_tell_a_length_is_read(terminals, size):
    with terminals.open(f"&cmd=stty+raw+-echo;echo+ready;head+-c+{size}+|+wc+-c;echo+done") as ws:
        seen = ws.until("ready")
        ws.send(b"x" * size)
        seen += b"" if b"done" in seen else ws.until("done")  # nothing to read: all of it may come at once
        assert b"%d" % size in seen


@pytest.mark.parametrize("pieces", [1, 2, 3, 7, 64])
def test_a_message_in_any_number_of_fragments_is_one(terminals, pieces):
    data = b"stty -echo; echo " + b"y" * 100 + b"-''end\n"
    step = len(data) // pieces + 1
    parts = [data[i:i + step] for i in range(0, len(data), step)]
    frames = [frame(BINARY if i == 0 else MORE, part, fin=i == len(parts) - 1) for i, part in enumerate(parts)]
    with terminals.open(SHELL) as ws:
        for one in frames:
            ws.raw(one, frame(PING, b"between"))
        ws.until(b"y" * 100 + b"-end")


@pytest.mark.parametrize("step", [1, 2, 5])
def test_frames_that_come_byte_by_byte_are_frames(terminals, step):
    data = frame(BINARY, b"echo slow''ly\n")
    with terminals.open(SHELL) as ws:
        for i in range(0, len(data), step):
            ws.raw(data[i:i + step])
        ws.until("slowly")


GOOD_TEXT = '{"type":"input","data":"echo κόσμε-\U0001f600-\uffff\\n"}'.encode()


@pytest.mark.parametrize("at", range(20, len(GOOD_TEXT) - 4))
def test_text_may_be_split_within_a_character(terminals, at):
    with terminals.open(SHELL) as ws:
        ws.raw(frame(TEXT, GOOD_TEXT[:at], fin=False), frame(MORE, GOOD_TEXT[at:]))
        ws.until("κόσμε")


@pytest.mark.parametrize("bad", [b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xf8\x88\x80\x80\x80", b"\x80", b"\xe2\x82", b"\xfe"],
                         ids=["overlong", "surrogate", "above 10FFFF", "five bytes", "a tail alone", "cut short", "no byte of UTF-8"])
@pytest.mark.parametrize("split", [0, 1, 2])
def test_text_that_is_not_utf8_is_1007_wherever_it_is_split(terminals, bad, split):
    data = b'{"type":"input","data":"' + bad
    at = len(data) - len(bad) + min(split, len(bad))
    with terminals.open(SHELL) as ws:
        with contextlib.suppress(ConnectionError, BrokenPipeError):
            ws.raw(frame(TEXT, data[:at], fin=False), frame(MORE, data[at:]))
        assert ws.closed()[1].code == 1007


@pytest.mark.parametrize("code", [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999])
def test_a_close_is_answered_with_its_code(terminals, code):
    with terminals.open(SHELL) as ws:
        ws.raw(frame(CLOSE, code.to_bytes(2, "big") + b"bye"))
        assert ws.closed()[1].code == code


@pytest.mark.parametrize("code", [0, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65535])
def test_a_close_code_that_must_not_travel_is_not_sent_back(terminals, code):
    with terminals.open(SHELL) as ws:
        ws.raw(frame(CLOSE, code.to_bytes(2, "big")))
        assert ws.closed()[1].code in (1002, 1005, 1006)


def test_a_close_whose_reason_is_not_utf8_is_1007(terminals):
    with terminals.open(SHELL) as ws:
        ws.raw(frame(CLOSE, b"\x03\xe8\xff"))
        assert ws.closed()[1].code == 1007


def test_an_extension_that_a_client_offers_is_not_taken(terminals):
    """Nothing is compressed: a reply that named an extension would have the client set bits that are refused."""
    with terminals.open(SHELL, {"Sec-WebSocket-Extensions": "permessage-deflate; client_max_window_bits, x-webkit-deflate-frame"}) as ws:
        assert "sec-websocket-extensions" not in ws.head.lower()
        ws.send(b"echo plain''ly\n")
        ws.until("plainly")


def first_byte(ws):
    """Of what has come and was not read yet."""
    with contextlib.suppress(BlockingIOError):
        return ws.socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)


HALF, MESSAGE = 128, 1 << 20  # MiB of messages that are not whole, which one tenant's sockets may keep; the longest message


def test_half_messages_of_one_tenant_leave_room_for_others(make_server, project):
    """What sockets keep of messages that never become whole has a bound: a tenant has half of it."""
    server = make_server()
    greedy, other = Terminals(server, project), Terminals(server, project, key=server.add_key("other"))
    process = greedy.start("sleep 1000", stdin=True)
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(WebSocket(server, f"/process_lines?sandbox={greedy.id}&process={process}", {"X-API-Key": greedy.key}))
                   for _ in range(HALF + 3)]
        for ws in sockets:
            ws.raw(frame(TEXT, b"x" * 10, length=MESSAGE))
        told = lambda: [ws for ws in sockets if first_byte(ws) == b"\x88"]  # a close; pings come, too
        wait_for(lambda: len(told()) >= 3, what="those that are more than the tenant's part")
        assert [ws.closed()[1].code for ws in told()] == [1013] * 3
        with other.open(SHELL) as ws:
            ws.send(b"echo still-''here\n")
            ws.until("still-here")


def test_whoever_floods_pings_and_never_reads_is_not_buffered_for(terminals):
    gate = gate_pid(terminals)
    before = int(open(f"/proc/{gate}/statm").read().split()[1]) * 4096
    with terminals.open(SHELL) as ws:
        ws.socket.settimeout(3)
        with contextlib.suppress(OSError):
            for _ in range(2000):
                ws.raw(frame(PING, b"x" * 125) * 500)
        after = int(open(f"/proc/{gate}/statm").read().split()[1]) * 4096
        assert after - before < 16 << 20
        with terminals.open(SHELL) as other:
            other.send(b"echo still-''here\n")
            other.until("still-here")


def test_a_terminal_that_nobody_reads_loses_output_instead_of_memory(make_server, project):
    terminals = Terminals(make_server(log_max="64K"), project)
    with terminals.open("&cmd=yes") as ws:
        ws.until("y\r\n" * 100)

        def written():
            with terminals.open(f"&process={ws.hello['process']}") as other:
                return other.hello["offset"] > 8 << 20

        wait_for(written, 30, "more output than sockets, nginx and the log hold")
        assert int(open(f"/proc/{gate_pid(terminals)}/statm").read().split()[1]) * 4096 < 32 << 20
        while not isinstance(message := ws.recv(), str):
            pass
        assert json.loads(message)["type"] == "gap" and json.loads(message)["bytes"] > 0


def test_the_consoles_session_opens_a_terminal_for_its_own_pages_alone(terminals):
    cookie, _ = session(terminals.server)
    own = f"127.0.0.1:{terminals.server.http}"
    with terminals.open(SHELL, {"Cookie": cookie, "Origin": f"http://{own}"}, credential=False, host=own) as ws:
        ws.send(b"exit\n")
    with WebSocket(terminals.server, f"/terminal?sandbox={terminals.id}",
                   {"Cookie": cookie, "Origin": "http://elsewhere.example"}, host=own) as ws:
        assert ws.closed()[1].code == 4401
    assert terminals.refused(headers={"Cookie": cookie}, credential=False, host=own).status == 401


def test_a_terminal_ends_with_its_session_and_with_its_key(server, project):
    """The process goes on: whoever may can open it again."""
    key = create(server, project, "--name", project)
    terminals = Terminals(server, project, key=key)
    own = f"127.0.0.1:{server.http}"
    page = {"credential": False, "host": own}
    by_key_session = {"Cookie": session(server, key=key)[0], "Origin": f"http://{own}"}
    with terminals.open(SHELL) as by_key:
        process = by_key.hello["process"]
        by_short_session = {"Cookie": runs_out(server, 6, project), "Origin": f"http://{own}"}
        with terminals.open(f"&process={process}", by_short_session, **page) as ws:
            closed = ws.closed()[1]
            assert closed.code == 4401 and "session is over" in closed.reason
        by_key.send(b"echo still-''here\n")
        by_key.until("still-here")
        with terminals.open(f"&process={process}", by_key_session, **page) as by_session, \
                WebSocket(server, f"/process_lines?sandbox={terminals.id}&process={terminals.start('sleep 1000')}", {"X-API-Key": key}) as lines:
            other = create(server, project, "--name", f"{project}-other")  # a change of the keys that is none of theirs
            by_session.send(b"echo on''ward\n")
            by_session.until("onward")
            cove(server, "key", "revoke", project)
            for ws in (by_key, by_session, lines):
                closed = ws.closed()[1]
                assert closed.code == 4401 and "revoked" in closed.reason
    with Terminals(server, project, key=other).open(f"&process={process}") as ws:
        ws.until("onward")
    server.cleanup(project, key=other)
    server.projects.discard((project, key))
