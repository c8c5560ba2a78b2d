"""What people install inside `base` with pip and npm: it comes from a registry (here one inside the sandbox), lies in the sandbox's own files,
works, and is seen by nobody else."""
import base64
import io
import json
import os
import shlex
import shutil
import tarfile
import zipfile

import pytest

from test_snapshots import inside

WHEEL = "greeting-1.0-py3-none-any.whl"
# Index pages for pip below /simple, documents for npm at /NAME, files below /files.
REGISTRY = '''
import http.server, json, os, urllib.parse
os.chdir("/srv/registry")
class Registry(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        name = urllib.parse.unquote(self.path).strip("/")
        if name.startswith("files/"):
            kind, body = "application/octet-stream", open(name[6:], "rb").read()
        elif name == "simple/greeting":
            kind, body = "text/html", b'<a href="/files/%s">%s</a>'
        else:
            version = {"name": "greeting", "version": "1.0.0", "bin": {"greet": "greet.js"}, "dist": {"tarball": "http://127.0.0.1:4873/files/greeting.tgz"}}
            kind, body = "application/json", json.dumps({"name": "greeting", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}).encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *args):
        pass
http.server.HTTPServer(("127.0.0.1", 4873), Registry).serve_forever()
''' % (WHEEL, WHEEL)


def wheel():
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        z.writestr("greeting.py", "def main():\n    print('hello from pip')\n")
        info = "greeting-1.0.dist-info"
        z.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n")
        z.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        z.writestr(f"{info}/entry_points.txt", "[console_scripts]\ngreet = greeting:main\n")
        z.writestr(f"{info}/RECORD", "")
    return out.getvalue()


def package():
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as t:
        for name, text in {"package.json": json.dumps({"name": "greeting", "version": "1.0.0", "bin": {"greet": "greet.js"}}),
                           "index.js": "module.exports = 'hello from npm'\n",
                           "greet.js": "#!/usr/bin/env node\nconsole.log(require('./index.js'))\n"}.items():
            member = tarfile.TarInfo(f"package/{name}")
            member.size, member.mode = len(text), 0o755
            t.addfile(member, io.BytesIO(text.encode()))
    return out.getvalue()


@pytest.fixture
def sandbox(server):
    """A sandbox of base whose registry answers at 127.0.0.1:4873 of its own."""
    made = server.post("/sandboxes", {"templateID": "base", "timeout": 300})
    assert made.status == 201, made
    box = made.json["sandboxID"]
    try:
        inside(server, box, "mkdir /srv/registry")
        for name, content in ((WHEEL, wheel()), ("greeting.tgz", package()), ("serve.py", REGISTRY.encode())):
            inside(server, box, f"echo {base64.b64encode(content).decode()} | base64 -d > /srv/registry/{name}")
        inside(server, box, "setsid python3 /srv/registry/serve.py > /srv/registry/log 2>&1 < /dev/null & "
                            "until curl -sf http://127.0.0.1:4873/simple/greeting/ > /srv/registry/answer; do sleep 0.1; done")
        yield lambda script: inside(server, box, f"sudo -u user -i bash -ec {shlex.quote(script)}")
    finally:
        server.request("DELETE", f"/sandboxes/{box}")


def test_pip_install_of_a_user_lies_in_the_sandboxs_own_files_and_works(server, sandbox):
    if not os.path.exists("/usr/bin/pip3"):
        pytest.skip("the host has no pip")
    sandbox("pip3 install --user --quiet --index-url http://127.0.0.1:4873/simple/ greeting 2>&1")
    assert sandbox("~/.local/bin/greet; python3 -c 'import greeting; print(greeting.__file__)'").startswith("hello from pip\n/home/user/.local/lib/")
    inside_only(server, "/home/user/.local")


def test_pip_and_npm_install_for_everybody_without_sudo(server, sandbox):
    """As in the templates that E2B's users know: /usr/local is open to all inside, so programs that were installed are in PATH."""
    if os.path.exists("/usr/bin/pip3"):
        sandbox("pip3 install --quiet --index-url http://127.0.0.1:4873/simple/ greeting 2>&1")
        assert sandbox("greet; command -v greet") == "hello from pip\n/usr/local/bin/greet\n"
        sandbox("pip3 uninstall --quiet --yes greeting 2>&1")
    if shutil.which("npm", path="/usr/bin"):
        # Debian's npm has this prefix by itself; that of others may be /usr.
        sandbox("npm --prefix /usr/local --registry http://127.0.0.1:4873 --no-audit --no-fund --loglevel=error install --global greeting")
        assert sandbox("greet; command -v greet") == "hello from npm\n/usr/local/bin/greet\n"
    sandbox("cd /code; touch mine; mkdir /usr/local/src/mine /usr/local/share/mine")
    inside_only(server, "/usr/local/bin/greet")
    inside_only(server, "/usr/local/src/mine")


def test_npm_install_lies_in_the_sandboxs_own_files_and_works(server, sandbox):
    if not shutil.which("npm", path="/usr/bin"):
        pytest.skip("the host has no npm")
    npm = "npm --registry http://127.0.0.1:4873 --no-audit --no-fund --loglevel=error"
    sandbox(f"mkdir -p ~/app; cd ~/app; {npm} install greeting")
    assert sandbox("cd ~/app; node -p \"require('greeting')\"; npx greet; cat package.json").startswith("hello from npm\nhello from npm\n{")
    sandbox(f"sudo {npm} install --global greeting")
    assert sandbox("greet") == "hello from npm\n" and not shutil.which("greet")
    inside_only(server, "/home/user/app")


def inside_only(server, path):
    """Another sandbox of the template does not have it, and the host does not."""
    assert server.execute("another", f"ls {path}").json["exitCode"] != 0
    server.cleanup("another")
    assert not os.path.exists(path)
