"""A worker that was taken over, and the sockets that workers ask helpers on: it holds every place there is, sends odd messages, names other
tenants' things, and speaks to the socket that is nginx's."""
import array
import contextlib
import os
import resource
import socket
import stat
import struct

import pytest

from box import HEAD, MAGIC, NUMBERS, Peer
from cove import free_port, wait_for
from hostile import Keeper, as_worker, become, worker_ids

TENANT, PROJECT, NAME, TAGS = 64, 132, 128, 512  # sizes of include/cove/names.h and build.h


def said(path, kind, body, fds=()):
    """The kind of the answer, or "cut": the other side ended the conversation, or "silence"."""
    with Peer(path) as peer:
        peer.sock.settimeout(5)
        try:
            if fds:
                head = HEAD.pack(MAGIC, NUMBERS[kind], HEAD.size + len(body), 1)
                peer.sock.sendmsg([head + body], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))])
                data = peer.sock.recv(65536)
                return {v: k for k, v in NUMBERS.items()}[HEAD.unpack_from(data)[1]]
            return peer.ask(kind, body)[0]
        except TimeoutError:
            return "silence"
        except (OSError, struct.error):
            return "cut"


def refused(answer):
    return answer in ("MSG_ERROR", "cut")


def pid_of(server, helper):
    wait_for(lambda: server.titles(f"cove: {helper}"), what=f"the {helper}")
    pid, = server.titles(f"cove: {helper}")
    return pid


# ------------------------------------------------------------------ places

@contextlib.contextmanager
def held_by_a_worker(server, name, count):
    """A process with the worker's ids has this many connections to a socket, and asks nothing."""
    (uid, gid), path = worker_ids(server), f"{server.run_dir}/{name}"
    ready, told = os.pipe()
    goes_on, end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(end)
            hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            become(uid, gid)
            socks = []
            for _ in range(count):
                s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                s.connect(path)
                socks.append(s)
            os.write(told, b"x")
            os.read(goes_on, 1)
        except OSError as e:
            os.write(told, str(e).encode())
        finally:
            os._exit(0)
    os.close(told)
    os.close(goes_on)
    try:
        assert (word := os.read(ready, 200)) == b"x", ("the attacker got its connections", name, word)
        yield
    finally:
        os.close(end)
        os.close(ready)
        os.waitpid(child, 0)


def asks(tmp_path):
    """What another worker asks of each socket, and the answer that shows that it was heard."""
    return {
        "keeper.sock": (8200, "KEEPER_SNAPSHOTS", struct.pack(f"={TENANT}sQ", b"default", 0), "KEEPER_SNAPSHOT_LIST"),
        "gate.sock": (80, "GATE_COUNTS", struct.pack("=II", 0, 0), "GATE_COUNTED"),
        "builder.sock": (300, "BUILD_LIST", struct.pack(f"={TENANT}s{NAME}s", b"default", b""), "BUILD_LISTED"),
        "auth.sock": (80, "AUTH_ASK", b"nobody-here\0wrong\0\0", "AUTH_VERDICT"),
    }


@pytest.mark.weak(layers="places")
def test_connections_of_one_process_leave_room_for_other_workers(target, attempt, tmp_path):
    tmp_path.chmod(0o755)
    (tmp_path / "stack").write_text("auth required pam_deny.so\naccount required pam_deny.so\n")
    server = target(pam_dir=str(tmp_path), pam_service="stack")
    for helper in ("gate", "builder", "auth"):
        pid_of(server, helper)
    for name, (count, kind, body, want) in asks(tmp_path).items():
        assert as_worker(server, said, f"{server.run_dir}/{name}", kind, body) == want, f"the control: {name} answers"
        with held_by_a_worker(server, name, count):
            answer = as_worker(server, said, f"{server.run_dir}/{name}", kind, body)
        attempt(f"hold all places of {name}", answer != want and answer)
        wait_for(lambda: as_worker(server, said, f"{server.run_dir}/{name}", kind, body) == want, what=f"{name} afterwards")
    assert server.execute("after", "echo fine").json["stdout"] == "fine\n"


# ------------------------------------------------------------------ the gate

def bind(tenant, project, box, port, proxy_port=0):
    return struct.pack(f"={TENANT}s{PROJECT}s24sHH", tenant, project, box, port, proxy_port)


def test_the_gate_binds_only_ports_of_the_server_to_sandboxes_of_the_tenant_that_is_named(target, attempt):
    server = target()
    box = server.execute("victim", "true").id.encode()
    gate, path, elsewhere = pid_of(server, "gate"), f"{server.run_dir}/gate.sock", free_port()
    odd = {
        "another tenant's sandbox": bind(b"stranger", b"p", box, 8000),
        "nobody's": bind(b"", b"p", box, 8000),
        "an id that is a path": bind(b"default", b"p", b"../../x", 8000),
        "texts without an end": bind(b"d" * TENANT, b"p" * PROJECT, b"x" * 24, 8000),
        "port 0": bind(b"default", b"p", box, 0),
        "a port that is not the server's": bind(b"default", b"q", box, 8000, elsewhere),
    }
    for what, body in odd.items():
        answer = as_worker(server, said, path, "GATE_BIND", body)
        attempt(f"bind: {what}", not refused(answer) and answer)
    with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", elsewhere), 2):
        attempt("somebody listens on a port that is not the server's", "connected")
    assert as_worker(server, said, path, "GATE_BIND", bind(b"default", b"victim", box, 8000)) == "GATE_BOUND", "the control"
    assert pid_of(server, "gate") == gate


def test_nobody_takes_the_gates_place_while_it_has_a_keeper(target, attempt):
    server = target()
    box = server.execute("victim", "true").id.encode()
    gate, path = pid_of(server, "gate"), f"{server.run_dir}/gate.sock"
    assert as_worker(server, said, path, "GATE_BIND", bind(b"default", b"victim", box, 8000)) == "GATE_BOUND"
    for what, kind, body in [("step back", "GATE_SUCCEED", b""), ("hand over a port", "GATE_LISTENER", struct.pack("=II", 0, 0)),
                             ("another list of sockets", "GATE_HOSTS", b""), ("another gate before it", "GATE_BEFORE", b""),
                             ("a port that says nonsense", "GATE_ACCESS", struct.pack(f"={TENANT}s24sHH", b"default", box, 8000, 77)),
                             ("another tenant's port", "GATE_ACCESS", struct.pack(f"={TENANT}s24sHH", b"stranger", box, 8000, 1)),
                             ("half a message", "GATE_UNBIND", b"x" * 20), ("an answer", "GATE_BOUND", bytes(4))]:
        answer = as_worker(server, said, path, kind, body)
        attempt(f"gate: {what}", not refused(answer) and answer)
    wait_for(lambda: as_worker(server, said, path, "GATE_COUNTS", struct.pack("=II", 0, 0)) == "GATE_COUNTED", what="the gate's answer")
    assert as_worker(server, said, path, "GATE_COUNTS", struct.pack("=II", 0xffffffff, 0)) == "GATE_COUNTED"
    assert pid_of(server, "gate") == gate


WORDS, WORDS_OF_A_SANDBOX = 4096, 64  # that ports may have about who reaches them (helpers/gate/access.c)


def say_of_ports(run_dir, tenant, boxes):
    """Says of as many ports as it can who may reach them. How many of these words were taken."""
    taken = 0
    with Peer(f"{run_dir}/gate.sock") as peer:
        for box in boxes:
            for port in range(1, WORDS_OF_A_SANDBOX + 1):
                word = struct.pack(f"={TENANT}s24sHH", tenant, box, 1000 + port, 1)
                taken += peer.ask("GATE_ACCESS", word)[0] == "MSG_DONE"
    return taken


def test_words_about_ports_of_one_tenant_leave_room_for_others(target, attempt):
    """They stand in one table: a tenant with enough sandboxes would leave others none."""
    server, boxes = target(max_sandboxes=64, pool=4), WORDS // 2 // WORDS_OF_A_SANDBOX + 1
    victim = server.execute("theirs", "true", key=server.add_key("victim")).id.encode()
    ids = [server.execute(f"p{i}", "true").id.encode() for i in range(boxes)]
    taken = as_worker(server, say_of_ports, server.run_dir, b"default", ids)
    assert taken >= WORDS // 2, "the control: words are taken"
    attempt("hold the words about ports", taken > WORDS // 2 and taken)
    assert as_worker(server, say_of_ports, server.run_dir, b"victim", [victim]) == WORDS_OF_A_SANDBOX


def for_everybody(server):
    """The weakening: nginx's sockets are open to all."""
    for name in ("ports.sock", "fcgi.sock"):
        os.chmod(f"{server.run_dir}/{name}", 0o666)


def connects(path):
    with socket.socket(socket.AF_UNIX) as s:
        try:
            s.connect(path)
            return True
        except PermissionError:
            return False


@pytest.mark.weak(by=for_everybody)
def test_a_worker_does_not_reach_the_sockets_that_nginx_speaks_on(target, attempt):
    """Whoever writes nginx's first line chooses the sandbox, the port and the process (helpers/gate/sockets.c)."""
    server = target()
    for name in ("ports.sock", "fcgi.sock"):
        attempt(f"connect to {name}", as_worker(server, connects, f"{server.run_dir}/{name}"))


LINES = [
    b"", b"Cove-Target:", b"Cove-Target: owner", b"Cove-Target: owner %s 0 html", b"Cove-Target: owner %s 65536 html", b"Cove-Target: owner ../../keeper.sock 80 html",
    b"Cove-Target: owner " + b"a" * 300 + b" 80 html", b"Cove-Target: king %s 80 html", b"Cove-Target: socket a - terminal %s 0",
    b"Cove-Target: socket a - terminal %s 4294967295", b"Cove-Target: socket a - nothing %s 1", b"Cove-Target: socket a - terminal %s 1 from=18446744073709551616 rows=65536",
    b"Cove-Target: socket a - lines %s 99999999999999999999", b"Cove-Target: close a - 999 x", b"Cove-Target: close a - 70000 " + b"x" * 400,
    b"Cove-Target: refuse 200 fine", b"Cove-Target: refuse 99999 x", b"Cove-Target: socket " + b"x" * 400, b"Cove-Target: owner %s 80 html " + b"\xff" * 200,
]


def test_odd_first_lines_reach_nothing_and_the_gate_lives(target, attempt):
    """As nginx's user, who may connect: the lines are parsed by the gate all the same."""
    server = target()
    box = server.execute("victim", "true").id.encode()
    gate = pid_of(server, "gate")
    for line in LINES:
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(5)
            s.connect(f"{server.run_dir}/ports.sock")
            s.sendall(b"GET / HTTP/1.1\r\n" + (line % box if b"%s" in line else line) + b"\r\nHost: x\r\n\r\n")
            got = s.recv(4096)
        attempt(f"the line {line[:40]!r}", got.startswith(b"HTTP/1.1 2") and got)
    assert pid_of(server, "gate") == gate


# ------------------------------------------------------------------ fetch

def fetch(tenant, verb, url):
    return struct.pack(f"={TENANT}sIIQQ", tenant, verb, 0, 1 << 20, 0) + url


def fetched(run_dir, tenant, verb, url, what):
    fd = os.pipe()[0] if what == "pipe" else os.open("/", os.O_RDONLY) if what == "directory" else os.memfd_create("file")
    return said(f"{run_dir}/fetch.sock", "FETCH_ASK", fetch(tenant, verb, url), [fd])


@pytest.mark.weak(fetch_allow="127.0.0.0/8")
def test_a_fetch_reaches_no_service_of_the_host_whoever_asks(target, attempt):
    server = target()
    helper = pid_of(server, "fetch")
    health = f"http://127.0.0.1:{server.http}/health".encode() + b"\0"
    odd = {
        "the host's loopback": (b"default", 0, health, "file"),
        "a file of the host": (b"default", 0, b"file:///etc/passwd\0", "file"),
        "another protocol": (b"default", 0, b"gopher://127.0.0.1/\0", "file"),
        "a unix socket": (b"default", 0, f"http://unix:{server.run_dir}/fcgi.sock:/\0".encode(), "file"),
        "a pipe for a file": (b"default", 0, health, "pipe"),
        "a directory for a file": (b"default", 0, health, "directory"),
        "no such verb": (b"default", 77, health, "file"),
        "a tenant without an end": (b"d" * TENANT, 0, health, "file"),
        "a URL without an end": (b"default", 0, b"http://127.0.0.1", "file"),
    }
    for what, args in odd.items():
        answer = as_worker(server, fetched, server.run_dir, *args)
        attempt(f"fetch: {what}", not refused(answer) and answer)
    assert pid_of(server, "fetch") == helper


# ------------------------------------------------------------------ the builder

def build_new(tenant, name, tags=b"default"):
    return struct.pack(f"={TENANT}s24sIIQII{NAME}s{TAGS}s", tenant, b"", 0, 0, 0, 1, 0, name, tags)


def order_of(what):
    if what == "pipe":
        return os.pipe()[0]
    fd = os.memfd_create("order")
    os.write(fd, b"from-template\0base\0" if what == "whole" else b"from-template\0base" if what == "cut" else b"x" * (2 << 20))
    return fd


def start(run_dir, tenant, build, what):
    return said(f"{run_dir}/builder.sock", "BUILD_START", struct.pack(f"={TENANT}s{NAME}s", tenant, build), [order_of(what)])


def test_the_builder_takes_only_whole_orders_for_the_tenant_that_is_named(target, attempt):
    server = target(pool=0)
    helper, path = pid_of(server, "builder"), f"{server.run_dir}/builder.sock"
    made = server.post("/v3/templates", {"name": "mine"})
    assert made.status == 202, made
    build = made.json["buildID"].encode()
    before = sorted(os.listdir(f"{server.config['state_dir']}/builds"))
    hashed = lambda tenant, text: struct.pack(f"={TENANT}s65s7xQ", tenant, text, 1 << 20)
    odd = {
        "a tenant that is a path": ("BUILD_NEW", build_new(b"../../x", b"n")),
        "a tenant without an end": ("BUILD_NEW", build_new(b"d" * TENANT, b"n")),
        "a name without an end": ("BUILD_NEW", build_new(b"default", b"n" * NAME)),
        "tags without an end": ("BUILD_NEW", build_new(b"default", b"n", b"t" * TAGS)),
        "a hash that is a path": ("BUILD_UPLOAD", hashed(b"default", b"../" * 21)),
        "an upload into a path": ("BUILD_UPLOAD", hashed(b"../..", b"a" * 64)),
        "the end of no upload": ("BUILD_UPLOADED", b""),
        "another tenant's build": ("BUILD_ASK", struct.pack(f"={TENANT}s{NAME}sQIIII", b"stranger", build, 0, 100, 0, 0, 0)),
        "half a message": ("BUILD_LIST", b"x" * 10),
    }
    for what, (kind, body) in odd.items():
        answer = as_worker(server, said, path, kind, body)
        attempt(f"builder: {what}", not refused(answer) and answer)
    for what in ("pipe", "cut", "huge"):
        answer = as_worker(server, start, server.run_dir, b"default", build, what)
        attempt(f"builder: an order that is {what}", not refused(answer) and answer)
    answer = as_worker(server, start, server.run_dir, b"stranger", build, "whole")
    attempt("builder: an order for another tenant's build", not refused(answer) and answer)
    attempt("builder: something was made", sorted(os.listdir(f"{server.config['state_dir']}/builds")) != before and "files")
    assert as_worker(server, start, server.run_dir, b"default", build, "whole") == "MSG_DONE", "the control"
    assert pid_of(server, "builder") == helper


# ------------------------------------------------------------------ passwords

def permit_all(server):
    """The weakening: a stack that lets everybody in."""
    with open(f"{server.config['pam_dir']}/stack", "w") as f:
        f.write("auth required pam_permit.so\naccount required pam_permit.so\n")


def verdict(run_dir, body):
    with Peer(f"{run_dir}/auth.sock") as peer:
        try:
            kind, data, _ = peer.ask("AUTH_ASK", body)
        except (OSError, struct.error):
            return False
        return kind == "AUTH_VERDICT" and struct.unpack_from("=I", data)[0] == 1


@pytest.mark.weak(by=permit_all)
def test_odd_questions_sign_nobody_in(target, attempt, tmp_path):
    tmp_path.chmod(0o755)
    (tmp_path / "stack").write_text("auth required pam_unix.so\naccount required pam_unix.so\n")
    server = target(pam_dir=str(tmp_path), pam_service="stack")
    helper = pid_of(server, "auth")
    for what, body in {"no name": b"\0\0\0", "root without a password": b"root\0\0\0", "a name without an end": b"root", "nothing": b"",
                       "a long name": b"r" * 64 + b"\0x\0\0", "a name that is a path": b"../root\0x\0\0", "two words only": b"root\0x\0"}.items():
        attempt(f"auth: {what}", as_worker(server, verdict, server.run_dir, body))
    assert pid_of(server, "auth") == helper


# ------------------------------------------------------------------ what has no socket

def test_the_starter_and_the_judge_listen_to_the_keeper_alone(target, attempt):
    """They have a pair of sockets with the keeper and no name: all names below run_dir are those of this file and of single sandboxes."""
    server = target()
    server.execute("p", "true")
    known = {"keeper.sock", "fcgi.sock", "gate.sock", "ports.sock", "fetch.sock", "builder.sock", "auth.sock"}
    names = {os.path.relpath(f"{folder}/{name}", server.run_dir) for folder, _, files in os.walk(server.run_dir) for name in files
             if stat.S_ISSOCK(os.lstat(f"{folder}/{name}").st_mode)}
    attempt("another socket", {n for n in names - known if not n.startswith("boxes/")})
    assert {"keeper.sock", "gate.sock", "fetch.sock", "builder.sock"} <= names
    with Keeper(server.run_dir) as keeper, contextlib.suppress(OSError, struct.error):
        answer = keeper.ask("STARTER_DONE", bytes(32))[0]
        attempt("speak as the starter", not refused(answer) and answer)
