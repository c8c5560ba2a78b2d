"""Requests that are costly to judge: what one of them takes has a bound, and ends with its client."""
import json
import os
import re
import socket

import pytest

from cove import read, wait_for

# Three million commands, each judged in no time; seven megabytes of them took 14.6 s of a worker before there was a bound.
LARGE = {"projectId": "p", "commands": ["a;" * 3900] * 900 + ["rm -rf /"]}
CPU_MS_MAX = 2000  # max-time of the policy (500 ms), and reading seven megabytes


def cpu_ms(pid):
    """Processor time that a process has used, its threads together."""
    fields = re.sub(r"^.*\) ", "", read(f"/proc/{pid}/stat")).split()
    return (int(fields[11]) + int(fields[12])) * 1000 // os.sysconf("SC_CLK_TCK")


def without_bounds(server):
    path = server.config["policy_file"]
    text = read(path)
    with open(path, "w") as f:
        f.write(re.sub(r"(?m)^max-t.*$", "", text) + "\n[*]\nmax-text = 64M\nmax-time = 60s\n")
    wait_for(lambda: any(x["event"] == "policy loaded" and x["generation"] > 1 for x in server.log_lines()), 10, "the policy")


@pytest.mark.weak(by=without_bounds)
def test_seven_megabytes_of_commands_cost_no_more_than_the_bound(target, attempt):
    server = target(workers=1, pool=1)
    assert server.execute("p", "true").status == 200
    worker = server.worker_pids[0]
    before = cpu_ms(worker)
    reply = server.post("/execute", LARGE, timeout=120)
    used = cpu_ms(worker) - before
    attempt("make judging one request take long", f"{used} ms of a processor" if used > CPU_MS_MAX else None)
    assert reply.status == 400 and "max-text" in reply.body.decode(), reply


def left_line(server):
    return [x for x in server.log_lines() if x["event"] == "request" and x["path"] == "/execute" and x["status"] == 499]


def test_judging_ends_when_the_client_has_left(make_server, attempt):
    server = make_server(workers=1, pool=1)
    without_bounds(server)
    body = json.dumps(LARGE).encode()
    head = (f"POST /execute HTTP/1.1\r\nHost: localhost\r\nX-API-Key: {server.key}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n").encode()
    worker = server.worker_pids[0]
    with socket.create_connection(("127.0.0.1", server.http)) as s:
        s.sendall(head + body)
        before = cpu_ms(worker)
        wait_for(lambda: cpu_ms(worker) > before + 300, 30, "the judging")
    wait_for(lambda: left_line(server), 30, "the line that tells of a client that left")
    used = cpu_ms(worker) - before
    attempt("make a worker judge for nobody", f"{used} ms of a processor" if used > CPU_MS_MAX else None)
