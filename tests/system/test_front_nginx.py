"""The site as installed: limits by address, HSTS, certificates, names of ports, and nginx under bad conditions."""
import contextlib
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import threading
import time

import pytest
from h2 import config as h2_config, connection as h2_connection, events as h2_events

from cove import TOP, read, wait_for
from test_front_keys import becomes, create
from test_front_tenants import SOCKETS, has_own_suite, tables


def nginx_pid(server):
    return int(read(f"{server.run_dir}/nginx.pid"))


def workers_of(pid):
    return set(read(f"/proc/{pid}/task/{pid}/children").split())


def edit_site(server, *changes, times=0):
    """Change lines of the running site (all that match, or so many), as an operator would, and reload."""
    files = {path: read(path) for path in (f"{server.dir}/conf/nginx-cove.conf", f"{server.dir}/conf/snippets/cove-server.conf")}
    for old, new in changes:
        assert any(re.search(old, text) for text in files.values()), old
        files = {path: re.sub(old, new, text, count=times) for path, text in files.items()}
    for path, text in files.items():
        with open(path, "w") as f:
            f.write(text)
    subprocess.run(["nginx", "-t", "-q", "-c", f"{server.dir}/conf/nginx.conf"], check=True)
    before, log = workers_of(nginx_pid(server)), f"{server.dir}/log/nginx-error.log"
    known = len(read(log))
    os.kill(nginx_pid(server), signal.SIGHUP)

    def reloaded():  # nginx that cannot take the new configuration says so in its log and goes on with its old workers
        refused = [line for line in read(log)[known:].split("\n") if "[emerg]" in line]
        assert not refused, refused
        return not before & workers_of(nginx_pid(server))

    wait_for(reloaded, 10, "new nginx workers")


@contextlib.contextmanager
def nginx_that_says(directory, maps, settings, text):
    """An nginx that has nothing but these maps and answers every request with this text; yields ask(host, curl arguments...)."""
    sock, conf = directory / "n.sock", directory / "nginx.conf"
    temp = "".join(f"{k}_temp_path {directory}/{k};" for k in ("client_body", "fastcgi", "proxy", "scgi", "uwsgi"))
    conf.write_text(f"pid {directory}/pid; error_log {directory}/log; daemon off; events {{}}\nhttp {{ {temp} access_log off;\n{maps}"
                    f"server {{ listen unix:{sock}; {settings} return 200 \"{text}\"; }} }}\n")
    nginx = subprocess.Popen(["nginx", "-c", str(conf), "-e", f"{directory}/log"])
    try:
        wait_for(sock.exists, 5, "nginx")
        yield lambda host, *args: subprocess.run(["curl", "-s", "--unix-socket", str(sock), *args, f"http://{host}/"],
                                                 text=True, capture_output=True).stdout
    finally:
        nginx.terminate()
        nginx.wait()


def set_rate(server, per_second):
    edit_site(server, (r"rate=\d+r/s", f"rate={per_second}r/s"), (r"burst=\d+", f"burst={per_second}"))


def test_a_flood_from_one_address_is_429_and_others_are_served(make_server):
    server = make_server()
    set_rate(server, 5)
    replies = [server.request("GET", "/health") for _ in range(30)]
    refused = [r for r in replies if r.status == 429]
    assert 20 <= len(refused) <= 25, len(refused)
    assert refused[0].headers["Retry-After"] == "1" and refused[0].json["success"] is False
    assert "address" in refused[0].json["error"]
    assert server.request("GET", "/health", source="127.0.0.9").status == 200
    wait_for(lambda: server.request("GET", "/health").status == 200, 10, "room again")


def test_connections_from_one_address_are_limited(make_server):
    server = make_server()
    server.execute("c", "true")
    edit_site(server, (r"cove_connections \d+", "cove_connections 3"))
    statuses = []
    threads = [threading.Thread(target=lambda: statuses.append(server.execute("c", "sleep 1").status)) for _ in range(6)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert sorted(statuses) == [200] * 3 + [429] * 3


@pytest.mark.parametrize("address, counted", [
    ("192.0.2.7", "192.0.2.7"), ("::ffff:192.0.2.7", "::ffff:192.0.2.7"),
    ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2:"), ("2001:db8:1:2::6", "2001:db8:1:2:"), ("2001:db8:1:3::6", "2001:db8:1:3:"),
    ("2001:db8::6", "2001:db8::"), ("2001:db8:1::6", "2001:db8:1::"), ("::1", "::")])
def test_an_ipv6_network_counts_as_one_address(server, tmp_path, address, counted):
    """What the installed map makes of an address, in an nginx of its own that takes the address from a header."""
    found = re.search(r"map \$remote_addr \$cove_network \{.*?\n\}\n", read(f"{server.dir}/conf/nginx-cove.conf"), re.S).group(0)
    shown = found.replace("$binary_remote_addr", "$remote_addr")  # which is not binary, for the test's sake
    with nginx_that_says(tmp_path, shown, "set_real_ip_from unix:; real_ip_header X-Address;", "$cove_network") as ask:
        assert ask("localhost", "-H", f"X-Address: {address}") == counted


def test_hsts_is_off_until_it_is_turned_on_and_then_only_over_tls(make_server):
    server = make_server()
    assert "Strict-Transport-Security" not in server.request("GET", "/health", tls=True).headers
    edit_site(server, (r'on      ""', 'on      "max-age=31536000"'))
    for path in ("/health", "/nothing"):  # a worker's reply, and nginx's own
        assert server.request("GET", path, tls=True, key=False).headers["Strict-Transport-Security"] == "max-age=31536000"
    assert "Strict-Transport-Security" not in server.request("GET", "/health").headers


def test_certificate_challenges_are_served_and_nothing_else_from_there(make_server):
    server = make_server()
    folder = f"{server.dir}/acme/.well-known/acme-challenge"
    os.makedirs(folder)
    for d in (server.dir, f"{server.dir}/acme", f"{server.dir}/acme/.well-known", folder):
        os.chmod(d, 0o755)
    with open(f"{folder}/token", "w") as f:
        f.write("answer")
    with open(f"{server.dir}/acme/secret", "w") as f:
        f.write("secret")
    reply = server.request("GET", "/.well-known/acme-challenge/token", key=False)
    assert (reply.status, reply.body) == (200, b"answer")
    for path in ("/.well-known/acme-challenge/../../secret", "/.well-known/acme-challenge/%2e%2e/%2e%2e/secret", "/secret",
                 "/.well-known/acme-challenge/..%2f..%2fsecret", "/.well-known/acme-challenge/", "/.well-known/acme-challenge/no"):
        reply = server.request("GET", path, key=False)
        assert reply.status in (400, 401, 403, 404) and b"secret" not in reply.body, path


@pytest.mark.parametrize("host, port, box", [
    ("8080-" + "a1" * 10, "8080", "a1" * 10), ("65535-" + "z" * 20, "65535", "z" * 20), ("8080-" + "a" * 19, "", ""),
    ("8080-" + "a" * 21, "", ""), ("x8080-" + "a" * 20, "", ""), ("123456-" + "a" * 20, "", ""), ("8080_" + "a" * 20, "", "")])
def test_a_sandboxes_port_has_a_name(server, tmp_path, host, port, box):
    """What the installed maps make of a host name, in an nginx of its own that only says so."""
    site = read(f"{server.dir}/conf/nginx-cove.conf")
    maps = "".join(re.findall(r"map \$host \$cove_(?:port|box) \{.*?\n\}\n", site, re.S))
    assert maps.count("map ") == 2
    with nginx_that_says(tmp_path, maps, "", "$cove_port|$cove_box") as ask:
        assert ask(f"{host}.cove.localhost") == f"{port}|{box}"


@pytest.mark.parametrize("name", ["COVE_KEY", "Cove-Key", "X-Cove-Key", "COVE_PORT", "Cove-Box"])
def test_no_header_can_name_a_key_or_a_port(make_server, name):
    server = make_server()
    key = create(server, "acme", "--projects", "mine")
    becomes(server, key, 200, "mine")
    stored = read(f"{server.dir}/conf/keys").split()[0][:16]  # the unrestricted first key's public name
    reply = server.post("/execute", {"projectId": "other", "commands": ["true"]}, key=key, headers={name: stored})
    assert reply.status == 403
    reply = server.post("/execute", {"projectId": "other", "commands": ["true"]}, key=False, headers={name: stored})
    assert reply.status == 401


def test_the_access_log_names_tenant_and_key_but_never_the_key_itself(make_server):
    server = make_server()
    server.execute("log", "true")
    line = wait_for(lambda: [x for x in map(json.loads, read(f"{server.dir}/log/access.log").splitlines())
                             if x["uri"] == "/execute"], 5, "the line")[0]
    assert line["tenant"] == "default" and line["key"] == read(f"{server.dir}/conf/keys").split()[0][:16]
    for name in os.listdir(f"{server.dir}/log"):
        assert server.key not in read(f"{server.dir}/log/{name}"), name


def locations():
    """{name: what is in its braces} of every location in the site."""
    site = read(f"{TOP}/nginx/snippets/cove-server.conf")
    for name in ("cove-port.conf", "cove-attach.conf"):  # most of what such a location says
        site = site.replace(f"include @SNIPPETS@/{name};", f"# {name}\n" + read(f"{TOP}/nginx/snippets/{name}"))
    return dict(re.findall(r"^location (.+?) \{\n(.*?)^\}", site, re.M | re.S))


def test_a_location_without_sign_in_passes_no_tenant():
    """`/health#/execute` is nginx's open location and the worker's execute route: an empty tenant is then all that stops it."""
    to_workers = {name: body for name, body in locations().items() if "fastcgi_pass " in body}
    assert len(to_workers) >= 7
    for name, body in to_workers.items():
        tenant = re.findall(r"fastcgi_param COVE_TENANT (\S+);", body)
        assert tenant == (["$cove_tenant"] if "cove-auth.conf" in body else ['""']), name
        role = {"= /.cove/auth": "auth", "= /.cove/port": "port", "= /.cove/port-kept": "port", "= /.cove/traffic-socket": "port",
                "= /.cove/open": "open"}.get(name, "attach" if "# cove-attach.conf" in body else "api")
        assert re.findall(r"fastcgi_param COVE_ROLE (\S+);", body) == [role], name
        assert ("internal;" in body) == (name.startswith("= /.cove/") and role != "open"), name


def test_only_what_runs_or_streams_may_take_long():
    """The site's list of short routes against the tables of the code: a route is in it exactly when it is not ROUTE_LONG."""
    short = re.search(r"location ~ (\S+) \{\n(?:.*\n)*?\s+fastcgi_read_timeout 2m;", read(f"{TOP}/nginx/snippets/cove-server.conf")).group(1)
    for file, rows in tables().items():
        for _, path, flags in rows:
            if path in SOCKETS:
                assert "# cove-attach.conf" in locations()["= " + path], path
            elif "ROUTE_OPEN" not in flags and not has_own_suite(file):
                assert bool(re.search(short, path.replace("/**", ""))) == ("ROUTE_LONG" not in flags), path


# ------------------------------------------------------------------ headers that say something twice

def ask(server, method, path, *headers, body=b"", tls=False):
    """The status and the JSON of the reply to a request with exactly these headers, in this order."""
    with contextlib.closing(server.connect(tls=tls)) as connection:
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in (*headers, ("Content-Length", str(len(body)))):
            connection.putheader(name, value)
        connection.endheaders(body)
        reply = connection.getresponse()
        return reply.status, json.loads(reply.read() or b"null")


def ask_raw(server, target, *headers, host, sni=None, host_at=0):
    """The status and JSON of a POST by HTTP/1.1 with these headers. The Host header is line `host_at`; by TLS if a name for its handshake is given."""
    lines = [f"{name}: {value}" for name, value in (*headers, ("Content-Type", "application/octet-stream"), ("Content-Length", 1), ("Connection", "close"))]
    lines.insert(host_at if host_at >= 0 else len(lines), f"Host: {host}")
    with contextlib.closing(socket.create_connection(("127.0.0.1", server.https if sni else server.http), 30)) as plain:
        connection = no_check().wrap_socket(plain, server_hostname=sni) if sni else plain
        connection.sendall("\r\n".join([f"POST {target} HTTP/1.1", *lines, "", "x"]).encode())
        head, _, body = b"".join(iter(lambda: connection.recv(65536), b"")).partition(b"\r\n\r\n")
        if b"chunked" in head:
            body = body.split(b"\r\n")[1]
        return int(head.split()[1]), json.loads(body)


def ask_h2(server, target, *headers, host, sni, first=()):
    """The same by HTTP/2. `first` are headers in front of :authority, where no client puts any."""
    context = no_check()
    context.set_alpn_protocols(["h2"])
    with contextlib.closing(socket.create_connection(("127.0.0.1", server.https), 30)) as plain:
        connection = context.wrap_socket(plain, server_hostname=sni)
        h2 = h2_connection.H2Connection(h2_config.H2Configuration(validate_outbound_headers=False, normalize_outbound_headers=False))
        h2.initiate_connection()
        h2.send_headers(1, [*first, (":method", "POST"), (":scheme", "https"), (":authority", host), (":path", target),
                            *((name.lower(), value) for name, value in headers), ("content-type", "application/octet-stream")])
        h2.send_data(1, b"x", end_stream=True)
        connection.sendall(h2.data_to_send())
        status, body = 0, b""
        while data := connection.recv(65536):
            for event in h2.receive_data(data):
                if isinstance(event, h2_events.ResponseReceived):
                    status = int(dict(event.headers)[b":status"])
                elif isinstance(event, h2_events.DataReceived):
                    body += event.data
                elif isinstance(event, (h2_events.StreamEnded, h2_events.StreamReset, h2_events.ConnectionTerminated)):
                    return status, json.loads(body or b"null")
            connection.sendall(h2.data_to_send())
        return status, json.loads(body or b"null")


def no_check():
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


@pytest.fixture
def envd(server):
    """A sandbox of the e2b API: its name for envd and its token."""
    made = server.post("/v2/sandboxes", {"templateID": "base"}).json
    yield f"49983-{made['sandboxID']}.cove.localhost", made["envdAccessToken"]
    server.request("DELETE", f"/sandboxes/{made['sandboxID']}")


@pytest.mark.parametrize("tls", [False, True])
def test_a_header_with_an_underscore_is_none(server, envd, tls):
    """FastCGI writes `-` as `_`: for a worker X_API_KEY would be X-API-Key. So nginx drops it, whatever name is asked for but envd's."""
    box, token = envd[0].split(".")[0].removeprefix("49983-"), ("X-Access-Token", envd[1])
    at_one_address = (("E2b-Sandbox-Id", box), ("E2b-Sandbox-Port", "49983"))
    for host in ("cove.localhost", "api.cove.localhost", "127.0.0.1", f"8000-{box}.cove.localhost", f"sandbox-{box}-49983.cove.localhost"):
        for at in (0, -1):
            told = ask_raw(server, "/v2/sandboxes", ("X_API_KEY", server.key), host=host, host_at=at, sni=host if tls else None)
            assert told[0] in (401, 404, 502), (host, told)
    for host, headers in (("cove.localhost", at_one_address), (f"sandbox-{box}-49983.cove.localhost", ())):
        status, told = ask_raw(server, "/files?path=/tmp/a", token, *headers, ("X-Metadata-my-key", "1"), ("X-Metadata-my_key", "2"), ("X-Metadata-a_b", "3"),
                               ("X-Metadata-a.b", "4"), ("X_Access_Token", "x"), host=host, sni=host if tls else None)
        assert (status, told[0]["metadata"]) == (200, {"my-key": "1"}), told


@pytest.mark.parametrize("way", ["http", "tls", "h2"])
def test_envd_reads_headers_with_underscores(server, envd, way):
    """There a key of a file's metadata may have one, and comes back with `-`. Two headers that differ in that alone are refused."""
    host, token = envd[0], ("X-Access-Token", envd[1])

    def write(*headers):
        if way == "h2":
            return ask_h2(server, "/files?path=/tmp/a", *headers, host=host, sni=host)
        return ask_raw(server, "/files?path=/tmp/a", *headers, host=host, sni=host if way == "tls" else None)

    status, told = write(token, ("X-Metadata-some_name", "1"), ("X-Metadata-b-c_d", "2"), ("X_Metadata_e", "3"), ("X-Metadata-a.b", "4"))
    assert (status, told[0]["metadata"]) == (200, {"some-name": "1", "b-c-d": "2", "e": "3"}), told
    for twice in ((token, ("X_Access_Token", envd[1])), (("X_Access-Token", "x"), token), (token, ("X-API-Key", server.key), ("X-API_Key", server.key)),
                  (token, ("X-Metadata-my-key", "1"), ("X-Metadata-my_key", "1")), (token, ("Authorization", "a"), ("Content_Type", "a"), ("Content-Length_", "1"), ("Content_Length_", "2")),
                  (token, ("E2b-Sandbox-Id", "a"), ("E2b_Sandbox_Id", "b"))):
        status, told = write(*twice)
        assert status == 400 and "comes twice" in told["message"], (twice, told)
    status, told = write(token, ("COVE_TENANT", "other"), ("Cove_Role", "auth"), ("HTTP_HOST", "cove.localhost"))
    assert status == 200, "parameters of nginx's own cannot be named"


@pytest.mark.parametrize("way", ["tls", "h2"])
def test_a_connection_made_for_envd_serves_no_other_name(server, envd, way):
    """nginx reads the lines before the Host header by the rules of the name in the TLS handshake: those of envd's would let X_API_KEY through."""
    ask = ask_h2 if way == "h2" else ask_raw
    for sni in (envd[0], envd[0].upper(), "49983-x.cove.localhost"):
        for host in ("cove.localhost", "127.0.0.1", "8000-" + envd[0][6:], "49983-x.else.example"):
            first = {"first": [("x_api_key", server.key)]} if way == "h2" else {"host_at": 1}
            status, told = ask(server, "/v2/sandboxes", ("X_API_KEY", server.key), host=host, sni=sni, **first)
            assert status == 421 or (way == "h2" and status in (0, 400)), (sni, host, told)  # HTTP/2 wants :authority first
            status, told = ask(server, "/v2/sandboxes", ("X-API-Key", server.key), host=host, sni=sni)
            assert (status, told["code"], told["message"]) == (421, 421, "this connection was made for another host name"), (sni, host, told)
    status, told = ask(server, "/files?path=/tmp/a", ("X-Access-Token", envd[1]), ("X-Metadata-a_b", "1"), host=envd[0], sni="cove.localhost")
    assert status == 200, "the other way round nothing is read that should not be"


@pytest.mark.parametrize("tls", [False, True])
def test_a_request_with_two_names_lets_no_underscore_through(server, envd, tls):
    """In two Host headers, in the request line and a Host header, and in two requests on one connection."""
    name, key = envd[0], f"X_API_KEY: {server.key}"
    for target, *lines, want in (("/v2/sandboxes", f"Host: {name}", key, "Host: cove.localhost", 400),
                                 ("/v2/sandboxes", "Host: cove.localhost", f"Host: {name}", key, 400),
                                 (f"http://{name}/v2/sandboxes", key, "Host: cove.localhost", 404),  # as envd, which has no such path
                                 ("http://cove.localhost/v2/sandboxes", f"Host: {name}", key, 401)):
        with contextlib.closing(socket.create_connection(("127.0.0.1", server.https if tls else server.http), 30)) as plain:
            connection = no_check().wrap_socket(plain, server_hostname="cove.localhost") if tls else plain
            connection.sendall(f"GET /health HTTP/1.1\r\nHost: {name}\r\n\r\n".encode())
            assert connection.recv(65536).startswith(b"HTTP/1.1 204")
            connection.sendall("\r\n".join([f"GET {target} HTTP/1.1", *lines, "Connection: close", "", ""]).encode())
            reply = b"".join(iter(lambda: connection.recv(65536), b""))
        assert reply.split()[1] == str(want).encode(), (target, lines, reply)


def test_a_header_that_comes_twice_is_refused(server):
    """Who is admitted by the first of two keys and served by the second has smuggled one in. Lists may have several lines."""
    host, key = ("Host", "cove.localhost"), ("X-API-Key", server.key)
    for twice in (("X-API-Key", "e2b_00"), key, ("x-api-key", "")):
        status, told = ask(server, "GET", "/v2/sandboxes", host, key, twice)
        assert (status, told["code"]) == (400, 400) and "X_API_KEY: comes twice" in told["message"], told
    made = server.post("/v2/sandboxes", {"templateID": "base"}).json
    try:
        envd = (host, ("E2b-Sandbox-Port", "49983"), ("E2b-Sandbox-Id", made["sandboxID"]), ("X-Access-Token", made["envdAccessToken"]))
        assert ask(server, "GET", "/envs", *envd)[0] == 200
        for twice in (("E2b-Sandbox-Id", "i" + 19 * "0"), ("X-Access-Token", "x"), ("E2b-Sandbox-Port", "8000")):
            assert ask(server, "GET", "/envs", *envd, twice)[0] == 400, twice
        assert ask(server, "GET", "/envs", *envd, ("Accept", "a"), ("Accept", "b"), ("X-Forwarded-For", "192.0.2.1"), ("X-Forwarded-For", "192.0.2.2"))[0] == 200
    finally:
        server.request("DELETE", f"/sandboxes/{made['sandboxID']}")


# ------------------------------------------------------------------ bad conditions

def stalled(server, stack, method, path, headers, body=b""):
    """A connection on which this request was sent, and whose client reads nothing."""
    connection = stack.enter_context(socket.socket())
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect(("127.0.0.1", server.http))
    connection.settimeout(60)
    lines = [f"{method} {path} HTTP/1.0", *(f"{k}: {v}" for k, v in {**headers, "Content-Length": len(body)}.items()), "", ""]
    connection.sendall("\r\n".join(lines).encode() + body)
    return connection


def read_all(connection):
    length = 0
    while data := connection.recv(1 << 16):
        length += len(data)
    return length


def test_clients_of_e2b_may_stall_longer_than_others(make_server):
    """Others are cut after send_timeout of the site, here a second. A stream or a download of e2b that has stalled for as long comes whole."""
    server = make_server()
    edit_site(server, (r"(?m)^send_timeout            60s;", "send_timeout            1s;"))
    made = server.post("/v2/sandboxes", {"templateID": "base"}).json
    envd = {"E2b-Sandbox-Id": made["sandboxID"], "E2b-Sandbox-Port": "49983", "X-Access-Token": made["envdAccessToken"]}
    start = json.dumps({"process": {"cmd": "/bin/sh", "args": ["-c", "head -c 30000000 /dev/zero"]}, "stdin": False}).encode()
    assert server.run("other", "head -c 30000000 /dev/zero > /workspace/big") == ""
    with contextlib.ExitStack() as stack:
        stream = stalled(server, stack, "POST", "/process.Process/Start", {**envd, "Content-Type": "application/connect+json"},
                         len(start).to_bytes(5, "big") + start)
        written = server.request("POST", "/files?path=/tmp/big", bytes(30_000_000), headers={**envd, "Content-Type": "application/octet-stream"})
        assert written.status == 200, written
        download = stalled(server, stack, "GET", "/files?path=/tmp/big", envd)
        other = stalled(server, stack, "GET", "/raw_file?path=/workspace/big", {"X-API-Key": server.key, "X-Project-Id": "other"})
        wait_for(lambda: other.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == 7, 60, "the cut of the other connection")  # 7: TCP_CLOSE
        assert read_all(stream) > 30_000_000 and read_all(download) > 30_000_000

def test_slow_senders_hold_no_worker(make_server):
    server = make_server(threads=8, short_threads=2)
    server.execute("slow", "true")
    slow = []
    for _ in range(60):
        s = socket.create_connection(("127.0.0.1", server.http))
        s.sendall(b"POST /execute HTTP/1.1\r\nHost: x\r\nX-API-Key: " + server.key.encode() +
                  b"\r\nContent-Length: 100000\r\n\r\n{")
        slow.append(s)
    try:
        began = time.monotonic()
        assert server.run("slow", "echo quick") == "quick\n"
        assert time.monotonic() - began < 2
    finally:
        [s.close() for s in slow]


def test_garbage_instead_of_tls_harms_nobody(server):
    for garbage in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x00\x05hello", os.urandom(3000), b"\x00" * 1000):
        with socket.create_connection(("127.0.0.1", server.https), timeout=5) as s:
            try:
                s.sendall(garbage)
                s.shutdown(socket.SHUT_WR)
                s.recv(1000)
            except OSError:
                pass
    assert server.request("GET", "/health", tls=True).status == 200


def test_a_reload_of_nginx_cuts_no_command_off(make_server):
    server = make_server()
    server.execute("reload", "true")
    replies = []
    t = threading.Thread(target=lambda: replies.append(server.execute("reload", "touch /workspace/on; sleep 2; echo whole")))
    t.start()
    wait_for(lambda: server.execute("reload", "test -e /workspace/on").json["exitCode"] == 0, 5, "the command's start")
    os.kill(nginx_pid(server), signal.SIGHUP)
    wait_for(lambda: server.request("GET", "/health").status == 200, 5, "an answer")
    t.join()
    assert replies[0].status == 200 and replies[0].json["stdout"] == "whole\n"


def test_a_full_disk_for_the_access_log_does_not_stop_requests(make_server):
    server = make_server()
    edit_site(server, (r"access_log  \S+", "access_log  /dev/full"))
    assert server.run("full", "echo on") == "on\n"


@pytest.mark.parametrize("header", ["X-API-Key", "Authorization", "X-Relay-Secret"])
def test_huge_credentials_are_refused(server, header):
    for size in (7_000, 9_000, 100_000):
        try:
            reply = server.post("/execute", {}, key=False, headers={header: "Bearer " + "x" * size})
        except (BrokenPipeError, ConnectionResetError):
            continue
        assert reply.status in (400, 401, 431, 494) and reply.json["success"] is False
    assert server.request("GET", "/health").status == 200
