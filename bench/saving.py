#!/usr/bin/env python3
"""What pausing to storage costs: save and wake by size, against `tar -C upper -c . | zstd -1` of the same tree and `tar --zstd -x` of its archive.

    bench/saving.py [ROUNDS [local|s3|freeze]...]        starts and stops instances of its own; a third of the rounds for 1 GB

With COVE_CLIENTS_MODULES (the node_modules that ./quickstart test --only clients installs) the same goes through an S3 server on this machine:
from the pause until all of it is in the bucket and was read back, and waking it from there.

Last, pausing in memory: how long the keeper takes to answer that a sandbox stands still, and that it goes on.

A figure, not a test: it depends on the machine. Prints a Markdown table; the aim is at most 1.3 times tar and zstd.
"""
import os
import statistics
import subprocess
import sys
import time

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [f"{TOP}/tests/system", f"{TOP}/tests/clients"]
from bucket import Bucket  # noqa: E402
from cove import Server, new_dir, stop, wait_for  # noqa: E402
from test_pause import ask as ask_pause  # noqa: E402
from test_saving import bare, save, wake  # noqa: E402

TREES = {  # what the row says, and the command that makes it: half of the bytes can be compressed
    "1 MB": "head -c 500000 /dev/urandom >/workspace/a; yes | head -c 500000 >/workspace/b",
    "100 MB": "head -c 50000000 /dev/urandom >/workspace/a; yes | head -c 50000000 >/workspace/b",
    "1 GB": "head -c 500000000 /dev/urandom >/workspace/a; yes | head -c 500000000 >/workspace/b",
    "10,000 small files": "cd /workspace; for i in $(seq 10000); do echo $i >f$i; done",
}


PLAIN = {}  # by name of the tree: seconds of tar and zstd without cove, to pack and to unpack


def seconds(call):
    begin = time.perf_counter()
    assert call() in (True, 0)
    return time.perf_counter() - begin


def plain(tree):
    return subprocess.run(f"tar -C {tree} -c . | zstd -1 -q >{tree}/../plain.zst && sync {tree}/../plain.zst", shell=True).returncode


def measure(server, name, command, rounds):
    box = bare(server.execute("bench", command, timeout=120))
    tree = f"{server.dir}/plain-tree"
    saves, wakes, plains, unpacks = [], [], [], []
    for _ in range(rounds):
        saves.append(seconds(lambda: save(server, box, timeout=600)))
        subprocess.run(["mkdir", "-p", tree], check=True)
        unpacks.append(seconds(lambda: subprocess.run(["tar", "--zstd", "-xf", f"{server.dir}/state/saved/{box}/archive.tar.zst", "-C", tree]).returncode))
        plains.append(seconds(lambda: plain(tree)))
        wakes.append(seconds(lambda: wake(server, box, timeout=600)))
        subprocess.run(["rm", "-r", tree], check=True)
    server.cleanup("bench")
    s, w, p, u = (statistics.median(v) for v in (saves, wakes, plains, unpacks))
    PLAIN[name] = p, u
    print(f"| {name} | {s * 1e3:.0f} | {p * 1e3:.0f} | {s / p:.2f} | {w * 1e3:.0f} | {u * 1e3:.0f} | {w / u:.2f} |", flush=True)


def measure_bucket(server, name, command, rounds):
    box = bare(server.execute("bench", command, timeout=120))
    saves, wakes = [], []
    for _ in range(rounds):
        saves.append(seconds(lambda: save(server, box, timeout=600) and
                             bool(wait_for(lambda: os.path.exists(f"{server.dir}/state/saved/{box}/bucket"), 600, "it to be in the bucket"))))
        wakes.append(seconds(lambda: wake(server, box, timeout=600)))
    server.cleanup("bench")
    s, w = statistics.median(saves), statistics.median(wakes)
    to_plain = f"{s / PLAIN[name][0]:.2f} | {w / PLAIN[name][1]:.2f}" if name in PLAIN else "- | -"
    print(f"| {name} | {s * 1e3:.0f} | {w * 1e3:.0f} | {to_plain} |", flush=True)


def rounds_of(name, rounds):
    return max(1, rounds // 3) if "GB" in name else rounds


def freeze_and_thaw(times=500):
    server = Server(new_dir(), pool=1, workers=1, command_timeout="2m").up()
    try:
        box = bare(server.execute("bench", "for i in 1 2 3 4 5 6 7 8; do sleep 1000 & done; (while :; do sleep 0.01; done) & true"))
        print("\n| in memory | p50 ms | p99 ms | max ms |\n| --- | --- | --- | --- |")
        took = {"FREEZE": [], "THAW": []}
        for _ in range(times):
            for call, all_of_it in took.items():
                all_of_it.append(seconds(lambda: ask_pause(server, call, box)) * 1e3)
        for call, all_of_it in took.items():
            all_of_it.sort()
            print(f"| {call.lower()} | {all_of_it[times // 2]:.2f} | {all_of_it[times * 99 // 100]:.2f} | {all_of_it[-1]:.2f} |", flush=True)
        server.cleanup("bench")
    finally:
        stop(server)


def through_a_bucket(modules, rounds):
    bucket = Bucket(modules, f"{new_dir()}/objects")
    settings = bucket.settings(store_endpoint=f"http://127.0.0.1:{bucket.inner}")  # without the proxy of the tests
    server = Server(new_dir(), pool=1, workers=1, command_timeout="2m", memory_max="2G", **settings).up()
    try:
        print("\n| what, by S3 | in the bucket ms | wake ms | in the bucket / tar | wake / tar |\n| --- | --- | --- | --- | --- |")
        for name, command in TREES.items():
            measure_bucket(server, name, command, rounds_of(name, rounds))
    finally:
        stop(server)
        bucket.close()


def here(rounds):
    server = Server(new_dir(), pool=1, workers=1, command_timeout="2m", memory_max="2G").up()
    try:
        print("| what | save ms | tar and zstd -1 ms | save / tar | wake ms | tar --zstd -x ms | wake / tar |\n| --- | --- | --- | --- | --- | --- | --- |")
        for name, command in TREES.items():
            measure(server, name, command, rounds_of(name, rounds))
    finally:
        stop(server)


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    parts = sys.argv[2:] or ["local", "s3", "freeze"]
    if "local" in parts:
        here(rounds)
    if "s3" in parts and os.environ.get("COVE_CLIENTS_MODULES"):
        through_a_bucket(os.environ["COVE_CLIENTS_MODULES"], rounds)
    if "freeze" in parts:
        freeze_and_thaw()


if __name__ == "__main__":
    main()
