"""Replies that outweigh their bytes: what a worker keeps in memory has a bound over all requests together."""
import concurrent.futures
import contextlib
import json
import shlex
import struct
import time

import pytest

from cove import status_field
from mcp import Mcp

CLIENTS, BUDGET_MB, REPLY_BYTES = 40, 32, 6_000_000
STREAMS, SUBSCRIPTIONS, ROUNDS = 6, 60, 60
PROCESSES, WORDS = 40, 7000
LIST_BUDGET_MB, FILES = 16, 30_000


def peak_mb(pid):
    return int(status_field(pid, "VmHWM").split()[0]) // 1024


@pytest.mark.weak(worker_memory="64G")
def test_many_large_replies_do_not_fill_the_machine(target, attempt):
    """Control characters take six bytes of JSON each."""
    server = target(workers=1, pool=1, worker_memory=f"{BUDGET_MB}M", output_max="8M")
    assert server.execute("p", "true").status == 200
    worker = server.worker_pids[0]
    before = peak_mb(worker)
    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
        replies = list(pool.map(lambda i: server.execute("p", f"head -c {REPLY_BYTES} /dev/zero", timeout=120), range(CLIENTS)))
    whole = [r for r in replies if r.status == 200 and len(r.json["stdout"]) == REPLY_BYTES]
    refused = [r for r in replies if r.status == 503 and r.headers["Retry-After"]]
    assert whole and len(whole) + len(refused) == CLIENTS, {r.status for r in replies}
    grown = peak_mb(worker) - before
    attempt("make a worker keep many large replies", grown > 4 * BUDGET_MB and f"{grown} MB for a budget of {BUDGET_MB} MB")
    assert server.worker_pids == [worker]
    assert server.execute("p", "echo on").json["stdout"] == "on\n"


def test_a_stream_takes_no_more_memory_the_longer_it_lives(target, attempt):
    """An MCP session's stream looks at its subscriptions four times a second when any has changed, and tries again to watch files
    whose folder is not there."""
    server = target(workers=1, pool=1)
    client = Mcp(server, "streams")
    client.ok("run_command", command="true")
    client.initialize()
    uris = [f"file:///missing/{i}" + "x" * 180 for i in range(SUBSCRIPTIONS)]
    for uri in uris:
        client.result("resources/subscribe", {"uri": uri})
    worker = server.worker_pids[0]
    with contextlib.ExitStack() as streams:
        for _ in range(STREAMS):
            streams.enter_context(client.stream())
        kb = []
        for i in range(ROUNDS):
            for method in ("unsubscribe", "subscribe"):
                client.result(f"resources/{method}", {"uri": uris[i]})
            kb.append(int(status_field(worker, "RssAnon").split()[0]))
            time.sleep(0.1)  # the pace of the attack
        grown = kb[-1] - kb[ROUNDS // 6]
        attempt("fill a worker's memory by a stream that lives on", grown > 1024 and f"{grown} KiB in {ROUNDS} rounds")


@pytest.mark.weak(worker_memory="64G")
def test_many_lists_of_long_commands_do_not_fill_the_machine(target, attempt):
    """A process's arguments take many times their bytes while a list of processes is made."""
    server = target(workers=1, pool=1, worker_memory=f"{BUDGET_MB}M")
    sandbox = server.request("POST", "/v2/sandboxes", {"templateID": "base", "timeout": 300}).json["sandboxID"]
    envd = {"Connect-Protocol-Version": "1", "E2b-Sandbox-Id": sandbox, "E2b-Sandbox-Port": "49983", "X-API-Key": server.key}
    start = json.dumps({"process": {"cmd": "/bin/sleep", "args": ["1000", *["0"] * WORDS]}}, separators=(",", ":")).encode()
    for _ in range(PROCESSES):
        with contextlib.closing(server.connect()) as c:
            c.request("POST", "/process.Process/Start", struct.pack(">BI", 0, len(start)) + start,
                      headers={**envd, "Content-Type": "application/connect+json"})
            assert b'"start"' in c.getresponse().read1(4096)
    worker = server.worker_pids[0]
    before = peak_mb(worker)

    def list_all(_):
        return server.request("POST", "/process.Process/List", b"{}", headers={**envd, "Content-Type": "application/json"}, timeout=120)
    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
        replies = list(pool.map(list_all, range(CLIENTS)))
    grown = peak_mb(worker) - before
    attempt("make a worker unpack many commands", grown > 4 * BUDGET_MB and f"{grown} MB for a budget of {BUDGET_MB} MB")
    replies.append(list_all(0))  # of many at once all may be refused, one alone has room
    assert replies[-1].status == 200 and {r.status for r in replies} <= {200, 429, 503}, {r.status for r in replies}
    whole = {r.body for r in replies if r.status == 200}
    assert len(whole) == 1 and len(json.loads(whole.pop())["processes"]) == PROCESSES, "a list is whole or refused"
    assert server.request("DELETE", f"/sandboxes/{sandbox}").status == 204


@pytest.mark.weak(worker_memory="64G")
def test_one_large_folder_does_not_fill_the_machine(target, attempt):
    """A worker that lists a folder stops at its budget and says so."""
    server = target(workers=1, pool=1, worker_memory=f"{LIST_BUDGET_MB}M")
    sandbox = server.request("POST", "/v2/sandboxes", {"templateID": "base", "timeout": 300}).json["sandboxID"]
    fill = f"import os; os.makedirs('/tmp/many'); [os.close(os.open('/tmp/many/%06d' % i + 'x' * 240, os.O_CREAT)) for i in range({FILES})]"
    server.run(sandbox, f"python3 -c {shlex.quote(fill)}")
    headers = {"Connect-Protocol-Version": "1", "E2b-Sandbox-Id": sandbox, "E2b-Sandbox-Port": "49983", "Content-Type": "application/json"}
    worker = server.worker_pids[0]
    before = peak_mb(worker)
    reply = server.request("POST", "/filesystem.Filesystem/ListDir", json.dumps({"path": "/tmp/many"}).encode(), headers=headers, timeout=120)
    grown = peak_mb(worker) - before
    attempt("make a worker keep a large folder", (reply.status == 200 or grown > 2 * LIST_BUDGET_MB) and f"{grown} MB, {reply.status}")
    assert reply.status in (429, 503), reply
    assert server.worker_pids == [worker]
    assert server.request("DELETE", f"/sandboxes/{sandbox}").status == 204
