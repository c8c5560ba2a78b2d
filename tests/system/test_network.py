"""The network of sandboxes, in a small internet that the test makes (internet.py)."""
import ipaddress
import itertools
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys

import pytest

from cove import QUICKSTART, TOP, Server, alive, new_dir, read, stop, wait_for
from internet import (HOST, HOST6, METADATA, OTHER_PUBLIC, OTHER_PUBLIC6, OTHER_RESOLVER, PRIVATE, PRIVATE6, PUBLIC, PUBLIC6,
                      REFUSED_ALL, RESOLVER, RESOLVER6, World)
from test_console import told_by

# One round trip for many looks: what HTTP says there, and what names say. Each look has its own short time.
LOOK = """
import json, socket, sys, threading
def http(host):
    try:
        s = socket.create_connection((host, 80), 2)
        s.sendall(b'GET / HTTP/1.0\\r\\n\\r\\n'); data = b''
        while chunk := s.recv(4096): data += chunk
        return data.split(b'\\r\\n\\r\\n')[1].decode()
    except OSError: return ''
def name(host):
    try: return sorted({a[4][0] for a in socket.getaddrinfo(host, 80)})
    except OSError: return []
def look(kind, host): found[kind + ' ' + host] = {'http': http, 'name': name}[kind](host)
found = {}
threads = [threading.Thread(target=look, args=w.split()) for w in sys.argv[1:]]
[t.start() for t in threads]; [t.join() for t in threads]
print(json.dumps(found))
"""


def look(server, project, *what):
    """{'http HOST': word or '', 'name NAME': addresses}"""
    words = " ".join(shlex.quote(w) for w in what)
    return json.loads(server.run(project, f"python3 -c {shlex.quote(LOOK)} {words}"))


def get(server, project, *hosts):
    """What a sandbox hears from there, '' if nothing; of several hosts the set of words."""
    found = look(server, project, *(f"http {h}" for h in hosts))
    return found[f"http {hosts[0]}"] if len(hosts) == 1 else set(found.values())


def names(server, project, *hosts):
    return look(server, project, *(f"name {h}" for h in hosts))


def addresses_of(server, project):
    return server.run(project, "hostname -I").split()


@pytest.fixture
def world():
    with World() as w:
        yield w


@pytest.fixture
def serve(world, make_server):
    """serve(network="egress"): an instance whose keeper is in the world's host."""
    def make(**settings):
        server = make_server(network="none")
        world.move_keeper(server, **{"network_dns": RESOLVER, **settings})
        return server
    return make


@pytest.fixture(scope="module")
def egress():
    """One world and one instance with egress for all tests that change nothing in them: (world, server)."""
    with World() as world:
        server = Server(new_dir(), network="none", pool=1, workers=1).up()
        try:
            world.move_keeper(server, network="egress", network_dns=RESOLVER)
            yield world, server
        finally:
            stop(server)


@pytest.fixture
def server(egress):
    yield egress[1]
    for project in ("a", "b"):
        egress[1].cleanup(project)


# ------------------------------------------------------------------ egress

def heard_by(namespace, address):
    """What HTTP says at this address to a process of that namespace, which no rule of ours concerns."""
    code = (f"import urllib.request as u; print(u.build_opener(u.ProxyHandler({{}})).open('http://[{address}]/' if ':' in '{address}' "
            f"else 'http://{address}/', timeout=5).read().decode())")
    return subprocess.run(["ip", "netns", "exec", namespace, sys.executable, "-c", code], capture_output=True, text=True).stdout.strip()


def test_egress_reaches_public_addresses_and_names_of_both_families_and_nothing_else(egress, server):
    world = egress[0]
    for address in REFUSED_ALL:
        assert heard_by(world.host, address) == "internet", f"the control: somebody answers at {address}"
    for address in (HOST, HOST6):
        assert heard_by(world.internet, address) == "host", f"the control: the host answers at {address}"
    assert get(server, "a", PUBLIC, OTHER_PUBLIC, PUBLIC6, OTHER_PUBLIC6, "public.example", "alias.example") == {"internet"}
    assert get(server, "a", HOST, HOST6, *REFUSED_ALL) == {""}
    assert get(server, "a", "rebinds.example", "metadata.example", "host.example") == {""}


def test_a_link_has_one_queue_each_way_however_many_cpus_there_are(egress, server):
    init = server.init_of(server.execute("a", "true"))
    for where in (["ip", "netns", "exec", egress[0].host], ["nsenter", "-t", str(init), "--net"]):
        links = json.loads(subprocess.run([*where, "ip", "-d", "-j", "link", "show", "type", "veth"], capture_output=True, check=True).stdout)
        queues = {(link["num_tx_queues"], link["num_rx_queues"]) for link in links if link["ifname"].startswith(("cv", "eth0"))}
        assert queues == {(1, 1)}, links


def test_sandboxes_do_not_reach_each_other_nor_the_host_by_any_address(egress, server):
    world = egress[0]
    other = server.run("b", "python3 -m http.server --bind :: 80 >/dev/null 2>&1 & "
                            "python3 -c 'import socket,time\n"
                            "while 1:\n try: socket.create_connection((\"::1\", 80)); break\n except OSError: time.sleep(.05)'; "
                            "hostname -I").split()
    assert len(other) == 2 and "" not in {get(server, "b", a) for a in other}, "one of each family, and it answers itself"
    assert get(server, "a", *other) == {""}
    gateways = [str(ipaddress.ip_address(a) - 1) for a in [*other, *addresses_of(server, "a")]]
    assert get(server, "a", *gateways) == {""}, "the gateways of sandboxes' routes are nobody's"
    assert not [a for a in world.run("ip", "-o", "addr").split("\n") if "cv" in a], "the host's ends have no address"


TALK = f"""
import socket, time
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
while True:
    for _ in range(100): udp.sendto(b'x' * 1000, ('{PUBLIC}', 9))
    s = socket.create_connection(('{PUBLIC}', 80))
    s.sendall(b'GET / HTTP/1.0\\r\\n\\r\\n')
    while s.recv(4096): pass
    time.sleep(.05)
"""


def test_samples_tell_what_a_sandbox_receives_and_sends_and_not_what_others_do(server):
    quiet, busy = server.execute("b", "true").id, server.execute("a", f"python3 -c {shlex.quote(TALK)} >/dev/null 2>&1 &").id

    def usage(box, enough):
        """The first sample of the sandbox that is enough."""
        connection = server.connect()
        try:
            connection.request("GET", f"/console/api/sandboxes/{box}/usage", headers={"X-API-Key": server.key})
            told = itertools.islice(told_by(connection.getresponse()), 12)
            return next((data for kind, data in told if kind == "usage" and enough(data)), None)
        finally:
            connection.close()

    told = usage(busy, lambda data: data["sentBytesPerSecond"] > 0)
    assert told and told["sentBytesPerSecond"] > 20_000 and 0 < told["receivedBytesPerSecond"] < told["sentBytesPerSecond"], told
    later = usage(quiet, lambda data: data["time"] > told["time"])
    assert later and later["sentBytesPerSecond"] == later["receivedBytesPerSecond"] == 0, later


def test_the_hosts_end_of_a_link_leaves_two_routes_and_no_more(egress, server):
    """Each IPv6 route of the host makes every creation slower: the kernel goes through all of them when a link comes up."""
    world = egress[0]
    addresses = addresses_of(server, "a")

    def links():
        """The number of routes of each family by interface."""
        found = {}
        for version in ("-4", "-6"):
            for line in world.run("ip", version, "route", "show", "table", "all").splitlines():
                words = line.split()
                name = words[words.index("dev") + 1] if "dev" in words else ""
                if name.startswith("cv"):
                    found.setdefault(name, []).append(words[0])
        return found

    wait_for(lambda: all(len(routes) == 2 for routes in links().values()), what="routes for multicast to go", seconds=10)
    assert sorted(addresses) in [sorted(routes) for routes in links().values()]


def test_what_comes_from_outside_reaches_no_sandbox(world, serve):
    """Where a server listens on all addresses of the sandbox. The control: without our rules it is reached."""
    server = serve(network="egress")
    server.run("a", "python3 -m http.server --bind :: 8000 >/dev/null 2>&1 & "
                    "until (: </dev/tcp/127.0.0.1/8000) 2>/dev/null; do sleep 0.05; done")
    addresses = addresses_of(server, "a")
    assert len(addresses) == 2
    for address in addresses:
        subprocess.run(["ip", "-n", world.internet, "route", "add", f"{address}/{128 if ':' in address else 32}", "via",
                        "2001:db8:3::1" if ":" in address else HOST], check=True)

    def reached(address):
        code = f"import socket; socket.create_connection(('{address}', 8000), 1)"
        done = subprocess.run(["ip", "netns", "exec", world.internet, sys.executable, "-c", code], capture_output=True, text=True)
        assert done.returncode == 0 or "timed out" in done.stderr, done.stderr  # dropped, not answered
        return done.returncode == 0

    assert [a for a in addresses if reached(a)] == []
    table = next(line.split()[2] for line in world.rules().split("\n") if line.startswith("table inet cove_"))
    world.run("nft", "insert", "rule", "inet", table, "forward", "accept")
    assert [a for a in addresses if reached(a)] == addresses, "the control"


def test_lists_of_both_families_hold_for_running_sandboxes_and_mistakes_change_nothing(world, serve):
    server = serve(network="egress")
    assert get(server, "a", PRIVATE, PRIVATE6) == {""}
    server.change_config(network_allow=f"{PRIVATE}/32 fd99::/16", network_deny=f"{OTHER_PUBLIC} 2001:db8:9::/48")
    wait_for(lambda: PRIVATE in world.rules(), what="the new rules")
    assert get(server, "a", PRIVATE, PRIVATE6, PUBLIC, "rebinds.example") == {"internet"}
    assert get(server, "a", OTHER_PUBLIC, OTHER_PUBLIC6, METADATA) == {""}
    server.change_config(network="sideways")
    wait_for(lambda: "sideways" in str(server.log_lines()[-8:]), what="the refusal")
    assert get(server, "a", PRIVATE, PUBLIC) == {"internet"}


def test_rules_that_somebody_flushes_are_put_back(egress, server):
    world = egress[0]
    assert get(server, "a", PUBLIC) == "internet"
    world.run("nft", "flush", "ruleset")
    wait_for(lambda: "cove_" in world.rules(), what="the rules")
    assert get(server, "a", PUBLIC, "public.example") == {"internet"} and get(server, "a", PRIVATE, HOST) == {""}


# ------------------------------------------------------------------ allow-list

def test_an_allow_list_allows_addresses_and_names_on_it(serve):
    server = serve(network="allow-list", network_allow=f"{PUBLIC6} alias.example *.wild.example")
    assert get(server, "a", PUBLIC, OTHER_PUBLIC, OTHER_PUBLIC6, HOST, *REFUSED_ALL) == {""}
    assert get(server, "a", PUBLIC6) == "internet"
    assert get(server, "a", "public.example", "other.example", "wild.example") == {""}, "not on the list"
    assert get(server, "a", "b.c.wild.example") == "internet", "below the wildcard"
    assert get(server, "a", OTHER_PUBLIC) == "internet", "what a name was answered with"
    assert get(server, "b", OTHER_PUBLIC) == "", "for the sandbox that asked"
    assert get(server, "a", "alias.example") == "internet", "through a chain of aliases"


def test_no_name_leads_where_no_address_may(serve):
    server = serve(network="allow-list", network_allow="*")
    inwards = ("rebinds.example", "metadata.example", "loopback.example", "mapped.example", "alias-inwards.example")
    assert not any(names(server, "a", *inwards).values())
    assert names(server, "a", "half.example") == {"name half.example": [PUBLIC]}
    assert get(server, "a", *inwards, PRIVATE, METADATA, PRIVATE6) == {""}


def test_in_allow_list_mode_no_other_name_server_answers(serve):
    server = serve(network="allow-list", network_allow="public.example")
    ask = ("import socket,sys; s = socket.socket(socket.AF_INET{6}, socket.SOCK_{kind}); s.settimeout(2); s.connect(('{to}', 53));"
           "q = b'\\0\\7\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0\\5other\\7example\\0\\0\\1\\0\\1';"
           "s.send((b'\\0\\x1f' if '{kind}' == 'STREAM' else b'') + q); print(s.recv(512))")
    for to, six in ((RESOLVER, ""), (OTHER_RESOLVER, ""), (RESOLVER6, "6")):
        for kind in ("DGRAM", "STREAM"):
            code = ask.replace("{6}", six).replace("{kind}", kind).replace("{to}", to)
            assert server.execute("a", f"python3 -c {shlex.quote(code)}").json["exitCode"] != 0, (to, kind)


def open_connection(server, project):
    """A connection of this sandbox to public.example that goes on. Returns a function that waits until more has come by it."""
    follow = ("import socket; s = socket.create_connection(('public.example', 80)); s.sendall(b'GET /slow HTTP/1.0\\r\\n\\r\\n')\n"
              "f = open('/tmp/got', 'wb', 0)\nwhile d := s.recv(100): f.write(d)")
    server.run(project, f"python3 -c {shlex.quote(follow)} >/tmp/end 2>&1 & until [ -s /tmp/got ]; do sleep 0.05; done")
    size = lambda: int(server.run(project, "stat -c %s /tmp/got"))

    def goes_on():
        before = size()
        wait_for(lambda: size() > before + 30, what="more of it")
    return goes_on


def test_an_open_connection_outlives_its_pin_but_not_a_change_of_rules(world, serve):
    server = serve(network="allow-list", network_allow="public.example")
    goes_on = open_connection(server, "a")
    table = next(line.split()[2] for line in world.rules().split("\n") if line.startswith("table inet cove_"))
    world.run("nft", f"flush set inet {table} pins4; flush set inet {table} pins6")
    goes_on()
    server.change_config(network_allow="other.example")
    wait_for(lambda: "reset" in server.run("a", "cat /tmp/end"), what="the end of the connection")


# ------------------------------------------------------------------ one sandbox's own

def narrow(server, reply, *words):
    return subprocess.run([f"{TOP}/.cove/inst/bin/cove", "-c", f"{server.dir}/conf/cove.conf", "network", reply.id, *words], text=True,
                          capture_output=True)


def test_a_running_sandbox_s_network_can_be_narrowed_and_widened_again(server):
    reply = server.execute("a", "true")
    assert narrow(server, reply, "none").returncode == 0
    assert get(server, "a", PUBLIC, PUBLIC6, "public.example") == {""}
    assert get(server, "b", PUBLIC) == "internet", "its neighbour goes on"
    assert narrow(server, reply, "egress", f"deny={OTHER_PUBLIC} 2001:db8:9::/48").returncode == 0
    assert get(server, "a", PUBLIC, PUBLIC6, "public.example") == {"internet"}
    assert get(server, "a", OTHER_PUBLIC, OTHER_PUBLIC6) == {""}
    assert narrow(server, reply, "egress", f"allow={OTHER_PUBLIC} {PRIVATE}", "deny=0.0.0.0/0").returncode == 0
    assert get(server, "a", OTHER_PUBLIC) == "internet", "allow beats deny"
    assert get(server, "a", PUBLIC, PRIVATE) == {""}, "and opens nothing that the server refuses"
    assert narrow(server, reply, "allow-list", f"allow={PUBLIC6} *.wild.example").returncode == 0
    assert get(server, "a", PUBLIC, OTHER_PUBLIC, "public.example") == {""}
    assert get(server, "a", PUBLIC6, "a.wild.example") == {"internet"}
    assert narrow(server, reply, "egress").returncode == 0
    assert get(server, "a", PUBLIC, PUBLIC6, OTHER_PUBLIC) == {"internet"}
    assert "10.0.0.0/40" in narrow(server, reply, "egress", "allow=10.0.0.0/40").stderr


def test_lines_of_tenants_and_templates_narrow_it_too_and_all_of_them_hold_together(server):
    key = server.add_key("narrow")

    def run(*hosts):
        words = " ".join(f"'http {h}'" for h in hosts)
        reply = server.execute("n", f"python3 -c {shlex.quote(LOOK)} {words}", key=key)
        return set(json.loads(reply.json["stdout"]).values())

    def table(name, text):
        with open(f"{server.dir}/conf/{name}", "w") as f:
            f.write(text)

    assert run(PUBLIC, OTHER_PUBLIC, PUBLIC6) == {"internet"}
    table("tenants", f"narrow network=allow-list network_allow=public.example,{OTHER_PUBLIC},{PRIVATE}\n")
    wait_for(lambda: run(PUBLIC6) == {""}, what="the tenant's line, for a sandbox that runs")
    assert run("public.example", OTHER_PUBLIC) == {"internet"} and run(PRIVATE, "other.example") == {""}
    assert get(server, "a", PUBLIC6, "other.example") == {"internet"}, "other tenants go on"
    table("templates", "base network_deny=192.0.2.0/24\n")
    wait_for(lambda: run(OTHER_PUBLIC) == {""}, what="the template's line, on top")
    assert run("public.example") == {"internet"}
    assert server.cleanup("n", key=key).status == 200
    assert run(PUBLIC6, OTHER_PUBLIC) == {""} and run("public.example") == {"internet"}, "one from the pool"
    table("tenants", "")
    table("templates", "")
    wait_for(lambda: run(OTHER_PUBLIC, PUBLIC6) == {"internet"}, what="the lines' end")
    assert server.cleanup("n", key=key).status == 200


# ------------------------------------------------------------------ names

def test_names_work_by_udp_and_tcp_with_many_addresses_and_other_types(server):
    many = names(server, "a", "many.example")["name many.example"]
    assert len(many) == 64, "more than a packet holds: asked and answered by TCP, and bounded"
    ask = ("import socket,struct\nq = b'\\0\\7\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0\\6public\\7example\\0\\0\\x10\\0\\1'\n"
           "s = socket.create_connection(('127.0.0.53', 53), 2); s.sendall((struct.pack('!H', len(q)) + q) * 3)\n"
           "for i in range(3): n = struct.unpack('!H', s.recv(2))[0]; print(b'text' in s.recv(n))")
    assert server.run("a", f"python3 -c {shlex.quote(ask)}") == "True\n" * 3
    assert names(server, "a", "no-such-name.example") == {"name no-such-name.example": []}


def test_hostile_questions_harm_nobody(server):
    resolver = next(iter(server.titles("cove: resolver")))
    flood = ("import os, socket, random\nrandom.seed(7)\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
             "good = b'\\0\\7\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0\\6public\\7example\\0\\0\\1\\0\\1'\n"
             "for i in range(20000):\n p = bytearray(good)\n for _ in range(random.randrange(4)): p[random.randrange(len(p))] = "
             "random.randrange(256)\n s.sendto(bytes(p)[:random.randrange(len(p) + 1)], ('127.0.0.53', 53))\n"
             "cs = []\nfor i in range(100):\n c = socket.create_connection(('127.0.0.53', 53), 2); c.sendall(b'\\xff\\xff' + os.urandom(40));"
             " cs.append(c)\n")
    server.run("a", f"python3 -c {shlex.quote(flood)}")
    assert get(server, "b", "public.example") == "internet", "another sandbox has its names"
    assert wait_for(lambda: get(server, "a", "public.example") == "internet", what="names for the one that flooded")
    assert alive(resolver)


def test_a_killed_resolver_is_replaced_and_names_work_again(server):
    assert get(server, "a", "public.example") == "internet"
    resolver = next(iter(server.titles("cove: resolver")))
    os.kill(resolver, signal.SIGKILL)
    wait_for(lambda: get(server, "a", "public.example") == "internet", what="names again")


def test_the_resolver_has_no_privileges_and_no_files(server):
    pid = next(iter(server.titles("cove: resolver")))
    status = dict(line.split(":\t", 1) for line in open(f"/proc/{pid}/status").read().split("\n") if ":\t" in line)
    assert status["Uid"].split()[0] != "0" and int(status["CapEff"], 16) == 0 and int(status["CapBnd"], 16) == 0
    assert status["NoNewPrivs"] == "1" and status["Seccomp"] == "2"
    kinds = {os.readlink(f"/proc/{pid}/fd/{fd}").split(":")[0] for fd in os.listdir(f"/proc/{pid}/fd") if fd not in "012"}
    assert kinds <= {"socket", "anon_inode"}, kinds


# ------------------------------------------------------------------ the host

def end_keeper(server, signo):
    keeper = server.keeper_pid
    os.kill(keeper, signo)
    wait_for(lambda: not alive(keeper), what="the end of the keeper")


def test_two_keepers_on_one_host_do_not_disturb_each_other_and_leave_nothing(world, make_server):
    before = world.settings(), world.rules(), world.links()
    one, two = make_server(network="none"), make_server(network="none")
    for server in (one, two):
        world.move_keeper(server, network="egress", network_dns=RESOLVER)
    ours, theirs = addresses_of(one, "a"), addresses_of(two, "a")
    assert not set(ours) & set(theirs) and get(one, "a", *theirs) == {""}
    during = world.settings()[0]
    assert "net.ipv4.conf.up0.forwarding = 1" in during and "net.ipv4.ip_forward = 0" in during, "the uplink, not the machine"
    end_keeper(one, signal.SIGTERM)
    assert get(two, "a", PUBLIC, PUBLIC6) == {"internet"}, "the other one still goes out"
    end_keeper(two, signal.SIGTERM)
    assert (world.settings(), world.rules(), world.links()) == before


def test_a_new_keeper_cuts_nothing_off_and_what_a_killed_one_left_is_swept(world, serve):
    before = world.settings(), world.rules()
    server = serve(network="allow-list", network_allow="public.example other.example")
    assert narrow(server, server.execute("b", "true"), "allow-list", "allow=public.example").returncode == 0
    assert get(server, "a", "public.example", "other.example") == {"internet"}
    goes_on = open_connection(server, "a")
    end_keeper(server, signal.SIGKILL)
    world.start_keeper(server, TOP, wait_for)
    goes_on()
    assert get(server, "a", PUBLIC, OTHER_PUBLIC) == {"internet"}, "its pins are still there"
    wait_for(lambda: get(server, "b", "public.example") == "internet", what="names")
    assert get(server, "b", "other.example") == "", "and what was set for one sandbox"
    server.change_config(network_deny="192.0.2.77")
    wait_for(lambda: "192.0.2.77" in world.rules(), what="rules that are written anew")
    assert get(server, "b", "public.example") == "internet" and get(server, "b", "other.example") == ""
    server.cleanup("b")
    wait_for(lambda: "box_" not in world.rules(), what="the end of its rules with the sandbox")
    end_keeper(server, signal.SIGKILL)
    server.quickstart("down")  # ends what is left; the rules are in another network namespace than quickstart
    world.run(f"{TOP}/.cove/inst/sbin/coved", "-c", f"{server.dir}/conf/cove.conf", "--sweep")
    assert (world.settings(), world.rules()) == before


@pytest.mark.parametrize("killed", [False, True])
def test_quickstart_down_leaves_nothing_in_the_network(world, killed):
    before = world.settings(), world.rules(), world.links()
    server = Server(new_dir(), pool=2, workers=1)
    inside = ["nsenter", f"--net=/run/netns/{world.host}", QUICKSTART]
    words = ["--no-install", "--http", str(server.http), "--https", str(server.https), "--dir", server.dir]
    subprocess.run([*inside, "up", *words, "--set", "pool=2", "--set", "workers=1"], check=True, capture_output=True)
    wait_for(lambda: world.links().count(": cv") == 2, what="the interfaces of two warm sandboxes")
    assert "up0.forwarding = 1" in world.settings()[0] and "cove_" in world.rules()
    if killed:
        end_keeper(server, signal.SIGKILL)
    done = subprocess.run([*inside, "down", "--dir", server.dir], check=True, capture_output=True, text=True)
    assert (world.settings(), world.rules(), world.links()) == before
    assert not server.left_over() and ("network" in done.stderr) == killed, "it says what it found"
    shutil.rmtree(server.dir)


def test_a_host_without_ipv6_gives_sandboxes_none_and_an_uplink_that_comes_later_is_used(make_server):
    with World(ipv6=False) as world:
        world.disconnect()
        server = make_server(network="none")
        world.move_keeper(server, network="egress", network_dns=RESOLVER)
        assert get(server, "a", PUBLIC) == "" and server.run("a", "echo fine") == "fine\n"
        world.connect()
        wait_for(lambda: get(server, "a", PUBLIC) == "internet", 20, "the way out")
        assert all(":" not in a for a in addresses_of(server, "a"))
        assert server.run("a", "grep -c eth0 /proc/net/if_inet6 || true") == "0\n"


def capabilities_of_the_unit():
    """What systemd/cove.service leaves it, as setpriv writes it."""
    lines = re.findall(r"^CapabilityBoundingSet=(.*)$", read(f"{TOP}/systemd/cove.service.in"), re.M)
    return [f"+{name.removeprefix('CAP_').lower()}" for line in lines for name in line.split()]


def coved_with(capabilities):
    return ["setpriv", "--bounding-set", ",".join(["-all", *capabilities]), f"{TOP}/.cove/inst/sbin/coved"]


def test_the_unit_s_capabilities_are_enough_and_without_them_sandboxes_have_loopback(world, make_server):
    before = world.settings(), world.rules()
    server, unit = make_server(network="none"), capabilities_of_the_unit()
    world.move_keeper(server, coved_with(unit), network="egress", network_dns=RESOLVER)
    assert get(server, "a", "public.example", PUBLIC6) == {"internet"}
    world.move_keeper(server, coved_with([c for c in unit if c != "+net_admin"]))
    assert server.run("a", "grep -o '^ *[a-z0-9]*:' /proc/net/dev | tr -d ' :'") == "lo\n"
    told = [line for line in server.log_lines() if "sandboxes have no network but loopback" in line["event"]]
    assert len(told) == 1 and told[0]["error"], "once, with the reason"
    doctor = subprocess.run([f"{TOP}/.cove/inst/bin/cove", "-c", f"{server.dir}/conf/cove.conf", "doctor", "--json"], text=True,
                            capture_output=True)
    finding = next(f for f in json.loads(doctor.stdout) if f["check"] == "network")
    assert "sandboxes have none, not egress" in finding["what"] and "CAP_NET_ADMIN" in finding["fix"]
    assert (world.settings(), world.rules()) == before


def test_the_strict_profile_means_no_network_unless_the_configuration_says_so(world, make_server, tmp_path):
    policy = tmp_path / "policy.conf"
    policy.write_text('[*]\nseccomp = strict\ndeny nothing words /^cove-no-such-command$/ "never"\n')
    server = make_server(network="none", policy_file=str(policy))
    world.move_keeper(server, network="auto")
    assert server.run("a", "grep -c eth0 /proc/net/dev || true") == "0\n" and "cove_" not in world.rules()
    policy.write_text(policy.read_text().replace("strict", "default"))
    wait_for(lambda: "cove_" in world.rules(), what="rules, with the other profile")
    policy.write_text(policy.read_text().replace("default", "strict"))
    wait_for(lambda: "cove_" not in world.rules() and ": cv" not in world.links(), what="no network again")
    server.change_config(network="egress")
    wait_for(lambda: "cove_" in world.rules(), what="rules, as the configuration says")


def test_without_a_network_there_is_loopback_and_no_rule(world, make_server):
    server = make_server(network="none")
    world.move_keeper(server, network="none")
    assert server.run("a", "grep -o '^ *[a-z0-9]*:' /proc/net/dev | tr -d ' :'") == "lo\n"
    assert server.run("a", "python3 -m http.server 80 >/dev/null 2>&1 & until curl -s 127.0.0.1:80; do sleep 0.05; done") != ""
    assert "cove_" not in world.rules() and not server.titles("cove: resolver")
