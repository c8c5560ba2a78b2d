"""VS Code in the browser as docs/TEMPLATES.md builds it: the commands of that chapter as they stand, then Chromium at `vscode_link`.

It takes minutes and two gigabytes, so it has a command of its own: ./quickstart test --only vscode
"""
import json
import os
import re
import shutil
import subprocess

import pytest

import apart
from suites import LONG
from cove import TOP, read
from test_clients import modules, workplace  # noqa: F401 (fixtures)

BIN = f"{TOP}/.cove/inst/bin"
CHROMIUM = "/usr/bin/chromium-headless-shell"
AUTHORITIES = os.environ.get("NODE_EXTRA_CA_CERTS", "")

pytestmark = pytest.mark.skipif(not LONG and os.environ.get("COVE_TEST_VSCODE") != "yes", reason="takes minutes: ./quickstart test --only vscode")


def recipe():
    """The commands of the chapter, one text for each indented block."""
    chapter = re.search(r"^## VS Code in the browser\n(.*?)^## ", read(f"{TOP}/docs/TEMPLATES.md"), re.M | re.S).group(1)
    blocks = re.findall(r"(?:^    .*\n|^\n(?=    ))+", chapter, re.M)
    return [re.sub(r"^    ", "", block, flags=re.M).strip() + "\n" for block in blocks]


def behind_proxy(text):
    """Where TLS ends at a proxy of this machine's owner, its certificates go into the image, by the two lines that the chapter has for it."""
    lines = re.findall(r"`(COPY ca.crt [^`]+|ENV NODE_EXTRA_CA_CERTS=[^`]+)`", read(f"{TOP}/docs/TEMPLATES.md"))
    assert len(lines) == 2 and text.count("ADD bookworm.tar /\n") == 1
    return text.replace("ADD bookworm.tar /\n", "\n".join(["ADD bookworm.tar /", *lines, ""]))


@pytest.fixture(scope="module")
def editor(clients_server, tmp_path_factory):
    """A sandbox of the template, as the agent API gives it; the server's own answer to /urls."""
    build, create = recipe()
    where = tmp_path_factory.mktemp("vscode")
    if AUTHORITIES:
        build = behind_proxy(build)
        (where / "code").mkdir()
        shutil.copy(AUTHORITIES, where / "code/ca.crt")
        build = build.replace("mkdir code\n", "", 1)
    env = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "COVE_CONFIG": f"{clients_server.dir}/conf/cove.conf",
           "COVE_URL": f"http://127.0.0.1:{clients_server.http}", "COVE_KEY": clients_server.key}
    subprocess.run(["bash", "-euxc", build], cwd=where, env=env, check=True, timeout=3000)
    made = json.loads(subprocess.run(["bash", "-euc", create], cwd=where, env=env, check=True, capture_output=True, text=True, timeout=120).stdout)
    sandbox = made["data"]["sandbox_id"]
    yield sandbox, clients_server.request("GET", f"/api/v1/agent/sandboxes/{sandbox}/urls").json["data"]
    clients_server.request("DELETE", f"/api/v1/agent/sandboxes/{sandbox}")
    subprocess.run([f"{BIN}/cove", "template", "rm", "code"], env=env, check=True)
    subprocess.run([f"{BIN}/cove", "template", "gc"], env=env, check=True)


def test_the_editor_opens_edits_a_file_and_has_a_terminal(editor, clients_server, workplace):  # noqa: F811
    sandbox, urls = editor
    post = lambda what, **body: clients_server.post(f"/api/v1/agent/sandboxes/{what}", {"sandbox_id": sandbox, **body})
    assert post("write-file", file_path="/workspace/note.txt", content="first line\n").status == 200
    running = lambda: "code-server" in " ".join(clients_server.inside_titles(clients_server.inits[sandbox.removeprefix("sandbox-")]))
    assert "//9000-" in urls["vscode_url"] and not running(), "it starts on first use"
    done = apart.run(["node", "vscode.mjs", urls["vscode_link"], CHROMIUM], clients_server.http, cwd=workplace, env=dict(os.environ), timeout=300)
    print(done.stdout)
    assert done.returncode == 0 and running(), done.stdout
    told = lambda path: post("read-file", file_path=path).json["data"]["content"]
    assert told("/workspace/note.txt").startswith("typed in the editor"), "saved by the editor"
    assert told("/workspace/from-42") == "", "a command in the editor's terminal"
