"""The agent dialect: every endpoint with what its document promises, bad input, and another tenant's sandboxes."""
import base64
import os
import re
import signal
import subprocess

import pytest

from agent import BASE, Agent, form, is_error, routes
from cove import TOP, alive, read, wait_for

NOBODY = "sandbox-" + "a" * 20


@pytest.fixture
def agent(server):
    client = Agent(server)
    yield client
    client.done()


@pytest.fixture
def sandbox(agent):
    return agent.create(user_id="user-123")


# ---------------------------------------------------------------- the document itself

def test_the_documents_quick_test_runs_as_it_stands(agent):
    """Word for word but for the port, with $TOKEN set."""
    script = r"""set -e
SANDBOX=$(curl -s -X POST http://localhost:8000/api/v1/agent/sandboxes/create \
  -H "Authorization: Bearer $TOKEN" \
  -H "Content-Type: application/json" \
  -d '{"user_id":"test-user"}' | jq -r '.data.sandbox_id')

# Run command
curl -X POST http://localhost:8000/api/v1/agent/sandboxes/run-cmd \
  -H "Authorization: Bearer $TOKEN" \
  -H "Content-Type: application/json" \
  -d "{\"sandbox_id\":\"$SANDBOX\",\"command\":\"echo Hello World\"}"

# Write file
curl -X POST http://localhost:8000/api/v1/agent/sandboxes/write-file \
  -H "Authorization: Bearer $TOKEN" \
  -H "Content-Type: application/json" \
  -d "{\"sandbox_id\":\"$SANDBOX\",\"file_path\":\"/workspace/test.txt\",\"content\":\"Test content\"}"

# Delete sandbox
curl -X DELETE "http://localhost:8000/api/v1/agent/sandboxes/$SANDBOX" \
  -H "Authorization: Bearer $TOKEN"
"""
    script = script.replace(":8000/", f":{agent.server.http}/")
    done = subprocess.run(["bash", "-c", script], env={**os.environ, "TOKEN": agent.server.key}, text=True, timeout=60,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    assert re.sub(r"\s", "", done.stdout) == re.sub(r"\s", "", """
        {"code":200,"data":{"success":true,"output":"HelloWorld\\n","message":"Command executed successfully","exit_code":0}}
        {"code":200,"data":{"success":true,"message":"File written to /workspace/test.txt"}}
        {"code":200,"data":{"success":true,"message":"Sandbox deleted successfully"}}""")


# ---------------------------------------------------------------- lifecycle

def test_create_tells_both_ids_and_urls(agent):
    data = agent.data(agent.post("/create", user_id="user-123", sandbox_template_id="default"))
    agent.made.append(data["sandbox_id"])
    assert re.fullmatch(r"sandbox-[a-z0-9]{20}", data["sandbox_id"])
    assert data["provider_sandbox_id"] == data["sandbox_id"].removeprefix("sandbox-")
    assert data["success"] is True and data["status"] == "running" and data["message"] == "Sandbox created successfully"
    for field, port in (("mcp_url", 6060), ("vscode_url", 9000)):
        assert data[field] == f"http://{port}-{data['provider_sandbox_id']}.cove.localhost:{agent.server.http}"


def test_info_keeps_the_user_and_the_template_as_they_were_asked_for(agent, sandbox):
    info = agent.data(agent.ask("GET", f"/{sandbox}/info"))
    assert (info["user_id"], info["template_id"], info["status"]) == ("user-123", "default", "running")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", info["created_at"])
    other = agent.create(sandbox_template_id="base")
    info = agent.data(agent.ask("GET", f"/{other}/info"))
    assert info["user_id"] is None and info["template_id"] == "base"


@pytest.mark.parametrize("body, field", [({"user_id": 7}, "user_id"), ({"sandbox_template_id": "nowhere"}, "sandbox_template_id"),
                                         ({"sandbox_template_id": "../base"}, "sandbox_template_id"),
                                         ({"user_id": "x" * 300}, "user_id"), ([], "body"), (b"{", "body"), (b"\xff", "body")], ids=range(7))
def test_create_names_the_field_that_is_wrong(agent, body, field):
    assert field in is_error(agent.ask("POST", "/create", body), 400, "SandboxValidationError")


def test_a_pause_keeps_what_runs_and_connect_goes_on_with_it(agent, sandbox):
    agent.output(sandbox, "echo kept > /dev/shm/x; (while :; do date +%s%N > /dev/shm/now; sleep 0.05; done) >/dev/null 2>&1 &")
    assert agent.data(agent.ask("POST", f"/{sandbox}/pause"))["message"] == "Sandbox paused successfully (reason: manual)"
    assert agent.data(agent.ask("POST", f"/{sandbox}/pause?reason=lunch%20time"))["message"].endswith("(reason: lunch time)")
    assert agent.data(agent.ask("GET", f"/{sandbox}/status"))["status"] == "paused"
    assert agent.data(agent.ask("GET", f"/{sandbox}/urls"))["success"]
    assert agent.data(agent.ask("GET", f"/{sandbox}/status"))["status"] == "paused", "urls does not resume"
    data = agent.data(agent.post("/connect", sandbox_id=sandbox))
    assert data["status"] == "running" and data["message"] == "Successfully connected to sandbox" and data["mcp_url"]
    assert agent.output(sandbox, "cat /dev/shm/x") == "kept\n"
    before = agent.output(sandbox, "cat /dev/shm/now")
    wait_for(lambda: agent.output(sandbox, "cat /dev/shm/now") != before, what="the loop in the background")


def test_where_a_pause_saves_connect_brings_the_files_back(make_server):
    server, base = make_server(pause="save"), "/api/v1/agent/sandboxes"
    call = lambda method, path, body=None: server.request(method, base + path, body).json["data"]
    name = call("POST", "/create", {"user_id": "u"})["sandbox_id"]
    call("POST", "/write-file", {"sandbox_id": name, "file_path": "/workspace/f", "content": "kept"})
    call("POST", f"/{name}/pause")
    assert call("GET", f"/{name}/status")["status"] == "paused"
    assert call("POST", "/connect", {"sandbox_id": name})["status"] == "running"
    assert call("POST", "/read-file", {"sandbox_id": name, "file_path": "/workspace/f"})["content"] == "kept"


def test_pause_refuses_a_reason_that_is_no_text(agent, sandbox):
    assert "reason" in is_error(agent.ask("POST", f"/{sandbox}/pause?reason=%0A"), 400, "SandboxValidationError")
    assert "reason" in is_error(agent.ask("POST", f"/{sandbox}/pause?reason=" + "x" * 300), 400, "SandboxValidationError")
    assert agent.data(agent.ask("GET", f"/{sandbox}/status"))["status"] == "running"


def test_deleted_is_404(agent, sandbox):
    assert agent.data(agent.ask("DELETE", f"/{sandbox}")) == {"success": True, "message": "Sandbox deleted successfully"}
    for reply in (agent.ask("GET", f"/{sandbox}/status"), agent.ask("DELETE", f"/{sandbox}"), agent.post("/connect", sandbox_id=sandbox),
                  agent.run(sandbox, "true")):
        is_error(reply, 404, "SandboxNotFoundException")


def test_the_list_filters_by_user_and_status(agent):
    mine, other = agent.create(user_id="ann"), agent.create(user_id="bob")
    assert agent.data(agent.ask("POST", f"/{other}/pause"))["success"]
    names = lambda query: {s["sandbox_id"] for s in agent.data(agent.ask("GET", query))["sandboxes"]}
    assert {mine, other} <= names("")
    assert names("?user_id=ann") == {mine} and names("?user_id=nobody") == set()
    assert names("?user_id=bob&status=paused") == {other} and names("?user_id=bob&status=running") == set()
    assert "status" in is_error(agent.ask("GET", "?status=x"), 400, "SandboxValidationError")


def test_a_scheduled_timeout_replaces_the_earlier_one(agent, sandbox):
    end = lambda: agent.data(agent.ask("GET", f"/{sandbox}/info"))["expires_at"]
    first = end()
    assert agent.data(agent.post("/schedule-timeout", sandbox_id=sandbox, timeout_seconds=7200))["message"] == "Timeout scheduled successfully"
    later = end()
    assert later > first
    agent.data(agent.post("/schedule-timeout", sandbox_id=sandbox, timeout_seconds=600))
    assert end() < first
    for wrong in (0, -1, 86400 * 365, "60", 1.5):
        assert "timeout_seconds" in is_error(agent.post("/schedule-timeout", sandbox_id=sandbox, timeout_seconds=wrong), 400,
                                             "SandboxValidationError")


def test_what_happens_at_a_sandboxs_end_is_configuration(make_server):
    server = make_server(agent_end="pause", agent_lifetime="1h")
    agent = Agent(server)
    sandbox = agent.create()
    agent.output(sandbox, "echo kept > /workspace/x")
    agent.data(agent.post("/schedule-timeout", sandbox_id=sandbox, timeout_seconds=1))
    wait_for(lambda: agent.data(agent.ask("GET", f"/{sandbox}/status"))["status"] == "paused", what="a pause at its end")
    assert agent.data(agent.post("/connect", sandbox_id=sandbox))["status"] == "running"
    assert agent.output(sandbox, "cat /workspace/x") == "kept\n"


def test_one_whose_life_is_over_is_stopped_as_long_as_its_record_is_kept(make_server):
    server = make_server(agent_keep_stopped="1h")
    agent, other = Agent(server), Agent(server, server.add_key("other"))
    ended, deleted = agent.create(user_id="ann"), agent.create(user_id="bob")
    status = lambda who, sandbox: who.ask("GET", f"/{sandbox}/status")
    stopped = lambda who: [s["sandbox_id"] for s in who.data(who.ask("GET", "?status=stopped"))["sandboxes"]]
    agent.data(agent.ask("DELETE", f"/{deleted}"))
    agent.data(agent.post("/schedule-timeout", sandbox_id=ended, timeout_seconds=1))
    wait_for(lambda: agent.data(status(agent, ended))["status"] == "stopped", what="its end")
    old = server.keeper_pid
    os.kill(old, signal.SIGKILL)
    wait_for(lambda: not alive(old), 5, "the keeper's death")
    server.up()  # the record outlives the keeper
    info = agent.data(agent.ask("GET", f"/{ended}/info"))
    assert info["status"] == "stopped" and info["user_id"] == "ann" and info["created_at"] < info["expires_at"]
    assert stopped(agent) == [ended] and stopped(other) == []
    assert ended not in [s["sandbox_id"] for s in agent.data(agent.ask("GET", ""))["sandboxes"]]
    is_error(status(other, ended), 404, "SandboxNotFoundException")
    for reply in (agent.run(ended, "true"), agent.post("/connect", sandbox_id=ended), agent.ask("POST", f"/{ended}/pause"),
                  agent.ask("GET", f"/{ended}/urls")):
        assert "has stopped" in is_error(reply, 404, "SandboxNotFoundException")
    is_error(other.ask("DELETE", f"/{ended}"), 404, "SandboxNotFoundException")
    agent.data(agent.ask("DELETE", f"/{ended}"))
    for gone in (ended, deleted):
        is_error(status(agent, gone), 404, "SandboxNotFoundException")


def test_a_record_of_a_stopped_one_is_kept_no_longer_than_configured(make_server):
    agent = Agent(make_server(agent_keep_stopped="3s"))
    sandbox, seen = agent.create(), set()
    agent.data(agent.post("/schedule-timeout", sandbox_id=sandbox, timeout_seconds=1))

    def is_unknown():
        reply = agent.ask("GET", f"/{sandbox}/status")
        seen.add(reply.json["data"]["status"] if reply.status == 200 else reply.status)
        return reply.status == 404
    wait_for(is_unknown, 20, "the end of the record")
    assert seen == {"running", "stopped", 404}


# ---------------------------------------------------------------- commands

def test_a_command_that_fails_says_how(agent, sandbox):
    data = agent.data(agent.run(sandbox, "echo out; echo err >&2; exit 3"))
    assert data == {"success": False, "output": "out\nerr\n", "message": "Command exited with code 3", "exit_code": 3}
    data = agent.data(agent.run(sandbox, "kill -9 $$"))
    assert data["success"] is False and data["exit_code"] == 137 and "SIGKILL" in data["message"]
    data = agent.data(agent.run(sandbox, "head -c 3000000 /dev/zero | tr '\\0' x"))
    assert data["truncated"] and data["cause"] == "output" and not data["success"]


def test_a_command_has_its_directory_and_variables(agent, sandbox):
    assert agent.data(agent.run(sandbox, 'pwd; echo "$A"', cwd="/tmp", env={"A": "b c"}))["output"] == "/tmp\nb c\n"


def test_a_command_that_takes_too_long_is_408_with_its_output(agent, sandbox):
    reply = agent.run(sandbox, "echo begun; sleep 1000", timeout_seconds=1)
    assert "deadline" in is_error(reply, 408, "SandboxTimeoutException")
    assert reply.json["data"]["output"] == "begun\n" and reply.json["data"]["exit_code"] == 124
    assert agent.output(sandbox, "pgrep -c sleep || true").strip() == "0", "and nothing of it runs on"


def test_a_refused_command_names_rule_and_reason(agent, sandbox):
    reply = agent.run(sandbox, "rm -rf /")
    assert "rm -rf /" in is_error(reply, 403, "SandboxPermissionError")
    assert reply.json["rule"] == "rm-root" and reply.json["reason"]


@pytest.mark.parametrize("fields, field", [({}, "command"), ({"command": ""}, "command"), ({"command": ["ls"]}, "command"),
                                           ({"command": "x" * 200000}, "command"), ({"command": "ls", "cwd": "tmp"}, "cwd"),
                                           ({"command": "ls", "background": "yes"}, "background"),
                                           ({"command": "ls", "env": {"A B": "c"}}, "env"),
                                           ({"command": "ls", "timeout_seconds": 0}, "timeout_seconds")], ids=range(8))
def test_run_cmd_names_the_field_that_is_wrong(agent, sandbox, fields, field):
    assert field in is_error(agent.post("/run-cmd", sandbox_id=sandbox, **fields), 400, "SandboxValidationError")


def test_a_background_command_has_a_handle_a_log_and_an_end(agent, sandbox):
    data = agent.data(agent.run(sandbox, "echo one; read -t 0.2 < <(sleep 9); echo two; exec sleep 1000", background=True))
    handle = data["process_id"]
    assert data["success"] and data["pid"] > 0 and "exit_code" not in data
    log = lambda offset=0: agent.data(agent.ask("GET", f"/{sandbox}/processes/{handle}/logs?offset={offset}"))
    first = wait_for(lambda: (r := log())["output"] and r, what="its first line")
    assert first["output"].startswith("one\n") and first["running"]
    rest = wait_for(lambda: first["output"].endswith("two\n") and first or (r := log(first["next_offset"]))["output"] and r, what="its second")
    assert "two\n" in rest["output"] and log(rest["next_offset"])["output"] == ""
    listed = agent.data(agent.ask("GET", f"/{sandbox}/processes"))["processes"]
    assert [p["status"] for p in listed if p["process_id"] == handle] == ["running"]
    assert agent.data(agent.ask("DELETE", f"/{sandbox}/processes/{handle}"))["message"] == "Process killed"
    ended = log()
    assert ended["running"] is False and ended["exit_code"] == 137
    assert agent.data(agent.ask("DELETE", f"/{sandbox}/processes/{handle}"))["message"] == "Process had ended already"
    assert "offset" in is_error(agent.ask("GET", f"/{sandbox}/processes/{handle}/logs?offset=-1"), 400, "SandboxValidationError")
    is_error(agent.ask("GET", f"/{sandbox}/processes/{handle}/logs?offset=1"), 400, "SandboxValidationError")
    is_error(agent.ask("GET", f"/{sandbox}/processes/none/logs"), 404, "SandboxNotFoundException")


# ---------------------------------------------------------------- files

def test_files_are_written_and_read_as_text_and_as_bytes(agent, sandbox):
    write = lambda path, content, **more: agent.post("/write-file", sandbox_id=sandbox, file_path=path, content=content, **more)
    read_file = lambda path, **more: agent.post("/read-file", sandbox_id=sandbox, file_path=path, **more)
    assert agent.data(write("/workspace/deep/app.py", "print('Hello, Wörld!')")) == {"success": True,
                                                                                   "message": "File written to /workspace/deep/app.py"}
    assert agent.data(read_file("/workspace/deep/app.py")) == {"success": True, "content": "print('Hello, Wörld!')"}
    agent.data(write("/workspace/empty", ""))
    assert agent.data(read_file("/workspace/empty")) == {"success": True, "content": ""}
    every = bytes(range(256)) * 40
    agent.data(write("/workspace/b", base64.b64encode(every).decode(), encoding="base64"))
    assert base64.b64decode(agent.data(read_file("/workspace/b", encoding="base64"))["content"]) == every
    assert agent.data(read_file("/workspace/b"))["content"], "as text: what is no UTF-8 is replaced"


def test_a_missing_file_is_no_missing_sandbox(agent, sandbox):
    is_error(agent.post("/read-file", sandbox_id=sandbox, file_path="/nowhere/x"), 404, "FileNotFoundError")
    is_error(agent.post("/read-file", sandbox_id=NOBODY, file_path="/etc/passwd"), 404, "SandboxNotFoundException")


@pytest.mark.parametrize("path", ["", "/proc/1/mem/x", "/dev/null", "/workspace", "x" * 5000, "/workspace/\0x"], ids=range(6))
def test_paths_of_every_kind_are_refused_or_stay_inside(agent, sandbox, path):
    for endpoint in ("/write-file", "/read-file"):
        reply = agent.post(endpoint, sandbox_id=sandbox, file_path=path, content="x")
        assert 400 <= reply.status < 500 and reply.json["code"] == reply.status and reply.json["error"], (endpoint, reply)
    assert agent.output(sandbox, "echo alive") == "alive\n"


def test_directories_are_made_once_unless_that_is_fine(agent, sandbox):
    make = lambda query: agent.ask("POST", f"/create-directory?sandbox_id={sandbox}&{query}")
    assert agent.data(make("directory_path=/workspace/a/b"))["message"] == "Directory created at /workspace/a/b"
    assert "exists" in is_error(make("directory_path=/workspace/a/b"), 409, "SandboxConflictError")
    assert agent.data(make("directory_path=/workspace/a/b&exist_ok=true"))["success"]
    agent.output(sandbox, "touch /workspace/f")
    is_error(make("directory_path=/workspace/f&exist_ok=true"), 409, "SandboxConflictError")
    assert "exist_ok" in is_error(make("directory_path=/workspace/c&exist_ok=perhaps"), 400, "SandboxValidationError")
    assert "directory_path" in is_error(make(""), 400, "SandboxValidationError")
    assert "sandbox_id" in is_error(agent.ask("POST", "/create-directory?directory_path=/x"), 400, "SandboxValidationError")


# ---------------------------------------------------------------- ports

def test_an_exposed_port_answers_anybody_until_it_is_taken_back(agent, sandbox):
    server = agent.server
    agent.data(agent.run(sandbox, "cd /workspace && echo hello > index.html && exec python3 -m http.server 8000", background=True))
    agent.output(sandbox, "for i in $(seq 100); do (: < /dev/tcp/127.0.0.1/8000) 2>/dev/null && exit 0; sleep 0.1; done; exit 1")
    host = f"8000-{sandbox.removeprefix('sandbox-')}.cove.localhost"
    get = lambda key=False: server.request("GET", "/index.html", headers={"Host": host}, key=key)
    assert get().status == 401, "ports of the agent dialect are private"
    reply = agent.data(agent.post("/expose-port", sandbox_id=sandbox, port=8000))
    assert reply == {"success": True, "url": f"http://{host}:{server.http}", "message": "Port 8000 exposed successfully"}
    assert get().body == b"hello\n"
    agent.data(agent.post("/unexpose-port", sandbox_id=sandbox, port=8000))
    assert get().status == 401 and get(key=True).body == b"hello\n"


@pytest.mark.parametrize("port", [0, 65536, "8080", 80.5, None])
def test_expose_port_takes_a_port(agent, sandbox, port):
    assert "port" in is_error(agent.post("/expose-port", sandbox_id=sandbox, port=port), 400, "SandboxValidationError")


def test_the_code_servers_link_opens_its_port(agent, sandbox):
    """vscode_url is a private port like others; the link of /urls opens it in a browser, WebSocket or not."""
    urls = agent.data(agent.ask("GET", f"/{sandbox}/urls"))
    assert urls["vscode_link"].startswith(urls["vscode_url"] + "/.cove/open?token=")
    agent.data(agent.run(sandbox, "cd /workspace && echo code > index.html && exec python3 -m http.server 9000", background=True))
    agent.output(sandbox, "for i in $(seq 100); do (: < /dev/tcp/127.0.0.1/9000) 2>/dev/null && exit 0; sleep 0.1; done; exit 1")
    host = f"9000-{sandbox.removeprefix('sandbox-')}.cove.localhost"
    opened = agent.server.request("GET", urls["vscode_link"].split(str(agent.server.http), 1)[1], headers={"Host": host}, key=False)
    cookie = opened.headers["Set-Cookie"].split(";")[0]
    get = lambda **headers: agent.server.request("GET", "/index.html", headers={"Host": host, **headers}, key=False)
    assert opened.status == 302 and get().status == 401 and get(Cookie=cookie).body == b"code\n"


# ---------------------------------------------------------------- every route

def filled(path, sandbox):
    return path.removeprefix(BASE).replace("{sandbox_id}", sandbox).replace("{process_id}", "x")


def bodies(sandbox):
    return {"/connect": {}, "/run-cmd": {"command": "cat /workspace/secret"}, "/write-file": {"file_path": "/workspace/secret", "content": "x"},
            "/read-file": {"file_path": "/workspace/secret"}, "/expose-port": {"port": 80}, "/unexpose-port": {"port": 80},
            "/schedule-timeout": {"timeout_seconds": 1}, "/upload-file-from-url": {"url": "http://203.0.113.1/", "file_path": "/workspace/x"},
            "/download-to-presigned-url": {"presigned_url": "http://203.0.113.1/", "sandbox_path": "/workspace/secret"}}


def try_route(client, method, path, sandbox):
    if path.endswith("/upload-file"):
        return client.upload(form(("sandbox_id", sandbox.encode()), ("file_path", b"/workspace/secret"), ("file", b"x", "x")))
    if path.endswith("/create-directory"):
        return client.ask(method, f"/create-directory?sandbox_id={sandbox}&directory_path=/workspace/d")
    body = bodies(sandbox).get(path.removeprefix(BASE))
    return client.ask(method, filled(path, sandbox), None if body is None else {"sandbox_id": sandbox, **body})


def test_no_route_shows_or_changes_another_tenants_sandbox(make_server):
    """404 for what is not yours, in the same words as for what does not exist."""
    server = make_server()
    mine, other = Agent(server), Agent(server, server.add_key("other"))
    sandbox = mine.create()
    mine.output(sandbox, "echo tenant-secret > /workspace/secret")
    tried = 0
    for method, path, _ in routes():
        if path in (BASE, BASE + "/create"):
            continue
        theirs, nobodys = try_route(other, method, path, sandbox), try_route(other, method, path, NOBODY)
        is_error(theirs, 404, "SandboxNotFoundException")
        assert theirs.body.replace(sandbox.encode(), b"") == nobodys.body.replace(NOBODY.encode(), b""), path
        tried += 1
    assert tried >= 16 and other.data(other.ask("GET", ""))["sandboxes"] == []
    assert mine.output(sandbox, "cat /workspace/secret") == "tenant-secret\n"


@pytest.mark.parametrize("saved", [False, True], ids=["in memory", "to storage"])
def test_every_route_takes_a_paused_sandbox(agent, saved):
    """What only looks leaves it paused, what uses it resumes it, and nothing says that it is not there."""
    looks = {"/{sandbox_id}/status", "/{sandbox_id}/info", "/{sandbox_id}/urls", "/{sandbox_id}/pause", "/schedule-timeout"}
    for method, path, _ in routes():
        short = path.removeprefix(BASE)
        if short in ("", "/create"):
            continue
        sandbox = agent.create()
        agent.output(sandbox, "echo kept > /workspace/secret")
        assert agent.server.post(f"/console/api/sandboxes/{sandbox.removeprefix('sandbox-')}/pause", {"save": saved}).status == 200
        reply = try_route(agent, method, path, sandbox)
        if "{process_id}" in short:
            assert "process 'x'" in is_error(reply, 404, "SandboxNotFoundException"), short
        elif "url" in short and method == "POST":
            is_error(reply, 502, "SandboxFetchError")  # nobody is at that address
        elif saved and short == "/schedule-timeout":
            assert "connect to it first" in is_error(reply, 409, "SandboxConflictError")
        else:
            agent.data(reply)
        if method == "DELETE" and short == "/{sandbox_id}":
            is_error(agent.ask("GET", f"/{sandbox}/status"), 404, "SandboxNotFoundException")
        else:
            assert agent.data(agent.ask("GET", f"/{sandbox}/status"))["status"] == ("paused" if short in looks else "running"), short
            agent.ask("DELETE", f"/{sandbox}")


def test_every_field_of_every_body_is_checked(agent, sandbox):
    """Missing where the document requires it, or of another type: 400 that names the field, and nothing is done."""
    from test_agent_api import API
    tried = set()
    for (method, path), operation in API.operations().items():
        content = API.resolve(operation.get("requestBody", {})).get("content", {}).get("application/json")
        if not content:
            continue
        schema = API.resolve(content["schema"])
        whole = {"sandbox_id": sandbox, **bodies(sandbox).get(path, {})} if path != "/create" else {"user_id": "u"}
        for name in schema.get("required", []):
            reply = agent.ask(method, path, {k: v for k, v in whole.items() if k != name})
            assert name in is_error(reply, 400, "SandboxValidationError"), (path, name)
        for name in API.properties(content["schema"]):
            for wrong in ({"x": {}}, [1], True if name != "background" else "yes"):
                reply = agent.ask(method, path, {**whole, name: wrong})
                assert name in is_error(reply, 400, "SandboxValidationError"), (path, name, wrong)
            tried.add((path, name))
    assert len(tried) > 25
    assert agent.run(sandbox, "ls /workspace").json["data"]["output"] == "", "nothing was written"


def test_every_name_of_a_sandbox_is_taken(agent, sandbox):
    bare = sandbox.removeprefix("sandbox-")
    for name in (sandbox, bare, f"sandbox_{bare}"):
        assert agent.output(name, "echo in") == "in\n"
        assert agent.data(agent.ask("GET", f"/{name}/status"))["sandbox_id"] == sandbox
    made = agent.server.execute("of-execute", "echo x > /workspace/x")
    assert agent.output("of-execute", "cat /workspace/x") == "x\n", "a project's name"
    assert agent.data(agent.ask("GET", "/of-execute/info"))["provider_sandbox_id"] == made.id
    is_error(agent.run("no-such-project", "true"), 404, "SandboxNotFoundException")


def test_bad_news_has_one_shape_on_every_path(agent, sandbox):
    """nginx's own errors too."""
    server = agent.server
    is_error(agent.ask("GET", "/nowhere/at/all"), 404, "SandboxNotFoundException")
    reply = agent.ask("GET", "/create")
    is_error(reply, 405, "MethodNotAllowedError")
    assert "POST" in reply.headers["Allow"]
    is_error(agent.ask("GET", f"/{sandbox}/status", key=False), 401, "SandboxAuthenticationError")
    is_error(agent.ask("GET", f"/{sandbox}/status", key="e2b_" + "0" * 40), 401, "SandboxAuthenticationError")
    is_error(agent.ask("POST", "/write-file", b"x" * (16 << 20)), 413, "SandboxPayloadTooLargeError")
    is_error(agent.ask("GET", "/%zz/status"), 400, "SandboxValidationError")
    is_error(agent.ask("GET", "/%00/status"), 400, "SandboxValidationError")
    is_error(agent.ask("GET", "?user_id=%zz"), 400, "SandboxValidationError")
    raw = server.raw(f"GET {BASE}/x/status HTTP/1.1\r\nHost: a b\r\n\r\n".encode())
    assert b'"error":"SandboxValidationError"' in raw


def test_a_key_without_this_dialect_does_not_open_it(make_server):
    from test_front_keys import becomes, create
    server = make_server()
    key = create(server, "default", "--dialects", "execute")
    becomes(server, key, 200)
    for method, path, _ in routes():
        is_error(try_route(Agent(server, key), method, path, NOBODY), 403, "SandboxPermissionError")
    server.cleanup("keys", key=key)


def test_the_sites_locations_are_those_of_the_route_table():
    """A route that takes long, or a body of any size, is not cut off after two minutes; all others are."""
    site = read(f"{TOP}/nginx/snippets/cove-server.conf")
    short = re.compile(re.search(r"location ~ (\^/api/v1/agent/sandboxes\S+) \{", site).group(1))
    exact = set(re.findall(r"location = (\S+) \{", site))
    for method, path, flags in routes():
        path = path.replace("{sandbox_id}", NOBODY).replace("{process_id}", "x")
        assert (path in exact) == ("ROUTE_RAW" in flags), path
        if path not in exact:
            assert bool(short.search(path)) == ("ROUTE_LONG" not in flags), (method, path)
