"""The units, as systemd's own tools read them; and the keeper's side of the conversation, with a socket in systemd's place."""
import os
import re
import shutil
import signal
import socket
import subprocess
import time

import pytest

from cove import TOP, alive, read, title, wait_for

INST = os.path.join(TOP, ".cove/inst")
UNIT = os.path.join(INST, "share/cove/systemd/cove.service")

needs_systemd = pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not installed")


@needs_systemd
def test_the_unit_is_what_systemd_understands(session_server):
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", UNIT], text=True, capture_output=True)
    ours = [line for line in (done.stdout + done.stderr).splitlines() if "cove" in line]
    assert not ours, ours


@needs_systemd
def test_the_unit_is_no_more_exposed_than_it_was(session_server):
    """A ceiling, not a goal: a maker of sandboxes keeps what others drop. The comments in the unit say why."""
    done = subprocess.run(["systemd-analyze", "security", "--offline=true", "--threshold=90", "--no-pager", UNIT],
                          text=True, capture_output=True)
    assert done.returncode == 0, done.stdout[-600:] + done.stderr


def test_every_left_out_protection_has_its_reason(session_server):
    text = read(UNIT)
    for name in ("NoNewPrivileges", "SystemCallFilter", "ProtectSystem", "ProtectControlGroups", "PrivateUsers", "RestrictNamespaces"):
        assert re.search(rf"^#.*{name}", text, re.M), name
    for line in ("RestartKillSignal=SIGQUIT", "KillMode=process", "Type=notify", "WatchdogSec=", "RuntimeDirectoryPreserve=restart"):
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
    time.sleep(0.3)
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
