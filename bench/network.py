#!/usr/bin/env python3
"""What a network costs: sandboxes with `network = none` and `egress`, warm and cold, in turns within one run.

    bench/network.py [ROUNDS]       starts and stops four instances of its own

A figure, not a test: it depends on the machine. Prints a Markdown table: a new sandbox with its first command through nginx, then a
further command in it.
"""
import os
import sys
import time

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, f"{TOP}/tests/system")
from cove import Server, new_dir, stop, wait_for  # noqa: E402

POOL = 6


def milliseconds(call):
    begin = time.perf_counter()
    assert call().status == 200
    return (time.perf_counter() - begin) * 1e3


def sample(server, pool, project):
    if pool:
        wait_for(lambda: len(server.inits) >= pool, 20, "a full pool")
    new = milliseconds(lambda: server.execute(project, "true"))
    again = milliseconds(lambda: server.execute(project, "true"))
    server.cleanup(project)
    return new, again


def at(values, part):
    return sorted(values)[int(len(values) * part)]


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 30
    kinds = [(mode, pool) for pool in (POOL, 0) for mode in ("none", "egress")]
    servers, times = {}, {kind: [] for kind in kinds}
    try:
        for mode, pool in kinds:
            servers[mode, pool] = Server(new_dir(), network=mode, pool=pool, workers=1).up()
        for i in range(rounds):
            for kind in kinds:
                times[kind].append(sample(servers[kind], kind[1], f"p{i}"))
    finally:
        for server in servers.values():
            stop(server)
    print("| network | pool | new sandbox p50 ms | p90 ms | command p50 ms | p90 ms |\n| --- | --- | --- | --- | --- | --- |")
    for mode, pool in kinds:
        new, again = zip(*times[mode, pool])
        print(f"| {mode} | {'warm' if pool else 'cold'} | {at(new, .5):.1f} | {at(new, .9):.1f} | {at(again, .5):.1f} | {at(again, .9):.1f} |")


if __name__ == "__main__":
    main()
