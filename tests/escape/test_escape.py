"""The wall holds, and the suite that says so can fail."""
import re

import pytest

from cove import TOP, read
import control
import escape
import network
from internet import PRIVATE, PRIVATE6, RESOLVER, World

ENOUGH = 80


@pytest.fixture(scope="module")
def attempts():
    return escape.load_all()


@pytest.fixture(scope="module")
def program(attempts, tmp_path_factory):
    return escape.compile_all(attempts, tmp_path_factory.mktemp("attempts"))


@pytest.fixture
def open_server(make_server, tmp_path):
    """An instance whose policy refuses nothing."""
    def make(**settings):
        (tmp_path / "policy.conf").write_text(escape.POLICY)
        return make_server(policy_file=str(tmp_path / "policy.conf"), memory_max="256M", pids_max="128", **settings)
    return make


def in_internet(attempts):
    return [a for a in attempts if a.in_internet]


def on_the_host(attempts):
    return [a for a in attempts if not a.in_internet]


def test_no_attempt_escapes(open_server, attempts, program, capsys):
    results = escape.run_all(open_server(), on_the_host(attempts), program)
    with capsys.disabled():
        print("\n" + escape.summary(results))
    assert len(attempts) >= ENOUGH
    assert not [str(r) for r in results if r.evidence]
    assert not [wrong for r in results if (wrong := control.expected(r.attempt, r.out))], "refused, but not in the way it should be"


def test_attempts_can_succeed_or_are_not_testable_here(open_server, attempts, program, tmp_path, capsys):
    """An attempt that could never succeed proves nothing: each is seen to get through where there is no wall, or counted apart."""
    with escape.World(open_server(pool=1)) as world:
        verdicts = {a: control.verdict(a, world, program, str(tmp_path)) for a in attempts}
    names = {word: sorted(a.name for a in verdicts if verdicts[a] == word) for word in ("controlled", "not testable", "without control")}
    with capsys.disabled():
        print(f"\nof {len(verdicts)} attempts {len(names['controlled'])} are seen to succeed without a wall, {len(names['not testable'])} are "
              f"not testable on this kernel ({', '.join(names['not testable'])}), {len(names['without control'])} have no control")
    assert not "\n".join(text for text in verdicts.values() if text not in names)
    assert not names["without control"]


def test_no_attempt_on_the_network_escapes(open_server, attempts, program, capsys):
    with World() as world:
        server = open_server(network="none")
        world.move_keeper(server, network="allow-list", network_allow=network.LIST, network_dns=RESOLVER)
        network.check_the_way_out(server)
        results = network.run_all(server, world, in_internet(attempts), program)
        with capsys.disabled():
            print("\n" + escape.summary(results))
        assert not [str(r) for r in results if r.evidence]
        assert not [wrong for r in results if (wrong := control.expected(r.attempt, r.out))], "refused, but not in the way it should be"


# ------------------------------------------------------------------ the suite can fail

def test_attempts_on_names_succeed_where_there_is_no_list(open_server, attempts, program):
    """The control of those that are marked `control: egress`."""
    with World() as world:
        server = open_server(network="none")
        world.move_keeper(server, network="egress", network_dns=RESOLVER)
        network.check_the_way_out(server)
        results = network.run_all(server, world, [a for a in attempts if a.control == "egress"], program, ("root",))
    assert results and not [r.attempt.name for r in results if not r.evidence], "seen to succeed"


def test_attempts_on_the_network_succeed_where_there_are_no_rules(open_server, attempts, program):
    """The control of those that are marked `control: no rules`. Addresses that are refused always are opened for names here."""
    with World() as world:
        server = open_server(network="none")
        world.move_keeper(server, network="egress", network_allow=f"{PRIVATE}/32 {PRIVATE6}/128", network_dns=RESOLVER)
        network.check_the_way_out(server)
        marked = [a for a in attempts if a.control and a.control.startswith("no rules")]
        results = network.run_without_rules(server, world, marked, program)
    assert len(results) == 6 and not [(r.attempt.name, r.out) for r in results if not r.evidence], "seen to succeed"


WEAKNESSES = ("seccomp,caps,landlock,namespaces,proc", "seccomp,landlock,net,ipc,uts,proc",
              "caps,landlock,root")  # with filters: without one init has no launcher


@pytest.fixture(scope="module")
def weak_build():
    return escape.build_weak()


def test_a_weakened_build_is_found_out(open_server, attempts, program, weak_build, capsys):
    openings = [a for a in on_the_host(attempts) if a.opens_when_weak]
    escaped = set()
    for layers in WEAKNESSES:
        server = open_server()
        escape.weaken(server, weak_build, layers)
        escaped |= {r.attempt.name for r in escape.run_all(server, openings, program, ("root",)) if r.evidence}
    with capsys.disabled():
        print(f"\nof {len(openings)} attempts that need a weak wall, {len(escaped)} escape from one")
    assert len(escaped) >= 10
    assert sorted(a.name for a in openings if a.name not in escaped) == [], "marked 'weak: opens' and yet refused"


# Mounts, which the filter and missing capabilities refuse too. Those that only make a detached mount are no matter of Landlock's.
HELD_BY_LANDLOCK = ["mount-bind", "mount-overlay", "mount-proc", "mount-root-propagation", "mount-tmpfs"]


def test_landlock_holds_by_itself(open_server, attempts, program, weak_build):
    """The layers that refuse the same are taken away: without Landlock all of these would get through (the test above)."""
    server = open_server()
    escape.weaken(server, weak_build, WEAKNESSES[0].replace("landlock,", ""))
    held = [a for a in attempts if a.name in HELD_BY_LANDLOCK]
    assert len(held) == len(HELD_BY_LANDLOCK) and all(a.opens_when_weak for a in held)
    assert not [str(r) for r in escape.run_all(server, held, program, ("root",)) if r.evidence]


def test_a_weakened_network_is_found_out(open_server, attempts, program, weak_build, capsys):
    openings = [a for a in in_internet(attempts) if a.opens_when_weak]
    with World() as world:
        server = open_server(network="none")
        coved = ["env", "COVE_WEAK=net", f"{weak_build}/coved", "-o", f"libexec_dir={weak_build}"]
        world.move_keeper(server, coved, network="allow-list", network_allow=network.LIST, network_dns=RESOLVER)
        results = network.run_all(server, world, openings, program, ("root",))
    escaped = {r.attempt.name for r in results if r.evidence}
    with capsys.disabled():
        print(f"\nof {len(openings)} attempts on the network that need a weak wall, {len(escaped)} escape from one")
    assert sorted(a.name for a in openings if a.name not in escaped) == [], "marked 'weak: opens' and yet refused"


@pytest.mark.parametrize("name", ["sbin/coved", "libexec/cove/cove-init"])
def test_an_ordinary_build_does_not_know_the_switch(name):
    with open(f"{TOP}/.cove/inst/{name}", "rb") as f:
        assert b"COVE_WEAK" not in f.read()


def test_the_security_document_lists_every_attempt_by_class_and_no_other():
    """tests/escape/list.py prints what must stand there."""
    import list as listing
    text = read(f"{TOP}/docs/SECURITY.md")
    text = text[text.index("\n### devices\n"):]  # where the list begins; tables before it are about other things
    assert not [section.split("\n")[0] for section in listing.sections() if section not in text]
    names = {a.name for a in listing.everything()}
    assert set(re.findall(r"^\| `([\w-]+)`(?: \*)? \|", text, re.M)) == names
