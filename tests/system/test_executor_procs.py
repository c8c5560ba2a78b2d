"""The executor dialect: background processes and their logs."""
import os
import re
import signal
import time

import pytest

from cove import alive, wait_for
from executor import Executor, text

UUID = re.compile(r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")


@pytest.fixture
def box(server, project):
    return Executor(server, project)


# ------------------------------------------------------------------ lives

def test_start_answers_201_at_once_with_a_uuid(box):
    began = time.monotonic()
    reply = box.post("/start_process", cmd="sleep 1000")
    assert reply.status == 201 and time.monotonic() - began < 5
    assert UUID.match(reply.json["id"]) and reply.json["pid"] > 1 and reply.json["status"] == "running"


def test_the_four_states(box):
    ids = {s: box.start(c) for s, c in {"running": "sleep 1000", "completed": "true", "failed": "exit 4",
                                        "killed": "sleep 1001"}.items()}
    assert box.ok("/kill_process", id=ids["killed"]) == {"success": True, "message": "Process killed successfully"}
    for status, id in ids.items():
        box.wait_status(id, status)
    failed = box.process(ids["failed"])
    assert failed["exit_code"] == 4 and failed["command"] == "exit 4" and failed["started"] <= failed["ended"]
    assert box.process(ids["running"])["memory_bytes"] > 0


def test_dying_by_a_signal_of_its_own_is_failed_not_killed(box):
    id = box.start("kill -9 $$")
    box.wait_status(id, "failed")


def test_kill_takes_the_whole_tree_however_it_detached(box):
    init = box.init
    id = box.start("setsid sleep 2000 & (setsid nohup sleep 2001 >/dev/null 2>&1 &) ; sleep 2002")
    wait_for(lambda: sum("sleep 200" in t for t in box.server.inside_titles(init)) >= 3, 5, "three of them")
    box.ok("/kill_process", id=id)
    wait_for(lambda: not any("sleep 200" in t for t in box.server.inside_titles(init)), 5, "none of them")


def test_killing_what_is_not_there_or_not_running_says_so(box):
    reply = box.post("/kill_process", id="550e8400-e29b-41d4-a716-446655440000")
    assert reply.status == 400
    assert reply.json == {"success": False, "error": "process not found: 550e8400-e29b-41d4-a716-446655440000"}
    id = box.start("true")
    box.wait_status(id, "completed")
    reply = box.post("/kill_process", id=id)
    assert reply.status == 400
    assert reply.json == {"success": False, "error": "process is not running (status: completed)"}


def test_a_missing_cwd_is_a_clear_400(box):
    reply = box.post("/start_process", cmd="true", cwd="/no/such")
    assert reply.status == 400 and reply.json["error"].startswith("Failed to start process: ")
    assert "/no/such" in reply.json["error"]


def test_the_list_has_pages(box):
    ids = [box.start("true") for _ in range(5)]
    first = box.processes("?limit=2")
    assert [p["id"] for p in first["processes"]] == ids[:2] and first["next"]
    box.wait_status(ids[1], "completed")
    box.ok("/remove_process", id=ids[1])  # a page goes on where it was, even if that one is gone
    rest = box.processes(f"?limit=10&after={first['next']}")
    assert [p["id"] for p in rest["processes"]] == ids[2:] and "next" not in rest
    assert box.request("GET", "/list_processes?limit=0").status == 400
    assert box.request("GET", f"/list_processes?after={ids[0]}").status == 400  # no `next` of ours


def test_commands_of_requests_are_not_in_the_list(box):
    box.sh("true")
    assert box.processes() == {"processes": []}


def test_removed_processes_are_gone_with_what_they_left_behind(box):
    init = box.init
    id = box.start("setsid sleep 3000 & exit 0")
    box.wait_status(id, "completed")
    assert any("sleep 3000" in t for t in box.server.inside_titles(init))
    box.ok("/remove_process", id=id)
    assert box.process(id) is None
    wait_for(lambda: not any("sleep 3000" in t for t in box.server.inside_titles(init)), 5, "its child's end")
    running = box.start("sleep 1000")
    assert box.post("/remove_process", id=running).status == 400


def test_signals_reach_the_process(box):
    id = box.start("trap 'echo got; exit 5' USR1; echo ready; while :; do sleep 0.05; done")
    wait_for(lambda: "ready" in text(self_ended(box, id)), 5, "the trap")
    assert box.post("/signal_process", id=id, signal="NONSENSE").status == 400
    box.ok("/signal_process", id=id, signal="USR1")
    box.wait_status(id, "failed")
    assert box.process(id)["exit_code"] == 5 and text(box.logs(id))[-1] == "got"


def self_ended(box, id):
    """What is in the log now, without waiting for the process's end."""
    with box.stream(f"/process_logs_streaming?id={id}", method="GET", timeout=1) as s:
        events = []
        try:
            for e in s:
                events.append(e)
        except TimeoutError:
            pass
        return events


def test_stdin_can_be_written_and_closed(box):
    id = box.start("cat; echo end", stdin=True)
    assert box.ok("/process_stdin", id=id, data="one\ntwo\n") == {"success": True, "bytes": 8}
    box.ok("/process_stdin", id=id, data="three\n", close=True)
    box.wait_status(id, "completed")
    assert text(box.logs(id)) == ["one", "two", "three", "end"]


def test_a_process_that_does_not_read_keeps_nobody_waiting(box):
    id = box.start("sleep 1000", stdin=True)
    began = time.monotonic()
    reply = box.post("/process_stdin", id=id, data="x" * 1000000, wait=30)
    assert reply.status == 408 and time.monotonic() - began < 15


def test_without_stdin_a_process_reads_end_of_file(box):
    id = box.start("cat; echo end")
    box.wait_status(id, "completed")


def test_processes_and_logs_survive_workers_and_the_keeper(make_server):
    server = make_server()
    box = Executor(server, "p")
    id = box.start("echo before; while [ ! -e /tmp/go ]; do sleep 0.05; done; echo after; sleep 1000")
    pid = box.process(id)["pid"]
    os.kill(server.worker_pids[0], signal.SIGKILL)
    wait_for(lambda: server.request("GET", "/health").status == 200, 10, "a new worker")
    os.kill(server.keeper_pid, signal.SIGKILL)
    server.up()
    box.sh("touch /tmp/go")
    wait_for(lambda: "after" in text(self_ended(box, id)), 10, "the second line")
    assert text(self_ended(box, id)) == ["before", "after"]
    assert box.process(id)["pid"] == pid and box.process(id)["status"] == "running"


# ------------------------------------------------------------------ logs

def test_history_comes_first_then_what_is_new_then_complete(box):
    id = box.start("echo one; echo two >&2; while [ ! -e /tmp/go ]; do sleep 0.05; done; printf three")
    with box.stream(f"/process_logs_streaming?id={id}", method="GET") as s:
        events = iter(s)
        assert {next(events).data["data"], next(events).data["data"]} == {"one", "two"}
        box.sh("touch /tmp/go")
        third, end = list(events)
    assert third.name == "log" and third.data["stream"] == "stdout" and third.data["data"] == "three"
    assert end.name == "complete" and end.data == {"message": "stream ended"}


def test_timestamps_are_those_of_the_capture(box):
    id = box.start("echo one; sleep 1.5; echo two")
    box.wait_status(id, "completed")
    first, second = [e.data["timestamp"] for e in box.logs(id)[:-1]]
    assert re.match(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$", first)
    assert 1 < float(second[17:-1]) - float(first[17:-1]) % 60 + (60 if second[17:-1] < first[17:-1] else 0) < 4


def test_the_id_may_come_by_query_or_by_body(box):
    id = box.start("echo hello")
    box.wait_status(id, "completed")
    with box.stream("/process_logs_streaming", {"id": id}) as s:
        by_body = [(e.id, e.name, e.data) for e in s]
    assert by_body == [(e.id, e.name, e.data) for e in box.logs(id)]
    assert box.request("GET", "/process_logs_streaming").status == 400
    assert box.request("POST", "/process_logs_streaming", {}).status == 400


def test_an_unknown_process_is_an_error_event(box):
    events = box.logs("550e8400-e29b-41d4-a716-446655440000")
    assert [(e.name, e.data) for e in events] == [
        ("error", {"error": "process not found: 550e8400-e29b-41d4-a716-446655440000"})]


def test_a_client_that_comes_back_continues_where_it_was(box):
    id = box.start("for i in $(seq 200); do echo out $i; echo err $i >&2; done")
    box.wait_status(id, "completed")
    everything = box.logs(id)[:-1]
    assert len(everything) == 400
    for cut in (0, 1, 57, 398):
        rest = box.logs(id, since=everything[cut].id)[:-1]
        for stream in ("stdout", "stderr"):
            assert text(everything[:cut + 1], stream) + text(rest, stream) == text(everything, stream), cut
        with box.stream(f"/process_logs_streaming?id={id}", method="GET",
                        headers={"Last-Event-ID": everything[cut].id}) as s:
            assert [e.id for e in s][:-1] == [e.id for e in rest]
    assert box.request("GET", f"/process_logs_streaming?id={id}&since=nonsense").status == 400


def test_a_place_in_the_middle_of_the_other_stream_s_line_loses_nothing(box):
    id = box.start("printf 'begin ' >&2; sleep 0.2; echo out; sleep 0.2; echo 'end' >&2")
    box.wait_status(id, "completed")
    events = box.logs(id)
    assert [e.data["data"] for e in events[:-1]] == ["out", "begin end"]
    assert [e.data["data"] for e in box.logs(id, since=events[0].id)[:-1]] == ["begin end"]


def test_the_last_ten_thousand_lines_are_kept(box):
    id = box.start("seq 25000")
    box.wait_status(id, "completed")
    lines = text(box.logs(id))
    assert lines == [str(n) for n in range(15001, 25001)]


def test_many_clients_see_the_same(box):
    id = box.start("for i in $(seq 100); do echo $i; sleep 0.01; done")
    from concurrent.futures import ThreadPoolExecutor
    with ThreadPoolExecutor(20) as pool:
        seen = list(pool.map(lambda _: text(box.logs(id)), range(20)))
    assert all(lines == [str(n) for n in range(1, 101)] for lines in seen)


def test_a_slow_client_gets_a_gap_and_slows_nobody(make_server):
    box = Executor(make_server(log_max="256K"), "p")
    id = box.start("sleep 0.5; seq -f 'line %08.0f of very many lines' 2000000; sleep 0.3; echo the end")
    with box.stream(f"/process_logs_streaming?id={id}", method="GET") as slow:
        box.wait_status(id, "completed", 30)  # nobody has read anything yet
        events = list(slow)
    gaps = [e for e in events if e.name == "gap"]
    assert gaps and all(e.data["lost_bytes"] > 0 and e.data["of"] == "stdout" for e in gaps)
    assert text(events)[-1] == "the end" and events[-1].name == "complete"
    told = sum(len(line) + 1 for line in text(events)) + sum(e.data["lost_bytes"] for e in gaps)
    assert told >= 2000000 * 33  # every byte was told or told as lost (a line cut by a gap counts twice)


def test_head_does_not_stream(box):
    id = box.start("sleep 1000")
    assert box.request("HEAD", f"/process_logs_streaming?id={id}", timeout=5).status == 200


def test_a_log_stream_ends_when_its_client_leaves(make_server):
    server = make_server(threads=6, short_threads=2)
    box = Executor(server, "p")
    id = box.start("sleep 1000")
    for _ in range(12):  # more than there are threads: a stream that stayed would leave none
        with box.stream(f"/process_logs_streaming?id={id}", method="GET") as s:
            assert s.status == 200
        wait_for(lambda: box.post("/run", cmd="true").status == 200, 5, "a free thread")
    assert alive(server.keeper_pid)
