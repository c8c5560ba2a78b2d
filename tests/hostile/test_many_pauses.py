"""A tenant that pauses or wakes many sandboxes at once: each is packed or unpacked by a process that keeps a cpu busy."""
import os
import struct
import threading
import time

import pytest

from hostile import as_worker
from test_snapshot_calls import ask

MANY = 3 * 2 * os.cpu_count()  # three times what may be packed at a time


def which(box):
    return struct.pack("=64s24s", b"default", box.encode())


def make_many(server):
    """Replies by project; each printed the hash of its file."""
    return {f"p{i}": server.execute(f"p{i}", "head -c 40000000 /dev/urandom >/workspace/noise; md5sum /workspace/noise") for i in range(MANY)}


def all_at_once(server, call, bodies):
    """What was answered, and how many savers were at work at one moment and a little later still: one that has done its work and
    ends may be seen beside the next one."""
    answers, most, before, run_dir = [], 0, set(), server.run_dir
    threads = [threading.Thread(target=lambda b=body: answers.append(ask(run_dir, call, b))) for body in bodies]
    for t in threads:
        t.start()
    while any(t.is_alive() for t in threads):
        now = set(server.titles("cove: saver"))
        most = max(most, len(now & before))
        before = now
        time.sleep(0.005)
    return answers, most


@pytest.mark.weak(layers="places")
def test_a_tenant_that_pauses_many_sandboxes_holds_half_of_the_savers(target, attempt):
    server = target(pool=0)
    made = make_many(server)
    answers, most = all_at_once(server, "KEEPER_SAVE", [which(reply.id) for reply in made.values()])
    attempt("all savers are one tenant's", most > os.cpu_count() and f"{most} at once")
    assert most >= 1, "the control: packing was seen"
    assert answers == ["MSG_DONE"] * MANY
    assert as_worker(server, ask, server.run_dir, "KEEPER_SNAPSHOTS", struct.pack("=64sQ", b"default", 0)) == "KEEPER_SNAPSHOT_LIST"
    name = list(made)[-1]
    assert server.run(name, "md5sum /workspace/noise") == made[name].json["stdout"]


@pytest.mark.weak(layers="places")
def test_a_tenant_that_wakes_many_sandboxes_holds_half_of_the_savers(target, attempt):
    server = target(pool=0)
    made = make_many(server)
    assert all_at_once(server, "KEEPER_SAVE", [which(reply.id) for reply in made.values()])[0] == ["MSG_DONE"] * MANY
    answers, most = all_at_once(server, "KEEPER_WAKE", [which(reply.id) + struct.pack("=QII", 0, 0, 0) for reply in made.values()])
    attempt("all savers are one tenant's", most > os.cpu_count() and f"{most} at once")
    assert most >= 1, "the control: unpacking was seen"
    assert answers == ["KEEPER_BOX"] * MANY
    for name, reply in made.items():
        assert server.run(name, "md5sum /workspace/noise") == reply.json["stdout"], name
