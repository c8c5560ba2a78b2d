"""The escape suite: every file in attempts/ tries one thing from inside a sandbox, as root and as user, and is shown from
outside to have failed.

An attempt says its class and the promise it attacks in its first lines. It exits 0 when it believes that it got through;
beside that, the runner looks at the host after each one: secrets in the output, decoys that died, files that changed.
The deny-list is empty and exec-time policy is off here: this is about the wall, not the guardrail.
"""
import concurrent.futures
import ctypes
import dataclasses
import os
import re
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import time

from box import Box
from cove import TOP, alive, read, status_field, wait_for

HERE = os.path.dirname(os.path.abspath(__file__))

ATTEMPTS = os.path.join(HERE, "attempts")
INSIDE = "/workspace/.attempts"
# A policy has at least one rule; nobody writes this one.
POLICY = '[*]\nseccomp = default\ndeny nothing words /^cove-no-such-command$/ "never"\n'


@dataclasses.dataclass(frozen=True)
class Attempt:
    name: str
    kind: str  # c, sh
    cls: str
    promise: str
    users: tuple
    opens_when_weak: bool
    in_internet: bool  # needs the small internet of network.py
    refused: str  # names of the errors it meets, or "nothing" when it has no word for it; None: not looked at
    control: str  # where there is no wall and it succeeds (control.py): host, pool
    needs: str  # a file of the kernel's, or a capability, without which it cannot be tested
    trace: str  # a file that shows in a control that it got through

    @property
    def command(self):
        return f"{INSIDE}/attempts {self.name}" if self.kind == "c" else f"bash {INSIDE}/{self.name}.sh"


def load(path):
    name, kind = os.path.basename(path).rsplit(".", 1)
    head = dict(re.findall(r"^(?://|#) (\w+): (.*)$", read(path), re.M))
    return Attempt(name, kind, head["class"], head["promise"], tuple(head.get("as", "root user").split()),
                   head.get("weak") == "opens", head.get("world") == "internet", head.get("refused"),
                   head.get("control"), head.get("needs"), head.get("trace"))


def load_all():
    files = sorted(f for f in os.listdir(ATTEMPTS) if f.endswith((".c", ".sh")))
    return [load(os.path.join(ATTEMPTS, f)) for f in files]


# ------------------------------------------------------------------ one static program of all C attempts

def compile_all(attempts, out_dir):
    """Each source becomes an object with a main of its own name; a table picks one by argv[1]."""
    names = [a.name for a in attempts if a.kind == "c"]
    symbol = lambda name: "attempt_" + name.replace("-", "_")

    def compile_one(name):
        subprocess.run(["gcc", "-D_GNU_SOURCE", "-O1", "-Wall", "-Wno-nonnull", f"-Dmain={symbol(name)}", "-c",
                        f"{ATTEMPTS}/{name}.c", "-o", f"{out_dir}/{name}.o"], check=True)

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(compile_one, names))
    with open(f"{out_dir}/table.c", "w") as f:
        f.write("#include <stdio.h>\n#include <string.h>\n")
        f.writelines(f"int {symbol(n)}(void);\n" for n in names)
        f.write("static const struct { const char *name; int (*run)(void); } table[] = {\n")
        f.writelines(f'    {{ "{n}", {symbol(n)} }},\n' for n in names)
        f.write("};\nint main(int argc, char **argv)\n{\n"
                "    setvbuf(stdout, NULL, _IONBF, 0);\n"
                "    for (unsigned i = 0; i < sizeof(table) / sizeof(*table); i++)\n"
                "        if (argc == 2 && strcmp(argv[1], table[i].name) == 0)\n            return table[i].run();\n"
                "    return 99;\n}\n")
    subprocess.run(["gcc", "-static", "-o", f"{out_dir}/attempts", f"{out_dir}/table.c",
                    *(f"{out_dir}/{n}.o" for n in names)], check=True)
    return f"{out_dir}/attempts"


# ------------------------------------------------------------------ the world outside

class World:
    """Things on the host that no attempt may reach, and the look at them afterwards."""

    def __init__(self, server):
        self.server = server
        self.token = secrets.token_hex(16)  # may be in no output
        self.name = "cove-escape-" + secrets.token_hex(4)
        # Not in /tmp: a sandbox's root is put together there, so that an attempt that reaches the host's root would find it covered.
        self.secret = f"/var/tmp/{self.name}-secret"
        self.folder = f"/var/tmp/{self.name}-folder"
        self.copies = [f"{folder}/{self.name}-secret" for folder in ("/tmp", "/run", "/root")]
        self.target = f"/tmp/{self.name}-target/file"
        self.shm_file = f"/dev/shm/{self.name}"
        self.neighbour_file = f"/workspace/neighbour-{self.name}"

    def __enter__(self):
        os.mkdir(self.folder)
        for path in (self.secret, *self.copies, self.shm_file, f"{self.folder}/kept-{self.name}"):
            with open(path, "w") as f:
                f.write(self.token + "\n")
            os.chmod(path, 0o644)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind("\0" + self.name)
        self.listener.listen(64)
        self.listener.setblocking(False)
        self.decoy = subprocess.Popen(["sleep", "1000"])
        self._make_shm()
        self._make_neighbour()
        self.before = self.look()
        return self

    def __exit__(self, *_):
        self.decoy.kill()
        self.decoy.wait()
        self.listener.close()
        self.libc.shmctl(self.shm_id, 0, None)
        for path in (self.secret, *self.copies, self.shm_file):
            os.unlink(path)
        shutil.rmtree(self.folder)

    def _make_shm(self):
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.libc.shmat.restype = ctypes.c_void_p
        self.libc.shmdt.argtypes = [ctypes.c_void_p]
        self.shm_key = secrets.randbelow(1 << 30) + 1
        self.shm_id = self.libc.shmget(self.shm_key, 4096, 0o1666)
        at = self.libc.shmat(self.shm_id, None, 0)
        ctypes.memmove(at, self.token.encode(), len(self.token))
        self.libc.shmdt(at)

    def _make_neighbour(self):
        listen = (f"import socket,time; s=socket.socket(socket.AF_UNIX); s.bind('\\0neighbour-{self.name}'); s.listen();"
                  " time.sleep(1000)")
        reply = self.server.execute("neighbour", f"echo {self.token} > {self.neighbour_file}",
                                    f"cp {self.neighbour_file} /tmp/; cp {self.neighbour_file} /dev/shm/",
                                    f"python3 -c {shlex.quote(listen)} >/dev/null 2>&1 &")
        self.neighbour = self.server.init_of(reply)

    def look(self):
        """What must be the same after every attempt."""
        return {
            "hostname": read("/proc/sys/kernel/hostname"),
            "core_pattern": read("/proc/sys/kernel/core_pattern"),
            "ip_forward": read("/proc/sys/net/ipv4/ip_forward"),
            "modprobe": read("/proc/sys/kernel/modprobe"),
            "secrets": [(read(p), os.stat(p).st_mtime_ns, os.stat(p).st_nlink) for p in (self.secret, *self.copies)],
            "folder": sorted(os.listdir(self.folder)) if os.path.isdir(self.folder) else "gone",
            "target of archives": os.path.exists(self.target),
            "file below /usr": os.path.exists(f"/usr/bin/{self.name}"),
            "decoy": alive(self.decoy.pid),
            "keeper": alive(self.server.keeper_pid),
            "neighbour": read(self.server.path_inside(self.neighbour, self.neighbour_file)),
            "clock": round(time.time() - time.clock_gettime(time.CLOCK_BOOTTIME), 0),
            "visitor at the abstract socket": self._visited(),
        }

    def _visited(self):
        try:
            self.listener.accept()[0].close()
            return True
        except BlockingIOError:
            return False

    def environment(self):
        pairs = {"SECRET": self.secret, "HOST_TARGET": self.target, "SHM_FILE": self.name, "ABSTRACT": self.name,
                 "TOKEN_NAME": self.name, "SHM_KEY": self.shm_key, "HOST_PORT": self.server.http,
                 "DECOY_PID": self.decoy.pid, "RUN_DIR": self.server.run_dir}
        return " ".join(f"{k}={shlex.quote(str(v))}" for k, v in pairs.items())

    def changed(self):
        """Sentences about what is not as it was; the new state is then what is compared with."""
        now = self.look()
        changes = [f"{k}: {self.before[k]!r} became {now[k]!r}" for k in now
                   if k != "clock" and now[k] != self.before[k]]
        if abs(now["clock"] - self.before["clock"]) > 5:
            changes.append("the clock was set")
        self.before = now
        return changes


# ------------------------------------------------------------------ running them

@dataclasses.dataclass
class Result:
    attempt: Attempt
    user: str
    evidence: list
    out: str = ""  # what it said

    def __str__(self):
        return f"{self.attempt.cls}/{self.attempt.name} as {self.user}: {'; '.join(self.evidence)}"


def upload(server, project, attempts, program):
    reply = server.execute(project, f"mkdir -p {INSIDE}; chmod 755 {INSIDE}")
    with Box(server.run_dir, reply.id) as box, open(program, "rb") as f:
        box.put(f"{INSIDE}/attempts", f.read())
        for a in attempts:
            if a.kind == "sh":
                box.put(f"{INSIDE}/{a.name}.sh", open(f"{ATTEMPTS}/{a.name}.sh", "rb").read())


def run_one(server, world, project, attempt, user):
    reply = server.execute(project, f"export {world.environment()}; timeout 10 {attempt.command}")
    assert reply.status == 200, (attempt.name, reply)
    out, code = reply.json["stdout"] + reply.json["stderr"], reply.json["exitCode"]
    assert code not in (99, 126, 127), f"{attempt.name} did not run: {out}"
    assert code != 124, f"{attempt.name} did not end within 10 s: that is neither refused nor through"
    evidence = world.changed()
    if code == 0:
        evidence.append("it says so: " + (out.strip() or "exit 0")[:200])
    if world.token in out:
        evidence.append("a secret of the host is in its output")
    return Result(attempt, user, evidence, out)


def become(server, user):
    """Who runs commands is configuration; a sandbox that is there stays."""
    server.change_config(user=user)
    wait_for(lambda: server.execute("whoami", "whoami").json["stdout"] == user + "\n", 15, f"commands of {user}")


def run_all(server, attempts, program, users=("root", "user")):
    results = []
    with World(server) as world:
        for user in users:
            become(server, user)
            project = f"escape-{user}"
            upload(server, project, attempts, program)
            results += [run_one(server, world, project, a, user) for a in attempts if user in a.users]
    return results


def summary(results):
    escapes = [r for r in results if r.evidence]
    names = {r.attempt.name for r in results}
    lines = [f"attempts: {len(names)} ({len(results)} runs as root and user), escapes: {len(escapes)}"]
    return "\n".join(lines + [f"  ESCAPED {r}" for r in escapes])


# ------------------------------------------------------------------ walls with holes

def build_weak():
    """Every program of the server, with the switch."""
    where = f"{TOP}/.cove/build-weak"
    os.makedirs(where, exist_ok=True)
    if not os.path.exists(f"{where}/Makefile"):
        subprocess.run([f"{TOP}/configure", "-q", "--enable-weak-for-tests"], cwd=where, check=True,
                       stderr=subprocess.DEVNULL)
    programs = ["coved", *os.listdir(f"{TOP}/.cove/inst/libexec/cove")]
    subprocess.run(["make", "-s", "-j2", *programs], cwd=where, check=True, stdout=subprocess.DEVNULL)
    return where


def weaken(server, build, layers):
    """The same instance, nginx and configuration, under a keeper with holes."""
    keeper = server.keeper_pid
    os.kill(keeper, signal.SIGTERM)
    wait_for(lambda: not alive(keeper), what="the end of the keeper")
    with open(f"{server.dir}/log/coved.log", "a") as log:
        subprocess.Popen([f"{build}/coved", "-c", f"{server.dir}/conf/cove.conf", "-o", f"libexec_dir={build}"],
                         stderr=log, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True,
                         env={**os.environ, "COVE_WEAK": layers})
    wait_for(lambda: server.request("GET", "/health").status == 200, 15, "the weak keeper")
