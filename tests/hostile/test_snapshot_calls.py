"""What a worker that was taken over makes of the keeper's calls about snapshots: odd names, odd numbers, other tenants' sandboxes, floods."""
import os
import re
import struct

from cove import TOP, read
from hostile import Keeper, as_worker

HEADER = read(f"{TOP}/include/cove/names.h") + read(f"{TOP}/include/cove/msg_keeper.h")
NAME, TAG = (int(re.search(rf"COVE_{word}_MAX = (\d+)", HEADER).group(1)) for word in ("TEMPLATE", "TAG"))


def capture(tenant, box, name=b"", flags=0, tag=b""):
    return struct.pack(f"=64s24s{NAME}s{TAG}sII", tenant, box, name, tag, flags, 0)


def ask(run_dir, kind, body):
    """The kind of the answer, or "cut": the keeper ended the conversation."""
    with Keeper(run_dir) as keeper:
        try:
            return keeper.ask(kind, body)[0]
        except (OSError, struct.error):
            return "cut"


def test_odd_messages_about_snapshots_make_and_remove_nothing(target, attempt):
    server = target(pool=0)
    box = server.execute("p", "echo kept > /workspace/f").id.encode()
    state = server.config["state_dir"]
    odd = {
        "a name that leads out": capture(b"default", box, b"../../../../tmp/evil"),
        "a hidden name": capture(b"default", box, b".new-x"),
        "a line feed in the name": capture(b"default", box, b"a\nflags 0\ntenant other"),
        "a name without an end": capture(b"default", box, b"a" * NAME),
        "another tenant's sandbox": capture(b"stranger", box, b"mine"),
        "nobody's sandbox": capture(b"", box, b"mine"),
        "a path for an id": capture(b"default", b"../boxes", b"mine"),
        "unknown flags": capture(b"default", box, b"mine", 0xfffffffe),
        "a passing one with a name": capture(b"default", box, b"mine", 1),
        "a tag that leads out": capture(b"default", box, b"mine", tag=b"../../x"),
        "a line feed in the tag": capture(b"default", box, b"mine", tag=b"a\nflags 0"),
        "a tag without an end": capture(b"default", box, b"mine", tag=b"a" * TAG),
    }
    for what, body in odd.items():
        answer = as_worker(server, ask, server.run_dir, "KEEPER_CAPTURE", body)
        attempt(f"capture: {what}", answer not in ("MSG_ERROR", "cut") and answer)
    for what, name in {"a path": b"../boxes/" + box, "nothing": b"", "the directory": b"."}.items():
        answer = as_worker(server, ask, server.run_dir, "KEEPER_SNAPSHOT_REMOVE", struct.pack(f"=64s{NAME}s", b"default", name))
        attempt(f"remove: {what}", answer not in ("MSG_ERROR", "cut") and answer)
    for number in (1, 2**32, 2**64 - 1):
        answer = as_worker(server, ask, server.run_dir, "KEEPER_SNAPSHOTS", struct.pack("=64sQ", b"default", number))
        attempt(f"list from {number}", answer not in ("KEEPER_SNAPSHOT_LIST", "MSG_ERROR", "cut") and answer)
    attempt("something was made", os.listdir(f"{state}/snapshots"))
    attempt("something was made outside", os.path.exists("/tmp/evil"))
    assert server.run("p", "cat /workspace/f") == "kept\n"


def test_a_flood_of_captures_is_bounded_and_the_sandbox_goes_on(target, attempt):
    server = target(pool=0, tenant_snapshots=5)
    box, run_dir = server.execute("p", "echo kept > /workspace/f").id.encode(), server.run_dir

    def flood():
        made = 0
        with Keeper(run_dir) as keeper:
            for _ in range(60):
                made += keeper.ask("KEEPER_CAPTURE", capture(b"default", box, b"", 1))[0] == "KEEPER_SNAPSHOT"
        return made
    made = as_worker(server, flood)
    assert made >= 1
    attempt("more snapshots than the tenant may have", made > 5 and made)
    assert server.run("p", "cat /workspace/f") == "kept\n"
