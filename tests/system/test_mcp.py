"""The MCP server: both eras of the protocol, its tools, tenants, and what hostile or broken clients send."""
import contextlib
import json
import os
import queue
import socket
import subprocess
import threading

import pytest

from cove import wait_for
from mcp import META, MODERN, Mcp
from test_front_keys import COVE, cove, create


@pytest.fixture
def mcp(server):
    return Mcp(server)


@pytest.fixture
def old(server):
    client = Mcp(server)
    client.initialize()
    return client


# --- the protocol

def test_one_address_serves_all_revisions(server):
    discovered = Mcp(server).result("server/discover")
    assert discovered["supportedVersions"] == [MODERN, "2025-11-25", "2025-06-18", "2025-03-26"]
    for version in discovered["supportedVersions"][1:]:
        client = Mcp(server)
        assert client.initialize(version)["protocolVersion"] == version
        assert client.rpc("ping")["result"] == {}
        assert client.ok("run_command", command="echo hi")["stdout"] == "hi\n"
    assert Mcp(server).initialize("1999-01-01")["protocolVersion"] == "2025-11-25", "the server's newest is offered"


def test_a_session_works_in_every_worker(server, old):
    """Requests of one session reach several processes; more requests than one process answers by chance."""
    assert len(server.worker_pids) >= 1
    assert all(old.rpc("ping", id=i)["result"] == {} for i in range(20))


def test_an_ended_session_is_not_there(old):
    assert old.send(None, old.headers("", {}), "DELETE").status == 204
    assert old.post("ping").status == 404
    assert old.send(None, old.headers("", {}), "GET").status == 404


def test_a_session_of_another_tenant_is_not_there(server, old):
    other = Mcp(server, key=server.add_key("mcp-other"))
    other.session = old.session
    assert other.post("ping").status == 404
    assert other.send(None, other.headers("", {}), "DELETE").status == 404
    assert old.rpc("ping")["result"] == {}, "and it lives on"


@pytest.mark.parametrize("change", ["", "x", pytest.param("a" * 5000, id="long"), "2025-11-25.99999999999.abc." + "0" * 32])
def test_a_made_up_session_is_refused(server, change):
    client = Mcp(server)
    client.session = change or " "
    assert client.post("ping").status in (400, 404)


def test_batches_belong_to_one_revision(server):
    client = Mcp(server)
    client.initialize("2025-03-26")
    body = [client.message("ping", id=1), client.message("notifications/initialized", id=None), client.message("nonsense", id="b")]
    reply = client.send(body, client.headers("", {}))
    assert [(a["id"], "result" in a) for a in reply.json] == [(1, True), ("b", False)]
    assert client.send([client.message("notifications/initialized", id=None)], client.headers("", {})).status == 202
    assert client.send([], client.headers("", {})).json["error"]["code"] == -32600
    assert client.send([client.message("ping")] * 17, client.headers("", {})).json["error"]["code"] == -32600
    client.initialize("2025-11-25")
    assert client.send(body, client.headers("", {})).json["error"]["code"] == -32600


@pytest.mark.parametrize("body, code", ids=lambda value: str(value)[:40], argvalues=[
    ("", -32700), ("{", -32700), ("nonsense", -32700), ('"text"', -32700), ("[1]", -32600), ("{}", -32600),
    ('{"jsonrpc":"1.0","id":1,"method":"ping"}', -32600), ('{"jsonrpc":"2.0","id":1}', -32600),
    ('{"jsonrpc":"2.0","id":{},"method":"ping"}', -32600), ('{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600),
    ('{"jsonrpc":"2.0","id":1.5,"method":"ping"}', -32600), ('{"jsonrpc":"2.0","id":"%s","method":"ping"}' % ("x" * 200), -32600),
    ('{"jsonrpc":"2.0","id":1,"method":7}', -32600), ('{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}', -32602),
    ('{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":7}}', -32602),
    ("{" * 100, -32700), ('{"jsonrpc":"2.0","id":1,"method":"' + "m" * 200 + '"}', -32600),
])
def test_what_is_no_message_is_named(old, body, code):
    reply = old.send(body, old.headers("", {}))
    assert 200 <= reply.status < 500 and reply.json["error"]["code"] == code, reply


def test_unknown_methods_and_tools_are_errors(mcp, old):
    assert mcp.post("nonsense").status == 404 and mcp.rpc("nonsense")["error"]["code"] == -32601
    assert mcp.rpc("initialize")["error"]["code"] == -32601, "the new revision has no handshake"
    assert old.rpc("nonsense", id="text")["error"]["code"] == -32601
    assert old.rpc("server/discover")["error"]["code"] == -32601
    assert mcp.rpc("tools/call", {"name": "nonsense"})["error"]["code"] == -32602
    assert mcp.rpc("tools/call", {})["error"]["code"] == -32602
    assert old.post("notifications/nonsense", id=None).status == 202, "what is told and not asked has no answer"


def test_the_stateless_revision_says_what_it_is_and_has_no_methods_of_sessions(mcp):
    served = ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26"]
    assert mcp.result("server/discover")["supportedVersions"] == served
    for method in ("server/discover", "tools/list", "resources/list", "resources/templates/list", "prompts/list"):
        result = mcp.result(method)
        assert result["resultType"] == "complete" and result["ttlMs"] >= 0 and result["cacheScope"] in ("public", "private"), result
    assert mcp.result("prompts/list")["prompts"] == []
    for method in ("initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"):
        assert mcp.post(method).status == 404 and mcp.rpc(method)["error"]["code"] == -32601, method
    other = mcp.post("tools/list", {"_meta": {META + "protocolVersion": "2031-01-01"}}, headers={"MCP-Protocol-Version": "2031-01-01"})
    assert other.status == 400 and other.json["error"]["code"] == -32022, other
    assert other.json["error"]["data"] == {"supported": served, "requested": "2031-01-01"}
    bare = mcp.message("tools/list")
    for name in list(bare["params"]["_meta"]):
        without = {**bare, "params": {"_meta": {k: v for k, v in bare["params"]["_meta"].items() if k != name}}}
        reply = mcp.send(without, mcp.headers("tools/list", {}))
        assert reply.status == 400 and reply.json["error"]["code"] in (-32602, -32020), (name, reply)


@pytest.mark.parametrize("headers, code", [
    ({"MCP-Protocol-Version": "2025-11-25"}, -32020), ({"MCP-Protocol-Version": ""}, -32020), ({"Mcp-Method": ""}, -32020),
    ({"Mcp-Method": "tools/list"}, -32020), ({"Mcp-Name": "read_file"}, -32020), ({"Mcp-Name": "=?base64?!!?="}, -32020),
])
def test_headers_say_what_the_body_says(mcp, headers, code):
    reply = mcp.post("tools/call", {"name": "sandbox_info"}, headers=headers)
    assert reply.status == 400 and reply.json["error"]["code"] == code, reply


def test_a_name_in_a_header_may_be_wrapped_in_base64(mcp):
    reply = mcp.post("tools/call", {"name": "sandbox_info"}, headers={"Mcp-Name": "=?base64?c2FuZGJveF9pbmZv?="})
    assert reply.status == 200 and "result" in reply.json


@pytest.mark.parametrize("origin, allowed", [
    ("http://localhost", True), ("http://localhost:5173", True), ("http://127.0.0.1:80", True), ("http://[::1]:9", True),
    ("http://evil.example", False), ("http://localhost.evil.example", False), ("http://localhost:80.evil.example", False),
    ("https://localhost", False), ("null", False),
])
def test_pages_of_other_sites_are_refused_whatever_cors_says(mcp, origin, allowed):
    reply = mcp.post("tools/list", headers={"Origin": origin})
    assert (reply.status == 200) == allowed and (allowed or reply.status == 403), reply


def test_an_origin_without_a_star_is_meant_whole(make_server):
    server = make_server(mcp_origins="https://app.example http://localhost:*")
    message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}}
    status = lambda origin: server.post("/mcp", message, headers={"Origin": origin}).status
    assert [status(o) for o in ("https://app.example", "http://localhost:1")] == [200, 200]
    for other in ("https://app.example.evil.example", "https://app.exampl", "https://app.example:8443", "http://app.example", "https://"):
        assert status(other) == 403, other


def test_a_message_that_is_too_large_is_413(mcp):
    reply = mcp.post("tools/call", {"name": "write_file", "arguments": {"path": "/workspace/x", "content": "x" * 9_000_000}})
    assert reply.status == 413 and b"error" in reply.body


def test_a_page_may_read_the_id_of_its_session(server):
    message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}}
    reply = server.post("/mcp", message, headers={"Origin": "http://localhost:3000"})
    assert "Mcp-Session-Id" in reply.headers["Access-Control-Expose-Headers"] and reply.headers["Mcp-Session-Id"]


# --- tools

def test_every_tool_has_a_schema_a_title_and_hints(mcp):
    tools = {t["name"]: t for t in mcp.result("tools/list")["tools"]}
    assert len(tools) == 16
    for name, tool in tools.items():
        assert tool["inputSchema"]["additionalProperties"] is False and tool["outputSchema"]["type"] == "object"
        for schema in (tool["inputSchema"], tool["outputSchema"]):
            assert all(p.get("description") for p in schema["properties"].values()), (name, schema)
        assert set(tool["annotations"]) == {"title", "readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"}
    assert tools["read_file"]["annotations"]["readOnlyHint"] and tools["delete_file"]["annotations"]["destructiveHint"]


def test_output_comes_as_progress_while_the_command_runs(mcp):
    params = {"name": "run_command", "arguments": {"command": "echo é1; read x < /workspace/go; echo 2"}, "_meta": {"progressToken": "t"}}
    mcp.ok("run_command", command="mkfifo /workspace/go")
    with mcp.stream("tools/call", params) as stream:
        events = iter(stream)
        first = next(events).data
        assert first["method"] == "notifications/progress" and first["params"]["message"] == "é1\n"
        assert first["params"]["progressToken"] == "t"
        mcp.ok("run_command", command="echo > /workspace/go")
        rest = [e.data for e in events]
    assert rest[0]["params"]["progress"] > first["params"]["progress"]
    assert rest[-1]["result"]["structuredContent"]["stdout"] == "é1\n2\n"


def test_a_command_tells_how_it_ended(mcp):
    ran = mcp.ok("run_command", command="echo $X; pwd; echo no >&2; exit 7", env={"X": "y"}, cwd="/tmp")
    assert (ran["exit_code"], ran["ended_by"], ran["stdout"], ran["stderr"]) == (7, "own", "y\n/tmp\n", "no\n")
    slow = mcp.ok("run_command", command="sleep 60", timeout_seconds=1)
    assert (slow["exit_code"], slow["ended_by"]) == (124, "deadline") and slow["reason"]


def test_long_output_keeps_its_beginning_and_its_end(mcp):
    ran = mcp.ok("run_command", command="seq 1 100000", max_output_bytes=2000)
    assert ran["stdout"].startswith("1\n2\n") and ran["stdout"].endswith("\n100000\n")
    assert ran["omitted_bytes"] > 500000 and len(ran["stdout"]) < 2200 and "bytes left out" in ran["stdout"]


def test_a_refusal_by_policy_says_rule_reason_and_what_to_do(mcp):
    for tool in ("run_command", "start_process"):
        text = mcp.fails(tool, command="rm -rf /")
        assert "rule: rm-root" in text and "reason: " in text and "What to do instead" in text


def test_a_client_that_leaves_takes_its_command_along(mcp):
    with mcp.stream("tools/call", {"name": "run_command", "arguments": {"command": "touch /workspace/on; sleep 4321"}}):
        wait_for(lambda: mcp.ok("find_files", name="on")["files"], what="the command's start")
    wait_for(lambda: mcp.ok("run_command", command="pgrep -x sleep")["exit_code"] == 1, what="the command's end")


def start_and_lose(client, command, id):
    """Starts a call with progress, reads its first event, and breaks the connection. Returns that event."""
    params = {"name": "run_command", "arguments": {"command": command}, "_meta": {"progressToken": "p"}}
    with client.stream("tools/call", params, id=id) as stream:
        return next(iter(stream))


@pytest.mark.parametrize("version", ["2025-11-25", "2025-06-18", "2025-03-26"])
def test_a_broken_stream_goes_on_where_it_broke(server, version):
    """The command does not notice, nothing is told twice, and any worker process can send on."""
    client = Mcp(server, sandbox="mcp-resume")
    client.initialize(version)
    client.ok("run_command", command="rm -f /workspace/go /workspace/on; mkfifo /workspace/go /workspace/on")  # one each: a FIFO that is opened again may still have its last writer
    first = start_and_lose(client, "echo é1; read x < /workspace/go; echo 2; read x < /workspace/on; echo 3", "lost")
    assert first.data["params"]["message"] == "é1\n" and first.id
    client.ok("run_command", command="echo > /workspace/go")
    with client.stream(after=first.id) as stream:
        second = next(iter(stream))
        assert second.data["params"] == {**second.data["params"], "progressToken": "p", "message": "2\n"}
    client.ok("run_command", command="echo > /workspace/on")
    for after, told in ((second.id, ["3\n"]), (first.id, ["2\n", "3\n"])):  # also when all of it is over, and more than once
        with client.stream(after=after) as stream:
            events = [e.data for e in stream]
        assert [e["params"]["message"] for e in events[:-1]] == told
        assert events[-1]["id"] == "lost" and events[-1]["result"]["structuredContent"]["stdout"] == "é1\n2\n3\n"


def test_a_stream_has_an_id_before_anything_is_told(old):
    old.ok("run_command", command="mkfifo /workspace/go")
    with old.stream("tools/call", {"name": "run_command", "arguments": {"command": "read x < /workspace/go; echo done"}}, id=8) as stream:
        line = stream.response.readline()
        while not line.startswith(b"id: "):
            line = stream.response.readline()
    old.ok("run_command", command="echo > /workspace/go")
    with old.stream(after=line[4:].decode().strip()) as stream:
        assert [e.data["result"]["structuredContent"]["stdout"] for e in stream] == ["done\n"]


def test_a_broken_stream_is_its_sessions_own(server, old):
    first = start_and_lose(old, "echo secret; sleep 4321", 1)
    same_tenant, stranger = Mcp(server), Mcp(server, key=server.add_key("mcp-resume-other"))
    for other in (same_tenant, stranger):
        other.initialize()
        assert other.send(None, {**other.headers("", {}), "Last-Event-ID": first.id}, "GET").status == 400
    for wrong in ("x", "x.1", ".", first.id.split(".")[0], first.id + "x", "a" * 3000):
        assert old.send(None, {**old.headers("", {}), "Last-Event-ID": wrong}, "GET").status == 400
    old.send(None, old.headers("", {}), "DELETE")


def test_a_lost_call_ends_when_it_is_cancelled_or_its_session_ends(server, old):
    """Nobody has to wait for the time after which a lost command is given up."""
    watch = Mcp(server)
    for number, end in ((4321, lambda: old.post("notifications/cancelled", {"requestId": 4321}, id=None)),
                        (4322, lambda: old.send(None, old.headers("", {}), "DELETE"))):
        first = start_and_lose(old, f"echo on; sleep {number}", number)
        assert watch.ok("run_command", command=f"pgrep -f 'sleep {number}$'")["exit_code"] == 0, "it goes on without its client"
        assert end().status < 300
        wait_for(lambda n=number: watch.ok("run_command", command=f"pgrep -x sleep -a | grep {n}")["exit_code"] == 1, what="the command's end")
        assert first.id


@pytest.mark.skipif(os.environ.get("COVE_TEST_LONG") != "yes", reason="a lost command is given up after 30 s")
def test_a_lost_call_ends_when_nobody_comes_back(server, old):
    start_and_lose(old, "echo on; sleep 4321", 1)
    wait_for(lambda: Mcp(server).ok("run_command", command="pgrep -x sleep")["exit_code"] == 1, seconds=90, what="the command's end")


def test_a_cancelled_call_ends_its_command(old):
    """The cancellation may reach another worker process than the call."""
    with old.stream("tools/call", {"name": "run_command", "arguments": {"command": "touch /workspace/on; sleep 4321"}}, id="call-1") as stream:
        wait_for(lambda: old.ok("find_files", name="on")["files"], what="the command's start")
        assert old.post("notifications/cancelled", {"requestId": "call-2"}, id=None).status == 202
        assert old.post("notifications/cancelled", {"requestId": "call-1"}, id=None).status == 202
        assert list(stream) == [], "the stream ends without an answer"
    wait_for(lambda: old.ok("run_command", command="pgrep -x sleep")["exit_code"] == 1, what="the command's end")


def test_a_cancellation_of_another_session_ends_nothing(server, old):
    other = Mcp(server)
    other.initialize()
    old.ok("run_command", command="mkfifo /workspace/go")
    with old.stream("tools/call", {"name": "run_command", "arguments": {"command": "read x < /workspace/go; echo done"}}, id=5) as stream:
        other.post("notifications/cancelled", {"requestId": 5}, id=None)
        old.ok("run_command", command="sleep 0.6")  # a call looks for cancellations four times a second
        old.ok("run_command", command="echo > /workspace/go", timeout_seconds=20)
        answers = [e.data for e in stream]
    assert "result" in answers[-1], "it went on to its own end"


def test_processes_are_started_listed_read_by_offset_and_killed(mcp):
    id = mcp.ok("start_process", command="echo one; sleep 4321; echo never")["process_id"]
    log = wait_for(lambda: (r := mcp.ok("read_process_log", process_id=id))["output"] and r, what="its output")
    assert log["output"] == "one\n" and log["status"] == "running"
    again = mcp.ok("read_process_log", process_id=id, offset=log["next_offset"])
    assert again["output"] == "" and again["next_offset"] == log["next_offset"]
    assert [p["status"] for p in mcp.ok("list_processes")["processes"] if p["process_id"] == id] == ["running"]
    assert mcp.ok("kill_process", process_id=id)["status"] == "killed"
    assert mcp.ok("read_process_log", process_id=id)["status"] == "killed"
    assert "list_processes" in mcp.fails("kill_process", process_id="nonsense")
    assert "offset" in mcp.fails("read_process_log", process_id=id, offset="x")


def test_files_are_written_read_by_lines_edited_moved_and_deleted(mcp):
    mcp.ok("write_file", path="/workspace/d/a.txt", content="one\ntwo\nthree\n")
    part = mcp.ok("read_file", path="/workspace/d/a.txt", start_line=2, line_count=1)
    assert (part["text"], part["next_line"], part["size_bytes"]) == ("two\n", 3, 14)
    assert "next_line" not in mcp.ok("read_file", path="/workspace/d/a.txt", start_line=3)
    assert mcp.ok("read_file", path="/workspace/d/a.txt", start_line=9)["text"] == ""
    assert mcp.ok("edit_file", path="/workspace/d/a.txt", old_text="two\nth", new_text="2\nth")["first_line"] == 2
    assert mcp.ok("read_file", path="/workspace/d/a.txt")["text"] == "one\n2\nthree\n"
    assert [e["name"] for e in mcp.ok("list_files", path="/workspace/d")["entries"]] == ["a.txt"]
    mcp.ok("write_file", path="/workspace/d/b.txt", content="")
    assert "overwrite" in mcp.fails("move_file", path="/workspace/d/a.txt", to="/workspace/d/b.txt")
    mcp.ok("move_file", path="/workspace/d/a.txt", to="/workspace/d/b.txt", overwrite=True)
    assert "recursive" in mcp.fails("delete_file", path="/workspace/d")
    mcp.ok("delete_file", path="/workspace/d", recursive=True)
    assert "No such file" in mcp.fails("read_file", path="/workspace/d/b.txt")


def test_an_edit_changes_exactly_one_place_or_nothing(mcp):
    mcp.ok("write_file", path="/workspace/e", content="a a b")
    assert "2 times" in mcp.fails("edit_file", path="/workspace/e", old_text="a", new_text="c")
    assert "is not in" in mcp.fails("edit_file", path="/workspace/e", old_text="A", new_text="c")
    assert "empty" in mcp.fails("edit_file", path="/workspace/e", old_text="", new_text="c")
    assert mcp.ok("read_file", path="/workspace/e")["text"] == "a a b"
    assert mcp.ok("edit_file", path="/workspace/e", old_text="a", new_text="cc", replace_all=True)["replacements"] == 2
    assert mcp.ok("read_file", path="/workspace/e")["text"] == "cc cc b"


def test_what_is_no_text_comes_as_base64_and_what_is_large_in_parts(mcp):
    mcp.ok("run_command", command=r"printf '\377\000x' > /workspace/bin; seq 1 50000 > /workspace/big; printf 'é%.0s' $(seq 1 9000) > /workspace/line")
    binary = mcp.ok("read_file", path="/workspace/bin")
    assert (binary["encoding"], binary["text"]) == ("base64", "/wB4")
    part = mcp.ok("read_file", path="/workspace/big", max_bytes=1000)
    assert part["text"].endswith("\n") and len(part["text"]) <= 1000
    assert mcp.ok("read_file", path="/workspace/big", start_line=part["next_line"], line_count=1)["text"] == f"{part['next_line']}\n"
    line = mcp.ok("read_file", path="/workspace/line", max_bytes=1001)
    assert line["encoding"] == "utf-8" and set(line["text"]) == {"é"}, "no half of a character"
    assert "/dev/zero" in mcp.fails("read_file", path="/dev/zero")


def test_searches_are_bounded_and_name_what_they_found(mcp):
    mcp.ok("run_command", command="mkdir -p /workspace/s; for i in $(seq 1 200); do echo needle $i > /workspace/s/$i.txt; done; ln -s / /workspace/s/root")
    found = mcp.ok("search_text", pattern="needle 7$", path="/workspace/s")
    assert found == {"matches": [{"path": "/workspace/s/7.txt", "line": 1, "text": "needle 7"}], "truncated": False}
    some = mcp.ok("search_text", pattern="NEEDLE", ignore_case=True, fixed_string=True, include="1*.txt", path="/workspace/s", max_results=10)
    assert len(some["matches"]) == 10 and some["truncated"]
    assert mcp.ok("search_text", pattern="--version", path="/workspace/s")["matches"] == [], "a pattern is no option"
    assert mcp.ok("search_text", pattern="rm -rf /", fixed_string=True, path="/workspace/s")["matches"] == [], "nor a command"
    assert "nmatched" in mcp.fails("search_text", pattern="(", path="/workspace/s")
    names = mcp.ok("find_files", name="19*.txt", path="/workspace/s")
    assert {f["path"] for f in names["files"]} == {f"/workspace/s/{n}.txt" for n in [19, *range(190, 200)]}
    assert "path" in mcp.fails("find_files", name="x", path="-delete")


@pytest.mark.parametrize("tool, arguments, says", [
    ("run_command", {}, "command"), ("run_command", {"command": 7}, "command"), ("run_command", {"command": ""}, "command"),
    ("run_command", {"command": "x" * 300000}, "command"), ("run_command", {"command": "a", "cwd": "rel"}, "cwd"),
    ("run_command", {"command": "a", "env": {"A B": "c"}}, "env"), ("run_command", {"command": "a", "timeout_seconds": 0}, "timeout_seconds"),
    ("run_command", {"command": "a", "max_output_bytes": 10 ** 9}, "max_output_bytes"), ("run_command", {"cmd": "a"}, "cmd"),
    ("read_file", {"path": ""}, ""), ("read_file", {"path": "/workspace"}, "workspace"), ("read_file", {"path": "a\0b"}, "path"),
    ("read_file", {"path": "/" + "x" * 5000}, "path"), ("write_file", {"path": "/proc/x", "content": ""}, "/proc/x"),
    ("write_file", {"path": "/workspace"}, "content"), ("list_files", {"path": "/nonsense"}, "nonsense"),
    ("expose_port", {"port": 0}, "port"), ("expose_port", {"port": 70000}, "port"), ("expose_port", {"port": 80, "access": "x"}, "access"),
    ("search_text", {"pattern": ""}, "pattern"), ("search_text", {"pattern": "x" * 2000}, "pattern"),
    ("kill_process", {"process_id": "x" * 300}, "process_id"), ("sandbox_info", {"x": 1}, "x"),
])
def test_bad_arguments_are_tool_errors_that_name_the_field(mcp, tool, arguments, says):
    assert says in mcp.fails(tool, **arguments)


def test_a_port_is_exposed_by_a_link_or_to_everybody(mcp):
    assert "/.cove/open?token=" in mcp.ok("expose_port", port=8000)["url"]
    public = mcp.ok("expose_port", port=8000, access="public")
    assert public["access"] == "public" and public["url"].startswith("http://8000-")


# --- resources

def test_files_are_resources(mcp, old):
    mcp.ok("write_file", path="/workspace/a b.txt", content="text")
    mcp.ok("run_command", command=r"printf '\377' > /workspace/bin; truncate -s 2M /workspace/large")
    listed = {r["uri"] for r in mcp.result("resources/list")["resources"]}
    assert {"cove://sandbox", "file:///workspace/a%20b.txt", "file:///workspace/bin"} <= listed
    assert mcp.result("resources/templates/list")["resourceTemplates"][0]["uriTemplate"] == "file:///{+path}"
    assert mcp.result("resources/read", {"uri": "file:///workspace/a%20b.txt"})["contents"][0]["text"] == "text"
    assert mcp.result("resources/read", {"uri": "file:///workspace/bin"})["contents"][0]["blob"] == "/w=="
    assert json.loads(mcp.result("resources/read", {"uri": "cove://sandbox"})["contents"][0]["text"])["sandbox_id"]
    for uri in ("file:///workspace/none", "http://x", "file://host/x", "file:///%zz", "file:///workspace/large", "file:///workspace", ""):
        assert mcp.rpc("resources/read", {"uri": uri})["error"]["data"]["uri"] == uri
        assert old.rpc("resources/read", {"uri": uri})["error"]["code"] == -32002


def test_changes_of_files_are_told_to_who_listens(mcp):
    uris = ["file:///workspace/watched", "file:///workspace/dir"]
    mcp.ok("make_directory", path="/workspace/dir")
    with mcp.stream("subscriptions/listen", {"notifications": {"toolsListChanged": True, "resourceSubscriptions": uris}}, id=9) as stream:
        events = iter(stream)
        first = next(events).data
        assert first["method"] == "notifications/subscriptions/acknowledged"
        assert first["params"]["notifications"] == {"resourceSubscriptions": uris}
        mcp.ok("write_file", path="/workspace/other", content="")
        for path, uri in (("/workspace/watched", uris[0]), ("/workspace/dir/x", uris[1])):
            mcp.ok("write_file", path=path, content="new")
            told = next(events).data
            assert told["method"] == "notifications/resources/updated" and told["params"]["uri"] == uri
            assert told["params"]["_meta"][META + "subscriptionId"] == 9
    for wrong in ({}, {"notifications": 7}, {"notifications": {"resourceSubscriptions": ["x"]}},
                  {"notifications": {"resourceSubscriptions": ["file:///a"] * 40}}):
        assert mcp.rpc("subscriptions/listen", wrong)["error"]["code"] == -32602


def test_a_sessions_stream_tells_of_subscribed_files(old):
    with old.stream() as stream:
        assert stream.status == 200 and stream.headers["Content-Type"] == "text/event-stream"
        assert old.rpc("resources/subscribe", {"uri": "file:///workspace/w"})["result"] == {}
        # The stream learns of the subscription a moment later, so the file is written until it does.
        writer = "while test ! -e /workspace/stop; do date > /workspace/w; sleep 0.1; done"
        old.ok("start_process", command=writer)
        assert next(iter(stream)).data["params"]["uri"] == "file:///workspace/w"
        old.ok("write_file", path="/workspace/stop", content="")
        assert old.rpc("resources/unsubscribe", {"uri": "file:///workspace/w"})["result"] == {}
    assert old.rpc("resources/subscribe", {"uri": "http://x"})["error"]["code"] == -32602


def test_a_sessions_stream_that_goes_on_tells_of_what_may_have_changed_meanwhile(old):
    assert old.rpc("resources/subscribe", {"uri": "file:///workspace/w"})["result"] == {}
    old.ok("write_file", path="/workspace/w", content="written while nobody listened")
    with old.stream(after="watch") as stream:
        event = next(iter(stream))
    assert event.data["params"]["uri"] == "file:///workspace/w" and event.id == "watch"


# --- who may

def test_a_tenant_reaches_no_sandbox_of_another(server, mcp):
    mcp.ok("write_file", path="/workspace/secret", content="tenant-secret")
    sandbox = mcp.ok("sandbox_info")["sandbox_id"]
    key = server.add_key("mcp-stranger")
    for path in (f"/mcp/{sandbox}", f"/mcp/sandbox-{sandbox}", f"/mcp?sandbox={sandbox}"):
        other = Mcp(server, key=key, path=path)
        assert "no such sandbox" in other.fails("read_file", path="/workspace/secret")
        assert "error" in other.rpc("resources/read", {"uri": "file:///workspace/secret"})
        assert "error" in other.rpc("subscriptions/listen", {"notifications": {"resourceSubscriptions": ["file:///workspace/secret"]}})
    own = Mcp(server, key=key)
    assert "No such file" in own.fails("read_file", path="/workspace/secret"), "the same name is another sandbox"


def test_a_sandboxs_token_opens_that_sandbox_alone(server, mcp):
    sandbox = mcp.ok("sandbox_info")["sandbox_id"]
    token = cove(server, "token", sandbox).stdout.strip()
    assert Mcp(server, key=token, path=f"/mcp/{sandbox}").ok("run_command", command="echo in")["stdout"] == "in\n"
    assert Mcp(server, key=token, path="/mcp").post("tools/list").status == 401
    another = Mcp(server, sandbox="mcp-another").ok("sandbox_info")["sandbox_id"]
    for other in ("a" * 20, another, f"{another}?sandbox={sandbox}"):
        assert Mcp(server, key=token, path=f"/mcp/{other}").post("tools/list").status == 401, other
    assert Mcp(server, key=token, path=f"/mcp/{sandbox}?sandbox=mcp-another").ok("sandbox_info")["sandbox_id"] == sandbox
    assert Mcp(server, key=None, path=f"/mcp/{sandbox}").post("tools/list").status == 401


def test_a_key_for_other_dialects_is_refused(server):
    key = create(server, "default", "--dialects", "execute")
    wait_for(lambda: server.cleanup("-", key=key).status == 200, what="the new key")
    assert Mcp(server, key=key).post("tools/list").status == 403


def test_an_id_that_does_not_live_is_not_made(server):
    client = Mcp(server, path=f"/mcp/{'b' * 20}")
    assert "no such sandbox" in client.fails("sandbox_info")


def test_the_port_of_a_sandbox_that_the_agent_api_did_not_make_is_its_own(server, mcp):
    sandbox = mcp.ok("sandbox_info")["sandbox_id"]
    reply = Mcp(server, path="/", host=f"6060-{sandbox}.cove.localhost").post("tools/list")
    assert reply.status == 502 and b"port is not open" in reply.body



def test_an_agents_sandbox_has_its_server_on_port_6060(server):
    """mcp_url of the agent API: the sandbox's own host name, by key or by the sandbox's token."""
    made = server.post("/api/v1/agent/sandboxes/create", {"user_id": "mcp"}).json["data"]
    sandbox = made["provider_sandbox_id"]
    host = f"6060-{sandbox}.cove.localhost"
    assert made["mcp_url"].split("//")[1].startswith(f"6060-{sandbox}.")
    try:
        for key in (True, cove(server, "token", sandbox).stdout.strip()):
            for path in ("/", "/mcp"):
                assert Mcp(server, key=key, path=path, host=host).ok("sandbox_info")["sandbox_id"] == sandbox
        assert Mcp(server, key=None, path="/", host=host).post("tools/list").status == 401
        stranger = Mcp(server, key=server.add_key("mcp-stranger-2"), path="/", host=host)
        assert stranger.post("tools/list").status == 502, "what is not yours is not there"
    finally:
        server.request("DELETE", f"/api/v1/agent/sandboxes/{sandbox}")


def test_another_port_is_where_the_server_answers_and_6060_is_the_sandboxs_own(make_server):
    server = make_server(agent_mcp_port=7070)
    made = server.post("/api/v1/agent/sandboxes/create", {"user_id": "mcp"}).json["data"]
    sandbox = made["provider_sandbox_id"]
    assert made["mcp_url"].split("//")[1].startswith(f"7070-{sandbox}.")
    assert Mcp(server, path="/", host=f"7070-{sandbox}.cove.localhost").ok("sandbox_info")["sandbox_id"] == sandbox
    reply = Mcp(server, path="/", host=f"6060-{sandbox}.cove.localhost").post("tools/list")
    assert reply.status == 502 and b"port is not open" in reply.body, reply


# --- cove mcp: standard input and output

class Stdio:
    def __init__(self, server, *args, key=None, url=None):
        env = {**os.environ, "COVE_URL": url or f"http://127.0.0.1:{server.http}", "COVE_KEY": key or server.key}
        self.process = subprocess.Popen([COVE, "mcp", *args], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.lines = queue.Queue()
        threading.Thread(target=lambda: [self.lines.put(line) for line in self.process.stdout], daemon=True).start()

    def send(self, method, params=None, id=1):
        message = {"jsonrpc": "2.0", "method": method, "params": params or {}, **({"id": id} if id is not None else {})}
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()

    def receive(self):
        return json.loads(self.lines.get(timeout=60))  # an answer that never comes fails the test

    def ask(self, method, params=None, id=1):
        self.send(method, params, id)
        answer = self.receive()
        assert answer["id"] == id, answer
        return answer

    def close(self):
        self.process.stdin.close()
        assert self.process.wait(timeout=20) == 0


INITIALIZE = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


@pytest.fixture
def stdio(server, mcp):
    client = Stdio(server, "--sandbox", mcp.sandbox)
    assert "result" in client.ask("initialize", INITIALIZE)
    client.send("notifications/initialized", id=None)
    yield client
    client.close()


def test_cove_mcp_forwards_calls_progress_and_cancellations(mcp, stdio):
    stdio.send("tools/call", {"name": "run_command", "arguments": {"command": "echo one"}, "_meta": {"progressToken": 7}}, id="a")
    assert stdio.receive()["params"] == {"progressToken": 7, "progress": 4, "message": "one\n"}
    assert stdio.receive()["result"]["structuredContent"]["stdout"] == "one\n"
    stdio.send("tools/call", {"name": "run_command", "arguments": {"command": "touch /workspace/on; sleep 4321"}}, id="b")
    wait_for(lambda: mcp.ok("find_files", name="on")["files"], what="the command's start")
    stdio.send("notifications/cancelled", {"requestId": "b"}, id=None)
    wait_for(lambda: mcp.ok("run_command", command="pgrep -x sleep")["exit_code"] == 1, what="the command's end")


def test_cove_mcp_forwards_the_stateless_revision_too(mcp, stdio):
    meta = {"_meta": {META + "protocolVersion": MODERN, META + "clientCapabilities": {}}}
    assert "supportedVersions" in stdio.ask("server/discover", meta, id=3)["result"]
    assert "result" in stdio.ask("tools/call", {"name": "sandbox_info", **meta}, id=4)


class Breakable:
    """A way to the server whose connections break on demand."""

    def __init__(self, server):
        self.server, self.ways = server, []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                near = self.listener.accept()[0]
                far = socket.create_connection(("127.0.0.1", self.server.http))
                self.ways += [near, far]
                for a, b in ((near, far), (far, near)):
                    threading.Thread(target=self.move, args=(a, b), daemon=True).start()

    def move(self, a, b):
        with contextlib.suppress(OSError):
            while piece := a.recv(65536):
                b.sendall(piece)
        for s in (a, b):
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)

    def cut(self):
        for s in self.ways:
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)
        self.ways.clear()

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.cut()


@pytest.fixture
def breakable(server, mcp):
    way = Breakable(server)
    client = Stdio(server, "--sandbox", mcp.sandbox, url=way.url)
    assert "result" in client.ask("initialize", INITIALIZE)
    yield way, client
    client.close()
    way.close()


WAITS = {"name": "run_command", "arguments": {"command": "rm -f /workspace/go; echo one; until test -e /workspace/go; do sleep 0.1; done; echo two"}}


def test_cove_mcp_picks_up_a_call_whose_connection_broke(mcp, breakable):
    way, client = breakable
    client.send("tools/call", {**WAITS, "_meta": {"progressToken": 7}}, id="a")
    assert client.receive()["params"]["message"] == "one\n"
    for _ in range(3):
        way.cut()
        assert client.ask("ping", id="alive")["result"] == {}
    mcp.ok("run_command", command="touch /workspace/go")
    told = [client.receive()]
    while "id" not in told[-1]:
        told.append(client.receive())
    assert [message["params"]["message"] for message in told[:-1]] == ["two\n"], "nothing is told twice"
    assert told[-1]["id"] == "a" and told[-1]["result"]["structuredContent"]["stdout"] == "one\ntwo\n"


def test_cove_mcp_answers_a_call_that_cannot_be_picked_up(mcp, breakable):
    """Also one that has told of progress: a client that gets no answer waits for ever."""
    way, client = breakable
    meta = {META + "protocolVersion": MODERN, META + "clientCapabilities": {}, "progressToken": 8}
    client.send("tools/call", {**WAITS, "_meta": meta}, id="b")
    assert client.receive()["params"]["message"] == "one\n"
    way.cut()
    answer = client.receive()
    assert answer["id"] == "b" and answer["error"]["message"]
    wait_for(lambda: mcp.ok("run_command", command="pgrep -f workspace/g[o]")["exit_code"] == 1, what="the command's end")


def test_cove_mcp_says_nothing_more_of_a_cancelled_call(mcp, stdio):
    stdio.send("tools/call", {**WAITS, "_meta": {"progressToken": 9}}, id="c")
    assert stdio.receive()["params"]["message"] == "one\n"
    stdio.send("notifications/cancelled", {"requestId": "c"}, id=None)
    wait_for(lambda: mcp.ok("run_command", command="pgrep -f workspace/g[o]")["exit_code"] == 1, what="the command's end")
    assert stdio.ask("ping", id="next")["result"] == {}


@pytest.mark.parametrize("text", ["nonsense", "{}", "[1]", '{"jsonrpc":"2.0"}', pytest.param('"' + "x" * 100000 + '"', id="long")])
def test_cove_mcp_lives_on_after_input_that_is_no_message(stdio, text):
    stdio.process.stdin.write(text + "\n\n")
    assert stdio.ask("ping", id="after")["result"] == {}


def test_cove_mcp_says_why_a_server_does_not_answer(server):
    for client, says in ((Stdio(server, key="e2b_" + "0" * 40), "401"), (Stdio(server, url="http://127.0.0.1:9"), "connect")):
        assert says in client.ask("initialize", INITIALIZE)["error"]["message"]
        client.close()
