#!/usr/bin/env python3
"""What each layer of the wall costs: at creation (no pool, with the first command) and per command in a sandbox that is there.

    bench/layers.py [ROUNDS] [--first]       after ./quickstart up, which builds

--first: on a machine with other work, everything that is measured comes before that work (nice, weights of cgroups).

One instance per layer, each without that one, beside one that has them all; every round takes a sample of each in turn, so noise
hits all alike. Layers are taken out by the special build of tests/escape or by configuration. Prints a Markdown table: the
tenth percentile (other work on the machine only ever adds, so the quick samples are the ones that tell), the ratio to the whole
wall, p50. The second row is the whole wall once more: what it differs by is what noise is worth.
"""
import os
import shutil
import statistics
import sys
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [f"{TOP}/tests/escape", f"{TOP}/tests/system"]

import escape  # noqa: E402
from cove import Server  # noqa: E402

VARIANTS = [  # what the row says, layers of the special build, settings
    ("all of it", "", {}),
    ("all of it, again", "", {}),
    ("no network namespace", "net", {}),
    ("no ipc and uts namespaces", "ipc,uts", {}),
    ("/proc not masked", "proc", {}),
    ("capabilities kept", "caps", {}),
    ("no seccomp filter", "seccomp", {}),
    ("no Landlock", "landlock", {}),
    ("no disk of its own", "", {"disk_max": "0"}),
    ("tmpfs for a disk", "", {"disk": "tmpfs"}),
    ("no policy", "", {"policy_file": ""}),
]


def start(build, where, number, layers, settings):
    directory = f"{where}/{number}"
    if "policy_file" in settings:
        settings = {"policy_file": f"{where}/policy.conf"}
    server = Server(directory, pool=0, workers=1, max_sandboxes=32, **settings).up()
    escape.weaken(server, build, layers or "none")
    return server


def come_first(server):
    """Its sandboxes too: the weight of the folder they are in."""
    for path, value in ((f"/sys/fs/cgroup/cpu/{server.cgroup}/cpu.shares", "262144"), (f"/sys/fs/cgroup/{server.cgroup}/cpu.weight", "10000")):
        if os.path.exists(path):
            with open(path, "w") as f:
                f.write(value)


def sample(server, project):
    began = time.perf_counter()
    first = server.execute(project, "true")
    between = time.perf_counter()
    second = server.execute(project, "true")
    end = time.perf_counter()
    assert first.status == second.status == 200, (first, second)
    server.cleanup(project)
    return (between - began) * 1000, (end - between) * 1000


def row(name, samples, whole):
    tenth = lambda values: statistics.quantiles(values, n=10)[0]
    cells = []
    for mine, all_of_it in zip(zip(*samples), zip(*whole)):
        cells += [f"{tenth(mine):.2f}", f"{tenth(mine) / tenth(all_of_it):.2f}", f"{statistics.median(mine):.2f}"]
    print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


def main():
    numbers = [int(a) for a in sys.argv[1:] if a.isdigit()]
    rounds, first = numbers[0] if numbers else 60, "--first" in sys.argv
    if first:
        os.nice(-20)
    where = tempfile.mkdtemp(prefix="cove-layers-")
    with open(f"{where}/policy.conf", "w") as f:
        f.write(escape.POLICY)
    servers = []
    try:
        build = escape.build_weak()
        for number, (_, layers, settings) in enumerate(VARIANTS):
            servers.append(start(build, where, number, layers, settings))
            if first:
                come_first(servers[-1])
        samples = [[] for _ in servers]
        for i in range(-3, rounds):
            for server, kept in zip(servers, samples):
                one = sample(server, f"p{i}")
                if i >= 0:
                    kept.append(one)
        print(f"| {rounds} rounds | new sandbox and first command, p10 ms | ratio | p50 ms | next command, p10 ms | ratio | p50 ms |\n"
              "| --- | --- | --- | --- | --- | --- | --- |")
        for (name, _, _), kept in zip(VARIANTS, samples):
            row(name, kept, samples[0])
    finally:
        for server in servers:
            server.down()
        shutil.rmtree(where)


if __name__ == "__main__":
    main()
