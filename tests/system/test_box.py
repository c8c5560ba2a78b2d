"""What a sandbox is made of, seen from inside and from the host: mounts, /proc, cgroups, disks."""
import glob
import os
import re
import signal

import pytest

from cove import read, wait_for


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
    assert len(devices) >= 5, devices
    node = lambda d: os.path.exists(f"/dev/{d}") and os.stat(f"/dev/{d}").st_ino
    own = {d: node(d) for d in devices if int(d[4:]) >= 8}  # the kernel made those below when it started
    server.down()
    left = lambda: [d for d, inode in own.items() if node(d) == inode and not read(f"/sys/block/{d}/loop/backing_file")]
    wait_for(lambda: not left(), 10, "the devices' end")
    assert loops_of(server)[0] == []
    server.up()
