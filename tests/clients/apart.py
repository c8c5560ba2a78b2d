"""Runs a command in a network namespace of its own, whose loopback reaches one port of the host's.

A browser gives up its requests whenever an interface of its machine comes or goes, and every sandbox has one.
"""
import fcntl
import os
import socket
import struct
import subprocess
import sys
import threading

SIOCSIFFLAGS, IFF_UP = 0x8914, 1


def pump(source, target):
    try:
        while data := source.recv(65536):
            target.sendall(data)
    except OSError:
        pass
    for end, how in ((target, socket.SHUT_WR), (source, socket.SHUT_RD)):
        try:
            end.shutdown(how)
        except OSError:
            pass


def forward(listener, port):
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return
        server = socket.create_connection(("127.0.0.1", port))
        for pair in ((client, server), (server, client)):
            threading.Thread(target=pump, args=pair, daemon=True).start()


def run(command, port, **kw):
    """As subprocess.run(). The namespace's listening socket is made inside and served from here."""
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            child = subprocess.Popen(["unshare", "--net", sys.executable, __file__, str(theirs.fileno()), str(port), *command],
                                     pass_fds=[theirs.fileno()], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                     **{k: v for k, v in kw.items() if k != "timeout"})
        _, (fd,), _, _ = socket.recv_fds(ours, 1, 1)
    listener = socket.socket(fileno=fd)
    threading.Thread(target=forward, args=(listener, port), daemon=True).start()
    try:
        output, _ = child.communicate(timeout=kw.get("timeout"))
    except subprocess.TimeoutExpired:
        child.kill()
        output, _ = child.communicate()
    listener.close()
    return subprocess.CompletedProcess(command, child.returncode, output)


def inside(fd, port, command):
    with socket.socket() as s:
        fcntl.ioctl(s, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP))
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(64)
    with socket.socket(fileno=fd) as other:
        socket.send_fds(other, [b"x"], [listener.fileno()])
    listener.close()
    os.execvp(command[0], command)


if __name__ == "__main__":
    inside(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
