"""Others' clients against a server of ours: each *.test.mjs is one test here, run by `node --test`."""
import glob
import os
import shutil
import subprocess

import pytest

import apart
from suites import LONG, SUITES
from cove import TOP

HERE = os.path.dirname(os.path.abspath(__file__))
PATIENCE_S = 3000 if LONG else 300
COVE = f"{TOP}/.cove/inst/bin/cove"


@pytest.fixture(scope="session")
def modules():
    path = os.environ.get("COVE_CLIENTS_MODULES", "")
    if not os.path.isdir(path):
        pytest.skip("the clients are not installed: ./quickstart test --only clients does that")
    return path


@pytest.fixture(scope="session")
def workplace(modules, tmp_path_factory):
    """The tests beside the modules they import: node looks for those upwards from a file's real place."""
    place = tmp_path_factory.mktemp("clients")
    os.symlink(modules, place / "node_modules")
    for path in [*glob.glob(f"{HERE}/*.mjs"), f"{HERE}/package.json"]:
        shutil.copy(path, place)
    return place


def memory_of(pids):
    """A command that prints the anonymous memory of these processes in KiB."""
    return "awk '/^RssAnon/ { sum += $2 } END { print sum }' " + " ".join(f"/proc/{pid}/status" for pid in pids)


@pytest.mark.parametrize("suite", [f"{name}.test.mjs" for name in SUITES])
def test_suite(suite, workplace, clients_server):
    tenant = suite.removesuffix(".test.mjs")
    env = {
        **os.environ,
        "E2B_API_KEY": clients_server.keys[tenant],
        "E2B_API_URL": f"http://127.0.0.1:{clients_server.http}",
        "E2B_SANDBOX_URL": f"http://127.0.0.1:{clients_server.http}",
        "COVE_TENANT": tenant,
        "COVE_OTHER_KEY": clients_server.keys[f"{tenant}-other"],
        **clients_server.limited,
        "COVE_MEMORY": memory_of(clients_server.worker_pids),
        **({"COVE_LONG": "1"} if LONG else {}),
        "COVE_PROGRAM": COVE,
        "COVE_EXAMPLES": f"{TOP}/docs/examples",
        "COVE_RUN_DIR": clients_server.run_dir,
        "COVE_ACCOUNT": ":".join(clients_server.account),
        "COVE_CONFIG": f"{clients_server.dir}/conf/cove.conf",
        "COVE_DOMAIN": f"cove.localhost:{clients_server.https}",
        "COVE_CERT": f"{clients_server.dir}/tls/cove.localhost.crt",
        "NODE_EXTRA_CA_CERTS": f"{clients_server.dir}/tls/cove.localhost.crt",
        "NODE_OPTIONS": f"--import {workplace}/resolve.mjs",
        "NO_COLOR": "1",
    }
    command = ["node", "--test", "--test-reporter=spec", suite]
    if suite.startswith(("console", "cors")):  # in a browser
        done = apart.run(command, clients_server.http, cwd=workplace, env=env, timeout=PATIENCE_S)
    else:
        done = subprocess.run(command, cwd=workplace, env=env, timeout=PATIENCE_S, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print(done.stdout)
    assert done.returncode == 0, done.stdout
