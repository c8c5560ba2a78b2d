"""Bad input and faults at the front door, one test each, all through nginx."""
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess

import pytest

from cove import TOP, Server, alive, new_dir, new_key, read, title, wait_for
from executor import Executor
from test_front_nginx import nginx_pid, workers_of



def talk(server, data):
    """Bytes as they are, on a connection that stays open for the answer; whatever came back until the server closed it."""
    out = b""
    with socket.create_connection(("127.0.0.1", server.http), timeout=5) as s, contextlib.suppress(ConnectionResetError, TimeoutError):
        s.sendall(data)
        while chunk := s.recv(65536):
            out += chunk
    return out


BODY = {"projectId": "faults", "commands": ["echo in"]}

# ------------------------------------------------------------------ credentials

FORMS = {
    "X-API-Key": lambda value: value,
    "X-Relay-Secret": lambda value: value,
    "Authorization": lambda value: b"Bearer " + value,
    "X-Access-Token": lambda value: value,
}
BAD = [b"", b"e2b_", b"e2b_" + b"0" * 39, b"e2b_" + b"0" * 41, b"e2b_" + b"g" * 40, b"' OR 1=1 --", b"../../etc/cove/keys", b"%00",
       b"\xc3\xa9" * 20, b"\xff\xfe", b"\t", b"null", b"0" * 64, b"x" * 6000]


@pytest.mark.parametrize("header", FORMS)
def test_bad_tokens_are_401_in_every_header(server, header):
    for value in [*BAD, new_key().encode(), server.key[:-1].encode(), server.key.upper().encode()]:
        reply = server.post("/execute", BODY, key=False, headers={header: FORMS[header](value)})
        assert reply.status == 401 and reply.json["success"] is False, (header, value[:50])


@pytest.mark.parametrize("value", ["Bearer", "Bearer  ", "bearer{key}", "Bearer\t{key}", "Token {key}", "Bearer {key} x", "Bearer {key},",
                                   "Basic {key}", "Digest username=x", "Bearer Bearer {key}"])
def test_schemes_that_are_none_are_401(server, value):
    assert server.post("/execute", BODY, key=False, headers={"Authorization": value.format(key=server.key)}).status == 401


def test_one_good_key_beside_bad_ones_is_enough_and_the_same_whatever_the_order(server):
    server.projects.add(("faults", True))
    for good in ("X-API-Key", "X-Relay-Secret"):
        headers = {h: FORMS[h](b"e2b_" + b"0" * 40) for h in FORMS} | {good: server.key.encode()}
        assert server.post("/execute", BODY, key=False, headers=headers).status == 200


def test_a_header_that_comes_twice_is_no_key(server):
    """nginx joins what comes twice; neither half of it counts."""
    head = (f"POST /execute HTTP/1.1\r\nHost: x\r\nX-API-Key: {server.key}\r\nX-API-Key: {new_key()}\r\n"
            "Content-Length: 2\r\nConnection: close\r\n\r\n{}").encode()
    assert talk(server, head).split(b" ")[1] in (b"400", b"401")


# ------------------------------------------------------------------ request smuggling

HIDDEN = b"POST /execute HTTP/1.1\r\nHost: x\r\nX-API-Key: %KEY%\r\nContent-Length: %LEN%\r\n\r\n%BODY%"


@pytest.mark.parametrize("lie", [
    b"Transfer-Encoding: chunked\r\nContent-Length: 5", b"Content-Length: 5\r\nTransfer-Encoding: chunked",
    b"Transfer-Encoding : chunked", b"Transfer-Encoding:\tchunked\r\nContent-Length: 0", b"Transfer-Encoding: xchunked",
    b"Transfer-Encoding: chunked, identity", b"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked",
    b"X: y\r\n Transfer-Encoding: chunked", b"Content-Length: +5", b"Content-Length: 5, 5", b"Content-Length: 0x5",
    b"Content-Length: 5\r\nContent-Length: 5", b"Content-Length: -1", b"Content-Length: 99999999999999999999"],
    ids=lambda lie: lie.decode().replace("\r\n", "|"))
def test_no_lie_about_the_length_hides_a_request_in_another(server, lie):
    """Two parties that disagree on where a request ends are how one client speaks in another's name. Here a request without a key
    is followed by one that would leave a mark; if it is answered at all it is as a request of its own."""
    body = json.dumps({"projectId": "smuggled", "commands": ["echo smuggled"]}).encode()
    hidden = HIDDEN.replace(b"%KEY%", b"e2b_" + b"0" * 40).replace(b"%LEN%", str(len(body)).encode()).replace(b"%BODY%", body)
    last = b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    answer = talk(server, b"POST /execute HTTP/1.1\r\nHost: x\r\n" + lie + b"\r\n\r\n0\r\n\r\n" + hidden + last)
    statuses = [part[:3] for part in answer.split(b"HTTP/1.1 ")[1:]]
    assert statuses and set(statuses) <= {b"400", b"401", b"413", b"501"} | ({b"200"} if statuses[-1] == b"200" else set()), answer
    assert statuses.count(b"200") <= 1 and (b"200" not in statuses or answer.endswith(b'{"status":"ok"}\n')), answer
    assert not server.inits.keys() & {x.get("sandbox") for x in server.log_lines() if x.get("project") == "smuggled"}


def test_two_requests_on_one_connection_have_each_their_own_key(server):
    server.projects.add(("faults", True))
    body = json.dumps(BODY).encode()
    first = (f"POST /execute HTTP/1.1\r\nHost: x\r\nX-API-Key: {server.key}\r\nContent-Length: {len(body)}\r\n\r\n").encode() + body
    second = b"POST /execute HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    answers = talk(server, first + second).split(b"HTTP/1.1 ")[1:]
    assert [a[:3] for a in answers] == [b"200", b"401"]


# ------------------------------------------------------------------ nginx

def test_a_stream_goes_on_over_a_reload_of_nginx(make_server):
    server = make_server()
    box = Executor(server, "stream")
    box.sh("true")
    with box.stream("/run_streaming", {"cmd": "echo first; until [ -e /workspace/go ]; do sleep 0.05; done; echo last"}) as stream:
        events = iter(stream)
        while "first" not in str(next(events).data):
            pass
        before = workers_of(nginx_pid(server))
        os.kill(nginx_pid(server), signal.SIGHUP)
        wait_for(lambda: workers_of(nginx_pid(server)) - before, 10, "new nginx workers")
        wait_for(lambda: all("shutting down" in title(pid) or not alive(pid) for pid in before), 30, "the old ones were told to end")
        box.sh("touch /workspace/go")
        assert any("last" in str(e.data) for e in events), "the old worker of nginx carries it to its end"


def test_bodies_that_come_drop_by_drop_hold_no_thread(make_server):
    """Slow loris: more of them than there are threads, and the server answers others at once."""
    server = make_server(threads=6, short_threads=2)
    server.run("loris", "true")
    senders = []
    for path in ("/execute", "/run", "/raw_file?path=/workspace/x") * 10:
        s = socket.create_connection(("127.0.0.1", server.http))
        method = "PUT" if "raw" in path else "POST"
        length = 10 if "raw" in path else 100000
        s.sendall(f"{method} {path} HTTP/1.1\r\nHost: x\r\nX-API-Key: {'' if 'raw' in path else server.key}\r\n"
                  f"Content-Length: {length}\r\n\r\n{{".encode())
        senders.append(s)
    with contextlib.ExitStack() as stack:
        [stack.enter_context(s) for s in senders]
        assert server.run("loris", "echo quick", timeout=10) == "quick\n"


# ------------------------------------------------------------------ logs on a full disk

@pytest.fixture
def little_log_disk():
    """An instance whose logs are on a disk of their own, with room for 256 KiB."""
    server = Server(new_dir(), pool=1, workers=1, command_timeout="20s")
    log = f"{server.dir}/log"
    os.makedirs(log)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k,mode=0755", "cove-test", log], check=True)
    try:
        yield server.up()
        server.down()
    finally:
        subprocess.run(["umount", "-l", log], check=True)
        shutil.rmtree(server.dir)


def test_a_full_disk_for_the_logs_stops_nobody(little_log_disk):
    server = little_log_disk
    server.run("full", "true")
    filler = f"{server.dir}/log/filler"
    with contextlib.suppress(OSError), open(filler, "wb", buffering=0) as f:
        while True:
            f.write(b"x" * 512)
    assert os.statvfs(f"{server.dir}/log").f_bavail == 0
    for _ in range(5):
        assert server.run("full", "echo on") == "on\n"
    assert server.run("another", "echo on") == "on\n", "new sandboxes, too"
    os.kill(server.worker_pids[0], signal.SIGKILL)
    wait_for(lambda: server.execute("full", "true").status == 200, 10, "a new worker")
    os.unlink(filler)
    marker = server.execute("full", "true").headers["X-Request-Id"]
    wait_for(lambda: marker in read(f"{server.dir}/log/coved.log") and marker in read(f"{server.dir}/log/access.log"), 5,
             "logging goes on once there is room")
    [server.cleanup(p) for p in ("full", "another")]


# ------------------------------------------------------------------ the configuration

TYPOS = {"thraeds = 4": "thraeds: no such key", "threads = many": "threads", "command_timeout = 5 lightyears": "command_timeout",
         "just words": "just words", "pool = 999999999": "pool"}


def test_a_typo_in_the_configuration_is_told_with_its_line_and_the_old_one_holds(make_server):
    server = make_server()
    path = f"{server.dir}/conf/cove.conf"
    whole = read(path).rstrip("\n") + "\n"
    workers = server.worker_pids
    refusals = lambda: [x["error"] for x in server.log_lines() if x["event"].startswith("configuration refused")]
    for number, (line, words) in enumerate(TYPOS.items()):
        with open(path, "w") as f:
            f.write(whole + line + "\n")
        os.kill(server.keeper_pid, signal.SIGHUP)
        told = wait_for(lambda: len(refusals()) > number and refusals()[number], 5, "a word in the log")
        assert f"{path}:{len(whole.splitlines()) + 1}:" in told and words in told, told
        assert server.run("typo", "echo on") == "on\n"
        done = subprocess.run([f"{TOP}/.cove/inst/sbin/coved", "--check", "-c", path], text=True, capture_output=True)
        assert done.returncode == 2 and words in done.stderr
    assert server.worker_pids == workers, "nothing was restarted"
    with open(path, "w") as f:
        f.write(whole)
    os.kill(server.keeper_pid, signal.SIGHUP)
    wait_for(lambda: any(x["event"] == "configuration reloaded" for x in server.log_lines()), 5, "the mended one")
