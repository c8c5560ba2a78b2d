"""Symlinks, races, FIFOs and devices against the file calls that every file endpoint stands on (init's BOX_OPEN).

The caller is outside and asks for a path; what comes back may only ever be a file of that sandbox.
"""
import os
import stat

import pytest

import escape
from box import Box

PATHS = [ # what the sandbox has prepared, what is asked for, why
    ("ln -sfn {secret} /workspace/l", "/workspace/l", "a link to a path of the host"),
    ("ln -sfn /proc/1/root{secret} /workspace/l", "/workspace/l", "through /proc/1/root"),
    ("ln -sfn /proc/self/root{secret} /workspace/l", "/workspace/l", "through /proc/self/root, which is init's"),
    ("ln -sfn /proc/1/cwd /workspace/d", "/workspace/d/..{secret}", "a folder that is init's cwd"),
    ("ln -sfn / /workspace/d", "/workspace/d/../../../..{secret}", "more .. than there are folders"),
    ("true", "/../../../..{secret}", "plain .."),
    ("true", "/proc/1/fd/5/../../..{secret}", "up from the cgroup folder that init holds"),
    ("true", "/proc/1/fd/6/../../../..{secret}", "up from the memory controller's folder"),
    ("true", "/dev/fd/5/../..{secret}", "the same by /dev/fd"),
    ("ln -sfn /dev/.proc/../../{secret} /workspace/l", "/workspace/l", "beside the small files in /dev"),
    ("ln -sfn loop /workspace/loop", "/workspace/loop", "a link to itself"),
]
SPECIAL = [ # what is no file is not handed out as one
    ("rm -f /workspace/p; mkfifo /workspace/p", "/workspace/p", "a FIFO that nobody writes to"),
    ("ln -sfn /dev/zero /workspace/p", "/workspace/p", "an endless device"),
    ("ln -sfn /dev/tty /workspace/p", "/workspace/p", "a terminal"),
    ("rm -f /workspace/p; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"/workspace/p\")'", "/workspace/p",
     "a socket"),
]


def content(fd):
    if fd is None:
        return b""
    with os.fdopen(fd, "rb") as f:
        return f.read(4096)


@pytest.mark.parametrize("prepare,path,why", PATHS, ids=[p[2] for p in PATHS])
def test_a_path_leads_to_no_file_of_the_host(scene, prepare, path, why):
    server, world = scene
    reply = server.execute("files", prepare.format(secret=world.secret))
    with Box(server.run_dir, reply.id) as box:
        assert world.token.encode() not in content(box.open(path.format(secret=world.secret), parents=False))


@pytest.mark.parametrize("prepare,path,why", SPECIAL, ids=[p[2] for p in SPECIAL])
def test_what_is_no_file_is_not_handed_out(scene, prepare, path, why):
    server, _ = scene
    reply = server.execute("files", prepare)
    with Box(server.run_dir, reply.id) as box:
        fd = box.open(path, parents=False)
        assert fd is None or not stat.S_ISREG(os.fstat(fd).st_mode)  # client.c then refuses it


def test_a_folder_swapped_for_a_link_while_it_is_walked_leads_nowhere(scene):
    """The classic race, a few thousand times: /workspace/r is now a folder, now a link to the host's /tmp."""
    server, world = scene
    swap = ("mkdir -p /workspace/r /workspace/keep; cd /workspace; "
            f"(while :; do mv -T r keep/r; ln -s {os.path.dirname(world.secret)} r; rm r; mv -T keep/r r; done)"
            " >/dev/null 2>&1 & echo")
    reply = server.execute("race", swap)
    name = os.path.basename(world.secret)
    with Box(server.run_dir, reply.id) as box:
        for _ in range(3000):
            assert world.token.encode() not in content(box.open(f"/workspace/r/{name}", parents=False))
        for _ in range(500):  # and writing
            fd = box.open(f"/workspace/r/{name}", os.O_WRONLY | os.O_CREAT, parents=True)
            if fd is not None:
                os.write(fd, b"overwritten")
                os.close(fd)
    assert not world.changed()


def test_what_a_sandbox_leaves_behind_is_swept_without_following_it(scene):
    server, world = scene
    reply = server.execute("sweep", f"mkdir -p /workspace/t; ln -s {os.path.dirname(world.secret)} /workspace/t/l; "
                                    f"ln -s {world.secret} /workspace/t/s; ln -s / /workspace/t/root")
    server.cleanup("sweep")
    escape.wait_for(lambda: reply.id not in server.inits, 15, "its end")
    assert not world.changed()
