#!/usr/bin/env python3
"""Noisy neighbour: what one sandbox at full tilt does to the latency of another's commands.

    ./quickstart up && bench/noisy.py [DIR]       DIR: the instance's directory, .cove by default

A figure, not a test: it depends on the machine. Prints a Markdown table: p50 and p95 of `true` in a quiet sandbox beside each
load, p50 alone right before it, and the ratio of the two; each the median of three passes. The aim is 2x.
"""
import http.client
import json
import os
import statistics
import sys
import threading
import time

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PASSES, ROUNDS, SETTLE_SECONDS = 3, 40, 2.5  # a busy sandbox steps back after a second or two

PYTHON_LOADS = {
    "memory": "while 1:\n try:\n  a=[]\n  while 1: a.append(bytearray(1<<20))\n except MemoryError: pass",
    "open files": "import os\nwhile 1:\n f=[]\n try:\n  while 1: f.append(os.open('/dev/null',0))\n except OSError: [os.close(x) for x in f]",
    "pipes": "import os\nwhile 1:\n f=[]\n try:\n  while 1:\n   r,w=os.pipe(); f+=[r,w]; os.set_blocking(w,False); os.write(w,b'x'*65536)\n except OSError: [os.close(x) for x in f]",
    "sockets": "import socket\nwhile 1:\n s=[]\n try:\n  while 1: s+=socket.socketpair()\n except OSError: [x.close() for x in s]",
    "inotify": "import ctypes,os\nc=ctypes.CDLL(None)\nwhile 1:\n f=[]\n while (n:=c.inotify_init())>=0: f.append(n); c.inotify_add_watch(n,b'/tmp',4095)\n [os.close(x) for x in f]",
    "inodes": "import os\nn=0\nwhile 1:\n try:\n  open(f'/tmp/n{n}','w').close(); n+=1\n except OSError:\n  [os.unlink(f'/tmp/n{i}') for i in range(n)]; n=0",
}
LOADS = {
    "cpu": "for i in 1 2 3 4 5 6 7 8; do while :; do :; done & done; wait",
    "forks": "while :; do /bin/true & /bin/true & /bin/true & wait; done",
    "fork bomb": "b() { b & b & wait; }; b",
    "disk": "while :; do head -c 500M /dev/zero > /tmp/x; rm /tmp/x; done",
    "output": "yes > /dev/stderr & yes",
    **{name: f"python3 -c {json.dumps(code)}" for name, code in PYTHON_LOADS.items()},
}


class Client:
    def __init__(self, env):
        self.env = env
        self.address = env["COVE_URL"].split("//")[1]

    def post(self, path, body, timeout=120):
        c = http.client.HTTPConnection(self.address, timeout=timeout)
        c.request("POST", path, json.dumps(body), {"X-API-Key": self.env["COVE_KEY"]})
        reply = c.getresponse().read()
        c.close()
        return reply

    def run(self, project, command):
        return self.post("/execute", {"projectId": project, "commands": [command]})


def latencies(client):
    out = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        client.run("quiet", "true")
        out.append((time.perf_counter() - began) * 1000)
    out.sort()
    return statistics.median(out), out[int(len(out) * 0.95)]


def beside(client, command):
    """Latencies in the quiet sandbox while another one is at this."""
    script = f"cat > /tmp/load.sh <<'LOAD'\n{command}\nLOAD\ntimeout 40 bash /tmp/load.sh"
    threading.Thread(target=lambda: client.run("noisy", script), daemon=True).start()
    time.sleep(SETTLE_SECONDS)
    found = latencies(client)
    client.post("/cleanup", {"projectId": "noisy"})
    return found


def main():
    directory = sys.argv[1] if len(sys.argv) > 1 else f"{TOP}/.cove"
    with open(f"{directory}/env") as f:
        client = Client(dict(line.removeprefix("export ").strip().split("=", 1) for line in f if line.startswith("export ")))
    latencies(client)  # warm up
    measured = {name: [] for name in LOADS}
    for _ in range(PASSES):  # in turns, so that whatever else the machine does hits all alike
        for name, command in LOADS.items():
            alone, _ = latencies(client)
            measured[name].append((alone, *beside(client, command)))
    print("| load | p50 ms | p95 ms | p50 alone, just before | ratio |\n| --- | --- | --- | --- | --- |")
    for name, rows in measured.items():
        alone, p50, p95 = (statistics.median(column) for column in zip(*rows))
        ratio = statistics.median(row[1] / row[0] for row in rows)
        print(f"| {name} | {p50:.1f} | {p95:.1f} | {alone:.1f} | {ratio:.1f} |")
    client.post("/cleanup", {"projectId": "quiet"})


if __name__ == "__main__":
    main()
