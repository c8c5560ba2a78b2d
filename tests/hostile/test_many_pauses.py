"""A tenant that pauses many sandboxes at once: each is packed by a process that keeps a cpu busy."""
import os
import struct
import threading

import pytest

from hostile import as_worker
from test_snapshot_calls import ask

MANY = 3 * 2 * os.cpu_count()  # three times what may be packed at a time


def packing(server):
    return len(server.titles("cove: saver"))


@pytest.mark.weak(layers="places")
def test_a_tenant_that_pauses_many_sandboxes_holds_half_of_the_savers(target, attempt):
    server = target(pool=0)
    names = [f"p{i}" for i in range(MANY)]
    boxes = {name: server.execute(name, "head -c 40000000 /dev/urandom >/workspace/noise; md5sum /workspace/noise") for name in names}
    answers, most = [], 0
    which = lambda name: struct.pack("=64s24s", b"default", boxes[name].id.encode())
    run_dir = server.run_dir
    threads = [threading.Thread(target=lambda n=name: answers.append(ask(run_dir, "KEEPER_SAVE", which(n)))) for name in names]
    for t in threads:
        t.start()
    while any(t.is_alive() for t in threads):
        most = max(most, packing(server))
    attempt("all savers are one tenant's", most > os.cpu_count() and f"{most} at once")
    assert most >= 1, "the control: packing was seen"
    assert len(answers) == MANY
    assert as_worker(server, ask, run_dir, "KEEPER_SNAPSHOTS", struct.pack("=64sQ", b"default", 0)) == "KEEPER_SNAPSHOT_LIST"
    assert server.run(names[-1], "md5sum /workspace/noise") == boxes[names[-1]].json["stdout"]
