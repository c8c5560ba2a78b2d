"""The executor dialect when things break, and when there is much of everything."""
import concurrent.futures
import contextlib
import http.client
import os
import signal
import time

import pytest

from cove import status_field, wait_for
from executor import Executor, text


def streams_of(box, id):
    return {"run": ("/run_streaming", {"cmd": "echo go; sleep 1000"}),
            "logs": ("/process_logs_streaming", {"id": id})}


def last_event(stream):
    event = None
    try:
        for event in stream:
            pass
    except http.client.HTTPException:
        pass
    return event


@pytest.mark.parametrize("kind", ["run", "logs"])
def test_when_init_dies_the_stream_ends_with_an_error_event(make_server, kind):
    server = make_server()
    box = Executor(server, "p")
    id = box.start("echo go; sleep 1000")
    with box.stream(*streams_of(box, id)[kind]) as s:
        events = iter(s)
        assert next(events).data["data"] == "go"
        os.kill(box.init, signal.SIGKILL)
        end = last_event(events)
    assert end and end.name == "error" and end.data["error"]


@pytest.mark.parametrize("kind", ["run", "logs"])
def test_when_the_sandbox_expires_the_stream_ends_with_an_error_event(make_server, kind):
    box = Executor(make_server(reuse="2s", lifetime="3s"), "p")
    id = box.start("echo go; sleep 1000")
    with box.stream(*streams_of(box, id)[kind], timeout=15) as s:
        events = iter(s)
        assert next(events).data["data"] == "go"
        end = last_event(events)
    assert end and end.name == "error"


def test_a_killed_worker_ends_its_streams_and_the_client_continues_elsewhere(make_server):
    server = make_server()
    box = Executor(server, "p")
    id = box.start("i=0; while :; do i=$((i+1)); echo $i; sleep 0.01; done")
    with box.stream(f"/process_logs_streaming?id={id}", method="GET") as s:
        events = iter(s)
        seen = [next(events) for _ in range(30)]
        os.kill(server.worker_pids[0], signal.SIGKILL)
        try:
            seen += list(events)
        except (http.client.HTTPException, OSError):
            pass
    assert seen[-1].name == "log"  # no terminal event: the connection broke, the process did not end
    wait_for(lambda: server.request("GET", "/health").status == 200, 10, "a new worker")
    with box.stream(f"/process_logs_streaming?id={id}", method="GET", headers={"Last-Event-ID": seen[-1].id}) as s:
        events = iter(s)
        seen += [next(events) for _ in range(30)]
    assert text(seen) == [str(n) for n in range(1, len(seen) + 1)]


def test_a_restart_ends_log_streams_with_an_event_to_continue_from(make_server):
    server = make_server()
    box = Executor(server, "p")
    id = box.start("echo one; while [ ! -e /tmp/go ]; do sleep 0.05; done; echo two")
    with box.stream(f"/process_logs_streaming?id={id}", method="GET") as s:
        events = iter(s)
        assert next(events).data["data"] == "one"
        began = time.monotonic()
        os.kill(server.keeper_pid, signal.SIGQUIT)  # leaves the sandboxes to the next one
        end = last_event(events)
    assert end and end.name == "error" and "continue" in end.data["error"] and time.monotonic() - began < 5
    wait_for(lambda: not server.titles("cove: worker"), 12, "the workers' end")
    server.up()
    box.sh("touch /tmp/go")
    assert text(box.logs(id, since=end.id)) == ["two"]


def test_a_restart_ends_running_commands_with_a_word(make_server):
    """They get some seconds to end by themselves; then their clients are told, not cut off."""
    server = make_server()
    box = Executor(server, "p")
    with box.stream("/run_streaming", {"cmd": "echo go; sleep 1000"}) as s, concurrent.futures.ThreadPoolExecutor(2) as pool:
        events = iter(s)
        assert next(events).data["data"] == "go"
        short = pool.submit(box.post, "/run", cmd="touch /tmp/short; sleep 4; echo whole")
        long = pool.submit(box.post, "/run", cmd="echo so far; touch /tmp/long; sleep 1000")
        wait_for(lambda: box.sh("ls /tmp") == "long\nshort\n", 5, "both commands")
        os.kill(server.keeper_pid, signal.SIGQUIT)
        end = last_event(events)
        assert short.result().json["stdout"] == "whole\n"
        reply = long.result()
    assert end.name == "error" and "restart" in end.data["error"]
    assert reply.status == 500 and reply.json["stdout"] == "so far\n" and "restart" in reply.json["error"], reply
    wait_for(lambda: not server.titles("cove: worker"), 12, "the workers' end")
    server.up()
    assert box.sh("ls /tmp") == "long\nshort\n"  # the sandbox did not notice


def test_a_killed_worker_s_streamed_command_does_not_run_on(make_server):
    server = make_server()
    box = Executor(server, "p")
    init = box.init
    with box.stream("/run_streaming", {"cmd": "echo go; sleep 1000"}) as s:
        next(iter(s))
        os.kill(server.worker_pids[0], signal.SIGKILL)
        wait_for(lambda: not any("sleep 1000" in t for t in server.inside_titles(init)), 5, "its end")


def test_thousands_of_processes_leave_memory_flat_and_the_list_quick(make_server):
    box = Executor(make_server(threads=40), "p")
    init = box.init

    def many(count):
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            for reply in pool.map(lambda _: box.post("/start_process", cmd="echo x"), range(count)):
                assert reply.status == 201, reply
        return int(status_field(init, "VmRSS").split()[0])

    first = many(1100)  # the table of finished ones (1,024) is full now
    second = many(900)
    assert second < first * 1.3 + 2048, (first, second)
    began = time.monotonic()
    whole = [p["id"] for p in box.processes()["processes"]]
    assert 1000 <= len(whole) <= 1100
    assert time.monotonic() - began < 2
    page, paged = box.processes("?limit=300"), []
    while "next" in page:
        paged += [p["id"] for p in page["processes"]]
        page = box.processes(f"?limit=300&after={page['next']}")
    assert (paged + [p["id"] for p in page["processes"]])[-1000:] == whole[-1000:]


def test_a_process_that_writes_as_fast_as_it_can_disturbs_nobody(make_server):
    server = make_server(threads=40)
    box = Executor(server, "p")
    id = box.start("cat /dev/zero | tr '\\0' 'x' | fold -w 120")
    memory = [int(status_field(p, "VmRSS").split()[0]) for p in (box.init, *server.worker_pids)]
    with box.stream(f"/process_logs_streaming?id={id}", method="GET") as s:
        events = iter(s)
        for _ in range(20000):
            next(events)
        began = time.monotonic()
        assert box.sh("echo ok") == "ok\n" and time.monotonic() - began < 5
    after = [int(status_field(p, "VmRSS").split()[0]) for p in (box.init, *server.worker_pids)]
    assert max(b - a for a, b in zip(memory, after)) < 32 * 1024, (memory, after)
    box.ok("/kill_process", id=id)


def test_hundreds_of_clients_of_one_process(make_server):
    server = make_server(workers=2, threads=800, pids_max=1024)  # either worker could hold them all within a sandbox's share of its threads
    box = Executor(server, "p")
    id = box.start("while [ ! -e /tmp/go ]; do sleep 0.05; done; seq 20")
    with contextlib.ExitStack() as stack:
        streams = []
        for _ in range(500):
            streams.append(stack.enter_context(box.stream(f"/process_logs_streaming?id={id}", method="GET")))
            assert streams[-1].status == 200
        began = time.monotonic()
        assert server.request("GET", "/health").status == 200 and time.monotonic() - began < 1
        box.sh("touch /tmp/go")
        for s in streams:
            events = list(s)
            assert text(events) == [str(n) for n in range(1, 21)] and events[-1].name == "complete"
