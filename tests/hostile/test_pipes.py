"""A tenant widens its pipes. The kernel counts a pipe's pages against the user that made it, and workers make the pipes of commands'
output: a few dozen of a megabyte each would use up what the workers' user may have, and everybody else's pipes would shrink."""
import pytest

WIDE = 1 << 20
USUAL = 64 << 10
F_SETPIPE_SZ, F_GETPIPE_SZ = 1031, 1032
WIDEN = f"python3 -c 'import fcntl; fcntl.fcntl(1, {F_SETPIPE_SZ}, {WIDE}); print(fcntl.fcntl(1, {F_GETPIPE_SZ}))'"
SIZE = f"python3 -c 'import fcntl; print(fcntl.fcntl(1, {F_GETPIPE_SZ}))'"


@pytest.mark.weak(layers="seccomp")
def test_a_tenant_cannot_widen_a_workers_pipe(target, attempt):
    server = target()
    reply = server.execute("greedy", WIDEN)
    attempt("widen the pipe of stdout", reply.json["stdout"] == f"{WIDE}\n")
    if not reply.json["stdout"]:
        assert "PermissionError" in reply.json["stderr"], reply
    assert server.run("innocent", SIZE) == f"{USUAL}\n"
