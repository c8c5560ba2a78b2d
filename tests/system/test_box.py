"""What a sandbox is made of, seen from inside and from the host: mounts, /proc, cgroups, disks."""
import glob
import os
import re
import signal
import subprocess

import pytest

from cove import TOP, Server, new_dir, read, stop, wait_for


# ------------------------------------------------------------------ mounts

def mounts_inside(server, project):
    """[(mount point, options, file system type)]"""
    rows = []
    for line in server.run(project, "cat /proc/self/mountinfo").splitlines():
        before, after = line.split(" - ")
        rows.append((before.split()[4], set(before.split()[5].split(",")), after.split()[0]))
    return rows


def test_no_mount_takes_devices_or_set_uid_files_that_needs_none(server, project):
    """Set-uid programs of the template work in / and /usr, devices in /dev; nowhere else either."""
    rows = mounts_inside(server, project)
    assert {"/", "/usr", "/proc", "/dev", "/dev/pts", "/dev/shm"} <= {point for point, _, _ in rows}
    null = {point for point, _, kind in rows if kind == "tmpfs" and point.startswith("/proc/")
            and server.run(project, f"stat -c %F {point}").startswith("character")}
    for point, options, kind in rows:
        assert "nosuid" in options or point in ("/", "/usr"), (point, options)
        assert "nodev" in options or point in ("/dev", "/dev/pts") or point in null, (point, options)
        assert "ro" in options or not point.startswith("/proc/"), (point, options)


def test_few_file_systems_are_a_sandbox_s_own(server, project):
    """Each mounted file system costs every memory cgroup of the host a map entry: / and /usr, /proc, /dev and /dev/pts."""
    devices = {line.split()[2] for line in server.run(project, "cat /proc/self/mountinfo").splitlines()}
    assert len(devices) <= 5, devices


def test_a_sandbox_lists_only_mounts_of_its_own(server, project):
    """Its root is the only mount whose parent it does not see: an empty tmpfs, in which the sandbox began."""
    lines = [line.split() for line in server.run(project, "cat /proc/self/mountinfo").splitlines()]
    seen = {line[0] for line in lines}
    assert [line[4] for line in lines if line[1] not in seen] == ["/"]
    points = [line[4] for line in lines]
    assert len(points) == len(set(points)), "nothing is mounted twice at one place"
    others = {point for point in points if not point.startswith("/proc/")}
    assert others == {"/", "/usr", "/proc", "/dev", "/dev/pts", "/dev/shm"}


# ------------------------------------------------------------------ /proc

HIDDEN = ["kcore", "keys", "kmsg", "timer_list", "sched_debug", "latency_stats", "kallsyms", "cmdline", "kpagecount",
          "kpageflags", "kpagecgroup", "interrupts", "key-users", "mtrr", "modules", "iomem", "ioports", "diskstats",
          "partitions", "slabinfo", "vmallocinfo", "pagetypeinfo", "timer_stats", "vmstat", "zoneinfo", "softirqs",
          "buddyinfo"]
EMPTIED = ["acpi", "asound", "scsi", "driver", "pressure"]


def test_nothing_in_proc_tells_of_the_host_or_its_other_tenants(server, project):
    there = [name for name in HIDDEN if os.path.exists(f"/proc/{name}")]
    assert {"vmstat", "zoneinfo", "softirqs", "buddyinfo"} <= set(there)
    for name in there:
        assert server.run(project, f"head -c 1 /proc/{name} | wc -c") == "0\n", name
    for name in EMPTIED:
        if os.path.exists(f"/proc/{name}"):
            assert server.run(project, f"ls -A /proc/{name} | wc -l") == "0\n", name


def test_every_sandbox_has_a_boot_id_of_its_own(server, project):
    ids = [server.run(p, "cat /proc/sys/kernel/random/boot_id") for p in (project, project + "-2")]
    ids.append(read("/proc/sys/kernel/random/boot_id"))
    assert len(set(ids)) == 3, ids
    for boot_id in ids:
        assert re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\n", boot_id), boot_id


# ------------------------------------------------------------------ cgroups

def v2_cgroup(server, reply):
    mount = next(m.split()[1] for m in read("/proc/mounts").split("\n") if " cgroup2 " in m)
    path = next(line[3:] for line in read(f"/proc/{server.init_of(reply)}/cgroup").split("\n") if line.startswith("0::"))
    return mount + path[:path.index(reply.id) + len(reply.id)]


def test_a_sandbox_owns_its_cgroup_s_directory_and_no_limit(server, project):
    reply = server.execute(project, "true")
    cgroup, root = v2_cgroup(server, reply), int(read(f"/proc/{server.init_of(reply)}/uid_map").split()[1])
    owned = {name for name in os.listdir(cgroup) if os.stat(f"{cgroup}/{name}").st_uid != 0
             and not os.path.isdir(f"{cgroup}/{name}")}
    assert os.stat(cgroup).st_uid == root and owned == {"cgroup.procs"}, owned
    assert read(f"{cgroup}/cgroup.max.depth") == "1\n" and read(f"{cgroup}/cgroup.max.descendants") == "4096\n"


# ------------------------------------------------------------------ disks

def loops_of(server):
    """Loop devices that stand for files of this instance, and how many there are in all."""
    devices = glob.glob("/sys/block/loop*")
    return [d for d in devices if server.dir in read(f"{d}/loop/backing_file")], len(devices)


def test_disks_that_a_killed_keeper_had_made_ahead_are_swept(make_server):
    server = make_server(disk="image", disk_max="64M")
    folder = f"{server.config['state_dir']}/disk"
    ahead = lambda: {f for f in os.listdir(folder) if f.startswith("ready-")}
    wait_for(lambda: len(ahead()) == 4, 15, "four disks")
    with open(f"{folder}/ready-77777.img", "w") as f:
        f.write("of an earlier keeper")
    os.kill(server.keeper_pid, signal.SIGKILL)
    server.up()
    wait_for(lambda: len(ahead()) == 4 and "ready-77777.img" not in ahead(), 15, "the sweeping of old disks")


def test_no_loop_device_outlives_its_sandbox(make_server):
    server = make_server(disk="image", disk_max="64M", pool=2)
    for n in range(3):
        server.run(f"p{n}", "echo x > /workspace/x")
    devices = [os.path.basename(d) for d in loops_of(server)[0]]
    assert len(devices) >= 3, devices
    node = lambda d: os.path.exists(f"/dev/{d}") and os.stat(f"/dev/{d}").st_ino
    own = {d: node(d) for d in devices if int(d[4:]) >= 8}  # the kernel made those below when it started
    server.down()
    left = lambda: [d for d, inode in own.items() if node(d) == inode and not read(f"/sys/block/{d}/loop/backing_file")]
    wait_for(lambda: not left(), 10, "the devices' end")
    assert loops_of(server)[0] == []
    server.up()


BACKENDS = ["btrfs", "image", "tmpfs"]


@pytest.fixture(scope="module", params=BACKENDS)
def small(request):
    """An instance with disks of 64 MiB, for each way to keep them."""
    from cove import new_dir, stop
    from cove import Server
    server = Server(new_dir(), pool=1, workers=1, command_timeout="20s", disk=request.param, disk_max="64M",
                    memory_max="512M", disk_reserve="0")
    server.backend = request.param
    yield server.up()
    stop(server)


def is_told(line):
    return "No space left" in line or "Disk quota exceeded" in line


def test_a_backend_that_was_asked_for_is_the_one_in_use_and_told(small):
    assert [line["backend"] for line in small.log_lines() if line["event"] == "disks"][-1] == small.backend
    conf = ["-c", f"{small.dir}/conf/cove.conf"]
    tell = lambda *args: subprocess.run(args, capture_output=True, text=True, timeout=60).stdout
    wait_for(lambda: f"# disk in use: {small.backend}\n" in tell(f"{TOP}/.cove/inst/sbin/coved", *conf, "--show-config"), 5, "its name")
    assert f"{small.backend} in use" in tell(f"{TOP}/.cove/inst/bin/cove", *conf, "doctor")
    metrics = small.request("GET", "/metrics").body.decode()
    free = int(re.search(r"^cove_disk_free_bytes (\d+)$", metrics, re.M).group(1))
    vfs = os.statvfs(small.config["state_dir"])
    assert f'cove_disk_info{{backend="{small.backend}"}} 1' in metrics and abs(free - vfs.f_bavail * vfs.f_frsize) < 4 << 30


def test_every_disk_has_its_limit_tells_it_and_lives_on(small, project):
    reply = small.execute(project, "for i in 1 2 3; do head -c 30M /dev/zero > /workspace/f$i || exit 1; done")
    assert reply.json["success"] is False and is_told(reply.json["stderr"]), reply
    assert reply.json["ended"]["cause"] == "disk" and reply.json["ended"]["message"] == "disk limit (64 MiB) reached", reply
    assert 55 << 20 < int(small.run(project, "du -sb /workspace | cut -f1")) < 68 << 20
    assert small.run(project, "rm /workspace/f*; head -c 50M /dev/zero > /workspace/g; stat -c %s /workspace/g") == f"{50 << 20}\n"
    assert small.run(project + "-other", "echo fine > /workspace/x; cat /workspace/x") == "fine\n"


def test_at_the_limit_a_file_of_the_template_can_be_deleted(small, project):
    small.execute(project, "head -c 70M /dev/zero > /workspace/f; for i in $(seq 2000); do echo > /workspace/$i || break; done")
    deep = next(f"{folder}/{names[0]}" for folder, _, names in os.walk("/usr/share") if names and folder.count("/") > 3)
    for name in ("/etc/hostname", deep):  # of a directory that has been copied already, and of one that must be first
        wait_for(lambda: small.execute(project, f"rm -f '{name}'").json["success"], 20, "room for a whiteout")
        assert small.run(project, f"ls '{name}' 2>&1 | grep -c 'No such'") == "1\n"
    assert is_told(small.execute(project, "head -c 70M /dev/zero > /workspace/g").json["stderr"])
    assert small.run(project, "rm -r /workspace/*; ls /workspace | wc -l").split()[-1] == "0"


def test_files_on_a_disk_are_nobody_s_on_the_host(small, project):
    """Ids in the pool are those inside, and nothing but root can search the way to it."""
    small.run(project, "cp /bin/true /workspace/true; chmod 4755 /workspace/true; /workspace/true")
    folder = f"{small.config['state_dir']}/disk"
    assert os.stat(folder).st_mode & 0o777 == 0o700 and os.stat(folder).st_uid == 0
    for point, options in [line.split()[1::2][:2] for line in read("/proc/mounts").splitlines() if folder in line]:
        assert {"nosuid", "nodev"} <= set(options.split(",")), (point, options)


IOCTL = """python3 -c '
import fcntl, os, struct, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
try:
    fcntl.ioctl(fd, (1 << 30) | (4096 << 16) | (0x94 << 8) | 14, bytearray(struct.pack("q4088s", 0, b"escaped")))
    print("made")
except OSError as e:
    print(e.errno)
' %s"""


def test_no_subvolume_can_be_made_from_inside(small, project):
    """A subvolume of its own making would escape the quota."""
    for place in ("/", "/workspace", "/usr", "/tmp", "/dev/shm"):
        assert small.run(project, IOCTL % place).strip() in ("25", "1", "22"), place  # ENOTTY, EPERM, EINVAL
    if small.backend == "btrfs":  # the attempt itself is one that works on the pool
        pool = f"{small.config['state_dir']}/disk/pool"
        assert subprocess.run(["bash", "-c", IOCTL % pool], capture_output=True, text=True).stdout == "made\n"
        os.rmdir(f"{pool}/escaped")


PROJECT = """python3 -c '
import fcntl, os, struct
os.makedirs("/workspace/d", exist_ok=True)
GET, SET, INHERIT = (2 << 30) | (28 << 16) | (ord("X") << 8) | 31, (1 << 30) | (28 << 16) | (ord("X") << 8) | 32, 0x200
fd = os.open("/workspace/d", os.O_RDONLY)
for flags, project in ((INHERIT, 0), (0, 7), (INHERIT, 7)):
    try:
        attr = list(struct.unpack("5I8x", fcntl.ioctl(fd, GET, bytes(28))))
        attr[0], attr[3] = attr[0] ^ flags, attr[3] ^ project
        fcntl.ioctl(fd, SET, struct.pack("5I8x", *attr))
        print("changed")
    except OSError as e:
        print(e.errno)
'"""


def test_nobody_inside_changes_the_project_of_a_file(small, project):
    """With disk = project the limit hangs on it. The kernel refuses in a user namespace, whatever the file system."""
    assert set(small.run(project, PROJECT).split()) <= {"22", "25", "95"}  # EINVAL; ENOTTY, EOPNOTSUPP: it has none


def test_a_sandbox_keeps_its_disk_when_the_keeper_is_killed(small, project):
    reply = small.execute(project, "echo kept > /workspace/x")
    os.kill(small.keeper_pid, signal.SIGKILL)
    small.up()
    assert small.run(project, "cat /workspace/x; echo more >> /workspace/x; wc -l < /workspace/x") == "kept\n2\n"
    assert small.execute(project, "true").id == reply.id
    assert small.run(project + "-new", "echo new > /workspace/x; cat /workspace/x") == "new\n"


def test_what_a_sandbox_wrote_is_gone_with_it(small, project):
    reply = small.execute(project, "head -c 20M /dev/urandom > /workspace/f")
    places = [f"{small.config['state_dir']}/boxes/{reply.id}", f"{small.config['state_dir']}/disk/pool/boxes/{reply.id}"]
    assert os.path.exists(places[0])
    image = f"{small.config['state_dir']}/disk/pool.img"
    sync = lambda: subprocess.run(["sync", "-f", f"{small.config['state_dir']}/disk/pool"], check=True)
    taken = lambda: os.stat(image).st_blocks * 512
    if small.backend == "btrfs":
        sync()
        before = taken()
    small.cleanup(project)
    wait_for(lambda: not any(map(os.path.exists, places)), 15, "the end of its files")
    if small.backend == "btrfs":  # the kernel would do this by itself, up to half a minute later
        wait_for(lambda: sync() or taken() < before - (15 << 20), 60, "space that goes back to the host")


# ------------------------------------------------------------------ the server's own disk is full

@pytest.mark.parametrize("backend", ["btrfs", "image"])
def test_a_full_server_refuses_new_sandboxes_and_running_ones_are_told(make_server, backend):
    """With more reserved than there is the server is full: what is written is on the disk or refused, never lost."""
    server = make_server(disk=backend, disk_max="1G", disk_reserve="0")
    server.run("old", "head -c 5M /dev/zero > /workspace/before; sync")
    server.change_config(disk_reserve="900G")
    new = lambda: server.post("/execute", {"projectId": "new", "commands": ["true"]})
    reply = wait_for(lambda: (r := new()).status == 503 and r, 10, "503 for a new sandbox")
    assert int(reply.headers["Retry-After"]) >= 1 and "disk" in reply.body.decode(), reply
    reply = wait_for(lambda: (r := server.execute("old", "head -c 100M /dev/zero > /workspace/f")) and
                     not r.json["success"] and r, 10, "a refused write")
    assert is_told(reply.json["stderr"]), reply
    assert server.run("old", "rm -f /workspace/f; cat /workspace/before | wc -c") == f"{5 << 20}\n"
    server.change_config(disk_reserve="0")
    wait_for(lambda: new().status == 200, 10, "a new sandbox")
    wait_for(lambda: server.execute("old", "head -c 100M /dev/zero > /workspace/f").json["success"], 10, "a write")
    assert server.run("old", "stat -c %s /workspace/f") == f"{100 << 20}\n"


def test_where_mounts_are_shared_nothing_of_a_sandbox_appears_on_the_host():
    """systemd makes all mounts of a machine shared; a container's are not, and there this would go unseen."""
    server = Server(new_dir(), pool=0, workers=1)
    server.within = ["unshare", "--mount", "--propagation", "shared"]
    server.up()
    server.within = ["nsenter", "--mount", "-t", str(server.keeper_pid)]
    try:
        before = read(f"/proc/{server.keeper_pid}/mountinfo")
        for project in ("one", "two"):
            assert server.run(project, "echo in") == "in\n"
        assert read(f"/proc/{server.keeper_pid}/mountinfo") == before
    finally:
        stop(server)
