"""Pausing to storage: a sandbox becomes an archive, and the archive the same sandbox again."""
import contextlib
import json
import os
import random
import re
import shutil
import signal
import socket
import stat
import struct
import subprocess
import threading
import time

import pytest

from cove import TOP, alive, read, status_field, wait_for
from test_pause import BOX, DONE, HEAD, MAGIC, which

CALLS = re.findall(r"^    (KEEPER_\w+)(?: =|,)", read(f"{TOP}/include/cove/msg_keeper.h"), re.M)
SAVE, WAKE = (300 + CALLS.index(name) for name in ("KEEPER_SAVE", "KEEPER_WAKE"))

# Everything that a tree can hold, made with fixed times and hashed with all that tar must carry.
MAKE_TREE = r"""
mkdir -p /workspace/t && cd /workspace/t &&
echo one >file && ln file hard && ln -s file soft && ln -s /nowhere/at/all broken && mkfifo pipe && mkdir -p deep/er/still &&
truncate -s 300M sparse && printf middle | dd of=sparse bs=1 seek=100000000 conv=notrunc status=none &&
head -c 3000000 /dev/urandom >noise && chmod 000 file && chmod 4755 noise && chown 1000:33 deep && chmod 1777 deep/er &&
touch -d '2001-02-03 04:05:06.123456789' deep/er/still noise && python3 - <<'P' &&
import os, socket, struct
os.setxattr("noise", "user.note", b"kept\0 as bytes")
for name in "user.odd=name", "user.odd%3Dname", "user.a b \u00e9":  # tar has its own ways to write these down
    os.setxattr("deep", name, name.encode())
acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in ((1, 7, 2**32 - 1), (2, 4, 1000), (4, 5, 2**32 - 1), (8, 6, 33),
                                                                             (16, 7, 2**32 - 1), (32, 1, 2**32 - 1)))
os.setxattr("hard", "system.posix_acl_access", acl)
os.setxattr("deep/er", "system.posix_acl_default", acl)
open(b"not utf-8 \xff\xfe", "w").write("x")
open("line\nfeed \" quote", "w").write("y")
open("a" * 255, "w").write("z")
os.makedirs("l" * 200 + "/" + "m" * 200 + "/" + "n" * 200)
open(".wh.not-a-whiteout", "w").write("w")
s = socket.socket(socket.AF_UNIX); s.bind("sock")
P
rm /etc/hosts /usr/bin/yes && rm -r /var/log && mkdir /var/log && touch /usr/local/added && echo made
"""

HASH_TREE = r"""python3 - <<'P'
import hashlib, os, stat
h = hashlib.sha256()
def note(*a): h.update(repr(a).encode("utf-8", "surrogateescape"))
def walk(path):
    st = os.lstat(path)
    if stat.S_ISSOCK(st.st_mode) or path == "/etc/resolv.conf":  # written anew whenever a sandbox starts
        return
    note(path, st.st_mode, st.st_uid, st.st_gid, st.st_nlink if stat.S_ISREG(st.st_mode) else 0)
    if not stat.S_ISDIR(st.st_mode):
        note(st.st_mtime_ns, st.st_size)
    note(sorted((n, os.getxattr(path, n, follow_symlinks=False)) for n in os.listxattr(path, follow_symlinks=False)))
    if stat.S_ISLNK(st.st_mode):
        note(os.readlink(path))
    elif stat.S_ISREG(st.st_mode):
        with open(path, "rb") as f:
            for block in iter(lambda: f.read(1 << 20), b""):
                h.update(block)
        note(st.st_blocks < 100000)
    elif stat.S_ISDIR(st.st_mode):
        for name in sorted(os.listdir(path)):
            walk(os.path.join(path, name))
walk("/workspace"); walk("/etc"); walk("/var"); walk("/usr/local/added")
note(os.path.exists("/usr/bin/yes"), os.path.exists("/etc/hosts"), os.listdir("/var/log"))
print(h.hexdigest())
P"""


def ask(server, call, box, tenant="default", ms=0, timeout=60):
    """True when it was done (or runs again), else the keeper's words; None if the keeper hung up."""
    body = which(box, tenant) + (struct.pack("=QII", ms, 0, 0) if call == WAKE else b"")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
        s.settimeout(timeout)
        s.connect(f"{server.run_dir}/keeper.sock")
        s.send(HEAD.pack(MAGIC, call, HEAD.size + len(body), 1) + body)
        try:
            answer = s.recv(4096)
        except ConnectionResetError:
            return None
    if not answer:
        return None
    return HEAD.unpack_from(answer)[1] in (DONE, BOX) or answer[HEAD.size + 8:].split(b"\0")[0].decode()


def save(server, box, **kw):
    return ask(server, SAVE, box, **kw)


def wake(server, box, **kw):
    return ask(server, WAKE, box, **kw)


def store(server):
    return f"{server.dir}/state/saved"


def saved(server):
    return {n for n in os.listdir(store(server)) if not n.startswith(".")}


def bare(reply):
    return reply.id.removeprefix("sandbox_")


def test_a_saved_sandbox_comes_back_with_every_file_as_it_was(server, project):
    reply = server.execute(project, MAKE_TREE, timeout=60)
    assert reply.json["stdout"].endswith("made\n"), reply
    before, box = server.run(project, HASH_TREE), bare(reply)
    assert save(server, box) is True
    assert saved(server) == {box}
    assert box not in server.inits
    wait_for(lambda: not os.path.exists(f"{server.dir}/state/boxes/{box}"), what="its files to be swept")
    again = server.execute(project, HASH_TREE)
    assert bare(again) == box, "the project found its own sandbox again"
    assert again.json["stdout"] == before
    assert saved(server) == set()
    assert server.run(project, "ls /workspace/t/sock 2>&1; ls /workspace/t/.wh*").splitlines() == \
        ["ls: cannot access '/workspace/t/sock': No such file or directory", "/workspace/t/.wh.not-a-whiteout"]


DEEP = """
import os
os.chdir("/workspace")
for _ in range(400):
    os.mkdir("d" * 200)
    os.chdir("d" * 200)
open("deep", "w").write("deep")
"""


def test_what_could_not_be_woken_is_not_saved(server, project):
    """A path of 80,000 bytes, which no archive can bring back: the sandbox goes on as it was."""
    box = bare(server.execute(project, "cat > /tmp/deep.py <<'E'\n" + DEEP + "E\npython3 /tmp/deep.py"))
    assert "cannot be saved" in save(server, box)
    assert not saved(server)
    assert server.run(project, "python3 -c 'import os; os.chdir(\"/workspace\"); [os.chdir(\"d\" * 200) for _ in range(400)]; print(open(\"deep\").read())'") == "deep\n"


def test_many_cycles_of_pause_and_resume_leave_every_file_as_it_was(server, project):
    """500 by hand (COVE_TEST_LONG=yes), as many as take under a minute otherwise."""
    reply = server.execute(project, MAKE_TREE.replace("300M", "3M").replace("seek=100000000", "seek=1000000"), timeout=60)
    assert reply.json["stdout"].endswith("made\n"), reply
    before, box = server.run(project, HASH_TREE), bare(reply)
    long, until, n = os.environ.get("COVE_TEST_LONG") == "yes", time.monotonic() + 30, 0
    while n < 500 and (long or n < 10 or time.monotonic() < until):
        assert save(server, box) is True and wake(server, box) is True, n
        n += 1
        assert server.run(project, HASH_TREE) == before, n
    print(f"{n} cycles")


@pytest.mark.skipif(os.environ.get("COVE_TEST_LONG") != "yes", reason="a million files: long runs")
def test_a_million_entries_are_saved_and_come_back(make_server):
    server = make_server(memory_max="2G", disk_max="8G", inodes_max="1500000", command_timeout="15m")
    make = "import os\nfor d in range(1000):\n os.mkdir(f'/workspace/{d}')\n for f in range(1000): open(f'/workspace/{d}/{f}', 'w').close()\n"
    count = "find /workspace -type f | sort | sha256sum; find /workspace -type f | wc -l"
    reply = server.execute("p", f'python3 -c "{make}"; {count}', timeout=900)
    assert reply.json["stdout"].endswith("\n1000000\n"), reply
    box, times, peak, answers = bare(reply), [], [], []
    for call in (SAVE, WAKE):
        begin = time.monotonic()
        thread = threading.Thread(target=lambda: answers.append(ask(server, call, box, timeout=900)))
        thread.start()
        while thread.is_alive():
            for pid in savers(server):
                peak += [int(kb) for kb in re.findall(r"VmHWM:\s+(\d+) kB", read(f"/proc/{pid}/status"))]
            thread.join(0.2)
        times.append(time.monotonic() - begin)
        assert answers[-1] is True, answers
        if call == SAVE:
            manifest = json.loads(read(f"{store(server)}/{box}/manifest.json"))
            assert manifest["entries"] >= 1001000, manifest
    assert server.run("p", count) == reply.json["stdout"]
    assert times[0] < 11 or "sandbox is being saved" in read(f"{server.dir}/log/coved.log")
    print(f"1,001,000 entries: save {times[0]:.0f} s, wake {times[1]:.0f} s, archive {manifest['storedBytes'] >> 20} MiB, saver at most {max(peak) >> 10} MiB")
    server.cleanup("p")


def test_plain_tools_read_the_archive_and_its_manifest(server, project, tmp_path):
    box = bare(server.execute(project, "echo kept >/workspace/f; chown 1000:1000 /workspace/f; rm /etc/hosts; touch /usr/local/u"))
    assert save(server, box) is True
    here = f"{store(server)}/{box}"
    manifest = json.loads(read(f"{here}/manifest.json"))
    assert (manifest["id"], manifest["project"], manifest["template"]) == (box, project, "base")
    digest = subprocess.run(["sha256sum", f"{here}/archive.tar.zst"], stdout=subprocess.PIPE, text=True, check=True).stdout.split()[0]
    assert manifest["storedSha256"] == manifest["archiveSha256"] == digest
    listing = subprocess.run(["tar", "--zstd", "-tvf", f"{here}/archive.tar.zst", "--numeric-owner"], stdout=subprocess.PIPE, text=True, check=True).stdout
    assert re.search(r"^-rw\S+ 1000/1000 +5 .* root/workspace/f$", listing, re.M), listing
    assert re.search(r"^c\S+ 0/0 +0,0 .* root/etc/hosts$", listing, re.M), listing
    assert len(listing.splitlines()) == manifest["entries"]
    subprocess.run(["tar", "--zstd", "-xf", f"{here}/archive.tar.zst", "-C", tmp_path], check=True)
    assert read(tmp_path / "root/workspace/f") == "kept\n" and os.path.exists(tmp_path / "usr/local/u")
    server.cleanup(project)
    wait_for(lambda: saved(server) == set(), what="the saved sandbox to be removed with its project")


def commands_of_the_document(title):
    """The indented lines below a title of docs/SAVING.md, and what else it calls a command of tar or age there."""
    chapter = read(f"{TOP}/docs/SAVING.md").split(f"## {title}\n")[1].split("\n## ")[0]
    return re.findall(r"^    (.*)$", chapter, re.M), re.findall(r"`((?:tar|age) [^`]*)`", chapter)


def test_the_documents_commands_get_the_data_out_without_cove(server, project, tmp_path):
    box = bare(server.execute(project, "mkdir -p /workspace/d; echo kept >/workspace/d/f; setfattr -n user.note -v kept /workspace/d/f || true; rm /etc/hosts"))
    assert save(server, box) is True
    for name in os.listdir(f"{store(server)}/{box}"):
        shutil.copy(f"{store(server)}/{box}/{name}", tmp_path)
    lines, inline = commands_of_the_document("Getting data out without cove")
    assert len(lines) == 3 and len(inline) == 1, (lines, inline)
    done = subprocess.run(["bash", "-ec", "\n".join(lines)], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and "root/workspace/d/f" in done.stdout, done
    digests = re.findall(r"^[0-9a-f]{64}", done.stdout, re.M)
    assert len(digests) == 2 and digests[0] == digests[1]
    assert read(tmp_path / "root/workspace/d/f") == "kept\n" and not os.path.exists(tmp_path / "root/etc")
    subprocess.run(["bash", "-ec", inline[0]], cwd=tmp_path, check=True, capture_output=True)
    assert os.stat(tmp_path / "root/etc/hosts").st_rdev == 0 and stat.S_ISCHR(os.stat(tmp_path / "root/etc/hosts").st_mode)


def test_its_environment_its_secrets_and_its_token_are_in_none_of_what_is_saved(server):
    made = server.post("/sandboxes", {"templateID": "base", "timeout": 300, "metadata": {"who": "me"}, "secure": True,
                                      "envVars": {"PASSWORD": "correct-horse-battery"}}).json
    box, token = made["sandboxID"], made["envdAccessToken"]
    server.post("/api/v1/agent/sandboxes/run-cmd", {"sandbox_id": box, "command": "echo of its files >/workspace/f"})
    assert save(server, box) is True
    kept = {}
    for name in os.listdir(f"{store(server)}/{box}"):
        with open(f"{store(server)}/{box}/{name}", "rb") as f:
            kept[name] = f.read()
    kept["files"] = subprocess.run(["zstd", "-dc"], input=kept["archive.tar.zst"], stdout=subprocess.PIPE, check=True).stdout
    assert b"of its files" in kept["files"] and len(token) > 20
    assert not [name for name, content in kept.items() if b"correct-horse" in content or token.encode() in content]
    assert "correct-horse" not in read(f"{server.run_dir}/attributes/{box}")
    listed = [b for b in server.request("GET", "/v2/sandboxes?state=paused").json if b["sandboxID"] == box]
    assert listed and listed[0]["state"] == "paused" and listed[0]["metadata"] == {"who": "me"}
    again = server.post(f"/sandboxes/{box}/connect", {"timeout": 60})
    assert again.status == 201 and again.json["sandboxID"] == box
    assert server.request("DELETE", f"/sandboxes/{box}").status == 204


def test_a_command_that_runs_into_a_pause_is_told_so(server, project):
    box = bare(server.execute(project, "true"))
    replies = []
    thread = threading.Thread(target=lambda: replies.append(server.execute(project, "touch /workspace/began; sleep 100")))
    thread.start()
    wait_for(lambda: "began" in server.run(project, "ls /workspace"))
    assert save(server, box) is True
    thread.join(20)
    assert "paused to storage" in replies[0].body.decode(), replies


def test_two_who_pause_and_two_who_wake_at_once_are_all_answered(server, project):
    box = bare(server.execute(project, "head -c 20000000 /dev/urandom >/workspace/noise"))
    for call, after in ((SAVE, {box}), (WAKE, set())):
        answers = []
        threads = [threading.Thread(target=lambda: answers.append(ask(server, call, box))) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert answers == [True] * 4
        assert saved(server) == after


@pytest.mark.parametrize("by", ["a command", "a resume"])
def test_whoever_uses_a_sandbox_while_it_is_being_saved_keeps_it_running(server, project, by):
    box = bare(server.execute(project, "head -c 200000000 /dev/urandom >/workspace/noise; sleep 1000 & echo $! >/workspace/pid", timeout=60))
    answers = []
    thread = threading.Thread(target=lambda: answers.append(save(server, box)))
    thread.start()
    wait_for(lambda: os.path.exists(f"{store(server)}/.new-{box}/archive.tar.zst"))
    assert by == "a command" or wake(server, box) is True
    assert server.run(project, "kill -0 $(cat /workspace/pid) && echo lives") == "lives\n"
    thread.join()
    assert answers == ["the sandbox was not paused: it was used while it was being saved"]
    wait_for(lambda: os.listdir(store(server)) == [], what="nothing left in the store")


def test_deleting_a_sandbox_while_it_is_being_saved_leaves_nothing(server, project):
    box = bare(server.execute(project, "head -c 200000000 /dev/urandom >/workspace/noise", timeout=60))
    answers = []
    thread = threading.Thread(target=lambda: answers.append(save(server, box)))
    thread.start()
    wait_for(lambda: os.path.exists(f"{store(server)}/.new-{box}/archive.tar.zst"))
    server.cleanup(project)
    thread.join()
    assert "removed" in answers[0]
    wait_for(lambda: os.listdir(store(server)) == [], what="nothing left in the store")


def test_deleting_a_sandbox_while_it_is_being_woken_leaves_nothing(server, project):
    box = bare(server.execute(project, "head -c 200000000 /dev/urandom >/workspace/noise", timeout=60))
    assert save(server, box) is True
    answers = []
    thread, _ = hold_unpacking(server, box, answers)
    server.cleanup(project)
    thread.join()
    assert answers and answers[0] is not True
    wait_for(lambda: os.listdir(store(server)) == [] and box not in server.inits, what="nothing to be left")
    wait_for(lambda: not os.path.exists(f"{server.dir}/state/boxes/{box}"), what="the half-made sandbox to be swept")


def jump_clock(server, box, seconds):
    """As if the wall clock had jumped since the sandbox was saved: the keeper reads records at its start."""
    path = f"{store(server)}/{box}/record"
    text = re.sub(r"(?m)^savedUnixMs .*$", f"savedUnixMs {int((time.time() - seconds) * 1000)}", read(path))
    with open(path, "w") as f:
        f.write(text)


def grow_older(server, boxes, hours):
    """As if keepers had run for so long since these were saved, and the others had been saved just now. No keeper runs."""
    clock = int(read(f"{server.dir}/state/saved-clock")) + hours * 3600_000
    for path in (f"{server.dir}/state/saved-clock", *(f"{store(server)}/{box}/since" for box in saved(server) - set(boxes))):
        with open(path, "w") as f:
            f.write(f"{clock:020}")


@pytest.mark.parametrize("jump_s", [-10 * 365 * 86400, 10 * 365 * 86400])
def test_a_clock_that_has_jumped_since_a_sandbox_was_saved_loses_nothing(make_server, jump_s):
    server = make_server(saved_keep="1h")
    box = bare(server.execute("p", "echo kept >/workspace/f"))
    assert save(server, box) is True
    kill_keeper(server)
    jump_clock(server, box, jump_s)
    before = read(f"{server.dir}/state/saved-clock")
    server.up()
    wait_for(lambda: read(f"{server.dir}/state/saved-clock") != before, what="the keeper to have looked for what is too old")
    listed = [r for r in json.loads(cove_store(server, "ls", "--json").stdout) if r["id"] == box]
    assert listed and listed[0]["state"] == "saved"
    assert server.request("GET", "/v2/sandboxes?state=paused").status == 200
    again = server.execute("p", "cat /workspace/f")
    assert (bare(again), again.json["stdout"]) == (box, "kept\n")
    assert save(server, box) is True and wake(server, box) is True
    server.cleanup("p")


def test_what_is_too_old_or_more_than_a_tenant_may_keep_is_removed(make_server):
    server = make_server(tenant_saved_keep="2", saved_keep="1h")
    boxes = []
    for name in ("one", "two", "three"):
        boxes.append(bare(server.execute(name, "true")))
        assert save(server, boxes[-1]) is True
        if name == "one":
            kill_keeper(server)
            jump_clock(server, boxes[0], -86400)  # by the wall clock it is the newest of the three
            server.up()
    wait_for(lambda: saved(server) == set(boxes[1:]), 30, "the oldest of three to be removed")
    kill_keeper(server)
    grow_older(server, [boxes[1]], hours=3)
    server.up()
    wait_for(lambda: saved(server) == {boxes[2]}, 30, "what is older than an hour to be removed")
    assert bare(server.execute("three", "true")) == boxes[2] and bare(server.execute("one", "true")) != boxes[0]


def test_another_tenant_neither_saves_nor_wakes_nor_sees_it(server, project):
    box = bare(server.execute(project, "true"))
    assert "no sandbox" in save(server, box, tenant="other")
    assert save(server, box) is True
    assert "no sandbox" in wake(server, box, tenant="other")
    with_other = server.add_key("other")
    assert server.request("GET", f"/sandboxes/{box}", key=with_other).status == 404
    assert wake(server, box) is True


def corrupt(path, at, flip):
    with open(path, "r+b") as f:
        f.seek(at)
        byte = f.read(1)
        f.seek(at)
        f.write(bytes([byte[0] ^ flip]))


def test_a_damaged_archive_is_refused_and_stays(server, project):
    box = bare(server.execute(project, "head -c 100000 /dev/urandom >/workspace/noise; echo fine >/workspace/f"))
    assert save(server, box) is True
    archive = f"{store(server)}/{box}/archive.tar.zst"
    size = os.path.getsize(archive)
    for n in range(20):
        at, flip = n * (size - 1) // 19, 1 << (n % 8)
        corrupt(archive, at, flip)
        assert "archive of" in wake(server, box), at
        wait_for(lambda: not os.path.exists(f"{server.dir}/state/boxes/{box}"), what="the half-made sandbox to be swept")
        corrupt(archive, at, flip)
    with open(archive, "rb") as f:
        whole = f.read()
    for damaged in (whole[:-1], whole[:1000], b"", whole + b"\0"):
        with open(archive, "wb") as f:
            f.write(damaged)
        assert "archive" in wake(server, box), len(damaged)
        wait_for(lambda: not os.path.exists(f"{server.dir}/state/boxes/{box}"))
    with open(archive, "wb") as f:
        f.write(whole)
    assert server.run(project, "cat /workspace/f") == "fine\n"


# --- kill -9 at every step

def kill_keeper(server):
    os.kill(server.keeper_pid, signal.SIGKILL)


def set_fault(server, point):
    """Where the keeper kills itself, or with ":init" the sandbox's init; "": nowhere. A keeper of start_fragile() looks into this file
    (sandbox/keeper/faults.c)."""
    with open(f"{server.dir}/fault", "w") as f:
        f.write(point)


def start_fragile(server):
    os.environ["COVE_FAULT"] = f"{server.dir}/fault"
    try:
        server.up()
    finally:
        os.environ.pop("COVE_FAULT", None)


def restart(server):
    """Another keeper takes over."""
    set_fault(server, "")
    start_fragile(server)


def settled(server, box):
    """Where the sandbox is: exactly one of the two."""
    def look():
        here, there = box in server.inits, box in saved(server)
        return ("here" if here else "saved") if here != there else None
    return wait_for(look, 30, "the sandbox to be in one place and no other")


@pytest.fixture(scope="module")
def fragile(request):
    from cove import Server, new_dir, stop
    server = Server(new_dir(), pool=1, workers=1, command_timeout="20s")
    start_fragile(server)
    yield server
    stop(server)


def make_precious(server):
    """A sandbox, and what its files say."""
    reply = server.execute("p", "echo precious >/workspace/f; head -c 2000000 /dev/urandom >/workspace/noise; md5sum </workspace/noise")
    return bare(reply), "precious\n" + reply.json["stdout"]


def check_precious(server, box, files):
    """The project still has that sandbox, and nothing of it is left in the store."""
    reply = server.execute("p", "cat /workspace/f; md5sum </workspace/noise")
    assert (bare(reply), reply.json["stdout"]) == (box, files) and saved(server) == set()
    server.cleanup("p")


def test_the_keeper_waits_for_one_sync_when_it_puts_a_sandbox_into_the_store(server, project, tmp_path):
    box = bare(server.execute(project, "echo precious >/workspace/f"))
    with subprocess.Popen(["strace", "-qq", "-o", tmp_path / "log", "-e", "trace=fsync,fdatasync,syncfs,sync", "-p", str(server.keeper_pid)]) as strace:
        wait_for(lambda: status_field(server.keeper_pid, "TracerPid") == str(strace.pid), what="strace")
        assert save(server, box) is True
        strace.terminate()
    calls = read(tmp_path / "log").count("sync(")
    assert calls == 1, "others do the rest: on a busy disk a sync takes longer than the keeper may stand still"
    assert server.run(project, "cat /workspace/f") == "precious\n"


def test_all_of_a_saved_sandbox_is_synced_before_it_gets_its_name_in_the_store(server, project, tmp_path):
    box = bare(server.execute(project, "echo precious >/workspace/f"))
    traced = [server.keeper_pid, spare(server)]
    with subprocess.Popen(["strace", "-f", "-y", "-qq", "-o", tmp_path / "log", "-e", "trace=fsync,renameat", *(f"-p{pid}" for pid in traced)]) as strace:
        wait_for(lambda: all(status_field(pid, "TracerPid") == str(strace.pid) for pid in traced), 30, "strace")
        assert save(server, box) is True
        strace.terminate()
    before, named, after = read(tmp_path / "log").partition(f'.new-{box}", ')
    synced = set(re.findall(rf"fsync\(\d+</[^>]*/saved/\.new-{box}(/[^>]*)?>", before))
    assert named and synced >= {"/archive.tar.zst", "/manifest.json", "/record", ""}, before
    assert re.search(r"fsync\(\d+</[^>]*/saved>", after), "and then the store, which has the name"


@pytest.mark.parametrize("point, where", [
    ("save-begun", "here"), ("save-frozen", "here"), ("save-packing", "here"), ("save-packed", "here"), ("save-written", "here"),
    ("save-synced", "here"), ("save-renamed", "saved"), ("save-known", "saved"), ("save-dying", "saved")])
def test_a_keeper_killed_while_it_saves_leaves_the_sandbox_running_or_saved(fragile, point, where):
    box, files = make_precious(fragile)
    set_fault(fragile, point)
    assert save(fragile, box) is None, "the keeper was to die"
    restart(fragile)
    assert settled(fragile, box) == where
    check_precious(fragile, box, files)


@pytest.mark.parametrize("point, where", [
    ("wake-slot", "saved"), ("wake-files", "saved"), ("wake-unpacking", "saved"), ("wake-unpacked", "saved"), ("wake-built", "saved"),
    ("wake-live", "here"), ("wake-dropped", "here")])
def test_a_keeper_killed_while_it_wakes_leaves_the_sandbox_running_or_saved(fragile, point, where):
    box, files = make_precious(fragile)
    assert save(fragile, box) is True
    set_fault(fragile, point)
    assert wake(fragile, box) is (True if point == "wake-dropped" else None), "the keeper was to die"
    restart(fragile)
    assert settled(fragile, box) == where
    check_precious(fragile, box, files)


@pytest.mark.parametrize("point", ["save-begun", "save-frozen", "save-packing", "save-packed", "save-written", "save-synced", "save-renamed", "save-known"])
def test_an_init_killed_at_any_step_of_saving_leaves_the_sandbox_saved(fragile, point):
    box, files = make_precious(fragile)
    set_fault(fragile, f"{point}:init")
    assert save(fragile, box) is True
    set_fault(fragile, "")
    assert settled(fragile, box) == "saved"
    check_precious(fragile, box, files)


@pytest.mark.parametrize("point", ["wake-unpacked", "wake-built"])
def test_an_init_killed_while_its_sandbox_is_woken_leaves_it_saved(fragile, point):
    box, files = make_precious(fragile)
    assert save(fragile, box) is True
    set_fault(fragile, f"{point}:init")
    assert "died while it was being woken" in wake(fragile, box)
    set_fault(fragile, "")
    assert settled(fragile, box) == "saved"
    check_precious(fragile, box, files)


def test_a_saver_killed_while_it_unpacks_leaves_the_sandbox_saved(server, project):
    box, answers, thread = start_saving(server, project)
    thread.join()
    assert answers == [True]
    thread, saver = hold_unpacking(server, box, answers)
    os.kill(saver, signal.SIGKILL)
    thread.join()
    assert answers[1:] == [f"archive of '{box}': the saver ended without saying why"] and settled(server, box) == "saved"
    assert server.run(project, "cat /workspace/f; wc -c </workspace/noise") == "precious\n300000000\n"


def spare(server):
    """The saver that waits for its order."""
    return wait_for(lambda: list(server.titles("cove: spare saver")), what="a spare saver")[0]


def savers(server):
    return [pid for pid in server.pids() if "saver" in read(f"/proc/{pid}/comm")]


def hold_unpacking(server, box, answers):
    """Wakes a saved sandbox in a thread, whose answer is added to answers, and stops the saver that unpacks: (thread, saver's pid)."""
    for _ in range(10):
        thread = threading.Thread(target=lambda: answers.append(wake(server, box)))
        thread.start()
        while thread.is_alive():
            for pid in savers(server):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
                    return thread, pid
        assert answers.pop() is True and save(server, box) is True  # it was awake before its saver was seen
    raise AssertionError("no saver was seen in ten wakes")


def start_saving(server, project):
    """A sandbox with enough in it that one can meet its saver at work; where the answer will be."""
    box = bare(server.execute(project, "echo precious >/workspace/f; head -c 300000000 /dev/urandom >/workspace/noise", timeout=60))
    answers = []
    thread = threading.Thread(target=lambda: answers.append(save(server, box)))
    thread.start()
    wait_for(lambda: os.path.exists(f"{store(server)}/.new-{box}/archive.tar.zst"))
    return box, answers, thread


def test_a_killed_saver_leaves_the_sandbox_running(server, project):
    box, answers, thread = start_saving(server, project)
    pid = wait_for(lambda: savers(server))[0]
    os.kill(pid, signal.SIGKILL)
    thread.join()
    assert answers == ["the saver ended without saying why"]
    assert server.run(project, "cat /workspace/f") == "precious\n" and saved(server) == set()


def test_a_saver_waits_ahead_and_takes_one_order(server, project):
    box = bare(server.execute(project, "echo precious >/workspace/f"))
    seen = {spare(server)}
    for call in (save, wake, save, wake):
        assert call(server, box) is True
        assert not set(server.titles("cove: spare saver")) & seen, "it has had its order"
        seen.add(spare(server))
    assert len(seen) == 5 and len(server.titles("cove: spare saver")) == 1
    assert server.run(project, "cat /workspace/f") == "precious\n"


def test_a_spare_saver_that_is_dead_or_hangs_is_replaced(server, project):
    box = bare(server.execute(project, "echo precious >/workspace/f"))
    os.kill(dead := spare(server), signal.SIGKILL)
    wait_for(lambda: not alive(dead), what="its end")
    assert save(server, box) is True and wake(server, box) is True
    first = spare(server)
    os.kill(first, signal.SIGSTOP)
    answers = []
    thread = threading.Thread(target=lambda: answers.append(save(server, box)))
    thread.start()
    wait_for(lambda: os.path.exists(f"{store(server)}/.new-{box}/archive.tar.zst"))
    os.kill(first, signal.SIGKILL)
    thread.join()
    assert answers == ["the saver ended without saying why"], "it had been given its order"
    assert server.run(project, "cat /workspace/f") == "precious\n" and save(server, box) is True
    assert server.run(project, "cat /workspace/f") == "precious\n"


def test_the_files_of_a_sandbox_whose_init_is_killed_while_it_is_being_saved_are_saved(server, project):
    box, answers, thread = start_saving(server, project)
    os.kill(server.inits[box], signal.SIGKILL)
    thread.join()
    assert answers == [True] and saved(server) == {box}
    assert server.run(project, "cat /workspace/f; wc -c </workspace/noise") == "precious\n300000000\n"


def kill_init(server, box):
    """Only of a sandbox that is being saved: one that runs ends with its init, as it must. The keeper stands still between look and kill."""
    keeper = server.keeper_pid
    os.kill(keeper, signal.SIGSTOP)
    try:
        if os.path.exists(f"{store(server)}/.new-{box}") and box in server.inits:
            os.kill(server.inits[box], signal.SIGKILL)
    finally:
        os.kill(keeper, signal.SIGCONT)


def kill_one(server, box, victim):
    with contextlib.suppress(ProcessLookupError, KeyError):
        if victim == "init":
            kill_init(server, box)
        else:
            os.kill(victim, signal.SIGKILL)


def test_kill_9_at_random_moments_loses_no_sandbox_and_makes_none_twice(fragile):
    rounds = 200 if os.environ.get("COVE_TEST_LONG") == "yes" else 12
    reply = fragile.execute("p", "head -c 5000000 /dev/urandom >/workspace/noise; md5sum </workspace/noise")
    box, noise = bare(reply), reply.json["stdout"]
    for n in range(rounds):
        call = SAVE if n % 2 == 0 else WAKE
        thread = threading.Thread(target=lambda: ask(fragile, call, box))
        thread.start()
        time.sleep(random.random() * 0.2)  # the moment is what is random
        kill_one(fragile, box, random.choice([fragile.keeper_pid, "init", *savers(fragile)]))
        thread.join()
        fragile.up()
        settled(fragile, box)
        assert fragile.run("p", "md5sum </workspace/noise") == noise, n
        assert bare(fragile.execute("p", "true")) == box, n
    fragile.cleanup("p")


def test_a_full_store_leaves_the_sandbox_running(make_server, project):
    server = make_server(tenant_saved="1")
    first, second = (bare(server.execute(p, "echo kept >/workspace/f")) for p in ("one", "two"))
    assert save(server, first) is True
    assert "quota" in save(server, second)
    assert server.run("two", "cat /workspace/f") == "kept\n"
    server.cleanup("one")
    server.cleanup("two")


def test_no_archive_oversteps_the_quota_of_its_tenant(make_server):
    server = make_server(tenant_saved_bytes="3M")
    boxes = {name: bare(server.execute(name, f"head -c {size} /dev/urandom >/workspace/f; md5sum /workspace/f"))
             for name, size in (("large", 5000000), ("one", 2000000), ("two", 2000000))}
    assert "tenant_saved_bytes" in save(server, boxes["large"])
    answers = []
    threads = [threading.Thread(target=lambda name=name: answers.append(save(server, boxes[name]))) for name in ("one", "two")]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(saved(server)) == 1 and answers.count(True) == 1 and all(a is True or "quota" in a or "tenant_saved_bytes" in a for a in answers), answers
    for name in boxes:
        assert server.run(name, "wc -c </workspace/f").strip() in ("2000000", "5000000")
        server.cleanup(name)


def test_directories_that_could_not_come_back_are_not_saved(server, project):
    """Unpacking remembers the path of each directory: thousands of 57 KiB need more memory than a saver has."""
    make = ("import os\nos.chdir('/workspace')\nfor _ in range(230): os.mkdir('d' * 250); os.chdir('d' * 250)\n"
            "for n in range(%d): os.mkdir(f'{n}'); os.chmod(f'{n}', 0o751)")
    look = ("import os\nos.chdir('/workspace')\nwhile os.path.isdir('d' * 250): os.chdir('d' * 250)\n"
            "print(len(os.listdir('.')), {oct(os.stat(n).st_mode) for n in os.listdir('.')})")
    box = bare(server.execute(project, f"python3 -c \"{make % 2500}\"", timeout=60))
    assert save(server, box) is True and wake(server, box) is True
    assert server.run(project, f"python3 -c \"{look}\"") == "2500 {'0o40751'}\n"
    server.run(project, f"python3 -c \"{look}\nfor n in range(2500, 4000): os.mkdir(f'{{n}}')\"")
    assert "cannot be saved" in save(server, box)
    assert server.run(project, f"python3 -c \"{look}\"").startswith("4000 "), "it goes on"


def test_a_tenant_that_fills_the_store_leaves_others_room_to_pause(tmp_path):
    from cove import Server
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128m", "cove-test", tmp_path], check=True)
    server = Server(tmp_path, pool=0, workers=1, disk="tmpfs", disk_reserve="0", memory_max="1G", command_timeout="60s")
    try:
        other = server.up().add_key("other")
        theirs = bare(wait_for(lambda: (r := server.execute("theirs", "head -c 8000000 /dev/urandom >/workspace/f", key=other)).status == 200 and r, 30, "the key"))
        answers = []
        for n in range(12):
            box = bare(server.execute(f"p{n}", "head -c 15000000 /dev/urandom >/workspace/f"))
            answers.append(save(server, box))
            if answers[-1] is not True:
                break
        assert answers[:3] == [True] * 3 and "no room" in answers[-1], answers
        assert save(server, theirs, tenant="other") is True
    finally:
        server.down()
        subprocess.run(["umount", tmp_path], check=True)


def test_without_a_quota_a_tenant_leaves_a_quarter_of_the_store_to_others(make_server):
    server = make_server(max_saved="4")
    other = server.add_key("other")
    boxes = [bare(server.execute(f"p{i}", "true")) for i in range(4)]
    assert [save(server, box) for box in boxes[:3]] == [True] * 3
    assert "quota" in save(server, boxes[3])
    wait_for(lambda: server.execute("theirs", "true", key=other).status == 200, 30, "the other tenant's key")
    assert save(server, bare(server.execute("theirs", "true", key=other)), tenant="other") is True
    for i in range(4):
        server.cleanup(f"p{i}")


def test_a_disk_that_is_full_while_a_sandbox_is_saved_leaves_it_running(tmp_path):
    from cove import Server
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=100m", "cove-test", tmp_path], check=True)
    server = Server(tmp_path, pool=0, workers=1, disk="tmpfs", disk_reserve="0", memory_max="1G", command_timeout="20s")
    try:
        server.up()
        box = bare(server.execute("p", "head -c 150000000 /dev/urandom >/workspace/noise; sleep 1000 & echo $! >/workspace/pid"))
        assert "room" in save(server, box) or "space" in save(server, box)
        assert server.run("p", "kill -0 $(cat /workspace/pid); wc -c </workspace/noise") == "150000000\n"
        assert server.run("p", "rm /workspace/noise; echo small >/workspace/f") == ""
        assert save(server, box) is True
        assert server.run("p", "cat /workspace/f") == "small\n"
    finally:
        server.down()
        subprocess.run(["umount", tmp_path], check=True)


def test_what_is_frozen_is_saved_before_the_server_stops_and_comes_back_after_its_start(make_server):
    server = make_server()
    box = bare(server.execute("p", "echo kept >/workspace/f"))
    other = bare(server.execute("q", "true"))
    from test_pause import ask as ask_pause
    assert ask_pause(server, "FREEZE", box) is True
    server.quickstart("down")
    assert saved(server) == {box}, "the frozen one and not the running one"
    server.up()
    again = server.execute("p", "cat /workspace/f")
    assert (bare(again), again.json["stdout"]) == (box, "kept\n")
    assert bare(server.execute("q", "true")) != other


def hold_saver(server):
    """The pid of the saver that is at work, stopped."""
    pid = wait_for(lambda: savers(server), 30, "a saver")[0]
    os.kill(pid, signal.SIGSTOP)
    return pid


def test_a_stop_waits_for_savers_no_longer_than_it_may_and_tells_what_was_not_saved(make_server):
    from test_pause import ask as ask_pause
    server = make_server(save_at_stop="1s")
    box = bare(server.execute("p", "head -c 200000000 /dev/urandom >/workspace/noise", timeout=60))
    assert ask_pause(server, "FREEZE", box) is True
    down = threading.Thread(target=lambda: server.quickstart("down"))
    down.start()
    hold_saver(server)
    down.join()
    told = [e for e in server.log_lines() if e.get("sandbox") == box and "was not saved in time (save_at_stop)" in e["event"]]
    assert told and saved(server) == set(), "and the stopped saver was not waited for"


def test_a_sandbox_is_saved_at_its_end_where_the_configuration_says_so(make_server):
    server = make_server(on_timeout="save", lifetime="2s", reuse="2s")
    box = bare(server.execute("p", "echo kept >/workspace/f"))
    wait_for(lambda: saved(server) == {box}, 30, "it to be saved at its end")
    again = server.execute("p", "cat /workspace/f")
    assert (bare(again), again.json["stdout"]) == (box, "kept\n")
    server.cleanup("p")


@pytest.mark.parametrize("e2b_too", ["no", "yes"])
def test_a_sandbox_that_stays_paused_is_saved_and_one_of_e2b_only_where_the_configuration_says_so(make_server, e2b_too):
    from test_pause import ask as ask_pause
    server = make_server(save_frozen_after="1s", save_frozen_e2b=e2b_too)
    boxes = [server.post("/sandboxes", {"templateID": "base", "timeout": 300}).json["sandboxID"]]
    assert ask_pause(server, "FREEZE", boxes[0]) is True
    for project in ("one", "two"):  # when the second one is saved, that of e2b has been paused for much longer
        boxes.append(bare(server.execute(project, f"echo {project} >/workspace/f")))
        assert ask_pause(server, "FREEZE", boxes[-1]) is True
        wait_for(lambda: boxes[-1] in saved(server), 30, "the paused one to be saved")
    if e2b_too == "yes":
        wait_for(lambda: saved(server) == set(boxes), 30, "that of e2b to be saved as well")
    else:
        assert saved(server) == set(boxes[1:]) and boxes[0] in server.inits
    assert server.run("one", "cat /workspace/f") == "one\n" and server.run("two", "cat /workspace/f") == "two\n"
    assert server.request("DELETE", f"/sandboxes/{boxes[0]}").status == 204
    server.cleanup("one")
    server.cleanup("two")


# --- cove store

def cove_store(server, *args, check=True):
    done = subprocess.run([f"{TOP}/.cove/inst/bin/cove", "-c", f"{server.dir}/conf/cove.conf", "store", *args], capture_output=True, text=True)
    assert not check or done.returncode == 0, done
    return done


def test_the_operator_lists_verifies_exports_restores_and_removes_what_is_saved(server, project, tmp_path):
    box = bare(server.execute(project, "echo kept >/workspace/f"))
    assert save(server, box) is True
    listed = [r for r in json.loads(cove_store(server, "ls", "--json").stdout) if r["id"] == box]
    assert listed and (listed[0]["state"], listed[0]["project"]) == ("saved", project)
    assert box in cove_store(server, "ls").stdout and json.loads(cove_store(server, "show", box).stdout)["id"] == box
    assert f"{box}: whole" in cove_store(server, "verify").stdout
    assert {"id": box, "state": "whole"} in json.loads(cove_store(server, "verify", "--json").stdout)
    exported = cove_store(server, "export", "--json", box, str(tmp_path / "out.tar.zst"))
    assert json.loads(exported.stdout) == [{"id": box, "file": str(tmp_path / "out.tar.zst")}]
    listing = subprocess.run(["tar", "--zstd", "-tf", tmp_path / "out.tar.zst"], stdout=subprocess.PIPE, text=True, check=True).stdout
    assert "root/workspace/f" in listing
    corrupt(f"{store(server)}/{box}/archive.tar.zst", 100, 1)
    damaged = cove_store(server, "verify", box, "--json", check=False)
    assert damaged.returncode == 1 and "archive" in json.loads(damaged.stdout)[0]["why"]
    assert cove_store(server, "export", box, "-", check=False).returncode == 2
    corrupt(f"{store(server)}/{box}/archive.tar.zst", 100, 1)
    assert json.loads(cove_store(server, "restore", box, "--json").stdout) == [{"id": box, "state": "running"}]
    assert server.run(project, "cat /workspace/f") == "kept\n"
    assert save(server, box) is True
    assert "runs again" in cove_store(server, "restore", box).stdout
    assert save(server, box) is True
    assert json.loads(cove_store(server, "rm", box, "--json").stdout) == [{"id": box, "state": "removed"}]
    assert saved(server) == set() and server.execute(project, "true").id != f"sandbox_{box}"


def test_the_operator_sees_how_far_a_save_has_come(server, project):
    box, answers, thread = start_saving(server, project)
    pid = hold_saver(server)
    entry = lambda: [r for r in json.loads(cove_store(server, "ls", "--json").stdout) if r["id"] == f".new-{box}"]
    before = entry()
    assert [r["state"] for r in before] == ["saving"], before
    os.kill(pid, signal.SIGCONT)
    while os.path.getsize(f"{store(server)}/.new-{box}/archive.tar.zst") <= before[0]["bytes"]:
        pass  # it has 300 MB to go, and each look takes microseconds
    os.kill(pid, signal.SIGSTOP)
    assert entry()[0]["bytes"] > before[0]["bytes"], "its bytes grow before it is saved"
    os.kill(pid, signal.SIGCONT)
    thread.join()
    assert answers == [True] and entry() == []


def test_a_tenant_downloads_its_own_archive_and_no_other(server, project, tmp_path):
    box = bare(server.execute(project, "echo kept >/workspace/f"))
    get = lambda **kw: server.request("GET", f"/console/api/sandboxes/{box}/saved", **kw)
    assert get().status == 409, "it runs"
    assert save(server, box) is True
    reply = get()
    assert reply.status == 200 and reply.headers["Content-Disposition"] == f'attachment; filename="{box}.tar.zst"', reply
    assert reply.body == open(f"{store(server)}/{box}/archive.tar.zst", "rb").read()
    assert get(key=server.add_key("archive-other")).status == 404
    cove_store(server, "rm", box)
    assert get().status == 404


def test_what_nobody_can_wake_is_found_and_collected(server, project):
    orphan = f"{store(server)}/{'a' * 20}"
    os.mkdir(orphan)
    assert "damaged" in cove_store(server, "ls").stdout
    assert "1 removed" in cove_store(server, "gc").stdout and not os.path.exists(orphan)
    os.mkdir(orphan)
    assert [r["id"] for r in json.loads(cove_store(server, "gc", "--json").stdout)] == ["a" * 20]
    for args in (["nosuch"], ["show"], ["show", "../x"], ["rm", "b" * 20], ["export", "c" * 20, "/x"]):
        assert cove_store(server, *args, check=False).returncode == 2, args


# --- encrypted

def encryption(tmp_path):
    """Settings of a store that encrypts."""
    identity = tmp_path / "identity"
    made = subprocess.run(["age-keygen", "-o", identity], capture_output=True, text=True, check=True)
    return {"store_recipient": re.search(r"age1\w+", made.stderr + made.stdout).group(0), "store_identity": identity}


def test_the_operator_sees_how_far_an_encrypted_save_has_come(make_server, tmp_path):
    server = make_server(**encryption(tmp_path))
    box = bare(server.execute("p", "head -c 200000000 /dev/urandom >/workspace/noise", timeout=60))
    thread = threading.Thread(target=lambda: save(server, box))
    thread.start()
    pid = hold_saver(server)
    os.kill(pid, signal.SIGCONT)
    wait_for(lambda: os.path.getsize(f"{store(server)}/.new-{box}/archive.tar.zst.age") > 1 << 20)
    os.kill(pid, signal.SIGSTOP)
    (entry,) = json.loads(cove_store(server, "ls", "--json").stdout)
    assert entry["state"] == "saving" and entry["bytes"] > 1 << 20, entry
    os.kill(pid, signal.SIGCONT)
    thread.join()
    server.cleanup("p")


def test_an_encrypted_archive_is_read_by_age_alone_and_comes_back(make_server, tmp_path):
    server = make_server(**encryption(tmp_path))
    reply = server.execute("p", "echo kept-secret >/workspace/f; head -c 3000000 /dev/urandom >/workspace/n; md5sum </workspace/n")
    box, noise = bare(reply), reply.json["stdout"]
    assert save(server, box) is True
    archive = f"{store(server)}/{box}/archive.tar.zst.age"
    with open(archive, "rb") as f:
        assert f.read(21) == b"age-encryption.org/v1"
    shutil.copy(archive, tmp_path)
    _, (command,) = commands_of_the_document("Encrypted at rest")
    subprocess.run(["bash", "-o", "pipefail", "-ec", command], cwd=tmp_path, check=True)
    assert read(tmp_path / "root/workspace/f") == "kept-secret\n"
    assert f"{box}: whole" in cove_store(server, "verify").stdout
    corrupt(archive, 200000, 4)
    assert "archive" in wake(server, box)
    corrupt(archive, 200000, 4)
    wait_for(lambda: not os.path.exists(f"{server.dir}/state/boxes/{box}"))
    assert server.run("p", "cat /workspace/f; md5sum </workspace/n") == "kept-secret\n" + noise
    assert "AGE-SECRET-KEY" not in read(f"{server.dir}/log/coved.log")
    server.cleanup("p")
