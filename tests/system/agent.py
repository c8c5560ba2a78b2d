"""A client of the agent dialect, as small as its document."""
import json
import os
import re

from cove import TOP, read

BASE = "/api/v1/agent/sandboxes"


def routes():
    """(method, pattern, flags) of the table in the code."""
    rows = re.findall(r'^    \{ ([A-Z]+), "([^"]*)", \w+, ([^}]*?) \}', read(f"{TOP}/fcgi/dialects/agent.c"), re.M)
    return [(method, BASE + path, flags) for method, path, flags in rows]


def form(*parts, boundary="cove-boundary"):
    """A multipart body of (name, bytes) and (name, bytes, filename) parts."""
    out = b""
    for name, content, *filename in parts:
        out += f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"'.encode()
        out += f'; filename="{filename[0]}"\r\nContent-Type: application/octet-stream'.encode() if filename else b""
        out += b"\r\n\r\n" + content + b"\r\n"
    return out + f"--{boundary}--\r\n".encode()


class Agent:
    def __init__(self, server, key=True):
        self.server, self.key, self.made = server, key, []

    def ask(self, method, path, body=None, headers=None, key=None, **kw):
        return self.server.request(method, BASE + path, body, headers=headers, key=self.key if key is None else key, **kw)

    def post(self, path, **fields):
        return self.ask("POST", path, fields)

    def create(self, **fields):
        reply = self.post("/create", **fields)
        assert reply.status == 200, reply
        self.made.append(reply.json["data"]["sandbox_id"])
        return self.made[-1]

    def run(self, sandbox, command, **fields):
        return self.post("/run-cmd", sandbox_id=sandbox, command=command, **fields)

    def output(self, sandbox, command):
        reply = self.run(sandbox, command)
        assert reply.status == 200 and reply.json["data"]["success"], reply
        return reply.json["data"]["output"]

    def upload(self, body, boundary="cove-boundary", kind="multipart/form-data", headers=None):
        return self.ask("POST", "/upload-file", body, headers={"Content-Type": f"{kind}; boundary={boundary}", **(headers or {})})

    def data(self, reply):
        assert reply.status == 200 and set(reply.json) == {"code", "data"} and reply.json["code"] == 200, reply
        return reply.json["data"]

    def done(self):
        for sandbox in self.made:
            self.ask("DELETE", f"/{sandbox}")


def is_error(reply, status, name):
    """Every bad reply has the one shape, and the status in it twice."""
    assert reply.status == status, reply
    assert reply.json["code"] == status and reply.json["error"] == name and reply.json["message"], reply
    return reply.json["message"]
