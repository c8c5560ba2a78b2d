#!/usr/bin/env python3
"""Does the time of an answer tell whether a sandbox of another tenant exists?

    bench/tell.py [ROUNDS]        starts and stops an instance of its own; 2,000 rounds by default

For each call of the table: the same request with the id of another tenant's living sandbox, with one id that nobody has, and with a second such id,
in turns, over one connection. The answers must be alike but for the id. The difference of the medians of "foreign" and "unknown" says something only
when it is larger than that of the two unknown ones, which is the noise. A figure, not a test: it depends on the machine.
"""
import json
import os
import random
import statistics
import sys
import time

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, f"{TOP}/tests/system")
from cove import Server, new_dir, stop  # noqa: E402

CALLS = {  # what the row says: method, path, body
    "e2b: get": ("GET", "/sandboxes/{id}", None),
    "e2b: kill": ("DELETE", "/sandboxes/{id}", None),
    "e2b: timeout": ("POST", "/sandboxes/{id}/timeout", {"timeout": 60}),
    "e2b: refreshes": ("POST", "/sandboxes/{id}/refreshes", {"duration": 60}),
    "e2b: connect": ("POST", "/v2/sandboxes/{id}/connect", {"timeout": 60}),
    "e2b: pause": ("POST", "/sandboxes/{id}/pause", {}),
    "e2b: resume": ("POST", "/sandboxes/{id}/resume", {"timeout": 60}),
    "e2b: network": ("PUT", "/sandboxes/{id}/network", {"allowOut": ["192.0.2.1"]}),
    "e2b: metrics": ("GET", "/sandboxes/{id}/metrics", None),
    "e2b: logs": ("GET", "/v2/sandboxes/{id}/logs", None),
    "e2b: fork": ("POST", "/sandboxes/{id}/fork", {"count": 1}),
    "e2b: snapshot": ("POST", "/sandboxes/{id}/snapshots", {}),
    "agent: status": ("GET", "/api/v1/agent/sandboxes/{id}/status", None),
    "agent: command": ("POST", "/api/v1/agent/sandboxes/run-cmd", {"sandbox_id": "{id}", "command": "true"}),
    "console: files": ("GET", "/console/api/sandboxes/{id}/files?path=/", None),
}


def ask(connection, key, call, box):
    method, path, body = call
    headers = {"X-API-Key": key, **({"Content-Type": "application/json"} if body is not None else {})}
    body = json.dumps(body).replace("{id}", box) if body is not None else None
    path = path.replace("{id}", box)
    begin = time.perf_counter()
    connection.request(method, path, body=body, headers=headers)
    reply = connection.getresponse()
    text = reply.read()
    return time.perf_counter() - begin, reply.status, text.replace(box.encode(), b"ID")


def measure(server, name, key, ids, rounds):
    took, answers = {kind: [] for kind in ids}, {kind: set() for kind in ids}
    connection = server.connect(60)
    order = list(ids)
    for _ in range(rounds):
        random.shuffle(order)
        for kind in order:
            seconds, status, text = ask(connection, key, CALLS[name], ids[kind])
            took[kind].append(seconds * 1e6)
            answers[kind].add((status, text))
    connection.close()
    foreign, unknown, again = (statistics.median(took[kind]) for kind in ids)
    alike = "yes" if answers["foreign"] == answers["unknown"] and len(answers["foreign"]) == 1 else "NO"
    print(f"| {name} | {'/'.join(str(s) for s in sorted({s for s, _ in answers['foreign']}))} | {alike} | {unknown:.0f} | {foreign - unknown:+.1f} | {again - unknown:+.1f} |", flush=True)
    if alike == "NO":
        print(f"  {sorted(answers['foreign'])[:2]}\n  {sorted(answers['unknown'])[:2]}", file=sys.stderr)


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    server = Server(new_dir(), pool=1, workers=1).up()
    try:
        stranger = server.add_key("stranger")
        box = server.post("/sandboxes", {"templateID": "base", "timeout": 3600}).json["sandboxID"]
        made_up = lambda: "".join(random.choice("abcdefghijklmnopqrstuvwxyz0123456789") for _ in box)
        ids = {"foreign": box, "unknown": made_up(), "again": made_up()}
        print("| call, by a stranger's key | status | alike | unknown us | foreign - unknown us | another unknown - unknown us |\n| --- | --- | --- | --- | --- | --- |")
        for name in CALLS:
            measure(server, name, stranger, ids, rounds)
    finally:
        stop(server)


if __name__ == "__main__":
    main()
