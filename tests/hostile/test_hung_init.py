"""A sandbox whose init answers nobody: it holds no more than its share of the server, and not for long."""
import concurrent.futures
import os
import signal

import pytest

from cove import wait_for

CLIENTS = 300
ROUTES = [("POST", "/run", {"cmd": "true"}), ("GET", "/list_processes", None), ("POST", "/read_file", {"path": "/etc/hostname"}),
          ("POST", "/start_process", {"cmd": "true"}), ("POST", "/list_dir", {"path": "/"})]


def knock(server, i):
    """One of many clients, each from its own address. The status, or None when the connection broke."""
    method, path, body = ROUTES[i % len(ROUTES)]
    try:
        return server.request(method, path, body, headers={"X-Project-Id": "hung"}, source=f"127.0.{2 + i // 250}.{1 + i % 250}").status
    except OSError:
        return None


def refused_to_others(server, key):
    """What anybody else is denied meanwhile."""
    asks = {"health": lambda: server.request("GET", "/health", key=False, timeout=8),
            "a command of another tenant": lambda: server.execute("calm", "true", key=key, timeout=8)}
    statuses = {name: [ask().status for _ in range(10)] for name, ask in asks.items()}
    return {name: got for name, got in statuses.items() if set(got) != {200}}


@pytest.mark.weak(tenant_threads=0, sandbox_threads=0)
def test_a_hung_init_keeps_no_other_tenant_waiting(target, attempt):
    server = target(workers=1, threads=32, short_threads=8, pool=1)
    victim = server.add_key("victim")
    wait_for(lambda: server.execute("calm", "true", key=victim).status == 200, 10, "the other tenant's sandbox")
    os.kill(server.init_of(server.execute("hung", "true")), signal.SIGSTOP)
    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
        jobs = [pool.submit(knock, server, i) for i in range(CLIENTS)]
        wait_for(lambda: any(job.done() and job.result() == 503 for job in jobs), 20, "the attackers to be more than find a place")
        attempt("hold all threads by an init that does not answer", refused_to_others(server, victim))
        statuses = {job.result() for job in jobs}
    assert statuses <= {200, 201, 400, 404, 500, 503}, statuses
    wait_for(lambda: server.execute("hung", "true").status == 200, 30, "a new sandbox in the place of the one that hung")
