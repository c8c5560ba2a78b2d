"""Replies that outweigh their bytes: what a worker keeps in memory has a bound over all requests together."""
import concurrent.futures

import pytest

from cove import status_field

CLIENTS, BUDGET_MB, REPLY_BYTES = 40, 32, 6_000_000


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
