"""Connections that workers keep to sandboxes' inits: what clients see of them is nothing."""
import os
import signal
from concurrent.futures import ThreadPoolExecutor

from cove import alive, read, wait_for
from test_pause import ask


def connections(server, box):
    """Inodes of the connections that the init of this sandbox has accepted."""
    path = f"{server.run_dir}/boxes/{box.removeprefix('sandbox_')}"
    lines = [line.split() for line in read("/proc/net/unix").splitlines()]
    return {f[6] for f in lines if len(f) == 8 and f[7] == path and f[5] == "03"}


def test_one_command_after_another_needs_no_new_connection(server, project):
    box = server.execute(project, "true").id
    seen = set()
    for _ in range(30):
        assert server.run(project, "echo again") == "again\n"
        seen |= connections(server, box)
    assert len(seen) <= len(server.worker_pids) + 1  # and the judge's


def test_an_idle_sandbox_has_no_connection_of_a_worker(server, project):
    box = server.execute(project, "true").id
    wait_for(lambda: len(connections(server, box)) <= 1, 10, "only the judge's connection")


def test_a_sandbox_that_was_ended_is_replaced_at_once(server, project):
    boxes = set()
    for i in range(10):
        reply = server.execute(project, f"echo {i}")
        assert (reply.status, reply.json["stdout"]) == (200, f"{i}\n")
        boxes.add(reply.id)
        server.cleanup(project)
    assert len(boxes) == 10


def test_a_sandbox_whose_init_was_killed_is_replaced_at_once(server, project):
    for i in range(5):
        reply = server.execute(project, f"echo {i}")
        assert (reply.status, reply.json["stdout"]) == (200, f"{i}\n")
        init = server.init_of(reply)
        os.kill(init, signal.SIGKILL)
        wait_for(lambda: not alive(init), 10, "the end of init")


def test_a_sandbox_that_was_paused_meanwhile_goes_on(server, project):
    box = server.execute(project, "echo here >/workspace/file").id
    for _ in range(5):
        assert ask(server, "FREEZE", box) is True
        reply = server.execute(project, "cat /workspace/file")
        assert (reply.id, reply.json["stdout"]) == (box, "here\n")


def test_killed_workers_take_their_connections_along(server, project):
    box = server.execute(project, "echo here >/workspace/file").id
    before = connections(server, box)
    workers = server.worker_pids
    for pid in workers:
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: len(connections(server, box) & before) <= 1, 10, "the judge's connection at most")
    wait_for(lambda: server.execute(project, "true").status == 200, 20, "new workers")
    reply = server.execute(project, "cat /workspace/file")
    assert (reply.id, reply.json["stdout"]) == (box, "here\n")


def test_sixteen_clients_each_get_their_own_output(server, project):
    projects = [f"{project}-{i}" for i in range(4)]
    for name in projects:
        server.run(name, f"echo {name} >/workspace/name")

    def client(number):
        name = projects[number % 4]
        for i in range(25):
            # of each three commands one leaves a process behind, and one is killed
            tail = ["", "; sleep 0.2 &", "; kill -9 $$"][i % 3]
            out = server.execute(name, f"cat /workspace/name; echo {number}-{i}{tail}").json["stdout"]
            assert sorted(out.split()) == sorted([name, f"{number}-{i}"])

    with ThreadPoolExecutor(16) as pool:
        for done in [pool.submit(client, n) for n in range(16)]:
            done.result()
    for name in projects:
        server.cleanup(name)
