"""Archives that somebody else wrote, in the store and on relay's /restore. In the store their record is made to fit, as by whoever can write
there: what refuses them is the saver and not the digest."""
import copy
import hashlib
import io
import os
import random
import subprocess
import tarfile
import tempfile
import time

import pytest

from cove import read, wait_for
from test_relay import API, relay  # noqa: F401
from test_saving import bare, corrupt, cove_store, save, saved, store, wake

OUTSIDE = "/var/tmp/cove-test-escaped"


@pytest.fixture
def box(server, project):
    made = bare(server.execute(project, "echo fine >/workspace/f; head -c 200000 /dev/urandom >/workspace/noise"))
    assert save(server, made) is True
    yield made
    assert not os.path.lexists(OUTSIDE), "something left the sandbox"


def member(name, data=b"", kind=tarfile.REGTYPE, **fields):
    made = tarfile.TarInfo(name)
    made.size, made.type = len(data), kind
    for key, value in fields.items():
        setattr(made, key, value)
    return made, data


def pack(members):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT, encoding="utf-8", errors="surrogateescape") as tar:
        for made, data in members:
            tar.addfile(made, io.BytesIO(data))
    return out.getvalue()


def compress(tar):
    return subprocess.run(["zstd", "-q", "-c"], input=tar, stdout=subprocess.PIPE, check=True).stdout


def bomb(name, gib, packer, first=b""):
    """A few megabytes that become so many gigabytes. `first`: members before the large one."""
    header = tarfile.TarInfo(name)
    header.size = int(gib * (1 << 30))
    with tempfile.NamedTemporaryFile() as head:
        head.write(first + header.tobuf(tarfile.GNU_FORMAT))
        head.flush()
        made = subprocess.run(f"(cat {head.name}; head -c {header.size + 10240} /dev/zero) | {packer}", shell=True, stdout=subprocess.PIPE, check=True)
    return made.stdout, header.size


def set_record(server, box, **fields):
    path = f"{store(server)}/{box}/record"
    lines = [line.partition(" ") for line in read(path).splitlines()]
    with open(path, "w") as f:
        f.writelines(f"{name} {fields.get(name, value)}\n" for name, _, value in lines)


def put(server, box, archive, entries, content):
    """This archive, and a record that says so. The keeper reads records at its start."""
    with open(f"{store(server)}/{box}/archive.tar.zst", "wb") as f:
        f.write(archive)
    digest = hashlib.sha256(archive).hexdigest()
    set_record(server, box, entries=entries, contentBytes=content, archiveBytes=len(archive), archiveSha256=digest, storedBytes=len(archive),
               storedSha256=digest)
    os.kill(server.keeper_pid, 9)
    server.up()


def refused(server, box):
    words = wake(server, box)
    assert words is not True and saved(server) == {box}, words
    wait_for(lambda: not os.path.exists(f"{server.dir}/state/boxes/{box}"), what="the half-made sandbox to be swept")
    return words


TOP_DIR = member("root", kind=tarfile.DIRTYPE, mode=0o755)
CASES = {
    "absolute": [member(OUTSIDE, b"x")],
    "climbs": [member("root/../../../../../.." + OUTSIDE, b"x")],
    "climbs at the end": [member("root/a/..", kind=tarfile.DIRTYPE)],
    "of no part": [member("etc/passwd", b"x")],
    "of a part's beginning": [member("rooted/x", b"x")],
    "through a link": [member("root/out", kind=tarfile.SYMTYPE, linkname="/var/tmp"), member("root/out/cove-test-escaped", b"x")],
    "through a link that climbs": [member("root/out", kind=tarfile.SYMTYPE, linkname="../../../../../../var/tmp"),
                                   member("root/out/cove-test-escaped", b"x")],
    "part becomes a link": [member("root", kind=tarfile.SYMTYPE, linkname="/var/tmp"), member("root/cove-test-escaped", b"x")],
    "hard link out": [member("root/passwd", kind=tarfile.LNKTYPE, linkname="/etc/passwd")],
    "hard link climbs": [member("root/passwd", kind=tarfile.LNKTYPE, linkname="root/../../etc/passwd")],
    "hard link into the other part": [member("usr/x", b"x"), member("root/x", kind=tarfile.LNKTYPE, linkname="usr/x")],
    "hard link to nothing": [member("root/x", kind=tarfile.LNKTYPE, linkname="root/not-there")],
    "a disk": [member("root/disk", kind=tarfile.BLKTYPE, devmajor=8, devminor=0)],
    "memory": [member("root/mem", kind=tarfile.CHRTYPE, devmajor=1, devminor=1)],
    "a part that is only a link": [member("usr", kind=tarfile.SYMTYPE, linkname="/var/tmp")],
    "a part that is a file": [member("usr/.", b"x")],
}


@pytest.mark.parametrize("case", CASES)
def test_a_crafted_archive_is_refused_and_leaves_the_saved_sandbox(server, box, case):
    members = [TOP_DIR, *CASES[case]] if case != "part becomes a link" else CASES[case]
    put(server, box, compress(pack(members)), len(members), sum(len(data) for _, data in members))
    refused(server, box)
    cove_store(server, "rm", box)


def test_a_bomb_is_refused_by_the_bytes_its_record_says_and_by_the_disk_limit(server, box):
    archive, size = bomb("root/zeros", 8, "zstd -q -1 -c")
    assert len(archive) < 4 << 20
    put(server, box, archive, 1, 1000)
    assert "more bytes than the record says" in refused(server, box)
    put(server, box, archive, 1, size)
    refused(server, box)  # a sandbox of this server has less disk than that
    cove_store(server, "rm", box)


def test_more_or_fewer_members_than_the_record_says_are_refused(server, box):
    many = [TOP_DIR, *(member(f"root/{n}") for n in range(50))]
    put(server, box, compress(pack(many)), 50, 0)
    assert "more members" in refused(server, box)
    put(server, box, compress(pack(many)), 52, 0)
    assert "not what its record says" in refused(server, box)
    cove_store(server, "rm", box)


def test_odd_names_and_set_user_ids_come_back_as_they_are_and_mean_nothing_outside(server, box, project):
    long = "/".join(["d" * 250] * 15)
    members = [TOP_DIR, member("root/workspace", kind=tarfile.DIRTYPE, mode=0o777), member("root/workspace/\udcff\udcfe", b"odd"),
               member("root/workspace/" + "n" * 255, b"long"), member("root/workspace/suid", b"#!/bin/sh\nid -u\n", mode=0o6755),
               member(f"root/workspace/{long}/leaf", b"deep")]
    put(server, box, compress(pack(members)), len(members), sum(len(data) for _, data in members))
    assert wake(server, box) is True
    out = server.run(project, f"cd /workspace; cat $'\\xff\\xfe' {'n' * 255}; find . -name leaf | wc -l; stat -c %a suid")
    assert out.split() == ["oddlong1", "6755"]


def test_a_name_of_4096_bytes_is_refused_or_kept_and_nothing_else(server, box):
    name = "root/" + "/".join(["x" * 200] * 25)
    members = [TOP_DIR, member(name[:4096 + 5], b"x")]
    put(server, box, compress(pack(members)), 2, 1)
    words = wake(server, box)
    assert words is True or saved(server) == {box}
    cove_store(server, "rm", box, check=False)


def test_a_bit_flipped_at_any_of_200_places_is_refused(server, box, project):
    archive = f"{store(server)}/{box}/archive.tar.zst"
    places = random.Random(230).sample(range(os.path.getsize(archive)), 200)
    for at in places:
        corrupt(archive, at, 1 << at % 8)
        assert wake(server, box) is not True, at
        corrupt(archive, at, 1 << at % 8)
        wait_for(lambda: not os.path.exists(f"{server.dir}/state/boxes/{box}"))
    assert server.run(project, "cat /workspace/f") == "fine\n"


@pytest.mark.parametrize("damage", ["missing", "empty", "of another", "with a wrong digest", "climbing"])
def test_a_wrong_or_missing_record_is_told_and_nothing_is_made_of_it(server, box, damage):
    path = f"{store(server)}/{box}/record"
    if damage == "missing":
        os.unlink(path)
    elif damage == "empty":
        open(path, "w").close()
    else:
        set_record(server, box, **{"of another": {"id": "a" * 20}, "with a wrong digest": {"archiveSha256": "zz"}, "climbing": {"template": "../../etc"}}[damage])
    os.kill(server.keeper_pid, 9)
    server.up()
    assert wake(server, box) is not True
    assert cove_store(server, "verify", box, check=False).returncode in (0, 1)
    subprocess.run(["rm", "-r", f"{store(server)}/{box}"], check=True)
    os.kill(server.keeper_pid, 9)
    server.up()
    assert saved(server) == set()


# --- relay's /restore: the sandbox's own tar reads it, as the sandbox's user

@pytest.mark.parametrize("case", ["absolute", "climbs", "through a link", "hard link out", "a disk", "memory"])
def test_a_crafted_archive_on_restore_stays_in_its_sandbox(relay, case):  # noqa: F811
    members = [(copy.copy(made), data) for made, data in CASES[case]]
    for made, _ in members:
        made.name = made.name.replace("root/", "workspace/", 1)
    relay("POST", "/r-crafted", {})
    reply = relay("POST", "/r-crafted/bridge/restore", pack(members))
    assert reply.status in (200, 400), reply
    if case in ("absolute", "climbs"):
        assert reply.status == 400 and "a member " in reply.body.decode(), reply
    assert not os.path.lexists(OUTSIDE)
    devices = relay("POST", "/r-crafted/bridge/exec", {"command": "find /workspace -type b -o -type c"}).json["stdout"]
    assert devices == ""
    assert relay("POST", "/r-crafted/bridge/exec", {"command": "echo lives"}).json["stdout"] == "lives\n"


def files_of(relay, name):  # noqa: F811
    return relay("POST", f"/{name}/bridge/exec", {"command": "cd /workspace && find . -type f -exec md5sum {} + | sort; ls -A . /tmp | grep cove"}).json["stdout"]


@pytest.mark.parametrize("gib, seconds, why", [(0.25, 20, "tar: "), (1, 1, "deadline (1 s) reached")],
                         ids=["larger-than-the-disk", "longer-than-a-command-may-take"])
def test_a_bomb_on_restore_is_refused_and_changes_nothing(make_server, gib, seconds, why):
    server = make_server(disk_max="64M", command_timeout=f"{seconds}s")
    relay = lambda method, path, body=None, **kw: server.request(method, API + path, body, key=False, headers={"X-Relay-Secret": server.key}, **kw)  # noqa: E731
    relay("POST", "/r-bomb", {})
    relay("POST", "/r-bomb/bridge/exec", {"command": "echo old >/workspace/w; mkdir /workspace/d; echo deep >/workspace/d/x"})
    before = files_of(relay, "r-bomb")
    first = pack([member("workspace/w", b"new"), member("workspace/more", b"more")])[:2048]  # without the end of an archive
    archive, _ = bomb("workspace/zeros", gib, "gzip -1", first)
    reply = relay("POST", "/r-bomb/bridge/restore", archive, timeout=120)
    assert reply.status == 400 and why in reply.body.decode(), reply
    assert files_of(relay, "r-bomb") == before and "./w" in before


@pytest.mark.skipif(os.environ.get("COVE_TEST_LONG") != "yes", reason="a million files: long runs")
def test_a_restore_of_a_million_members_is_taken(make_server):
    server = make_server(memory_max="2G", disk_max="8G", inodes_max="2500000", command_timeout="15m")
    relay = lambda method, path, body=None, **kw: server.request(method, API + path, body, key=False, headers={"X-Relay-Secret": server.key}, **kw)  # noqa: E731
    relay("POST", "/r-million", {})
    with tempfile.TemporaryFile() as packed:
        with subprocess.Popen(["gzip", "-1"], stdin=subprocess.PIPE, stdout=packed) as gzip:
            for d in range(1000):  # 1,000 directories with 999 files each
                gzip.stdin.write(member(f"workspace/{d}", kind=tarfile.DIRTYPE, mode=0o755)[0].tobuf(tarfile.GNU_FORMAT))
                gzip.stdin.write(b"".join(member(f"workspace/{d}/{f}")[0].tobuf(tarfile.GNU_FORMAT) for f in range(999)))
            gzip.stdin.write(bytes(10240))
        packed.seek(0)
        begin = time.monotonic()
        reply = relay("POST", "/r-million/bridge/restore", packed.read(), timeout=900)
    assert reply.status == 200, reply
    print(f"a restore of 1,000,000 members: {time.monotonic() - begin:.0f} s")
    assert relay("POST", "/r-million/bridge/exec", {"command": "find /workspace -type f | wc -l"}, timeout=120).json["stdout"] == "999000\n"
    relay("DELETE", "/r-million")


def test_a_restore_of_too_many_members_is_refused_and_changes_nothing(relay):  # noqa: F811
    relay("POST", "/r-many", {})
    relay("POST", "/r-many/bridge/exec", {"command": "echo old >/workspace/w"})
    before = files_of(relay, "r-many")
    header = tarfile.TarInfo("workspace/w").tobuf(tarfile.GNU_FORMAT)
    with tempfile.TemporaryFile() as packed:
        with subprocess.Popen(["gzip", "-1"], stdin=subprocess.PIPE, stdout=packed) as gzip:
            for _ in range(1001):
                gzip.stdin.write(header * 1000)
            gzip.stdin.write(bytes(10240))
        packed.seek(0)
        reply = relay("POST", "/r-many/bridge/restore", packed.read(), timeout=120)
    assert reply.status == 400 and "members" in reply.body.decode(), reply
    assert files_of(relay, "r-many") == before and "./w" in before
