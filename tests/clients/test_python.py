"""What the Python SDK sends, by httpx: HTTP/2 with TLS, JSON with identity encoding, a deadline on every call.

The SDK itself is not packaged by Debian; this client follows its requests field by field.
"""
import base64
import json
import ssl
import struct

import pytest

from cove import wait_for

httpx = pytest.importorskip("httpx")
pytest.importorskip("h2")

HEADERS = {"User-Agent": "e2b-python-sdk/2.45.1", "lang": "python", "package_version": "2.45.1", "publisher": "e2b"}


class Loopback(httpx.HTTPTransport):
    """*.cove.localhost is this machine: names below .localhost need not resolve."""

    def handle_request(self, request):
        host = request.url.host
        request.extensions["sni_hostname"] = host
        request.url = request.url.copy_with(host="127.0.0.1")
        return super().handle_request(request)


@pytest.fixture
def client(clients_server):
    context = ssl.create_default_context(cafile=f"{clients_server.dir}/tls/cove.localhost.crt")
    context.check_hostname = True
    with httpx.Client(transport=Loopback(http2=True, verify=context), timeout=60) as client:
        yield client


@pytest.fixture
def api(client, clients_server):
    def call(method, path, body=None):
        url = f"https://api.cove.localhost:{clients_server.https}{path}"
        return client.request(method, url, json=body, headers={**HEADERS, "X-API-KEY": clients_server.key})
    return call


@pytest.fixture
def sandbox(api):
    made = api("POST", "/sandboxes", {"templateID": "base", "autoPause": False, "secure": True, "allow_internet_access": True,
                                      "timeout": 300, "metadata": {}, "envVars": {}})
    assert made.status_code == 201, made.text
    assert made.http_version == "HTTP/2"
    yield made.json()
    api("DELETE", f"/sandboxes/{made.json()['sandboxID']}")


@pytest.fixture
def envd(client, clients_server, sandbox):
    def headers(**more):
        return {**HEADERS, "E2b-Sandbox-Id": sandbox["sandboxID"], "E2b-Sandbox-Port": "49983",
                "X-Access-Token": sandbox["envdAccessToken"], **more}

    class Envd:
        base = f"https://49983-{sandbox['sandboxID']}.cove.localhost:{clients_server.https}"

        def unary(self, method, message):
            return client.post(f"{self.base}/{method}", json=message, headers=headers(**{
                "Connect-Protocol-Version": "1", "Connect-Timeout-Ms": "60000", "Content-Encoding": "identity", "Accept-Encoding": "identity"}))

        def stream(self, method, message):
            data = json.dumps(message).encode()
            sent = client.stream("POST", f"{self.base}/{method}", content=struct.pack(">BI", 0, len(data)) + data, headers=headers(**{
                "Content-Type": "application/connect+json", "Connect-Protocol-Version": "1", "Connect-Timeout-Ms": "60000",
                "Connect-Content-Encoding": "identity", "Connect-Accept-Encoding": "identity", "Keepalive-Ping-Interval": "50",
                "Authorization": "Basic " + base64.b64encode(b"user:").decode()}))
            with sent as reply:
                assert (reply.status_code, reply.headers["content-type"]) == (200, "application/connect+json")
                rest = b""
                for chunk in reply.iter_bytes():
                    rest += chunk
                    while len(rest) >= 5 and len(rest) >= 5 + struct.unpack(">I", rest[1:5])[0]:
                        end = 5 + struct.unpack(">I", rest[1:5])[0]
                        yield rest[0], json.loads(rest[5:end])
                        rest = rest[end:]

        def files(self, method, path, **options):
            return client.request(method, f"{self.base}/files", params={"path": path, "username": "user"}, headers=headers(), **options)
    return Envd()


def test_a_command_runs_and_its_end_is_told(envd):
    events = list(envd.stream("process.Process/Start", {
        "process": {"cmd": "/bin/bash", "args": ["-l", "-c", "printf 'a%.0s' $(seq 8191); printf '\\xe2\\x82\\xac'; exit 3"], "envs": {}}, "stdin": False}))
    assert "pid" in events[0][1]["event"]["start"]
    out = b"".join(base64.b64decode(e["event"]["data"]["stdout"]) for _, e in events if "data" in e.get("event", {}))
    assert out == b"a" * 8191 + "€".encode()
    assert events[-2][1]["event"]["end"] == {"exitCode": 3, "exited": True, "status": "exit status 3", "error": "exit status 3"}
    assert events[-1] == (2, {})


def test_files_are_written_and_read_and_errors_have_their_codes(envd):
    assert envd.files("POST", "dir/a.txt", files={"file": ("dir/a.txt", "grüße")}).json()[0]["path"] == "/home/user/dir/a.txt"
    assert envd.files("GET", "dir/a.txt").text == "grüße"
    assert envd.files("GET", "nope").status_code == 404
    assert envd.unary("filesystem.Filesystem/ListDir", {"path": "dir", "depth": 1}).json()["entries"][0]["name"] == "a.txt"
    missing = envd.unary("filesystem.Filesystem/Stat", {"path": "nope"})
    assert (missing.status_code, missing.json()["code"]) == (404, "not_found")
    boot_id = envd.files("GET", "/proc/sys/kernel/random/boot_id").text
    assert len(boot_id) == 37


def test_a_watcher_is_asked_again_and_again(envd):
    envd.unary("filesystem.Filesystem/MakeDir", {"path": "watched"})
    watcher = envd.unary("filesystem.Filesystem/CreateWatcher", {"path": "watched", "recursive": False}).json()["watcherId"]
    envd.files("POST", "watched/x", files={"file": "1"})

    def names():
        reply = envd.unary("filesystem.Filesystem/GetWatcherEvents", {"watcherId": watcher}).json()
        return [event["name"] for event in reply.get("events", [])]
    wait_for(lambda: "x" in names())
    assert envd.unary("filesystem.Filesystem/RemoveWatcher", {"watcherId": watcher}).json() == {}


def test_pause_resume_and_the_lists_fields(api, sandbox):
    sandbox_id = sandbox["sandboxID"]
    assert api("POST", f"/sandboxes/{sandbox_id}/pause", {}).status_code == 204
    assert api("POST", f"/sandboxes/{sandbox_id}/pause", {}).status_code == 409
    resumed = api("POST", f"/sandboxes/{sandbox_id}/connect", {"timeout": 60})
    assert (resumed.status_code, resumed.json()["envdAccessToken"]) == (201, sandbox["envdAccessToken"])
    listed = next(s for s in api("GET", "/v2/sandboxes?state=running,paused").json() if s["sandboxID"] == sandbox_id)
    needed = {"sandboxID", "templateID", "clientID", "startedAt", "endAt", "cpuCount", "memoryMB", "diskSizeMB", "state", "envdVersion"}
    assert needed <= set(listed)
    assert api("DELETE", f"/sandboxes/{sandbox_id}").status_code == 204
    assert api("DELETE", f"/sandboxes/{sandbox_id}").status_code == 404
