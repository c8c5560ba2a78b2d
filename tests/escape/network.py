"""Attempts on the network, in a small internet of the test's own (tests/system/internet.py): an instance in allow-list mode, a
neighbour that listens, a host with services on all its addresses, metadata servers, names that point inwards."""
import contextlib
import os
import shlex
import signal
import subprocess

import escape
from cove import wait_for
from internet import (HOST, HOST6, METADATA, METADATA6, OTHER_PUBLIC, OTHER_PUBLIC6, OTHER_RESOLVER, PRIVATE, PRIVATE6, RESOLVER,
                      RESOLVER6)

REBINDING = "rebinds.example metadata.example loopback.example mapped.example alias-inwards.example"
LIST = f"public.example *.wild.example host.example {REBINDING}"
LISTEN = """
import socket, threading
u = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
def echo():
    try: u.bind(('::', 9))
    except OSError: return  # without a network of its own it is the host's, whose service answers there
    while True:
        p, who = u.recvfrom(100); u.sendto(p, who)
threading.Thread(target=echo, daemon=True).start()
s = socket.create_server(('::', 8000), family=socket.AF_INET6, dualstack_ipv6=True)
open('/tmp/listens', 'w').close()
while True: s.accept()
"""


def addresses_of_host(world, scope):
    return [line.split()[3].split("/")[0] for line in world.run("ip", "-o", "addr", "show", "scope", scope).split("\n") if line]


def environment(server, world):
    server.run("neighbour", f"python3 -c {shlex.quote(LISTEN)} >/dev/null 2>&1 & until [ -e /tmp/listens ]; do sleep 0.05; done")
    pairs = {
        "HOST_ADDRESSES": addresses_of_host(world, "global"),
        "LINK_LOCAL_ADDRESSES": addresses_of_host(world, "link") + ["fe80::1"],
        "NEIGHBOUR_ADDRESSES": server.run("neighbour", "hostname -I").split(),
        "METADATA_ADDRESSES": [METADATA, METADATA6, "100.100.100.200", "168.63.129.16"],
        "PRIVATE_ADDRESSES": [PRIVATE, PRIVATE6],
        "UNLISTED_ADDRESSES": [OTHER_PUBLIC, OTHER_PUBLIC6],
        "REBINDING_NAMES": REBINDING.split(),
        "UNLISTED_NAMES": ["other.example", "wild.example", "no-such-name.example"],
        "RESOLVERS": [RESOLVER, OTHER_RESOLVER, RESOLVER6],
    }
    assert len(pairs["HOST_ADDRESSES"]) >= 2 and pairs["NEIGHBOUR_ADDRESSES"]
    return " ".join(f"{k}={shlex.quote(' '.join(v))}" for k, v in pairs.items())


def say(server, words, attempt, user):
    """(what it said, exit code)"""
    reply = server.execute(f"escape-{user}", f"export {words}; timeout 15 {attempt.command}")
    assert reply.status == 200, (attempt.name, reply)
    return reply.json["stdout"] + reply.json["stderr"], reply.json["exitCode"]


def run_one(server, world, words, attempt, user, say=say):
    before = world.settings()[0], world.rules().count("chain")
    out, code = say(server, words, attempt, user)
    assert code not in (99, 126, 127), f"{attempt.name} did not run: {out}"
    assert code != 124, f"{attempt.name} did not end within 15 s: that is neither refused nor through"
    evidence = [f"a packet of {source} went out" for source in world.seen() - {HOST, HOST6}]
    if (world.settings()[0], world.rules().count("chain")) != before:
        evidence.append("the host's settings are not what they were")
    if code == 0:
        evidence.append("it says so: " + (out.strip() or "exit 0")[:200])
    return escape.Result(attempt, user, evidence, out)


def run_all(server, world, attempts, program, users=("root", "user")):
    results = []
    for user in users:
        escape.become(server, user)
        escape.upload(server, f"escape-{user}", attempts, program)
        words = environment(server, world)
        results += [run_one(server, world, words, a, user) for a in attempts if user in a.users]
    return results


# ------------------------------------------------------------------ a network without its rules

def as_the_hosts_root(server, words, attempt, user):
    """In the sandbox's network, with the rights of the host's root. (what it said, exit code)"""
    init = server.init_of(server.execute(f"escape-{user}", "true"))
    done = subprocess.run(["nsenter", f"--net=/proc/{init}/ns/net", "bash", "-c",
                           f"export {words}; timeout 15 bash {escape.ATTEMPTS}/{attempt.name}.sh"], capture_output=True, text=True)
    return done.stdout + done.stderr, done.returncode


def loosen(namespace, *settings):
    """Settings of a network namespace, for all interfaces that are there."""
    enter = ["nsenter", f"--net={namespace}"]
    devices = subprocess.run([*enter, "ls", "/proc/sys/net/ipv4/conf"], capture_output=True, text=True, check=True).stdout.split()
    for name, value in settings:
        for device in devices:
            subprocess.run([*enter, "sysctl", "-qw", f"net.ipv4.conf.{device.replace('.', '/')}.{name}={value}"], check=True)


@contextlib.contextmanager
def without_rules(server, world, project):
    """The sandbox of this project and the host as they are, and between them no rule, no check of sources, and a link-local address of
    the host. The keeper, which would put the rules back, stands still meanwhile."""
    init = server.init_of(server.execute(project, "true"))
    own = [a for a in server.run(project, "hostname -I").split() if ":" not in a]
    pair = subprocess.run(["nsenter", f"--net=/proc/{init}/ns/net", "ip", "-o", "link", "show", "eth0"], capture_output=True, text=True, check=True).stdout
    link = pair.split("@if")[1].split(":")[0]
    device = next(line.split(": ")[1].split("@")[0] for line in world.links().split("\n") if line.startswith(f"{link}: "))
    table = next(line.split()[2] for line in world.rules().split("\n") if line.startswith("table inet cove_"))
    keeper = server.keeper_pid
    os.kill(keeper, signal.SIGSTOP)
    try:
        world.run("nft", "delete", "table", "inet", table)
        assert table not in world.rules()
        world.run("ip", "addr", "add", "fe80::1/64", "dev", device, "nodad")
        for address in own:  # nobody translates addresses now
            subprocess.run(["ip", "-n", world.internet, "route", "replace", address, "via", HOST], check=True)
        for space in (f"/proc/{init}/ns/net", f"/run/netns/{world.host}", f"/run/netns/{world.internet}"):
            loosen(space, ("rp_filter", 0), ("accept_source_route", 1), ("route_localnet", 1))
        yield
    finally:
        os.kill(keeper, signal.SIGCONT)


def run_without_rules(server, world, attempts, program):
    escape.become(server, "root")
    escape.upload(server, "escape-root", attempts, program)
    words = environment(server, world)
    with without_rules(server, world, "escape-root"):
        return [run_one(server, world, words, a, "root", as_the_hosts_root if a.control.endswith("root") else say) for a in attempts]


def check_the_way_out(server):
    """What is on the list is reached: an internet that is not there would prove nothing."""
    code = "import socket; socket.create_connection(('public.example', 80), 3)"
    wait_for(lambda: server.execute("way-out", f"python3 -c {shlex.quote(code)}").json["exitCode"] == 0, what="the way out")
