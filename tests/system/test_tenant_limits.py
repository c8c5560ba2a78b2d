"""Limits and quotas of single tenants and templates, in sandboxes from the pool and others; new limits after a reload."""
import os
import re

import pytest

from cove import read, wait_for


@pytest.fixture
def write(make_server):
    """An instance, and a way to write its tables as an operator would; returns when workers have read them."""
    def make(**settings):
        server = make_server(pool=2, workers=1, memory_max="256M", disk_max="64M", **settings)

        def write_table(name, text):
            with open(f"{server.dir}/conf/{name}.new", "w") as f:
                f.write(text)
            os.rename(f"{server.dir}/conf/{name}.new", f"{server.dir}/conf/{name}")
            wait_for(lambda: read(f"{server.run_dir}/{name}") == text, 10, f"the {name}")
        return server, write_table
    return make


def warm(server):
    """Wait for the pool; returns how many claims had to wait for a sandbox to be built so far."""
    metrics = lambda name: int(re.search(rf"^cove_{name} (\d+)$", server.request("GET", "/metrics").body.decode(), re.M).group(1))
    wait_for(lambda: 'state="warm"} 2' in server.request("GET", "/metrics").body.decode(), 15, "a full pool")
    return metrics("sandboxes_claimed_cold_total")


def memory_of(server, project, **kw):
    return int(re.search(r"MemTotal:\s+(\d+) kB", server.run(project, "cat /proc/meminfo", **kw)).group(1)) // 1024


def test_a_sandbox_from_the_pool_takes_its_tenants_limits(write):
    server, table = write()
    table("tenants", "big memory_max=512M pids_max=300 open_files_max=100 file_max=1M command_timeout=2s output_max=8K\n")
    big = server.add_key("big")
    cold = warm(server)
    assert memory_of(server, "p", key=big) == 512
    assert server.run("p", "ulimit -n; ulimit -f", key=big).split() == ["100", "1024"]
    assert server.execute("p", "for i in $(seq 400); do sleep 9 & done; wait", key=big).json["ended"]["cause"] in ("pids", "deadline")
    assert server.execute("q", "sleep 20", key=big).json["ended"]["message"] == "deadline (2 s) reached"
    assert server.execute("q", "head -c 9K /dev/zero", key=big).json["ended"]["cause"] == "output"
    assert warm(server) == cold, "it was built, not taken from the pool"
    assert memory_of(server, "p") == 256


def test_a_tenant_with_another_disk_or_cpu_gets_a_sandbox_made_for_it(write):
    server, table = write(disk="image", inodes_max=4096)
    table("tenants", "big disk_max=96M cpu_percent=100\n")
    big = server.add_key("big")
    assert server.run("p", "df --output=size -m / | tail -1; nproc", key=big).split() == ["96", "1"]
    assert server.run("p", "df --output=size -m / | tail -1").split() == ["64"]


def test_templates_have_limits_too_and_a_tenants_stand_over_them(write):
    server, table = write()
    table("templates", "base memory_max=384M pids_max=200\n")
    table("tenants", "small memory_max=128M\n")
    small = server.add_key("small")
    assert memory_of(server, "p") == 384
    assert memory_of(server, "p", key=small) == 128


def test_warm_sandboxes_take_new_limits_after_a_reload(write):
    server, _ = write(disk="image")
    warm(server)
    server.change_config(memory_max="320M", disk_max="80M", cpu_percent="100")
    wait_for(lambda: "configuration reloaded" in [line.get("event") for line in server.log_lines()], 10, "the reload")
    assert memory_of(server, "p") == 320
    assert server.run("p", "df --output=size -m / | tail -1; nproc").split() == ["80", "1"]


def test_a_table_with_a_mistake_changes_nothing_and_its_line_is_named(write):
    server, table = write()
    table("tenants", "big memory_max=512M\n")
    big = server.add_key("big")
    with open(f"{server.dir}/conf/tenants", "a") as f:
        f.write("big memory_max=tiny\n")
    wait_for(lambda: [line for line in server.log_lines() if "tenants: line 2: memory_max" in str(line)], 10, "the complaint")
    assert memory_of(server, "p", key=big) == 512


def test_over_its_disk_a_tenant_gets_429_for_new_sandboxes(write):
    server, table = write()
    table("tenants", "packrat disk=30M\n")
    packrat = server.add_key("packrat")
    assert server.run("a", "head -c 20M /dev/urandom > /workspace/f; sync; echo ok", key=packrat) == "ok\n"
    server.run("b", "head -c 20M /dev/urandom > /workspace/f; sync", key=packrat)
    reply = wait_for(lambda: (r := server.execute("c", "true", key=packrat)).status == 429 and r, 10, "the quota")
    assert int(reply.headers["Retry-After"]) >= 1 and "disk" in reply.body.decode(), reply
    assert server.run("c", "echo others do not notice") == "others do not notice\n"
    assert server.run("a", "echo what is there goes on", key=packrat) == "what is there goes on\n"
    server.cleanup("b", key=packrat)
    wait_for(lambda: server.execute("c", "true", key=packrat).status == 200, 15, "room after a cleanup")


def test_one_sandbox_alone_cannot_pass_its_tenants_disk(write):
    server, table = write(disk="image")
    table("tenants", "packrat disk=32M\n")
    packrat = server.add_key("packrat")
    assert server.run("a", "df --output=size -m / | tail -1", key=packrat).strip() == "32"


def test_without_loop_devices_there_is_still_a_limit(write):
    server, _ = write(disk="tmpfs", inodes_max=2048)
    assert server.run("p", "df --output=size -m / | tail -1").strip() == "64"
    reply = server.execute("p", "head -c 100M /dev/zero > /workspace/f")
    assert "No space left" in reply.json["stderr"] and reply.json["ended"]["message"] == "disk limit (64 MiB) reached", reply
    server.run("p", "rm /workspace/f; cp /usr/bin/env /tmp/e; mv /usr/bin/env /usr/bin/env2; rm -r /usr/share/doc; mkdir /usr/share/doc; ls /usr/share/doc")
    assert server.execute("p", "for i in $(seq 5000); do : > /tmp/f$i || exit 1; done").json["success"] is False


def test_disks_are_made_ahead_and_nothing_of_them_stays(write):
    server, _ = write(disk="image")
    ahead = lambda: [f for f in os.listdir(f"{server.config['state_dir']}/disk") if f.startswith("ready-")]
    before = set(wait_for(lambda: len(ahead()) == 4 and ahead(), 15, "four disks"))
    for i in range(3):
        server.run(f"p{i}", "echo x > /workspace/x")
    wait_for(lambda: len(ahead()) == 4 and set(ahead()) != before, 15, "others in their place")
    server.down()
    assert ahead() == []


def paused_by_the_agent_dialect(server, **kw):
    """What a pause did to a sandbox: "saved", or "frozen"."""
    base = "/api/v1/agent/sandboxes"
    name = server.request("POST", f"{base}/create", {"user_id": "u"}, **kw).json["data"]["sandbox_id"]
    assert server.request("POST", f"{base}/{name}/pause", **kw).status == 200
    box = name.removeprefix("sandbox-")
    is_saved = os.path.exists(f"{server.dir}/state/saved/{box}")
    assert is_saved != (box in server.inits)
    assert server.request("DELETE", f"{base}/{name}", **kw).status == 200
    return "saved" if is_saved else "frozen"


def test_what_a_pause_means_is_said_for_single_tenants_and_templates(write):
    server, table = write(pause="freeze")
    saves, keeps = server.add_key("saves"), server.add_key("keeps")
    table("tenants", "saves pause=save\nkeeps pause=freeze\n")
    assert [paused_by_the_agent_dialect(server, key=k) for k in (server.key, saves, keeps)] == ["frozen", "saved", "frozen"]
    table("templates", "base pause=save\n")
    assert [paused_by_the_agent_dialect(server, key=k) for k in (server.key, saves, keeps)] == ["saved", "saved", "frozen"]


def test_what_the_end_of_a_lifetime_means_is_said_for_single_tenants_and_templates(write):
    server, table = write(on_timeout="kill", lifetime="2s", reuse="2s")
    keys = {name: server.add_key(name) for name in ("saves", "freezes", "ends")}
    box_of = lambda name: server.execute("p", "echo kept >/workspace/f", key=keys[name]).id
    table("tenants", "saves on_timeout=save\nfreezes on_timeout=freeze save_frozen_after=1s\n")
    boxes = {name: box_of(name) for name in keys}
    wait_for(lambda: set(os.listdir(f"{server.dir}/state/saved")) == {boxes["saves"], boxes["freezes"]}, 30, "the end of both, and a second in memory for one")
    wait_for(lambda: boxes["ends"] not in server.inits, 30, "its end")
    frozen = [e for e in server.log_lines() if e["event"] == "sandbox frozen at the end of its lifetime"]
    assert [e["sandbox"] for e in frozen] == [boxes["freezes"]]
    assert server.run("p", "cat /workspace/f", key=keys["saves"]) == "kept\n"
    table("templates", "base on_timeout=save\n")
    last = box_of("ends")
    wait_for(lambda: last in os.listdir(f"{server.dir}/state/saved"), 30, "its end, by its template's line")
