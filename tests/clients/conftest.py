"""One server for all clients."""
import pytest

from cove import Server, new_dir, stop


@pytest.fixture(scope="session")
def clients_server():
    server = Server(new_dir(), pool="4", memory_max="512M", disk_max="256M")
    server.up()
    server.other_key = server.add_key("other")
    yield server
    stop(server)
