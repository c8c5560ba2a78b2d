"""One client that sends more than anybody should: a flood is stopped at the door, whatever its requests carry."""
import contextlib
import json
import os
import secrets
import select
import socket

import pytest

from cove import new_key, read, wait_for
from test_front_nginx import edit_site

BURST, REQUESTS = 5, 40
JUNK = ["X-API-Key", "Authorization", "X-Relay-Secret", "X-Access-Token", "X-Forwarded-For", "X-Real-IP", "Cookie"]


def count_by_header(server):
    """The weakening: the limit counts by what clients write into their headers."""
    headers = "$http_authorization$http_x_api_key$http_x_relay_secret$http_x_access_token$http_x_forwarded_for$http_x_real_ip$http_cookie"
    edit_site(server, (r"limit_req_zone  \$cove_network", f"limit_req_zone  {headers}"), ("zone=cove_requests", "zone=by_header"))


@pytest.mark.weak(by=count_by_header)
@pytest.mark.parametrize("key", ["right", "wrong"])
def test_no_header_evades_the_limit(target, attempt, key):
    server = target()
    edit_site(server, (r"rate=\d+r/s", "rate=1r/m"), (r"burst=\d+", f"burst={BURST}"))
    for header in JUNK:
        replies = [server.post("/execute", {}, source=f"127.0.1.{JUNK.index(header) + 1}",
                               headers={"X-API-Key": server.key if key == "right" else new_key(), header: secrets.token_hex(20)})
                   for _ in range(REQUESTS)]
        through = [r.status for r in replies if r.status != 429]
        attempt(f"a new {header} with each request, with the {key} key",
                len(through) > 2 * BURST and f"{len(through)} of {REQUESTS} got past a limit of {BURST}")


def log_all(server):
    """The weakening: what clients chose is logged as it is, and every refused request."""
    edit_site(server, (r'"\$cove_log_uri"', '"$uri"'), (r'"\$cove_log_agent"', '"$http_user_agent"'), (r" if=\$cove_log;", ";"))


def lines_of(server):
    return [line for line in read(f"{server.dir}/log/access.log").split("\n")[:-1] if line]


@pytest.mark.weak(by=log_all)
def test_no_stranger_fills_the_disk_by_the_access_log(target, attempt):
    """Control characters take six bytes of JSON each."""
    server = target()
    before = len(lines_of(server))
    path, agent = "/" + "%01" * 2500, "\x01" * 7000
    assert server.request("GET", path, key=False, headers={"User-Agent": agent}).status == 401
    lines = wait_for(lambda: lines_of(server)[before:], 30, "its line")
    assert json.loads(lines[0])["status"] == 401
    attempt("log far more than was sent", len(lines[0]) > 10_000 and f"{len(lines[0])} bytes for a request of {len(path) + len(agent)}")
    edit_site(server, (r"rate=\d+r/s", "rate=1r/m"), (r"burst=\d+", f"burst={BURST}"))
    before = len(lines_of(server))
    replies = [server.request("GET", "/health", key=False, source="127.0.2.1").status for _ in range(200)]
    assert replies.count(429) > 150
    server.request("GET", "/health/last", key=False, source="127.0.2.2")
    lines = wait_for(lambda: (new := lines_of(server)[before:]) and "/health/last" in new[-1] and new, 30, "the last line")
    refused = sum(json.loads(line)["status"] == 429 for line in lines)
    attempt("have each refused request logged", refused > 100 and f"{refused} lines")
    assert "limiting requests" not in read(f"{server.dir}/log/nginx-error.log")


def kept_by_nginx(server):
    """Bytes of replies that nginx keeps in files. Such a file has no name any more."""
    master = read(f"{server.run_dir}/nginx.pid").strip()
    sizes = []
    for pid in read(f"/proc/{master}/task/{master}/children").split():
        for fd in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                if "/nginx/" in os.readlink(f"/proc/{pid}/fd/{fd}"):
                    sizes.append(os.stat(f"/proc/{pid}/fd/{fd}").st_size)
    return sum(sizes)


def test_replies_that_nobody_reads_do_not_fill_the_disk(target, attempt):
    """Each is 36 MB, and its client takes a few bytes."""
    server = target(output_max="8M")
    server.run("p", "true")
    body = json.dumps({"projectId": "p", "commands": ["head -c 6000000 /dev/zero"]}).encode()
    head = f"POST /execute HTTP/1.1\r\nHost: x\r\nX-API-Key: {server.key}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    with contextlib.ExitStack() as stack:
        clients = []
        for _ in range(6):
            s = stack.enter_context(socket.socket())
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            s.connect(("127.0.0.1", server.http))
            s.sendall(head.encode() + body)
            clients.append(s)
        for s in clients:
            s.settimeout(60)
            assert s.recv(12) == b"HTTP/1.1 200"
        kept = 0
        for _ in range(20):  # two seconds, in which nginx reads on if it does
            kept = max(kept, kept_by_nginx(server))
            select.select([], [], [], 0.1)
        attempt("have nginx keep replies that nobody reads", kept > 4_000_000 and f"{kept >> 20} MiB")
    assert server.execute("p", "echo on").json["stdout"] == "on\n"
