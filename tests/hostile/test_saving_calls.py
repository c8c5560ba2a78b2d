"""What a worker that was taken over makes of the keeper's calls about saving, waking and freezing: sandboxes of other tenants, odd ids, odd tenants."""
import os
import struct

import pytest

from hostile import as_worker
from test_snapshot_calls import ask


def which(tenant, box):
    return struct.pack("=64s24s", tenant, box)


def extend(tenant, box):
    return struct.pack("=64s24sQII", tenant, box, 600_000, 0, 0)  # ten minutes: KEEPER_EXTEND refuses no time at all


CALLS = {"KEEPER_SAVE": which, "KEEPER_WAKE": extend, "KEEPER_FREEZE": extend, "KEEPER_THAW": extend, "KEEPER_EXTEND": extend}


@pytest.mark.weak(layers="tenants")
@pytest.mark.parametrize("call", CALLS)
def test_a_call_reaches_only_a_sandbox_of_the_tenant_it_names(target, attempt, call):
    """The tenant is the worker's to name; what is not that tenant's, or no id at all, is not there, and nothing is made below state_dir."""
    server = target(pool=0)
    box = server.execute("p", "echo kept > /workspace/f").id.encode()
    odd = {
        "another tenant's sandbox": (b"stranger", box),
        "nobody's": (b"", box),
        "no id": (b"default", b""),
        "a path for an id": (b"default", b"../boxes"),
        "an id without an end": (b"default", b"a" * 24),
        "a tenant without an end": (b"d" * 64, box),
        "a line feed in the tenant": (b"default\nx", box),
        "half an id": (b"default", box[:10]),
    }
    before = {name: sorted(os.listdir(f"{server.config['state_dir']}/{name}")) for name in ("saved", "boxes")
              if os.path.isdir(f"{server.config['state_dir']}/{name}")}
    keeper = server.keeper_pid
    for what, args in odd.items():
        answer = as_worker(server, ask, server.run_dir, call, CALLS[call](*args))
        attempt(f"{call}: {what}", answer not in ("MSG_ERROR", "cut") and answer)
    after = {name: sorted(os.listdir(f"{server.config['state_dir']}/{name}")) for name in before}
    attempt(f"{call}: something was made or removed", after != before and after)
    attempt(f"{call}: another keeper", server.keeper_pid != keeper and "the keeper died")
    assert server.run("p", "cat /workspace/f") == "kept\n", "neither frozen nor saved"
    if call == "KEEPER_FREEZE":  # the control: the same call with its own tenant's name is obeyed
        assert as_worker(server, ask, server.run_dir, call, extend(b"default", box)) == "MSG_DONE"


@pytest.mark.weak(layers="tenants")
def test_an_archive_is_handed_out_for_its_own_tenant_alone(target, attempt):
    """KEEPER_SAVED_ARCHIVE gives a worker a descriptor of the archive. Over HTTP a foreign key finds nothing."""
    server = target(pool=0)
    box = server.execute("p", "echo kept > /workspace/f").id.encode()
    running = as_worker(server, ask, server.run_dir, "KEEPER_SAVED_ARCHIVE", which(b"default", box))
    attempt("of a sandbox that runs", running not in ("MSG_ERROR", "cut") and running)
    assert as_worker(server, ask, server.run_dir, "KEEPER_SAVE", which(b"default", box)) == "MSG_DONE"
    odd = {
        "another tenant's": (b"stranger", box), "nobody's": (b"", box), "no id": (b"default", b""), "the folder itself": (b"default", b"."),
        "a path": (b"default", b"../saved/" + box[:10]), "an id without an end": (b"default", b"a" * 24), "a tenant without an end": (b"d" * 64, box),
        "a tenant with a line feed": (b"default\nx", box), "half an id": (b"default", box[:10]), "another id": (b"default", b"a" * 20),
    }
    for what, args in odd.items():
        answer = as_worker(server, ask, server.run_dir, "KEEPER_SAVED_ARCHIVE", which(*args))
        attempt(what, answer not in ("MSG_ERROR", "cut") and answer)
    foreign = server.request("GET", f"/console/api/sandboxes/{box.decode()}/saved", key=server.add_key("stranger"))
    attempt("by a foreign key", foreign.status != 404 and repr(foreign))
    assert as_worker(server, ask, server.run_dir, "KEEPER_SAVED_ARCHIVE", which(b"default", box)) == "KEEPER_ARCHIVE", "the control"
    assert server.run("p", "cat /workspace/f") == "kept\n"


def test_a_saved_sandbox_is_woken_by_its_own_tenant_alone(target, attempt):
    server = target(pool=0)
    box = server.execute("p", "echo kept > /workspace/f").id.encode()
    assert as_worker(server, ask, server.run_dir, "KEEPER_SAVE", which(b"default", box)) == "MSG_DONE"
    bodies = {**CALLS, "KEEPER_SAVED_ARCHIVE": which, "KEEPER_RETIRE": lambda tenant, box: struct.pack("=64s24s132s", tenant, box, b"")}
    for call in ("KEEPER_WAKE", "KEEPER_SAVE", "KEEPER_SAVED_ARCHIVE", "KEEPER_RETIRE"):
        body = bodies[call](b"stranger", box)
        answer = as_worker(server, ask, server.run_dir, call, body)
        attempt(f"{call} of another tenant's saved sandbox", answer not in ("MSG_ERROR", "cut", "MSG_DONE" if call == "KEEPER_RETIRE" else "") and answer)
        attempt(f"{call}: a sandbox runs", len(server.inits))
    attempt("it is gone", not os.path.exists(f"{server.config['state_dir']}/saved/{box.decode()}"))
    assert as_worker(server, ask, server.run_dir, "KEEPER_SAVED_ARCHIVE", which(b"default", box)) == "KEEPER_ARCHIVE", "the control"
    assert as_worker(server, ask, server.run_dir, "KEEPER_WAKE", extend(b"default", box)) == "KEEPER_BOX", "the control"
    assert server.run("p", "cat /workspace/f") == "kept\n"
