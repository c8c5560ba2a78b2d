"""Messages of include/cove/msg*.h: the host's root, or whoever a test becomes, as a client of the keeper or of one sandbox's init.

Numbers come from the headers themselves, so that this file cannot grow apart from them.
"""
import array
import os
import re
import socket
import struct

from cove import TOP, read

HEAD = struct.Struct("=IIII")


def message_numbers():
    numbers = {}
    for header in ("msg", "msg_box", "msg_keeper", "msg_gate", "msg_helpers", "saved", "bucket", "build"):
        text = re.sub(r"/\*.*?\*/", "", read(f"{TOP}/include/cove/{header}.h"), flags=re.S)
        for body in re.findall(r"enum (?:msg_type|[a-z]+_msg) \{(.*?)\n\};", text, re.S):
            following = 0
            for name, value in re.findall(r"(\w+)(?:\s*=\s*(\d+))?,", body):
                following = int(value) if value else following
                numbers[name] = following
                following += 1
    return numbers


NUMBERS = message_numbers()
MAGIC = int(re.search(r"MSG_MAGIC (0x\w+?)u", read(f"{TOP}/include/cove/msg.h")).group(1), 16)


class Peer:
    """One conversation over a SEQPACKET socket."""

    def __init__(self, path):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.sock.settimeout(10)
        self.sock.connect(path)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()

    def ask(self, kind, body):
        """(type of the answer, its body, descriptors)"""
        self.sock.send(HEAD.pack(MAGIC, NUMBERS[kind], HEAD.size + len(body), 1) + body)
        data, extra, _, _ = self.sock.recvmsg(256 * 1024, socket.CMSG_SPACE(4 * 4))
        fds = array.array("i")
        for level, what, payload in extra:
            if level == socket.SOL_SOCKET and what == socket.SCM_RIGHTS:
                fds.frombytes(payload[: len(payload) - len(payload) % 4])
        names = {v: k for k, v in NUMBERS.items()}
        return names[HEAD.unpack_from(data)[1]], data[HEAD.size:], list(fds)


class Box(Peer):
    """One conversation with one init."""

    def __init__(self, run_dir, box_id):
        super().__init__(f"{run_dir}/boxes/{box_id}")

    def open(self, path, flags=os.O_RDONLY, mode=0o644, user="root", parents=True):
        """A descriptor, or None if init refused."""
        body = struct.pack("=IIII", 2 if parents else 0, flags, mode, 0) + user.encode() + b"\0" + os.fsencode(path) + b"\0"
        kind, _, fds = self.ask("BOX_OPEN", body)
        assert kind in ("BOX_STATED", "MSG_ERROR"), kind
        return fds[0] if fds else None

    def put(self, path, data, mode=0o755):
        fd = self.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        assert fd is not None, path
        with os.fdopen(fd, "wb") as f:
            f.write(data)
