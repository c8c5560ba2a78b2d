"""Every port of a sandbox has a host name: PORT-ID.DOMAIN, through nginx and the gate."""
import collections
import contextlib
import ctypes
import hashlib
import http.client
import json
import os
import re
import resource
import select
import signal
import socket
import ssl
import stat
import struct
import subprocess
import threading
import time

import pytest

from cove import alive, wait_for
from executor import Executor
from test_front_keys import cove, create
from test_pause import ask
from test_terminal import gate_pid
from websocket import WebSocket

# An app that tells what it was sent, streams, cuts, and speaks WebSocket (echo of small frames).
APP = r"""
import base64, hashlib, http.server, json, socketserver, sys, threading, time

news = threading.Event()

class App(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def reply(self, body, headers=(), status=200):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.path.startswith("/seen"):
            self.reply(json.dumps({"line": self.requestline, "headers": self.headers.items()}).encode())
        elif self.path.startswith("/status/"):
            self.reply(b"from the app", status=int(self.path.rsplit("/")[-1]))
        elif self.path == "/range":
            first, last = map(int, self.headers["Range"].removeprefix("bytes=").split("-"))
            body = b"0123456789"[first:last + 1]
            self.reply(body, [("Content-Range", f"bytes {first}-{last}/10")], status=206)
        elif self.path == "/accel":  # at one byte a second it would take an hour
            self.reply(b"mine" * 1000, [("X-Accel-Redirect", "/.cove/error"), ("X-Accel-Limit-Rate", "1"), ("X-Accel-Buffering", "yes"),
                                        ("X-Accel-Expires", "60"), ("X-Accel-Charset", "koi8-r"), ("Content-Type", "text/html")])
        elif self.path == "/chunks":
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"3\r\nabc\r\n4;x=y\r\ndefg\r\n0\r\n\r\n")
        elif self.path == "/cut":
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"x" * 10)
            self.wfile.flush()
            self.close_connection = True
        elif self.path == "/body":
            self.do_POST()
        elif self.path == "/news":
            news.wait(60)
            self.reply(b"at last")
        elif self.path == "/tell":
            news.set()
            self.reply(b"told")
        elif self.path == "/chunks-cut":
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"3\r\nabc\r\n")
            self.wfile.flush()
            self.close_connection = True
        elif self.path == "/events":
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            for i in range(1000):
                self.wfile.write(b"data: %d\n\n" % i)
                self.wfile.flush()
                time.sleep(0.2)
        elif self.path.startswith("/bytes/"):
            left = int(self.path.rsplit("/")[-1])
            self.send_response(200)
            self.send_header("Content-Length", str(left))
            self.end_headers()
            while left:
                n = min(left, 1 << 20)
                self.wfile.write(b"b" * n)
                left -= n
        elif self.headers.get("Upgrade") == "websocket":
            self.websocket()
        else:
            self.reply(b"hello from " + str(self.server.server_address[1]).encode())

    def do_POST(self):
        n, digest = 0, hashlib.sha256()
        if self.headers.get("Transfer-Encoding") == "chunked":
            while size := int(self.rfile.readline(), 16):
                piece = self.rfile.read(size)
                digest.update(piece); n += size
                self.rfile.readline()
            self.rfile.readline()
        else:
            left = int(self.headers.get("Content-Length", 0))
            while left:
                piece = self.rfile.read(min(left, 1 << 20))
                digest.update(piece); n += len(piece); left -= len(piece)
        self.reply(json.dumps({"bytes": n, "sha256": digest.hexdigest()}).encode())

    def websocket(self):
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("X-Long", "x" * int(self.path.partition("?long=")[2] or 0))
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())
        self.end_headers()
        while head := self.rfile.read(2):
            size, mask = head[1] & 127, self.rfile.read(4)
            data = bytes(b ^ mask[i % 4] for i, b in enumerate(self.rfile.read(size)))
            if head[0] & 15 == 8:
                break
            self.wfile.write(bytes([head[0], len(data)]) + data)
            self.wfile.flush()

class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    request_queue_size = 1024
    daemon_threads = True

Server((sys.argv[2] if len(sys.argv) > 2 else "127.0.0.1", int(sys.argv[1])), App).serve_forever()
"""


# What begins a WebSocket takes a way of its own through nginx (cove.conf: traffic-socket); what holds for others holds there, too.
UPGRADE = {"Upgrade": "websocket", "Connection": "Upgrade"}
both_ways = pytest.mark.parametrize("more", [{}, UPGRADE], ids=["plain", "upgrade"])


class Ports(Executor):
    """An executor sandbox with the app on port 8000."""

    more = {}  # headers of every request to the app

    def __init__(self, server, project, key=True, app=True):
        super().__init__(server, project, key)
        self.ok("/run", cmd="true")  # the sandbox is made by the executor dialect
        self.id = server.execute(project, "true", key=self.key).id.removeprefix("sandbox_")
        if app:
            self.ok("/write_file", path="/tmp/app.py", content=APP)
            self.serve(8000)

    def serve(self, port, address=""):
        self.ok("/start_process", cmd=f"python3 /tmp/app.py {port} {address}")
        self.wait_listening(port)

    def wait_listening(self, port):
        wait_for(lambda: f":{port:04X}" in self.sh("cat /proc/net/tcp /proc/net/tcp6"), 30, f"port {port} inside")

    def host(self, port=8000):
        return f"{port}-{self.id}.localhost"

    def get(self, path="/", port=8000, host=None, headers=None, credential=True, method="GET", body=None, tls=False):
        headers = {"Host": host or self.host(port), **self.more, **(headers or {})}
        if credential:
            headers["X-Access-Token"] = self.key
        return self.server.request(method, path, body, headers=headers, key=False, tls=tls)


@pytest.fixture
def ports(server, project):
    return Ports(server, project)


# ---------------------------------------------------------------------- names


def test_two_headers_name_a_port_where_all_sandboxes_have_one_address(ports):
    def ask(path="/", credential=True, id=ports.id, port="8000", host="localhost"):
        return ports.get(path, host=host, credential=credential, headers={"E2b-Sandbox-Id": id, "E2b-Sandbox-Port": port})

    assert ask().body == b"hello from 8000" and ask(credential=False).status == 401
    assert ask(id="a" * 20).status == 502 and ask(port="8001").json["port"] == 8001
    seen = dict(ask("/seen").json["headers"])
    assert not {"e2b-sandbox-id", "e2b-sandbox-port"} & {k.lower() for k in seen}
    for port in ("0", "65536", "08000", "x", ""):
        assert ask("/seen", port=port).status in (401, 404, 502), "never the app"
    assert ask(port="9", host=ports.host()).body == b"hello from 8000", "a host name comes first"



def test_a_port_is_reached_by_both_of_its_names(ports):
    for host in (f"8000-{ports.id}.localhost", f"sandbox-{ports.id}-8000.localhost",
                 f"8000-{ports.id.upper()}.LOCALHOST", f"8000-{ports.id}.localhost."):
        assert ports.get(host=host).body == b"hello from 8000", host
    assert ports.get(tls=True).body == b"hello from 8000"


def listeners(pid):
    """What a process listens on, by inode: TCP alone."""
    rows = (line.split() for name in ("tcp", "tcp6") for line in open(f"/proc/{pid}/net/{name}"))
    inodes = {f"socket:[{row[9]}]" for row in rows if row[3] == "0A"}
    return inodes & {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}


def test_a_name_takes_no_listener_and_no_thread(ports):
    gate = gate_pid(ports)
    before = listeners(gate)
    with contextlib.ExitStack() as stack:
        assert all(stack.enter_context(websocket(ports))[1].startswith(b"HTTP/1.1 101") for _ in range(30))
        assert listeners(gate) <= before and len(os.listdir(f"/proc/{gate}/task")) == 1


@pytest.mark.parametrize("port, ours", [(8080, False), (4000, False), (6060, False), (9000, False), (49983, True)])
def test_a_reserved_port_is_an_ordinary_one_in_sandboxes_of_other_apis(server, project, port, ours):
    assert server.execute(project, "true").json["success"]  # this API has no port of its own
    ports = Ports(server, project)
    ports.serve(port)
    for path in ("/", "/ws/x"):
        assert (ports.get(path, port=port).body == b"hello from %d" % port) != ours, path


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])
def test_whatever_address_the_app_listens_on(ports, address):
    ports.serve(8100, address)
    assert ports.get(port=8100).body == b"hello from 8100"


def test_an_app_on_the_ipv6_loopback_alone_is_reached(ports):
    ports.start("python3 -c \"import socket; s = socket.socket(socket.AF_INET6); s.bind(('::1', 8200)); s.listen();"
                " c = s.accept()[0]; c.recv(9999); c.sendall(b'HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nv6')\"")
    ports.wait_listening(8200)
    assert ports.get(port=8200).body == b"v6"


@pytest.mark.parametrize("host", ["0-{id}", "65536-{id}", "00080-{id}", "8000-nosuch", "8000-{id}x", "sandbox-{id}",
                                  "sandbox-{id}-0", "sandbox-{id}-99999", "8000-aaaaaaaaaaaaaaaaaaaa"])
def test_a_name_of_no_sandbox_is_502_and_nobody_elses(ports, host):
    reply = ports.request("POST", "/run", {"cmd": "echo ran"}, headers={"Host": host.format(id=ports.id) + ".localhost"})
    assert reply.status == 502, reply
    assert reply.json["message"] == "The sandbox was not found" and reply.json["code"] == 502


@both_ways
def test_unknown_foreign_and_dead_have_one_body(server, project, more):
    ports = Ports(server, project, app=False)
    ports.more = more
    stranger = {"X-Access-Token": server.add_key(project + "-stranger")}
    private = ports.get(credential=False)
    foreign = ports.get(credential=False, headers=stranger)
    server.cleanup(project, key=ports.key)
    dead = ports.get()
    unknown = ports.get(host="8000-" + "q" * 20 + ".localhost")
    assert foreign.status == dead.status == unknown.status == 502 and private.status == 401
    assert foreign.body == dead.body and dead.body.replace(ports.id.encode(), b"q" * 20) == unknown.body
    assert sorted(foreign.headers) == sorted(dead.headers) == sorted(unknown.headers)


def test_anothers_sandbox_looks_dead_also_where_our_own_api_answers(server, project):
    ports, stranger = Ports(server, project, app=False), server.add_key("stranger")
    for method, path, body in (("POST", "/run", {"cmd": "id"}), ("GET", "/nowhere", None), ("GET", "/terminal", None)):
        theirs, nobodys = (server.request(method, path, body, headers={"Host": f"8080-{id}.localhost", "X-API-Key": stranger}, key=False)
                           for id in (ports.id, "a" * 20))
        assert (theirs.status, theirs.body) == (nobodys.status, nobodys.body.replace(b"a" * 20, ports.id.encode())), path


def test_names_have_no_case_and_may_end_in_a_dot(ports):
    for host in (ports.host().upper(), ports.host() + ".", f"SANDBOX-{ports.id.upper()}-8000.localhost."):
        assert ports.get(host=host).body == b"hello from 8000", host
        assert ports.get(host=host, credential=False).status == 401, host


def test_names_of_no_port_are_the_api(server):
    assert server.request("GET", "/health", headers={"Host": "api.localhost"}).status == 200
    assert server.request("GET", "/nothing", headers={"Host": "localhost"}).status == 404


# ---------------------------------------------------------------------- who may


def test_a_private_port_wants_a_key_or_a_token(ports):
    reply = ports.get(credential=False)
    assert reply.status == 401 and reply.json["code"] == 401 and reply.json["port"] == 8000
    page = ports.get(credential=False, headers={"Accept": "text/html,*/*"})
    assert page.status == 401 and page.headers["Content-Type"].startswith("text/html") and b"private" in page.body
    for headers in ({"X-Access-Token": ports.key}, {"Authorization": f"Bearer {ports.key}"}, {"X-API-Key": ports.key}):
        assert ports.get(credential=False, headers=headers).status == 200, headers
    token = cove(ports.server, "token", ports.id).stdout.strip()
    seen = ports.get("/seen", credential=False, headers={"X-Access-Token": token})
    assert seen.status == 200 and token not in seen.body.decode()
    for headers in ({"X-Access-Token": "0" * 64}, {"Authorization": "Bearer nonsense"}, {"Cookie": "cove-port=99999999999." + "0" * 64}):
        assert ports.get(credential=False, headers=headers).status == 401, headers


def test_anothers_key_opens_nothing(ports, project):
    key = ports.server.add_key(project + "-other")
    assert ports.get(credential=False, headers={"X-Access-Token": key}).status == 502


def test_a_port_is_made_public_private_and_default_again(ports):
    assert ports.get(credential=False).status == 401
    reply = ports.ok("/port_access", port=8000, access="public")
    assert reply["url"] == f"http://8000-{ports.id}.cove.localhost:{ports.server.http}", "an address has no names below it"
    assert ports.get(credential=False).body == b"hello from 8000"
    with websocket(ports, token=False) as (_, head):
        assert head.startswith(b"HTTP/1.1 101")
    assert ports.get(port=8001, credential=False).status == 401  # of that port alone
    ports.ok("/port_access", port=8000, access="private")
    assert ports.get(credential=False).status == 401 and ports.get().status == 200
    ports.ok("/port_access", port=8000, access="default")
    assert ports.get(credential=False).status == 401
    assert ports.post("/port_access", port=8000, access="open").status == 400


def test_what_a_port_says_outlives_the_gate(ports):
    ports.ok("/port_access", port=8000, access="public")
    gate = gate_pid(ports)
    os.kill(gate, signal.SIGKILL)
    wait_for(lambda: ports.get(credential=False).status == 200, 30, "the next gate")


def test_a_signed_link_opens_a_private_port_in_a_browser(ports):
    url = ports.ok("/port_link", port=8000, seconds=60)["url"]
    path = url[url.index("/.cove/open"):]
    reply = ports.get(path, credential=False)
    assert reply.status == 302 and reply.headers["Location"] == "/"
    cookie = reply.headers["Set-Cookie"]
    assert "HttpOnly" in cookie and "Secure" not in cookie and "Domain" not in cookie
    assert "Secure" in ports.get(path, credential=False, tls=True).headers["Set-Cookie"]
    value = cookie.split(";")[0]
    seen = ports.get("/seen", credential=False, headers={"Cookie": f"a=1; {value}; b=2"})
    assert seen.status == 200
    assert dict(seen.json["headers"])["Cookie"] == "a=1; b=2"
    assert ports.get(port=8001, credential=False, headers={"Cookie": value}).status == 401  # that port alone


@pytest.mark.parametrize("query", ["", "token=", "token=1.ab", "token=99999999999." + "0" * 64, "to=/"])
def test_a_bad_link_is_401(ports, query):
    assert ports.get("/.cove/open?" + query, credential=False).status == 401


def test_a_link_leads_nowhere_else(ports):
    url = ports.ok("/port_link", port=8000)["url"]
    path = url[url.index("/.cove/open"):].replace("to=/", "to=")
    for to in ("//evil.example", "https://evil.example", "/%5Cevil.example", "/%0d%0aX:y"):
        reply = ports.get(path + to, credential=False)
        assert reply.status in (302, 400) and reply.headers.get("Location", "/") == "/", to


# ---------------------------------------------------------------------- what the app sees


@pytest.mark.parametrize("scheme", ["http", "https"])
@both_ways
def test_the_app_sees_its_own_name_and_nothing_of_ours(ports, more, scheme):
    ports.more = more
    seen = ports.get("/seen?a=%2F..//b", tls=scheme == "https", headers={
        "Cookie": "x=1; cove-port=1.abc", "X-Forwarded-For": "9.9.9.9", "X-Forwarded-Proto": "gopher", "X-Forwarded-Host": "evil.example",
        "Cove-Target": "owner x 1 json", "E2b-Traffic-Access-Token": "t", "X-Relay-Secret": ports.key, "X-Custom": "kept"}).json
    headers = {name.lower(): value for name, value in seen["headers"]}
    assert seen["line"] == "GET /seen?a=%2F..//b HTTP/1.1"
    assert headers["host"] == ports.host() and headers["x-custom"] == "kept" and headers["cookie"] == "x=1"
    assert headers["x-forwarded-for"] == "127.0.0.1" and headers["x-forwarded-proto"] == scheme
    assert headers["x-forwarded-host"] == ports.host()
    for name in ("cove-target", "x-access-token", "e2b-traffic-access-token", "x-relay-secret", "x-cove-tenant"):
        assert name not in headers, name
    assert ports.key not in json.dumps(seen)


@both_ways
def test_the_apps_own_credentials_pass_and_keys_do_not(ports, more):
    ports.more = more
    seen = ports.get("/seen", headers={"Authorization": "Bearer app-secret", "X-API-Key": "app-key"}).json
    headers = dict(seen["headers"])
    assert headers["Authorization"] == "Bearer app-secret" and headers["X-API-Key"] == "app-key"
    for name, value in (("Authorization", f"Bearer {ports.key}"), ("X-API-Key", ports.key)):
        seen = ports.get("/seen", credential=False, headers={name: value}).json
        assert name not in dict(seen["headers"]) and ports.key not in json.dumps(seen)


@both_ways
def test_two_cookies_of_our_name_leave_none(ports, more):
    ports.more = more
    seen = ports.get("/seen", headers={"Cookie": "cove-port=1.a; b=2; cove-port=1.c"}).json
    assert "cove-port" not in json.dumps(seen)


@both_ways
def test_an_app_gives_nginx_no_orders(ports, more):
    ports.more = more
    reply = ports.get("/accel")
    assert reply.status == 200 and reply.body == b"mine" * 1000
    assert reply.headers["Content-Type"] == "text/html"


@pytest.mark.parametrize("status", [200, 204, 301, 401, 403, 404, 413, 418, 429, 500, 502, 503, 504])
def test_the_apps_own_statuses_pass(ports, status):
    for more in ({}, UPGRADE):
        reply = ports.get(f"/status/{status}", headers=more)
        assert reply.status == status
        assert reply.body == (b"" if status == 204 else b"from the app")


# ---------------------------------------------------------------------- bytes


def test_uploads_and_downloads_pass_whole(ports):
    data = os.urandom(3 << 20)
    reply = ports.get("/", method="POST", body=data)
    assert reply.json == {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    assert len(ports.get(f"/bytes/{50 << 20}").body) == 50 << 20


def test_a_range_passes(ports):
    reply = ports.get("/range", headers={"Range": "bytes=2-5"})
    assert (reply.status, reply.body, reply.headers["Content-Range"]) == (206, b"2345", "bytes 2-5/10")


def test_one_kept_connection_carries_requests_to_two_sandboxes(server, project):
    both = Ports(server, project), Ports(server, project + "-other")
    connection = server.connect()
    for ports in both * 3:
        connection.request("GET", "/seen", headers={"Host": ports.host(), "X-Access-Token": ports.key})
        reply = connection.getresponse()
        assert dict(json.loads(reply.read())["headers"])["Host"] == ports.host() and not reply.will_close
    connection.close()


def curl(ports, *args, path="/", data=None, tls=False):
    scheme, port = ("https", ports.server.https) if tls else ("http", ports.server.http)
    return subprocess.run(["curl", "-sS", "-k", "--resolve", f"{ports.host()}:{port}:127.0.0.1", "-H",
                           f"X-Access-Token: {ports.key}", *args, f"{scheme}://{ports.host()}:{port}{path}"],
                          capture_output=True, input=data, timeout=60)


def test_curl_sends_chunks_and_waits_for_100_continue(ports):
    data = b"z" * 300000
    result = curl(ports, "-H", "Transfer-Encoding: chunked", "-H", "Expect: 100-continue", "--data-binary", "@-", data=data)
    assert json.loads(result.stdout) == {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}, result.stderr


def test_a_client_that_waits_for_100_continue_hears_it_before_its_body_is_there(ports):
    with socket.create_connection(("127.0.0.1", ports.server.http), timeout=60) as s:
        s.sendall(f"POST / HTTP/1.1\r\nHost: {ports.host()}\r\nX-Access-Token: {ports.key}\r\nContent-Length: 5\r\n"
                  "Expect: 100-continue\r\nConnection: close\r\n\r\n".encode())
        assert read_exactly(s, 25) == b"HTTP/1.1 100 Continue\r\n\r\n"
        s.sendall(b"hello")
        assert b'"bytes": 5' in read_exactly(s, 1 << 20)


@pytest.mark.parametrize("tls", [False, True])
def test_a_reply_in_chunks_arrives_whole(ports, tls):
    assert curl(ports, *(["--http2"] if tls else []), path="/chunks", tls=tls).stdout == b"abcdefg"


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("path", ["/cut", "/chunks-cut"])
def test_an_app_that_stops_midway_is_a_cut_not_an_end(ports, path, tls):
    result = curl(ports, *(["--http2"] if tls else []), path=path, tls=tls)
    assert result.returncode in (18, 56, 92), (result.returncode, result.stdout, result.stderr)  # 92: an error of the stream


def test_wrk_gets_an_answer_to_every_request(ports):
    out = subprocess.run(["wrk", "-t1", "-c8", "-d1s", "--timeout", "60s", "-H", f"Host: {ports.host()}", "-H", f"X-Access-Token: {ports.key}",
                          f"http://127.0.0.1:{ports.server.http}/"], capture_output=True, text=True, timeout=60).stdout
    assert int(re.search(r"(\d+) requests in", out)[1]) > 0 and "Non-2xx" not in out and "Socket errors" not in out, out


def test_http2_outside(ports):
    result = curl(ports, "--http2", "-w", "%{http_version}", tls=True)
    assert result.stdout == b"hello from 80002", result


def test_a_long_poll_is_answered_when_there_is_news(ports):
    connection = ports.server.connect(30)
    connection.request("GET", "/news", headers={"Host": ports.host(), "X-Access-Token": ports.key})
    assert ports.get("/tell").body == b"told"
    assert connection.getresponse().read() == b"at last"


def test_event_streams_are_not_held_back(ports):
    connection = ports.server.connect(20)
    connection.request("GET", "/events", headers={"Host": ports.host(), "X-Access-Token": ports.key})
    response = connection.getresponse()
    assert [response.readline() for _ in range(3)] == [b"data: 0\n", b"\n", b"data: 1\n"]
    connection.close()


def connect(ports, tls):
    if not tls:
        return socket.create_connection(("127.0.0.1", ports.server.http), timeout=60)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context.wrap_socket(socket.create_connection(("127.0.0.1", ports.server.https), timeout=60), server_hostname=ports.host())


@contextlib.contextmanager
def websocket(ports, host=None, token=True, path="/ws", tls=False):
    s = connect(ports, tls)
    s.sendall((f"GET {path} HTTP/1.1\r\nHost: {host or ports.host()}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
               "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n" +
               (f"X-Access-Token: {ports.key}\r\n" if token else "") + "\r\n").encode())
    head = b""
    while b"\r\n\r\n" not in head and (piece := s.recv(1)):
        head += piece
    try:
        yield s, head
    finally:
        s.close()


def frame(data):
    return bytes([0x81, 0x80 | len(data)]) + b"\0\0\0\0" + data


def read_exactly(s, n):
    out = b""
    while len(out) < n and (piece := s.recv(n - len(out))):
        out += piece
    return out


@pytest.mark.parametrize("tls", [False, True])
def test_websockets_pass_through(ports, tls):
    with websocket(ports, tls=tls) as (s, head):
        assert head.startswith(b"HTTP/1.1 101") and b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in head
        for text in (b"one", b"two"):
            s.sendall(frame(text))
            assert read_exactly(s, 2 + len(text)) == bytes([0x81, len(text)]) + text
    with websocket(ports, token=False, tls=tls) as (s, head):
        assert head.startswith(b"HTTP/1.1 401")


def test_the_reply_to_a_websockets_request_may_have_a_long_head(ports):
    with websocket(ports, path="/ws?long=1700") as (_, head):
        assert head.startswith(b"HTTP/1.1 101") and b"x" * 1700 in head


def test_a_body_with_an_upgrade_arrives(ports):
    """Nobody should send one, so it takes the way of other requests."""
    assert ports.get("/body", headers=UPGRADE, body=b"x" * 300_000).json["bytes"] == 300_000


@pytest.mark.parametrize("gone", ["ports.sock", "fcgi.sock"])
def test_while_the_gate_or_all_workers_restart_an_upgrade_is_503(ports, gone):
    """Nothing was begun: trying again is safe, and 503 says so."""
    path = f"{ports.server.run_dir}/{gone}"
    os.rename(path, path + ".away")
    try:
        with websocket(ports) as (_, head):
            assert head.startswith(b"HTTP/1.1 503")
    finally:
        os.rename(path + ".away", path)
    with websocket(ports) as (_, head):
        assert head.startswith(b"HTTP/1.1 101")


# ---------------------------------------------------------------------- when nothing answers


def test_a_closed_port_is_502_and_says_what_to_do(server, make_server):
    ports = Ports(make_server(port_wait="0ms"), "closed", app=False)
    reply = ports.get(port=9999)
    assert reply.status == 502
    assert reply.json["sandboxId"] == ports.id and reply.json["port"] == 9999 and reply.json["code"] == 502
    assert reply.json["message"] == "The sandbox is running but port is not open" and "listens" in reply.json["hint"]
    page = ports.get(port=9999, headers={"Accept": "text/html"})
    assert page.status == 502 and ports.id.encode() in page.body and b"9999" in page.body
    assert page.headers["Content-Type"].startswith("text/html")
    # A body that nobody reads does not cost the client its answer.
    assert ports.get(port=9999, method="POST", body=b"x" * (2 << 20)).status == 502


def test_a_port_of_a_starting_sandbox_is_waited_for(make_server):
    ports = Ports(make_server(port_wait="60s"), "starting", app=False)
    ports.ok("/write_file", path="/tmp/app.py", content=APP)
    result = {}
    thread = threading.Thread(target=lambda: result.update(reply=ports.get(port=8300)))
    thread.start()
    ports.serve(8300)
    thread.join(30)
    assert result["reply"].body == b"hello from 8300"


def pause(ports):
    assert ask(ports.server, "FREEZE", ports.id) is True


def test_traffic_wakes_a_paused_sandbox(ports):
    pause(ports)
    assert ports.get(credential=False).status == 502  # for a stranger it is not there
    assert ports.get().body == b"hello from 8000"


def test_without_wake_a_paused_sandbox_is_502_and_its_owner_knows_why(make_server):
    ports = Ports(make_server(port_wake="no"), "asleep")
    pause(ports)
    strangers, unknown = ports.get(credential=False), ports.get(credential=False, host="8000-" + "q" * 20 + ".localhost")
    assert strangers.body.replace(ports.id.encode(), b"q" * 20) == unknown.body and "reason" not in strangers.json
    reply = ports.get()
    assert reply.status == 502 and reply.json["message"] == "The sandbox was not found"
    assert reply.json["reason"] == "the sandbox is paused"


# ---------------------------------------------------------------------- verdicts that nginx keeps for a second: only good news, and only while it holds


def test_a_kept_verdict_does_not_outlive_what_it_was_given_for(ports):
    """Each change comes right after a request whose verdict nginx has kept."""
    key = cove(ports.server, "key", "create", "default", "--name", "kept").stdout.strip()
    wait_for(lambda: ports.get(credential=False, headers={"X-Access-Token": key}).status == 200, 30, "the new key")
    cove(ports.server, "key", "revoke", "kept")
    assert ports.get(credential=False, headers={"X-Access-Token": key}).status == 401, "the key is revoked"
    assert ports.get().status == 200
    pause(ports)
    assert ports.get().body == b"hello from 8000", "the sandbox was paused: it wakes"
    ports.sh("pkill -f '[a]pp.py'")
    wait_for(lambda: ports.get().status == 502, 30, "the end of the app")
    assert ports.get().json["message"] == "The sandbox is running but port is not open"
    ports.ok("/start_process", cmd="python3 /tmp/app.py 8000")
    wait_for(lambda: ports.get().status == 200, 30, "the app again")
    ports.server.cleanup(ports.project, key=ports.key)
    assert ports.get().json["message"] == "The sandbox was not found"


@pytest.mark.parametrize("size", [3000, 300_000])
def test_a_body_that_was_not_told_of_survives_a_second_try(ports, size):
    """HTTP/2 has bodies without Content-Length. The verdict is a kept one, and the gate does not follow it: the sandbox was paused meanwhile."""
    data = os.urandom(size)
    assert ports.get().status == 200
    pause(ports)
    result = curl(ports, "--http2", "-X", "GET", "-T", "-", path="/body", tls=True, data=data)
    assert json.loads(result.stdout) == {"bytes": size, "sha256": hashlib.sha256(data).hexdigest()}, result


def test_a_body_that_was_not_told_of_has_a_limit(ports):
    result = curl(ports, "--http2", "-X", "GET", "-T", "-", path="/body", tls=True, data=b"x" * 1_100_000)
    assert json.loads(result.stdout)["code"] == 413, result


def test_a_kept_verdict_is_the_callers_own(ports):
    for _ in range(3):
        assert ports.get().status == 200
        for headers in ({}, {"X-Access-Token": ""}, {"X-Access-Token": "0" * 64}, {"X-API-Key": "x"}, {"Authorization": "Bearer x"}):
            assert ports.get(credential=False, headers=headers).status == 401, headers
        assert ports.get("/seen", credential=False, headers={"Authorization": f"Bearer {ports.key}"}).status == 200
        seen = ports.get("/seen", headers={"Authorization": "Basic mine"}).json
        assert dict(seen["headers"])["Authorization"] == "Basic mine", "what was taken away from one request is another's own"


def test_a_verdict_is_kept(ports):
    """Workers that stand still are not asked while nginx knows. A verdict is kept for a second: until one try falls into it."""
    workers = ports.server.titles("cove: worker")

    def served_without_workers():
        assert ports.get().status == 200
        for pid in workers:
            os.kill(pid, signal.SIGSTOP)
        try:
            connection = ports.server.connect(timeout=0.5)
            connection.request("GET", "/", headers={"Host": ports.host(), "X-Access-Token": ports.key})
            return connection.getresponse().status == 200
        except TimeoutError:
            return False
        finally:
            for pid in workers:
                os.kill(pid, signal.SIGCONT)

    wait_for(served_without_workers, 60, "an answer that no worker was asked for")


# ---------------------------------------------------------------------- smuggling: nginx is strict, and so the gate can be dull

SMUGGLED = [
    ("two lengths", 400, "POST / HTTP/1.1\r\nHost: {host}\r\n{token}Content-Length: 4\r\nContent-Length: 5\r\n\r\nabcde"),
    ("length and chunks", 400, "POST / HTTP/1.1\r\nHost: {host}\r\n{token}Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"
                               "0\r\n\r\nGET /seen HTTP/1.1\r\nHost: {host}\r\n{token}\r\n"),
    ("strange coding", 501, "POST / HTTP/1.1\r\nHost: {host}\r\n{token}Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"),
    ("folded header", 400, "GET /seen HTTP/1.1\r\nHost: {host}\r\n{token}X-A: b\r\n Cove-Target: owner x 1 json\r\n\r\n"),
    ("two hosts", 400, "GET /seen HTTP/1.1\r\nHost: {host}\r\nHost: localhost\r\n{token}\r\n"),
    ("blank before the colon", 400, "GET /seen HTTP/1.1\r\nHost: {host}\r\n{token}Content-Length : 4\r\n\r\nabcd"),
    ("encoded host", 401, "GET /seen HTTP/1.1\r\nHost: %38000-{id}.localhost\r\n{token}Connection: close\r\n\r\n"),
    ("no host", 400, "GET /seen HTTP/1.1\r\n{token}\r\n"),
    ("a NUL", 400, "GET /seen HTTP/1.1\r\nHost: {host}\0\r\n{token}\r\n"),
]


def say(ports, text):
    """Bytes as they are, and all that comes back. The client's half stays open: nginx takes a closed one for the end."""
    with socket.create_connection(("127.0.0.1", ports.server.http), timeout=20) as s:
        s.sendall(text.encode())
        out = b""
        while piece := s.recv(65536):
            out += piece
        return out


@pytest.mark.parametrize("what,status,text", SMUGGLED, ids=[what for what, *_ in SMUGGLED])
def test_a_smuggled_request_reaches_no_app(ports, what, status, text):
    text = text.format(host=ports.host(), id=ports.id, token=f"X-Access-Token: {ports.key}\r\n")
    reply = say(ports, text)
    assert reply.startswith(b"HTTP/1.1 %d " % status) and reply.count(b"HTTP/1.1 ") == 1, reply[:500]


def test_an_absolute_uri_names_the_host(ports):
    reply = say(ports, f"GET http://{ports.host()}/seen HTTP/1.1\r\nHost: localhost\r\nX-Access-Token: {ports.key}\r\n"
                       "Connection: close\r\n\r\n")
    assert reply.startswith(b"HTTP/1.1 200") and b"GET /seen HTTP/1.1" in reply, reply[:300]


def test_bare_line_feeds_add_no_header(ports):
    reply = say(ports, f"GET /seen HTTP/1.1\nHost: {ports.host()}\nX-Access-Token: {ports.key}\nX-A: 1\nConnection: close\n\n")
    assert reply.startswith(b"HTTP/1.1 200") and b"X-A" in reply
    assert ports.key.encode() not in reply and b"Cove-Target" not in reply


# ---------------------------------------------------------------------- limits and faults


def test_a_sandbox_has_its_share_of_connections_and_others_are_unharmed(make_server):
    server = make_server(port_connections=20)
    greedy, modest = Ports(server, "greedy"), Ports(server, "modest")
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(websocket(greedy)) for _ in range(20)]
        assert all(head.startswith(b"HTTP/1.1 101") for _, head in held)
        reply = greedy.get()
        assert reply.status == 503 and reply.headers["Retry-After"] == "1" and reply.json["code"] == 503
        assert modest.get().status == 200
    wait_for(lambda: greedy.get().status == 200, 30, "room again")


# Takes every WebSocket, and says nothing.
HOLDS = r"""
import asyncio
async def hold(reader, writer):
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
    await reader.read()
async def main():
    await (await asyncio.start_server(hold, "127.0.0.1", 8000, backlog=4096)).serve_forever()
asyncio.run(main())
"""


@contextlib.contextmanager
def many_files():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before[1], 16384), max(before[1], 16384)))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_of_ten_thousand_connections_to_one_sandbox_its_share_is_served(make_server):
    server = make_server(port_connections=2000)
    greedy, modest = Ports(server, "greedy", app=False), Ports(server, "modest")
    greedy.ok("/write_file", path="/tmp/holds.py", content=HOLDS)
    greedy.ok("/start_process", cmd="python3 /tmp/holds.py")
    greedy.wait_listening(8000)
    ask = (f"GET / HTTP/1.1\r\nHost: {greedy.host()}\r\nX-Access-Token: {greedy.key}\r\nUpgrade: websocket\r\n"
           "Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n").encode()
    answers = collections.Counter()
    with many_files(), contextlib.ExitStack() as stack:
        for _ in range(20):
            batch = [stack.enter_context(socket.create_connection(("127.0.0.1", server.http), timeout=60)) for _ in range(500)]
            for s in batch:
                s.sendall(ask)
            answers.update(s.recv(12) for s in batch)
            assert modest.get().body == b"hello from 8000"
        assert answers == {b"HTTP/1.1 101": 2000, b"HTTP/1.1 503": 8000}
        refused = greedy.get()
        assert refused.status == 503 and "Too many connections" in refused.json["message"] and refused.headers["Retry-After"]
        assert server.execute("third", "echo fine").json["stdout"] == "fine\n"
    wait_for(lambda: greedy.get(headers={"Upgrade": "websocket"}).status == 101, 30, "room again")


def is_outrun(bound, free, count, each):
    """All bytes arrive. Before, a tenant without a bound has begun later and moved many times as much."""
    sizes = []
    threads = [threading.Thread(target=lambda: sizes.append(len(bound.get(f"/bytes/{each}").body))) for _ in range(count)]
    for t in threads:
        t.start()
    assert len(free.get(f"/bytes/{10 * count * each}").body) == 10 * count * each
    waited = any(t.is_alive() for t in threads)
    for t in threads:
        t.join(60)
    assert sizes == [each] * count, "all arrive whole"
    return waited


def test_a_tenant_moves_its_share_of_bytes_and_others_are_unharmed(make_server):
    server = make_server(tenant_port_rate="500K")
    set_tenant(server, "another-tenant tenant_port_rate=0")
    busy, other = Ports(server, "busy"), Ports(server, "other", key=server.add_key("another-tenant"))
    assert is_outrun(busy, other, 4, 1_000_000)


def test_an_idle_connection_is_cut_and_a_busy_one_is_not(make_server, project):
    ports = Ports(make_server(port_idle="5s"), project)
    with websocket(ports) as (idle, _), websocket(ports) as (busy, _):
        idle.settimeout(0.2)
        while True:
            busy.sendall(frame(b"x"))
            assert read_exactly(busy, 3) == b"\x81\x01x"
            try:
                assert idle.recv(1) == b""
                break
            except TimeoutError:
                pass
        for _ in range(20):  # beyond the time that was too long for the idle one
            assert select.select([busy], [], [], 0.2)[0] == []
            busy.sendall(frame(b"x"))
            assert read_exactly(busy, 3) == b"\x81\x01x"


def set_tenant(server, line):
    with open(f"{server.dir}/conf/tenants", "a") as f:
        f.write(line + "\n")


def test_a_tenants_line_bounds_its_own_traffic_and_nobody_elses(make_server):
    server = make_server()
    bound, free = Ports(server, "bound", key=server.add_key("bound")), Ports(server, "free", key=server.add_key("free"))
    with contextlib.ExitStack() as stack:
        ours, theirs = (stack.enter_context(websocket(p))[0] for p in (bound, free))
        set_tenant(server, "bound port_idle=1s tenant_connections=2 tenant_port_rate=100K")
        ours.settimeout(20)
        assert ours.recv(1) == b"", "a connection that was open already is cut, too"
        theirs.sendall(frame(b"x"))
        assert read_exactly(theirs, 3) == b"\x81\x01x"
        assert is_outrun(bound, free, 1, 700_000)
        set_tenant(server, "bound port_idle=1h tenant_connections=2")
        wait_for(lambda: may_hold(bound, 2) and not may_hold(bound, 3), 30, "the share of the tenant's line")
        assert may_hold(free, 3)


def may_hold(ports, count):
    with contextlib.ExitStack() as stack:
        heads = [stack.enter_context(websocket(ports))[1] for _ in range(count)]
        return all(head.startswith(b"HTTP/1.1 101") for head in heads)


def test_a_sandbox_of_a_tenant_has_the_share_of_the_tenants_line(make_server):
    server = make_server()
    set_tenant(server, "small port_connections=1")
    key = server.add_key("small")
    one, other = Ports(server, "one", key=key), Ports(server, "other", key=key)
    with websocket(one) as (_, head), websocket(other) as (_, second):
        assert head.startswith(b"HTTP/1.1 101") and second.startswith(b"HTTP/1.1 101")
        assert one.get().status == 503


def rates(server, name):
    """{(what, direction): bytes per second} of one metric."""
    text = server.request("GET", "/metrics").body.decode()
    return {m[1]: int(m[2]) for m in re.finditer(rf'^{name}{{(.*)}} (\d+)$', text, re.M)}


def rate_in_top(server, id):
    """The column RATE of `cove top`, and the figures of which it is the sum."""
    row, = (r for r in json.loads(cove(server, "top", "--json", "--interval", "100ms").stdout) if r["id"] == id)
    table = cove(server, "top", "--interval", "100ms").stdout.splitlines()
    head, = (line for line in table if line.startswith("SANDBOX"))
    line, = (line for line in table if line.startswith(id))
    end = head.index("RATE") + len("RATE")  # figures stand right-aligned below it
    return re.split(r"\s{2,}", line[:end])[-1], row["bytes_in_per_second"] + row["bytes_out_per_second"], row["connections"]


def test_metrics_and_top_tell_connections_and_bytes_per_second_of_sandboxes_and_tenants(make_server):
    server = make_server(tenant_port_rate="1M")
    ports = Ports(server, "busy", key=server.add_key("acme"))
    with websocket(ports):
        assert rates(server, "cove_tenant_connections")['tenant="acme"'] == 1
    seen = threading.Event()

    def read():
        with begun_download(ports, 1 << 30) as (_, response):
            while not seen.is_set():
                response.read(1 << 16)

    reading = threading.Thread(target=read)
    reading.start()
    for metric, who in (("sandbox", ports.id), ("tenant", "acme")):
        wait_for(lambda: rates(server, f"cove_{metric}_traffic_bytes_per_second").get(f'{metric}="{who}",direction="out"', 0) > 100_000,
                 30, f"the {metric}'s rate")
    wait_for(lambda: (told := rate_in_top(server, ports.id)) and told[1] > 100_000 and told[2] == 1 and re.fullmatch(r"[\d.]+ [KM]iB/s", told[0]), 30, "the rate in `cove top`")
    seen.set()
    reading.join(60)
    wait_for(lambda: rates(server, "cove_tenant_traffic_bytes_per_second")['tenant="acme",direction="out"'] == 0, 30, "quiet again")
    wait_for(lambda: rate_in_top(server, ports.id) == ("0 B/s", 0, 0), 30, "quiet again in `cove top`")


def test_the_end_of_a_sandbox_ends_its_connections(server, project):
    ports = Ports(server, project)
    with websocket(ports) as (s, head):
        assert head.startswith(b"HTTP/1.1 101")
        server.cleanup(project, key=ports.key)
        assert s.recv(1) == b""


def test_a_gate_that_dies_cuts_and_the_next_one_serves(ports):
    with websocket(ports) as (s, head):
        assert head.startswith(b"HTTP/1.1 101")
        gate = gate_pid(ports)
        os.kill(gate, signal.SIGKILL)
        assert s.recv(1) == b""
    wait_for(lambda: ports.get().status == 200, 30, "the next gate")


def test_only_nginx_and_root_reach_the_ports_socket(ports):
    mode = os.stat(f"{ports.server.run_dir}/ports.sock")
    assert mode.st_mode & 0o777 == 0o660


def test_a_line_that_is_not_nginxs_gets_no_answer(ports):
    for text in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"GET / HTTP/1.1\r\nCove-Target: owner\r\n\r\n",
                 b"GET / HTTP/1.1\r\nCove-Target: owner ../../../etc/x 8000 json\r\n\r\n", b"\r\n\r\n", b"x" * 100000):
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(20)
            s.connect(f"{ports.server.run_dir}/ports.sock")
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                s.sendall(text)
                assert s.recv(100) == b"", text[:40]


# ---------------------------------------------------------------------- apps and moments that are no help

RUDE = r"""
import socket, sys
s = socket.create_server(("127.0.0.1", int(sys.argv[1])))
held = []
while True:
    c, _ = s.accept()
    held.append(c)
    if sys.argv[2] == "headers":  # without end
        try:
            c.sendall(b"HTTP/1.1 200 OK\r\n")
            while True:
                c.sendall(b"X-More: " + b"x" * 1000 + b"\r\n")
        except OSError:
            pass
    elif sys.argv[2] == "close":  # without an answer
        c.recv(65536)
        c.close()
    elif sys.argv[2] == "early":  # an answer before the body was read
        c.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 5\r\nConnection: close\r\n\r\nenough"[:-1])
        c.shutdown(socket.SHUT_WR)
    # "silent": accepts, and neither reads nor answers
"""


def serve_rude(ports, port, how):
    ports.ok("/write_file", path="/tmp/rude.py", content=RUDE)
    ports.ok("/start_process", cmd=f"python3 /tmp/rude.py {port} {how}")
    ports.wait_listening(port)


def test_headers_without_end_are_502_and_the_next_request_is_served(ports):
    serve_rude(ports, 8001, "headers")
    assert ports.get(port=8001).status == 502
    assert ports.get().body == b"hello from 8000"


def test_an_app_that_closes_without_an_answer_is_502_and_named(ports):
    serve_rude(ports, 8001, "close")
    reply = ports.get(port=8001)
    assert reply.status == 502 and reply.json["sandboxId"] == ports.id and reply.json["port"] == 8001, reply
    assert reply.json["code"] == 502 and "closed the connection" in reply.json["message"]
    page = ports.get(port=8001, headers={"Accept": "text/html"})
    assert page.status == 502 and page.headers["Content-Type"].startswith("text/html") and ports.id.encode() in page.body


def copies_of_sockets(pid):
    """Copies of a process's TCP sockets, as an init has them that keeps one of what it hands out."""
    libc, process = ctypes.CDLL(None, use_errno=True), os.pidfd_open(pid)
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):
            fd = libc.syscall(438, process, int(name), 0)  # pidfd_getfd
            if fd < 0 or not stat.S_ISSOCK(os.fstat(fd).st_mode):
                continue
            s = socket.socket(fileno=fd)
            if s.family in (socket.AF_INET, socket.AF_INET6) and s.type == socket.SOCK_STREAM:
                yield s
    finally:
        os.close(process)


def test_an_init_that_keeps_a_copy_of_a_socket_holds_up_nobody_else(server, project):
    """It could make the socket a waiting one under the gate's hands: the gate must wait for no socket, whatever its flags say."""
    hostile, other = Ports(server, project), Ports(server, project + "-other")
    serve_rude(hostile, 8001, "silent")
    gate = gate_pid(hostile)
    with contextlib.ExitStack() as stack:
        s = stack.enter_context(socket.create_connection(("127.0.0.1", server.http), timeout=10))
        s.sendall(f"POST / HTTP/1.1\r\nHost: {hostile.host(8001)}\r\nX-Access-Token: {hostile.key}\r\n"
                  "Content-Length: 1000000000\r\n\r\n".encode())
        copies = wait_for(lambda: list(copies_of_sockets(gate)), 30, "the connection inside")
        for copy in copies:
            stack.enter_context(copy)
            os.set_blocking(copy.fileno(), True)
            copy.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 600))
        s.settimeout(0.2)
        with contextlib.suppress(TimeoutError):  # until nobody has room for more
            while True:
                s.sendall(b"x" * (1 << 20))
        assert other.get().body == b"hello from 8000", "while one waits for room"
        for copy in copies:
            copy.close()
    assert other.get().body == b"hello from 8000", "when it has been closed"


def test_an_answer_that_comes_before_the_body_was_read_arrives(ports):
    serve_rude(ports, 8001, "early")
    reply = ports.get(port=8001, method="POST", body=b"x" * 3000)
    assert (reply.status, reply.body) == (413, b"enoug")


def test_an_app_that_neither_reads_nor_answers_holds_up_nobody_else(ports):
    serve_rude(ports, 8001, "silent")
    held = []
    try:
        for _ in range(20):
            s = socket.create_connection(("127.0.0.1", ports.server.http), timeout=10)
            s.sendall(f"POST / HTTP/1.1\r\nHost: {ports.host(8001)}\r\nX-Access-Token: {ports.key}\r\n"
                      "Content-Length: 1000000000\r\n\r\n".encode() + b"x" * 100000)
            held.append(s)
        assert ports.get().body == b"hello from 8000"
    finally:
        for s in held:
            s.close()


def test_a_download_goes_on_after_a_pause_of_the_sandbox(ports):
    size = 64 << 20
    connection = ports.server.connect()
    connection.request("GET", f"/bytes/{size}", headers={"Host": ports.host(), "X-Access-Token": ports.key})
    response = connection.getresponse()
    got = len(response.read(1 << 20))

    def rate():
        return rates(ports.server, "cove_sandbox_traffic_bytes_per_second").get(f'sandbox="{ports.id}",direction="out"', 0)
    while rate() == 0:  # until the gate, which looks at all connections once a second, has seen this one
        got += len(response.read(1 << 16))
    pause(ports)
    wait_for(lambda: rate() == 0, 30, "the gate to look at the connection of a paused sandbox")
    assert ports.get().status == 200  # traffic wakes it
    while piece := response.read(1 << 20):
        got += len(piece)
    assert got == size
    connection.close()


@contextlib.contextmanager
def begun_download(ports, size):
    """(what was read, the rest of the response): a client that has stopped to read after a moment."""
    connection = ports.server.connect()
    try:
        connection.request("GET", f"/bytes/{size}", headers={"Host": ports.host(), "X-Access-Token": ports.key})
        response = connection.getresponse()
        yield len(response.read(1 << 20)), response
    finally:
        connection.close()


def read_rest(response):
    got = 0
    with contextlib.suppress(ConnectionError, http.client.IncompleteRead):
        while piece := response.read(1 << 20):
            got += len(piece)
    return got


def memory_between(ports):
    """KiB of what stands between a client and the sandbox."""
    nginx = open(f"{ports.server.run_dir}/nginx.pid").read().strip()
    pids = [*ports.server.titles("cove: gate"), *open(f"/proc/{nginx}/task/{nginx}/children").read().split()]
    return sum(int(re.search(r"RssAnon:\s+(\d+)", open(f"/proc/{pid}/status").read()).group(1)) for pid in pids)


def test_transfers_of_any_size_take_the_same_memory(ports):
    """Whether the client reads or not: what it does not take stays with the app, what the app does not take stays with the client."""
    data = b"u" * (16 << 20)
    assert ports.get("/up", method="POST", body=data).json["bytes"] == len(data) and len(ports.get(f"/bytes/{16 << 20}").body) == 16 << 20
    before = memory_between(ports)
    with begun_download(ports, 1 << 30) as (got, response):
        while got < 400 << 20:
            got += len(response.read(1 << 20))
        assert memory_between(ports) - before < 4096
        assert ports.get().body == b"hello from 8000", "a client that has stopped to read holds up nobody else"
        assert memory_between(ports) - before < 4096
    with connect(ports, tls=False) as s:
        s.sendall(f"POST /up HTTP/1.1\r\nHost: {ports.host()}\r\nX-Access-Token: {ports.key}\r\nConnection: close\r\n"
                  f"Content-Length: {256 << 20}\r\n\r\n".encode())
        for _ in range(15):
            s.sendall(data)
        assert memory_between(ports) - before < 4096 and not spooled(ports)
        s.sendall(data)
        assert b'"bytes": %d' % (256 << 20) in read_exactly(s, 1 << 20)


def spooled(ports):
    """Files of bodies that nginx has put aside; they have no name."""
    nginx = open(f"{ports.server.run_dir}/nginx.pid").read().strip()
    pids = open(f"/proc/{nginx}/task/{nginx}/children").read().split()
    links = [os.readlink(f"/proc/{pid}/fd/{fd}") for pid in pids for fd in os.listdir(f"/proc/{pid}/fd")]
    return [link for link in links if link.startswith("/") and link.endswith("(deleted)") and ports.server.dir in link]


@pytest.mark.parametrize("end", ["cleanup", "init killed", "gate killed", "expired"])
def test_a_download_that_is_ended_midway_is_a_cut(make_server, project, end):
    server = make_server(**({"lifetime": "20s", "reuse": "20s"} if end == "expired" else {}))
    ports = Ports(server, project)
    with begun_download(ports, 1 << 30) as (got, response):
        if end == "cleanup":
            server.cleanup(project, key=ports.key)
        elif end == "init killed":
            os.kill(server.inits[ports.id], signal.SIGKILL)
        elif end == "gate killed":
            gate = gate_pid(ports)
            os.kill(gate, signal.SIGKILL)
        else:
            wait_for(lambda: ports.get().status == 502, 60, "the end of the sandbox's life")
        assert got + read_rest(response) < 1 << 30


def test_a_download_goes_on_through_a_reload_of_nginx(ports):
    with begun_download(ports, 64 << 20) as (got, response):
        os.kill(int(open(f"{ports.server.run_dir}/nginx.pid").read()), signal.SIGHUP)
        wait_for(lambda: ports.get().status == 200, 30, "the new workers")
        assert got + read_rest(response) == 64 << 20


def test_an_init_that_never_answers_is_502_and_holds_up_nobody_else(server, project):
    hung, other = Ports(server, project), Ports(server, project + "-other")
    init, replies = server.inits[hung.id], []
    os.kill(init, signal.SIGSTOP)
    try:
        asking = threading.Thread(target=lambda: replies.append(hung.get()))
        asking.start()
        assert other.get().body == b"hello from 8000" and asking.is_alive()
        asking.join(60)
        assert replies[0].status == 502 and replies[0].json["message"] == "The sandbox is running but the port does not answer"
    finally:
        os.kill(init, signal.SIGCONT)
    wait_for(lambda: hung.get().status == 200, 30, "the init that answers again")


def test_a_link_ends_in_time(ports):
    url = ports.ok("/port_link", port=8000, seconds=6)["url"]
    path = url[url.index("/.cove/open"):]
    cookie = {"Cookie": ports.get(path, credential=False).headers["Set-Cookie"].split(";")[0]}
    assert ports.get(credential=False, headers=cookie).status == 200
    wait_for(lambda: ports.get(credential=False, headers=cookie).status == 401, 30, "the end of the cookie")
    assert ports.get(path, credential=False).status == 401


def test_a_websocket_lives_through_a_reload_of_nginx(ports):
    with websocket(ports) as (s, _):
        master = int(open(f"{ports.server.run_dir}/nginx.pid").read())
        os.kill(master, signal.SIGHUP)
        wait_for(lambda: ports.get().status == 200, 30, "the new workers")
        s.sendall(frame(b"still"))
        assert read_exactly(s, 7) == b"\x81\x05still"


@pytest.mark.parametrize("signo", [signal.SIGQUIT, signal.SIGKILL])
def test_a_websocket_lives_through_a_restart_of_the_server(make_server, project, signo):
    """The old gate goes on with what it has, the next keeper's gate takes what is new."""
    server = make_server()
    ports = Ports(server, project)
    gate = gate_pid(ports)
    with websocket(ports) as (old, _):
        os.kill(keeper := server.keeper_pid, signo)
        wait_for(lambda: not alive(keeper), 30, "the keeper's end")
        server.up()
        wait_for(lambda: len(server.titles("cove: gate")) == 2, 30, "the next gate")
        wait_for(lambda: ports.get().status == 200, 30, "an answer")
        with websocket(ports) as (new, _):
            for s in (old, new):
                s.sendall(frame(b"still"))
                assert read_exactly(s, 7) == b"\x81\x05still"
    wait_for(lambda: gate not in server.titles("cove: gate"), 60, "the old gate's end, with its last connection")


def test_connections_end_with_the_key_or_link_that_opened_them(server, project):
    """A token of the sandbox lasts as long as the sandbox."""
    ports = Ports(server, project, key=create(server, project, "--name", project))
    token = {"X-Access-Token": cove(server, "token", ports.id).stdout.strip()}
    url = ports.ok("/port_link", port=8000, seconds=8)["url"]
    cookie = ports.get(url[url.index("/.cove/open"):], credential=False).headers["Set-Cookie"].split(";")[0]
    with WebSocket(server, "/ws", token, host=ports.host()) as by_token, begun_download(ports, 1 << 30) as (got, download), \
            WebSocket(server, "/ws", {"X-Access-Token": ports.key}, host=ports.host()) as by_key:
        with WebSocket(server, "/ws", {"Cookie": cookie}, host=ports.host()) as by_link:
            assert by_link.socket.recv(1) == b""
        other = create(server, project, "--name", f"{project}-2")  # a change of the keys that is not theirs
        by_key.send(b"still here")
        assert by_key.recv() == b"still here"
        cove(server, "key", "revoke", project)
        assert by_key.socket.recv(1) == b"" and got + read_rest(download) < 1 << 30
        by_token.send(b"still here")
        assert by_token.recv() == b"still here"
    server.cleanup(project, key=other)
    server.projects.discard((project, ports.key))
