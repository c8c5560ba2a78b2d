"""What attacks in this folder share: how an attack reports that it got through, and how one acts as a worker that was taken over.

README.md says how to write an attack.
"""
import os
import pickle
import socket

from box import Peer
from cove import Server, status_field


class GotThrough(AssertionError):
    """An attack succeeded. Any other exception in a test is a broken test, also under --weak."""


class Attempts:
    """Counts attacks over the whole session, for the summary."""

    def __init__(self):
        self.names, self.successes = [], []
        self.go_on = False  # under --weak a test goes on after a success, so that each of its attempts is seen to succeed

    def __call__(self, name, evidence):
        """One attack is over. `evidence` says what it achieved; empty, None or False: it was refused."""
        self.names.append(name)
        if evidence:
            self.successes.append(name)
            if not self.go_on:
                raise GotThrough(f"{name}: {evidence}")

    def summary(self):
        return f"hostile attempts: {len(self.names)}, successes: {len(self.successes)}" + "".join(
            f"\n  GOT THROUGH {name}" for name in self.successes)


# ------------------------------------------------------------------ a worker that was taken over

def worker_ids(server: Server):
    """(uid, gid) that workers of this instance run with."""
    pid = server.worker_pids[0]
    return int(status_field(pid, "Uid").split()[0]), int(status_field(pid, "Gid").split()[0])


def become(uid, gid):
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)


def as_ids(uid, gid, action, *args):
    """Run action(*args) in a process of these ids without capabilities, and return what it returned or raise what it raised."""
    mine, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        mine.close()
        try:
            become(uid, gid)
            outcome = True, action(*args)
        except BaseException as e:  # an exit of the child would run pytest's own clean-up
            outcome = False, e
        with theirs.makefile("wb") as f:
            pickle.dump(outcome, f)
        os._exit(0)
    theirs.close()
    with mine, mine.makefile("rb") as f:
        data = f.read()
    os.waitpid(child, 0)
    fine, value = pickle.loads(data)
    if not fine:
        raise value
    return value


def as_worker(server, action, *args):
    """With a worker's ids: all that somebody has who broke a worker, had it no seccomp filter. The filter has attacks of its own."""
    return as_ids(*worker_ids(server), action, *args)


class Keeper(Peer):
    """A conversation with the keeper, as workers hold it: ask("KEEPER_CLAIM", body)."""

    def __init__(self, run_dir):
        super().__init__(f"{run_dir}/keeper.sock")
