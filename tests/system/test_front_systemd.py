"""The units, as systemd's own tools read them; and the keeper's side of the conversation, with a socket in systemd's place."""
import array
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time

import pytest

from cove import TOP, alive, read, status_field, title, wait_for

INST = os.path.join(TOP, ".cove/inst")
UNIT = os.path.join(INST, "share/cove/systemd/cove.service")
UNITS = [os.path.join(os.path.dirname(UNIT), f"cove{x}") for x in (".service", ".socket", ".slice", "-sandboxes.service")]


def test_the_units_are_what_systemd_understands(session_server):
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", *UNITS], text=True, capture_output=True)
    ours = [line for line in (done.stdout + done.stderr).splitlines() if "cove" in line]
    assert not ours, ours


def test_the_socket_is_open_to_nginx_s_group_and_nobody_else(session_server):
    """Whoever connects to it names the tenant of a request."""
    text = read(f"{os.path.dirname(UNIT)}/cove.socket")
    settings = dict(re.findall(r"^(Socket\w+|DirectoryMode)=(.*)$", text, re.M))
    assert settings == {"SocketGroup": "www-data", "SocketMode": "0660", "DirectoryMode": "0755"}
    assert re.search(r"^RuntimeDirectoryMode=0755$", read(UNIT), re.M) and re.search(r"^UMask=0077$", read(UNIT), re.M)


def test_the_unit_is_no_more_exposed_than_it_was(session_server):
    """6.8 of 10, where most services are at 9: a maker of sandboxes keeps what others drop. The comments in the unit say why."""
    done = subprocess.run(["systemd-analyze", "security", "--offline=true", "--threshold=68", "--no-pager", UNIT],
                          text=True, capture_output=True)
    assert done.returncode == 0, done.stdout[-600:] + done.stderr


def test_every_left_out_protection_has_its_reason(session_server):
    """What `systemd-analyze security` finds open is named in the unit's comments, or is a capability or group it says it keeps."""
    text = read(UNIT)
    table = json.loads(subprocess.run(["systemd-analyze", "security", "--offline=true", "--json=short", UNIT],
                                      text=True, capture_output=True).stdout)
    comments = " ".join(line for line in text.splitlines() if line.startswith("#"))
    kept = " ".join(re.findall(r"^(?:CapabilityBoundingSet|RestrictAddressFamilies|Protect\w+)=.*$", text, re.M))
    groups = ("RootDirectory", "CapabilityBoundingSet=~", "RestrictAddressFamilies=~", "RestrictNamespaces", "DeviceAllow", "ProtectHome",
              "ProtectSystem")
    for row in table:
        name = row["name"]
        if row["set"] or not row["exposure"] or float(row["exposure"]) == 0:
            continue
        wanted = re.sub(r"[=/].*", "", name) if not name.startswith("SystemCallFilter") else name.split("~")[1]
        assert wanted in comments or (name.startswith(groups) and kept), name
    for line in ("RestartKillSignal=SIGQUIT", "KillMode=process", "Type=notify", "WatchdogSec=", "RuntimeDirectoryPreserve=restart",
                 "FileDescriptorStoreMax=", "Slice=cove.slice", "Wants=cove.socket"):
        assert f"\n{line}" in text


@pytest.fixture
def service(session_server, tmp_path):
    """coved as a service manager starts it: $NOTIFY_SOCKET, $WATCHDOG_USEC."""
    run = f"/run/cove-notify-{os.getpid()}"
    path = tmp_path / "notify"
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    sock.bind(str(path))
    sock.settimeout(10)
    conf = tmp_path / "cove.conf"
    base = read(f"{session_server.dir}/conf/cove.conf")
    for key, value in {"run_dir": run, "state_dir": f"{tmp_path}/state", "cgroup": f"cove-notify-{os.getpid()}",
                       "id_base": 200000000, "pool": 0, "workers": 1, "audit_file": ""}.items():
        base += f"\n{key} = {value}"
    conf.write_text(base + "\n")
    env = {**os.environ, "NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": "1000000"}
    process = subprocess.Popen([f"{INST}/sbin/coved", "-c", str(conf)], env=env, stderr=open(tmp_path / "log", "w"))
    yield process, sock, conf
    if process.poll() is None:
        process.terminate()
    process.wait(20)
    shutil.rmtree(run, ignore_errors=True)


def next_word(sock, wanted, seconds=10):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        text = sock.recv(4096).decode()
        if text.startswith(wanted):
            return text
    raise AssertionError(f"no {wanted}")


def test_readiness_watchdog_reload_and_end_are_told(service):
    process, sock, conf = service
    assert next_word(sock, "READY=1")
    assert os.path.exists(f"/run/cove-notify-{os.getpid()}/fcgi.sock"), "ready means: it can be connected to"
    beats = [next_word(sock, "WATCHDOG=1") and time.monotonic() for _ in range(4)]
    assert beats[-1] - beats[0] < 4
    process.send_signal(signal.SIGHUP)
    assert re.fullmatch(r"RELOADING=1\nMONOTONIC_USEC=\d+", next_word(sock, "RELOADING"))
    assert next_word(sock, "READY=1")
    conf.write_text(conf.read_text() + "threads = many\n")
    process.send_signal(signal.SIGHUP)
    assert "refused" in next_word(sock, "READY=1"), "a typo is told, and the service stays"
    assert alive(process.pid)
    process.terminate()
    assert next_word(sock, "STOPPING=1")
    assert process.wait(20) == 0


def test_a_stopped_keeper_misses_its_watchdog(service):
    process, sock, _ = service
    next_word(sock, "READY=1")
    next_word(sock, "WATCHDOG=1")
    process.send_signal(signal.SIGSTOP)
    wait_for(lambda: "State:\tT" in read(f"/proc/{process.pid}/status"), 5, "it to stand still")
    sock.settimeout(1.5)
    sock.setblocking(False)
    try:
        while sock.recv(4096):
            pass
    except BlockingIOError:
        pass
    sock.settimeout(1.5)
    with pytest.raises(TimeoutError):
        sock.recv(4096)
    process.send_signal(signal.SIGCONT)
    sock.settimeout(10)
    next_word(sock, "WATCHDOG=1")


def test_processes_of_the_keeper_do_not_speak_in_its_name(service):
    process, sock, _ = service
    next_word(sock, "READY=1")
    children = f"/proc/{process.pid}/task/{process.pid}/children"
    programs = wait_for(lambda: [p for p in read(children).split() if re.match(r"cove: (worker|judge|auth)", title(p))],
                        5, "programs of ours")
    for child in programs:
        assert "NOTIFY_SOCKET" not in read(f"/proc/{child}/environ")


# ------------------------------------------------------------------ descriptors that outlive the keeper

class Manager:
    """What systemd does for cove.service: it holds the FastCGI socket, keeps descriptors, and hands all of them to the next keeper."""

    def __init__(self, server, tmp_path):
        self.server, self.stored = server, {}
        self.notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notify.bind(str(tmp_path / "notify"))
        self.path = str(tmp_path / "notify")
        self.end_keeper(server.keeper_pid)
        os.unlink(f"{server.run_dir}/fcgi.sock")
        self.fcgi = socket.socket(socket.AF_UNIX)
        self.fcgi.bind(f"{server.run_dir}/fcgi.sock")
        os.chmod(f"{server.run_dir}/fcgi.sock", 0o666)
        self.fcgi.listen(100)

    def end_keeper(self, pid):
        """As `systemctl restart` does: sandboxes are left to the next one."""
        os.kill(pid, signal.SIGQUIT)
        wait_for(lambda: not alive(pid), 20, "the keeper's end")
        self.listen()

    def start(self, extra=(), under=()):
        given = [("fcgi", self.fcgi.fileno()), *((n, fd) for n, fds in self.stored.items() for fd in fds), *extra]
        names = ":".join(name for name, _ in given)
        # The shell keeps its pid over exec; descriptors are moved up first, so that none is overwritten.
        moves = "".join(f"exec {3 + i}<&{200 + i} {200 + i}<&-; " for i in range(len(given)))
        def high():
            for i, (_, fd) in enumerate(given):
                os.dup2(fd, 200 + i)
        script = f'{moves}LISTEN_PID=$$ LISTEN_FDS={len(given)} LISTEN_FDNAMES={names} NOTIFY_SOCKET={self.path} exec "$@"'
        log = open(f"{self.server.dir}/log/coved.log", "a")
        process = subprocess.Popen(["bash", "-c", script, "sh", *under, f"{INST}/sbin/coved", "-c", f"{self.server.dir}/conf/cove.conf"],
                                   preexec_fn=high, close_fds=False, stderr=log, stdout=log, start_new_session=True)
        threading.Thread(target=process.wait, daemon=True).start()
        wait_for(lambda: self.listen() and False or self.ready, 20, "READY=1")
        return process.pid

    ready = False

    def listen(self):
        """Take in what the keeper says, and what it wants kept."""
        self.notify.setblocking(False)
        while True:
            try:
                text, ancillary, _, _ = self.notify.recvmsg(4096, socket.CMSG_SPACE(4))
            except BlockingIOError:
                return
            words = dict(line.split("=", 1) for line in text.decode().splitlines())
            self.ready |= words.get("READY") == "1"
            for _, _, data in ancillary:
                self.stored.setdefault(words["FDNAME"], []).extend(array.array("i", data))
            if words.get("FDSTOREREMOVE"):
                for fd in self.stored.pop(words["FDNAME"], []):
                    os.close(fd)


@pytest.fixture
def manager(make_server, tmp_path):
    server = make_server()
    manager = Manager(server, tmp_path)
    yield server, manager
    manager.fcgi.close()
    for fd in [fd for fds in manager.stored.values() for fd in fds]:
        os.close(fd)


def taken_over(server):
    return [x for x in server.log_lines() if x["event"] == "state taken over"][-1]


def test_requests_wait_in_the_managers_socket_and_sandboxes_are_known_by_descriptors_it_kept(manager):
    server, manager = manager
    pid = manager.start()
    first = server.execute("kept", "sleep 1000 & echo $!")
    assert first.status == 200
    wait_for(lambda: manager.listen() or f"box-{first.id}" in manager.stored, 5, "its pidfd in the store")
    assert "keeper" in manager.stored, "the socket workers ask on is kept, too"
    manager.end_keeper(pid)
    replies = []
    thread = threading.Thread(target=lambda: replies.append(server.execute("kept", "jobs=$(pgrep -c sleep); echo $jobs")))
    thread.start()
    wait_for(lambda: any(line.split()[5] == "02" and line.rstrip().endswith("/fcgi.sock")  # connected, not yet accepted
                         for line in read("/proc/net/unix").splitlines()[1:]), 5, "a request that waits")
    assert not replies, "nobody is there to answer"
    manager.start()
    thread.join(30)
    assert replies[0].status == 200 and replies[0].id == first.id and replies[0].json["stdout"] == "1\n"
    log = taken_over(server)
    assert log["pidfds"] == log["sandboxes"] >= 1
    server.cleanup("kept")
    wait_for(lambda: manager.listen() or f"box-{first.id}" not in manager.stored, 5, "the manager to be told of its end")


def test_descriptors_that_make_no_sense_are_given_up(manager):
    server, manager = manager
    pid = manager.start()
    first = server.execute("kept", "true")
    manager.listen()
    manager.end_keeper(pid)
    for fd in [fd for fds in manager.stored.values() for fd in fds]:
        os.close(fd)
    pipe, other_end = os.pipe()
    os.close(other_end)
    manager.stored = {f"box-{first.id}": [pipe], "keeper": [os.dup(pipe)], "box-nobody": [os.pidfd_open(os.getpid())],
                      "": [os.dup(pipe)]}
    manager.start(extra=[("fcgi", 0)])
    assert server.execute("kept", "true").id == first.id, "what the shared memory says is enough"
    manager.listen()
    assert "box-nobody" not in manager.stored and taken_over(server)["pidfds"] == 0


def test_the_keeper_makes_do_with_the_capabilities_its_unit_leaves_it(make_server, tmp_path):
    """The unit's bounding set, without systemd: sandboxes with disk, limits and network are made, and their name server answers."""
    server = make_server(network="egress", memory_max="128M")
    manager = Manager(server, tmp_path)
    left = " ".join(re.findall(r"^CapabilityBoundingSet=(.*)$", read(UNIT), re.M)).lower().replace("cap_", "+").split()
    began = len(server.log_lines())
    pid = manager.start(under=["setpriv", f"--bounding-set=-all,{','.join(left)}"])
    try:
        assert 0 < bin(int(status_field(pid, "CapBnd"), 16)).count("1") <= len(left)
        server.cleanup("p")  # and the warm one that was made with all of them
        names = ("p", "q", "r")
        for project in names:
            assert server.run(project, "echo > /dev/tcp/127.0.0.53/53 && df --output=fstype / | tail -n 1").strip() == "overlay"
        reply = server.execute("p", "perl -e '$x = q(x) x 400000000'")
        assert reply.json["ended"]["cause"] == "memory", reply
        assert [x for x in server.log_lines()[began:] if x["level"] in ("error", "warn")] == []
    finally:
        manager.fcgi.close()
        for fd in [fd for fds in manager.stored.values() for fd in fds]:
            os.close(fd)
