"""A WebSocket as a test needs it: whole messages, and single frames that no decent client would send."""
import json
import os
import socket
import struct
import time

TEXT, BINARY, CLOSE, PING, PONG, MORE = 1, 2, 8, 9, 10, 0


class Refused(Exception):
    def __init__(self, status, head, body):
        super().__init__(f"{status} {body!r}")
        self.status, self.head, self.body = status, head, body


class Closed(Exception):
    def __init__(self, code, reason):
        super().__init__(f"{code} {reason}")
        self.code, self.reason = code, reason


def frame(opcode, data=b"", fin=True, masked=True, length=None):
    """One frame; `length` is what its head claims."""
    n = len(data) if length is None else length
    bit = 0x80 if masked else 0
    size = bytes([bit | n]) if n < 126 else bytes([bit | 126]) + struct.pack(">H", n) if n < 65536 \
        else bytes([bit | 127]) + struct.pack(">Q", n)
    mask = os.urandom(4) if masked else b""
    body = bytes(b ^ mask[i % 4] for i, b in enumerate(data)) if masked and len(data) < 4096 else \
        _mask_long(data, mask) if masked else data
    return bytes([(0x80 if fin else 0) | opcode]) + size + mask + body


def _mask_long(data, mask):
    pad = mask * (len(data) // 4 + 1)
    return (int.from_bytes(data, "big") ^ int.from_bytes(pad[:len(data)], "big")).to_bytes(len(data), "big")


class WebSocket:
    def __init__(self, server, path, headers=None, host="localhost", timeout=60):
        self.socket = socket.create_connection(("127.0.0.1", server.http), timeout=timeout)
        self.buffer = b""
        self.pings = 0
        lines = [f"GET {path} HTTP/1.1", f"Host: {host}"]
        given = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13",
                 "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", **(headers or {})}
        lines += [f"{k}: {v}" for k, v in given.items() if v is not None]
        self.socket.sendall("\r\n".join(lines + ["", ""]).encode())
        head = b""
        while b"\r\n\r\n" not in head:
            piece = self.socket.recv(1)
            assert piece, head
            head += piece
        self.head = head.decode()
        self.status = int(self.head.split()[1])
        if self.status != 101:
            length = [int(x.split(":")[1]) for x in self.head.split("\r\n") if x.lower().startswith("content-length:")]
            body = self.exactly(length[0]) if length else b""
            self.close()
            raise Refused(self.status, self.head, body)
        assert "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in self.head

    def exactly(self, n):
        while len(self.buffer) < n:
            piece = self.socket.recv(65536)
            if not piece:
                raise Closed(1006, "cut")
            self.buffer += piece
        out, self.buffer = self.buffer[:n], self.buffer[n:]
        return out

    def read_frame(self):
        first, second = self.exactly(2)
        assert not second & 0x80, "a server's frame is not masked"
        size = second & 127
        if size == 126:
            size, = struct.unpack(">H", self.exactly(2))
        elif size == 127:
            size, = struct.unpack(">Q", self.exactly(8))
        return bool(first & 0x80), first & 15, self.exactly(size)

    def recv(self):
        """The next whole message: str or bytes. Pings are answered, for a minute."""
        kind, message, end = None, b"", time.monotonic() + 60
        while True:
            fin, opcode, data = self.read_frame()
            if opcode == PING:
                assert time.monotonic() < end, "nothing but pings came"
                self.pings += 1
                self.socket.sendall(frame(PONG, data))
            elif opcode == CLOSE:
                code = struct.unpack(">H", data[:2])[0] if data else 1005
                self.socket.sendall(frame(CLOSE, data[:2]))
                raise Closed(code, data[2:].decode())
            elif opcode in (TEXT, BINARY, MORE):
                kind = kind if opcode == MORE else opcode
                message += data
                if fin:
                    return message.decode() if kind == TEXT else message

    def send(self, data):
        self.socket.sendall(frame(TEXT if isinstance(data, str) else BINARY,
                                  data.encode() if isinstance(data, str) else data))

    def raw(self, *frames):
        self.socket.sendall(b"".join(frames))

    def json(self):
        message = self.recv()
        assert isinstance(message, str), message
        return json.loads(message)

    def until(self, text, seconds=20):
        """Binary output until it holds `text`; control messages are left out."""
        text = text.encode() if isinstance(text, str) else text
        out, end = b"", time.monotonic() + seconds
        while text not in out:
            assert time.monotonic() < end, out
            message = self.recv()
            if isinstance(message, bytes):
                out += message
        return out

    def closed(self):
        """Everything up to the close: (messages, Closed)."""
        messages = []
        while True:
            try:
                messages.append(self.recv())
            except Closed as e:
                return messages, e

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
