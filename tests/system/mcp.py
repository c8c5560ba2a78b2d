"""The MCP server as a client sees it: messages of both eras, tools, streams."""
import contextlib
import json

from executor import Stream

MODERN = "2026-07-28"
META = "io.modelcontextprotocol/"
BOTH = "application/json, text/event-stream"


class Events(Stream):
    """Without events that have no data: these only tell a client the first id of a stream."""

    def __init__(self, *args):
        super().__init__(*args)
        self.first_id = None

    def __iter__(self):
        for event in super().__iter__():
            if event.text:
                yield event
            else:
                self.first_id = event.id


class Mcp:
    """One client. `session` None: every request for itself; else the id that initialize gave."""

    def __init__(self, server, sandbox="mcp", key=True, path=None, host=None):
        self.server, self.sandbox, self.session = server, sandbox, None
        self.key = server.key if key is True else key
        self.path = path or f"/mcp?sandbox={sandbox}"
        self.host = host
        if not path and not host:
            server.projects.add((sandbox, key))

    def headers(self, method, params):
        h = {"Content-Type": "application/json", "Accept": BOTH}
        if self.key:
            h["Authorization"] = f"Bearer {self.key}"
        if self.host:
            h["Host"] = self.host
        if self.session:
            return {**h, "Mcp-Session-Id": self.session}
        name = params.get("name") or params.get("uri")
        return {**h, "MCP-Protocol-Version": MODERN, "Mcp-Method": method, **({"Mcp-Name": name} if name else {})}

    def message(self, method, params=None, id=1):
        params = dict(params or {})
        if not self.session:
            meta = {META + "protocolVersion": MODERN, META + "clientCapabilities": {}}
            params["_meta"] = {**meta, **params.get("_meta", {})}
        return {"jsonrpc": "2.0", "method": method, "params": params, **({"id": id} if id is not None else {})}

    def send(self, body, headers, method="POST"):
        return self.server.request(method, self.path, body, headers=headers, key=False)

    def post(self, method, params=None, id=1, headers=None):
        return self.send(self.message(method, params, id), {**self.headers(method, params or {}), **(headers or {})})

    def rpc(self, method, params=None, id=1):
        """The answer, which must be the only one, as JSON or as the last event of a stream."""
        reply = self.post(method, params, id)
        answer = answer_of(reply)
        assert answer["id"] == id and answer["jsonrpc"] == "2.0", reply
        return answer

    def result(self, method, params=None):
        answer = self.rpc(method, params)
        assert "result" in answer, answer
        return answer["result"]

    def tool(self, name, /, **arguments):
        return self.result("tools/call", {"name": name, "arguments": arguments})

    def ok(self, name, /, **arguments):
        """A tool that must succeed; returns its structured result."""
        result = self.tool(name, **arguments)
        assert not result["isError"], result
        return result["structuredContent"]

    def fails(self, name, /, **arguments):
        """A tool that must fail; returns what it says to the model."""
        result = self.tool(name, **arguments)
        assert result["isError"], result
        return result["content"][0]["text"]

    def initialize(self, version="2025-11-25"):
        params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
        message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
        reply = self.send(message, {"Authorization": f"Bearer {self.key}", "Accept": BOTH})
        assert reply.status == 200, reply
        self.session = reply.headers["Mcp-Session-Id"]
        return reply.json["result"]

    @contextlib.contextmanager
    def stream(self, method=None, params=None, id=1, after=None):
        """Events of a request, or without a method those of the session, or those of a stream after the event with this id."""
        body = self.message(method, params, id) if method else None
        headers = {**self.headers(method or "", params or {}), **({"Last-Event-ID": after} if after else {})}
        stream = Events(self.server, "POST" if method else "GET", self.path, body, headers, 60)
        try:
            yield stream
        finally:
            stream.close()


def answer_of(reply):
    if reply.headers["Content-Type"] != "text/event-stream":
        return reply.json
    events = [json.loads(line[6:]) for line in reply.body.decode().split("\n") if line.startswith("data: {")]
    return events[-1]
