"""The document's own examples, as they stand, with URL and key substituted."""
import json
import re
import shutil
import subprocess

import pytest

from cove import TOP, free_port, read
from executor import Executor

EXAMPLES = re.findall(r"^## ([^\n]*)\n```(\w+)\n(.*?)```", read(f"{TOP}/tests/system/executor_examples.md"), re.M | re.S)
PLACEHOLDER_ID = "550e8400-e29b-41d4-a716-446655440000"
APP = "import sys, time\nprint('started', sys.argv[1:])\nprint('warning', file=sys.stderr)\ntime.sleep(1)\n"


@pytest.fixture(scope="module")
def prepared():
    """A server of its own, whose sandbox has what the examples talk about."""
    from cove import Server, new_dir, stop
    server = Server(new_dir(), pool=1, workers=1, proxy_port=free_port()).up()
    box = Executor(server, "default")
    box.sh("mkdir -p /home/user/project /path/to; ln -s /usr/bin/python3 /usr/local/bin/python")
    for path in ("/home/user/project/app.py", "/root/server.py", "/root/worker.py"):
        box.ok("/write_file", path=path, content=APP)
    yield box
    stop(server)


def setup_for(box, code):
    """What an example takes for granted: its file, its directory, a free port, a process of that id."""
    box.request("POST", "/unbind_port")
    box.ok("/write_file", path="/tmp/test.txt", content="Hello")
    box.ok("/make_dir", path="/tmp/my/directory")
    if PLACEHOLDER_ID in code or "$PROCESS_ID" in code:
        return box.start("echo line; echo oops >&2; sleep 2", cwd="/tmp")
    return PLACEHOLDER_ID


def run(box, language, code, tmp_path):
    id = setup_for(box, code)
    code = (code.replace("http://localhost:8080", f"http://127.0.0.1:{box.server.http}")
            .replace("your-secret", box.server.key).replace(PLACEHOLDER_ID, id))
    if language == "bash":
        command = ["bash", "-eu", "-o", "pipefail", "-c", f"PROCESS_ID={id}\n{code}"]
    else:
        path = tmp_path / {"javascript": "example.mjs", "python": "example.py"}[language]
        path.write_text(code)
        command = [{"javascript": "node", "python": "/usr/bin/python3"}[language], str(path)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_the_document_has_examples_of_all_kinds():
    assert len(EXAMPLES) >= 20 and {language for _, language, _ in EXAMPLES} == {"bash", "javascript", "python"}


@pytest.mark.parametrize("title,language,code", EXAMPLES, ids=[f"{i}-{t}" for i, (t, _, _) in enumerate(EXAMPLES)])
def test_example(prepared, tmp_path, title, language, code):
    if language == "javascript" and not shutil.which("node"):
        pytest.skip("node is not installed")
    done = run(prepared, language, code, tmp_path)
    assert done.returncode == 0, done
    if language != "bash":
        assert "[stdout] line" in done.stdout and "[stderr] oops" in done.stdout, done
        return
    for line in done.stdout.split("\n"):  # no reply, and no event, may tell of a failure
        text = line.removeprefix("data: ")
        if text.startswith("{"):
            value = json.loads(text) if text.endswith("}") else {}
            assert value.get("success") is not False and not value.get("error"), done
    assert done.stdout.strip()
