"""The executor dialect: a port of the sandbox behind the TCP proxy."""
import contextlib
import fcntl
import os
import signal
import socket
import termios
import threading
import time

import pytest

from cove import alive, free_port, read, wait_for
from executor import Executor

ECHO = r"""
import socket, threading
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("127.0.0.1", %d)); s.listen(2048)
def serve(c):
    n = 0
    while b := c.recv(65536):
        c.sendall(b); n += len(b)
    c.sendall(b"total %%d" %% n); c.close()
threading.stack_size(131072)
while True:
    threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
"""


@pytest.fixture
def box(make_server):
    server = make_server(proxy_port=free_port(), pids_max=4096, open_files_max=8192)
    box = Executor(server, "default")
    box.ok("/write_file", path="/tmp/echo.py", content=ECHO % 7000)
    box.start("python3 /tmp/echo.py")
    wait_for(lambda: box.post("/run", cmd="python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 7000))'")
             .json["code"] == 0, 30, "the server in the sandbox")
    return box


def connect(port):
    return socket.create_connection(("127.0.0.1", port), timeout=20)


def read_all(s):
    out = b""
    while b := s.recv(65536):
        out += b
    return out


def proxy_port(box):
    return int(box.server.settings["proxy_port"])


def test_bind_answers_as_documented_and_a_second_is_409(box):
    reply = box.post("/bind_port", port="7000")
    assert reply.status == 200
    assert reply.json == {"success": True, "message": "Port binding configured", "port": "7000",
                          "proxy_port": proxy_port(box)}
    reply = box.post("/bind_port", port="7001")
    assert reply.status == 409
    assert reply.json == {"success": False, "error": "Port already bound", "current_port": "7000"}
    reply = box.request("POST", "/unbind_port")
    assert reply.status == 200 and reply.json == {"success": True, "message": "Port binding removed"}
    assert box.post("/bind_port", port="7001").status == 200


@pytest.mark.parametrize("port", ["", "0", "65536", "x", "80 ", "-1", None, 0, 1.5])
def test_bad_ports_are_400(server, project, port):
    reply = Executor(server, project).post("/bind_port", port=port)
    assert reply.status == 400 and reply.json["error"].startswith("port")


def test_bytes_pass_both_ways_with_half_close(box):
    box.ok("/bind_port", port="7000")
    data = os.urandom(1 << 20) * 20
    with connect(proxy_port(box)) as s:
        out = []
        reader = threading.Thread(target=lambda: out.append(read_all(s)))
        reader.start()
        s.sendall(data)
        s.shutdown(socket.SHUT_WR)  # the server answers after our end: only half of the connection is closed
        reader.join(30)
    assert out and out[0] == data + b"total %d" % len(data)


ANSWER = r"""
import socket, threading
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("127.0.0.1", 7001)); s.listen(128)
def serve(c):
    size = b""
    while b := c.recv(100): size += b
    c.sendall(bytes(int(size))); c.close()
while True:
    threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
"""


def test_slow_readers_of_finished_answers_cost_no_cpu(box):
    """The server has sent its answer and closed, the client does not read: the gate has nothing to do but wait. How much
    fits into the buffers on the way is the kernel's secret, so many sizes are tried at once."""
    box.ok("/write_file", path="/tmp/answer.py", content=ANSWER)
    box.start("python3 /tmp/answer.py")
    box.ok("/bind_port", port="7001")
    gate, = box.server.titles("cove: gate")
    sizes = [n << 17 for n in range(1, 64)]

    def cpu():
        return sum(map(int, read(f"/proc/{gate}/stat").rsplit(") ", 1)[1].split()[11:13]))

    def ask(size):
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        s.settimeout(20)
        s.connect(("127.0.0.1", proxy_port(box)))
        s.sendall(b"%d" % size)
        s.shutdown(socket.SHUT_WR)
        return s

    def answers():
        with contextlib.suppress(OSError), ask(1) as s:  # nobody listens yet: the gate hangs up
            return read_all(s) == bytes(1)

    wait_for(answers, 30, "the server inside")
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(ask(size)) for size in sizes]
        unread = []

        def buffers_are_full():
            unread.append([fcntl.ioctl(s, termios.FIONREAD, bytes(4)) for s in socks])
            return len(unread) > 5 and unread[-1] == unread[-6]

        wait_for(buffers_are_full, 30, "buffers that fill no further")
        before, began = cpu(), os.times().system + os.times().user
        while os.times().system + os.times().user < began + 0.5:
            pass  # half a second of the cpu for this process
        assert cpu() - before < 20, "hundredths of a second: a gate that spins would have taken as much as this process"
        for s, size in zip(socks, sizes):
            assert len(read_all(s)) == size


def test_a_thousand_connections_at_once(box):
    box.ok("/bind_port", port="7000")
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(connect(proxy_port(box))) for _ in range(1000)]
        for i, s in enumerate(socks):
            s.sendall(b"%04d" % i)
        for i, s in enumerate(socks):
            assert s.recv(4, socket.MSG_WAITALL) == b"%04d" % i


def test_where_nobody_listens_the_connection_ends_at_once_and_the_log_says_why(box):
    box.ok("/bind_port", port="7777")
    with connect(proxy_port(box)) as s:
        s.settimeout(30)  # a new sandbox has port_wait to begin to listen
        with contextlib.suppress(ConnectionResetError):
            assert s.recv(1) == b""
    wait_for(lambda: [x for x in box.server.log_lines() if x.get("program") == "gate" and x.get("port") == 7777
                      and "nothing listens" in x.get("reason", "")], 30, "the reason in the log")


def test_after_unbind_everything_is_gone(box):
    box.ok("/bind_port", port="7000")
    with connect(proxy_port(box)) as s:
        s.sendall(b"x")
        assert s.recv(1) == b"x"
        box.request("POST", "/unbind_port")
        with contextlib.suppress(ConnectionResetError):
            assert s.recv(1) == b""
    with pytest.raises(ConnectionRefusedError):
        connect(proxy_port(box))
    assert box.request("POST", "/unbind_port").status == 200  # nothing bound is fine


def test_a_binding_ends_with_its_sandbox(box):
    box.ok("/bind_port", port="7000")
    box.server.cleanup("default")

    def refused():
        try:
            connect(proxy_port(box)).close()
            return False
        except ConnectionRefusedError:
            return True
    wait_for(refused, 30, "the listener's end")
    assert box.post("/bind_port", port="7000").status == 200


def test_other_projects_get_ports_of_the_range(box):
    other = Executor(box.server, "other")
    port = other.ok("/bind_port", port="7000")["proxy_port"]
    low, high = (int(box.server.config[k]) for k in ("proxy_range_first", "proxy_range_last"))
    assert low <= port <= high
    foreign = Executor(box.server, "default", key=box.server.add_key("foreign"))
    assert low <= foreign.ok("/bind_port", port="7000")["proxy_port"] <= high  # `default` of another tenant


def test_a_tenant_has_its_share_of_ports_and_others_have_theirs(make_server):
    server = make_server(tenant_proxy_ports=2)
    foreign = server.add_key("foreign")
    bind = lambda project, key=True: Executor(server, project, key).post("/bind_port", port="7000")
    assert [bind(f"p{i}").status for i in range(2)] == [200, 200]
    refused = bind("p2")
    assert refused.status == 429 and "2 ports" in refused.json["error"], refused
    wait_for(lambda: bind("p0", foreign).status == 200, 30, "a port of another tenant's")
    assert Executor(server, "p0").post("/unbind_port").status == 200
    assert bind("p2").status == 200


def test_a_killed_gate_is_replaced_and_listens_again(box):
    box.ok("/bind_port", port="7000")
    gate, = box.server.titles("cove: gate")
    os.kill(gate, signal.SIGKILL)
    wait_for(lambda: gate not in box.server.titles("cove: gate") and box.server.titles("cove: gate"), 30, "another gate")

    def echoes():
        try:
            with connect(proxy_port(box)) as s:
                s.sendall(b"again")
                return s.recv(5) == b"again"
        except ConnectionError:
            return False
    wait_for(echoes, 30, "the same port")


@pytest.mark.parametrize("signo", [signal.SIGQUIT, signal.SIGKILL])
def test_connections_live_through_a_restart_of_the_server(box, signo):
    """Before, without and after: what is connected stays so, and the port is never closed. Unbinding ends all of it."""
    def echo(s, data):
        s.sendall(data)
        return s.recv(len(data), socket.MSG_WAITALL) == data

    server = box.server
    box.ok("/bind_port", port="7000")
    gate, = server.titles("cove: gate")
    keeper = server.keeper_pid
    with connect(proxy_port(box)) as before:
        assert echo(before, b"before")
        os.kill(keeper, signo)
        wait_for(lambda: not alive(keeper), 30, "the keeper's end")
        with connect(proxy_port(box)) as between:
            assert echo(between, b"between") and echo(before, b"still there")
            server.up()
            wait_for(lambda: len(server.titles("cove: gate")) == 2, 30, "the next gate")
            with connect(proxy_port(box)) as after:
                assert echo(after, b"after") and echo(between, b"still there") and echo(before, b"still there")
                assert box.post("/bind_port", port="7000").json["current_port"] == "7000"
                box.request("POST", "/unbind_port")
                for s in (before, between, after):
                    with contextlib.suppress(ConnectionResetError):
                        assert s.recv(1) == b""
    wait_for(lambda: gate not in server.titles("cove: gate"), 30, "the old gate's end")
    with pytest.raises(ConnectionRefusedError):
        connect(proxy_port(box))


NAMED = r"""
import socket, sys, threading
s = socket.socket(); s.bind(("127.0.0.1", 7000)); s.listen(64)
def serve(c):
    while c.recv(100): c.sendall(sys.argv[1].encode())
while True:
    threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
"""


def test_a_binding_follows_its_project_to_the_next_sandbox(make_server):
    """When a sandbox is too old for new requests it is so for new connections; those it has go on until its end."""
    server = make_server(proxy_port=free_port(), reuse="10s")
    box = Executor(server, "default")

    def current():
        return server.execute("default", "true").id

    def answer(s):
        s.sendall(b"?")
        return s.recv(100).decode()

    def asked():
        with contextlib.suppress(OSError), connect(proxy_port(box)) as s:
            return answer(s)

    def serves(name):
        """A busy machine may take longer for it than a sandbox is used again: then the next sandbox is tried."""
        id = current()
        box.ok("/write_file", path="/tmp/named.py", content=NAMED)
        box.start(f"python3 /tmp/named.py {name}")
        box.post("/bind_port", port="7000")
        wait_for(lambda: asked() == name or current() != id, 60, name)
        return current() == id and id

    def first_answers():
        id, kept = serves("first"), connect(proxy_port(box))
        with contextlib.suppress(OSError):
            if id and answer(kept) == "first" and current() == id:
                return id, kept
        kept.close()

    first, kept = wait_for(first_answers, 90, "a first sandbox that answers")
    with kept:
        wait_for(lambda: current() != first, 60, "the next sandbox")
        wait_for(lambda: serves("second") and asked() == "second", 90, "the second server")
        assert answer(kept) == "first"
        reply = box.post("/bind_port", port="7001")
        assert reply.status == 409 and reply.json["current_port"] == "7000"
        assert server.request("DELETE", f"/sandboxes/{first}").status == 204
        with contextlib.suppress(ConnectionResetError):
            while kept.recv(100):  # ends with the first sandbox
                pass
    wait_for(lambda: asked() == "second" or serves("second") and asked() == "second", 90, "the second server still")
