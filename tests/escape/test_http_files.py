"""Every file endpoint, over HTTP and through nginx, with every path trick: what a client asks for is resolved inside the
sandbox, whatever the sandbox has prepared there. No reply holds a byte of the host, and nothing on the host changes."""
import os
import urllib.parse

import pytest

import escape
from executor import Executor

READ, WRITE, RAW = "read_file", "write_file", "raw_file"


def post(name, **fields):
    return lambda box, path: box.post(f"/{name}", path=path, **fields)


def raw(method, body=None):
    return lambda box, path: box.request(method, f"/raw_file?path={urllib.parse.quote(path, safe='')}&parents", body,
                                         headers={"Content-Type": "application/octet-stream"} if body else {})


# (name, the call, what of the host it is after)
ENDPOINTS = [
    ("read_file", post("read_file"), "file"),
    ("read_file base64", post("read_file", encoding="base64"), "file"),
    ("write_file", post("write_file", content="overwritten"), "file"),
    ("write_file with parents", post("write_file", content="overwritten", create_parent_dirs=True), "file"),
    ("delete_file", post("delete_file"), "file"),
    ("make_dir", post("make_dir"), "new"),
    ("delete_dir", post("delete_dir"), "folder"),
    ("list_dir", post("list_dir"), "folder"),
    ("GET raw_file", raw("GET"), "file"),
    ("PUT raw_file", raw("PUT", b"overwritten"), "file"),
]
# (what the sandbox prepares, the path that is asked for); {to} is a path of the host
TRICKS = [
    ("true", "{to}"),
    ("true", "/../../../../../..{to}"),
    ("true", "/proc/1/root{to}"),
    ("true", "/proc/self/root/../../..{to}"),
    ("true", "/proc/1/cwd/../..{to}"),
    ("true", "/proc/1/fd/5/../../../..{to}"),
    ("true", "//./.{to}/"),
    ("true", "/workspace/%2e%2e/%2e%2e{to}"),
    ("ln -sfn {to} /workspace/l", "/workspace/l"),
    ("ln -sfn / /workspace/r", "/workspace/r/..{to}"),
    ("ln -sfn /proc/1/root /workspace/r", "/workspace/r{to}"),
    ("ln -sfn ../../../../../..{to} /workspace/l", "/workspace/l"),
    ("ln -sfn a /workspace/b; ln -sfn {to} /workspace/a", "/workspace/b"),
    ("mkdir -p /workspace/x; ln -sfn {to} /workspace/x/l", "/workspace/x/../x/l"),
]


def aim(world, what):
    return {"file": world.secret, "folder": world.folder, "new": f"{world.folder}/made"}[what]


def betrayed(world, reply):
    """Does this reply show anything of the host?"""
    import base64
    body = reply.body
    token = world.token.encode()
    return token in body or base64.b64encode(token)[:40] in body or f"kept-{world.name}".encode() in body


@pytest.mark.parametrize("name,call,what", ENDPOINTS, ids=[e[0] for e in ENDPOINTS])
def test_no_path_leads_an_endpoint_out(scene, name, call, what):
    server, world = scene
    box = Executor(server, "http-files")
    to = aim(world, what)
    for prepare, path in TRICKS:
        box.sh(prepare.format(to=to))
        reply = call(box, path.format(to=to))
        assert reply.status < 500 and not betrayed(world, reply), (path, reply)
        assert not world.changed(), path


@pytest.mark.parametrize("name,call,what", ENDPOINTS, ids=[e[0] for e in ENDPOINTS])
def test_no_swapped_folder_leads_an_endpoint_out(scene, name, call, what):
    """The classic race: a folder on the way is now a folder, now a link to the host's; sixty calls in the meantime."""
    server, world = scene
    box = Executor(server, "http-race")
    to = aim(world, what)
    folder, leaf = os.path.dirname(to), os.path.basename(to)
    box.sh("cd /workspace; rm -rf race* keep stop; mkdir -p race keep; "
           f"(while [ ! -e stop ]; do mv -T race keep/race; ln -s {folder} race; rm race; mv -T keep/race race; done)"
           " > /dev/null 2>&1 &")
    try:
        for _ in range(60):
            reply = call(box, f"/workspace/race/{leaf}")
            assert reply.status < 500 and not betrayed(world, reply), reply
    finally:
        box.sh("touch /workspace/stop")
    assert not world.changed()


def test_a_name_that_is_no_text_is_refused_or_taken_for_what_it_is(scene):
    server, world = scene
    box = Executor(server, "http-files")
    for path in ("", "\0", "/a\0/../../etc/passwd", "/" + "a" * 300, "/" + "a/" * 3000, "../../../../etc/shadow", "~root/../..", "/\udcff"):
        reply = box.request("POST", "/read_file", __import__("json").dumps({"path": path}).encode())
        assert 400 <= reply.status < 500 and not betrayed(world, reply), (path, reply)
    assert not world.changed()
