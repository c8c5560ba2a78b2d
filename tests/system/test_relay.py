"""The relay dialect: sandboxes with names of the caller's choice, saved by a pause, with an agent whose lines go over a WebSocket."""
import base64
import functools
import http.server
import io
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import threading

import pytest
import yaml

from cove import TOP, read, wait_for
from internet import PUBLIC, World
from test_front_keys import create
from websocket import Closed, WebSocket

API = "/api/sandboxes"
ECHO = 'while read -r line; do echo "agent: $line"; done'


@pytest.fixture
def relay(server):
    """Calls with X-Relay-Secret; what a test made is deleted."""
    made = set()

    def call(method, path, body=None, **kw):
        if method == "POST" and re.fullmatch(r"/[\w-]+", path):
            made.add(path)
        return server.request(method, API + path, body, key=False, headers={"X-Relay-Secret": server.key}, **kw)

    yield call
    for path in made:
        call("DELETE", path)


def socket_of(server, name, query=""):
    return WebSocket(server, f"/ws/sandboxes/{name}{query}", headers={"X-Relay-Secret": server.key})


def recv_line(ws):
    message = ws.recv()
    return message.decode() if isinstance(message, bytes) else message


def test_the_document_has_every_route_and_every_field_and_no_other():
    document = yaml.safe_load(read(f"{TOP}/docs/api/relay.yaml"))
    routes = read(f"{TOP}/fcgi/dialects/relay.c").split("bridge_routes[] =")[0]
    assert {(method.upper(), path) for path, item in document["paths"].items() for method in item if method != "parameters"} == \
        set(re.findall(r'\{ (GET|POST|DELETE), "([^"]+)"', routes))
    text = "".join(read(f"{TOP}/fcgi/dialects/{name}.c") for name in ("relay", "relay_agent", "relay_bridge"))
    written = set(re.findall(r'JSON_[A-Z_]+\([^";]*?"(\w+)"', text)) | set(re.findall(r'json_(?:put_\w+|open)\([^";]*?"(\w+)"', text))
    assert {name for schema in document["components"]["schemas"].values() for name in schema.get("properties", {})} == written


# --- lifecycle ------------------------------------------------------------------------------------------------------

def test_a_sandbox_is_created_shown_paused_resumed_and_deleted_as_documented(relay):
    made = relay("POST", "/r-life", {"envVars": {"ANTHROPIC_API_KEY": "sk-test"}})
    assert made.status == 201
    assert made.json["id"] == "r-life" and made.json["status"] == "running" and made.json["pi"] == {"running": False}
    relay("POST", "/r-life/bridge/exec", {"command": "echo kept > /workspace/file"})
    assert relay("GET", "/r-life/status").json["sandboxId"] == made.json["sandboxId"]
    assert relay("POST", "/r-life/pause").json["status"] == "paused"
    assert relay("GET", "/r-life/status").json["status"] == "paused"
    resumed = relay("POST", "/r-life/resume", {"envVars": {"ANTHROPIC_API_KEY": "sk-test"}})
    assert resumed.status == 200 and resumed.json["status"] == "running" and resumed.json["sandboxId"] == made.json["sandboxId"]
    assert relay("POST", "/r-life/bridge/exec", {"command": "cat /workspace/file"}).json["stdout"] == "kept\n"
    assert relay("DELETE", "/r-life").status == 200
    for method, path in [("GET", "/r-life/status"), ("POST", "/r-life/pause"), ("POST", "/r-life/resume"), ("DELETE", "/r-life")]:
        assert relay(method, path).status == 404, path


def test_a_second_create_with_the_same_settings_is_the_same_sandbox_and_with_others_a_conflict(relay):
    first = relay("POST", "/r-twice", {"envVars": {"A": "1"}})
    again = relay("POST", "/r-twice", {"envVars": {"A": "1"}})
    assert again.status == 200 and again.json["sandboxId"] == first.json["sandboxId"]
    assert relay("POST", "/r-twice", {"envVars": {"A": "2"}}).status == 409
    assert relay("POST", "/r-twice", {"envVars": {"A": "1"}, "repoUrl": "https://example.com/x.git"}).status == 409


def test_many_creates_of_one_name_at_once_make_one_sandbox(relay):
    replies = []
    threads = [threading.Thread(target=lambda: replies.append(relay("POST", "/r-race", {"envVars": {"PI_COMMAND": "cat"}}))) for _ in range(6)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert {r.status for r in replies} <= {200, 201} and len({r.json["sandboxId"] for r in replies}) == 1
    assert len([r for r in replies if r.status == 201]) == 1


def test_a_deleted_paused_sandbox_is_gone_for_good(relay):
    relay("POST", "/r-gone", {})
    relay("POST", "/r-gone/pause")
    assert relay("DELETE", "/r-gone").status == 200
    assert relay("POST", "/r-gone/resume", {}).status == 404


def test_the_list_has_running_and_paused_ones(relay):
    relay("POST", "/r-list-1", {})
    relay("POST", "/r-list-2", {})
    relay("POST", "/r-list-2/pause")
    found = {box["id"]: box["status"] for box in relay("GET", "").json["sandboxes"]}
    assert found["r-list-1"] == "running" and found["r-list-2"] == "paused"


def test_secrets_are_in_no_log_no_listing_and_not_in_the_saved_state(server, relay):
    secret = "sk-very-secret-4711"
    relay("POST", "/r-secret", {"envVars": {"API_KEY": secret, "PI_COMMAND": "cat"}})
    assert relay("POST", "/r-secret/bridge/exec", {"command": "echo $API_KEY"}).json["stdout"] == f"{secret}\n"
    assert secret not in relay("GET", "").body.decode() and secret not in relay("GET", "/r-secret/status").body.decode()
    relay("POST", "/r-secret/pause")
    found = subprocess.run(["grep", "-rl", secret, f"{server.dir}/log", f"{server.dir}/state", server.run_dir], capture_output=True, text=True)
    assert found.stdout == ""
    relay("POST", "/r-secret/resume", {})
    assert relay("POST", "/r-secret/bridge/exec", {"command": "echo [$API_KEY]"}).json["stdout"] == "[]\n"


def test_bad_input_names_the_field(relay):
    for body, field in [({"envVars": "x"}, "envVars"), ({"envVars": {"A=B": "x"}}, "A=B"), ({"repoUrl": "file:///etc"}, "repoUrl"),
                        ({"repoUrl": "git@host:x"}, "repoUrl"), ({"repoBranch": "main"}, "repoBranch"), ({"repoUrl": "https://x/y", "repoBranch": "-x"}, "repoBranch"),
                        ({"template": "nosuch"}, "template")]:
        reply = relay("POST", "/r-bad", body)
        assert 400 <= reply.status < 500 and field in reply.json["error"], (body, reply)
    assert relay("GET", "/r-bad/status").status == 404
    assert relay("POST", "/r%2fbad", {}).status in (400, 404)


def test_another_tenants_sandbox_is_not_there(server, relay):
    relay("POST", "/r-mine", {})
    other = server.add_key("relay-other")
    rows = re.findall(r'\{ (GET|POST|DELETE), "(/api/sandboxes/\{id\}[^"]*)"', read(f"{TOP}/fcgi/dialects/relay.c"))
    assert len(rows) > 8
    for method, pattern in rows:
        if (method, pattern) == ("POST", "/api/sandboxes/{id}"):
            continue  # a sandbox of its own by that name
        body = {"command": "id"} if method == "POST" else None
        assert server.request(method, pattern.replace("{id}", "r-mine"), body, key=other).status == 404, pattern
    assert server.request("GET", API, key=other).json["sandboxes"] == []


def test_a_key_of_another_project_is_not_told_whether_it_guessed_the_settings(server, relay):
    relay("POST", "/r-secret", {"envVars": {"PASSWORD": "right"}})
    key = create(server, "default", "--projects", "own-*")
    wait_for(lambda: server.request("GET", API, key=key).status == 200, 30, "the new key")
    replies = {value: server.request("POST", f"{API}/{name}", {"envVars": {"PASSWORD": value}}, key=key)
               for name, value in (("r-secret", "right"), ("r-secret", "wrong"), ("r-nobodys", "any"))}
    assert {(r.status, r.body) for r in replies.values()} == {(403, replies["any"].body)}, replies


# --- the agent ------------------------------------------------------------------------------------------------------

def test_lines_go_to_the_agent_and_its_lines_to_every_client(server, relay):
    assert relay("POST", "/r-echo", {"envVars": {"PI_COMMAND": ECHO}}).json["pi"]["running"]
    one, two = socket_of(server, "r-echo"), socket_of(server, "r-echo")
    one.send("hello")
    assert recv_line(one) == "agent: hello" and recv_line(two) == "agent: hello"
    late = socket_of(server, "r-echo")
    assert recv_line(late) == "agent: hello", "one that comes late gets what it missed"
    numbered = socket_of(server, "r-echo", "?numbered=1")
    first = json.loads(recv_line(numbered))
    assert first["line"] == "agent: hello"
    one.send("again")
    assert json.loads(recv_line(numbered)) == {"n": first["n"] + 1, "line": "agent: again"}
    onward = socket_of(server, "r-echo", f"?from={first['n'] + 1}")
    assert recv_line(onward) == "agent: again"


def test_an_agent_that_ends_is_told_to_its_clients(server, relay):
    relay("POST", "/r-end", {"envVars": {"PI_COMMAND": "read -r line; exit 3"}})
    ws = socket_of(server, "r-end")
    ws.send("x")
    with pytest.raises(Closed) as closed:
        while True:
            ws.recv()
    assert "3" in closed.value.reason
    status = wait_for(lambda: (s := relay("GET", "/r-end/status").json["pi"]) and not s["running"] and s, what="the agent has ended")
    assert status["exitCode"] == 3


def test_without_an_agent_the_websocket_says_so(server, relay):
    relay("POST", "/r-none", {})
    with pytest.raises(Closed) as closed:
        socket_of(server, "r-none").recv()
    assert "PI_COMMAND" in closed.value.reason
    assert relay("POST", "/r-none/bridge/start-pi").status == 409


def test_an_agent_runs_again_after_pause_and_resume(server, relay):
    relay("POST", "/r-again", {"envVars": {"PI_COMMAND": ECHO}})
    relay("POST", "/r-again/pause")
    assert relay("POST", "/r-again/resume", {"envVars": {"PI_COMMAND": ECHO}}).json["pi"]["running"]
    ws = socket_of(server, "r-again")
    ws.send("back")
    assert recv_line(ws) == "agent: back"


def test_an_agent_whose_sandbox_another_api_woke_starts_with_the_next_resume(server, relay):
    env = {"PI_COMMAND": 'echo "began with $WORD" >>/workspace/log; cat', "WORD": "one"}
    log = lambda: relay("POST", "/r-other/bridge/exec", {"command": "cat /workspace/log"}).json["stdout"]
    relay("POST", "/r-other", {"envVars": env})
    wait_for(lambda: log() == "began with one\n", 30, "the agent's first words")
    relay("POST", "/r-other/pause")
    assert server.run("r-other", "cat /workspace/log") == "began with one\n", "another API wakes it"
    assert not relay("GET", "/r-other/status").json["pi"]["running"], "what the agent needs was not saved"
    assert not relay("POST", "/r-other/resume").json["pi"]["running"]
    assert relay("POST", "/r-other/resume", {"envVars": {**env, "WORD": "two"}}).json["pi"]["running"]
    wait_for(lambda: log() == "began with one\nbegan with two\n", 30, "the agent to begin again")
    again = relay("GET", "/r-other/status").json["pi"]
    assert relay("POST", "/r-other/resume", {"envVars": {**env, "WORD": "three"}}).json["pi"] == again, "an agent that runs is left as it is"


def test_start_pi_starts_an_ended_agent_again(relay):
    relay("POST", "/r-start", {"envVars": {"PI_COMMAND": "exit 0"}})
    wait_for(lambda: not relay("GET", "/r-start/status").json["pi"]["running"], what="the agent has ended")
    assert relay("POST", "/r-start/bridge/start-pi").status == 200


def test_a_refused_agent_command_names_the_rule_and_leaves_no_sandbox(relay):
    reply = relay("POST", "/r-refused", {"envVars": {"PI_COMMAND": "rm -rf /"}})
    assert reply.status == 403 and "PI_COMMAND" in reply.json["error"]
    assert relay("GET", "/r-refused/status").status == 404


def test_an_agent_that_has_ended_starts_again_with_the_next_client_where_the_operator_says_so(make_server):
    server = make_server(relay_restart="yes")
    secret = {"X-Relay-Secret": server.key}
    server.request("POST", API + "/r-restart", {"envVars": {"PI_COMMAND": "read -r line; echo got $line; exit 4"}}, key=False, headers=secret)
    for word in ("one", "two"):
        clients = [socket_of(server, "r-restart"), socket_of(server, "r-restart")]
        clients[0].send(word)
        for ws in clients:  # both hear its line and how it ended
            assert recv_line(ws) == f"got {word}"
            with pytest.raises(Closed) as closed:
                while True:
                    ws.recv()
            assert "4" in closed.value.reason
    server.request("DELETE", API + "/r-restart", key=False, headers=secret)


def test_the_status_tells_pausing_resuming_and_failed(server, relay):
    from test_saving import corrupt, store
    box = relay("POST", "/r-words", {}).json["sandboxId"]
    relay("POST", "/r-words/bridge/exec", {"command": "head -c 200000000 /dev/urandom >/workspace/noise"})

    def seen_during(verb):
        words, done = set(), []
        thread = threading.Thread(target=lambda: done.append(relay("POST", f"/r-words/{verb}").json["status"]))
        thread.start()
        while thread.is_alive():
            words.add(relay("GET", "/r-words/status").json["status"])
        thread.join()
        return words, done

    for _ in range(5):  # a question that init gets just before the freeze is answered when it is saved
        words, done = seen_during("pause")
        assert done == ["paused"], words
        if "pausing" in words:
            break
        assert relay("POST", "/r-words/resume").json["status"] == "running"
    assert "pausing" in words, words
    words, done = seen_during("resume")
    assert "resuming" in words and done == ["running"], words
    relay("POST", "/r-words/bridge/exec", {"command": "rm /workspace/noise"})
    relay("POST", "/r-words/pause")
    archive = f"{store(server)}/{box}/archive.tar.zst"
    corrupt(archive, 50, 1)
    assert relay("POST", "/r-words/resume").status >= 400
    assert relay("GET", "/r-words/status").json["status"] == "failed"
    assert [b["status"] for b in server.request("GET", API, key=False, headers={"X-Relay-Secret": server.key}).json["sandboxes"] if b["id"] == "r-words"] == ["failed"]
    corrupt(archive, 50, 1)
    assert relay("POST", "/r-words/resume").json["status"] == "running"


def overtaken(server, relay, name, method, path):
    """The reply to a request that asks a running sandbox's init, and before that answers, the sandbox is saved and has ended."""
    box = relay("POST", f"/{name}", {"envVars": {"PI_COMMAND": "cat"}}).json["sandboxId"]
    os.kill(server.inits[box], signal.SIGSTOP)
    answers = []
    thread = threading.Thread(target=lambda: answers.append(relay(method, f"/{name}{path}")))
    thread.start()
    listing = ["ss", "-Hxl", "src", f"{server.run_dir}/boxes/{box}"]
    wait_for(lambda: subprocess.run(listing, capture_output=True, text=True, check=True).stdout.split()[2] == "1", 30, "a question to the init")
    assert relay("POST", f"/{name}/pause").json["status"] == "paused"
    thread.join()
    assert relay("POST", f"/{name}/resume").json["status"] == "running"
    return answers[0]


def test_a_status_that_a_pause_overtakes_tells_the_pause(server, relay):
    reply = overtaken(server, relay, "r-overtaken", "GET", "/status")
    assert reply.status == 200 and reply.json["status"] in ("pausing", "paused"), reply


@pytest.mark.parametrize("method, path", [("GET", "health"), ("POST", "start-pi"), ("POST", "backup")])
def test_a_bridge_request_that_a_pause_overtakes_tells_the_pause(server, relay, method, path):
    reply = overtaken(server, relay, f"r-late-{path}", method, f"/bridge/{path}")
    assert reply.status == 409 and "is paused: resume it first" in reply.json["error"], reply


def test_a_request_without_a_secret_is_told_the_name_of_its_header(server):
    for headers in ({}, {"X-Relay-Secret": ""}):
        reply = server.request("GET", API + "/r-nobody/status", key=False, headers=headers)
        assert reply.status == 401 and "X-Relay-Secret" in reply.body.decode(), reply


# --- the bridge -----------------------------------------------------------------------------------------------------

def test_the_bridge_answers_at_its_host_name(server, relay):
    box = relay("POST", "/r-bridge", {"envVars": {"PI_COMMAND": "cat"}}).json["sandboxId"]
    host = {"Host": f"4000-{box}.cove.localhost", "X-Relay-Secret": server.key}
    assert server.request("GET", "/health", key=False, headers=host).json["pi"]["running"]
    assert server.request("POST", "/exec", {"command": "echo hello"}, key=False, headers=host).json == {"stdout": "hello\n", "stderr": "", "exitCode": 0}
    assert server.request("POST", "/exec", {"command": "exit 7"}, key=False, headers=host).json["exitCode"] == 7
    assert server.request("POST", "/exec", {"command": "id"}, key=False, headers={"Host": host["Host"]}).status == 401
    ws = WebSocket(server, "/any/path", headers={"X-Relay-Secret": server.key}, host=host["Host"])
    ws.send("through the bridge")
    assert recv_line(ws) == "through the bridge"


def test_what_was_backed_up_can_be_restored_elsewhere(relay):
    relay("POST", "/r-from", {})
    relay("POST", "/r-from/bridge/exec", {"command": "echo w > /workspace/w; mkdir -p /data/agent; echo a > /data/agent/a"})
    archive = relay("POST", "/r-from/bridge/backup").body
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        assert {"workspace/w", "data/agent/a"} <= set(tar.getnames())
    relay("POST", "/r-to", {})
    assert relay("POST", "/r-to/bridge/restore", archive).status == 200
    assert relay("POST", "/r-to/bridge/exec", {"command": "cat /workspace/w /data/agent/a"}).json["stdout"] == "w\na\n"


def test_a_restore_leaves_directories_that_the_archive_does_not_name_as_they_are(relay):
    look = {"command": "mkdir -p /data/agent; chmod 1777 /data/agent; stat -c '%n %a %u %g' /workspace /data /data/agent; cat /workspace/g"}
    relay("POST", "/r-dirs", {})
    before = relay("POST", "/r-dirs/bridge/exec", look).json["stdout"]
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name in ("workspace/g", "data/agent/g"):
            entry = tarfile.TarInfo(name)
            entry.size = 5
            tar.addfile(entry, io.BytesIO(b"good\n"))
    assert relay("POST", "/r-dirs/bridge/restore", out.getvalue()).status == 200
    look["command"] = look["command"].replace("chmod 1777 /data/agent; ", "")
    assert relay("POST", "/r-dirs/bridge/exec", look).json["stdout"] == before + "good\n"


def test_a_damaged_archive_is_refused_and_changes_nothing(relay):
    relay("POST", "/r-damaged", {})
    relay("POST", "/r-damaged/bridge/exec", {"command": "echo old > /workspace/w"})
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name in ("workspace/w", "workspace/x"):
            entry = tarfile.TarInfo(name)
            entry.size = 100000
            tar.addfile(entry, io.BytesIO(os.urandom(100000)))
    for wrong in (b"no tar at all", out.getvalue()[:-5000], b""):
        reply = relay("POST", "/r-damaged/bridge/restore", wrong)
        assert reply.status == 400, reply
        assert relay("POST", "/r-damaged/bridge/exec", {"command": "cat /workspace/w; ls /workspace"}).json["stdout"] == "old\nw\n"


def test_an_agent_that_waits_for_restore_starts_with_it(server, relay):
    relay("POST", "/r-wait", {"envVars": {"PI_COMMAND": "cat /workspace/state; cat", "WAIT_FOR_RESTORE": "true"}})
    ws = socket_of(server, "r-wait")
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        entry = tarfile.TarInfo("workspace/state")
        entry.size = 9
        tar.addfile(entry, io.BytesIO(b"restored\n"))
    assert relay("POST", "/r-wait/bridge/restore", out.getvalue()).status == 200
    assert recv_line(ws) == "restored"


def test_an_agent_that_waits_for_a_restore_which_never_comes_starts_when_the_time_is_over(make_server):
    server = make_server(relay_restore_wait="2s")
    secret = {"X-Relay-Secret": server.key}
    body = {"envVars": {"PI_COMMAND": "ps -o etimes= -p $$; cat", "WAIT_FOR_RESTORE": "true"}}
    assert server.request("POST", API + "/r-alone", body, key=False, headers=secret).status == 201
    ws = socket_of(server, "r-alone")
    ws.send("said while it waited")
    assert int(recv_line(ws)) >= 1, "seconds that it has waited"
    assert recv_line(ws) == "said while it waited"
    server.request("DELETE", API + "/r-alone", key=False, headers=secret)


# --- the document's own commands ------------------------------------------------------------------------------------

# The worker's part of the document's chapter on testing, as it stands there.
DOCUMENT = r"""
# Health (no auth)
curl "$BASE/health"

# Create
curl -X POST -H "X-Relay-Secret: $SECRET" \
  -H "Content-Type: application/json" \
  -d '{"envVars":{"ANTHROPIC_API_KEY":"sk-test"}}' \
  "$BASE/api/sandboxes/test-1"

# Status
curl -H "X-Relay-Secret: $SECRET" "$BASE/api/sandboxes/test-1/status"

# Pause
curl -X POST -H "X-Relay-Secret: $SECRET" "$BASE/api/sandboxes/test-1/pause"

# Resume
curl -X POST -H "X-Relay-Secret: $SECRET" \
  -H "Content-Type: application/json" \
  -d '{"envVars":{"ANTHROPIC_API_KEY":"sk-test"}}' \
  "$BASE/api/sandboxes/test-1/resume"

# Terminate
curl -X DELETE -H "X-Relay-Secret: $SECRET" "$BASE/api/sandboxes/test-1"
"""


def test_the_documents_commands_run_as_they_stand(server):
    done = subprocess.run(["bash", "-ec", DOCUMENT], env={**os.environ, "BASE": f"http://127.0.0.1:{server.http}", "SECRET": server.key},
                          capture_output=True, text=True, timeout=120)
    replies = [json.loads(line) for line in done.stdout.replace("}{", "}\n{").splitlines()]
    assert done.returncode == 0 and [r.get("status", r.get("success")) for r in replies] == \
        ["ok", "running", "running", "paused", "running", True], done


# --- the repository -------------------------------------------------------------------------------------------------

class Git(http.server.SimpleHTTPRequestHandler):
    """A repository by git's plain HTTP, for whoever knows name and password."""
    def do_GET(self):
        if self.headers.get("Authorization") == "Basic " + base64.b64encode(b"bot:pa ss").decode():
            return super().do_GET()
        self.send_response(401)
        self.send_header("WWW-Authenticate", "Basic")
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def git_world(make_server, tmp_path):
    """A server whose sandboxes reach a small internet with a git server in it."""
    def git(*args, cwd):
        subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@example.com", *args], cwd=cwd, check=True, capture_output=True)

    work = tmp_path / "work"
    work.mkdir()
    git("init", "-q", "-b", "main", cwd=work)
    for branch in ("main", "topic"):
        if branch != "main":
            git("checkout", "-q", "-b", branch, cwd=work)
        (work / "file").write_text(branch)
        git("add", ".", cwd=work)
        git("commit", "-qm", branch, cwd=work)
    git("clone", "-q", "--bare", str(work), str(tmp_path / "repo.git"), cwd=tmp_path)
    git("update-server-info", cwd=tmp_path / "repo.git")
    server = make_server()
    with World(ipv6=False) as world:
        serving = subprocess.Popen(["ip", "netns", "exec", world.internet, sys.executable, os.path.abspath(__file__), str(tmp_path)])
        world.move_keeper(server)
        yield server
        serving.kill()
        serving.wait()


def test_a_repository_is_cloned_into_the_workspace_and_its_password_is_kept_nowhere(git_world):
    server, headers = git_world, {"X-Relay-Secret": git_world.key}
    call = lambda method, path, body=None: server.request(method, API + path, body, key=False, headers=headers)
    url = f"http://bot:pa%20ss@{PUBLIC}:8000/repo.git"
    for branch, expected in ((None, "topic"), ("main", "main")):
        made = wait_for(lambda: (r := call("POST", f"/r-clone-{branch}", {"repoUrl": url, **({"repoBranch": branch} if branch else {})})).status == 201 and r,
                        what="the git server answers")
        shown = call("POST", f"/r-clone-{branch}/bridge/exec", {"command": "cat file .git/config; env"}).json
        told = server.request("GET", f"/sandboxes/{made.json['sandboxId']}/logs").body.decode()
        assert "Cloning into" in told and PUBLIC in told, "progress is in the sandbox's log"
        assert not re.search("pa(%20| )ss|Ym90OnBhIHNz", told)
        assert shown["stdout"].startswith(expected) and "pa ss" not in shown["stdout"] and "pa%20ss" not in shown["stdout"], (made, shown)
    logs = subprocess.run(["grep", "-rE", "pa(%20| )ss|Ym90OnBhIHNz", f"{server.dir}/log"], capture_output=True, text=True)
    assert logs.stdout == ""
    wrong = call("POST", "/r-clone-wrong", {"repoUrl": f"http://{PUBLIC}:8000/repo.git"})
    assert wrong.status == 400 and "repoUrl: git clone failed: fatal: " in wrong.json["error"], wrong
    assert call("GET", "/r-clone-wrong/status").status == 404


if __name__ == "__main__":
    handler = functools.partial(Git, directory=sys.argv[1])
    http.server.ThreadingHTTPServer(("0.0.0.0", 8000), handler).serve_forever()
