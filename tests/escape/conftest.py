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
