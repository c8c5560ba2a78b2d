"""Snapshots and forks: the files of a sandbox at one moment, and sandboxes that begin with them."""
import json
import os
import re
import signal
import subprocess

import pytest

from cove import TOP, alive, read, wait_for
from test_template import small_root  # noqa: F401 (a fixture)

COVE = os.path.join(TOP, ".cove/inst/bin/cove")
BACKENDS = ["btrfs", "image", "tmpfs"]


@pytest.fixture(scope="module", params=BACKENDS)
def any_disk(request):
    """An instance for each way to keep sandboxes' files."""
    from cove import new_dir, stop
    from cove import Server
    server = Server(new_dir(), pool=0, workers=1, disk=request.param, disk_max="400M", command_timeout="30s")
    yield server.up()
    stop(server)


@pytest.fixture(scope="module")
def instance():
    from cove import new_dir, stop
    from cove import Server
    server = Server(new_dir(), pool=1, workers=1, command_timeout="30s")
    yield server.up()
    stop(server)


def cove(server, *args, ok=True):
    done = subprocess.run([COVE, "-c", f"{server.dir}/conf/cove.conf", *map(str, args)], timeout=60, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert (done.returncode == 0) == ok, done.stdout
    return done.stdout


def take(server, sandbox, *name):
    return json.loads(cove(server, "snapshot", "make", sandbox, *name, "--json"))[0]


def names(server):
    return [s["name"] or s["id"] for s in json.loads(cove(server, "snapshot", "ls", "--json"))]


def create(server, template, key=True):
    """A sandbox of a template or a snapshot, through nginx."""
    return server.post("/sandboxes", {"templateID": template, "timeout": 300}, key=key)


def inside(server, sandbox, script):
    return cove(server, "exec", sandbox, "bash", "-c", script)


def only_forks_are_left(folder):
    """What a fork was made of, and what lies below that, goes by itself a minute after it was made."""
    info = {name: read(f"{folder}/{name}/info") for name in os.listdir(folder)}
    parents = {found for text in info.values() for found in re.findall(r"^parent (\w+)$", text, re.M)}
    return all("flags 1" in text or name in parents for name, text in info.items())


def end_all(server):
    """No sandbox and no snapshot is left, and nothing of them on the disk."""
    for box in json.loads(cove(server, "ls", "--json")):
        cove(server, "kill", box["id"])
    for s in json.loads(cove(server, "snapshot", "ls", "--json")):
        cove(server, "snapshot", "rm", s["id"])
    state = server.config["state_dir"]
    pool = f"{state}/disk/pool/snapshots"
    spare = int(server.settings["pool"])
    wait_for(lambda: len(os.listdir(f"{state}/boxes")) <= spare, 60, "the sandboxes' end")
    wait_for(lambda: only_forks_are_left(f"{state}/snapshots"), 60, "the snapshots' end")
    if os.path.exists(pool):
        assert set(os.listdir(pool)) <= set(os.listdir(f"{state}/snapshots"))


@pytest.fixture
def disk(any_disk):
    yield any_disk
    end_all(any_disk)


@pytest.fixture
def server(instance):
    yield instance
    end_all(instance)


PREPARE = """
set -e
echo one > /workspace/f
ln /workspace/f /workspace/hard
ln -s /etc/passwd /workspace/soft
mkdir -p /workspace/d/e && chmod 2751 /workspace/d && echo x > "/workspace/d/e/odd name"$'\\n'
chown 1000:33 /workspace/d
rm -r /usr/share/doc/bash /etc/hostname
rm -r /var/cache && mkdir /var/cache && touch /var/cache/only
echo changed >> /etc/shells
cp /bin/true /usr/local/bin/mine && chmod 4755 /usr/local/bin/mine
mkfifo /workspace/pipe
truncate -s 50M /workspace/sparse && printf end >> /workspace/sparse
touch -d '2001-02-03 04:05:06 UTC' /workspace/f
"""

LOOK = """
cd /workspace
cat f hard; stat -c '%h %Y' f; readlink soft; stat -c '%a %u:%g %F' d pipe
find d -type f | od -c | head -3; test ! -e /usr/share/doc/bash; test ! -e /etc/hostname; ls -A /var/cache
tail -n1 /etc/shells; stat -c '%a %s' /usr/local/bin/mine; tail -c 3 sparse; stat -c '%s' sparse; test $(du -m sparse | cut -f1) -lt 5
"""


def test_a_fork_has_all_files_as_they_were_and_none_of_what_came_after(disk):
    first = disk.execute("p", PREPARE)
    assert first.json["exitCode"] == 0, first
    before = inside(disk, first.id, LOOK)
    forks = cove(disk, "snapshot", "fork", first.id, 2).split()
    assert len(forks) == 2 and first.id not in forks
    disk.run("p", "echo two > /workspace/f; rm /workspace/soft; touch /usr/share/doc/later")
    for fork in forks:
        assert inside(disk, fork, LOOK) == before
        assert "later" not in inside(disk, fork, "ls /usr/share/doc")
    inside(disk, forks[0], "echo three > /workspace/f; rm -r /workspace/d")
    assert inside(disk, forks[1], LOOK) == before
    assert disk.run("p", "cat /workspace/f") == "two\n"


def test_a_snapshot_with_a_name_is_a_template_of_its_tenant(disk):
    first = disk.execute("p", "echo kept > /workspace/f; rm -r /usr/share/doc/bash")
    made = take(disk, first.id, "mine")
    assert made["name"] == "mine" and made["template"] == "base" and made["sandbox"] == first.id
    disk.run("p", "echo later > /workspace/f")
    disk.cleanup("p")
    for word in ("mine", f"{made['tenant']}/mine", made["id"]):
        reply = create(disk, word)
        assert reply.status == 201, reply
        assert inside(disk, reply.json["sandboxID"], "cat /workspace/f; test ! -e /usr/share/doc/bash") == "kept\n"


def longest_chain(server):
    root = f"{server.config['state_dir']}/snapshots"
    parent = {name: (re.findall(r"^parent (\w+)$", read(f"{root}/{name}/info"), re.M) or [None])[0] for name in os.listdir(root)}

    def length(name):
        return 0 if name is None else 1 + length(parent[name])
    return max(map(length, parent))


def test_long_chains_are_merged_and_lose_nothing(disk):
    """Each generation deletes what the one before made, replaces a directory by a file and the other way round."""
    disk.run("p", "mkdir /workspace/swap; echo 0 > /workspace/swap/0; echo 0 > /workspace/gen")
    box = disk.execute("p", "true").id
    for generation in range(1, 12):
        box = cove(disk, "snapshot", "fork", box).strip()
        inside(disk, box, f"""set -e; cd /workspace; test $(cat gen) = {generation - 1}
            echo {generation} > gen; echo {generation} > made{generation}; rm -f made{generation - 2}
            if [ -d swap ]; then rm -r swap; echo file > swap; else rm swap; mkdir swap; echo {generation} > swap/{generation}; fi
            rm -rf /usr/share/doc/bash; mkdir -p /usr/local/g{generation}""")
    last = cove(disk, "snapshot", "fork", box).strip()
    assert inside(disk, last, "cd /workspace; cat gen; ls; ls swap; ls -d /usr/local/g[0-9]* | wc -l; test ! -e /usr/share/doc/bash") == \
        "11\ngen\nmade10\nmade11\nswap\nswap\n11\n"
    assert 2 <= longest_chain(disk) <= 8


def test_the_sandbox_goes_on_after_its_snapshot_and_a_paused_one_stays_paused(disk):
    first = disk.execute("p", "echo 1 > /workspace/f; (while :; do date +%N > /workspace/tick; sleep 0.05; done) > /dev/null 2>&1 &")
    take(disk, first.id, "running")
    look = "before=$(cat /workspace/tick); for i in $(seq 200); do [ \"$(cat /workspace/tick)\" != \"$before\" ] && echo ticks && break; sleep 0.05; done"
    assert disk.run("p", look) == "ticks\n"
    assert disk.request("POST", f"/sandboxes/{first.id}/pause").status == 204
    take(disk, first.id, "paused")
    assert json.loads(cove(disk, "ls", "--json"))[0]["state"] == "frozen"
    assert inside(disk, create(disk, "paused").json["sandboxID"], "cat /workspace/f") == "1\n"


# ------------------------------------------------------------------ whose it is

def test_another_tenant_finds_nothing(server):
    stranger = server.add_key("stranger")
    made = take(server, server.execute("p", "echo secret > /workspace/f").id, "mine")
    for word in ("mine", made["id"], f"{made['tenant']}/mine", "stranger/mine", "../snapshots/" + made["id"]):
        reply = create(server, word, key=stranger)
        assert reply.status == 404, (word, reply)
    assert json.loads(cove(server, "snapshot", "ls", "stranger", "--json")) == []
    assert create(server, "mine").status == 201


def test_two_tenants_may_use_one_name(server):
    other = server.add_key("other")
    take(server, server.execute("p", "echo default > /workspace/f").id, "same")
    theirs = server.execute("p", "echo other > /workspace/f", key=other)
    take(server, theirs.id, "same")
    assert inside(server, create(server, "same").json["sandboxID"], "cat /workspace/f") == "default\n"
    assert inside(server, create(server, "same", key=other).json["sandboxID"], "cat /workspace/f") == "other\n"
    server.cleanup("p", key=other)


@pytest.mark.parametrize("name", ["UPPER", "a/b", "..", ".x", "-x", "sp ace", "x" * 200, "a" * 20, "ü"])
def test_odd_names_are_refused(server, name):
    box = server.execute("p", "true").id
    cove(server, "snapshot", "make", box, name, ok=False)
    assert names(server) == []


def test_a_name_that_is_used_again_means_the_newer_snapshot(server):
    box = server.execute("p", "echo 1 > /workspace/f").id
    old = take(server, box, "again")
    user = create(server, "again").json["sandboxID"]
    server.run("p", "echo 2 > /workspace/f")
    take(server, box, "again")
    assert names(server) == ["again"]
    assert inside(server, create(server, "again").json["sandboxID"], "cat /workspace/f") == "2\n"
    assert create(server, old["id"]).status == 404
    assert inside(server, user, "cat /workspace/f") == "1\n"  # made of the older one: its files stay


# ------------------------------------------------------------------ removal, limits

def test_a_removed_snapshot_keeps_its_files_for_those_who_stand_on_it(server):
    made = take(server, server.execute("p", "echo kept > /workspace/f").id, "gone")
    user = create(server, "gone").json["sandboxID"]
    cove(server, "snapshot", "rm", f"{made['tenant']}/gone")
    assert names(server) == [] and create(server, "gone").status == 404
    folder = f"{server.config['state_dir']}/snapshots/{made['id']}"
    assert inside(server, user, "cat /workspace/f") == "kept\n" and os.path.exists(folder)
    cove(server, "kill", user)
    wait_for(lambda: not os.path.exists(folder), 30, "the end of its files")


def test_a_removed_template_keeps_its_layers_for_snapshots(server, small_root):  # noqa: F811
    layers = f"{server.config['state_dir']}/layers"
    cove(server, "template", "add", "small", small_root)
    box = create(server, "small").json["sandboxID"]
    inside(server, box, "echo mine > /etc/mine; rm /etc/marker")
    take(server, box, "on-small")
    cove(server, "kill", box)
    cove(server, "template", "rm", "small")
    cove(server, "template", "gc")
    assert len(os.listdir(layers)) == 2
    assert inside(server, create(server, "on-small").json["sandboxID"], "cat /etc/mine; [ ! -e /etc/marker ] && id -u user") == "mine\n1000\n"
    end_all(server)
    cove(server, "template", "gc")
    assert os.listdir(layers) == []


def test_a_tenant_has_so_many_snapshots_and_no_more(make_server):
    server = make_server(tenant_snapshots=2, pool=0)
    box = server.execute("p", "true").id
    take(server, box, "a")
    take(server, box)
    assert "quota" in cove(server, "snapshot", "make", box, "c", ok=False)
    cove(server, "snapshot", "rm", "default/a")
    wait_for(lambda: len(os.listdir(f"{server.config['state_dir']}/snapshots")) == 1, 30, "the end of its files")
    take(server, box, "c")
    end_all(server)


def test_snapshots_count_as_the_tenants_disk(make_server):
    server = make_server(tenant_disk="60M", disk_max="60M", pool=0)
    box = server.execute("p", "head -c 40M /dev/urandom > /workspace/f; sync").id
    assert take(server, box, "a")["bytes"] > 30 << 20
    assert "quota" in cove(server, "snapshot", "make", box, "b", ok=False)
    assert create(server, "a").status == 429
    end_all(server)


@pytest.mark.parametrize("backend", ["btrfs", "image"])
def test_a_sandbox_at_its_limit_is_captured_whole(make_server, backend):
    """It writes until its disk is full, and goes on writing while it is captured."""
    server = make_server(disk=backend, disk_max="64M", pool=0)
    box = server.execute("p", "echo kept > /workspace/f; (while :; do head -c 1M /dev/zero >> /workspace/z; done) 2>/dev/null >&2 & "
                              "until ! head -c 1M /dev/zero > /workspace/try; do :; done 2>/dev/null; stat -c %s /workspace/z").id
    take(server, box, "full")
    fork = create(server, "full").json["sandboxID"]
    assert inside(server, fork, "cat /workspace/f; test $(stat -c %s /workspace/z) -gt 30000000; echo more > /workspace/g; cat /workspace/g") == "kept\nmore\n"
    assert server.run("p", "cat /workspace/f") == "kept\n"
    end_all(server)


def test_what_was_captured_does_not_use_up_the_sandboxs_own_disk(make_server):
    """A sandbox of 100 MiB writes 60, is captured, and writes the same 60 anew."""
    server = make_server(disk="btrfs", disk_max="100M", pool=0)
    fill = "head -c 60M /dev/urandom > /workspace/f && sync && echo fits"
    box = server.execute("p", fill).id
    for name in ("a", "b"):
        take(server, box, name)
        assert server.run("p", fill) == "fits\n"
    assert server.execute("p", "head -c 300M /dev/zero > /workspace/more").json["exitCode"] != 0
    end_all(server)


def test_a_full_server_takes_no_snapshot_and_says_so(make_server):
    server = make_server(pool=0)
    box = server.execute("p", "true").id
    server.change_config(disk_reserve="1000G")
    wait_for(lambda: "disk" in cove(server, "snapshot", "make", box, ok=False), 30, "the refusal")
    assert names(server) == [] and server.run("p", "echo alive") == "alive\n"
    assert os.listdir(f"{server.config['state_dir']}/snapshots") == []


# ------------------------------------------------------------------ restarts and kill -9

def test_snapshots_are_there_after_down_and_up(make_server):
    server = make_server(pool=0)
    take(server, server.execute("p", "echo kept > /workspace/f; rm -r /usr/share/doc/bash").id, "lasting")
    cove(server, "snapshot", "fork", "p")
    server.down()
    assert server.left_over() == {}
    assert len(os.listdir(f"{server.dir}/state/snapshots")) == 1  # the fork's went with the sandboxes
    server.up()
    assert names(server) == ["lasting"]
    assert inside(server, create(server, "lasting").json["sandboxID"], "cat /workspace/f; test ! -e /usr/share/doc/bash") == "kept\n"
    end_all(server)


def test_what_is_in_the_pool_is_found_when_disks_are_made_in_another_way(make_server):
    """A keeper whose disks are images finds sandboxes and snapshots of one that had a pool."""
    server = make_server(disk="btrfs", pool=0)
    box = server.execute("p", "echo kept > /workspace/f").id
    take(server, box, "lasting")
    os.kill(server.keeper_pid, signal.SIGKILL)
    server.settings["disk"] = "image"
    server.up()
    backends = lambda: [line["backend"] for line in server.log_lines() if line["event"] == "disks"]
    wait_for(lambda: backends()[-1] == "image", 30, "the next keeper's disks")  # workers answer before that
    assert server.execute("p", "echo more >> /workspace/f").id == box
    take(server, box, "later")
    assert inside(server, create(server, "lasting").json["sandboxID"], "cat /workspace/f") == "kept\n"
    assert inside(server, create(server, "later").json["sandboxID"], "cat /workspace/f") == "kept\nmore\n"
    end_all(server)


def capture_in_background(server, box):
    return subprocess.Popen([COVE, "-c", f"{server.dir}/conf/cove.conf", "snapshot", "make", box, "cut"],
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@pytest.fixture
def copying(make_server):
    """A server that copies, and a sandbox with enough files that this takes a while."""
    server = make_server(disk="image", disk_max="1G", pool=0)
    box = server.execute("p", "mkdir /workspace/d; cd /workspace/d; for i in $(seq 20); do mkdir $i; for j in $(seq 500); do echo $j > $i/$j; done; done; "
                              "head -c 300M /dev/zero > /workspace/z").id
    yield server, box
    end_all(server)


def half_made(server):
    root = f"{server.config['state_dir']}/snapshots"
    return [name for name in os.listdir(root) if os.path.exists(f"{root}/{name}/files/up") and not os.path.exists(f"{root}/{name}/info")]


def test_kill_9_of_the_keeper_while_a_snapshot_is_taken_leaves_a_running_sandbox_and_no_snapshot(copying):
    server, box = copying
    client = capture_in_background(server, box)
    wait_for(lambda: half_made(server), 30, "the capture")
    os.kill(server.keeper_pid, signal.SIGKILL)
    wait_for(lambda: not alive(server.keeper_pid), 30)
    client.kill()
    client.wait()
    assert half_made(server), "the capture was over before the keeper was killed"
    server.up()
    assert server.execute("p", "cat /workspace/d/20/500").json["stdout"] == "500\n"
    assert names(server) == []
    wait_for(lambda: not os.listdir(f"{server.config['state_dir']}/snapshots"), 30, "the sweep")
    assert take(server, box, "whole")["name"] == "whole"


def test_a_sandbox_that_ends_while_it_is_captured_leaves_no_snapshot(copying):
    server, box = copying
    client = capture_in_background(server, box)
    wait_for(lambda: half_made(server), 30, "the capture")
    server.cleanup("p")
    assert client.wait(30) != 0
    assert names(server) == []
    wait_for(lambda: not os.listdir(f"{server.config['state_dir']}/snapshots"), 30, "the sweep")


@pytest.mark.parametrize("make", ["mkfifo", "python3 -c 'import socket, sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])'", "ln -s /proc/1/fd/0"])
def test_what_a_sandbox_put_in_the_way_does_not_hold_up_its_forks(server, project, make):
    """The set-up of a sandbox writes /etc/resolv.conf. Opening a FIFO there would wait for ever, with a slot of the server's."""
    box = server.execute(project, f"rm /etc/resolv.conf; {make} /etc/resolv.conf; stat -c %F /etc/resolv.conf")
    assert "regular" not in box.json["stdout"] and box.json["success"], box
    take(server, box.id, "in-the-way")
    fork = create(server, "in-the-way").json["sandboxID"]
    assert inside(server, fork, "stat -c %F /etc/resolv.conf; cat /etc/resolv.conf") == "regular file\nnameserver 127.0.0.53\n"
    assert server.request("DELETE", f"/sandboxes/{fork}").status == 204


def test_what_a_sandbox_put_in_the_way_does_not_lead_out(disk):
    """Links to the host, deep directories and odd files are copied as what they are."""
    marker = f"{disk.dir}/marker"
    with open(marker, "w") as f:
        f.write("host")
    box = disk.execute("p", f"cd /workspace; ln -s {disk.dir} out; ln -s / root; mkdir -p {'d/' * 300}; ln -s loop loop; "
                            "python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"sock\")'").id
    take(disk, box, "odd")
    fork = create(disk, "odd").json["sandboxID"]
    assert inside(disk, fork, "cd /workspace; readlink out; test -L loop && test -S sock && find d -type d | wc -l") == f"{disk.dir}\n300\n"
    # A second generation lies over the links: they are replaced, not followed.
    inside(disk, fork, "cd /workspace; rm out root; mkdir out; echo evil > out/marker; mkdir -p root/tmp; echo evil > root/tmp/marker")
    for _ in range(9):
        fork = cove(disk, "snapshot", "fork", fork).strip()
    assert inside(disk, fork, "cat /workspace/out/marker /workspace/root/tmp/marker") == "evil\nevil\n"
    assert read(marker) == "host" and not os.path.exists("/tmp/marker")
