#!/usr/bin/env python3
"""Figures of the executor dialect: streaming latency, many streams, files, the TCP proxy.

usage: executor_bench.py [--streams N] [--streams-only]    starts an instance of its own and stops it again; needs root
"""
import argparse
import contextlib
import os
import resource
import socket
import sys
import tempfile
import threading
import time

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(TOP, "tests", "system"))
from cove import Server, free_port, status_field, wait_for  # noqa: E402
from executor import Executor  # noqa: E402


def show(what, figure):
    print(f"{what:<58} {figure}", flush=True)


def percentiles(values, unit="ms", factor=1e-6):
    values = sorted(values)
    return f"p50 {values[len(values) // 2] * factor:.2f} {unit}, p99 {values[len(values) * 99 // 100] * factor:.2f} {unit}"


def latency(box):
    cmd = "for i in $(seq 300); do date +%s%N; sleep 0.01; done"
    late = []
    with box.stream("/run_streaming", {"cmd": cmd}) as s:
        for e in s:
            if e.name == "output":
                late.append(time.time_ns() - int(e.data["data"]))
    show("write in the sandbox to line at the client (run)", percentiles(late))
    id = box.start("sleep 0.3; " + cmd)
    late = []
    with box.stream(f"/process_logs_streaming?id={id}", method="GET") as s:
        for e in s:
            if e.name == "log":
                late.append(time.time_ns() - int(e.data["data"]))
    show("write in the sandbox to line at the client (logs)", percentiles(late))


def workers_kib(server):
    return sum(int(status_field(p, "VmRSS").split()[0]) for p in server.worker_pids)


def health(server):
    times = []
    for _ in range(200):
        began = time.perf_counter_ns()
        assert server.request("GET", "/health", key=False).status == 200
        times.append(time.perf_counter_ns() - began)
    return percentiles(times)


def many_streams(server, count):
    boxes = [Executor(server, f"s{i}") for i in range((count + 499) // 500)]
    ids = [b.start("sleep 1000") for b in boxes]
    before = workers_kib(server)
    show("/health, no streams", health(server))
    with contextlib.ExitStack() as stack:
        for i in range(count):
            n = i % len(boxes)
            s = stack.enter_context(boxes[n].stream(f"/process_logs_streaming?id={ids[n]}", method="GET"))
            assert s.status == 200, s.status
        show(f"{count} log streams: workers' memory per stream", f"{(workers_kib(server) - before) / count:.1f} KiB")
        show(f"/health, {count} streams", health(server))


def files(box):
    for size, name in ((1 << 10, "1 KB"), (1 << 20, "1 MB"), (1 << 30, "1 GB")):
        data = os.urandom(1 << 20) * (size >> 20) if size > 1 << 20 else os.urandom(size)
        rounds = 1 if size > 1 << 20 else 100
        began = time.perf_counter()
        for _ in range(rounds):
            assert box.request("PUT", "/raw_file?path=/tmp/f", data).status == 200
        put = (time.perf_counter() - began) / rounds
        began = time.perf_counter()
        for _ in range(rounds):
            assert len(box.request("GET", "/raw_file?path=/tmp/f").body) == size
        get = (time.perf_counter() - began) / rounds
        show(f"raw_file {name}: PUT, GET", f"{put * 1000:.2f} ms, {get * 1000:.2f} ms ({size / get / 1e6:.0f} MB/s)")
    box.ok("/delete_file", path="/tmp/f")


SINK = """
import socket
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind(("127.0.0.1", 7000)); s.listen(64)
while True:
    c, _ = s.accept()
    n = 0
    while b := c.recv(1 << 20): n += len(b)
    c.sendall(str(n).encode()); c.close()
"""


def push(port, total=1 << 30):
    chunk = bytes(1 << 20)
    with socket.create_connection(("127.0.0.1", port)) as s:
        began = time.perf_counter()
        for _ in range(total >> 20):
            s.sendall(chunk)
        s.shutdown(socket.SHUT_WR)
        assert int(s.recv(64)) == total
        return total / (time.perf_counter() - began) / 1e6


def proxy(box, port):
    box.ok("/write_file", path="/tmp/sink.py", content=SINK)
    box.start("python3 /tmp/sink.py")
    time.sleep(1)
    box.ok("/bind_port", port="7000")
    namespace = {}
    direct_port = free_port()
    threading.Thread(target=exec, args=(SINK.replace("7000", str(direct_port)), namespace), daemon=True).start()
    time.sleep(0.3)
    show("TCP: direct loopback, through the gate", f"{push(direct_port):.0f} MB/s, {push(port):.0f} MB/s")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--streams", type=int, default=500)
    parser.add_argument("--streams-only", action="store_true")
    args = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    server = Server(tempfile.mkdtemp(prefix="cove-bench-"), proxy_port=free_port(), workers=2,
                    threads=min(4096, args.streams + 200), pool=2).up()
    try:
        box = Executor(server, "default")
        box.sh("true")
        if not args.streams_only:
            latency(box)
            files(box)
            proxy(box, int(server.settings["proxy_port"]))
        many_streams(server, args.streams)
    finally:
        server.down()


if __name__ == "__main__":
    main()
