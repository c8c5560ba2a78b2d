"""Root in a sandbox stops every process that its init starts, before the process has become the command.

An init that waited for such a child would answer nobody, and every request to the sandbox would hold a thread of a worker.
"""
import os
import socket
import struct
import time

from box import HEAD, MAGIC, NUMBERS, Box
from cove import all_pids, namespace, status_field, title, wait_for

# The next process of a sandbox has the next number: stop the few numbers above the last one, over and over.
STOPPER = b"""
import os, signal
me = os.getpid()
os.close(os.open('/tmp/attacking', os.O_CREAT))
while True:
    last = max(int(n) for n in os.listdir('/proc') if n.isdigit())
    for pid in range(last, last + 8):
        if pid > me:
            try:
                os.kill(pid, signal.SIGSTOP)
            except OSError:
                pass
"""
ROUNDS = 25


def spawn_message(*argv):
    """BOX_SPAWN of a command without a filter, as the sandbox's root."""
    body = struct.pack("=IIIHHIIQQQ", 0, len(argv), 0, 0, 0, 0, 0, 0, 0, 0)
    tail = b"".join(word.encode() + b"\0" for word in ("root", "/", "", *argv))
    return HEAD.pack(MAGIC, NUMBERS["BOX_SPAWN"], HEAD.size + len(body) + len(tail), 1) + body + tail


def answers(run_dir, box):
    with Box(run_dir, box) as b:
        b.sock.settimeout(5)
        try:
            return b.ask("BOX_PING", b"")[0] == "MSG_DONE"
        except socket.timeout:
            return False


def exists(run_dir, box, path):
    with Box(run_dir, box) as b:
        fd = b.open(path)
    if fd is not None:
        os.close(fd)
    return fd is not None


def in_namespace(init):
    ns = namespace(init, "pid")
    return [pid for pid in all_pids() if namespace(pid, "pid") == ns]


def stopped(init):
    """Processes that stopped before they became a command: they still look like their init."""
    return [pid for pid in in_namespace(init)
            if status_field(pid, "State").startswith("T") and title(pid).startswith("cove: init")]


def test_an_init_whose_children_are_stopped_still_answers(target, attempt):
    server = target(pids_max=200)
    reply = server.execute("hostile", "true")
    init = server.init_of(reply)
    with Box(server.run_dir, reply.id) as b:
        b.put("/tmp/stopper.py", STOPPER)
    server.execute("hostile", "setsid python3 /tmp/stopper.py > /dev/null 2>&1 &")
    wait_for(lambda: exists(server.run_dir, reply.id, "/tmp/attacking"), what="an attack that has begun")
    with Box(server.run_dir, reply.id) as asking:
        for n in range(ROUNDS):
            asking.sock.send(spawn_message("/bin/sleep", "30"))
            attempt(f"stop what init starts, round {n}", not answers(server.run_dir, reply.id))
        assert wait_for(lambda: stopped(init), what="a process that was stopped"), "the attack reached nothing"


STOP_BOTH = """
sleep 0.3
for process in /proc/[0-9]*; do
    case $(cat $process/comm 2>/dev/null) in cove-launcher|cove-spare) kill -STOP ${process#/proc/} && echo stopped ;; esac
done
"""


def test_a_stopped_launcher_delays_commands_for_a_moment_only(target, attempt):
    """The launcher (sandbox/init/launcher.c) and the process that waits for the next command: init lets them go on."""
    server = target(pool=1)
    server.execute("hostile", "true")
    server.execute("hostile", "true")
    reached = 0
    for n in range(5):
        reached += server.run("hostile", STOP_BOTH).count("stopped")
        began = time.monotonic()
        reply = server.execute("hostile", "true")
        took = time.monotonic() - began
        attempt(f"stop the launcher, round {n}", (reply.status != 200 or not reply.json["success"]) and str(reply))
        attempt(f"stop the launcher for long, round {n}", took > 4 and f"a command took {took:.1f} s")
    assert reached >= 5, "the attack reached nothing"
