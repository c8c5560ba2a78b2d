"""state_dir on a small file system of its own, which really gets full: by other programs, by sandboxes, by templates."""
import contextlib
import itertools
import os
import signal
import subprocess

import pytest

from cove import Server, new_dir, stop, wait_for
from test_box import is_told
from test_template import COVE

MIB = 1 << 20
RESERVE = 100 * MIB


class SmallDisk:
    """An ext4 of 1.5 GiB, mounted. fill() is another program that takes all the room that is left. What a pool has freed comes back to the disk a
    while later: then it takes that, too."""

    def __init__(self, path):
        self.at = f"{path}/small"
        os.mkdir(self.at)
        subprocess.run(["truncate", "-s", "1500M", f"{path}/small.img"], check=True)
        subprocess.run(["mkfs.ext4", "-q", "-m", "0", f"{path}/small.img"], check=True)
        subprocess.run(["mount", "-o", "loop", f"{path}/small.img", self.at], check=True)

    @property
    def free(self):
        fs = os.statvfs(self.at)
        return fs.f_bavail * fs.f_frsize

    def take(self, count):
        with open(f"{self.at}/other-programs-file", "ab") as f:
            os.posix_fallocate(f.fileno(), 0, count)

    def fill(self):
        with contextlib.suppress(OSError), open(f"{self.at}/other-programs-file", "ab", buffering=0) as f:
            while True:
                f.write(bytes(MIB))

    def empty(self):
        os.unlink(f"{self.at}/other-programs-file")

    def done(self):
        subprocess.run(["umount", self.at], check=True)


@pytest.fixture
def small(tmp_path):
    disk = SmallDisk(tmp_path)
    yield disk
    disk.done()


@pytest.fixture
def on_small(small):
    """on_small(disk="btrfs"): an instance whose state_dir is there. server.small is the disk."""
    made = []

    def make(**settings):
        made.append(Server(new_dir(), **{"pool": 0, "workers": 1, "command_timeout": "30s", "disk_max": "1G", "disk_reserve": str(RESERVE),
                                         "state_dir": f"{small.at}/state", **settings}))
        made[-1].small = small
        return made[-1].up()

    yield make
    for server in made:
        stop(server)


def forget_cache(path):
    """What is read next comes from the disk."""
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def is_refused(server, project, command):
    reply = server.execute(project, command)
    return not reply.json["success"] and is_told(reply.json["stderr"]) and reply


def test_a_pool_that_cannot_grow_refuses_and_goes_on_when_there_is_room(on_small):
    """btrfs stops all writing, for all sandboxes, when it cannot write its own metadata: that must never happen."""
    server = on_small(disk="btrfs")
    small, keeper = server.small, server.keeper_pid
    image = f"{server.config['state_dir']}/disk/pool.img"
    boxes = {p: server.execute(p, "head -c 30M /dev/urandom > /workspace/keep; sha256sum /workspace/keep > /workspace/sum; mkdir /workspace/d; "
                                  "for i in $(seq 300); do echo $i > /workspace/d/$i; done").id for p in ("a", "b")}

    # sandboxes fill it: the reserve stays
    reply = wait_for(lambda: is_refused(server, "a", "head -c 900M /dev/zero > /workspace/big && head -c 900M /dev/zero > /workspace/big2"), 30, "an end")
    wait_for(lambda: is_refused(server, "b", "head -c 100M /dev/zero > /workspace/big"), 30, f"the same for others, {reply}")
    assert small.free > RESERVE / 2, small.free

    # other programs take what is left; what was written before is on the disk by then
    wait_for(lambda: os.stat(image).st_blocks * 512 > 60 * MIB, 10, "data on the disk")
    count = itertools.count()
    new = lambda: server.post("/execute", {"projectId": f"new{next(count)}", "commands": ["true"]})
    reply = wait_for(lambda: (small.fill(), r := new()) and r.status == 503 and r, 10, "503 for a new sandbox")
    assert "disk is full" in reply.body.decode(), reply
    for p in boxes:
        # metadata changes on, and is written by the end of a transaction
        server.execute(p, "cd /workspace/d; for i in $(seq 300); do mv $i moved-$i; done; ln -s x y; chmod 700 .")
        wait_for(lambda: server.execute(p, "rm /workspace/d/*1*").json["success"], 15, "room to delete files")
        subprocess.run(["sync", "-f", f"{server.config['state_dir']}/disk/pool"], capture_output=True)
    assert not os.statvfs(f"{server.config['state_dir']}/disk/pool").f_flag & os.ST_RDONLY
    for p, box in boxes.items():
        wait_for(lambda: (small.fill(), is_refused(server, p, "head -c 20M /dev/zero > /workspace/more"))[1], 15, "a refusal")
        forget_cache(f"{server.config['state_dir']}/disk/pool/boxes/{box}/up/workspace/keep")
        assert server.run(p, "sha256sum -c /workspace/sum; ls /workspace/d | grep 1 | wc -l") == "/workspace/keep: OK\n0\n", p

    # there is room again: nobody restarts anything
    small.empty()
    server.execute("a", "rm /workspace/big*")
    for p in boxes:
        wait_for(lambda: server.execute(p, "head -c 20M /dev/zero > /workspace/more").json["success"], 15, "a write")
        assert server.run(p, "sha256sum -c /workspace/sum; stat -c %s /workspace/more") == f"/workspace/keep: OK\n{20 * MIB}\n"
    wait_for(lambda: new().status == 200, 15, "a new sandbox")
    assert server.run("new", "head -c 20M /dev/zero | sha256sum > /workspace/x; wc -l < /workspace/x") == "1\n"
    fork = [COVE, "-c", f"{server.dir}/conf/cove.conf", "snapshot", "fork", boxes["b"]]
    wait_for(lambda: subprocess.run(fork, capture_output=True).returncode == 0, 30, "a fork: the space of deleted files comes back little by little")
    assert server.keeper_pid == keeper
    os.kill(keeper, signal.SIGKILL)
    server.up()
    assert server.run("b", "sha256sum -c /workspace/sum") == "/workspace/keep: OK\n"


def test_disks_of_their_own_that_cannot_grow_refuse_and_go_on_when_there_is_room(on_small):
    """What waits in memory is not counted here, so the reserve must hold what is written within a second."""
    server = on_small(disk="image", disk_max="900M", disk_reserve="300M")
    small, keeper, names = server.small, server.keeper_pid, ("a", "b")
    small.take(600 * MIB)
    for p in names:
        server.run(p, "head -c 30M /dev/urandom > /workspace/keep; sha256sum /workspace/keep > /workspace/sum")
    slowly = "for i in $(seq 40); do head -c 20M /dev/zero >> /workspace/big || exit; sleep 0.2; done"
    wait_for(lambda: is_refused(server, "a", slowly), 30, "an end")
    wait_for(lambda: is_refused(server, "b", slowly), 30, "the same for others")
    wait_for(lambda: not server.titles("cove: flush"), 30, "data on the disk")
    assert small.free > RESERVE / 2, small.free
    small.fill()
    assert server.post("/execute", {"projectId": "new", "commands": ["true"]}).status == 503
    for p in names:
        assert is_refused(server, p, "head -c 800M /dev/zero > /workspace/more")
        assert server.run(p, "sha256sum -c /workspace/sum; rm -f /workspace/big /workspace/more") == "/workspace/keep: OK\n"
    small.empty()
    for p in names:
        wait_for(lambda: server.execute(p, "head -c 20M /dev/zero > /workspace/more").json["success"], 15, "a write")
        assert server.run(p, "sha256sum -c /workspace/sum; stat -c %s /workspace/more") == f"/workspace/keep: OK\n{20 * MIB}\n"
    assert server.run("new", "echo new") == "new\n" and server.keeper_pid == keeper


# ------------------------------------------------------------------ templates

@pytest.fixture
def full_by(on_small, tmp_path):
    """full_by(left): `cove template` in an instance whose disk has so many bytes left."""
    server = on_small(disk="btrfs", disk_reserve="0", build_timeout="30s")
    (tmp_path / "context").mkdir()
    with open(tmp_path / "context/big", "wb") as f:
        f.write(os.urandom(60 * MIB))
    (tmp_path / "context/Dockerfile").write_text("FROM scratch\nADD big /big\nADD big /etc/big\n")

    def template(*words):
        done = subprocess.run([COVE, "-c", f"{server.dir}/conf/cove.conf", "template", *words], capture_output=True, text=True, timeout=100)
        return done.returncode, done.stdout + done.stderr

    def run(left, *words):
        server.small.take(server.small.free - left)
        code, said = template(*words)
        server.small.empty()
        return code, said

    run.template, run.state, run.context = template, server.config["state_dir"], str(tmp_path / "context")
    return run


def test_a_dockerfile_on_a_full_disk_is_an_error_and_leaves_nothing(full_by):
    """buildah keeps three copies of the files, one after the other; the layer is a fourth."""
    for left in (10, 150, 260):
        code, said = full_by(left * MIB, "build", "app", full_by.context)
        assert code != 0 and "no space left" in said.lower() and "build_timeout" not in said, said
        assert "app" not in full_by.template("ls")[1]
        assert [os.listdir(f"{full_by.state}/{folder}") for folder in ("layers", "templates")] == [[], ["base"]], said
        assert full_by.template("gc") == (0, "0 layers removed that no template and no sandbox needs\n")
    assert full_by.template("build", "app", full_by.context)[0] == 0, "with room it works again"
