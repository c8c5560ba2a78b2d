"""The console dialect: sessions that only its own pages can use, and a view of one tenant's sandboxes."""
import contextlib
import glob
import hmac
import http.client
import json
import os
import re
import signal
import subprocess
import tarfile
import io
import threading
import time

import pytest
import yaml

from cove import TOP, read, wait_for
from test_front_keys import cove, create

API = "/console/api"


@pytest.fixture
def console(server):
    """A sandbox of the console's, and how to ask about it."""
    box = server.post(f"{API}/sandboxes", {}).json
    yield Console(server, box["id"])
    server.request("DELETE", f"{API}/sandboxes/{box['id']}")


class Console:
    def __init__(self, server, box):
        self.server, self.id = server, box

    def ask(self, method, rest, body=None, **kw):
        return self.server.request(method, f"{API}/sandboxes/{self.id}{rest}", body, **kw)


def origin(server):
    return f"http://127.0.0.1:{server.http}"


def sign_in(server, key=True, headers=None):
    return server.request("POST", f"{API}/session", {}, key=key, headers={"Origin": origin(server), **(headers or {})})


def session(server, **kw):
    """What a browser keeps: the cookie, and the token that pages read."""
    reply = sign_in(server, **kw)
    assert reply.status == 200, reply
    return reply.headers["Set-Cookie"].split(";")[0], reply.json["token"]


def test_the_document_has_every_route_and_no_other():
    document = {(method.upper(), path) for path, item in yaml.safe_load(read(f"{TOP}/docs/api/console.yaml"))["paths"].items()
                for method in item if method != "parameters"}
    assert document == set(re.findall(r'\{ (GET|POST|PUT|DELETE), "([^"]+)"', read(f"{TOP}/fcgi/dialects/console.c")))


def test_the_document_has_every_field_and_no_other():
    text = "".join(read(path) for path in sorted(glob.glob(f"{TOP}/fcgi/dialects/console*.c")))
    written = set(re.findall(r'JSON_[A-Z_]+\([^";]*?"(\w+)"', text)) | set(re.findall(r'json_(?:put_\w+|open)\([^";]*?"(\w+)"', text))
    events = {"count", "stream", "text", "lostBytes", "message", "cpuPercent", "diskBytes", "cpu", "memoryLimit", "diskLimit", "durationMs", "endedBy", "tags", "finished", "level", "step", "receivedBytesPerSecond", "sentBytesPerSecond"}
    found = set()

    def walk(schema):
        if isinstance(schema, dict):
            found.update(schema.get("properties", {}))
            for value in schema.values():
                walk(value)
        elif isinstance(schema, list):
            for value in schema:
                walk(value)

    walk(yaml.safe_load(read(f"{TOP}/docs/api/console.yaml"))["components"]["schemas"])
    assert found - {"text"} == written - events


# --- sessions -------------------------------------------------------------------------------------------------------

def test_the_servers_address_shows_a_page_in_a_browser_and_json_to_programs(server):
    assert server.request("GET", "/", headers={"Accept": "text/html"}, key=False).headers["Location"] == "/console/"
    assert json.loads(server.request("GET", "/console/version.json", key=False).body)["version"]
    page = server.request("GET", "/console/", key=False)
    assert page.status == 200 and "text/html" in page.headers["Content-Type"]
    policy = page.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "script-src 'self';" in policy and "frame-ancestors 'none'" in policy
    assert server.request("GET", "/", key=False).status == 401


def test_the_pages_name_no_other_host_and_make_no_markup_from_text():
    for path in glob.glob(f"{TOP}/web/*.*"):
        if path.endswith((".js", ".html", ".css")):
            text = read(path)
            assert not re.search(r"https?://(?!www\.w3\.org)", text), path
            assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|localStorage|sessionStorage", text), path


def test_a_key_opens_a_session_and_its_cookie_is_for_this_host_alone(server):
    reply = sign_in(server)
    cookie = reply.headers["Set-Cookie"]
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie and "Path=/" in cookie and "Domain" not in cookie
    assert server.key not in cookie
    assert reply.json["tenant"] == "default"


def test_over_https_the_cookie_is_bound_to_the_host_and_secure(server):
    reply = server.request("POST", f"{API}/session", {}, headers={"Origin": f"https://127.0.0.1:{server.https}"}, tls=True)
    assert reply.headers["Set-Cookie"].startswith("__Host-cove-console=") and "; Secure" in reply.headers["Set-Cookie"]


def test_a_session_reads_without_a_key_and_a_changed_one_does_not(server):
    cookie, _ = session(server)
    assert server.request("GET", f"{API}/sandboxes", headers={"Cookie": cookie}, key=False).status == 200
    for wrong in (cookie[:-1] + ("0" if cookie[-1] != "0" else "1"), cookie.replace("default", "defaulu"), "cove-console=", "cove-console=9.a.b.c"):
        assert server.request("GET", f"{API}/sandboxes", headers={"Cookie": wrong}, key=False).status == 401, wrong


def test_a_session_changes_nothing_without_its_token_and_its_own_origin(server):
    cookie, token = session(server)
    good = {"Cookie": cookie, "Origin": origin(server), "X-Console-Token": token}
    create = lambda headers: server.request("POST", f"{API}/sandboxes", {}, headers=headers, key=False)
    for name, value in [("Origin", None), ("Origin", "http://evil.example"), ("Origin", f"http://8000-{'a' * 20}.cove.localhost:{server.http}"),
                        ("Origin", f"https://127.0.0.1:{server.http}"), ("X-Console-Token", None), ("X-Console-Token", "0" * 64)]:
        headers = {k: v for k, v in {**good, name: value}.items() if v is not None}
        assert create(headers).status == 401, (name, value)
    made = create(good)
    assert made.status == 201
    assert server.request("DELETE", f"{API}/sandboxes/{made.json['id']}", headers=good, key=False).status == 200


def test_another_sites_page_cannot_read_with_the_cookie(server):
    cookie, _ = session(server)
    assert server.request("GET", f"{API}/sandboxes", headers={"Cookie": cookie, "Origin": "http://evil.example"}, key=False).status == 401


@pytest.mark.parametrize("site,status", [("same-origin", 200), ("none", 200), ("same-site", 401), ("cross-site", 401), ("nonsense", 401)])
def test_what_another_page_embeds_is_not_read_with_the_cookie(server, site, status):
    """An image or a script of a preview's page: same-site, so the cookie comes along, and no Origin does."""
    cookie, _ = session(server)
    assert server.request("GET", f"{API}/sandboxes", headers={"Cookie": cookie, "Sec-Fetch-Site": site}, key=False).status == status


def test_of_two_cookies_none_signs_in(server):
    """Over http a preview's page can set a cookie of that name for the whole site, with a session of its own."""
    (mine, _), (theirs, _) = session(server), session(server, key=server.add_key("tosser"))
    for cookies in (f"{theirs}; {mine}", f"{mine}; {theirs}", f"{mine}; a=b; cove-console="):
        assert server.request("GET", f"{API}/sandboxes", headers={"Cookie": cookies}, key=False).status == 401, cookies
    assert server.request("GET", f"{API}/sandboxes", headers={"Cookie": f"a=b; {mine}; xcove-console=1"}, key=False).status == 200


def test_a_session_opens_no_other_api(server):
    cookie, token = session(server)
    headers = {"Cookie": cookie, "Origin": origin(server), "X-Console-Token": token}
    for method, path, body in [("POST", "/execute", {"projectId": "p", "commands": ["id"]}), ("GET", "/list_processes", None),
                               ("GET", "/v2/sandboxes", None), ("POST", "/run", {"cmd": "id"})]:
        assert server.request(method, path, body, headers=headers, key=False).status == 401, path


def test_a_session_begins_only_on_a_page_of_this_host(server):
    assert sign_in(server, headers={"Origin": "http://evil.example"}).status == 403
    assert "Set-Cookie" not in sign_in(server, headers={"Origin": "http://evil.example"}).headers


def test_a_wrong_key_opens_no_session_and_says_so(server):
    reply = sign_in(server, key="e2b_" + "0" * 40)
    assert reply.status == 401 and "not valid" in reply.json["error"]


def test_a_session_ends_with_its_key(make_server):
    server = make_server()
    key = server.add_key("tenant-x")
    cookie, _ = session(server, key=key)
    read_list = lambda: server.request("GET", f"{API}/sandboxes", headers={"Cookie": cookie}, key=False).status
    assert read_list() == 200
    path = f"{server.dir}/conf/keys"
    lines = [line for line in read(path).splitlines(True) if " tenant-x " not in line]
    with open(path, "w") as f:
        f.writelines(lines)
    wait_for(lambda: read_list() == 401, what="the session of a revoked key is over")


def open_stream(server, headers, path=f"{API}/events"):
    connection = server.connect()
    connection.request("GET", path, headers=headers)
    reply = connection.getresponse()
    assert reply.status == 200
    return reply


def wait_for_end(stream, seconds=45):
    """A stream that tells nothing still sends comments: the bound is here."""
    end = time.monotonic() + seconds
    with contextlib.suppress(http.client.IncompleteRead):  # a log is cut
        while stream.readline():
            assert time.monotonic() < end, "the stream goes on"


def runs_out(server, seconds, tenant="default"):
    """A session's cookie that ends in so many seconds, made as the server makes them."""
    text = f"{int(time.time()) + seconds}.-.{tenant}"
    with open(f"{server.run_dir}/token-secret", "rb") as f:
        return f"cove-console={text}.{hmac.new(f.read(), f'console session {text}'.encode(), 'sha256').hexdigest()}"


def test_a_stream_ends_with_its_session_and_with_its_key(server):
    key = create(server, "streaming", "--name", "streaming")
    session_of_key, _ = session(server, key=key)
    short = runs_out(server, 3)
    kept = open_stream(server, {"X-API-Key": server.key, "Cookie": short})
    wait_for_end(open_stream(server, {"Cookie": short}))
    streams = [open_stream(server, headers) for headers in ({"Cookie": session_of_key}, {"X-API-Key": key})]
    cove(server, "key", "revoke", "streaming")
    for stream in streams:
        wait_for_end(stream)
    assert any(line.startswith(b":") for line in kept), "a key of its own goes on, whatever became of a cookie beside it"


def test_a_followed_log_ends_with_its_session_and_with_its_key(server):
    """Whether its process writes or not."""
    key = create(server, "logging", "--name", "logging")
    headers = {"X-API-Key": key}
    made = server.request("POST", f"{API}/sandboxes", {"name": "logging"}, headers=headers, key=False).json
    at = f"{API}/sandboxes/{made['id']}/processes"
    quiet, busy = (server.request("POST", at, {"command": command}, headers=headers, key=False).json["id"]
                   for command in ("echo up; sleep 1000", "while echo more; do sleep 0.1; done"))
    by_session, _ = session(server, key=key)
    short = runs_out(server, 6, "logging")
    streams = [open_stream(server, {"Cookie": short}, f"{at}/{process}/log") for process in (quiet, busy)]
    for stream in streams:
        wait_for_end(stream)
    streams = [open_stream(server, more, f"{at}/{process}/log") for process in (quiet, busy) for more in (headers, {"Cookie": by_session})]
    other = create(server, "logging", "--name", "logging-other")
    cove(server, "key", "revoke", "logging")
    for stream in streams:
        wait_for_end(stream)
    assert server.request("DELETE", f"{API}/sandboxes/{made['id']}", key=other).status == 200


def test_signing_out_takes_the_cookie_away(server):
    cookie, token = session(server)
    reply = server.request("DELETE", f"{API}/session", headers={"Cookie": cookie, "Origin": origin(server), "X-Console-Token": token}, key=False)
    assert reply.status == 200 and "Max-Age=0" in reply.headers["Set-Cookie"]


# --- sandboxes ------------------------------------------------------------------------------------------------------

def test_a_sandbox_is_made_shown_paused_resumed_extended_and_ended(server):
    box = server.post(f"{API}/sandboxes", {"seconds": 600}).json
    path = f"{API}/sandboxes/{box['id']}"
    assert box["state"] == "running" and box["dialect"] == "console"
    assert box["id"] in [b["id"] for b in server.request("GET", f"{API}/sandboxes").json["sandboxes"]]
    assert server.post(f"{path}/pause", {}).json["state"] == "paused"
    assert server.request("GET", f"{path}/files?path=/").status == 409
    assert server.post(f"{path}/resume", {}).json["state"] == "running"
    later = server.post(f"{path}/extend", {"seconds": 1200}).json["ends"]
    assert later > box["ends"]
    assert server.request("DELETE", path).status == 200
    assert server.request("GET", path).status == 404


def test_bad_input_is_named(server, console):
    for path, body, field in [("", {"template": 7}, "template"), ("", {"seconds": -1}, "seconds"), ("", {"template": "nosuch"}, "template")]:
        reply = server.post(f"{API}/sandboxes{path}", body)
        assert 400 <= reply.status < 500 and field in reply.json["error"], reply
    for rest, body, field in [("/extend", {}, "seconds"), ("/directory", {}, "path"), ("/rename", {"from": "/a"}, "to"), ("/processes", {"command": ""}, "command"),
                              ("/ports", {"port": 0, "access": "public"}, "port"), ("/ports", {"port": 1, "access": "x"}, "access"), ("/ports/link", {"port": "x"}, "port")]:
        reply = console.ask("POST", rest, body)
        assert reply.status == 400 and field in reply.json["error"], (rest, reply)
    assert console.ask("GET", "/files").status == 400
    assert console.ask("GET", "/files?path=/nosuch").status == 404


def test_events_tell_what_is_there_and_what_changes(server, console):
    seen, done = [], threading.Event()
    connection = server.connect()
    connection.request("GET", f"{API}/events", headers={"X-API-Key": server.key})
    reply = connection.getresponse()

    def listen():
        kind = ""
        while line := reply.readline():
            if line.startswith(b"event: "):
                kind = line[7:].strip().decode()
            elif line.startswith(b"data: "):
                seen.append((kind, json.loads(line[6:])))
                if done.is_set():
                    return

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    told = lambda kind, box: any(k == kind and data.get("id") == box for k, data in seen)
    wait_for(lambda: told("sandbox", console.id) and any(k == "ready" for k, _ in seen), what="what is there is told")
    other = server.post(f"{API}/sandboxes", {}).json["id"]
    wait_for(lambda: told("sandbox", other), what="a new sandbox is told")
    server.post(f"{API}/sandboxes/{other}/pause", {})
    wait_for(lambda: any(k == "sandbox" and d["id"] == other and d["state"] == "paused" for k, d in seen), what="its pause is told")
    done.set()
    server.request("DELETE", f"{API}/sandboxes/{other}")
    wait_for(lambda: told("gone", other), what="its end is told")
    connection.close()


def told_by(reply, seconds=90):
    """Events of a stream as (kind, data). A stream that tells nothing still sends comments: the bound is here."""
    kind, end = "", time.monotonic() + seconds
    while line := reply.readline():
        assert time.monotonic() < end, f"{seconds} s, and what is waited for was not told"
        if line.startswith(b"event: "):
            kind = line[7:].strip().decode()
        elif line.startswith(b"data: "):
            yield kind, json.loads(line[6:])
    raise AssertionError("the stream ended")


def follow(console, path, key=None):
    connection = console.server.connect()
    connection.request("GET", f"{API}{path}", headers={"X-API-Key": key or console.server.key})
    return told_by(connection.getresponse())


def test_the_list_tells_what_each_sandbox_uses(console):
    """As the keeper takes samples: the first time with those that there are, then the new ones."""
    stream = follow(console, "/events")
    first, second = ([data for kind, data in stream_until(stream, "usage", console.id)][-1] for _ in range(2))
    assert 1 <= len(first["cpu"]) <= 24 and len(second["cpu"]) == 1 and all(n >= 0 for n in first["cpu"])
    assert 0 < first["memoryBytes"] < first["memoryLimit"] and first["diskLimit"] > 0 and first["diskBytes"] >= 0


def stream_until(stream, kind, box):
    for told, data in stream:
        yield told, data
        if told == kind and data["id"] == box:
            return


def test_commands_tell_how_they_ended_and_why(server):
    """Of every dialect, the oldest first, and as they end; without secrets, and of this sandbox alone."""
    run = lambda command: server.execute("console-commands", command)
    reply = run("exit 3")
    run("sleep 60")  # the server's own time limit ends it
    run("export API_KEY=sk-abcdefghijklmnopqrstuvwxyz0123456789; true")
    other = server.execute("console-commands-2", "echo of another")
    console = Console(server, reply.id)
    stream = follow(console, f"/sandboxes/{reply.id}/commands")
    told = [next(stream)[1] for _ in range(3)]
    assert [(one["exitCode"], one["endedBy"], one["dialect"]) for one in told] == [(3, "own", "execute"), (124, "deadline", "execute"), (0, "own", "execute")]
    assert told[0]["command"] == "exit 3" and "3" in told[0]["reason"] and told[1]["reason"] and told[1]["durationMs"] > 0
    assert "sk-abcdef" not in told[2]["command"] and "redacted" in told[2]["command"]
    server.post("/run", {"cmd": "kill -9 $$"}, headers={"X-Project-Id": "console-commands"})
    live = next(stream)[1]
    assert (live["dialect"], live["exitCode"], live["command"]) == ("executor", 137, "kill -9 $$")
    for project in ("console-commands", "console-commands-2"):
        server.cleanup(project)
    assert other.id != reply.id


def test_builds_are_their_tenants_own(server, console):
    """That they are shown as they go on is tests/clients/console.test.mjs."""
    other = server.add_key("console-builds")
    theirs = server.post("/v3/templates", {"name": "their-build"}, key=other).json
    made = server.post("/v3/templates", {"name": "console-build"}).json
    kind, told = next(follow(console, "/builds"))
    assert (kind, told["id"], told["name"], told["state"]) == ("build", made["buildID"], "console-build", "waiting")
    assert next(follow(console, "/builds", key=other))[1]["id"] == theirs["buildID"], "the newest is told first, and ours is newer"
    assert server.request("GET", f"{API}/builds/{made['buildID']}/log", key=other).status == 404
    assert server.request("GET", f"{API}/builds/{'x' * 3000}/log").status == 404
    server.request("DELETE", "/templates/console-build")
    server.request("DELETE", "/templates/their-build", key=other)


def test_a_builder_that_has_just_died_is_waited_for(server, console):
    """The keeper stands still meanwhile: it would replace the builder at once."""
    (old,) = server.titles("cove: builder")
    replies, listing = [], ["ss", "-Hxl", "src", f"{server.run_dir}/builder.sock"]
    asking = threading.Thread(target=lambda: replies.append(server.post("/v3/templates", {"name": "console-build"})))
    os.kill(server.keeper_pid, signal.SIGSTOP)
    try:
        os.kill(old, signal.SIGKILL)
        asking.start()
        wait_for(lambda: subprocess.run(listing, capture_output=True, text=True, check=True).stdout.split()[2] == "1", 30, "a question to the builder")
    finally:
        os.kill(server.keeper_pid, signal.SIGCONT)
    asking.join()
    (made,) = replies
    assert made.status == 202, made
    assert next(told for _, told in follow(console, "/builds") if told["id"] == made.json["buildID"])["state"] == "waiting"
    server.request("DELETE", "/templates/console-build")


def test_usage_tells_limits_and_samples_as_they_come(console):
    connection = console.server.connect()
    connection.request("GET", f"{API}/sandboxes/{console.id}/usage", headers={"X-API-Key": console.server.key})
    seen = {}
    for kind, data in told_by(connection.getresponse()):
        seen[kind] = data
        if kind == "usage":
            break
    assert seen["limits"]["memoryBytes"] > 0
    assert seen["usage"]["memoryBytes"] > 0 and seen["usage"]["cpuPercent"] >= 0 and "time" in seen["usage"]
    assert seen["usage"]["sentBytesPerSecond"] >= 0 and seen["usage"]["receivedBytesPerSecond"] >= 0
    connection.close()


# --- files ----------------------------------------------------------------------------------------------------------

def test_a_file_is_written_read_listed_renamed_and_removed(console):
    assert console.ask("PUT", "/file?path=/workspace/a%20b.txt", "text").status == 200
    names = {entry["name"]: entry for entry in console.ask("GET", "/files?path=/workspace").json["entries"]}
    assert names["a b.txt"]["kind"] == "file" and names["a b.txt"]["bytes"] == 4
    reply = console.ask("GET", "/file?path=/workspace/a%20b.txt")
    assert reply.body == b"text"
    assert reply.headers["Content-Disposition"] == "attachment" and reply.headers["X-Content-Type-Options"] == "nosniff"
    assert console.ask("POST", "/rename", {"from": "/workspace/a b.txt", "to": "/workspace/c"}).status == 200
    assert console.ask("POST", "/directory", {"path": "/workspace/d/e"}).status == 200
    for path in ("/workspace/c", "/workspace/d"):
        assert console.ask("DELETE", f"/file?path={path}").status == 200
        assert console.ask("GET", f"/file?path={path}").status == 404


def test_a_name_that_is_not_utf8_is_opened_renamed_and_removed(console):
    console.ask("PUT", "/file?path=/tmp/%ff%20d%25/a%fe", "hello")
    folder, = (x for x in console.ask("GET", "/files?path=/tmp").json["entries"] if x.get("encoded"))
    assert (folder["encoded"], folder["kind"]) == ("%ff%20%64%25", "directory") and folder["name"].endswith(" d%")
    inside = f"/tmp/{folder['encoded']}"
    (entry,) = console.ask("GET", f"/files?path={inside}").json["entries"]
    assert console.ask("GET", f"/file?path={inside}/{entry['encoded']}").body == b"hello"
    assert console.ask("POST", f"/directory?path={inside}/%fdmade", {}).status == 200
    assert console.ask("POST", f"/rename?path={inside}/{entry['encoded']}&to={inside}/%fc", {}).status == 200
    assert console.ask("POST", f"/rename?path={inside}/%fc", {"to": "/tmp/plain"}).status == 200
    assert [x["encoded"] for x in console.ask("GET", f"/files?path={inside}").json["entries"]] == ["%fd%6d%61%64%65"]
    assert console.ask("GET", "/file?path=/tmp/plain").body == b"hello"
    assert console.ask("DELETE", f"/file?path={inside}").status == 200
    plain, = console.ask("GET", "/files?path=/tmp").json["entries"]
    assert plain["name"] == "plain" and "encoded" not in plain
    for path, body, field in (("/directory", {}, "path"), ("/rename", {"to": "/tmp/x"}, "from"), ("/rename?path=", {"to": "/tmp/x"}, "from"),
                              ("/rename?path=/tmp/plain", {}, "to")):
        reply = console.ask("POST", path, body)
        assert reply.status == 400 and reply.json["error"].startswith(field)


def test_a_save_over_somebody_elses_change_is_refused(console):
    version = console.ask("PUT", "/file?path=/workspace/shared", "one").json["version"]
    console.server.request("PUT", f"{API}/sandboxes/{console.id}/file?path=/workspace/shared", "another, longer")
    reply = console.ask("PUT", "/file?path=/workspace/shared", "mine", headers={"If-Match": version})
    assert reply.status == 409 and "changed" in reply.json["error"]
    assert console.ask("GET", "/file?path=/workspace/shared").body == b"another, longer"
    assert console.ask("PUT", "/file?path=/workspace/shared", "x", headers={"If-None-Match": "*"}).status == 409


def test_a_folder_comes_as_an_archive_and_a_missing_one_as_a_cut(console):
    console.ask("PUT", "/file?path=/workspace/tree/x/y", "deep")
    reply = console.ask("GET", "/archive?path=/workspace/tree")
    with tarfile.open(fileobj=io.BytesIO(reply.body)) as tar:
        assert tar.extractfile("./x/y").read() == b"deep"
    with pytest.raises(Exception):
        console.ask("GET", "/archive?path=/nosuch")


# --- processes and ports --------------------------------------------------------------------------------------------

def test_a_process_is_started_followed_and_killed(console):
    started = console.ask("POST", "/processes", {"command": "echo one; echo two >&2; exec sleep 600"}).json
    listed = lambda: next(p for p in console.ask("GET", "/processes").json["processes"] if p["id"] == started["id"])
    assert listed()["running"] and listed()["log"]
    connection = console.server.connect()
    connection.request("GET", f"{API}/sandboxes/{console.id}/processes/{started['id']}/log", headers={"X-API-Key": console.server.key})
    reply, lines = connection.getresponse(), {}
    while len(lines) < 2:
        line = reply.readline()
        if line.startswith(b"data: "):
            event = json.loads(line[6:])
            lines[event["stream"]] = event["text"]
    assert lines == {"stdout": "one", "stderr": "two"}
    assert console.ask("DELETE", f"/processes/{started['id']}").status == 200
    assert not listed()["running"] and listed()["reason"]
    connection.close()


def test_the_list_of_processes_is_told_whenever_it_changes(console):
    told = follow(console, f"/sandboxes/{console.id}/processes/events")
    assert next(told) == ("processes", {"processes": []})
    started = console.ask("POST", "/processes", {"command": "exec sleep 600"}).json["id"]
    mine = lambda running: next(data for _, data in told if [p["id"] for p in data["processes"] if p["running"] == running] == [started])
    assert "exec sleep 600" in mine(True)["processes"][0]["command"]
    console.ask("DELETE", f"/processes/{started}")
    assert mine(False)["processes"][0]["reason"]


def test_a_refused_command_names_its_rule(console):
    reply = console.ask("POST", "/processes", {"command": "rm -rf /"})
    assert reply.status == 403 and "refused by the rule rm-" in reply.json["error"]


def test_a_port_that_listens_is_listed_and_its_link_opens_it(console):
    console.ask("POST", "/processes", {"command": "cd /workspace && exec python3 -m http.server 8123"})
    wait_for(lambda: 8123 in [p["port"] for p in console.ask("GET", "/ports").json["ports"]], what="the port is listed")
    url = console.ask("POST", "/ports/link", {"port": 8123}).json["url"]
    assert f"8123-{console.id}." in url and "token=" in url


# --- policy ---------------------------------------------------------------------------------------------------------

def test_the_test_bench_tells_rule_and_form_and_runs_nothing(server):
    reply = server.post(f"{API}/policy/test", {"command": "sudo rm  -rf /"}).json
    assert reply["denied"] and reply["rule"] == "rm-rf" and reply["form"] in ("raw", "words")
    assert any(form["denied"] for form in reply["forms"])
    assert not server.post(f"{API}/policy/test", {"command": "ls"}).json["denied"]
    assert server.post(f"{API}/policy/test", {"command": "ls", "dialect": "nosuch"}).status == 400


# --- other tenants --------------------------------------------------------------------------------------------------

def test_snapshots_and_forks_carry_the_files(server, console):
    console.ask("PUT", "/file?path=/workspace/f", "kept")
    made = console.ask("POST", "/snapshots", {"name": "kept"})
    assert made.status == 201 and made.json["name"] == "kept" and made.json["sandbox"] == console.id, made
    assert made.json["id"] in [one["id"] for one in server.request("GET", f"{API}/snapshots").json["snapshots"]]
    for reply in (console.ask("POST", "/fork", {}), server.post(f"{API}/sandboxes", {"template": "kept"})):
        assert reply.status == 201 and reply.json["id"] != console.id, reply
        assert server.request("GET", f"{API}/sandboxes/{reply.json['id']}/file?path=/workspace/f").body == b"kept"
        server.request("DELETE", f"{API}/sandboxes/{reply.json['id']}")
    other = server.add_key("console-snapshots")
    assert server.request("GET", f"{API}/snapshots", key=other).json["snapshots"] == []
    assert server.request("DELETE", f"{API}/snapshots/{made.json['id']}", key=other).status == 404
    assert server.request("DELETE", f"{API}/snapshots/kept").status == 200
    assert server.request("DELETE", f"{API}/snapshots/kept").status == 404


def test_refused_commands_are_told_with_their_rule(server, console):
    assert console.ask("GET", "/refusals").json["refusals"] == []
    for i in range(9):
        assert console.ask("POST", "/processes", {"command": f"echo {i}; rm -rf /"}).status == 403
    seen = console.ask("GET", "/refusals").json["refusals"]
    assert len(seen) == 8 and all(one["rule"] for one in seen), seen
    assert [one["command"] for one in seen] == [f"echo {i}; rm -rf /" for i in range(8, 0, -1)]


def test_every_route_of_another_tenants_sandbox_is_404(server, console):
    other = server.add_key("console-other")
    rows = re.findall(r'\{ (GET|POST|PUT|DELETE), "(/sandboxes/\{id\}[^"]*)"', read(f"{TOP}/fcgi/dialects/console.c"))
    bodies = {"/extend": {"seconds": 60}, "/directory": {"path": "/x"}, "/rename": {"from": "/a", "to": "/b"}, "/processes": {"command": "id"},
              "/ports": {"port": 80, "access": "public"}, "/ports/link": {"port": 80}}
    assert len(rows) > 15
    for method, pattern in rows:
        path = pattern.replace("{id}", console.id).replace("{process}", "1")
        body = bodies.get(pattern.removeprefix("/sandboxes/{id}"), {}) if method == "POST" else "x" if method == "PUT" else None
        query = "?path=/etc/passwd" if re.search(r"/(files?|archive)$", path) else ""
        reply = server.request(method, f"{API}{path}{query}", body, key=other)
        assert reply.status == 404, (method, pattern, reply)
    assert console.id not in [b["id"] for b in server.request("GET", f"{API}/sandboxes", key=other).json["sandboxes"]]
