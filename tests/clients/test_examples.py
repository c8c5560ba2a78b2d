"""The programs of docs/examples/ run as they stand, and leave no sandbox behind."""
import os
import shutil
import subprocess

import pytest

from cove import TOP, read
from test_clients import modules  # noqa: F401 (a fixture)

WANTED = {
    "curl.sh": ["Linux", "hello", '"rule":"rm-rf"', "/.cove/open?token="],
    "run_code.py": ["a sum: exit 0, printed '45'", "ZeroDivisionError", "an endless loop: exit 124", "\"0 ['user'] True\""],
    "build_site.mjs": ["/.cove/open?token=", '"GET / HTTP/1.1" 200'],
    "e2b_fork.mjs": ["10 285", "100 328350", "1000 332833500"],
    "code_interpreter.mjs": ["a cell sees the cells before it -> 409114", "TypeError: unsupported operand"],
    "mcp_agent.mjs": ["run_command", "edit_file", "all tests pass"],
}
PARTS = {"code_interpreter.py"}  # of other examples
RUNS = {".sh": ["bash"], ".py": ["python3"], ".mjs": ["node"]}


def test_every_example_is_in_the_table_and_in_the_readme():
    there = {name for name in os.listdir(f"{TOP}/docs/examples") if name != "README.md" and not name.endswith(".mk")}
    assert there == set(WANTED) | PARTS
    assert all(f"`{name}`" in read(f"{TOP}/docs/examples/README.md") for name in there)


@pytest.mark.parametrize("name", sorted(WANTED))
def test_example(name, modules, clients_server, tmp_path):  # noqa: F811
    os.symlink(modules, tmp_path / "node_modules")
    for part in (name, *PARTS):
        shutil.copy(f"{TOP}/docs/examples/{part}", tmp_path)
    env = {**os.environ, "COVE_URL": f"http://127.0.0.1:{clients_server.http}", "COVE_KEY": clients_server.key}
    done = subprocess.run([*RUNS[os.path.splitext(name)[1]], name], cwd=tmp_path, env=env, timeout=120, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout
    for words in WANTED[name]:
        assert words in done.stdout, (words, done.stdout)
    listed = subprocess.run([f"{TOP}/.cove/inst/bin/cove", "-c", f"{clients_server.dir}/conf/cove.conf", "ls", "--json"], text=True, stdout=subprocess.PIPE).stdout
    assert "example-" not in listed, listed
