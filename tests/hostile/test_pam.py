"""cove-auth, the one helper that is root: a caller that stalls it, and a PAM module that was taken over."""
import base64
import os
import socket
import subprocess

import pytest

from cove import temporary_account


@pytest.fixture
def account():
    with temporary_account() as account:
        yield account


def sign_in(server, name, password):
    word = base64.b64encode(f"{name}:{password}".encode()).decode()
    return server.post("/execute", {"projectId": "pam", "commands": ["true"]}, key=False,
                       headers={"Authorization": f"Basic {word}", "Content-Type": "application/json"}).status


def module_reads(server, tmp_path, account, path):
    """Does a module that has this account's conversation get to read the file?"""
    (tmp_path / "stack").write_text(f"auth required pam_exec.so quiet /usr/bin/head -c 1 {path}\n"
                                    "account required pam_permit.so\n")
    return sign_in(server, *account) == 200


def closed_files(server):
    return [f"{server.run_dir}/token-secret", f"{server.run_dir}/keys", "/etc/hostname", "/etc/fstab", "/var/lib/dpkg/status",
            f"/proc/{server.keeper_pid}/stat", f"{server.dir}/conf/cove.conf"]


@pytest.mark.weak(pam_paths="/etc /run /var/lib /proc")
def test_a_conversation_reads_accounts_and_no_files_of_ours(target, attempt, account, tmp_path):
    tmp_path.chmod(0o755)
    server = target(pam_dir=str(tmp_path), pam_service="stack", pam_cache="1ms")
    assert module_reads(server, tmp_path, account, "/etc/shadow"), "the control: what a module needs is open to it"
    for path in closed_files(server):
        assert os.path.exists(path) and subprocess.run(["head", "-c", "1", path], capture_output=True).stdout, path
        read = module_reads(server, tmp_path, account, path)
        attempt(f"a PAM module reads {path}", "it was read" if read else None)
        assert module_reads(server, tmp_path, account, "/etc/passwd"), "no back-off hides the answer"


def test_callers_that_ask_nothing_delay_nobody(target, attempt, account, tmp_path):
    """A worker that was taken over connects to cove-auth forty times and says nothing."""
    tmp_path.chmod(0o755)
    (tmp_path / "stack").write_text("auth required pam_unix.so\naccount required pam_unix.so\n")
    server = target(pam_dir=str(tmp_path), pam_service="stack", pam_cache="1ms")
    assert sign_in(server, *account) == 200
    silent = []
    for _ in range(40):
        s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        s.connect(f"{server.run_dir}/auth.sock")
        silent.append(s)
    got = sign_in(server, *account)
    answered = [s for s in silent if ended(s)]
    attempt("silent callers hold up a sign-in", None if got == 200 and len(answered) < 40 else f"{got}, after {len(answered)} were thrown out")


def ended(sock):
    sock.setblocking(False)
    try:
        return sock.recv(1) == b""
    except BlockingIOError:
        return False
