"""Rules of the network that a break in the code would remove without anybody noticing: each test has a control that shows it can fail."""
import shlex
import subprocess
import sys

from cove import read, wait_for
from internet import ECHO, HOST, OTHER_PUBLIC, OTHER_PUBLIC6, PUBLIC, PUBLIC6
from test_network import addresses_of, get, serve, world  # noqa: F401: fixtures


def table(world):
    return next(line.split()[2] for line in world.rules().split("\n") if line.startswith("table inet cove_"))


def send_from(init, source):
    """One UDP packet to the internet's echo, out of the sandbox's namespace, with this source."""
    code = (f"import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('{source}', 0)); "
            f"s.settimeout(1); s.sendto(b'x', ('{PUBLIC}', {ECHO}))")
    subprocess.run(["nsenter", f"--net=/proc/{init}/ns/net", sys.executable, "-c", code], check=True)


def dropped_by_source(world):
    """Packets that the source check has counted."""
    chain = world.run("nft", "list", "chain", "inet", table(world), "out")
    return int(next(line for line in chain.split("\n") if "missing counter" in line).split("packets ")[1].split()[0])


def test_a_packet_with_a_foreign_source_never_arrives(world, serve):
    server = serve(network="egress")
    init = server.init_of(server.execute("a", "true"))
    own = next(a for a in addresses_of(server, "a") if ":" not in a)
    subprocess.run(["nsenter", f"--net=/proc/{init}/ns/net", "ip", "addr", "add", "10.201.77.2", "dev", "eth0"], check=True)
    send_from(init, "10.201.77.2")
    wait_for(lambda: dropped_by_source(world) == 1, what="the packet at the check")
    assert HOST not in world.seen()
    send_from(init, own)  # the control: the same packet with the right source
    wait_for(lambda: HOST in world.seen(), what="the packet with its own source")


def count_on(world, device):
    """How many packets of the test leave by this device, counted by a rule of the test's own. Returns a function that tells."""
    world.run("nft", "add table inet look; add chain inet look leaves { type filter hook postrouting priority 300; }; "
                     f"add rule inet look leaves oifname {device} udp dport 9 counter")
    return lambda: int(world.run("nft", "list", "chain", "inet", "look", "leaves").split("packets ")[1].split()[0])


def test_the_host_is_no_router_for_the_outside(world, serve):
    """Forwarding is on for the uplink while coved runs: what comes in there leaves only to sandboxes."""
    world.run("ip", "link", "add", "lan0", "type", "veth", "peer", "name", "lan1")
    world.run("ip", "addr", "add", "192.168.77.1/24", "dev", "lan0")
    for device in ("lan0", "lan1"):
        world.run("ip", "link", "set", device, "up")
    world.run("ip", "neigh", "add", "192.168.77.5", "lladdr", "02:00:00:00:00:05", "dev", "lan0")
    serve(network="egress")
    subprocess.run(["ip", "-n", world.internet, "route", "add", "192.168.77.0/24", "via", HOST], check=True)

    def knock():
        code = "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('192.168.77.5', 9))"
        subprocess.run(["ip", "netns", "exec", world.internet, sys.executable, "-c", code], check=True)

    def guarded():
        chain = world.run("nft", "list", "chain", "inet", table(world), "forward")
        return sum(int(line.split("packets ")[1].split()[0]) for line in chain.split("\n") if "@opened4" in line)

    left = count_on(world, "lan0")
    knock()
    wait_for(lambda: guarded() >= 1, what="the packet at the guard")
    assert left() == 0
    world.run("nft", "flush", "chain", "inet", table(world), "forward")  # the control: without the guard it is forwarded
    knock()
    wait_for(lambda: left() == 1, what="the packet on the other side")


def test_deny_beats_allow(world, serve):
    server = serve(network="egress", network_allow=f"{PUBLIC}/32 {PUBLIC6}/128", network_deny=f"{PUBLIC}/32 {PUBLIC6}/128")
    assert get(server, "a", PUBLIC, PUBLIC6) == {""}
    assert get(server, "a", OTHER_PUBLIC, OTHER_PUBLIC6) == {"internet"}


def test_a_wide_allow_list_does_not_join_sandboxes(world, serve):
    server = serve(network="egress", network_allow="10.0.0.0/8 fc00::/7")
    other = server.run("b", "python3 -m http.server --bind :: 80 >/dev/null 2>&1 & "
                            "python3 -c 'import socket,time\n"
                            "while 1:\n try: socket.create_connection((\"::1\", 80)); break\n except OSError: time.sleep(.05)'; "
                            "hostname -I").split()
    assert get(server, "b", *other) != {""}
    assert get(server, "a", *other) == {""}


def test_a_pin_runs_out_by_itself(world, serve):
    server = serve(network="allow-list", network_allow="public.example")
    assert get(server, "a", "public.example") == "internet"
    for name in ("pins4", "pins6"):
        pins = world.run("nft", "list", "set", "inet", table(world), name).split("elements = {")[1].split("}")[0]
        assert pins.strip() and all("timeout" in pin and "expires" in pin for pin in pins.split(","))


# Answers nothing and tells what it was asked: identity and port of each question.
SILENT = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind((sys.argv[1], 53)); print("ready", flush=True)
while True:
    packet, (_, port) = s.recvfrom(4096)
    print(int.from_bytes(packet[:2], "big"), port, flush=True)
"""


def test_questions_have_identities_and_ports_that_nobody_can_guess(world, serve):
    silent = subprocess.Popen(["ip", "netns", "exec", world.internet, sys.executable, "-c", SILENT, PUBLIC],
                              stdout=subprocess.PIPE, text=True)
    try:
        assert silent.stdout.readline() == "ready\n"
        server = serve(network="egress", network_dns=PUBLIC)
        ask = "import socket\nfor i in range(24):\n s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n" \
              " s.sendto(b'\\0\\1\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0\\4n%03d\\7example\\0\\0\\1\\0\\1' % i, ('127.0.0.53', 53))"
        server.run("a", f"python3 -c {shlex.quote(ask)}")
        asked = [silent.stdout.readline().split() for _ in range(24)]
    finally:
        silent.kill()
        silent.wait()
    ids, ports = {a for a, _ in asked}, {b for _, b in asked}
    assert len(ids) >= 22 and len(ports) >= 12, (ids, ports)
    numbers = sorted(int(i) for i in ids)
    assert numbers[-1] - numbers[0] > 4096, numbers  # not one after the other


OPEN = """
import socket, sys
held = []
for i in range(60):
    try:
        held.append(socket.create_connection((sys.argv[1], 80), 3))
    except OSError:
        pass
print(len(held))
"""


def test_one_sandbox_has_a_share_of_the_kernels_connections(world, serve):
    server = serve(network="egress", network_connections=20)
    assert int(server.run("a", f"python3 -c {shlex.quote(OPEN)} {PUBLIC}")) == 20
    assert int(server.run("b", f"python3 -c {shlex.quote(OPEN)} {PUBLIC}")) == 20  # of each sandbox by itself


# Sends to this many addresses in each way by which a datagram takes an entry of the table of neighbours.
MEET = """
import socket, sys
device, count = socket.if_nametoindex("eth0"), int(sys.argv[1])
direct = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
direct.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"eth0")
direct.setsockopt(socket.SOL_SOCKET, socket.SO_DONTROUTE, 1)
six = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
six.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, device)
for i in range(1, count + 1):
    direct.sendto(b"x", ("9.1.%d.%d" % (i >> 8, i & 255), 9))
    direct.sendto(b"x", ("239.1.%d.%d" % (i >> 8, i & 255), 9))
    six.sendto(b"x", ("ff05::%x" % i, 9))
"""


def overflows():
    """How often an entry was refused since the machine started, because a table of neighbours was full. The files have one line a cpu."""
    lines = [line.split() for name in ("arp_cache", "ndisc_cache") for line in read(f"/proc/net/stat/{name}").splitlines()]
    return sum(int(line[-1], 16) for line in lines if line[-1] != "table_fulls")


def test_no_number_of_addresses_keeps_others_from_finding_theirs(world, serve):
    """The kernel's tables of neighbours have 1024 entries each for all network namespaces together. A program can take them all, and the
    kernel takes them back as soon as anybody needs one, because they wait for no answer."""
    server = serve(network="egress", pool=0)
    init = server.init_of(server.execute("a", "true"))
    before = overflows()
    server.run("a", f"python3 -c {shlex.quote(MEET)} 20")
    shown = subprocess.run(["nsenter", f"--net=/proc/{init}/ns/net", "ip", "neigh", "show", "nud", "all"],
                           capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(shown) >= 60 and not [line for line in shown if "NOARP" not in line]
    server.run("a", f"python3 -c {shlex.quote(MEET)} 3000")
    assert get(server, "b", PUBLIC, PUBLIC6) == {"internet"}, "a sandbox that was made with the tables full"
    assert get(server, "a", PUBLIC, PUBLIC6) == {"internet"}
    assert overflows() == before


def e2b_sandbox(server, **network):
    reply = server.request("POST", "/v2/sandboxes", {"templateID": "base", "timeout": 120, **network})
    assert reply.status == 201, reply
    return reply.json["sandboxID"]


def test_networks_of_the_e2b_dialect_hold_at_creation_and_after_a_change(serve):
    """What a client of that dialect asked for, and each of them with an address that it leaves open."""
    server = serve(network="egress")
    free = e2b_sandbox(server)
    assert get(server, free, PUBLIC, OTHER_PUBLIC) == {"internet"}
    none = e2b_sandbox(server, allow_internet_access=False)
    assert get(server, none, PUBLIC, "public.example") == {""}
    some = e2b_sandbox(server, network={"denyOut": ["0.0.0.0/0"], "allowOut": [PUBLIC, "other.example"]})
    assert get(server, some, PUBLIC, "other.example") == {"internet"}
    assert get(server, some, PUBLIC6) == ""
    not_one = e2b_sandbox(server, network={"denyOut": [f"{PUBLIC}/32"]})
    assert (get(server, not_one, PUBLIC), get(server, not_one, OTHER_PUBLIC)) == ("", "internet")
    changed = server.request("PUT", f"/sandboxes/{not_one}/network", {"denyOut": [f"{OTHER_PUBLIC}/32"]})
    assert changed.status == 204
    assert (get(server, not_one, PUBLIC), get(server, not_one, OTHER_PUBLIC)) == ("internet", "")
    assert server.request("PUT", f"/sandboxes/{not_one}/network", {}).status == 204
    assert get(server, not_one, PUBLIC, OTHER_PUBLIC) == {"internet"}
    for sandbox in (free, none, some, not_one):
        assert server.request("DELETE", f"/sandboxes/{sandbox}").status == 204
