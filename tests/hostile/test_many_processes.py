"""A tenant whose sandboxes together start as many processes as all sandboxes may have."""
import os

import pytest

from cove import read, wait_for

ROOM = 300  # for processes of all sandboxes, in this test
START = "for i in $(seq {}); do sleep 600 2>/dev/null & done; jobs -p | wc -l"


def lower_the_bound(server):
    corner, = [d for d in server.cgroups() if os.path.exists(f"{d}/pids.max")]
    bound = int(read(f"{corner}/pids.current")) + ROOM
    with open(f"{corner}/pids.max", "w") as f:
        f.write(str(bound))


def starts_soon(server, key):
    try:
        wait_for(lambda: server.execute("theirs", START.format(20) + "; kill $(jobs -p)", key=key).json["stdout"] == "20\n", 10, "20 processes")
    except AssertionError:
        return False
    return True


@pytest.mark.weak(layers="places")
def test_a_tenant_with_most_processes_leaves_some_to_others(target, attempt):
    server = target(pool=0)
    victim = server.add_key("victim")
    assert starts_soon(server, victim)
    for name in ("a", "b"):
        server.run(name, "true")
    lower_the_bound(server)
    for name in ("a", "b"):  # neither has more than its own pids_max, both together have all that there is
        server.execute(name, START.format(ROOM))
    attempt("take all processes", not starts_soon(server, victim) and "the victim starts none")
    more = server.execute("a", START.format(20))
    attempt("take those of others, too", more.json.get("stdout") == "20\n" and more)
    assert server.execute("c", "true").status == 429
    assert server.execute("theirs-too", "true", key=victim).status == 200
    for name in ("a", "b"):  # whoever is held can still end what it has
        assert server.cleanup(name).status == 200
