"""A tenant whose sandbox fills the buffers of connections that nobody reads from. The kernel has one bound on them for the whole machine."""
import shlex

MEMORY = 128  # MiB
HOLD = """
import socket
listener = socket.create_server(("127.0.0.1", 0), backlog=100)
ends = []
for _ in range(60):
    ends += [socket.create_connection(listener.getsockname()), listener.accept()[0]]
held = 0
for end in ends:
    end.setblocking(False)
    try:
        while True: held += end.send(bytes(65536))
    except BlockingIOError: pass
print(held >> 20)
"""


def test_what_waits_in_sockets_has_a_limit(target, attempt):
    """On cgroup v1 the memory limit does not count it: there it has a limit of its own, on v2 it is in the memory limit."""
    server = target(pool=0, memory_max=f"{MEMORY}M")
    held = int(server.run("p", f"python3 -c {shlex.quote(HOLD)}"))
    attempt("hold more in sockets than the sandbox has memory", held > MEMORY and f"{held} MiB")
    assert held > 1
    assert server.run("p", "echo still") == "still\n"
