"""Huge pages that the operator set aside for a program of the machine, a database say: no sandbox gets any."""
import contextlib
import errno
import glob
import shlex
import subprocess

import pytest

from cove import read

MAP_HUGETLB, HUGE = 0x40000, 2 << 20
POOL = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
MFD_HUGETLB = 4
WAYS = {  # not shmget: the kernel itself gives them to nobody but the machine's root and one group
    "mmap": f"import mmap; mmap.mmap(-1, {HUGE}, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | {MAP_HUGETLB})[0] = 1",
    "memfd_create": f"import mmap, os; f = os.memfd_create('x', {MFD_HUGETLB}); os.ftruncate(f, {HUGE}); mmap.mmap(f, {HUGE})[0] = 1",
}


@pytest.fixture
def huge_pages():
    """A few pages that anybody could take."""
    before = read(POOL, "none").strip()
    try:
        with open(POOL, "w") as f:
            f.write(str(int(before) + 4))
        for way in WAYS:  # the control: a process of the host can
            subprocess.run(["sh", "-c", take(way)], check=True)
    except (OSError, ValueError, subprocess.CalledProcessError) as e:
        give_back(before)
        pytest.skip(f"not testable here: this machine gives no huge pages ({e})")
    yield
    give_back(before)


def give_back(before):
    with contextlib.suppress(OSError), open(POOL, "w") as f:
        f.write(before)


def limits(server):
    """The files that limit huge pages of all sandboxes of this instance."""
    return [f for f in glob.glob(f"/sys/fs/cgroup/**/{server.cgroup}/hugetlb.*", recursive=True) if f.endswith(".max")]


def take(way):
    """A shell command: 0 when the page was taken, else the number of the error."""
    return f"python3 -c {shlex.quote(f'import sys{chr(10)}try:{chr(10)} exec({WAYS[way]!r}){chr(10)}except OSError as e: sys.exit(e.errno)')}"


def lift_limits(server):
    for path in limits(server):
        with open(path, "w") as f:
            f.write("max")


@pytest.mark.weak(layers="seccomp", by=lift_limits)
@pytest.mark.parametrize("way", WAYS)
def test_a_sandbox_takes_no_huge_pages(target, attempt, huge_pages, way):
    """By its profile, whatever the controllers of the machine are: the limit of the controller is lifted."""
    server = target(pool=1)
    lift_limits(server)
    code = server.execute("p", take(way)).json["exitCode"]
    attempt(f"take a huge page by {way}", code == 0 and "it was taken")
    assert code == errno.EPERM


@pytest.mark.weak(by=lift_limits)
def test_the_controller_gives_sandboxes_no_huge_pages(target, attempt):
    """For profiles of an operator's own that allow the calls."""
    server = target(pool=1)
    if not limits(server):
        pytest.skip("not testable here: no hugetlb controller on cgroup v2")
    for path in limits(server):
        attempt(f"a limit of {path.split('.')[-2]} pages above none", read(path).strip() != "0" and read(path))
