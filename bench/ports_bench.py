#!/usr/bin/env python3
"""What a port's host name costs: one app, once in a sandbox behind nginx and the gate, once beside it behind a plain nginx, in turns.

    bench/ports_bench.py [SECONDS]       starts and stops an instance, a plain nginx and the app of its own

A figure, not a test: it depends on the machine. Prints Markdown tables: requests of 1 KB, 1 GB down and up, a WebSocket's round trip, 5,000 idle
WebSockets, and the first answer of a paused sandbox.
"""
import contextlib
import os
import re
import resource
import socket
import subprocess
import sys
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, f"{TOP}/tests/system")
from cove import Server, all_pids, free_port, new_dir, read, status_field, stop, title, wait_for  # noqa: E402
from executor import Executor  # noqa: E402
from websocket import BINARY, WebSocket, frame  # noqa: E402

GIGABYTE = 1 << 30
IDLE = 5000
ROUNDS = 3  # of requests, in turns; the median of each figure counts

# Node without packages: 1 KB, a stream of any size, a body that is counted, and an echo of short WebSocket frames.
APP = r"""
const http = require('http'), crypto = require('crypto')
const small = Buffer.alloc(1024, 'x'), chunk = Buffer.alloc(1 << 20, 'x')
const server = http.createServer((req, res) => {
  if (req.method === 'PUT') {
    let n = 0
    req.on('data', d => { n += d.length }).on('end', () => res.end(String(n)))
  } else if (req.url.startsWith('/bytes/')) {
    let left = +req.url.slice(7)
    res.writeHead(200, { 'Content-Length': left })
    const more = () => {
      while (left > 0) {
        left -= chunk.length
        if (!res.write(chunk)) return void res.once('drain', more)
      }
      res.end()
    }
    more()
  } else res.end(small)
})
server.on('upgrade', (req, s) => {
  s.setNoDelay(true)
  s.on('error', () => {})
  const key = crypto.createHash('sha1').update(req.headers['sec-websocket-key'] + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11').digest('base64')
  s.write('HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ' + key + '\r\n\r\n')
  s.on('data', d => {
    const n = d[1] & 127, out = Buffer.alloc(2 + n)
    out[0] = d[0]; out[1] = n
    for (let i = 0; i < n; i++) out[2 + i] = d[6 + i] ^ d[2 + (i & 3)]
    s.write(out)
  })
})
server.listen(+process.argv[2], '127.0.0.1', 4096)
"""

PLAIN = """
worker_processes auto; pid {dir}/pid; error_log {dir}/error.log; worker_rlimit_nofile 65536;
events {{ worker_connections 20000; }}
http {{ access_log off; client_max_body_size 0; client_body_temp_path {dir}/b; proxy_temp_path {dir}/p; fastcgi_temp_path {dir}/f; uwsgi_temp_path {dir}/u;
scgi_temp_path {dir}/s;
map $http_upgrade $way {{ default upgrade; "" close; }} {small}
server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://127.0.0.1:{app}; proxy_http_version 1.1; proxy_set_header Upgrade $http_upgrade;
proxy_set_header Connection $way; proxy_buffering off; proxy_request_buffering off; proxy_read_timeout 1h; }} }} }}
"""
# How little nginx can hold for a WebSocket that it passes on: buffers in which hardly a reply's head has room, the smallest pools.
SMALLEST = "proxy_buffer_size 512; proxy_buffers 4 512; client_header_buffer_size 512; connection_pool_size 256; request_pool_size 1k;"
# The same with the buffers that cove has for the head of an app's reply to a WebSocket.
AS_OURS = "proxy_buffer_size 2k; proxy_buffers 4 2k;"


def children_of(pids):
    parents = {str(pid) for pid in pids}
    return [pid for pid in all_pids() if status_field(pid, "PPid") in parents]


class Side:
    """One of the two ways to the app."""

    def __init__(self, name, port, host, token=None, places=None):
        self.name, self.http, self.host, self.token, self.places = name, port, host, token, places

    @property
    def headers(self):
        return {"X-Access-Token": self.token} if self.token else {}

    def curl(self, *args):
        given = [x for k, v in {"Host": self.host, **self.headers}.items() for x in ("-H", f"{k}: {v}")]
        return subprocess.run(["curl", "-sS", "-o", "/dev/null", "-w", "%{time_total}", *given, *args], check=True, text=True,
                              stdout=subprocess.PIPE).stdout

    def url(self, path):
        return f"http://127.0.0.1:{self.http}{path}"

    def socket(self):
        return WebSocket(self, "/", self.headers, host=self.host, timeout=60)


@contextlib.contextmanager
def plain_side(name="plain nginx", small=""):
    with tempfile.TemporaryDirectory() as d:
        app, port = free_port(), free_port()
        with open(f"{d}/app.cjs", "w") as f:
            f.write(APP)
        with open(f"{d}/nginx.conf", "w") as f:
            f.write(PLAIN.format(dir=d, port=port, app=app, small=small))
        node = subprocess.Popen(["node", f"{d}/app.cjs", str(app)])
        nginx = subprocess.Popen(["nginx", "-p", d, "-c", f"{d}/nginx.conf", "-e", f"{d}/error.log", "-g", "daemon off;"])
        try:
            for p in (app, port):
                wait_for(lambda p=p: socket.socket().connect_ex(("127.0.0.1", p)) == 0, 20, f"port {p}")
            yield Side(name, port, "127.0.0.1", places={"nginx": lambda: children_of([nginx.pid])})
        finally:
            nginx.terminate()
            node.terminate()
            nginx.wait()
            node.wait()


@contextlib.contextmanager
def sandbox_side():
    server = Server(new_dir(), pool=1, memory_max="1G", open_files_max=16384, port_connections=20000, tenant_connections=20000).up("--set", "lifetime=2h")
    try:
        box = Executor(server, "bench")
        box.ok("/write_file", path="/tmp/app.cjs", content=APP)
        box.ok("/start_process", cmd="node /tmp/app.cjs 8000")
        wait_for(lambda: ":1F40" in box.sh("cat /proc/net/tcp"), 20, "the app")
        id = server.execute("bench", "true").id
        places = {"nginx": lambda: children_of(pid for pid in all_pids() if "nginx" in title(pid) and server.dir in title(pid)),
                  "gate": lambda: server.titles("cove: gate"),
                  "init": lambda: [pid for pid in server.titles("cove: init") if id in title(pid)]}
        yield Side("sandbox", server.http, f"8000-{id}.localhost", server.key, places), server, id
    finally:
        stop(server)


def wrk(side, seconds):
    given = [x for k, v in {"Host": side.host, **side.headers}.items() for x in ("-H", f"{k}: {v}")]
    out = subprocess.run(["wrk", "-t1", "-c16", f"-d{seconds}s", "--latency", *given, side.url("/")], check=True, text=True,
                         stdout=subprocess.PIPE).stdout
    scale = {"us": 1e-3, "ms": 1, "s": 1e3}
    figure = lambda name: (lambda m: float(m[1]) * scale[m[2]])(re.search(rf"{name}\s+([\d.]+)(us|ms|s)", out))
    return float(re.search(r"Requests/sec:\s+([\d.]+)", out)[1]), figure("50%"), figure("99%")


def round_trip(side, seconds):
    times = []
    with side.socket() as ws:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            begin = time.perf_counter()
            ws.raw(frame(BINARY, b"x" * 32))
            ws.read_frame()
            times.append((time.perf_counter() - begin) * 1e3)
    times.sort()
    return times[len(times) // 2], times[len(times) * 99 // 100]


def pss(pids):
    """Proportional memory of processes, in KiB."""
    return sum(int(x) for pid in pids for x in re.findall(r"^Pss:\s+(\d+)", read(f"/proc/{pid}/smaps_rollup"), re.M))


# A connection's ends: the client's, nginx's, those of nginx and the gate on the unix socket between them, the gate's and the app's inside the
# sandbox. The kernel holds for each the socket, an inode, a file, a directory entry, and an item of epoll where the end is waited for. Caches
# of equal size are merged (UNIX with signal_cache, say), so others' objects may be counted with them.
KINDS = ("TCP", "UNIX", "sock_inode_cache", "filp", "dentry", "eventpoll_epi", "ep_head", "lsm_inode_cache", "lsm_file_cache")


def objects():
    """How many objects of each kind the kernel holds, and the size of one: {kind: (count, bytes)}. 0 where there is no such kind."""
    def figure(kind, name):
        with contextlib.suppress(OSError):
            return int(read(f"/sys/kernel/slab/{kind}/{name}").split()[0])
        return 0

    return {kind: (figure(kind, "objects"), figure(kind, "slab_size")) for kind in KINDS}


def end_size(family, sizes):
    """KiB that the kernel holds for one end of a connection that is in no epoll: that of this benchmark's client."""
    return sum(sizes[kind][1] for kind in (family, "sock_inode_cache", "filp", "dentry", "lsm_inode_cache", "lsm_file_cache")) / 1024


def memory(side):
    """KiB by process."""
    return {name: pss(pids()) for name, pids in side.places.items()}


def idle_sockets(side, count):
    """KiB for each socket, by process and by kind of the kernel's objects; and how long a request beside them takes, in ms."""
    before, kinds, held = memory(side), objects(), []
    try:
        for _ in range(count):
            held.append(side.socket())
        after, more = memory(side), objects()
        begin = time.perf_counter()
        side.curl(side.url("/"))
        other = (time.perf_counter() - begin) * 1e3
        return ({place: (after[place] - before[place]) / count for place in after},
                {kind: (more[kind][0] - kinds[kind][0]) * more[kind][1] / 1024 / count for kind in KINDS}, other)
    finally:
        for ws in held:
            ws.close()


def idle_tables(sides, count):
    """The client is this script: its end is in the kernel's figures, and is taken off in the last columns. Memory of the app and of the client is
    in no figure."""
    rows = [(s.name, *idle_sockets(s, count)) for s in sides]
    client = end_size("TCP", objects())
    print(f"| {count} idle WebSockets, KiB for each | nginx | gate | init | kernel, all ends | of it the client's | the server's in all |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, each, kinds, _ in rows:
        kernel = sum(kinds.values())
        print(f"| {name} | " + " | ".join(f"{each.get(x, 0):.1f}" for x in ("nginx", "gate", "init")) +
              f" | {kernel:.1f} | {client:.1f} | {sum(each.values()) + kernel - client:.1f} |")
    print("\n| of the kernel, KiB for each | " + " | ".join(KINDS) + " |\n" + "| --- " * (len(KINDS) + 1) + "|")
    for name, _, kinds, _ in rows:
        print(f"| {name} | " + " | ".join(f"{kinds[x]:.2f}" for x in KINDS) + " |")
    return rows[-1][3]


def first_answer(side, server, id, rounds=10):
    times = []
    for _ in range(rounds):
        assert server.request("POST", f"/sandboxes/{id}/pause", {}).status in (200, 204)
        times.append(float(side.curl(side.url("/"))) * 1e3)
    return sorted(times)[rounds // 2]


def main():
    seconds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    size = GIGABYTE if seconds >= 5 else GIGABYTE >> 6
    with plain_side() as plain, sandbox_side() as (inside, server, id):
        sides = (plain, inside)
        rows = {s.name: [] for s in sides}
        for _ in range(ROUNDS):
            for s in sides:
                rows[s.name].append(wrk(s, seconds))
        rows = {name: [sorted(column)[ROUNDS // 2] for column in zip(*row)] for name, row in rows.items()}
        print("| 1 KB, 16 connections | per s | p50 ms | p99 ms |\n| --- | --- | --- | --- |")
        for name, row in rows.items():
            print(f"| {name} | {row[0]:.0f} | {row[1]:.2f} | {row[2]:.2f} |")
        print(f"| ratio | {rows['sandbox'][0] / rows['plain nginx'][0]:.2f} | {rows['sandbox'][1] / rows['plain nginx'][1]:.2f} | "
              f"{rows['sandbox'][2] / rows['plain nginx'][2]:.2f} |\n")
        print(f"| {size >> 20} MB | plain nginx MB/s | sandbox MB/s | ratio |\n| --- | --- | --- | --- |")
        down = [size / float(s.curl(s.url(f"/bytes/{size}"))) / 1e6 for s in sides]
        with tempfile.NamedTemporaryFile() as f:
            f.truncate(size)
            up = [size / float(s.curl("-T", f.name, s.url("/up"))) / 1e6 for s in sides]
        for what, (a, b) in (("down", down), ("up", up)):
            print(f"| {what} | {a:.0f} | {b:.0f} | {b / a:.2f} |")
        print("\n| WebSocket round trip, 32 bytes | p50 ms | p99 ms |\n| --- | --- | --- |")
        trips = [round_trip(s, seconds) for s in sides]
        for s, trip in zip(sides, trips):
            print(f"| {s.name} | {trip[0]:.3f} | {trip[1]:.3f} |")
        print(f"| ratio | {trips[1][0] / trips[0][0]:.2f} | |\n")
        count = IDLE if seconds >= 5 else 200
        with plain_side("plain nginx, buffers as cove's", AS_OURS) as same, plain_side("plain nginx, the smallest", SMALLEST) as smallest:
            other = idle_tables((plain, same, smallest, inside), count)
        print("\n| | |\n| --- | --- |")
        print(f"| a request beside them | {other:.1f} ms |")
        print(f"| first answer of a paused sandbox, p50 | {first_answer(inside, server, id):.1f} ms |")


if __name__ == "__main__":
    main()
