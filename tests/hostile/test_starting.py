"""A tenant whose sandboxes never get ready: they must not keep other tenants' sandboxes from starting."""
import subprocess
import threading

import pytest

from cove import TOP, wait_for
from test_template import small_root  # noqa: F401 (a fixture)

LOUD = 40  # more than cove-starter has threads (32)


def template(server, *args):
    done = subprocess.run([f"{TOP}/.cove/inst/bin/cove", "-c", f"{server.dir}/conf/cove.conf", "template", *map(str, args)],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.weak(layers="places")
def test_sandboxes_that_never_get_ready_delay_nobody_else_s(target, attempt, small_root):  # noqa: F811
    server = target(pool=0, threads=96, tenant_threads=95)
    loud, quiet = server.add_key("loud"), server.add_key("quiet")
    template(server, "add", "never", small_root, "--ready", "false", "--ready-timeout", "60")
    template(server, "add", "soon", small_root, "--ready", "true")
    replies = []
    threads = [threading.Thread(target=lambda i=i: replies.append(server.execute(f"n{i}", "true", key=loud, template="never", timeout=120)))
               for i in range(LOUD)]
    for t in threads:
        t.start()
    wait_for(lambda: len(server.inits) >= LOUD, 60, "the sandboxes that never get ready")
    seen = []
    victim = threading.Thread(target=lambda: seen.append((server.execute("q", "echo here", key=quiet, template="soon", timeout=120), len(replies))))
    victim.start()
    victim.join()
    reply, ended = seen[0]
    attempt("another tenant's sandbox does not start", reply.status != 200 and reply)
    attempt("another tenant's sandbox waits for the end of these", ended and f"{ended} had ended by then")
    for pid in server.inits.values():
        subprocess.run(["kill", "-9", str(pid)], check=False)
    for t in threads:
        t.join()
