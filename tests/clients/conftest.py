"""One server for all clients, with an account of its own that may sign in with a password."""
import pytest

from cove import Server, new_dir, stop, temporary_account
from suites import LONG, SUITES

LIMITED = ("poor", "slow", "many")
TENANTS = "poor sandboxes=2\nslow requests=2\nmany sandboxes=2000\n"


@pytest.fixture(scope="session")
def account():
    """(name, password) of an account that exists while the tests run."""
    with temporary_account() as account:
        yield account


@pytest.fixture(scope="session")
def clients_server(account, tmp_path_factory):
    stacks = tmp_path_factory.mktemp("pam")
    stacks.chmod(0o755)
    stacks.parent.chmod(0o755)
    (stacks / "unix").write_text("auth required pam_unix.so\naccount required pam_unix.so\n")
    server = Server(new_dir(), pool="4", memory_max="512M", disk_max="6G" if LONG else "256M", file_max="6G", max_sandboxes="1100", tenant_sandboxes="1100",
                    pam_dir=str(stacks), pam_service="unix")
    server.up()
    with open(f"{server.dir}/conf/tenants", "a") as f:
        f.write(TENANTS)
    server.keys = server.add_keys([*LIMITED, *(f"{suite}{of}" for suite in SUITES for of in ("", "-other"))])
    server.limited = {f"COVE_{tenant.upper()}_KEY": server.keys[tenant] for tenant in LIMITED}
    server.account = account
    yield server
    stop(server)
