"""Tenants are walled off from each other, and a key from what it was not made for, on every route there is."""
import glob
import re

import pytest

from cove import TOP, read
from test_front_keys import becomes, create

# A body for every route of every dialect; a route that is missing here fails the test below.
EXECUTE = {"projectId": "shared", "commands": ["cat /workspace/secret; echo ran"]}
BODIES = {
    "/run": {"cmd": "cat /workspace/secret; echo ran"}, "/run_streaming": {"cmd": "cat /workspace/secret; echo ran"},
    "/write_file": {"path": "/workspace/secret", "content": "x"}, "/read_file": {"path": "/workspace/secret"},
    "/delete_file": {"path": "/workspace/secret"}, "/make_dir": {"path": "/workspace/d"},
    "/delete_dir": {"path": "/workspace"}, "/list_dir": {"path": "/workspace"}, "/raw_file": None,
    "/bind_port": {"port": 8000}, "/unbind_port": {}, "/start_process": {"cmd": "sleep 5"}, "/list_processes": None,
    "/kill_process": {"id": "x"}, "/process_logs_streaming": {"id": "x"}, "/signal_process": {"id": "x", "signal": "TERM"},
    "/process_stdin": {"id": "x", "data": "x"}, "/remove_process": {"id": "x"}, "/extend_sandbox": {"seconds": 60},
    "/port_access": {"port": 8000, "access": "private"}, "/port_link": {"port": 8000}, "/terminal": None, "/process_lines": None,
    "/**/execute": EXECUTE, "/**/cleanup": {"projectId": "shared"}, "/**/extend": {"projectId": "shared", "seconds": 60}, "/": {**EXECUTE, "action": "execute"},
    "/worker": {**EXECUTE, "action": "cleanup"},
}
# These are WebSockets.
SOCKETS = {"/terminal", "/process_lines"}
# Where the project is in the body and another tenant's name for it is simply a project of its own.
OF_EXECUTE = {"/**/execute", "/**/cleanup", "/**/extend", "/", "/worker"}


def tables():
    """{file: its rows (methods, pattern, flags)} of every table of routes in the tree."""
    found = {}
    for path in glob.glob(f"{TOP}/fcgi/**/*.c", recursive=True):
        for rows in re.findall(r"static const struct route \w+\[\] = \{(.*?)\n\};", read(path), re.S):
            found.setdefault(path, []).extend(re.findall(r'\{ ([A-Z |]+), "([^"]*)",\s+\w+,\s+([^}]*?) \}', rows))
    return found


def has_own_suite(file):
    """The routes of these dialects are tried as another tenant by tests/clients/sandbox.test.mjs (e2b), test_agent.py,
    test_mcp.py, test_console.py and test_relay.py."""
    return any(f"/dialects/{name}" in file for name in ("e2b", "agent", "mcp", "console", "relay"))


def routes(*, of_execute=True):
    return [(methods, path) for file, rows in tables().items() for methods, path, flags in rows if not has_own_suite(file)
            if "ROUTE_OPEN" not in flags and (of_execute or path not in OF_EXECUTE)]


def test_every_route_is_tried():
    assert {path for _, path in routes()} == set(BODIES)
    dialects = sum(len(re.findall(r"^    \.routes = ", read(path), re.M)) for path in glob.glob(f"{TOP}/fcgi/**/*.c", recursive=True)
                   if not has_own_suite(path))
    assert len([file for file in tables() if not has_own_suite(file)]) == dialects, "each dialect's table was found and read"
    for path, rows in tables().items():
        assert len(rows) == len(re.findall(r"^    \{ (?:GET|POST|PUT|DELETE|PATCH)", read(path), re.M)), path


def test_the_sites_locations_are_those_of_the_route_tables():
    """Short routes have a location with a short timeout, raw ones one without a bound on their body; open ones need no key."""
    site = read(f"{TOP}/nginx/snippets/cove-server.conf")
    short = re.compile(re.search(r"location ~ (\S+write_file\S+) \{", site).group(1))
    exact = set(re.findall(r"location = (/\w+) \{", site))
    for file, path, flags in [(file, path, flags) for file, rows in tables().items() for _, path, flags in rows]:
        if "{" in path or has_own_suite(file):
            continue  # hosts and paths of their own, not names at the top
        path = path.replace("/**", "")
        if "ROUTE_OPEN" in flags or "ROUTE_RAW" in flags or path == "/metrics":
            assert path in exact, path
        elif path not in exact:
            assert bool(short.search(path)) == ("ROUTE_LONG" not in flags), (path, flags)
    names = re.search(r"\(\?:(\w+(?:\|\w+)+)\)", short.pattern).group(1).split("|")
    assert {"/" + name for name in names} <= {path for _, path in routes()}, "no location for a route that is gone"


def call(server, methods, path, key, headers):
    method = "POST" if "POST" in methods else methods.split(" | ")[0]
    query = "?path=/workspace/secret" if path == "/raw_file" else ""
    if path in SOCKETS:
        headers = {**headers, "Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13",
                   "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}
    return server.request(method, path.replace("/**", "") + query, BODIES[path], key=key, headers=headers)


@pytest.fixture
def two(make_server):
    server = make_server()
    # The executor dialect makes the sandbox: on port 8080 of any other the sandbox's own program would be asked, and no route of ours.
    assert server.request("POST", "/run", {"cmd": "true"}, headers={"X-Project-Id": "shared"}).status == 200
    mine = server.execute("shared", "echo tenant-secret > /workspace/secret; sleep 1000 & echo")
    other = create(server, "other")
    becomes(server, other, 200, "own")
    return server, mine.id, other


def test_no_route_shows_or_changes_another_tenants_sandbox(two):
    server, sandbox, other = two
    for methods, path in routes():
        for headers in ({"X-Project-Id": "shared"}, {"X-Project-Id": sandbox}, {"X-Project-Id": f"sandbox_{sandbox}"},
                        {"Host": f"8080-{sandbox}.cove.localhost"}):
            reply = call(server, methods, path, other, headers)
            assert b"tenant-secret" not in reply.body, (path, headers)
            assert reply.status != 500, (path, headers, reply)
    assert server.post("/cleanup", {"projectId": "shared"}, key=other).status == 200
    assert server.run("shared", "cat /workspace/secret") == "tenant-secret\n", "still there, and still the same"
    server.cleanup("shared", key=other)


def test_an_id_of_another_tenant_is_not_there_by_any_name(two):
    """404 for what is not yours, the same as for what does not exist: ids cannot be tried out."""
    server, sandbox, other = two
    for methods, path in routes(of_execute=False):
        theirs = call(server, methods, path, other, {"Host": f"8080-{sandbox}.cove.localhost"})
        nobodys = call(server, methods, path, other, {"Host": f"8080-{'a' * 20}.cove.localhost"})
        assert theirs.status == nobodys.status, (path, theirs, nobodys)
        assert theirs.body.replace(sandbox.encode(), b"") == nobodys.body.replace(b"a" * 20, b""), path


def test_a_key_for_one_project_reaches_no_other_by_any_route_or_name(two):
    server, sandbox, _ = two
    key = create(server, "default", "--projects", "own-*")
    becomes(server, key, 200, "own-1")
    for methods, path in routes(of_execute=False):
        for headers in ({"X-Project-Id": "shared"}, {"Host": f"8080-{sandbox}.cove.localhost"}):
            reply = call(server, methods, path, key, headers)
            assert reply.status in (400, 403, 404, 502), (path, headers, reply)  # 502: a host name of nothing that is yours
            assert b"tenant-secret" not in reply.body
    for path in OF_EXECUTE:
        assert call(server, "POST", path, key, {}).status == 403, path
    assert server.run("shared", "cat /workspace/secret") == "tenant-secret\n"


def test_a_key_for_one_dialect_does_not_open_another(two):
    server, _, _ = two
    key = create(server, "default", "--dialects", "execute")
    becomes(server, key, 200, "d")
    for methods, path in routes(of_execute=False):
        assert call(server, methods, path, key, {}).status == 403, path
    key = create(server, "default", "--dialects", "executor")
    becomes(server, key, 403, "d")
    for path in OF_EXECUTE:
        assert call(server, "POST", path, key, {}).status == 403, path


def test_background_processes_have_a_quota(make_server):
    server = make_server(tenant_processes=2)
    start = lambda project: server.request("POST", "/start_process", {"cmd": "sleep 1000"}, headers={"X-Project-Id": project})
    first = start("a")
    assert first.status == 201 and start("b").status == 201, "counted in all sandboxes together"
    for project in ("a", "b", "c"):
        reply = start(project)
        assert reply.status == 429 and int(reply.headers["Retry-After"]) > 0 and "quota" in reply.json["error"]
    assert server.request("POST", "/run", {"cmd": "true"}, headers={"X-Project-Id": "a"}).status == 200
    assert server.request("POST", "/kill_process", {"id": first.json["id"]}, headers={"X-Project-Id": "a"}).status == 200
    assert start("a").status == 201
