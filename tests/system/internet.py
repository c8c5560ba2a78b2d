"""A small internet in network namespaces that a test makes: nothing here leaves this machine.

    sandbox --veth-- [ host: coved, a service ] --veth-- [ internet: HTTP on all its addresses, DNS, a metadata server ]

Run as a program it is a server in one of the two: `internet.py WORD [ADDRESS-OF-DNS...]` answers HTTP with WORD on every address, and
names (below) on port 53 of the addresses given.
"""
import http.server
import os
import secrets
import signal
import socket
import socketserver
import struct
import subprocess
import sys
import threading

PUBLIC, OTHER_PUBLIC, PRIVATE, METADATA = "198.51.100.7", "192.0.2.9", "10.99.0.1", "169.254.169.254"
RESOLVER, OTHER_RESOLVER, HOST = "198.51.100.53", "198.51.100.54", "203.0.113.1"
PUBLIC6, OTHER_PUBLIC6, PRIVATE6, METADATA6 = "2001:db8:7::7", "2001:db8:9::9", "fd99::1", "fd00:ec2::254"
RESOLVER6, HOST6 = "2001:db8:7::53", "2001:db8:3::1"
PUBLIC_ALL = (PUBLIC, OTHER_PUBLIC, RESOLVER, OTHER_RESOLVER, PUBLIC6, OTHER_PUBLIC6, RESOLVER6)
REFUSED_ALL = (PRIVATE, METADATA, PRIVATE6, METADATA6, "100.100.100.200", "168.63.129.16", "64:ff9b::c633:6407")

# name: (aliases one after the other), addresses. A name of another kind has no entry and does not exist.
ZONE = {
    "public.example": ((), [PUBLIC, PUBLIC6]),
    "other.example": ((), [OTHER_PUBLIC, OTHER_PUBLIC6]),
    "a.wild.example": ((), [PUBLIC]),
    "b.c.wild.example": ((), [OTHER_PUBLIC]),
    "wild.example": ((), [OTHER_PUBLIC]),
    "alias.example": (("www.cdn.example", "edge.cdn.example"), [PUBLIC]),
    "rebinds.example": ((), [PRIVATE, PRIVATE6]),
    "metadata.example": ((), [METADATA, METADATA6]),
    "loopback.example": ((), ["127.0.0.1", "::1"]),
    "mapped.example": ((), ["::ffff:10.99.0.1"]),
    "host.example": ((), [HOST, HOST6]),
    "half.example": ((), [PRIVATE, PUBLIC]),
    "many.example": ((), [f"198.51.100.{i}" for i in range(1, 250)]),
    "alias-inwards.example": (("rebinds.example",), [PRIVATE]),
}
TTL, ECHO = 5, 9
LAST = b"what came before this is written down"
SEND_LAST = f"""
import socket, sys
def answered(s, address):
    s.sendto({LAST}, (address, {ECHO}))  # not connected: the answer may come from another address of the service
    try:
        return s.recv(100)
    except TimeoutError:
        return False
for address in sys.argv[1:]:
    s = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(1)
    if not any(answered(s, address) for _ in range(20)):
        sys.exit("the service of the test's internet does not answer")
"""


# ------------------------------------------------------------------ the servers

def encode(name):
    return b"".join(bytes([len(part)]) + part.encode() for part in name.split(".") if part) + b"\0"


def decode(packet, at=12):
    labels = []
    while packet[at]:
        labels.append(packet[at + 1:at + 1 + packet[at]].decode("latin-1").lower())
        at += packet[at] + 1
    return ".".join(labels), at + 1


def record(name, kind, data, ttl=TTL):
    return encode(name) + struct.pack("!HHIH", kind, 1, ttl, len(data)) + data


def records_of(name, kind):
    if kind == 16 and name in ZONE:
        return [record(name, 16, b"\4text")]
    aliases, addresses = ZONE[name]
    found, owner = [], name
    for alias in aliases:
        found.append(record(owner, 5, encode(alias)))
        owner = alias
    for address in addresses:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        if kind == (28 if family == socket.AF_INET6 else 1):
            found.append(record(owner, kind, socket.inet_pton(family, address)))
    return found


def answer(query, room):
    name, end = decode(query)
    kind = struct.unpack("!H", query[end:end + 2])[0]
    records = records_of(name, kind) if name in ZONE else []
    code = 0 if name in ZONE else 3
    body = query[12:end + 4] + b"".join(records)
    truncated = 12 + len(body) > room
    if truncated:
        records, body = [], query[12:end + 4]
    flags = 0x8180 | code | (0x0200 if truncated else 0)
    return query[:2] + struct.pack("!HHHHH", flags, 1, len(records), 0, 0) + body


class Udp(socketserver.BaseRequestHandler):
    def handle(self):
        packet, sock = self.request
        sock.sendto(answer(packet, 1232), self.client_address)


class Tcp(socketserver.StreamRequestHandler):
    def handle(self):
        while len(head := self.rfile.read(2)) == 2:
            reply = answer(self.rfile.read(struct.unpack("!H", head)[0]), 65535)
            self.wfile.write(struct.pack("!H", len(reply)) + reply)


class Http(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        if self.path == "/slow":
            self.stream()
        else:
            self.wfile.write(sys.argv[1].encode())

    def stream(self):
        """A line each tenth of a second, for tests of connections that are there already."""
        wait = threading.Event()
        for i in range(600):
            self.wfile.write(b"%d\n" % i)
            self.wfile.flush()
            wait.wait(0.1)

    def log_message(self, *_):
        pass


class Echo(socketserver.BaseRequestHandler):
    """UDP: answers, and writes down who asked."""
    def handle(self):
        packet, sock = self.request
        if os.environ.get("SEEN") and packet != LAST:
            with open(os.environ["SEEN"], "a") as f:
                f.write(self.client_address[0].removeprefix("::ffff:") + "\n")
        sock.sendto(packet, self.client_address)


class Echoes(socketserver.UDPServer):
    """One packet after the other: when one has its answer, those before it are written down (World.seen)."""
    address_family = socket.AF_INET6


class Both(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6
    daemon_threads = True


def serve():
    for address in sys.argv[2:]:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        for base, handler in ((socketserver.ThreadingUDPServer, Udp), (socketserver.ThreadingTCPServer, Tcp)):
            kind = type("Server", (base,), {"address_family": family, "daemon_threads": True, "allow_reuse_address": True})
            threading.Thread(target=kind((address, 53), handler).serve_forever, daemon=True).start()
    threading.Thread(target=Echoes(("::", ECHO), Echo).serve_forever, daemon=True).start()
    Both(("::", 80), Http).serve_forever()


# ------------------------------------------------------------------ the world

def ip(*args):
    subprocess.run(["ip", *args], check=True, capture_output=True)


class World:
    def __init__(self, ipv6=True):
        tag = secrets.token_hex(3)
        self.host, self.internet, self.ipv6 = f"cove-host-{tag}", f"cove-inet-{tag}", ipv6
        self.servers = []
        self.seen_file = f"/tmp/{self.internet}-seen"

    def seen(self):
        """Sources of all packets that were sent to the internet's UDP service before this call. On a busy machine the service gets to them
        later: it is asked to answer one more."""
        addresses = [PUBLIC, PUBLIC6] if self.ipv6 else [PUBLIC]
        subprocess.run(["nsenter", f"--net=/run/netns/{self.host}", sys.executable, "-S", "-c", SEND_LAST, *addresses], check=True)
        if not os.path.exists(self.seen_file):
            return set()
        with open(self.seen_file) as f:
            return set(f.read().split())

    def __enter__(self):
        for ns in (self.host, self.internet):
            ip("netns", "add", ns)
            ip("-n", ns, "link", "set", "lo", "up")
        ip("-n", self.host, "link", "add", "up0", "type", "veth", "peer", "name", "down0", "netns", self.internet)
        self._address(self.host, "up0", f"{HOST}/24", f"{HOST6}/64")
        ours = [f"{a}/{128 if ':' in a else 32}" for a in PUBLIC_ALL + REFUSED_ALL]
        self._address(self.internet, "down0", "203.0.113.2/24", "2001:db8:3::2/64", *ours)
        for ns, dev in ((self.host, "up0"), (self.internet, "down0")):
            ip("-n", ns, "link", "set", dev, "up")
        self.connect()
        for ns, words in ((self.internet, ["internet", RESOLVER, OTHER_RESOLVER, *([RESOLVER6] if self.ipv6 else [])]), (self.host, ["host"])):
            self.servers.append(subprocess.Popen(["ip", "netns", "exec", ns, sys.executable, os.path.abspath(__file__), *words],
                                                 env={**os.environ, "SEEN": self.seen_file if words[0] == "internet" else ""}))
        return self

    def _address(self, ns, dev, *addresses):
        for address in addresses:
            if ":" not in address:
                ip("-n", ns, "addr", "add", address, "dev", dev)
            elif self.ipv6:
                ip("-n", ns, "addr", "add", address, "dev", dev, "nodad")

    def connect(self):
        ip("-n", self.host, "route", "add", "default", "via", "203.0.113.2")
        if self.ipv6:
            ip("-n", self.host, "-6", "route", "add", "default", "via", "2001:db8:3::2")

    def disconnect(self):
        ip("-n", self.host, "route", "del", "default")
        if self.ipv6:
            ip("-n", self.host, "-6", "route", "del", "default")

    def __exit__(self, *_):
        for server in self.servers:
            server.kill()
            server.wait()
        for ns in (self.host, self.internet):
            subprocess.run(["ip", "netns", "del", ns])
        if os.path.exists(self.seen_file):
            os.unlink(self.seen_file)

    def run(self, *command):
        """What a command says in the world's host."""
        return subprocess.run(["ip", "netns", "exec", self.host, *command], capture_output=True, text=True).stdout

    def rules(self):
        return self.run("nft", "list", "ruleset")

    def links(self):
        return self.run("ip", "-o", "link")

    def settings(self):
        """What a keeper may have changed on the host, interfaces of sandboxes aside."""
        names = ["net.ipv4.ip_forward", "net.ipv4.conf.all.forwarding", "net.ipv4.conf.default.forwarding",
                 "net.ipv4.conf.up0.forwarding", "net.ipv6.conf.all.forwarding", "net.ipv6.conf.default.forwarding",
                 "net.ipv6.conf.up0.forwarding", "net.ipv6.conf.up0.force_forwarding", "net.ipv4.conf.all.rp_filter"]
        return self.run("sysctl", "-e", *names), self.run("ip", "route"), self.run("ip", "-6", "route")

    def start_keeper(self, server, top, wait_for, program=None, **settings):
        """A keeper of this instance in the world's host: nginx reaches it by its socket as before."""
        with open(f"{server.dir}/conf/cove.conf", "a") as f:
            f.writelines(f"{k} = {v}\n" for k, v in settings.items())
        before = server.keeper_pid
        coved = program or [f"{top}/.cove/inst/sbin/coved"]
        with open(f"{server.dir}/log/coved.log", "a") as log:
            subprocess.Popen(["nsenter", f"--net=/run/netns/{self.host}", *coved, "-c", f"{server.dir}/conf/cove.conf"],
                             stderr=log, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True)
        wait_for(lambda: server.keeper_pid not in (0, before), 15, "the keeper")
        wait_for(lambda: server.request("GET", "/health").status == 200, 15, "its workers")

    def move_keeper(self, server, program=None, **settings):
        """The instance's keeper ends and comes back in the world's host. Settings come after the move, so that the real host
        sees nothing of them."""
        from cove import TOP, alive, wait_for
        keeper = server.keeper_pid
        os.kill(keeper, signal.SIGTERM)
        wait_for(lambda: not alive(keeper), what="the end of the keeper")
        self.start_keeper(server, TOP, wait_for, program, **settings)


if __name__ == "__main__":
    serve()
