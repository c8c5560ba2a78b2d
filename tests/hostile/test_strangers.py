"""Another user of the machine, with no right to anything of cove: sockets and files must be closed to that user.

Whoever reaches fcgi.sock names the tenant of a request; whoever reads `keys` or `token-secret` can make up credentials.
"""
import contextlib
import glob
import os
import socket
import stat

import pytest

from hostile import as_ids, as_worker

STRANGER = 61999
# Below run_dir; `boxes/ID` comes on top.
SOCKETS = {"fcgi.sock", "keeper.sock", "auth.sock", "gate.sock", "ports.sock"}
# Everybody may read these: process ids, the date of the build, and which kind of network sandboxes have.
PUBLIC = {"coved.pid", "nginx.pid", "build-id", "network"}
WEB = "web/"  # pages that nginx serves to everybody


def connects(path):
    """Both kinds of socket are tried: the wrong kind says EPROTOTYPE, which is past the check of the mode."""
    for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
        with socket.socket(socket.AF_UNIX, kind) as s:
            try:
                s.connect(path)
                return f"{path} accepts a connection"
            except PermissionError:
                return None
            except OSError:
                continue
    return f"{path} is not closed to a stranger"


def opens(path):
    try:
        os.close(os.open(path, os.O_RDONLY))
        return f"{path} can be read"
    except PermissionError:
        return None


def writes(path):
    try:
        os.close(os.open(path, os.O_WRONLY))
        return f"{path} can be written"
    except PermissionError:
        return None


def open_modes(server):
    """The weakening: every directory can be entered, every socket and file used by everybody."""
    for top in (server.run_dir, server.config["state_dir"], f"{server.dir}/conf", f"{server.dir}/tls"):
        os.chmod(os.path.dirname(top), 0o755)
        for folder, _, names in os.walk(top):
            os.chmod(folder, 0o755)
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    if not os.path.islink(f"{folder}/{name}"):
                        os.chmod(f"{folder}/{name}", 0o666)


def mode_of(path):
    with contextlib.suppress(FileNotFoundError):  # the pool makes and renames sockets all the time
        return os.lstat(path).st_mode
    return 0


def of_kind(is_kind, directory):
    return {os.path.relpath(p, directory) for p in glob.glob(f"{directory}/**", recursive=True) if is_kind(mode_of(p))}


@pytest.mark.weak(by=open_modes)
def test_a_stranger_connects_to_no_socket(target, attempt):
    server = target()
    box = server.execute("strangers", "true").id
    found = of_kind(stat.S_ISSOCK, server.run_dir)
    assert SOCKETS | {f"boxes/{box}"} <= found
    for name in sorted(found):
        attempt(f"a stranger connects to {name}", as_ids(STRANGER, STRANGER, connects, f"{server.run_dir}/{name}"))


def private_files(server):
    """What cove and quickstart wrote and a stranger has no business with."""
    conf, state = f"{server.dir}/conf", server.config["state_dir"]
    found = [f"{conf}/{name}" for name in ("keys", "key")] + glob.glob(f"{server.dir}/tls/*.key")
    found += glob.glob(f"{state}/**/*.img", recursive=True) + glob.glob(f"{state}/*secret*")
    return found + [f"{server.run_dir}/{name}" for name in sorted(of_kind(stat.S_ISREG, server.run_dir) - PUBLIC) if not name.startswith(WEB)]


@pytest.mark.weak(by=open_modes)
def test_no_mode_gives_strangers_anything(target, attempt):
    """Not even where a closed directory above it hides the file or socket: directories are opened in a hurry."""
    server = target(disk="image", disk_max="64M")
    server.execute("strangers", "true")
    paths = private_files(server) + [f"{server.run_dir}/{name}" for name in of_kind(stat.S_ISSOCK, server.run_dir)]
    for path in sorted(paths):
        mode = stat.S_IMODE(mode_of(path))
        attempt(f"the mode of {os.path.basename(path)}", mode & 0o007 and f"{path} has mode {mode:o}")


@pytest.mark.weak(by=open_modes)
def test_workers_write_only_what_is_theirs(target, attempt):
    """What the keeper published for them, and what it relies on, is read-only to a worker that was taken over."""
    server = target(disk="image", disk_max="64M")
    server.execute("strangers", "true")
    os.chmod(server.dir, 0o755)
    theirs = {"state.workers", "state.saved.workers", "state.ended.workers", "meters"}  # where workers count and leave their hints
    for path in private_files(server):
        if os.path.basename(path) not in theirs:
            attempt(f"a worker writes {os.path.basename(path)}", as_worker(server, writes, path))


@pytest.mark.weak(by=open_modes)
def test_a_stranger_reads_no_file(target, attempt):
    server = target(disk="image", disk_max="64M")
    server.execute("strangers", "true")
    os.chmod(server.dir, 0o755)  # an operator's directories may be entered by everybody: the files must be closed themselves
    found = private_files(server)
    assert {"keys", "key", "disk.img", "policy", "state", "token-secret"} <= {os.path.basename(p) for p in found}, found
    for path in found:
        attempt(f"a stranger reads {os.path.basename(path)}", as_ids(STRANGER, STRANGER, opens, path))
