"""Which addresses cove listens on: an instance that was asked for loopback must not be reachable from the network."""
import glob
import os
import re
import socket
import struct

import pytest

from cove import free_port, read
from executor import Executor
from test_front_nginx import edit_site, nginx_pid, workers_of

LISTEN = "0A"


def listening():
    """{inode: address} of every listening TCP socket."""
    found = {}
    for name, family, step in (("tcp", socket.AF_INET, 8), ("tcp6", socket.AF_INET6, 32)):
        for line in read(f"/proc/net/{name}").split("\n")[1:]:
            fields = line.split()
            if fields and fields[3] == LISTEN:
                text, port = fields[1].split(":")
                words = [struct.pack("=I", int(text[i:i + 8], 16)) for i in range(0, step, 8)]
                found[fields[9]] = f"{socket.inet_ntop(family, b''.join(words))} port {int(port, 16)}"
    return found


def addresses_of(pids):
    sockets = listening()
    links = {os.readlink(fd) for pid in pids for fd in glob.glob(f"/proc/{pid}/fd/*") if os.path.lexists(fd)}
    return sorted(sockets[i] for i in (re.sub(r"socket:\[(\d+)\]", r"\1", link) for link in links) if i in sockets)


def on_all_addresses(server):
    edit_site(server, (r"(    listen      127\.0\.0\.1:)", rf"    listen 0.0.0.0:{free_port()};\n\g<1>"), times=1)


@pytest.mark.weak(by=on_all_addresses)
def test_everything_listens_on_loopback_alone(target, attempt):
    port = free_port()
    server = target(proxy_port=port)
    box = Executor(server, "default")
    box.sh("python3 -m http.server 8000 >/dev/null 2>&1 &")
    box.ok("/bind_port", port="8000")
    pids = {*server.pids(), nginx_pid(server), *map(int, workers_of(nginx_pid(server)))}
    found = addresses_of(pids)
    assert {f"127.0.0.1 port {port}", f"127.0.0.1 port {server.http}"} <= set(found), found
    assert any(a.endswith(f"port {server.https}") for a in found), found
    for address in found:
        attempt(f"listening on {address.split()[0]}", not address.startswith("127.0.0.1 ") and address)
