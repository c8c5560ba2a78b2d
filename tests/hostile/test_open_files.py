"""The kernel's bound on open files of all processes that are not root's: sandboxes must not be able to reach it."""
import pytest

from cove import read

FILE_MAX = "/proc/sys/fs/file-max"


def lower(_=None):
    """As the kernel makes it on a machine with 40 GB: two sandboxes with 512 MiB each can hold 3,300,000 files."""
    with open(FILE_MAX, "w") as f:
        f.write("4000000")


@pytest.fixture
def lowered():
    before = read(FILE_MAX).strip()
    try:
        lower()
    except OSError as e:
        pytest.skip(f"not testable here: {FILE_MAX} is read-only ({e})")
    yield
    with open(FILE_MAX, "w") as f:
        f.write(before)


@pytest.mark.weak(by=lower)
def test_no_number_of_sandboxes_reaches_the_bound_on_open_files(target, attempt, lowered):
    server = target(pool=0)
    most = int(read(FILE_MAX))
    attempt("keep workers and nginx from opening anything", most < 1 << 40 and f"{FILE_MAX} is {most}")
    assert server.execute("p", "true").status == 200
