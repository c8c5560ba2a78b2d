"""The executor dialect: /run, /run_streaming, whose sandbox it is, and bad input."""
import json
import time

import pytest

from cove import wait_for
from executor import Executor, text


@pytest.fixture
def box(server, project):
    return Executor(server, project)


# ------------------------------------------------------------------ /run

def documented(reply):
    """What the document has, without what tells the sandbox's life."""
    return {name: value for name, value in reply.json.items() if name not in ("created", "expiresAt")}


def test_run_answers_with_stdout_stderr_and_code(box):
    reply = box.post("/run", cmd="echo out; echo err >&2")
    assert reply.status == 200
    assert documented(reply) == {"stdout": "out\n", "stderr": "err\n", "code": 0}


def test_a_command_that_fails_has_an_error_and_still_200(box):
    reply = box.post("/run", cmd="echo so far; exit 3")
    assert reply.status == 200
    assert documented(reply) == {"stdout": "so far\n", "stderr": "", "error": "Non-zero exit code", "code": 3}


def test_cwd_and_env_are_the_command_s(box):
    assert box.sh('pwd; echo "$A$HOME"', cwd="/tmp", env={"A": "x=y "}) == "/tmp\nx=y /root\n"


def test_commands_run_in_sh_with_shell_features(box):
    assert box.sh("echo a | tr a b && echo $0") == "b\n/bin/sh\n"


def test_a_missing_cwd_is_a_clear_400(box):
    reply = box.post("/run", cmd="true", cwd="/no/such")
    assert reply.status == 400 and "/no/such" in reply.json["error"]


def test_the_timeout_in_the_body_ends_the_command_and_is_told(box):
    began = time.monotonic()
    reply = box.post("/run", cmd="echo so far; sleep 30", timeout=1)
    assert time.monotonic() - began < 8
    assert reply.json["code"] == 124 and reply.json["stdout"] == "so far\n" and "1 s" in reply.json["error"]


def test_the_configured_timeout_cannot_be_raised(make_server):
    box = Executor(make_server(executor_timeout="1s"), "p")
    began = time.monotonic()
    assert box.post("/run", cmd="sleep 30", timeout=30).json["code"] == 124
    assert time.monotonic() - began < 8


def test_forbidden_commands_are_refused_before_anything_runs(box):
    for path in ("/run", "/run_streaming", "/start_process"):
        reply = box.post(path, cmd="touch /tmp/ran; reboot")
        assert reply.status == 403 and "Forbidden command detected" in reply.json["error"], reply
        assert reply.json["rule"] and reply.json["reason"]
    assert box.sh("ls /tmp") == ""


BAD_BODIES = [
    (b"", "body"), (b"[1]", "body"), (b"{}", "cmd"), ({"cmd": 1}, "cmd"), ({"cmd": ""}, "cmd"),
    ({"cmd": "true", "cwd": "relative"}, "cwd"), ({"cmd": "true", "env": {"1A": "x"}}, "env"),
    ({"cmd": "true", "env": {"A=B": "x"}}, "env"), ({"cmd": "true", "env": {"A": 1}}, "env"),
    ({"cmd": "true", "timeout": 0}, "timeout"), ({"cmd": "a\0b"}, "cmd"), ({"cmd": "x" * 200000}, "cmd"),
]


@pytest.mark.parametrize("path", ["/run", "/run_streaming", "/start_process"])
def test_bad_bodies_are_400_and_name_the_field(box, path):
    for body, field in BAD_BODIES:
        reply = box.request("POST", path, body)
        assert reply.status == 400 and reply.json["error"].startswith(field), (body, reply)


# ------------------------------------------------------------------ the front door

POST_ROUTES = ["/run", "/run_streaming", "/write_file", "/read_file", "/delete_file", "/make_dir", "/delete_dir",
               "/list_dir", "/bind_port", "/unbind_port", "/start_process", "/kill_process", "/signal_process",
               "/process_stdin", "/remove_process"]


@pytest.mark.parametrize("path", POST_ROUTES)
def test_a_wrong_method_is_405_with_allow(box, path):
    reply = box.request("GET", path)
    assert reply.status == 405 and "POST" in reply.headers["Allow"]


@pytest.mark.parametrize("path", [*POST_ROUTES, "/list_processes", "/process_logs_streaming", "/raw_file"])
def test_without_a_valid_key_it_is_401(server, path):
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic eDp5"}):
        reply = server.request("POST", path, {}, headers=headers, key=False)
        assert reply.status == 401 and reply.json["error"]


def test_a_sandbox_tells_its_life_and_lives_longer_when_asked(server, box):
    first = box.post("/run", cmd="true").json
    assert first["created"] < first["expiresAt"]
    reply = box.post("/extend_sandbox", seconds=3600)
    assert reply.status == 200 and reply.json["expiresAt"] > first["expiresAt"] and reply.json["sandbox_id"]
    assert box.post("/extend_sandbox", seconds=10 ** 7).status == 400


def test_without_a_header_the_project_is_default(server):
    server.projects.add(("default", True))
    reply = server.post("/write_file", {"path": "/workspace/mine", "content": "x"})
    assert reply.status == 200
    assert server.run("default", "cat /workspace/mine") == "x"


def test_the_host_name_names_a_sandbox_by_id(server, box):
    box.sh("echo here > /workspace/mark")
    id = server.execute(box.project, "true").id
    headers = {"Host": f"8080-{id}.cove.localhost"}
    assert server.post("/run", {"cmd": "cat /workspace/mark"}, headers=headers).json["stdout"] == "here\n"
    other = server.add_key("other")
    reply = server.post("/run", {"cmd": "true"}, headers=headers, key=other)
    assert reply.status == 502, reply


@pytest.mark.parametrize("host", ["8080-" + "a" * 20, "8080-nosuchid", "8000-nosuchid", "sandbox-" + "a" * 20 + "-8080"])
def test_a_host_name_of_no_living_sandbox_is_never_another_ones(server, host):
    """With a key and without: one reply, and nothing runs in the project `default`."""
    server.projects.add(("default", True))
    assert server.post("/run", {"cmd": "rm -f /tmp/ran"}).status == 200
    for key in (True, False):
        reply = server.post("/run", {"cmd": "touch /tmp/ran"}, headers={"Host": f"{host}.cove.localhost"}, key=key)
        assert reply.status == 502 and reply.json["message"] == "The sandbox was not found", reply
        assert server.request("GET", "/health", headers={"Host": f"{host}.cove.localhost"}, key=key).status == 502
    assert server.post("/run", {"cmd": "ls /tmp/ran"}).json["code"] != 0


@pytest.mark.parametrize("name", ["a/b", "..", "x" * 129, "a\\b"])
def test_strange_projects_are_400(server, name):
    reply = server.post("/run", {"cmd": "true"}, headers={"X-Project-Id": name})
    assert reply.status == 400 and reply.json["error"].startswith("X-Project-Id")


# ------------------------------------------------------------------ /run_streaming

def test_lines_come_as_events_and_complete_ends_the_stream(box):
    events = box.run_streaming("echo one; echo two >&2; printf three")
    assert sorted((e.name, e.data["stream"], e.data["data"]) for e in events[:-1]) == [
        ("output", "stderr", "two"), ("output", "stdout", "one"), ("output", "stdout", "three")]
    assert events[-1].name == "complete" and events[-1].data == {"code": 0, "error": False}


def test_every_event_has_an_id_of_its_own(box):
    ids = [e.id for e in box.run_streaming("seq 50")]
    assert len(ids) == 51 and len(set(ids)) == 51


def test_a_failure_is_told_in_complete(box):
    assert box.run_streaming("exit 7")[-1].data == {"code": 7, "error": True}


def test_a_command_that_cannot_start_is_an_error_event(box):
    events = box.run_streaming("true", cwd="/no/such")
    assert [e.name for e in events] == ["error"] and "/no/such" in events[0].data["error"]


def test_output_arrives_while_the_command_runs(box):
    with box.stream("/run_streaming", {"cmd": "echo first; sleep 3; echo second"}) as s:
        began = time.monotonic()
        events = iter(s)
        assert next(events).data["data"] == "first" and time.monotonic() - began < 2
        assert next(events).data["data"] == "second" and time.monotonic() - began > 2


def test_both_streams_are_read_at_the_same_time(box):
    """300 KB on each, which no pipe holds: reading one to its end before the other would hang."""
    cmd = "(head -c 300000 /dev/zero | tr '\\0' a | fold -w 100) >&2 & head -c 300000 /dev/zero | tr '\\0' b | fold -w 100; wait"
    events = box.run_streaming(cmd)
    assert "".join(text(events)) == "b" * 300000 and "".join(text(events, "stderr")) == "a" * 300000


def test_very_long_lines_come_in_marked_pieces(box):
    events = box.run_streaming("head -c 100000 /dev/zero | tr '\\0' x; echo; echo short")
    lines = [e for e in events if e.name == "output"]
    assert "".join(e.data["data"] for e in lines[:-1]) == "x" * 100000
    assert [e.data.get("partial", False) for e in lines] == [True] * (len(lines) - 2) + [False, False]
    assert lines[-1].data["data"] == "short"


def test_what_is_not_utf8_is_made_valid(box):
    assert text(box.run_streaming("printf 'a\\377b\\n\\303\\244\\n'")) == ["a\ufffdb", "ä"]


def test_empty_lines_and_carriage_returns(box):
    assert text(box.run_streaming("printf 'a\\n\\nb\\r\\n'")) == ["a", "", "b"]


def test_a_client_that_leaves_takes_the_command_along(box):
    init = box.init
    with box.stream("/run_streaming", {"cmd": "echo go; sleep 1000"}) as s:
        next(iter(s))
        assert any("sleep 1000" in t for t in box.server.inside_titles(init))
    wait_for(lambda: not any("sleep 1000" in t for t in box.server.inside_titles(init)), 5, "its end")


def test_with_on_disconnect_keep_the_command_goes_on(make_server):
    box = Executor(make_server(on_disconnect="keep"), "p")
    with box.stream("/run_streaming", {"cmd": "echo go; sleep 2; echo done > /tmp/done"}) as s:
        next(iter(s))
    wait_for(lambda: "done" in box.sh("ls /tmp"), 8, "the command's end")


def test_the_deadline_of_a_stream_is_told(box):
    end = box.run_streaming("sleep 30", timeout=1)[-1]
    assert end.name == "complete" and end.data["code"] == 124 and end.data["cause"] == "deadline"


def test_the_deadline_holds_for_a_client_that_does_not_read(box):
    """The command waits for its reader, its deadline does not; what was written until then can still be read."""
    init = box.init
    with box.stream("/run_streaming", {"cmd": "exec yes 'a line of some length'", "timeout": 2}) as s:
        running = lambda: any("a line of some length" in t for t in box.server.inside_titles(init))
        wait_for(running, 5, "the command")
        wait_for(lambda: not running(), 6, "its end, with nobody reading")
        events = list(s)
    assert events[-1].name == "complete" and events[-1].data["code"] == 124 and events[-1].data["cause"] == "deadline"
    assert len(events) > 1000 and set(text(events)[:-1]) == {"a line of some length"}


def test_a_client_that_leaves_without_having_read_takes_the_command_along(box):
    init = box.init
    running = lambda: any("a line of some length" in t for t in box.server.inside_titles(init))
    with box.stream("/run_streaming", {"cmd": "exec yes 'a line of some length'"}):
        wait_for(running, 5, "the command")
    wait_for(lambda: not running(), 5, "its end")


def test_output_that_outweighs_its_bytes_arrives_whole(box):
    """Empty lines become events of seventy bytes each: nothing is lost or mixed up when they pile up."""
    with box.stream("/run_streaming", {"cmd": "yes '' | head -n 200000; seq 1000"}) as s:
        events = list(s)
    assert text(events) == [""] * 200000 + [str(n) for n in range(1, 1001)]
    assert [int(e.id) for e in events] == list(range(1, len(events) + 1)) and events[-1].name == "complete"


def test_a_line_is_at_the_client_within_ten_milliseconds(box):
    """Written to read, by the clocks of two processes on one machine: half of them below 10 ms."""
    cmd = "for i in $(seq 40); do date +%s%N; sleep 0.02; done"
    late = []
    with box.stream("/run_streaming", {"cmd": cmd}) as s:
        for e in s:
            if e.name == "output":
                late.append(time.time_ns() - int(e.data["data"]))
    assert len(late) == 40 and sorted(late)[20] < 10_000_000, sorted(late)


def test_the_head_of_a_stream_does_not_wait_for_its_first_line(box):
    began = time.monotonic()
    with box.stream("/run_streaming", {"cmd": "sleep 3"}) as s:
        assert s.status == 200 and time.monotonic() - began < 2


def test_silence_is_filled_with_comments(box):
    with box.stream("/run_streaming", {"cmd": "sleep 17"}) as s:
        events = list(s)
        assert s.comments >= 2 and events[-1].name == "complete"


def test_replies_are_json_for_every_byte(box):
    out = box.post("/run", cmd="for i in $(seq 1 255); do printf \"\\\\$(printf %o $i)\"; done")
    assert out.status == 200 and json.loads(out.body)
