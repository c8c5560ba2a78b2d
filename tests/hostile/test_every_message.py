"""A worker that was taken over sends every kind of message there is to every socket that it can reach: bodies of the right size with hostile
values, wrong sizes, descriptors of wrong kinds, none and too many, and the same again. Other files try single messages with more thought."""
import array
import fcntl
import os
import random
import re
import socket
import subprocess

from box import HEAD, MAGIC, NUMBERS
from cove import TOP, read, wait_for
from hostile import as_worker

ROW = r"\{ \{ (KEEPER_\w+), (0|sizeof\(struct \w+\)), \w+, \d, \d \}"  # of the table in sandbox/keeper/calls.c
SEED = 11
TENANTS = (b"stranger", b"", b"%s%n" * 8, b"../../x")
F_ADD_SEALS, NOBODY_CHANGES_IT = 1033, 0x2 | 0x4 | 0x8


def sizes(tmp_path):
    """{kind: bytes} of the messages that the keeper takes."""
    rows = re.findall(ROW, read(f"{TOP}/sandbox/keeper/calls.c"))
    lines = "".join(f'printf("{kind} %zu\\n", (size_t)({size}));' for kind, size in rows)
    (tmp_path / "sizes.c").write_text(f'#include <stdio.h>\n#include "cove/msg_keeper.h"\nint main(void) {{ {lines} return 0; }}\n')
    subprocess.run(["gcc", f"-I{TOP}/include", "-o", tmp_path / "sizes", tmp_path / "sizes.c"], check=True)
    told = subprocess.run([tmp_path / "sizes"], capture_output=True, text=True, check=True).stdout
    return {kind: int(size) for kind, size in (line.split() for line in told.splitlines())}


def bodies(size, victim, dice):
    """Bodies of this size. Nearly all structs begin with the tenant and a sandbox's id."""
    yield bytes(size)
    yield b"\xff" * size
    yield dice.randbytes(size)
    yield b"a" * size
    for tenant in TENANTS:
        for rest in (bytes(size), b"\xff" * size, b"1" * size, dice.randbytes(size)):
            yield (tenant.ljust(64, b"\0") + victim.ljust(24, b"\0") + rest)[:size]
    for wrong in (size - 1, size + 1, size + 4096, 200_000):
        yield bytes(max(wrong, 0))


def sealed(data):
    fd = os.memfd_create("x", os.MFD_ALLOW_SEALING)
    os.write(fd, data)
    fcntl.fcntl(fd, F_ADD_SEALS, NOBODY_CHANGES_IT)
    return fd


def descriptors():
    """Lists of descriptors of every kind that a worker could have."""
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    memory, pipe = os.memfd_create("x", os.MFD_ALLOW_SEALING), os.pipe()
    os.ftruncate(memory, 1 << 40)
    kinds = [memory, os.open("/", os.O_RDONLY), os.open("/", os.O_PATH), ends[0].detach(), os.pidfd_open(os.getpid()), pipe[0],
             os.open("/dev/zero", os.O_RDONLY), os.open("/proc/stat", os.O_RDONLY), os.eventfd(0), sealed(b"x" * 70_000), sealed(b"\0\n%s")]
    ends[1].detach()
    return [[]] + [[fd] for fd in kinds] + [[memory] * 5, [memory] * 40, kinds]


def send(path, number, body, fds, stated=None):
    """One message on a connection of its own, which is closed without a look at the answer. stated: the size that the head tells."""
    head = HEAD.pack(MAGIC, number, HEAD.size + len(body) if stated is None else stated, 1)
    extra = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        sock.connect(path)  # waits while many connections are not accepted yet
        try:
            sock.sendmsg([head + body], extra)
        except OSError:
            pass  # longer than the socket takes, or the other side was quicker


def storm(run_dir, known, victim, own):
    """All of it. Runs with the worker's ids."""
    dice, hands = random.Random(SEED), descriptors()
    keeper = f"{run_dir}/keeper.sock"
    for kind, size in known.items():
        for body in bodies(size, victim, dice):
            for fds in ([], dice.choice(hands[1:])):
                send(keeper, NUMBERS[kind], body, fds)
        for fds in hands:
            send(keeper, NUMBERS[kind], (b"stranger".ljust(64, b"\0") + victim.ljust(24, b"\0") + bytes(size))[:size], fds)
    others = [f"{run_dir}/{name}" for name in ("gate.sock", "fetch.sock", "builder.sock") if os.path.exists(f"{run_dir}/{name}")]
    for path in [keeper, *others, f"{run_dir}/boxes/{own.decode()}"]:
        for number in [*NUMBERS.values(), 0, 2**31, 2**32 - 1]:
            for body in (b"", bytes(dice.randrange(400)), dice.randbytes(dice.randrange(400)), b"stranger".ljust(64, b"\0") + victim + bytes(200)):
                send(path, number, body, dice.choice(hands))
            send(path, number, b"x" * 100, [], stated=dice.choice((0, 1, 2**31, 2**32 - 1)))


def end_all_but(run_dir, boxes, victim):
    for box in boxes:
        for tenant in (b"default", *TENANTS):
            if box != victim:
                send(f"{run_dir}/keeper.sock", NUMBERS["KEEPER_RETIRE"], tenant.ljust(64, b"\0") + box.encode().ljust(24, b"\0") + bytes(132), [])


def processes(server):
    """{title: pid} of the keeper and of the helpers that live as long as it does."""
    return {title: sorted(server.titles(f"cove: {title}")) for title in ("keeper", "gate", "fetch", "builder", "judge", "starter", "resolver")}


def open_files(server):
    """{title: number of descriptors} of the same."""
    return {title: sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in found) for title, found in processes(server).items()}


def more_than(before, now):
    """What has grown by more than helpers may still have opened for the victim's sandbox at the first look. Each process got hundreds."""
    return {title: (before[title], now[title]) for title in before if now[title] > before[title] + 8}


def test_no_message_of_a_worker_ends_a_process_or_leaves_a_descriptor_open(target, attempt, tmp_path):
    server = target(pool=0, max_sandboxes=12, tenant_sandboxes=3)
    key, known = server.add_key("victim"), sizes(tmp_path)
    assert len(known) >= 18, known
    victim = server.execute("p", "echo kept > /workspace/f; sleep 600 >/dev/null 2>&1 &", key=key).id
    running, before = processes(server), open_files(server)
    own = server.execute("mine", "true").id
    as_worker(server, storm, server.run_dir, known, victim.encode(), own.encode())
    attempt("end a process", processes(server) != running and (running, processes(server)))
    reply = server.execute("p", "cat /workspace/f; pgrep -c sleep", key=key)
    attempt("touch the sandbox of another tenant", (reply.id, reply.json["stdout"]) != (victim, "kept\n1\n") and repr(reply))
    as_worker(server, end_all_but, server.run_dir, list(server.inits), victim)
    wait_for(lambda: list(server.inits) == [victim], 60, "the end of the attacker's sandboxes")
    try:
        wait_for(lambda: not more_than(before, open_files(server)), 30)
    except AssertionError:
        attempt("leave descriptors open", more_than(before, open_files(server)))
    attempt("leave descriptors open", None)
    assert server.execute("after", "echo fine").json["stdout"] == "fine\n"
