"""The executor dialect as a client sees it: one project's sandbox, replies, event streams."""
import contextlib
import json
import time
import urllib.parse


class Event:
    def __init__(self, fields):
        self.id, self.name = fields.get("id"), fields.get("event")
        self.text = fields["data"]
        self.data = json.loads(self.text) if self.text else None

    def __repr__(self):
        return f"<{self.id} {self.name} {self.data}>"


class Stream:
    """Events as they come. Iterating ends where the stream ends."""

    def __init__(self, server, method, path, body, headers, timeout):
        self.connection = server.connect(timeout)
        self.connection.request(method, path, body=json.dumps(body) if body is not None else None, headers=headers)
        self.response = self.connection.getresponse()
        self.status, self.headers = self.response.status, self.response.headers
        self.comments = 0

    def __iter__(self):
        fields = {}
        while line := self.response.readline():
            line = line.decode("utf-8").rstrip("\n")  # strict: what is not UTF-8 fails the test
            if line.startswith(":"):
                self.comments += 1
            elif line:
                key, _, value = line.partition(": ")
                assert key in ("id", "event", "data") and key not in fields, line
                fields[key] = value
            elif fields:
                yield Event(fields)
                fields = {}

    def close(self):
        self.response.close()
        self.connection.close()


class Executor:
    def __init__(self, server, project, key=True):
        self.server, self.project = server, project
        self.key = server.key if key is True else key
        server.projects.add((project, key))

    @property
    def headers(self):
        return {"Authorization": f"Bearer {self.key}", "X-Project-Id": self.project}

    def request(self, method, path, body=None, headers=None, timeout=60):
        return self.server.request(method, path, body, headers={**self.headers, **(headers or {})}, key=False,
                                   timeout=timeout)

    def post(self, path, /, wait=60, **fields):
        return self.request("POST", path, fields, timeout=wait)

    def ok(self, path, /, **fields):
        reply = self.post(path, **fields)
        assert reply.status in (200, 201), reply
        return reply.json

    def sh(self, cmd, **fields):
        """A command that must succeed; returns its stdout."""
        reply = self.ok("/run", cmd=cmd, **fields)
        assert reply["code"] == 0, reply
        return reply["stdout"]

    @contextlib.contextmanager
    def stream(self, path, body=None, method="POST", headers=None, timeout=60):
        stream = Stream(self.server, method, path, body, {**self.headers, **(headers or {})}, timeout)
        try:
            yield stream
        finally:
            stream.close()

    def run_streaming(self, cmd, **fields):
        with self.stream("/run_streaming", {"cmd": cmd, **fields}) as s:
            assert s.status == 200 and s.headers["Content-Type"] == "text/event-stream"
            return list(s)

    def logs(self, id, since=None):
        query = {"id": id, **({"since": since} if since else {})}
        with self.stream("/process_logs_streaming?" + urllib.parse.urlencode(query), method="GET") as s:
            assert s.status == 200
            return list(s)

    def start(self, cmd, **fields):
        return self.ok("/start_process", cmd=cmd, **fields)["id"]

    def processes(self, query=""):
        reply = self.request("GET", "/list_processes" + query)
        assert reply.status == 200, reply
        return reply.json

    def process(self, id):
        return next((p for p in self.processes()["processes"] if p["id"] == id), None)

    def wait_status(self, id, status, seconds=10):
        end = time.monotonic() + seconds
        while (now := self.process(id)["status"]) != status:
            assert time.monotonic() < end, f"{now}, not {status}, after {seconds} s"
            time.sleep(0.03)

    @property
    def init(self):
        """Host pid of the sandbox's init."""
        name = self.server.execute(self.project, "true", key=True if self.key == self.server.key else self.key).id
        return self.server.inits[name]


def text(events, stream="stdout"):
    """The lines of one stream."""
    return [e.data["data"] for e in events if e.data.get("stream") == stream]
