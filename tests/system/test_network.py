"""The network of sandboxes, in namespaces that the test makes: nothing here leaves this machine.

    sandbox --veth-- [ host: coved, a service ] --veth-- [ internet: HTTP on all its addresses, DNS ]
"""
import os
import secrets
import signal
import subprocess
import sys
import textwrap

import pytest

from cove import TOP, alive, wait_for

PUBLIC, OTHER_PUBLIC, PRIVATE, METADATA = "198.51.100.7", "192.0.2.9", "10.99.0.1", "169.254.169.254"
RESOLVER, HOST = "198.51.100.53", "203.0.113.1"

# Answers every name with PUBLIC, and HTTP with one word.
INTERNET = textwrap.dedent(f"""
    import socket, threading, http.server, sys
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200); self.end_headers(); self.wfile.write(sys.argv[1].encode())
        def log_message(self, *_): pass
    def dns():
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(("{RESOLVER}", 53))
        while True:
            q, who = s.recvfrom(512)
            end = q.index(b"\\0", 12) + 5
            kind = q[end - 4:end - 2]
            answer = b"\\xc0\\x0c\\0\\1\\0\\1\\0\\0\\0\\x3c\\0\\4" + socket.inet_aton("{PUBLIC}") if kind == b"\\0\\1" else b""
            s.sendto(q[:2] + b"\\x81\\x80\\0\\1" + (b"\\0\\1" if answer else b"\\0\\0") + b"\\0\\0\\0\\0" + q[12:end] + answer, who)
    if sys.argv[1] == "internet": threading.Thread(target=dns, daemon=True).start()
    http.server.ThreadingHTTPServer(("0.0.0.0", 80), Handler).serve_forever()
""")


def ip(*args):
    subprocess.run(["ip", *args], check=True, capture_output=True)


class World:
    def __init__(self):
        tag = secrets.token_hex(3)
        self.host, self.internet = f"cove-host-{tag}", f"cove-inet-{tag}"
        self.servers = []

    def __enter__(self):
        for ns in (self.host, self.internet):
            ip("netns", "add", ns)
            ip("-n", ns, "link", "set", "lo", "up")
        ip("-n", self.host, "link", "add", "up0", "type", "veth", "peer", "name", "down0", "netns", self.internet)
        ip("-n", self.host, "addr", "add", f"{HOST}/24", "dev", "up0")
        for address in ("203.0.113.2/24", f"{PUBLIC}/32", f"{OTHER_PUBLIC}/32", f"{PRIVATE}/32", f"{METADATA}/32",
                        f"{RESOLVER}/32"):
            ip("-n", self.internet, "addr", "add", address, "dev", "down0")
        ip("-n", self.host, "link", "set", "up0", "up")
        ip("-n", self.internet, "link", "set", "down0", "up")
        ip("-n", self.host, "route", "add", "default", "via", "203.0.113.2")
        for ns, word in ((self.internet, "internet"), (self.host, "host")):
            self.servers.append(subprocess.Popen(["ip", "netns", "exec", ns, sys.executable, "-c", INTERNET, word]))
        return self

    def __exit__(self, *_):
        for server in self.servers:
            server.kill()
            server.wait()
        for ns in (self.host, self.internet):
            subprocess.run(["ip", "netns", "del", ns])

    def move_keeper(self, server, **settings):
        """The same instance, its keeper in the world's host: nginx reaches it by its socket as before. Settings come after the
        move, so that the real host sees nothing of them."""
        with open(f"{server.dir}/conf/cove.conf", "a") as f:
            f.writelines(f"{k} = {v}\n" for k, v in settings.items())
        keeper = server.keeper_pid
        os.kill(keeper, signal.SIGTERM)
        wait_for(lambda: not alive(keeper), what="the end of the keeper")
        with open(f"{server.dir}/log/coved.log", "a") as log:
            subprocess.Popen(["nsenter", f"--net=/run/netns/{self.host}", f"{TOP}/.cove/inst/sbin/coved", "-c",
                              f"{server.dir}/conf/cove.conf"], stderr=log, stdin=subprocess.DEVNULL,
                             stdout=subprocess.DEVNULL, start_new_session=True)
        wait_for(lambda: server.request("GET", "/health").status == 200, 15, "the keeper")

    def rules(self):
        return subprocess.run(["ip", "netns", "exec", self.host, "nft", "list", "ruleset"], capture_output=True,
                              text=True).stdout

    def links(self):
        return subprocess.run(["ip", "-n", self.host, "-o", "link"], capture_output=True, text=True).stdout


@pytest.fixture
def world():
    with World() as w:
        yield w


def get(server, project, host, port=80):
    """What a sandbox hears from there, '' if nothing."""
    code = (f"import urllib.request as u; print(u.urlopen('http://{host}:{port}/', timeout=2).read().decode(), end='')")
    return server.execute(project, f"python3 -c \"{code}\" 2>/dev/null").json["stdout"]


def test_egress_reaches_public_addresses_and_names_and_nothing_else(world, make_server):
    server = make_server()
    world.move_keeper(server, network="egress", network_dns=RESOLVER)
    assert get(server, "a", PUBLIC) == "internet"
    assert get(server, "a", "any.name.example") == "internet"
    for refused in (PRIVATE, METADATA, HOST, "203.0.113.1", "10.201.0.1", "10.201.0.5", "127.0.0.1"):
        assert get(server, "a", refused) == "", refused
    # From one sandbox to another, by its own address.
    address = server.run("b", "python3 -m http.server 80 >/dev/null 2>&1 & sleep 0.5; hostname -I").strip()
    assert address.startswith("10.201.") and get(server, "b", address) != ""
    assert get(server, "a", address) == ""
    # What is allowed now holds for sandboxes that run already, and what is denied does, too.
    server.change_config(network_allow=f"{PRIVATE}/32", network_deny=f"{OTHER_PUBLIC}/32")
    wait_for(lambda: PRIVATE in world.rules(), what="the new rules")
    assert get(server, "a", PRIVATE) == "internet"
    assert get(server, "a", OTHER_PUBLIC) == ""
    server.change_config(network="sideways")
    wait_for(lambda: "sideways" in str(server.log_lines()[-8:]), what="the refusal")
    assert get(server, "a", PUBLIC) == "internet"


def test_an_allow_list_allows_what_is_on_it(world, make_server):
    server = make_server()
    world.move_keeper(server, network="allow", network_allow=PUBLIC, network_dns=RESOLVER)
    assert get(server, "a", PUBLIC) == "internet"
    assert get(server, "a", "listed.example") == "internet"
    for refused in (OTHER_PUBLIC, PRIVATE, METADATA, HOST):
        assert get(server, "a", refused) == "", refused


def test_a_source_that_is_not_its_own_is_dropped_and_ipv6_leaves_no_sandbox(world, make_server):
    server = make_server()
    world.move_keeper(server, network="egress")
    init = server.init_of(server.execute("a", "true"))
    inside = ["nsenter", f"--net=/proc/{init}/ns/net"]  # as the host's root: nobody inside could
    subprocess.run([*inside, "ip", "addr", "add", "10.201.77.2/32", "dev", "eth0"], check=True)
    code = ("import socket; s = socket.socket(); s.settimeout(1); s.bind(('10.201.77.2', 0));"
            f"s.connect(('{PUBLIC}', 80))")
    assert subprocess.run([*inside, sys.executable, "-c", code], capture_output=True).returncode != 0
    ip("-n", world.host, "-6", "addr", "add", "fd00::1/64", "dev", "up0")
    subprocess.run([*inside, "ip", "-6", "route", "add", "default", "dev", "eth0"])
    code = "import socket; s = socket.socket(socket.AF_INET6); s.settimeout(1); s.connect(('fd00::1', 80))"
    assert subprocess.run([*inside, sys.executable, "-c", code], capture_output=True).returncode != 0


def test_nothing_of_it_stays(world, make_server):
    server = make_server()
    world.move_keeper(server, network="egress")
    server.execute("a", "true")
    assert "cove_" in world.rules() and "cv" in world.links()
    server.cleanup("a")
    keeper = server.keeper_pid
    os.kill(keeper, signal.SIGTERM)
    wait_for(lambda: not alive(keeper), what="the end of the keeper")
    assert "cove_" not in world.rules()
    wait_for(lambda: "cv" not in world.links(), what="the interfaces' end")


def test_without_a_network_there_is_loopback_and_no_rule(world, make_server):
    server = make_server()
    world.move_keeper(server, network="none")
    assert server.run("a", "grep -o '^ *[a-z0-9]*:' /proc/net/dev | tr -d ' :'") == "lo\n"
    assert server.run("a", "python3 -m http.server 8000 >/dev/null 2>&1 & sleep 0.5; echo") == "\n"
    assert get(server, "a", "127.0.0.1", 8000) != ""
    assert "cove_" not in world.rules()
