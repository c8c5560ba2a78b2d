"""One server for all clients."""
import os

import pytest

from cove import Server, new_dir, stop

LONG = os.environ.get("COVE_TEST_LONG") == "yes"
TENANTS = "poor sandboxes=2\nslow requests=2\nmany sandboxes=2000\n"


@pytest.fixture(scope="session")
def clients_server():
    server = Server(new_dir(), pool="4", memory_max="512M", disk_max="6G" if LONG else "256M", max_sandboxes="1100")
    server.up()
    with open(f"{server.dir}/conf/tenants", "a") as f:
        f.write(TENANTS)
    server.other_key = server.add_key("other")
    server.limited = {f"COVE_{tenant.upper()}_KEY": server.add_key(tenant) for tenant in ("poor", "slow", "many")}
    yield server
    stop(server)
