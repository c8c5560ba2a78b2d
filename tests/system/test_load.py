"""Many at once: nothing starves, nothing hangs, nothing is done twice."""
import concurrent.futures
import contextlib
import json
import os
import socket
import struct
import threading
import time

from cove import wait_for
from executor import Executor

WAIT = "while [ ! -e /workspace/go ]; do sleep 0.02; done; echo done"


def send_and_keep_open(server, project, command):
    body = json.dumps({"projectId": project, "commands": [command]}).encode()
    s = socket.create_connection(("127.0.0.1", server.http), timeout=20)
    s.sendall(b"POST /execute HTTP/1.1\r\nHost: x\r\nX-API-Key: %s\r\nContent-Length: %d\r\n\r\n%s"
              % (server.key.encode(), len(body), body))
    server.projects.add((project, True))
    return s


def test_when_every_long_slot_is_taken_health_answers_and_commands_get_503(make_server):
    server = make_server(workers=1, threads=6, short_threads=2, sandbox_threads=0, command_timeout="60s")
    init = server.init_of(server.execute("p", "true"))
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        jobs = [pool.submit(server.execute, "p", WAIT) for _ in range(4)]
        wait_for(lambda: len([t for t in server.inside_titles(init) if "workspace/go" in t]) == 4, 10, "4 commands")
        for _ in range(10):
            began = time.monotonic()
            assert server.request("GET", "/health", key=False).status == 200
            assert time.monotonic() - began < 2
        refused = server.execute("p", "true")
        assert refused.status == 503, refused
        assert int(refused.headers["Retry-After"]) > 0
        assert refused.json["success"] is False and refused.json["error"]
        server.touch_inside(init, "/workspace/go")
        assert [job.result().json["stdout"] for job in jobs] == ["done\n"] * 4
    assert server.execute("p", "true").status == 200


def test_503_only_when_all_workers_are_full(make_server):
    """Three workers with two long slots each: six streams find a place whoever accepts them, the seventh does not, and a
    slot that becomes free in any worker is found by the next one."""
    server = make_server(workers=3, threads=6, short_threads=4, sandbox_threads=0)
    box = Executor(server, "p")
    box.sh("true")

    def stream():
        return box.stream("/run_streaming", {"cmd": "sleep 1000"})

    with contextlib.ExitStack() as stack:
        open_streams = [stack.enter_context(stream()) for _ in range(6)]
        assert [s.status for s in open_streams] == [200] * 6
        for i in range(40):
            with stream() as refused:
                assert refused.status == 503 and refused.headers["Retry-After"], i
            assert box.request("GET", "/list_processes").status == 200
            open_streams.pop(i % 6).close()
            wait_for(lambda: "\ncove_long_slots_free 1\n" in server.request("GET", "/metrics", key=False).body.decode(), 5,
                     "the slot")
            open_streams.append(stack.enter_context(stream()))
            assert open_streams[-1].status == 200, i


def test_a_burst_far_above_the_slots_is_answered_by_200_or_503_and_nothing_else(make_server):
    server = make_server(workers=1, threads=8, short_threads=2, pool=2)
    server.run("p", "true")
    with concurrent.futures.ThreadPoolExecutor(80) as pool:
        replies = list(pool.map(lambda _: server.execute("p", "sleep 0.2; echo x"), range(240)))
    assert {r.status for r in replies} <= {200, 503}
    assert any(r.status == 200 for r in replies)
    assert all(r.json["stdout"] == "x\n" for r in replies if r.status == 200)
    assert all(r.headers["Retry-After"] for r in replies if r.status == 503)
    assert server.run("p", "echo after") == "after\n"


class Envd:
    """A sandbox of e2b, and streams of commands in it that are closed with `stack`."""

    def __init__(self, server, stack):
        made = server.post("/v2/sandboxes", {"templateID": "base"}).json
        self.server, self.stack, self.id = server, stack, made["sandboxID"]
        self.headers = {"E2b-Sandbox-Id": self.id, "E2b-Sandbox-Port": "49983", "X-Access-Token": made["envdAccessToken"]}

    def start(self):
        """The flags and the message of the first envelope of a command's stream."""
        message = json.dumps({"process": {"cmd": "sleep", "args": ["1000"]}, "stdin": False}).encode()
        connection = self.stack.enter_context(contextlib.closing(self.server.connect()))
        connection.request("POST", "/process.Process/Start", struct.pack(">BI", 0, len(message)) + message,
                           {**self.headers, "Content-Type": "application/connect+json"})
        reply = connection.getresponse()
        assert reply.status == 200, reply.read()
        flags, length = struct.unpack(">BI", reply.read(5))
        return flags, json.loads(reply.read(length))

    def is_refused(self):
        """Both kinds of calls say that there are too many. An SDK takes "unavailable" for "there is no such sandbox", and its program
        would throw the sandbox away."""
        flags, last = self.start()
        assert flags == 2 and last["error"]["code"] == "resource_exhausted", last
        refused = self.server.post("/process.Process/List", {}, headers={**self.headers, "Content-Type": "application/json"})
        assert refused.status == 429 and refused.json["code"] == "resource_exhausted", refused
        assert (refused.headers["Retry-After"], refused.headers["Should-Retry"]) == ("1", "true"), refused


def test_a_call_of_envd_above_its_sandboxs_share_is_resource_exhausted(make_server):
    server = make_server(workers=1, threads=8, short_threads=2)  # six for commands, and five of these for one sandbox
    with contextlib.ExitStack() as stack:
        sandbox = Envd(server, stack)
        for _ in range(5):
            flags, first = sandbox.start()
            assert flags == 0 and first["event"]["start"]["pid"], first
        sandbox.is_refused()


def test_a_full_server_refuses_in_the_words_of_e2b(make_server):
    server = make_server(workers=1, threads=8, short_threads=2, sandbox_threads=100, tenant_threads=100)
    with contextlib.ExitStack() as stack:
        sandbox = Envd(server, stack)
        for _ in range(6):
            flags, first = sandbox.start()
            assert flags == 0 and first["event"]["start"]["pid"], first
        sandbox.is_refused()
        for refused in (server.post(f"/sandboxes/{sandbox.id}/connect", {"timeout": 60}),
                        server.request("GET", "/files?path=/etc/hostname", headers=sandbox.headers)):
            assert refused.status == 503 and refused.json["code"] == 503 and "full" in refused.json["message"], refused
            assert (refused.headers["Retry-After"], refused.headers["Should-Retry"]) == ("1", "true"), refused


def test_two_first_requests_at_the_same_instant_share_one_sandbox(server, project):
    for round_number in range(10):
        name = f"{project}-{round_number}"
        barrier = threading.Barrier(2)

        def first(_):
            barrier.wait()
            return server.execute(name, "echo hi")

        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            a, b = pool.map(first, range(2))
        assert a.json["stdout"] == b.json["stdout"] == "hi\n"
        assert a.id == b.id
        server.cleanup(name)


def test_many_requests_to_one_project_run_side_by_side(server, project):
    server.run(project, "true")
    began = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(10) as pool:
        replies = list(pool.map(lambda i: server.execute(project, f"sleep 1; echo {i}"), range(10)))
    assert [r.json["stdout"] for r in replies] == [f"{i}\n" for i in range(10)]
    assert time.monotonic() - began < 6


def test_a_client_that_closes_the_connection_takes_its_command_along(server, project):
    init = server.init_of(server.execute(project, "true"))
    s = send_and_keep_open(server, project, "setsid sleep 3.7 & sleep 3.8; touch /workspace/ran-on")
    wait_for(lambda: "sleep 3.8" in server.inside_titles(init), 5, "the command")
    began = time.monotonic()
    s.close()
    wait_for(lambda: not server.inside(init), 3, "the command's end")
    assert time.monotonic() - began < 3
    assert not os.path.exists(server.path_inside(init, "/workspace/ran-on"))


def test_the_commands_after_it_do_not_run_either(server, project):
    init = server.init_of(server.execute(project, "true"))
    body = json.dumps({"projectId": project, "commands": ["sleep 3.6", "touch /workspace/second"]}).encode()
    s = socket.create_connection(("127.0.0.1", server.http), timeout=20)
    s.sendall(b"POST /execute HTTP/1.1\r\nHost: x\r\nX-API-Key: %s\r\nContent-Length: %d\r\n\r\n%s"
              % (server.key.encode(), len(body), body))
    wait_for(lambda: "sleep 3.6" in server.inside_titles(init), 5, "the command")
    s.close()
    wait_for(lambda: not server.inside(init), 3, "the command's end")
    assert server.run(project, "ls /workspace") == ""


def test_clients_that_leave_in_numbers_leave_no_slot_taken(make_server):
    server = make_server(workers=1, threads=8, short_threads=2, sandbox_threads=0, command_timeout="60s")
    init = server.init_of(server.execute("p", "true"))
    for _ in range(3):
        sockets = [send_and_keep_open(server, "p", "sleep 50") for _ in range(6)]
        wait_for(lambda: server.inside_titles(init).count("sleep 50") == 6, 10, "six commands")
        for s in sockets:
            s.close()
        wait_for(lambda: not server.inside(init), 5, "their end")
    assert wait_for(lambda: server.execute("p", "echo free").status == 200, 5, "a free slot")


def test_a_slow_sender_holds_no_thread(make_server):
    server = make_server(workers=1, threads=4, short_threads=2)
    slow = [socket.create_connection(("127.0.0.1", server.http)) for _ in range(20)]
    for s in slow:
        s.sendall(b"POST /execute HTTP/1.1\r\nHost: x\r\nX-API-Key: %s\r\nContent-Length: 100\r\n\r\n{"
                  % server.key.encode())
    assert server.run("p", "echo quick") == "quick\n"
    for s in slow:
        s.close()


def test_idle_connections_of_clients_hold_no_thread(make_server):
    server = make_server(workers=1, threads=4, short_threads=2)
    idle = [server.connect() for _ in range(30)]
    for c in idle:
        c.request("GET", "/health")
        assert c.getresponse().read()
    assert server.run("p", "echo quick") == "quick\n"
    for c in idle:
        c.close()
