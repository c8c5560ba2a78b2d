"""Limits that are whole, told when they are hit, and seen from inside; layers that hold beside seccomp."""
import json
import os
import re

import pytest

from cove import read, status_field, wait_for


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """One instance with limits small enough to reach."""
    from cove import Server, new_dir, stop
    server = Server(new_dir(), pool=1, workers=1, command_timeout="20s", disk="image", disk_max="64M", inodes_max="4096",
                    memory_max="256M", cpu_percent="100", file_max="32M")
    yield server.up()
    stop(server)


def ended(reply):
    return reply.json.get("ended", {})


# ------------------------------------------------------------------ disk

def test_a_full_disk_is_told_with_its_figure(small, project):
    reply = small.execute(project, "for i in 1 2 3 4; do head -c 30M /dev/zero > /workspace/f$i || exit 1; done")
    assert reply.json["success"] is False and "No space left" in reply.json["stderr"], reply
    assert ended(reply)["cause"] == "disk" and ended(reply)["message"] == "disk limit (64 MiB) reached", reply
    assert small.run(project, "rm /workspace/f*; echo again > /workspace/g; cat /workspace/g") == "again\n"


def test_files_are_counted_too(small, project):
    reply = small.execute(project, "for i in $(seq 5000); do : > /tmp/f$i || exit 1; done")
    assert reply.json["success"] is False and ended(reply)["cause"] == "disk", reply
    assert small.run(project + "-other", "touch /tmp/x && echo fine") == "fine\n"


def test_df_shows_the_limit(small, project):
    size, inodes = small.run(project, "df --output=size -m / | tail -1; df --output=itotal / | tail -1").split()
    assert int(size) == 64 and int(inodes) <= 4096 + 64


def test_what_a_sandbox_wrote_is_gone_with_it(small, project):
    reply = small.execute(project, "head -c 20M /dev/urandom > /workspace/f")
    image = f"{small.config['state_dir']}/boxes/{reply.id}/disk.img"
    assert os.stat(image).st_blocks * 512 < 40 << 20
    small.cleanup(project)
    wait_for(lambda: not os.path.exists(image), 15, "the image's end")
    wait_for(lambda: reply.id not in read_loops(), 15, "the loop device's end")


def read_loops():
    return "".join(read(f"/sys/block/{d}/loop/backing_file") for d in os.listdir("/sys/block") if d.startswith("loop"))


def test_one_file_is_limited(small, project):
    reply = small.execute(project, "head -c 40M /dev/zero > /workspace/f")
    assert reply.json["success"] is False and "File size limit" in reply.json["stderr"]
    assert int(small.run(project, "stat -c %s /workspace/f")) == 32 << 20


# ------------------------------------------------------------------ what the sandbox sees of the machine

def test_memory_and_cpus_seen_inside_are_the_limits(small, project):
    assert small.run(project, "nproc") == "1\n"
    assert small.run(project, "grep -c ^processor /proc/cpuinfo; grep -c '^cpu[0-9]' /proc/stat") == "1\n1\n"
    assert small.run(project, "python3 -c 'import os; print(os.cpu_count())'") == "1\n"
    total = re.search(r"MemTotal:\s+(\d+) kB", small.run(project, "cat /proc/meminfo"))
    assert int(total.group(1)) == 256 * 1024
    assert small.run(project, "free -m | awk '/^Mem/ { print $2 } /^Swap/ { print $2 }'") == "256\n0\n"
    assert small.run(project, "tail -n +2 /proc/swaps | wc -l") == "0\n"


def test_uptime_load_and_ages_are_the_sandbox_s(small, project):
    """By the kernel's own time namespace, so that /proc/uptime, sysinfo(2) and what ps reckons agree."""
    small.run(project, "true")
    uptime, load = small.run(project, "cat /proc/uptime /proc/loadavg").split("\n")[:2]
    machine = float(read("/proc/uptime").split()[0])
    assert 0 <= float(uptime.split()[0]) < 300 < machine, (uptime, machine)
    assert load.startswith("0.00 0.00 0.00 ")
    by_call = "python3 -c 'import ctypes; b = (ctypes.c_long * 16)(); ctypes.CDLL(None).sysinfo(b); print(b[0])'"
    assert abs(int(small.run(project, by_call)) - float(uptime.split()[0])) < 60
    now, began = small.run(project, "date +%s; date -d \"$(ps -o lstart= -p 1)\" +%s").split()
    assert -2 <= int(now) - int(began) < 300
    assert int(small.run(project, "ps -o etimes= -p $$")) < 60


def test_free_memory_is_that_of_the_moment_a_command_starts(small, project):
    free = lambda: int(re.search(r"MemFree:\s+(\d+)", small.run(project, "cat /proc/meminfo")).group(1))
    before = free()
    small.run(project, "head -c 25M /dev/zero > /dev/shm/x; head -c 25M /dev/zero > /dev/shm/y")
    assert before - free() > 40 * 1024


def test_memory_limit_reads_as_it_should(small, project):
    reply = small.execute(project, "head -c 1G /dev/zero | tail -c 1G > /dev/null; exit ${PIPESTATUS[1]}")
    assert reply.json["exitCode"] == 137, reply
    assert ended(reply) and ended(reply)["message"] == "memory limit (256 MiB) reached", reply
    wait_for(lambda: "memory" in [line.get("cause") for line in small.log_lines() if line.get("event") == "request"],
             what="the request's log line, which is written after the reply")


def test_swap_is_off(small, project):
    """By memory.swap.max on cgroup v2, by swappiness on v1."""
    init, looked_at = small.init_of(small.execute(project, "true")), 0
    for line in read(f"/proc/{init}/cgroup").split("\n"):
        _, controllers, path = line.split(":", 2) if line else ("", "-", "")
        for mount in ("/sys/fs/cgroup/memory",) if controllers == "memory" else ("/sys/fs/cgroup", "/sys/fs/cgroup/unified") if not controllers else ():
            for name in ("memory.swappiness", "memory.swap.max"):
                if os.path.exists(f"{mount}{path}/{name}"):
                    assert read(f"{mount}{path}/{name}").strip() == "0"
                    looked_at += 1
    assert looked_at, "there is a limit to look at"


def test_no_core_file_and_no_way_to_ask_for_one(small, project):
    assert small.run(project, "ulimit -c; ulimit -Hc") == "0\n0\n"
    assert small.run(project, "cd /tmp; ulimit -c unlimited 2>/dev/null; sh -c 'kill -SEGV $$'; ls /tmp | grep -c core; true") == "0\n"


def weight_of(server, init):
    """Of its cgroup: 100 on v2 is 1024 on v1."""
    for line in read(f"/proc/{init}/cgroup").split("\n"):
        _, controllers, path = line.split(":", 2) if line else ("", "-", "")
        if "cpu" in controllers.split(","):
            return int(read(f"/sys/fs/cgroup/cpu{path}/cpu.shares")) * 100 // 1024
        if controllers == "":
            v2 = next(m.split()[1] for m in read("/proc/mounts").split("\n") if " cgroup2 " in m)
            if os.path.exists(f"{v2}{path}/cpu.weight"):
                return int(read(f"{v2}{path}/cpu.weight"))


def test_a_sandbox_that_keeps_a_cpu_busy_steps_back_until_it_is_calm(small, project):
    init = small.init_of(small.execute(project, "true"))
    assert weight_of(small, init) == 100
    small.run(project, "(while [ ! -e /tmp/enough ]; do :; done) > /dev/null 2>&1 & echo")
    wait_for(lambda: weight_of(small, init) <= 10, 60, "its stepping back")
    small.run(project, "touch /tmp/enough")
    wait_for(lambda: weight_of(small, init) == 100, 20, "its weight")


# ------------------------------------------------------------------ layers

def test_one_sandbox_s_inotify_instances_are_not_another_s(small, project):
    """They are counted per user, and every sandbox is a user of its own."""
    count = """python3 -c '
import ctypes, time
c = ctypes.CDLL(None)
n = 0
while n < 2000 and c.inotify_init() >= 0: n += 1
print(n, flush=True)
time.sleep(%d)' """
    small.run(project + "-a", count % 1000 + "> /tmp/n & for i in $(seq 100); do [ -s /tmp/n ] && break; sleep 0.1; done")
    taken = int(small.run(project + "-a", "cat /tmp/n"))
    assert taken >= 100
    assert int(small.run(project + "-b", count % 0)) == taken


def test_there_is_no_room_for_namespaces(small, project):
    assert small.run(project, "cat /proc/sys/user/max_*_namespaces | sort -u") == "0\n"


def test_init_has_the_descriptors_it_needs_and_no_others(small, project):
    """Nothing of the host's: its listening socket, three cgroup folders that lead nowhere, and what it made itself."""
    init = small.init_of(small.execute(project, "true"))
    own = {"socket", "pipe", "anon_inode", "/dev/null", "/dev/.proc/meminfo"}
    for fd in os.listdir(f"/proc/{init}/fd"):
        try:
            target = os.readlink(f"/proc/{init}/fd/{fd}")
        except FileNotFoundError:  # closed meanwhile
            continue
        kind = target.split(":")[0]
        # Mounts that the set-up left open would be called "/" too: cgroup folders are 5, 6 and 7 (include/cove/init_fds.h).
        assert kind in own or "memory." in target or "pids." in target \
            or re.fullmatch(r"/c\d+(/cgroup\.events|/cpu\.stat)?", target) or (target == "/" and fd in "567"), (fd, target)


def test_a_command_has_three_descriptors(small, project):
    """Whether its process was made for it or waited for it (sandbox/init/spare.c)."""
    for _ in range(3):
        assert small.run(project, "ls /proc/$$/fd; true").split() == ["0", "1", "2"]


def test_the_judge_is_confined_like_a_worker(small):
    judges = wait_for(lambda: small.titles("cove: judge"), what="the judge")
    for pid in judges:
        assert status_field(pid, "Seccomp") == "2" and int(status_field(pid, "CapEff"), 16) == 0
        assert status_field(pid, "NoNewPrivs") == "1"


def test_renames_and_links_between_folders_still_work_under_landlock(small, project):
    out = small.run(project, "mkdir -p /tmp/a /workspace/b; echo x > /tmp/a/f; mv /tmp/a/f /workspace/b/g; "
                             "ln /workspace/b/g /tmp/h; mv /workspace/b /tmp/c; cat /tmp/c/g /tmp/h")
    assert out == "x\nx\n"


def test_limits_are_in_the_reply_as_json(small, project):
    reply = small.execute(project, "head -c 1G /dev/zero | tail -c 1G > /dev/null; exit ${PIPESTATUS[1]}")
    assert json.dumps(ended(reply)["limit"]) == str(256 << 20)
