#!/usr/bin/env python3
"""What it costs to be known: the same small request by every form of credential, against one that needs none.

usage: auth_bench.py [ROUNDS]    starts an instance of its own and stops it again; needs root, and makes an account for PAM
"""
import base64
import contextlib
import os
import subprocess
import sys
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(TOP, "tests", "system"))
from cove import Server, temporary_account, wait_for  # noqa: E402

COVE = os.path.join(TOP, ".cove/inst/bin/cove")


def once(connection, path, headers):
    began = time.perf_counter_ns()
    connection.request("GET", path, headers=headers)
    connection.getresponse().read()
    return (time.perf_counter_ns() - began) / 1e6


def show(name, values, base):
    values.sort()
    p50, p99 = values[len(values) // 2], values[len(values) * 99 // 100]
    print(f"| {name} | {p50:.2f} | {p99:.2f} | {p50 - (p50 if base is None else base):+.2f} | {len(values)} |")
    return p50


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    stacks = tempfile.mkdtemp()
    os.chmod(stacks, 0o755)
    with open(f"{stacks}/bench", "w") as f:
        f.write("auth required pam_unix.so\naccount required pam_unix.so\n")
    server = Server(tempfile.mkdtemp(), pool=1, workers=1, pam_dir=stacks, pam_service="bench", pam_cache="1m").up()
    try:
        with temporary_account() as (name, password):
            box = server.execute("bench", "true").id
            token = subprocess.run([COVE, "-c", f"{server.dir}/conf/cove.conf", "token", box], text=True, capture_output=True,
                                   check=True).stdout.strip()
            basic = {"Authorization": "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()}
            forms = {  # a path that nobody has is all that a worker can be asked without doing something
                "nobody is asked for (/health)": ("/health", {}),
                "a key": ("/nothing", {"X-API-Key": server.key}),
                "a sandbox's token": ("/nothing", {"X-Access-Token": token, "Host": f"8080-{box}.cove.localhost"}),
                "a password, remembered (pam_cache)": ("/nothing", basic),
                "a wrong key": ("/nothing", {"X-API-Key": "e2b_" + "0" * 40}),
            }
            asked = []
            for _ in range(5):
                os.kill(server.worker_pids[0], 9)  # it has nothing to remember then
                wait_for(lambda: server.request("GET", "/health").status == 200, 10)
                with contextlib.closing(server.connect()) as c:
                    asked.append(once(c, "/nothing", basic))
            samples = {form: [] for form in forms}
            with contextlib.closing(server.connect()) as c:
                for _ in range(rounds):
                    for form, (path, headers) in forms.items():
                        samples[form].append(once(c, path, headers))
            print("| credential | p50 ms | p99 ms | more than without | n |\n| --- | --- | --- | --- | --- |")
            base = show("nobody is asked for (/health)", samples.pop("nobody is asked for (/health)"), None)
            for form, values in samples.items():
                show(form, values, base)
            show("a password, PAM asked (pam_unix)", asked, base)
    finally:
        server.down()


main()
