"""Can an attempt succeed at all? Positive controls, and which attempts this kernel cannot test.

An attempt that is marked `control: host` is run by the host's root without any wall: in namespaces of its own but for the user
namespace, in a copy of the host's root that keeps what is written to itself. It must get through there. If it fails because the
kernel does not have what it attacks (no such system call, address family or file), it is not testable here, and counted apart.
`control: pool` is the same with the pool of the instance's disks in it. `needs: PATH` says the same of attempts that nobody would run on a host: without that file they are not testable.
"""
import errno
import os
import re
import subprocess

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
mount --rbind /dev "$PLACE/root/dev"
[ -z "$POOL" ] || mount --bind "$POOL" "$PLACE/root/var/tmp"
ip link set lo up
"""


def errnos(text):
    """Names of the errors that an attempt's words tell of."""
    return {name for words, name in ERRNO_OF.items() if words in text}


def run_on_host(attempt, world, program, place):
    """(exit code, what it said)"""
    done = subprocess.run(["unshare", "--mount", "--pid", "--fork", "--ipc", "--net", "--uts", "--cgroup", "--kill-child", "bash", "-c",
                           f"{IN_A_COPY}\nexport {world.environment()}\nexec chroot \"$PLACE/root\" timeout 10 {attempt.command}"],
                          env={**os.environ, "PLACE": place, "PROGRAM": program, "SCRIPTS": escape.ATTEMPTS,
                               "POOL": f"{world.server.config['state_dir']}/disk/pool" if attempt.control == "pool" else ""},
                          capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout + done.stderr


def verdict(attempt, world, program, place):
    """"controlled", "not testable", "without control", or what is wrong with the control."""
    if attempt.needs and not os.path.exists(attempt.needs):
        return "not testable"
    if attempt.opens_when_weak:  # test_a_weakened_build_is_found_out shows it
        return "controlled"
    if not attempt.control:
        return "without control"
    code, out = run_on_host(attempt, world, program, place)
    if code == 0:
        return "controlled"
    if {getattr(errno, name) for name in errnos(out)} & ABSENT:
        return "not testable"
    return f"{attempt.name} does not succeed on the host either: exit {code}, {out.strip()[-200:]}"


def expected(attempt, out):
    """None, or in which way an attempt was refused that its head does not tell."""
    if not attempt.refused:
        return f"{attempt.name}: its head does not say by which error it is refused"
    told = errnos(out)
    want = set(re.split(r"[ ,]+", attempt.refused)) - {"nothing"}
    if told <= want and (told or "nothing" in attempt.refused):
        return None
    return f"{attempt.name}: refused by {sorted(told) or 'no word'}, its head says {attempt.refused}"
