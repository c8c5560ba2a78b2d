"""Instances for tests/system, tests/escape and tests/hostile: started by quickstart, stopped without a trace."""
import os
import re

import pytest

from cove import Server, new_dir, stop

# Short enough to test the deadline, long enough for a busy machine.
SESSION_SETTINGS = {"command_timeout": "4s", "output_max": "1M", "memory_max": "256M", "pids_max": "128", "pool": "2"}


def pytest_addoption(parser):
    parser.addoption("--weak", action="store_true", help="tests/hostile: weaken the server and expect marked attacks to succeed")


def pytest_sessionstart(session):
    if os.geteuid() != 0:
        pytest.exit("these tests need root (namespaces, mounts, cgroups)", returncode=1)


def show_log(server):
    path = f"{server.dir}/log/coved.log"
    if os.path.exists(path):
        with open(path, errors="replace") as f:
            print(f"--- the end of {path}\n" + "".join(f.readlines()[-20:]))


@pytest.fixture(scope="session")
def session_server():
    server = Server(new_dir(), **SESSION_SETTINGS)
    try:
        server.up()
    except AssertionError as e:
        pytest.exit(f"the server does not start:\n{e}", returncode=1)
    yield server
    stop(server)


@pytest.fixture
def server(session_server):
    """One instance for all tests that need no settings of their own. What a test made in it must be gone afterwards."""
    session_server.projects.clear()
    yield session_server
    session_server.tidy()


@pytest.fixture
def make_server():
    """make_server(reuse="3s"): an instance of its own, stopped after the test, with nothing left behind."""
    made = []

    def make(**settings):
        made.append(Server(new_dir(), **{"pool": 1, "workers": 1, "command_timeout": "20s", **settings}))
        return made[-1].up()

    yield make
    for server in made:
        show_log(server)
        stop(server)


@pytest.fixture
def project(request):
    """A project name of the test's own."""
    return re.sub(r"[^A-Za-z0-9]+", "-", request.node.name)[:100]
