"""How attacks run: against the ordinary build, where all must be refused, or with --weak, where those marked so must succeed."""
import pytest

import escape
from hostile import Attempts, GotThrough

ATTEMPTS = Attempts()


def pytest_collection_modifyitems(config, items):
    if not config.getoption("--weak"):
        return
    marked = [item for item in items if item.get_closest_marker("weak")]
    for item in marked:
        item.add_marker(pytest.mark.xfail(raises=GotThrough, strict=True, reason="the server is weakened"))
    config.hook.pytest_deselected(items=[item for item in items if item not in marked])
    items[:] = marked


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Under --weak: a test of which any attempt succeeded ends by GotThrough, when it is over."""
    if not pyfuncitem.config.getoption("--weak"):
        return None
    ATTEMPTS.go_on = True
    before = len(ATTEMPTS.successes)
    try:
        pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames})
    except Exception:
        if len(ATTEMPTS.successes) == before:  # otherwise: what a successful attack has broken may break the rest of the test
            raise
    if len(ATTEMPTS.successes) > before:
        raise GotThrough(", ".join(ATTEMPTS.successes[before:]))
    return True


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter):
    if ATTEMPTS.names:
        terminalreporter.write_line(ATTEMPTS.summary())


@pytest.fixture
def attempt():
    """attempt(name, evidence): see hostile.Attempts."""
    return ATTEMPTS


@pytest.fixture(scope="session")
def weak_build():
    return escape.build_weak()


@pytest.fixture
def target(make_server, request):
    """target(pool=2): the instance to attack. Under --weak it has the holes that the test's marker names."""
    def make(**settings):
        marker = request.config.getoption("--weak") and request.node.get_closest_marker("weak")
        holes = dict(marker.kwargs) if marker else {}
        layers, sabotage = holes.pop("layers", ""), holes.pop("by", None)
        server = make_server(**{**settings, **holes})
        if layers:
            escape.weaken(server, request.getfixturevalue("weak_build"), layers)
        if sabotage:
            sabotage(server)
        return server
    return make
