import pytest

import escape
from cove import Server, new_dir, stop


@pytest.fixture(scope="module")
def scene(request, tmp_path_factory):
    """An instance whose policy refuses nothing, and a world beside it that must stay as it is. Disks are as they are by default; a
    test that names others gets those: @pytest.mark.parametrize("scene", ["image"], indirect=True)."""
    policy = tmp_path_factory.mktemp("policy") / "policy.conf"
    policy.write_text(escape.POLICY)
    server = Server(new_dir(), pool=2, workers=2, policy_file=str(policy), memory_max="256M", pids_max="128",
                    disk=getattr(request, "param", "auto"), disk_max="64M", inodes_max="8192", log_max="256K", command_timeout="30s", threads=32, short_threads=8).up()
    try:
        with escape.World(server) as world:
            yield server, world
    finally:
        stop(server)
