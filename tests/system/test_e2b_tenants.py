"""The e2b API with the keys of two tenants: another one's sandbox, template, build or snapshot is there for nobody else, at any endpoint.

The calls are made from the tables of routes in the code, so a new route is tried as soon as it is there. One with a name in its path that is
not known here fails until it is said below what that name stands for."""
import contextlib
import glob
import json
import re
import time
import urllib.parse

import pytest

from cove import TOP, read
from test_builds import Build

NEVER = {"id": "i" + "0" * 19, "template": "never-was", "alias": "never-was", "build": "00000000-0000-4000-8000-000000000001", "hash": "0" * 64,
         "ticket": "x", "key": "x", "token": "x", "team": "x", "webhook": "x"}
# What a route needs to get as far as looking for what its path names.
BODIES = {"/sandboxes/{id}/timeout": {"timeout": 60}, "/sandboxes/{id}/connect": {"timeout": 60}, "/v2/sandboxes": {"templateID": "{template}"},
          "/sandboxes": {"templateID": "{template}"}, "/v2/templates/{template}/builds/{build}": {"fromTemplate": "base", "steps": []},
          "/templates/tags": {"POST": {"target": "{template}:new", "tags": ["other"]}, "DELETE": {"name": "{template}", "tags": ["mine"]}},
          "/v2/templates/{template}": {"public": False}, "/templates/{template}": {"public": False}}
QUERIES = {"/sandboxes/metrics": "?sandbox_ids={id}"}
# These name nothing of anybody's, or make something of the caller's own.
OWN = {"/v3/templates", "/template-files/{ticket}"}


def table(name):
    """The rows (methods, pattern, handler) of a table of routes of the dialect."""
    rows = re.search(rf"static const struct route {name}\[\] = \{{(.*?)\n\}};", read(f"{TOP}/fcgi/dialects/e2b.c"), re.S).group(1)
    found = re.findall(r'\{ ([A-Z |]+), "([^"]*)",\s+(\w+),\s+[^}]*? \}', rows)
    assert len(found) == len(re.findall(r"^    \{ ", rows, re.M))
    return [(method, pattern, handler) for methods, pattern, handler in found for method in methods.split(" | ")]


def rpc_methods():
    """(path, is it a stream) of every remote call."""
    for file, service in (("e2b_process.c", "process.Process"), ("e2b_filesystem.c", "filesystem.Filesystem")):
        rows = re.search(r"struct rpc_method methods\[\] = \{(.*?)\n\};", read(f"{TOP}/fcgi/dialects/{file}"), re.S).group(1)
        for name, stream in re.findall(r'\{ "(\w+)",[^}]*?, (true|false),', rows):
            yield f"/{service}/{name}", stream == "true"


@pytest.fixture(scope="module")
def server():
    from cove import new_dir, stop
    from cove import Server
    server = Server(new_dir(), pool=0, workers=1)
    yield server.up()
    stop(server)


@pytest.fixture(scope="module")
def theirs(server):
    """One of everything that belongs to the first tenant, and the key of the second."""
    made = server.post("/v2/sandboxes", {"templateID": "base", "timeout": 600, "metadata": {"whose": "secret-of-the-first"}}).json
    build = Build(server, "of-the-first").ready()
    assert server.post("/templates/tags", {"target": "of-the-first:default", "tags": ["mine"]}).status == 201
    snapshot = server.post(f"/sandboxes/{made['sandboxID']}/snapshots", {"name": "of-the-first-snap"}).json
    yield {"id": made["sandboxID"], "template": build.template, "alias": build.template, "build": build.id, "token_of": made["envdAccessToken"],
           "snapshot": snapshot["snapshotID"], "key_of": server.add_key("second")}
    server.request("DELETE", f"/sandboxes/{made['sandboxID']}")
    for name in (snapshot["snapshotID"], build.template):
        server.request("DELETE", f"/templates/{urllib.parse.quote(name, safe='')}")


def fill(text, names):
    return re.sub(r"\{(\w+)\}", lambda m: urllib.parse.quote(names[m.group(1)], safe=""), text).replace("/**", "")


def body_of(method, pattern, names):
    body = BODIES.get(re.sub(r"^/v2(?=/sandboxes/)", "", pattern), {})
    body = body.get(method, body)
    if method in ("GET", "DELETE") and body is not BODIES["/templates/tags"].get(method):
        return None
    return json.loads(re.sub(r"\{(\w+)\}", lambda m: names[m.group(1)], json.dumps(body)))


def tell(server, method, pattern, names, key):
    """The status and the words of a reply, without the names that were asked for."""
    reply = server.request(method, fill(pattern + QUERIES.get(pattern, ""), names), body_of(method, pattern, names), key=key)
    text = reply.body.decode()
    if reply.status >= 400:
        told = reply.json
        assert (told["code"], type(told["message"]), reply.headers["Should-Retry"]) == (reply.status, str, "false"), (text, reply.headers)
    for name in sorted({name for name in names.values() if len(name) > 1}, key=len, reverse=True):
        for form in (urllib.parse.quote(name, safe=""), name, name.removesuffix(":default")):
            text = text.replace(form, "NAME")
    return reply.status, re.sub(r'"X-Request-Id":"[^"]*"', "", text)


@pytest.mark.parametrize("method, pattern, handler", table("control_routes"), ids=lambda x: str(x))
def test_another_tenant_finds_nothing(server, theirs, method, pattern, handler):
    key = theirs["key_of"]
    named = set(re.findall(r"\{(\w+)\}", pattern + json.dumps(body_of(method, pattern, {**NEVER, "template": "{template}", "id": "{id}"}))))
    assert named <= set(NEVER), f"say in NEVER and theirs what {named - set(NEVER)} stands for"
    for template in (theirs["template"], theirs["snapshot"]):
        names = {**NEVER, **{name: theirs[name] for name in ("id", "build")}, "template": template, "alias": template}
        status, text = tell(server, method, pattern, names, key)
        assert "secret-of-the-first" not in text and theirs["id"] not in text and theirs["token_of"] not in text, text
        if handler == "not_built":
            assert status == 501, text
        elif pattern not in OWN and named & {"id", "template", "alias", "build"}:
            assert status == 404, (status, text)
            never = template.replace("of-the-first", "never-was")  # a name of the same form: that alone decides about some words
            assert (status, text) == tell(server, method, pattern, {**NEVER, "template": never, "alias": never}, key), "told apart from what never was"
            assert tell(server, method, pattern, NEVER, key)[0] == 404, "a name of one's own that never was"
        elif pattern not in OWN and method == "GET":
            assert status == 200 and "of-the-first" not in text, (status, text)


@pytest.mark.parametrize("method, pattern", [("GET", "/sandboxes/{id}"), ("DELETE", "/sandboxes/{id}"), ("POST", "/sandboxes/{id}/timeout"), ("GET", "/sandboxes/{id}/logs"),
                                             ("GET", "/templates/{template}"), ("GET", "/templates/aliases/{alias}")])
def test_nor_does_the_time_of_an_answer_tell(server, theirs, method, pattern):
    """Pairs of requests, for what is another tenant's and for what never was, in changing order: each is the slower one about as often."""
    never = theirs["template"].replace("of-the-first", "never-was")
    names = [{**theirs, "id": theirs["id"]}, {**NEVER, "template": never, "alias": never}]
    calls = [(method, fill(pattern, n), json.dumps(body_of(method, pattern, n)), {"X-API-Key": theirs["key_of"]}) for n in names]
    slower, pairs = 0, 600
    with contextlib.closing(server.connect()) as connection:
        def took(call):
            begun = time.perf_counter_ns()
            connection.request(*call)
            reply = connection.getresponse()
            reply.read()
            assert reply.status == 404
            return time.perf_counter_ns() - begun

        for i in range(pairs):
            first, second = i % 2, 1 - i % 2
            times = {first: took(calls[first]), second: took(calls[second])}
            slower += times[0] > times[1]
    assert 0.4 < slower / pairs < 0.6, f"another tenant's was slower in {slower} of {pairs} pairs"


def test_another_tenants_key_is_no_token_for_any_call_of_envd(server, theirs):
    """401 while the sandbox lives, in the same words as with no key at all; 502 for one that never was, likewise."""
    calls = [(method, pattern, pattern.endswith("/StreamInput")) for method, pattern, _ in table("envd_routes") if "{" not in pattern and pattern != "/health"]
    calls += [("POST", path, stream) for path, stream in rpc_methods()]
    assert len(calls) >= 20
    for method, path, stream in calls:
        kind = "application/connect+json" if stream else "application/octet-stream" if path == "/files" else "application/json"
        headers = {"E2b-Sandbox-Id": theirs["id"], "E2b-Sandbox-Port": "49983", "Content-Type": kind}
        query = "?path=/etc/passwd" if path == "/files" else ""

        def told(key, box=theirs["id"]):
            reply = server.request(method, path + query, b"{}" if method == "POST" else None, headers={**headers, "E2b-Sandbox-Id": box}, key=key)
            return reply.status, reply.body

        assert told(theirs["key_of"])[0] == 401, (path, told(theirs["key_of"]))
        assert told(theirs["key_of"]) == told(False), path
        assert told(theirs["key_of"], NEVER["id"]) == told(False, NEVER["id"]), path
        assert told(False, NEVER["id"])[0] == 502, path


def test_what_was_tried_has_changed_nothing(server, theirs):
    """After all calls of the other tenant everything is as it was, and the first tenant's alone."""
    info = server.request("GET", f"/sandboxes/{theirs['id']}").json
    assert info["state"] == "running" and info["metadata"] == {"whose": "secret-of-the-first"}
    tags = server.request("GET", f"/templates/{urllib.parse.quote(theirs['template'], safe='')}/tags").json
    assert {t["tag"] for t in tags} == {"default", "mine"}
    assert any(s["snapshotID"] == theirs["snapshot"] for s in server.request("GET", "/snapshots").json)
    assert server.request("GET", "/v2/sandboxes", key=theirs["key_of"]).json == []


def test_every_route_and_call_is_documented():
    """docs/api/e2b.md names each route of the tables, whatever its parameters are called, and each remote call."""
    text = read(f"{TOP}/docs/api/e2b.md")
    plain = re.sub(r"\{\w+\}", "{}", text)
    for _, pattern, handler in table("control_routes") + table("envd_routes"):
        if pattern.startswith(("/process.", "/filesystem.", "/template-files/")):
            continue  # calls are looked for one by one; files go to an address that only the server itself hands out
        wanted = re.sub(r"\{\w+\}", "{}", pattern)
        short = wanted.rsplit("/builds/", 1)[-1] if "/builds/" in wanted else wanted
        assert wanted in plain or f".../builds/{short}" in plain or (handler == "not_built" and wanted.split("/")[1] in plain), pattern
    for path, _ in [*rpc_methods(), ("/process.Process/StreamInput", True)]:
        assert re.search(rf"\b{path.rsplit('/', 1)[1]}\b", text), path


def test_every_test_that_the_document_names_is_there():
    """A suite by its file, a test by the beginning of its title in quotes: `"create: ..."`."""
    text = read(f"{TOP}/docs/api/e2b.md")
    files = set(re.findall(r"\b(\w+\.test\.mjs|test_\w+\.py)\b", text))
    assert len(files) > 15
    for name in files:
        assert glob.glob(f"{TOP}/tests/*/{name}"), name
    titles = [t for path in glob.glob(f"{TOP}/tests/clients/*.test.mjs") for _, t in re.findall(r"""^\s*test\((['"`])(.*?)\1, """, read(path), re.M)]
    quoted = [q for q in re.findall(r'"([^"\n]{4,}?) ?\.\.\."', text)]
    assert len(quoted) > 20
    for beginning in quoted:
        assert any(t.startswith(beginning) for t in titles), f"no test's title begins with '{beginning}'"
