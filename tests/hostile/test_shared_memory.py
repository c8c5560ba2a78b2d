"""A worker that was taken over writes whatever it can into the files that the keeper and other workers share.

Whatever stands in them, the keeper lives, no other process's memory is touched, and requests are served again as soon as the keeper
has replaced the workers that fell over their spoilt file.
"""
import os
import signal
import stat
import time

import pytest

from cove import alive, wait_for
from hostile import as_worker

# As 32-bit words: the largest numbers, a negative index, zero, and a count that is small but larger than any file here.
WORDS = [b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\0\0\0\0", b"\0\0\x10\0"]


def writable_files(directory):
    """Runs with the worker's ids: every regular file below the directory that opens for writing."""
    found = []
    for folder, _, names in os.walk(directory):
        for name in names:
            path = f"{folder}/{name}"
            if stat.S_ISREG(os.lstat(path).st_mode) and os.access(path, os.W_OK):
                found.append(path)
    return sorted(found)


def fill(path, word):
    with open(path, "r+b") as f:
        size = os.fstat(f.fileno()).st_size
        f.write(word * (size // len(word) + 1))


def cut(path, length):
    os.truncate(path, length)


def own_state(server):
    """The weakening: workers can write the table of sandboxes."""
    os.chmod(f"{server.run_dir}/state", 0o660)


def start_over(server):
    """The keeper looks at the slots of workers that die, and counts in shared memory."""
    before = server.worker_pids
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not set(before) & set(server.worker_pids), what="the end of the workers")


def answer(server):
    """The victim's next reply, or None if nobody serves within ten seconds."""
    end = time.monotonic() + 10
    while time.monotonic() < end:
        try:
            reply = server.execute("victim", "cat /workspace/mark", timeout=10)
        except TimeoutError:  # nobody serves: no worker starts over a table of sandboxes that it cannot read. The keeper itself goes on
            continue
        if reply.status not in (502, 503):
            return reply
    return None


def harm(server, keeper, box):
    """What the attack has achieved, or None."""
    start_over(server)
    reply = answer(server)
    if server.keeper_pid != keeper or not alive(keeper):
        return "the keeper died"
    if not reply or reply.status != 200 or reply.id != box or reply.json["stdout"] != "still here\n":
        return f"the other tenant's sandbox answers: {reply}"
    return None


def spoil(files, how, argument):
    for path in files:
        how(path, argument)


@pytest.mark.weak(by=own_state)
def test_scribbling_over_shared_files_harms_neither_keeper_nor_sandboxes(target, attempt):
    server = target(workers=2, pool=1)
    keeper = server.keeper_pid
    box = server.execute("victim", "echo still here > /workspace/mark").id
    files = as_worker(server, writable_files, server.run_dir) + as_worker(server, writable_files, server.config["state_dir"])
    assert {"state.workers", "meters"} <= {os.path.basename(path) for path in files}, files
    for how, argument in [(fill, word) for word in WORDS] + [(cut, length) for length in (4096, 100, 0)]:
        as_worker(server, spoil, files, how, argument)
        evidence = harm(server, keeper, box)
        attempt(f"{how.__name__} shared files, {argument!r}", evidence)
        if evidence:
            return
    assert server.execute("another", "true").status == 200


def test_no_worker_outlives_its_keeper_unseen(target, attempt):
    """A worker wipes the slots in shared memory. The next keeper must find the old workers all the same, or nobody tells them to go."""
    server = target(workers=2)
    old = server.worker_pids
    os.kill(server.keeper_pid, signal.SIGKILL)
    wait_for(lambda: not alive(server.keeper_pid), what="the keeper's death")
    as_worker(server, fill, f"{server.run_dir}/state.workers", b"\0\0\0\0")
    server.up()
    wait_for(lambda: set(server.worker_pids) - set(old), what="new workers")
    try:
        wait_for(lambda: not any(map(alive, old)), 15)
    except AssertionError:
        attempt("stay unseen after the keeper's death", [pid for pid in old if alive(pid)])
    attempt("stay unseen after the keeper's death", None)
