"""The front door: what a client can make nginx do, and what it cannot."""
import glob
import json
import os
import socket
import ssl
import struct
import subprocess

import pytest

from cove import TOP, free_port, new_key, read, wait_for

BODY = {"projectId": "nginx", "commands": ["echo in"]}


@pytest.fixture(autouse=True)
def tidy_project(request):
    if "server" in request.fixturenames:
        request.getfixturevalue("server").projects.add(("nginx", True))


# ------------------------------------------------------------------ keys

def test_without_a_key_it_is_401_as_json(server):
    reply = server.post("/execute", BODY, key=False)
    assert reply.status == 401
    assert reply.headers["Content-Type"].startswith("application/json")
    assert reply.json["success"] is False and reply.json["error"]


@pytest.mark.parametrize("headers", [
    lambda key: {"X-API-Key": key},
    lambda key: {"Authorization": f"Bearer {key}"},
    lambda key: {"X-Relay-Secret": key},
])
def test_a_key_is_taken_from_every_documented_header(server, headers):
    assert server.post("/execute", BODY, key=False, headers=headers(server.key)).status == 200
    assert server.post("/execute", BODY, key=False, headers=headers(new_key())).status == 401


@pytest.mark.parametrize("key", ["", "e2b_", "x" * 44, "e2b_" + "0" * 39, "e2b_" + "0" * 41, "e2b_" + "g" * 40,
                                 "' OR 1=1", "../../etc/passwd", "%00", "e2b_" + "é" * 20, pytest.param("x" * 5000, id="5000")])
def test_malformed_keys_are_401(server, key):
    reply = server.post("/execute", BODY, key=False, headers={"X-API-Key": key.encode("utf-8")})
    assert reply.status == 401


def test_a_key_is_not_found_by_its_hash_or_a_prefix(server):
    stored = read(f"{server.dir}/conf/keys").split()[0]
    for attempt in (stored, server.key[:-1], server.key + "0", server.key.upper(), " " + server.key[:20]):
        assert server.post("/execute", BODY, key=False, headers={"X-API-Key": attempt}).status == 401


def test_a_relay_secret_or_key_in_the_query_is_no_key(server):
    assert server.post(f"/execute?key={server.key}&COVE_TENANT=default", BODY, key=False).status == 401


# ------------------------------------------------------------------ what workers trust comes from nginx alone

@pytest.mark.parametrize("name", ["COVE_TENANT", "COVE-TENANT", "HTTP_COVE_TENANT", "Cove-Tenant", "X-Cove-Tenant",
                                  "X_Cove_Tenant", "Remote-User", "REMOTE_USER", "Fcgi-Role", "Cove-Role"])
def test_no_header_can_name_a_tenant(server, name):
    assert server.post("/execute", BODY, key=False, headers={name: "default"}).status == 401


def test_no_header_can_change_the_tenant_of_a_key(make_server):
    server = make_server()
    other = server.add_key("other")
    server.run("p", "echo secret > /workspace/f")
    for name in ("COVE_TENANT", "Cove-Tenant", "X-Cove-Tenant", "X-COVE-TENANT"):
        reply = server.post("/execute", {"projectId": "p", "commands": ["ls /workspace"]}, key=other,
                            headers={name: "default"})
        assert reply.status == 200 and reply.json["stdout"] == ""


def test_no_header_can_turn_a_request_into_an_auth_request(server):
    reply = server.post("/execute", BODY, headers={"Cove-Role": "auth", "COVE_ROLE": "auth"})
    assert reply.json["stdout"] == "in\n"
    assert "X-Cove-Tenant" not in reply.headers


def test_the_tenant_is_not_told_to_clients(server):
    for reply in (server.post("/execute", BODY), server.request("GET", "/health")):
        assert "X-Cove-Tenant" not in reply.headers


# ------------------------------------------------------------------ paths

@pytest.mark.parametrize("path", [
    "/health/../execute", "/health/%2e%2e/execute", "//execute", "/health//execute", "/./execute", "/health;/execute",
    "/health%2f..%2fexecute", "/execute/.", "/.cove/auth/../../execute", "/health/..%2fexecute", "/%65xecute",
    "/health?/execute", "/health%3f/execute", "/health%00/execute", "/execute/../health/../execute",
    "/x/../execute", "\\execute", "/health#/execute", "/health#/../execute"])
def test_no_spelling_of_a_path_gets_round_the_key(server, path):
    reply = server.post(path, {"projectId": "nginx", "commands": ["echo pwned"]}, key=False)
    assert b"pwned" not in reply.body
    assert reply.status in (400, 401, 404, 405) or reply.json == {"status": "ok"}


@pytest.mark.parametrize("path", ["/.cove/auth", "/.cove/error", "//.cove/auth", "/x/../.cove/auth", "/.cove%2fauth"])
def test_internal_locations_are_not_reachable(server, path):
    for method in ("GET", "POST"):
        reply = server.request(method, path)
        assert reply.status == 404 and "X-Cove-Tenant" not in reply.headers


def test_an_options_request_cannot_run_anything(server):
    body = json.dumps({"projectId": "nginx-options", "commands": ["touch /workspace/ran"]}).encode()
    server.request("OPTIONS", "/execute", body, key=False)
    assert server.run("nginx-options", "ls /workspace") == ""


# ------------------------------------------------------------------ sizes and shapes

def test_an_oversized_body_is_413_as_json(server):
    reply = server.post("/execute", b"x" * (20 << 20))
    assert reply.status == 413 and reply.json["success"] is False


def test_a_chunked_body_works_and_is_limited_too(server):
    def chunks(n):
        for _ in range(n):
            yield b" " * 65536
    reply = server.request("POST", "/execute", (x for x in [json.dumps(BODY).encode()]))
    assert reply.json["stdout"] == "in\n"
    try:
        assert server.request("POST", "/execute", chunks(400)).status == 413
    except (BrokenPipeError, ConnectionResetError):
        pass  # nginx may close before it has read all of it


def test_oversized_headers_are_refused(server):
    for size in (20_000, 100_000):
        try:
            reply = server.request("GET", "/health", headers={"X-Big": "x" * size})
        except (BrokenPipeError, ConnectionResetError):
            continue
        assert reply.status in (400, 431, 494)
        assert reply.json["success"] is False
    assert server.request("GET", "/health").status == 200


def test_two_lengths_are_refused(server):
    answer = server.raw(b"POST /execute HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello")
    assert answer.startswith(b"HTTP/1.1 400")


def test_length_and_chunked_together_are_refused(server):
    answer = server.raw(b"POST /execute HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"
                        b"0\r\n\r\nGET /health HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400") and answer.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize("garbage", [b"\x16\x03\x01\x02\x00", b"GET\r\n\r\n", b"\r\n\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n",
                                     b"GET /a\x00b HTTP/1.1\r\nHost: x\r\n\r\n", pytest.param(b"X" * 50_000, id="50000")])
def test_garbage_harms_nobody(server, garbage):
    try:
        server.raw(garbage)
    except ConnectionResetError:
        pass
    assert server.request("GET", "/health").status == 200


# ------------------------------------------------------------------ TLS

def test_https_works_and_the_certificate_covers_the_wildcard(server):
    assert server.request("GET", "/health", tls=True).status == 200
    assert server.post("/execute", BODY, tls=True).json["stdout"] == "in\n"
    out = subprocess.run(["curl", "-s", "--cacert", f"{server.dir}/tls/cove.localhost.crt", "--resolve",
                          f"8080-abc.cove.localhost:{server.https}:127.0.0.1",
                          f"https://8080-abc.cove.localhost:{server.https}/health"], capture_output=True, text=True)
    assert "The sandbox was not found" in out.stdout, out  # the certificate was taken, and no such sandbox lives


@pytest.mark.parametrize("path", ["/page.html", "/style.css", "/nothing"])
def test_an_error_is_json_whatever_the_path_ends_in(server, path):
    reply = server.request("GET", path, key=False)
    assert reply.status == 401 and reply.headers["Content-Type"] == "application/json" and reply.json["error"]


def test_who_is_nobody_hears_why(server):
    texts = {name: server.request("POST", "/execute", {}, key=False, headers=headers).json["error"]
             for name, headers in (("none", {}), ("wrong", {"X-API-Key": "e2b_" + "0" * 40}), ("bearer", {"Authorization": "Bearer x"}))}
    assert texts["none"].startswith("no key") and texts["wrong"].startswith("this key is not valid") and texts["wrong"] == texts["bearer"]


def test_http2_is_spoken(server):
    out = subprocess.run(["curl", "-sk", "--http2", "-o", "/dev/null", "-w", "%{http_version}",
                          f"https://127.0.0.1:{server.https}/health"], capture_output=True, text=True)
    assert out.stdout == "2"


OLD = [  # what a client offers, alone
    pytest.param(ssl.TLSVersion.TLSv1, "ALL:@SECLEVEL=0", id="TLS 1.0"),
    pytest.param(ssl.TLSVersion.TLSv1_1, "ALL:@SECLEVEL=0", id="TLS 1.1"),
    pytest.param(ssl.TLSVersion.TLSv1_2, "ECDHE-ECDSA-AES128-SHA:@SECLEVEL=0", id="CBC with SHA-1"),
    pytest.param(ssl.TLSVersion.TLSv1_2, "ECDHE-ECDSA-AES128-SHA256:@SECLEVEL=0", id="CBC"),
]


def shakes_hands(port, version, ciphers):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers(ciphers)
    context.minimum_version = context.maximum_version = version
    with socket.create_connection(("127.0.0.1", port), timeout=10) as s:
        try:
            return context.wrap_socket(s).version()
        except (ssl.SSLError, ConnectionError):
            return None


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("version, ciphers", OLD)
def test_old_tls_is_refused(server, tls_of_old, version, ciphers):
    """The same client reaches a server that allows it, so it is ours that refuses and not this machine's OpenSSL."""
    assert shakes_hands(tls_of_old, version, ciphers)
    assert not shakes_hands(server.https, version, ciphers)


@pytest.fixture(scope="module")
def tls_of_old(session_server):
    """A port where OpenSSL's own server speaks whatever it can."""
    port, tls = free_port(), f"{session_server.dir}/tls/cove.localhost"
    done = subprocess.Popen(["openssl", "s_server", "-accept", f"127.0.0.1:{port}", "-cert", f"{tls}.crt", "-key", f"{tls}.key", "-min_protocol", "TLSv1",
                             "-cipher", "ALL:@SECLEVEL=0", "-quiet"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(lambda: shakes_hands_at_all(port), 10, "openssl s_server")
    yield port
    done.kill()
    done.wait()


def shakes_hands_at_all(port):
    try:
        return shakes_hands(port, ssl.TLSVersion.TLSv1_2, "ALL:@SECLEVEL=0")
    except OSError:
        return None


# ------------------------------------------------------------------ between nginx and a worker

def fastcgi_record(kind, content=b""):
    return struct.pack(">BBHHBx", 1, kind, 1, len(content), 0) + content


def test_a_worker_closes_a_connection_after_its_reply_although_it_is_asked_to_keep_it(server):
    begin, end, params, stdin, keep = 1, 3, 4, 5, 1
    words = {b"REQUEST_METHOD": b"GET", b"REQUEST_URI": b"/health", b"PATH_INFO": b"/health", b"COVE_ROLE": b"api"}
    pairs = b"".join(bytes([len(name), len(value)]) + name + value for name, value in words.items())
    with socket.socket(socket.AF_UNIX) as worker:
        worker.settimeout(10)
        worker.connect(f"{server.run_dir}/fcgi.sock")
        worker.sendall(fastcgi_record(begin, struct.pack(">HB5x", 1, keep)) + fastcgi_record(params, pairs)
                       + fastcgi_record(params) + fastcgi_record(stdin))
        reply = b"".join(iter(lambda: worker.recv(65536), b""))  # up to the end of file: a kept connection would time out
    assert b"Status: " in reply and reply[-16:-8] == fastcgi_record(end, bytes(8))[:8], reply


# ------------------------------------------------------------------ when nobody answers behind it

def test_when_no_worker_can_be_reached_the_reply_is_503_json_with_retry_after(make_server):
    server = make_server()
    socket_path = f"{server.run_dir}/fcgi.sock"
    os.rename(socket_path, socket_path + ".away")
    try:
        for reply in (server.post("/execute", BODY), server.request("GET", "/health"),
                      server.request("OPTIONS", "/execute", key=False)):
            assert reply.status == 503
            assert int(reply.headers["Retry-After"]) > 0
            assert reply.json["success"] is False
    finally:
        os.rename(socket_path + ".away", socket_path)
    assert server.post("/execute", BODY).status == 200


def test_every_reply_has_a_request_id_and_the_access_log_has_it_too(server):
    for reply in (server.post("/execute", BODY), server.post("/execute", BODY, key=False), server.request("GET", "/nope")):
        wanted = reply.headers["X-Request-Id"]
        assert len(reply.headers.get_all("X-Request-Id")) == 1
        lines = wait_for(lambda: [x for x in map(json.loads, read(f"{server.dir}/log/access.log").splitlines())
                                  if x["request_id"] == wanted], 5, "the access log line")
        assert lines[0]["status"] == reply.status
        if reply.status == 200:
            assert lines[0]["tenant"] == "default"


def test_the_installed_files_are_the_tested_ones(server):
    """Only placeholders differ between the files of nginx/ and what this nginx runs."""
    files = {f"{TOP}/nginx/cove.conf": f"{server.dir}/conf/nginx-cove.conf"}
    files |= {path: f"{server.dir}/conf/snippets/{os.path.basename(path)}" for path in glob.glob(f"{TOP}/nginx/snippets/*.conf")}
    for path, ran in files.items():
        template, running = read(path).splitlines(), read(ran).splitlines()
        assert len(template) == len(running), path
        for a, b in zip(template, running):
            assert a == b or "@" in a, path
    assert "@" not in read(f"{server.dir}/conf/nginx.conf")
