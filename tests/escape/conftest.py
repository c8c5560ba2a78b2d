import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "system"))

from cove import TOP  # noqa: E402,F401
import pytest  # noqa: E402


def load_system_fixtures():
    import importlib.util
    spec = importlib.util.spec_from_file_location("system_conftest", f"{TOP}/tests/system/conftest.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


make_server = load_system_fixtures().make_server  # the same instances, stopped the same way


def pytest_sessionstart(session):
    if os.geteuid() != 0:
        pytest.exit("the escape suite needs root", returncode=1)


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    """An instance whose policy refuses nothing, and a world beside it that must stay as it is."""
    import escape
    from cove import Server
    system = load_system_fixtures()
    policy = tmp_path_factory.mktemp("policy") / "policy.conf"
    policy.write_text(escape.POLICY)
    server = Server(system.new_dir(), pool=2, workers=2, policy_file=str(policy), memory_max="256M", pids_max="128",
                    disk_max="64M", inodes_max="8192", log_max="256K", command_timeout="30s", threads=32, short_threads=8).up()
    try:
        with escape.World(server) as world:
            yield server, world
    finally:
        system.stop(server)
