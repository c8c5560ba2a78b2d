"""Templates and snapshots when a process is killed, or the disk is full, at each of its steps: nothing half-made is seen, and nothing stays.

strace puts the fault in. It ends the process, or makes the call fail with ENOSPC, at the nth call of a kind that changes something on the disk.
A first run without a fault tells which calls there are. Some of them are taken, spread over the whole; in a long run up to 40."""
import json
import os
import re
import subprocess

import pytest

from cove import alive, status_field, wait_for
from test_builds import Build, sandboxes
from test_snapshots import create, end_all, inside, names
from test_template import COVE, instance, pack, small_root, store  # noqa: F401 (fixtures)
from test_template_sources import PLAIN, Image, base_tar, tar  # noqa: F401 (fixture)

LONG = os.environ.get("COVE_TEST_LONG") == "yes"
CALLS = ("mkdirat mkdir mknodat mknod openat write pwrite64 sendfile ftruncate fsetxattr fchmod fchmodat fchown fchownat utimensat linkat symlinkat "
         "renameat renameat2 rename unlinkat syncfs fsync ioctl clone clone3 fork vfork").split()
KILL, FULL = "signal=KILL", "error=ENOSPC"


def changes(line):
    """Does this call, as strace shows it, change something?"""
    call = line.split("(")[0]
    if call == "openat":
        return "O_CREAT" in line
    return call != "ioctl" or "BTRFS_IOC" in line


def all_steps(log):
    """[(call, n)]: those calls that change something, in their order, each the nth of its kind in its process."""
    seen, steps = {}, []
    for line in open(log, errors="replace"):
        found = re.match(r"(\d+)\s+((\w+)\(.*)", line)
        if not found:
            continue
        pid, text, call = found.groups()
        seen[pid, call] = seen.get((pid, call), 0) + 1
        step = (call, seen[pid, call])
        if changes(text) and step not in steps:
            steps.append(step)
    assert len(steps) >= 3, steps
    return steps


def steps_of(log, most):
    """Some of them, spread over the whole."""
    steps = all_steps(log)
    most = min(40 if LONG else most, len(steps))
    return [steps[i * (len(steps) - 1) // (most - 1)] for i in range(most)]


def naming_steps(log):
    """Those from the making of the template's own directory until it has its files and its name. openat is left out: how many of these a process makes
    before depends on what earlier runs have left, so the nth would be another one."""
    steps = all_steps(log)
    first = max(i for i, (call, _) in enumerate(steps) if call == "mkdirat")
    last = max(i for i, (call, _) in enumerate(steps) if call in ("syncfs", "renameat2"))
    assert len(steps[first:last]) >= 3, steps
    return [step for step in steps[first:last + 1] if step[0] != "openat"]


def strace(log, *fault):
    """The beginning of a command line. A fault: the call, which of them, what happens."""
    inject = ["-e", f"inject={fault[0]}:{fault[2]}:when={fault[1]}"] if fault else []
    return ["strace", "-f", "--quiet=attach,personality", "-o", str(log), "-e", "trace=" + ",".join(CALLS), *inject]


# ------------------------------------------------------------------ cove template add, build

def sources(path, kind, word):
    """A source whose file /word says this, and how `cove template` is told."""
    if kind == "archive":
        archive = pack(path / f"{word}.tar", ("word", word.encode(), {}), ("d/e/f", b"x" * 100000, {}), ("d/.wh.gone", b"", {}))
        return ["add", "app", archive]
    if kind == "image of many layers":
        return ["add", "app", Image(path / word).write(tar(("word", word.encode(), {})), *[tar((f"d/{n}", b"x", {})) for n in range(16)], config=PLAIN)]
    if kind == "image":
        return ["add", "app", Image(path / word).write(tar(("word", word.encode(), {})), tar(("d/.wh.gone", b"", {}), ("d/new", b"x", {})), config=PLAIN)]
    folder = path / word
    folder.mkdir()
    (folder / "word").write_text(word)
    (folder / "Dockerfile").write_text("FROM scratch\nADD word /word\n")
    return ["build", "app", folder]


def word_of(store):
    """What the template says that can be seen; it must be whole. None: there is none."""
    if "app" not in store.template("ls"):
        return None
    assert "ok" in store.template("verify", "app")
    layers = [name.removeprefix("sha256:") for name in json.loads(store.template("show", "app"))["layers"]]
    found = [f"{store.config['state_dir']}/layers/{name}/word" for name in layers]
    return next(open(path).read() for path in found if os.path.exists(path))


def collect(store):
    """gc, once the children of a killed process have ended; then there is nothing but what templates name."""
    run = lambda: subprocess.run([COVE, "-c", f"{store.dir}/conf/cove.conf", "template", "gc"], capture_output=True).returncode == 0
    wait_for(run, 30, "gc")
    state = store.config["state_dir"]
    assert not [name for folder in ("layers", "templates") for name in os.listdir(f"{state}/{folder}") if name.startswith(".new")]
    named = json.loads(store.template("show", "app"))["layers"] if "app" in store.template("ls") else []
    assert store.layers() == sorted(name.removeprefix("sha256:") for name in named)


@pytest.mark.parametrize("kind, fault", [("archive", KILL), ("image of many layers", FULL)] if not LONG else
                         [(kind, fault) for kind in ("archive", "image of many layers", "image", "Dockerfile") for fault in (KILL, FULL)])
def test_an_add_that_is_cut_off_at_any_step_leaves_the_old_template_or_the_new_one(store, tmp_path, kind, fault):
    old, new = sources(tmp_path, kind, "old"), sources(tmp_path, kind, "new")
    with open(f"{store.dir}/conf/cove.conf") as conf:
        (tmp_path / "cove.conf").write_text(conf.read() + "build_timeout = 20s\n")  # buildah waits for ever after some faults
    command = lambda words: [COVE, "-c", f"{tmp_path}/cove.conf", "template", *map(str, words)]
    subprocess.run([*strace(tmp_path / "log"), *command(new)], check=True, capture_output=True)
    steps, seen = {False: steps_of(tmp_path / "log", 7), True: naming_steps(tmp_path / "log")}, []
    store.template("rm", "app")
    for replaces in (False, True):
        for call, n in steps[replaces]:
            if replaces:
                store.template(*old)
            done = subprocess.run([*strace(tmp_path / "cut", call, n, fault), *command(new)], capture_output=True, text=True, timeout=60)
            seen.append(done.returncode)
            word = word_of(store)
            assert word == "new" if done.returncode == 0 else word in ("old" if replaces else None, "new"), (call, n, word, done.stderr)
            assert done.returncode <= 0 or fault == KILL or kind == "Dockerfile" or re.search("No space left|create dir", done.stderr), (call, n, done)
            collect(store)
            if word:
                store.template("rm", "app")
                collect(store)
    assert sum(code != 0 for code in seen) >= len(seen) / 2, seen  # a killed tool is an error of `cove`, which goes on


# ------------------------------------------------------------------ the keeper and the builder, which are there already

class Traced:
    """strace on a process that runs."""

    def __init__(self, pid, log, *fault):
        self.pid, self.log, self.fault, self.command = pid, log, fault, [*strace(log, *fault), "-p", str(pid)]

    def __enter__(self):
        self.strace = subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for(lambda: self.is_traced() or not alive(self.pid), 30, "strace")  # the fault may hit before anybody looks
        return self

    def is_traced(self):
        return status_field(self.pid, "TracerPid") == str(self.strace.pid)

    def __exit__(self, *how):
        # A strace that is told to end while a process of several threads is dying waits for ever for the first thread, which no wait() tells of
        # before the others were waited for: it is left alone until it has seen the end.
        wait_for(lambda: alive(self.pid) or not self.is_traced(), 30, "strace to see the end")
        self.strace.terminate()
        self.strace.wait(30)
        text = open(self.log, errors="replace").read()
        self.killed = {int(pid) for pid in re.findall(r"^(\d+)\s+\+\+\+ killed by SIGKILL", text, re.M)}
        # A strace that ends in the moment of the fault has put it in, and says nothing of what came of it.
        if self.fault[2:] == (KILL,) and len(re.findall(rf"^{self.pid}\s+{self.fault[0]}\(", text, re.M)) >= self.fault[1]:
            self.killed.add(self.pid)
        if self.pid in self.killed:
            wait_for(lambda: not alive(self.pid), 30, "its end")


def capture(server, box, forks):
    words = ["snapshot", "fork", box] if forks else ["snapshot", "make", box, "cut"]
    return subprocess.run([COVE, "-c", f"{server.dir}/conf/cove.conf", *words], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("disk, fault, forks", [("btrfs", KILL, False), ("image", FULL, False)] if not LONG else
                         [(disk, fault, forks) for disk in ("btrfs", "image") for fault in (KILL, FULL) for forks in (False, True)])
def test_a_snapshot_that_is_cut_off_at_any_step_is_whole_or_not_there(make_server, tmp_path, disk, fault, forks):
    server = make_server(disk=disk, pool=0, command_timeout="30s")
    box = server.execute("p", "echo precious > /workspace/f; rm -r /usr/share/doc/bash; mkdir /workspace/d; echo x | tee /workspace/d/{1,2,3} > /dev/null").id
    with Traced(server.keeper_pid, tmp_path / "log"):
        assert capture(server, box, forks).returncode == 0
    for call, n in steps_of(tmp_path / "log", 4 if fault == KILL else 6):
        before = set(server.inits)
        with Traced(server.keeper_pid, tmp_path / "cut", call, n, fault) as traced:
            done = capture(server, box, forks)
        if traced.pid in traced.killed:
            server.up()
        assert server.run("p", "cat /workspace/f") == "precious\n", "the sandbox goes on"
        made = [one for one in done.stdout.split() if forks and (one in server.inits or not traced.killed - {traced.pid})]
        if "cut" in names(server):
            made.append(create(server, "cut").json["sandboxID"])
        for one in made:
            assert inside(server, one, "cat /workspace/f /workspace/d/3; test ! -e /usr/share/doc/bash") == "precious\nx\n", (call, n)
        assert done.returncode or made or forks, (call, n, done)
        state = server.config["state_dir"]
        known = lambda: {s["id"] for s in json.loads(subprocess.run([COVE, "-c", f"{server.dir}/conf/cove.conf", "snapshot", "ls", "--json"],
                                                                   capture_output=True, check=True).stdout)}
        records = lambda: {name for name in os.listdir(f"{state}/snapshots") if not os.path.exists(f"{state}/snapshots/{name}/info")}
        wait_for(lambda: not records(), 30, f"the sweep of what was half made at {call} {n}")
        assert before <= set(server.inits) and known() <= set(os.listdir(f"{state}/snapshots"))
        for snapshot in known():
            subprocess.run([COVE, "-c", f"{server.dir}/conf/cove.conf", "snapshot", "rm", snapshot], check=True, capture_output=True)
    end_all(server)


def test_a_sandbox_that_cannot_be_set_going_after_its_snapshot_goes_on_when_it_is_used(make_server, tmp_path):
    server = make_server(pool=0)
    box = server.execute("p", "echo precious > /workspace/f").id
    one_file = ["strace", "-qq", "-o", tmp_path / "log", "-P", f"{box.removeprefix('sandbox_')}/cgroup.freeze", "-e", "inject=openat:error=EMFILE:when=1"]
    with subprocess.Popen([*one_file, "-p", str(server.keeper_pid)]) as strace:
        wait_for(lambda: status_field(server.keeper_pid, "TracerPid") == str(strace.pid), 30, "strace")
        assert capture(server, box, False).returncode == 0
        strace.terminate()
    assert "(INJECTED)" in (tmp_path / "log").read_text()
    again = server.execute("p", "cat /workspace/f")
    assert (again.id, again.json["stdout"]) == (box, "precious\n"), again
    end_all(server)


def ending(build):
    status = build.status()
    return status["status"] if isinstance(status, dict) and status["status"] in ("ready", "error") else None


@pytest.mark.parametrize("who, fault", [("builder", KILL), *([("builder", FULL), ("keeper", KILL), ("keeper", FULL)] if LONG else [])])
def test_a_tenant_s_build_that_is_cut_off_at_any_step_is_ready_or_failed(store, tmp_path, who, fault):
    server = store
    pid_of = lambda: server.keeper_pid if who == "keeper" else next(iter(server.titles("cove: builder")), None)
    order = [("RUN", "echo built > /home/user/f")]
    with Traced(pid_of(), tmp_path / "log"):
        Build(server, "counted", order).ready()
    for i, (call, n) in enumerate(steps_of(tmp_path / "log", 3)):
        with Traced(pid_of(), tmp_path / "cut", call, n, fault) as traced:
            try:
                build = Build(server, f"built-{i}", order, force=True)
                wait_for(lambda: not alive(traced.pid) or ending(build), 60, "its end")
            except AssertionError:  # it was never begun
                build = None
        if traced.pid in traced.killed:
            if who == "keeper":
                server.up()
            wait_for(lambda: pid_of() not in (None, traced.pid), 30, "the next one")
        end = wait_for(lambda: ending(build), 60, "its word") if build else "error"
        assert server.request("GET", f"/templates/aliases/built-{i}").status == (200 if end == "ready" else 404), (call, n, end)
        wait_for(lambda: not sandboxes(server), 30, f"the end of its sandbox, {call} {n}")
        if end == "ready":
            assert server.run("p", "cat /home/user/f", template=f"built-{i}") == "built\n"
            server.cleanup("p")
        assert server.request("DELETE", f"/templates/built-{i}").status in (204, 404)
    Build(server, "last", order).ready()
    server.request("DELETE", "/templates/counted"), server.request("DELETE", "/templates/last")
    wait_for(lambda: not sandboxes(server), 30, "the end of all sandboxes")


def test_a_build_that_is_cut_off_after_its_template_has_a_name_is_ready(store, tmp_path):
    server, order = store, [("RUN", "echo built > /home/user/f")]
    builder = lambda: next(iter(server.titles("cove: builder")), None)
    with Traced(builder(), tmp_path / "log"):
        Build(server, "counted", order).ready()
    lines = open(tmp_path / "log", errors="replace").read().splitlines()
    last = next(i for i, line in enumerate(lines) if "finalize Build f" in line)  # it is written when all tags were given
    thread = lines[last].split()[0]
    n = sum(line.split()[:1] == [thread] and " write(" in line for line in lines[:last + 1])
    with Traced(builder(), tmp_path / "cut", "write", n, KILL) as traced:
        build = Build(server, "named", order, force=True)
        wait_for(lambda: not alive(traced.pid), 60, "the builder's end")
    wait_for(lambda: builder() not in (None, traced.pid), 30, "the next builder")
    assert wait_for(lambda: ending(build), 60, "its word") == "ready", build.status()
    assert server.run("p", "cat /home/user/f", template="named") == "built\n"
    server.cleanup("p")
    for name in ("counted", "named"):
        assert server.request("DELETE", f"/templates/{name}").status == 204
    wait_for(lambda: not sandboxes(server), 30, "the end of all sandboxes")
