"""Can an attempt succeed at all? Positive controls, and which attempts this kernel cannot test.

An attempt that is marked `control: host` is run by the host's root without any wall: in namespaces of its own but for the user
namespace, in a copy of the host's root that keeps what is written to itself. It must get through there. If it fails because the
kernel does not have what it attacks (no such system call, address family or file), it is not testable here, and counted apart.
`control: pool` is the same with the pool of the instance's disks in it, `control: host pids` the same in the host's pid namespace, with a
decoy for the processes that an attempt would kill; `control: neighbour` is the sandbox that the attempt wants to reach, `control: egress`
and `control: no rules` are the network of network.py without its list and without its rules. `trace: PATH` is a
file that shows, where the attempt itself cannot tell, that it got through. `needs: PATH` says the same of attempts that nobody would run on a
host: without that file they are not testable; `needs: CAP_X`: without that capability of the host's root.
"""
import errno
import os
import re
import subprocess
import tempfile

import escape

ABSENT = {errno.ENOSYS, errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT, errno.ENODEV, errno.ENOENT, errno.ENXIO}
ERRNO_OF = {os.strerror(number): name for number, name in errno.errorcode.items()}
IN_A_COPY = r"""
set -e
mount -t tmpfs none "$PLACE"
mkdir "$PLACE"/{up,work,root}
mount -t overlay overlay -o "lowerdir=/,upperdir=$PLACE/up,workdir=$PLACE/work" "$PLACE/root"
mkdir -p "$PLACE/root/workspace/.attempts"
cp "$PROGRAM" "$PLACE/root/workspace/.attempts/attempts"
cp "$SCRIPTS"/*.sh "$PLACE/root/workspace/.attempts/"
mount -t proc proc "$PLACE/root/proc"
mount -t sysfs sysfs "$PLACE/root/sys"
mount --rbind /sys/fs/cgroup "$PLACE/root/sys/fs/cgroup"
mount --rbind /dev "$PLACE/root/dev"
mkdir -p "$PLACE/root/run" "$PLACE/root/mnt" "$PLACE/root$(dirname "$HOST_TARGET")"
mount --bind -o ro /run "$PLACE/root/run"
mkdir -p "$PLACE/root/tmp/bound"
mount --bind "$BOUND" "$PLACE/root/tmp/bound"
[ -z "$POOL" ] || mount --bind "$POOL" "$PLACE/root/var/tmp"
ip link set lo up
ip link add eth0 type veth peer name eth1
ip addr add 10.201.0.2/24 dev eth0
ip link set eth0 up
ulimit -c unlimited
exec 9</dev/null
cd "$PLACE/root"
mkdir .host
pivot_root . .host
cd /
umount -l /.host
"""
# What the network answers beside errors of the kernel: nothing at all, and the resolver's words.
NETWORK_WORDS = {r"(?<!Connection )\btimed out": "silence", r"\bno answer\b": "silence", "Name or service not known": "EAI_NONAME",
                 "No address associated with hostname": "EAI_NODATA", "Temporary failure in name resolution": "EAI_AGAIN"}
CAPABILITIES = {"CAP_SYS_RESOURCE": 24}


def errnos(text):
    """Names of the errors that an attempt's words tell of."""
    return ({name for words, name in ERRNO_OF.items() if words in text} |
            {name for pattern, name in NETWORK_WORDS.items() if re.search(pattern, text)})


def run_on_host(attempt, world, program, place):
    """(exit code, what it said)"""
    where, *how = attempt.control.split()
    namespaces = ["--mount", "--ipc", "--net", "--uts", "--cgroup"] + ([] if "pids" in how else ["--pid", "--fork", "--kill-child"])
    with tempfile.TemporaryDirectory(prefix="cove-bound-") as bound, subprocess.Popen(["sleep", "1000"]) as decoy:
        words = f"{world.environment()} HOST_DISK={disk_of_host()[0]} HOST_DISK_TYPE={disk_of_host()[1]}"
        words += f" DECOY_PID={decoy.pid} INIT_PID={decoy.pid}" if "pids" in how else ""
        trace = f"|| {{ rc=$?; [ -e \"{attempt.trace}\" ] || exit $rc; }}" if attempt.trace else ""
        done = subprocess.run(["unshare", *namespaces, "bash", "-c",
                               f"export {words}\n{IN_A_COPY}\nset +e\ntimeout 10 {attempt.command} {trace}"],
                              env={**os.environ, "PLACE": place, "BOUND": bound, "PROGRAM": program, "SCRIPTS": escape.ATTEMPTS,
                                   "POOL": f"{world.server.config['state_dir']}/disk/pool" if where == "pool" else ""},
                              capture_output=True, text=True, timeout=60)
        decoy.kill()
    return done.returncode, done.stdout + done.stderr


def run_in_neighbour(attempt, world, program):
    escape.upload(world.server, "neighbour", [attempt], program)
    reply = world.server.execute("neighbour", f"export {world.environment()}; timeout 10 {attempt.command}").json
    return reply["exitCode"], reply["stdout"] + reply["stderr"]


def disk_of_host():
    """(device, file system) of the host's root."""
    line = next(line.split() for line in escape.read("/proc/self/mountinfo").split("\n") if line.split()[4:5] == ["/"])
    kind, device = line[line.index("-") + 1:line.index("-") + 3]
    return device, kind


def is_there(needed):
    if needed in CAPABILITIES:
        return int(escape.status_field("self", "CapEff"), 16) >> CAPABILITIES[needed] & 1
    return os.path.exists(needed)


def verdict(attempt, world, program, place):
    """"controlled", "not testable", "without control", or what is wrong with the control."""
    if attempt.needs and not is_there(attempt.needs):
        return "not testable"
    if attempt.opens_when_weak or attempt.control in ("egress", "no rules", "no rules, as the host's root"):  # test_escape.py has a test of its own that shows it
        return "controlled"
    if not attempt.control:
        return "without control"
    code, out = run_in_neighbour(attempt, world, program) if attempt.control == "neighbour" else run_on_host(attempt, world, program, place)
    if code == 0:
        return "controlled"
    if {getattr(errno, name, 0) for name in errnos(out)} & ABSENT:
        return "not testable"
    return f"{attempt.name} does not succeed on the host either: exit {code}, {out.strip()[-200:]}"


def expected(attempt, out):
    """None, or in which way an attempt was refused that its head does not tell."""
    told = errnos(out)
    if not attempt.refused:
        return f"{attempt.name}: refused by {sorted(told) or 'no word'}, its head does not say by which error"
    want = set(re.split(r"[ ,]+", attempt.refused)) - {"nothing"}
    if told <= want and (told or "nothing" in attempt.refused):
        return None
    return f"{attempt.name}: refused by {sorted(told) or 'no word'}, its head says {attempt.refused}"
