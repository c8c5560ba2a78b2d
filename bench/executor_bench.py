#!/usr/bin/env python3
"""Figures of the executor dialect as Markdown: streaming, files against nginx, many streams, many processes, the TCP proxy.

usage: executor_bench.py [--part streaming|files|streams|processes|proxy] [--streams N] [--processes N] [--gib N]
Starts an instance and a plain nginx of its own and stops them again; needs root. Samples of ours and of what they are
compared with are taken in turns.
"""
import argparse
import base64
import concurrent.futures
import contextlib
import http.client
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(TOP, "tests", "system"))
from cove import Server, free_port, read, status_field, wait_for  # noqa: E402
from executor import Executor  # noqa: E402


def table(title, *columns):
    print(f"\n| {' | '.join((title,) + columns)} |\n| {' | '.join('---' for _ in range(1 + len(columns)))} |", flush=True)


def row(*cells):
    print(f"| {' | '.join(str(c) for c in cells)} |", flush=True)


def at(values, part):
    return sorted(values)[min(len(values) - 1, int(len(values) * part))]


def ms(seconds):
    return f"{seconds * 1000:.2f}"


# ------------------------------------------------------------------ streaming

WRITER = """
import os, time
for i in range(1000):
    os.write(1, b"%d\\n" % time.time_ns())
    time.sleep(0.005)
"""


def late(line):
    return (time.time_ns() - int(line)) / 1e9


def streaming(server):
    box = Executor(server, "streaming")
    box.ok("/write_file", path="/tmp/writer.py", content=WRITER)
    table("write() in the sandbox to the line at the client", "p50 ms", "p99 ms", "n")
    with subprocess.Popen([sys.executable, "-c", WRITER], stdout=subprocess.PIPE) as bare:
        times = [late(line) for line in bare.stdout]
    row("a bare pipe, no sandbox", ms(at(times, .5)), ms(at(times, .99)), len(times))
    with box.stream("/run_streaming", {"cmd": "exec python3 /tmp/writer.py"}) as s:
        times = [late(e.data["data"]) for e in s if e.name == "output"]
    row("/run_streaming", ms(at(times, .5)), ms(at(times, .99)), len(times))
    id = box.start("sleep 0.5; exec python3 /tmp/writer.py")
    with box.stream(f"/process_logs_streaming?id={id}", method="GET") as s:
        times = [late(e.data["data"]) for e in s if e.name == "log"]
    row("/process_logs_streaming", ms(at(times, .5)), ms(at(times, .99)), len(times))


# ------------------------------------------------------------------ files

NGINX = """
user root; worker_processes {cpus}; pid {dir}/pid; error_log {dir}/error.log;
events {{ worker_connections 1024; }}
http {{
    access_log off; sendfile on; client_body_temp_path {dir}/body; client_body_buffer_size 256k;
    server {{ listen 127.0.0.1:{port}; client_max_body_size 0; root {dir}/files; location / {{ dav_methods PUT; }} }}
}}
"""


@contextlib.contextmanager
def plain_nginx(directory):
    port = free_port()
    os.makedirs(f"{directory}/files")
    os.makedirs(f"{directory}/body")
    with open(f"{directory}/nginx.conf", "w") as f:
        f.write(NGINX.format(dir=directory, port=port, cpus=os.cpu_count()))
    subprocess.run(["nginx", "-c", f"{directory}/nginx.conf"], check=True, stderr=subprocess.DEVNULL)
    wait_for(lambda: read(f"{directory}/pid"), 5, "nginx")
    try:
        yield port
    finally:
        os.kill(int(read(f"{directory}/pid")), signal.SIGTERM)


class Keeping:
    """One kept connection, as a client's library would have it."""

    def __init__(self, port, headers):
        self.headers, self.c = headers, http.client.HTTPConnection("127.0.0.1", port, timeout=600)

    def ask(self, method, path, body=None):
        began = time.perf_counter()
        self.c.request(method, path, body=body, headers=self.headers)
        reply = self.c.getresponse()
        reply.read()
        assert reply.status in (200, 201, 204), (method, path, reply.status)
        return time.perf_counter() - began


def curl(*args):
    done = subprocess.run(["curl", "-sf", "-o", "/dev/null", "-w", "%{time_total}", *args], check=True, capture_output=True)
    return float(done.stdout)


def in_turns(rounds, *ways):
    """The p50 of each way, its samples taken in turns with the others'."""
    times = [[way() for way in ways] for _ in range(rounds)]
    return [at(column, .5) for column in zip(*times)]


def small_files(box, plain, ours, size, rounds):
    data = os.urandom(size)
    as_json = json.dumps({"path": "/workspace/f", "content": base64.b64encode(data).decode(), "encoding": "base64"})
    for what, ways in {
        "write": (lambda: plain.ask("PUT", "/f", data), lambda: ours.ask("PUT", "/raw_file?path=/workspace/f", data),
                  lambda: ours.ask("POST", "/write_file", as_json)),
        "read": (lambda: plain.ask("GET", "/f"), lambda: ours.ask("GET", "/raw_file?path=/workspace/f"),
                 lambda: ours.ask("POST", "/read_file", '{"path":"/workspace/f","encoding":"base64"}')),
    }.items():
        yield (what, *in_turns(rounds, *ways))


def files(server, directory, gib):
    box = Executor(server, "files")
    box.sh("true")
    big = f"{directory}/big"
    with plain_nginx(f"{directory}/nginx") as port:
        plain, ours = Keeping(port, {}), Keeping(server.http, box.headers)
        table("files, p50", "nginx alone, ms", "raw_file, ms", "ratio", "write_file / read_file (base64), ms", "ratio", "n")
        for size, name, rounds in ((1 << 10, "1 KB", 300), (1 << 20, "1 MB", 60)):
            for what, base, raw, whole in small_files(box, plain, ours, size, rounds):
                row(f"{what} {name}", ms(base), ms(raw), f"{raw / base:.1f}", ms(whole), f"{whole / base:.1f}", rounds)
        with open(big, "wb") as f:
            for _ in range(gib << 10):
                f.write(os.urandom(1 << 20))
        key = f"Authorization: Bearer {box.key}"
        to, frm = f"http://127.0.0.1:{port}/big", f"http://127.0.0.1:{server.http}/raw_file?path=/workspace/big"
        head = ("-H", key, "-H", "X-Project-Id: files")
        for what, base, raw in (
            ("write", lambda: curl("-T", big, to), lambda: curl("-T", big, *head, frm)),
            ("read", lambda: curl(to), lambda: curl(*head, frm)),
        ):
            base, raw = in_turns(5, base, raw)
            row(f"{what} {gib} GB", ms(base), ms(raw), f"{raw / base:.1f}", "", "", 5)
    os.unlink(big)


# ------------------------------------------------------------------ many streams, many processes

def kib_of(pids):
    return sum(int(status_field(p, "VmRSS").split()[0]) for p in pids)


def health(server):
    times = []
    for _ in range(300):
        began = time.perf_counter()
        assert server.request("GET", "/health", key=False).status == 200
        times.append(time.perf_counter() - began)
    return times


def streams(server, count):
    boxes = [Executor(server, f"s{i}") for i in range((count + 499) // 500)]
    ids = [b.start("while [ ! -e /tmp/go ]; do sleep 0.2; done; echo end; sleep 1000") for b in boxes]
    inits = [b.init for b in boxes]
    quiet, before, before_inits = health(server), kib_of(server.worker_pids), kib_of(inits)
    with contextlib.ExitStack() as stack:
        began = time.perf_counter()
        opened = []
        for i in range(count):
            n = i % len(boxes)
            s = stack.enter_context(boxes[n].stream(f"/process_logs_streaming?id={ids[n]}", method="GET"))
            assert s.status == 200, (i, s.status)
            opened.append(s)
        took = time.perf_counter() - began
        busy, after, after_inits = health(server), kib_of(server.worker_pids), kib_of(inits)
        began = time.perf_counter()
        for box in boxes:
            box.sh("touch /tmp/go")
        for s in opened:
            assert next(iter(s)).data["data"] == "end"
        told = time.perf_counter() - began
    table(f"{count} log streams at once", "")
    row("workers' memory per stream, KiB", f"{(after - before) / count:.1f}")
    row("init's memory per stream, KiB", f"{(after_inits - before_inits) / count:.1f}")
    row("opening one, ms", ms(took / count))
    row("/health without them, p50 / p99 ms", f"{ms(at(quiet, .5))} / {ms(at(quiet, .99))}")
    row("/health meanwhile, p50 / p99 ms", f"{ms(at(busy, .5))} / {ms(at(busy, .99))}")
    row("a line to all of them, ms", ms(told))


def processes(server, count):
    box = Executor(server, "processes")
    init = box.init
    table("processes started and finished", "init's memory, KiB", "started per s", "/list_processes, ms", "in the list")
    for i in range(0, count, count // 5):
        began = time.perf_counter()
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            for reply in pool.map(lambda _: box.post("/start_process", cmd=":"), range(count // 5)):
                assert reply.status == 201, reply
        rate = count // 5 / (time.perf_counter() - began)
        began = time.perf_counter()
        listed = box.processes()["processes"]
        row(i + count // 5, kib_of([init]), f"{rate:.0f}", ms(time.perf_counter() - began), len(listed))


# ------------------------------------------------------------------ the TCP proxy

SINK = """
import socket
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind(("127.0.0.1", 7000)); s.listen(64)
while True:
    c, _ = s.accept()
    first = c.recv(1)
    if first == b"e":
        while b := c.recv(64): c.sendall(b)
    else:
        n = 0
        while b := c.recv(1 << 20): n += len(b)
        c.sendall(str(n).encode())
    c.close()
"""


def push(port, total=1 << 30):
    chunk = bytes(1 << 20)
    with socket.create_connection(("127.0.0.1", port)) as s:
        began = time.perf_counter()
        s.sendall(b"p")
        for _ in range(total >> 20):
            s.sendall(chunk)
        s.shutdown(socket.SHUT_WR)
        assert int(s.recv(64)) == total
        return time.perf_counter() - began


def ping(port, count=2000):
    with socket.create_connection(("127.0.0.1", port)) as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        s.sendall(b"e")
        times = []
        for _ in range(count):
            began = time.perf_counter()
            s.sendall(b"x")
            s.recv(1)
            times.append(time.perf_counter() - began)
        return at(times, .5)


def proxy(server):
    box = Executor(server, "default")
    through, direct = int(server.settings["proxy_port"]), free_port()
    box.ok("/write_file", path="/tmp/sink.py", content=SINK)
    box.start("python3 /tmp/sink.py")
    box.ok("/bind_port", port="7000")
    sink = subprocess.Popen([sys.executable, "-c", SINK.replace("7000", str(direct))])

    def answers(port):
        with contextlib.suppress(OSError):
            return ping(port, 1)

    try:
        wait_for(lambda: answers(through) and answers(direct), 10, "both servers")
        table("TCP", "direct", "through the gate", "ratio")
        a, b = in_turns(5, lambda: push(direct), lambda: push(through))
        row("1 GB in, MB/s", f"{1074 / a:.0f}", f"{1074 / b:.0f}", f"{b / a:.2f}")
        a, b = in_turns(5, lambda: ping(direct), lambda: ping(through))
        row("a byte there and back, ms", f"{a * 1000:.3f}", f"{b * 1000:.3f}", f"{b / a:.2f}")
    finally:
        sink.kill()
        sink.wait()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--part")
    parser.add_argument("--streams", type=int, default=2000)
    parser.add_argument("--processes", type=int, default=10000)
    parser.add_argument("--gib", type=int, default=1)
    args = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    threading.stack_size(512 * 1024)
    directory = tempfile.mkdtemp(prefix="cove-bench-")
    server = Server(f"{directory}/cove", proxy_port=free_port(), workers=2, tenant_threads=100, pids_max=2048, pool=2,
                    threads=min(4096, args.streams + 100)).up()  # either worker may get them all
    print(f"\nThe executor dialect, {time.strftime('%Y-%m-%d')}; load average at the start: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cpus.")
    parts = {
        "streaming": lambda: streaming(server),
        "files": lambda: files(server, directory, args.gib),
        "streams": lambda: streams(server, args.streams),
        "processes": lambda: processes(server, args.processes),
        "proxy": lambda: proxy(server),
    }
    try:
        for name, part in parts.items():
            if args.part in (None, name):
                part()
    finally:
        server.down()
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
