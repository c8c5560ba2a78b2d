"""Huge pages that the operator set aside for a program of the machine, a database say: no sandbox gets any."""
import glob
import mmap

import pytest

from cove import read

MAP_HUGETLB, HUGE = 0x40000, 2 << 20
POOL = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
TAKE = f"""python3 -c '
import mmap
try:
    mmap.mmap(-1, {HUGE}, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | {MAP_HUGETLB})[0] = 1
    print("taken")
except OSError as e:
    print(e.errno)
'"""


@pytest.fixture
def huge_pages():
    """A few pages that anybody could take."""
    before = read(POOL, "none").strip()
    try:
        with open(POOL, "w") as f:
            f.write(str(int(before) + 4))
        mmap.mmap(-1, HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_HUGETLB)[0] = 1  # the control: a process of the host can
    except (OSError, ValueError) as e:
        pytest.skip(f"not testable here: this machine gives no huge pages ({e})")
    yield
    with open(POOL, "w") as f:
        f.write(before)


def limits(server):
    """The files that limit huge pages of all sandboxes of this instance."""
    return [f for f in glob.glob(f"/sys/fs/cgroup/**/{server.cgroup}/hugetlb.*", recursive=True) if f.endswith(".max")]


def lift_limits(server):
    for path in limits(server):
        with open(path, "w") as f:
            f.write("max")


@pytest.mark.weak(by=lift_limits)
def test_a_sandbox_takes_no_huge_pages(target, attempt, huge_pages):
    server = target(pool=1)
    if not limits(server):
        pytest.skip("not testable here: no hugetlb controller on cgroup v2")
    taken = server.run("p", TAKE).strip()
    attempt("take a huge page", taken if taken == "taken" else None)
    assert taken == "12", "ENOMEM"
