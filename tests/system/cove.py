"""What system tests need: an instance started by quickstart, an HTTP client, and eyes on the host.

Nothing here but the standard library. Everything that waits does so for a condition, with a bound.
"""
import contextlib
import glob
import hashlib
import http.client
import json
import os
import random
import re
import secrets
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
QUICKSTART = os.path.join(TOP, "quickstart")


def wait_for(condition, seconds=30, what="the condition"):
    """Poll until condition() is true and return what it returned."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, f"{what} did not come true within {seconds} s"
        time.sleep(0.02)


def free_port():
    """A port that nothing uses, below those that the kernel gives to outgoing connections: one of these would be taken by a
    connection of any process on the machine between this call and the server's bind()."""
    first_outgoing = int(read("/proc/sys/net/ipv4/ip_local_port_range").split()[0])
    for _ in range(1000):
        with socket.socket() as s, contextlib.suppress(OSError):
            s.bind(("", random.randrange(10240, first_outgoing)))
            return s.getsockname()[1]
    raise AssertionError(f"no free port from 10240 to {first_outgoing}")


def new_key():
    return "e2b_" + secrets.token_hex(20)


@contextlib.contextmanager
def temporary_account():
    """(name, password) of an account of this machine that exists for that time."""
    name, password = "covetest" + secrets.token_hex(3), secrets.token_hex(8)
    subprocess.run(["useradd", "--no-create-home", "--shell", "/usr/sbin/nologin", name], check=True)
    try:
        subprocess.run(["chpasswd"], input=f"{name}:{password}\n", text=True, check=True)
        yield name, password
    finally:
        subprocess.run(["userdel", name], check=True)


def read(path, default=""):
    try:
        with open(path, errors="replace") as f:
            return f.read()
    except OSError:
        return default


def alive(pid):
    state = re.search(r"^State:\s+(\w)", read(f"/proc/{pid}/status"), re.M)
    return bool(state) and state.group(1) not in "ZX"


def title(pid):
    return read(f"/proc/{pid}/cmdline").replace("\0", " ").strip()


def status_field(pid, name):
    found = re.search(rf"^{name}:\s+(.*)$", read(f"/proc/{pid}/status"), re.M)
    return found.group(1) if found else ""


def namespace(pid, kind):
    try:
        return os.readlink(f"/proc/{pid}/ns/{kind}")
    except OSError:
        return None


def all_pids():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


class Reply:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self):
        return json.loads(self.body.decode("utf-8"))  # strict: a reply is UTF-8 JSON or the test fails

    @property
    def id(self):
        """The sandbox's bare id."""
        return self.json["sandboxId"].removeprefix("sandbox_")

    def __repr__(self):
        return f"<{self.status} {self.body[:600]!r}>"


class Server:
    def __init__(self, directory, **settings):
        self.dir = str(directory)
        self.settings = {"pool_max": settings["pool"], **settings} if "pool" in settings else settings
        self.http, self.https = free_port(), free_port()
        self.projects = set()
        self.up_output = ""
        self.within = []  # what quickstart is started by: ["nsenter", ...]

    # --- running it

    def quickstart(self, *args, check=True, top=TOP):
        done = subprocess.run([*self.within, os.path.join(top, "quickstart"), *args, "--dir", self.dir], text=True, timeout=300,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        assert not check or done.returncode == 0, done.stdout
        return done

    def up(self, *args, top=TOP):
        sets = [x for k, v in self.settings.items() for x in ("--set", f"{k}={v}")]
        done = self.quickstart("up", "--no-install", "--http", str(self.http), "--https", str(self.https),
                               *sets, *args, top=top)
        self.up_output = done.stdout
        self.key = self.env["COVE_KEY"]
        return self

    def down(self):
        done = self.quickstart("down")
        assert "left behind" not in done.stdout, done.stdout
        return done

    @property
    def env(self):
        return dict(re.findall(r"^export (COVE_\w+)=(.*)$", read(f"{self.dir}/env"), re.M))

    @property
    def config(self):
        lines = read(f"{self.dir}/conf/cove.conf").split("\n")
        return dict(re.split(r"\s*=\s*", line, 1) for line in lines if "=" in line and not line.startswith("#"))

    def change_config(self, **settings):
        """As an operator would: edit the file, then SIGHUP."""
        with open(f"{self.dir}/conf/cove.conf", "a") as f:
            for key, value in settings.items():
                f.write(f"{key} = {value}\n")
        os.kill(self.keeper_pid, signal.SIGHUP)

    def add_key(self, tenant):
        return self.add_keys([tenant])[tenant]

    def add_keys(self, tenants):
        """A key for each of these tenants: {tenant: key}. The server reads its keys once for all of them."""
        keys = {tenant: new_key() for tenant in tenants}
        with open(f"{self.dir}/conf/keys", "a") as f:
            f.writelines(f"{hashlib.sha256(key.encode()).hexdigest()} {tenant} test\n" for tenant, key in keys.items())
        os.kill(self.keeper_pid, signal.SIGHUP)
        for key in keys.values():
            wait_for(lambda: self.request("POST", "/cleanup", {"projectId": "-"}, key=key).status != 401,
                     what="the new key")
        return keys

    # --- talking to it

    def connect(self, timeout=60, tls=False, source=None):
        """`source` is the client's own address, one of 127.0.0.0/8."""
        if not tls:
            return http.client.HTTPConnection("127.0.0.1", self.http, timeout=timeout, source_address=source and (source, 0))
        context = ssl.create_default_context(cafile=glob.glob(f"{self.dir}/tls/*.crt")[0])
        return http.client.HTTPSConnection("127.0.0.1", self.https, timeout=timeout, context=context)

    def request(self, method, path, body=None, headers=None, key=True, timeout=60, tls=False, source=None):
        headers = dict(headers or {})
        if key:
            headers.setdefault("X-API-Key", self.key if key is True else key)
        if isinstance(body, (dict, list)):
            body = json.dumps(body).encode()
        with contextlib.closing(self.connect(timeout, tls, source)) as c:
            c.request(method, path, body=body, headers=headers)
            r = c.getresponse()
            return Reply(r.status, r.headers, r.read())

    def post(self, path, body, **kw):
        return self.request("POST", path, body, **kw)

    def execute(self, project, *commands, key=True, timeout=60, **extra):
        self.projects.add((project, key))
        return self.post("/execute", {"projectId": project, "commands": list(commands), **extra}, key=key,
                         timeout=timeout)

    def run(self, project, *commands, **kw):
        """execute, which must succeed; returns its stdout."""
        reply = self.execute(project, *commands, **kw)
        assert reply.status == 200 and reply.json["success"], reply
        return reply.json["stdout"]

    def cleanup(self, project, key=True):
        return self.post("/cleanup", {"projectId": project}, key=key)

    def raw(self, data, timeout=10):
        """Bytes as they are; returns all that comes back until the server closes."""
        with socket.create_connection(("127.0.0.1", self.http), timeout=timeout) as s:
            s.sendall(data)
            s.shutdown(socket.SHUT_WR)
            out = b""
            while chunk := s.recv(65536):
                out += chunk
            return out

    # --- looking at the host

    @property
    def run_dir(self):
        return self.config["run_dir"]

    @property
    def cgroup(self):
        return self.config["cgroup"]

    @property
    def keeper_pid(self):
        return int(read(f"{self.run_dir}/coved.pid", "0") or 0)

    def pids(self):
        """All of this instance: what is in its cgroup, and what writes to its log."""
        log = os.path.realpath(f"{self.dir}/log/coved.log")
        found = []
        for pid in all_pids():
            try:
                stderr = os.readlink(f"/proc/{pid}/fd/2")
            except OSError:
                stderr = ""
            in_cgroup = re.search(rf"/{re.escape(self.cgroup)}(/|$)", read(f"/proc/{pid}/cgroup"), re.M)
            if (in_cgroup or stderr == log) and alive(pid):
                found.append(pid)
        return found

    def titles(self, prefix):
        return {pid: title(pid) for pid in self.pids() if title(pid).startswith(prefix)}

    @property
    def worker_pids(self):
        return sorted(self.titles("cove: worker"))

    @property
    def inits(self):
        """{sandbox id: host pid of its init}"""
        return {t.split()[2]: pid for pid, t in self.titles("cove: init").items()
                if len(t.split()) > 2 and status_field(pid, "NSpid").split()[-1:] == ["1"]}

    def init_of(self, reply):
        return self.inits[reply.id]

    def inside(self, init_pid):
        """Host pids of what runs in a sandbox beside its init (and the process that init keeps ready, a fork of itself)."""
        ns = namespace(init_pid, "pid")
        return [p for p in all_pids() if ns and namespace(p, "pid") == ns and alive(p)
                and not title(p).startswith("cove: init")]

    def inside_titles(self, init_pid):
        return [title(p) for p in self.inside(init_pid)]

    def path_inside(self, init_pid, path):
        return f"/proc/{init_pid}/root{path}"

    def touch_inside(self, init_pid, path):
        """As the sandbox's root: the host's own has no id in there."""
        subprocess.run(["nsenter", "-t", str(init_pid), "--user", "--mount", "-S", "0", "-G", "0", "touch", path], check=True)

    def cgroups(self):
        return sorted(d for root in ("/sys/fs/cgroup", *glob.glob("/sys/fs/cgroup/*")) if os.path.isdir(root)
                      for d in [os.path.join(root, self.cgroup)] if os.path.isdir(d))

    def mounts(self):
        dirs = (self.run_dir + "/", os.path.realpath(self.dir) + "/")
        points = [line.split()[4] + "/" for line in read("/proc/self/mountinfo").split("\n") if line]
        return [p for p in points if p.startswith(dirs)]

    def sockets(self):
        return [line.split()[7] for line in read("/proc/net/unix").split("\n")[1:]
                if len(line.split()) > 7 and line.split()[7].startswith(self.run_dir + "/")]

    def network(self):
        """What it has in the host's network: rules, interfaces. Their names come from run_dir, like coved's."""
        value = 14695981039346656037
        for byte in self.run_dir.encode():
            value = (value ^ byte) * 1099511628211 % 2 ** 64
        value ^= value >> 32
        table, prefix = f"cove_{value % 2 ** 32:08x}", f"cv{value % 2 ** 24:06x}-"
        rules = subprocess.run(["nft", "list", "tables"], capture_output=True, text=True).stdout
        return [x for x in rules.split() if x == table] + [x for x in os.listdir("/sys/class/net") if x.startswith(prefix)]

    def left_over(self):
        """What `down` must not leave."""
        left = {"processes": [(p, title(p)) for p in self.pids()], "mounts": self.mounts(),
                "cgroups": self.cgroups(), "sockets": self.sockets(),
                "network": self.network()}
        return {k: v for k, v in left.items() if v}

    def log_lines(self):
        lines = []
        for line in read(f"{self.dir}/log/coved.log").split("\n")[:-1]:  # a line that is being written has no end yet
            if line:
                lines.append(json.loads(line))
        return lines

    # --- leaving it as it was found

    def tidy(self):
        """End the sandboxes of this test and see that nothing of them stays."""
        for project, key in self.projects:
            assert self.cleanup(project, key=key).status == 200
        self.projects.clear()
        pool = int(self.settings.get("pool", 16))
        wait_for(lambda: len(self.inits) <= pool, 15, f"{pool} sandboxes or fewer")
        wait_for(lambda: not any(self.inside(pid) for pid in self.inits.values()), 10, "empty warm sandboxes")


def new_dir():
    """For an instance: configuration, keys, logs and sandboxes."""
    return tempfile.mkdtemp(prefix="cove-test-")


def stop(server):
    """The end of an instance, which leaves nothing on the host."""
    run_dir = server.run_dir
    server.down()
    left = server.left_over()
    assert not left, left
    assert not os.path.exists(run_dir)
    shutil.rmtree(server.dir)
