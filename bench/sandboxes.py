#!/usr/bin/env python3
"""Many sandboxes, forks of one, and other templates than `base`.

    bench/sandboxes.py [--count 1000] [--part burst|density|fork|templates]       after ./quickstart up, which builds

burst    100 first commands at once on an instance with the default pool: how long until all are answered.
density  COUNT idle sandboxes on one instance: memory each, all-in (what the machine has less of); a creation and a command with one
         there and with all there; the disk space of the first 100; how long `down` takes and how much it prints.
fork     a sandbox with 1 GB of files: the first capture, which waits until the files are written; a second one right after it; and the
         first command in a fork. On btrfs, and where files are copied (image).
templates  a new sandbox of `base`, of a small Debian (mmdebstrap) and of an OCI image with the same Debian and 19 layers over it, in
         turn: cold creation with the first command, then a second command.
"""
import argparse
import concurrent.futures
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [f"{TOP}/tests/system"]

from cove import Server  # noqa: E402

COVE = f"{TOP}/.cove/inst/bin/cove"


def start(where, name, **settings):
    return Server(f"{where}/{name}", **settings).up()


def available():
    with open("/proc/meminfo") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("MemAvailable:")) * 1024


def used_by(folder):
    return int(subprocess.run(["du", "-s", "-B1", folder], capture_output=True, text=True, check=True).stdout.split()[0])


def timed(action):
    began = time.perf_counter()
    result = action()
    return time.perf_counter() - began, result


def first_command(server, project):
    reply = server.execute(project, "true")
    assert reply.status == 200, reply


def burst(where, rounds=3):
    seconds = []
    for i in range(rounds):  # each on a new instance: the pool of one that had a burst is larger for a while
        server = start(where, f"burst{i}", max_sandboxes=256)
        time.sleep(3)  # until the pool is full: nobody waits for it in the measurement
        done = subprocess.run([f"{TOP}/.cove/build/cove-bench", "burst", "127.0.0.1", str(server.http), server.key, "100"],
                              capture_output=True, text=True, check=True)
        seconds.append(float(done.stdout))
        again, _ = timed(lambda: first_command(server, "after"))
        server.down()
    print("| burst | |\n| --- | --- |")
    print(f"| 100 first commands at once, default pool: all answered after, median of {rounds} | {statistics.median(seconds):.2f} s |")
    print(f"| one more right after it | {again * 1000:.1f} ms |\n", flush=True)


def create_many(server, first, last):
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda i: first_command(server, f"d{i}"), range(first, last)))


def median_ms(action, rounds=20):
    return statistics.median(timed(lambda: action(i))[0] for i in range(rounds)) * 1000


def probe(server, tag):
    """A creation with its first command, and a command in a sandbox that is there."""
    def fresh(i):
        first_command(server, f"{tag}{i}")
    creation = median_ms(fresh)
    time.sleep(2)  # the kernel is still busy with what the creations left behind; that is not a part of a command
    command = median_ms(lambda i: first_command(server, f"{tag}0"))
    for i in range(20):
        server.cleanup(f"{tag}{i}")
    return creation, command


def density(where, count):
    server = start(where, "density", max_sandboxes=count + 64, tenant_sandboxes=count + 64, pool=0, workers=1)
    first_command(server, "d0")
    one = probe(server, "one")
    memory, disk = available(), used_by(f"{server.dir}/state")
    create_many(server, 1, 101)
    disk_100 = used_by(f"{server.dir}/state") - disk
    create_many(server, 101, count)
    time.sleep(25)  # what creation left behind is freed, and processes made ahead for a next command end after 20 s
    each = (memory - available()) / (count - 1)
    many = probe(server, "many")
    seconds, done = timed(server.down)
    print(f"| {count} idle sandboxes | |\n| --- | --- |")
    print(f"| memory each, all-in | {each / 2**20:.2f} MiB |")
    print(f"| disk space of the first 100 | {disk_100 / 2**20:.1f} MiB |")
    print(f"| creation and first command with 1, with all (ratio) | {one[0]:.1f} ms, {many[0]:.1f} ms ({many[0] / one[0]:.2f}) |")
    print(f"| a command with 1, with all (ratio) | {one[1]:.1f} ms, {many[1]:.1f} ms ({many[1] / one[1]:.2f}) |")
    print(f"| `quickstart down` with all | {seconds:.1f} s, {len(done.stdout.splitlines())} lines |\n", flush=True)


def cove(server, *args):
    return subprocess.run([COVE, "-c", f"{server.dir}/conf/cove.conf", *args], capture_output=True, text=True, check=True).stdout.split()


def fork(where):
    print("| fork of a sandbox with 1 GB of files | btrfs | image (copies) |\n| --- | --- | --- |")
    rows = {"first capture, files not written back yet": [], "capture and fork once they are": [], "first command in the fork": []}
    for disk in ("btrfs", "image"):
        server = start(where, f"fork-{disk}", disk=disk, disk_max="2G", pool=0, workers=1, command_timeout="120s")
        box = server.execute("p", "for i in $(seq 64); do head -c 16M /dev/urandom > /workspace/$i; done", timeout=150).id
        times = [timed(lambda: cove(server, "snapshot", "make", box))[0]]
        seconds, made = timed(lambda: cove(server, "snapshot", "fork", box))
        times += [seconds, timed(lambda: cove(server, "exec", made[0], "true"))[0]]
        for cells, value in zip(rows.values(), times):
            cells.append(f"{value * 1000:.0f} ms")
        server.down()
    for name, cells in rows.items():
        print(f"| {name} | " + " | ".join(cells) + " |")
    print(flush=True)


def add_templates(server, where):
    from test_template_sources import Image, tar  # needs pytest, which the other parts do not
    debian = pathlib.Path(where) / "debian.tar"
    subprocess.run(["mmdebstrap", "--variant=minbase", "--quiet", "bookworm", debian], check=True)
    layers = [debian.read_bytes()] + [tar((f"srv/{i}", b"x" * 1000, {})) for i in range(19)]
    image = Image(pathlib.Path(where) / "image").write(*layers, packed=False, config={"architecture": "amd64", "os": "linux", "config": {}})
    cove(server, "template", "add", "debian", str(debian))
    cove(server, "template", "add", "twenty", image)


def templates(where, rounds=60):
    server = start(where, "templates", pool=0, workers=1)
    add_templates(server, f"{where}/templates")
    times = {name: ([], []) for name in ("base", "debian", "twenty")}
    for i in range(-3, rounds):
        for name, samples in times.items():
            project = f"{name}{i}"
            taken = [timed(lambda: server.run(project, "true", template=name))[0] * 1000 for _ in samples]
            server.cleanup(project)
            if i >= 0:
                for kept, value in zip(samples, taken):
                    kept.append(value)
    server.down()
    base = [statistics.median(samples) for samples in times["base"]]
    print(f"| template, p50 of {rounds} rounds | new sandbox and first command | to `base` | next command | to `base` |\n| --- | --- | --- | --- | --- |")
    for name, label in (("base", "`base`"), ("debian", "Debian by mmdebstrap, one layer"), ("twenty", "OCI image of 20 layers")):
        new, following = [statistics.median(samples) for samples in times[name]]
        print(f"| {label} | {new:.1f} ms | {new / base[0]:.2f} | {following:.1f} ms | {following / base[1]:.2f} |")
    print(flush=True)


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--count", type=int, default=1000)
    arguments.add_argument("--part", choices=["burst", "density", "fork", "templates"])
    options = arguments.parse_args()
    where = tempfile.mkdtemp(prefix="cove-bench-")
    parts = {"burst": lambda: burst(where), "density": lambda: density(where, options.count), "fork": lambda: fork(where),
             "templates": lambda: templates(where)}
    try:
        for name, run in parts.items():
            if options.part in (None, name):
                run()
    finally:
        for name in os.listdir(where):
            subprocess.run([f"{TOP}/quickstart", "down", "--dir", f"{where}/{name}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        shutil.rmtree(where)


main()
