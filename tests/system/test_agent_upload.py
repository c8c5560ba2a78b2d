"""/upload-file: any order of fields, large files, and forms that are wrong in every way."""
import contextlib
import hashlib
import os
import re
import socket

import pytest

from agent import BASE, Agent, form, is_error
from cove import read, wait_for


@pytest.fixture
def agent(server):
    client = Agent(server)
    yield client
    client.done()


@pytest.fixture
def sandbox(agent):
    return agent.create()


def parts(sandbox, path="/workspace/up.bin", content=b"\r\n--cove\0\xff" * 999):
    return {"sandbox_id": ("sandbox_id", sandbox.encode()), "file_path": ("file_path", path.encode()),
            "file": ("file", content, "up.bin")}


def left_behind(agent, sandbox):
    return agent.output(sandbox, "ls -A /workspace")


@pytest.mark.parametrize("order", [("sandbox_id", "file_path", "file"), ("file", "sandbox_id", "file_path"),
                                   ("file_path", "file", "sandbox_id"), ("sandbox_id", "file", "file_path")])
def test_fields_may_come_in_any_order(agent, sandbox, order):
    p = parts(sandbox)
    data = agent.data(agent.upload(form(("other", b"ignored"), *[p[name] for name in order])))
    assert data == {"success": True, "message": "File uploaded to /workspace/up.bin"}
    digest = hashlib.sha256(p["file"][1]).hexdigest()
    assert agent.output(sandbox, "sha256sum < /workspace/up.bin").split()[0] == digest
    assert left_behind(agent, sandbox) == "up.bin\n"


def test_an_empty_file_is_a_file(agent, sandbox):
    p = parts(sandbox, content=b"")
    for order in (("sandbox_id", "file_path", "file"), ("file", "sandbox_id", "file_path")):
        agent.data(agent.upload(form(*[p[name] for name in order])))
        assert agent.output(sandbox, "stat -c %s /workspace/up.bin; rm /workspace/up.bin") == "0\n"


@pytest.mark.parametrize("missing", ["sandbox_id", "file_path", "file"])
def test_a_missing_field_is_named_and_nothing_is_written(agent, sandbox, missing):
    p = parts(sandbox)
    body = form(*[part for name, part in p.items() if name != missing])
    assert missing in is_error(agent.upload(body), 400, "SandboxValidationError")
    assert left_behind(agent, sandbox) == ""


@pytest.mark.parametrize("twice", ["sandbox_id", "file_path", "file"])
def test_a_field_given_twice_is_refused(agent, sandbox, twice):
    p = parts(sandbox)
    assert twice in is_error(agent.upload(form(*p.values(), p[twice])), 400, "SandboxValidationError")
    assert left_behind(agent, sandbox) == "", "also when the file was there already"


def test_forms_that_are_none(agent, sandbox):
    good = form(*parts(sandbox).values())
    nested = form(("sandbox_id", sandbox.encode()), ("file_path", b"/workspace/up.bin")).replace(b"--cove-boundary--\r\n", b"") + \
        b'--cove-boundary\r\nContent-Disposition: form-data; name="file"\r\nContent-Type: multipart/mixed; boundary=inner\r\n\r\n' + \
        b'--inner\r\nContent-Disposition: file; filename="a"\r\n\r\nx\r\n--inner--\r\n'
    wrong = {
        "no boundary in the head": agent.ask("POST", "/upload-file", good, headers={"Content-Type": "multipart/form-data"}),
        "a boundary without end": agent.upload(good, boundary="b" * 5000),
        "no form at all": agent.upload(good, kind="application/json"),
        "another boundary": agent.upload(good, boundary="other"),
        "no last boundary": agent.upload(good.replace(b"--cove-boundary--", b"")),
        "a part without a name": agent.upload(good.replace(b"Content-Disposition", b"X-Disposition")),
        "a head without end": agent.upload(b"--cove-boundary\r\nX: " + b"x" * 100000),
        "a NUL in a head": agent.upload(good.replace(b"form-data", b"form\0data", 1)),
        "a NUL in a field": agent.upload(form(("sandbox_id", b"a\0b"), *list(parts(sandbox).values())[1:])),
        "a name that is too long": agent.upload(form(("sandbox_id", b"a" * 100000), *list(parts(sandbox).values())[1:])),
        "text that is no UTF-8": agent.upload(form(("sandbox_id", sandbox.encode()), ("file_path", b"/workspace/\xff"), ("file", b"x", "x"))),
        "too many parts": agent.upload(form(*[("x", b"")] * 1100, *parts(sandbox).values())),
        "nested and cut": agent.upload(nested),
        "nothing": agent.upload(b""),
    }
    for what, reply in wrong.items():
        assert is_error(reply, 400, "SandboxValidationError"), what
    assert left_behind(agent, sandbox) == ""
    inner = nested + b"--cove-boundary--\r\n"
    agent.data(agent.upload(inner))
    assert agent.output(sandbox, "grep -c inner /workspace/up.bin") == "2\n", "a nested form is the file's content, not more fields"


def test_where_a_file_cannot_go_it_does_not_go(agent, sandbox):
    for path in ("/proc/x", "/dev/null", "/workspace", "/workspace/" + "x" * 300):
        for order in (("sandbox_id", "file_path", "file"), ("file", "sandbox_id", "file_path")):
            p = parts(sandbox, path)
            reply = agent.upload(form(*[p[name] for name in order]))
            assert 400 <= reply.status < 500 and reply.json["error"], (path, reply)
    is_error(agent.upload(form(*parts("sandbox-" + "b" * 20).values())), 404, "SandboxNotFoundException")
    assert left_behind(agent, sandbox) == ""


def test_an_upload_that_breaks_off_leaves_the_old_file(agent, sandbox):
    agent.output(sandbox, "echo old > /workspace/up.bin")
    body = form(*parts(sandbox, content=b"n" * 500000).values())
    head = (f"POST {BASE}/upload-file HTTP/1.1\r\nHost: cove.localhost\r\nX-API-Key: {agent.server.key}\r\n"
            f"Content-Type: multipart/form-data; boundary=cove-boundary\r\nContent-Length: {len(body)}\r\n\r\n").encode()
    with contextlib.closing(socket.create_connection(("127.0.0.1", agent.server.http))) as s:
        s.sendall(head + body[:300000])
    wait_for(lambda: left_behind(agent, sandbox) == "up.bin\n", what="the part to be gone")
    assert agent.output(sandbox, "cat /workspace/up.bin") == "old\n"


def test_a_file_above_upload_max_is_413_wherever_it_stands(make_server):
    agent = Agent(make_server(upload_max="1M"))
    sandbox = agent.create()
    p = parts(sandbox, content=b"x" * ((1 << 20) + 1))
    for order in (("sandbox_id", "file_path", "file"), ("file", "sandbox_id", "file_path")):
        is_error(agent.upload(form(*[p[name] for name in order])), 413, "SandboxPayloadTooLargeError")
    assert left_behind(agent, sandbox) == ""
    p = parts(sandbox, content=b"x" * (1 << 20))
    for order in (("sandbox_id", "file_path", "file"), ("file", "sandbox_id", "file_path")):
        agent.data(agent.upload(form(*[p[name] for name in order])))


def worker_memory(server):
    return max(int(re.search(r"VmHWM:\s+(\d+)", read(f"/proc/{pid}/status")).group(1)) for pid in server.worker_pids)


class LargeForm:
    """A form of so many bytes that no process ever holds as a whole."""
    def __init__(self, head, size, tail):
        self.pieces = iter([head, *[b"L" * 65536] * (size // 65536), tail])
        self.length = len(head) + size + len(tail)

    def read(self, _=None):
        return next(self.pieces, b"")


@pytest.mark.parametrize("first", ["file", "sandbox_id"])
def test_a_large_file_takes_no_memory(make_server, first):
    agent = Agent(make_server())
    sandbox, size = agent.create(), 300 << 20
    agent.data(agent.upload(form(*parts(sandbox).values())))  # what a worker needs once
    before = worker_memory(agent.server)
    rest = form(("sandbox_id", sandbox.encode()), ("file_path", b"/workspace/large"))
    file_head = b'--cove-boundary\r\nContent-Disposition: form-data; name="file"; filename="l"\r\n\r\n'
    large = LargeForm(file_head, size, b"\r\n" + rest) if first == "file" else \
        LargeForm(rest.replace(b"--cove-boundary--\r\n", b"") + file_head, size, b"\r\n--cove-boundary--\r\n")
    reply = agent.upload(large, headers={"Content-Length": str(large.length)})
    agent.data(reply)
    assert agent.output(sandbox, "stat -c %s /workspace/large") == f"{size}\n"
    assert worker_memory(agent.server) - before < 8 << 10, "KiB"


def spool_sizes(server):
    links = ((f"/proc/{pid}/fd/{fd}", os.readlink(f"/proc/{pid}/fd/{fd}")) for pid in server.worker_pids for fd in os.listdir(f"/proc/{pid}/fd")
             if os.path.lexists(f"/proc/{pid}/fd/{fd}"))
    return [os.stat(path).st_size for path, target in links if "(deleted)" in target and "/spool/" in target]


def test_spool_files_are_shared_fairly_and_leave_nothing(make_server):
    """Two uploads of one tenant whose file comes first wait; a third is refused at once; another tenant has room."""
    server = make_server(workers=1)
    agent, other = Agent(server), Agent(server, server.add_key("other"))
    sandbox, theirs = agent.create(), other.create()
    body = form(*[parts(sandbox, content=b"w" * 1000000)[n] for n in ("file", "sandbox_id", "file_path")])
    head = (f"POST {BASE}/upload-file HTTP/1.1\r\nHost: cove.localhost\r\nX-API-Key: {server.key}\r\n"
            f"Content-Type: multipart/form-data; boundary=cove-boundary\r\nContent-Length: {len(body)}\r\n\r\n").encode()
    with contextlib.ExitStack() as stack:
        for _ in range(2):
            s = stack.enter_context(contextlib.closing(socket.create_connection(("127.0.0.1", server.http))))
            s.sendall(head + body[:500000])
        wait_for(lambda: len([size for size in spool_sizes(server) if size > 0]) == 2, what="both to hold a spool file")
        is_error(agent.upload(body), 503, "SandboxUnavailableError")
        agent.data(agent.upload(form(*parts(sandbox).values())))
        other.data(other.upload(form(*[parts(theirs)[n] for n in ("file", "sandbox_id", "file_path")])))
    wait_for(lambda: agent.upload(body).status == 200, what="spool files given back")
    sizes = spool_sizes(server)
    assert len(sizes) == 4 and sum(sizes) == 0, "as many as there were, and empty"
