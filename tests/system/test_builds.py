"""Templates that a tenant builds: what happens when something dies, is full, or is not what it says.

That builds work, step by step, is tests/clients/templates.test.mjs, with the official SDK."""
import contextlib
import gzip
import hashlib
import io
import os
import shutil
import signal
import subprocess
import tarfile
import urllib.parse

import pytest

from cove import alive, read, wait_for

WAITING = ("waiting", "building")


@pytest.fixture(scope="module")
def server():
    from cove import new_dir, stop
    from cove import Server
    server = Server(new_dir(), pool=0, workers=1, disk_max="400M", build_files="8M", builds_tenant=2, build_timeout="15s")
    yield server.up()
    stop(server)


class Build:
    def __init__(self, server, name, steps=(), key=True, limits=None, **order):
        self.server, self.key, self.name = server, key, name
        made = server.post("/v3/templates", {"name": name, **(limits or {})}, key=key)
        assert made.status == 202, made
        self.id, self.template = made.json["buildID"], made.json["templateID"]
        self.path = f"/templates/{urllib.parse.quote(self.template, safe='')}/builds/{self.id}"
        body = {"fromTemplate": "base", "steps": [{"type": kind, "args": list(args)} for kind, *args in steps], **order}
        started = server.post(f"/v2{self.path}", body, key=key)
        assert started.status == 202 and started.body == b"", started

    def status(self, query=""):
        reply = self.server.request("GET", f"{self.path}/status{query}", key=self.key)
        return reply.json if reply.status == 200 else reply

    def end(self, seconds=60):
        return wait_for(lambda: self.status() if self.status()["status"] not in WAITING else None, seconds, "the build's end")

    def ready(self):
        end = self.end()
        assert end["status"] == "ready", end
        return self

    def messages(self):
        found = []
        while page := self.status(f"?logsOffset={len(found)}")["logEntries"]:
            found += [entry["message"] for entry in page]
        return found


def sandboxes(server):
    return list(server.inits.values())


def files_of(server):
    return os.listdir(f"{server.config['state_dir']}/builds")


def upload(server, name, archive, hash=None, key=True):
    hash = hash or hashlib.sha256(archive).hexdigest()
    if server.request("GET", f"/templates/{name}", key=key).status == 404:
        assert server.post("/v3/templates", {"name": name}, key=key).status == 202
    link = server.request("GET", f"/templates/{name}/files/{hash}", key=key)
    assert link.status == 201, link
    if link.json["present"]:
        return hash, 200
    path = link.json["url"].split("/", 3)[3]
    return hash, server.request("PUT", f"/{path}", archive, key=False).status


def tar_of(*members):
    """Members are (name, kind, content or target)."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, kind, content in members:
            info = tarfile.TarInfo(name)
            info.type = kind
            if kind == tarfile.REGTYPE:
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
            else:
                info.linkname = content
                info.devmajor, info.devminor = 8, 0
                tar.addfile(info)
    return out.getvalue()


# ------------------------------------------------------------------ every dialect

def test_a_built_template_is_one_in_every_dialect(server):
    Build(server, "everywhere", [("ENV", "WORD", "built"), ("WORKDIR", "/srv/here"), ("RUN", "echo made > file"), ("USER", "somebody")],
          startCmd="id -un > /tmp/begun; sleep 1000", readyCmd="test -s /tmp/begun").ready()
    look, found = "cat file; pwd; echo $WORD; id -un; cat /tmp/begun", "made\n/srv/here\nbuilt\nsomebody\nsomebody\n"
    for name in ("everywhere", "default/everywhere"):
        for ask in (lambda: server.execute("p1", look, template=name),
                    lambda: server.post("/run", {"cmd": look}, headers={"X-Project-Id": "p1", "X-Template": name})):
            reply = ask()
            assert reply.status == 200 and reply.json["stdout"] == found, reply
            server.cleanup("p1")
    for path, body in (("/sandboxes", {"templateID": "everywhere"}),
                       ("/api/v1/agent/sandboxes/create", {"user_id": "u", "sandbox_template_id": "everywhere"})):
        made = server.post(path, body).json
        sandbox = made["sandboxID"] if "sandboxID" in made else made["data"]["sandbox_id"]
        done = server.post("/api/v1/agent/sandboxes/run-cmd", {"sandbox_id": sandbox, "command": look})
        assert done.json["data"]["output"] == found, done
        server.request("DELETE", f"/api/v1/agent/sandboxes/{sandbox}")
    other = server.add_key("elsewhere")
    for name in ("everywhere", "default/everywhere"):
        reply = server.execute("p1", "cat /srv/here/file", key=other, template=name)
        assert reply.status >= 400 and "made" not in str(reply), reply


def test_a_templates_limits_are_those_of_its_sandboxes(server):
    look = "nproc; grep MemTotal: /proc/meminfo"
    Build(server, "narrow", limits={"cpuCount": 1, "memoryMB": 128}).ready()
    reply = server.execute("narrow", look, template="narrow")
    assert reply.json["stdout"].split() == ["1", "MemTotal:", str(128 << 10), "kB"], reply
    server.cleanup("narrow")
    usual = server.run("wide", look)
    Build(server, "wide", limits={"cpuCount": 512, "memoryMB": 1 << 20}).ready()
    server.cleanup("wide")
    assert server.execute("wide", look, template="wide").json["stdout"] == usual, "no more than the server gives"
    server.cleanup("wide")


# ------------------------------------------------------------------ what dies

def test_a_killed_builder_is_replaced_and_what_it_built_is_told_as_failed(server):
    build = Build(server, "cut-off", [("RUN", "echo begun; sleep 300")])
    wait_for(lambda: "begun" in build.messages(), what="the step")
    assert len(sandboxes(server)) == 1
    pid = next(iter(server.titles("cove: builder")))
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: server.titles("cove: builder") and pid not in server.titles("cove: builder"), what="the next builder")
    end = wait_for(lambda: (s := build.status()) and isinstance(s, dict) and s["status"] == "error" and s, what="its word")
    assert "restarted" in end["reason"]["message"]
    assert "begun" in build.messages()
    wait_for(lambda: not sandboxes(server), what="the end of its sandbox")
    assert server.request("GET", "/templates/aliases/cut-off").status == 404
    Build(server, "cut-off", [("RUN", "true")]).ready()


def test_a_killed_worker_costs_no_build(server):
    build = Build(server, "goes-on", [("RUN", "echo begun; until [ -e /tmp/go ]; do sleep 0.1; done")])
    wait_for(lambda: "begun" in build.messages(), what="the step")
    for pid in server.worker_pids:
        os.kill(pid, signal.SIGKILL)
    init = sandboxes(server)[0]
    server.touch_inside(init, "/tmp/go")
    wait_for(lambda: getattr(server.request("GET", "/health"), "status", 0) == 200, what="a worker")
    build.ready()


def test_a_build_whose_sandbox_is_killed_says_so(server):
    build = Build(server, "no-sandbox", [("RUN", "echo begun; sleep 300")])
    wait_for(lambda: "begun" in build.messages(), what="the step")
    os.kill(sandboxes(server)[0], signal.SIGKILL)
    end = build.end()
    assert end["status"] == "error" and end["reason"]["step"] == "1", end
    assert server.request("GET", "/templates/aliases/no-sandbox").status == 404


@pytest.mark.parametrize("was_built_before", [True, False])
def test_deleting_a_template_ends_its_build(server, was_built_before):
    if was_built_before:
        Build(server, "deleted").ready()
    build = Build(server, "deleted", [("RUN", "echo begun; sleep 300")])
    wait_for(lambda: "begun" in build.messages(), what="the step")
    assert server.request("DELETE", "/templates/deleted").status == 204
    wait_for(lambda: not sandboxes(server), what="the end of its sandbox")
    assert server.request("GET", "/templates/aliases/deleted").status == 404
    assert build.status().status == 404
    assert server.request("DELETE", "/templates/deleted").status == 404


# ------------------------------------------------------------------ bounds

def test_a_log_is_bounded_and_says_where_it_ends(server):
    build = Build(server, "chatty", [("RUN", "head -c 3000000 /dev/zero | tr '\\0' x | fold -w 500; echo -n 'no line end'")]).ready()
    messages = build.messages()
    assert any("log is full" in m for m in messages)
    assert sum(map(len, messages)) < 300 * 1024 and all(len(m) < 1024 for m in messages)
    log = [name for name in files_of(server) if name == f"l.{build.id}"]
    assert os.path.getsize(f"{server.config['state_dir']}/builds/{log[0]}") < 300 * 1024


def test_control_characters_do_not_reach_the_reader(server):
    build = Build(server, "escapes", [("RUN", "printf 'a\\033[31mred\\007b\\r\\nnext\\n'")]).ready()
    assert "a [31mred b" in build.messages() and "next" in build.messages()


def test_last_words_without_a_line_end_are_told_although_the_pipe_stays_open(server):
    build = Build(server, "unfinished", [("RUN", "sleep 300 & printf 'no line end' >&2; exit 7")])
    assert build.end()["reason"]["message"].endswith("exit status 7: no line end")
    assert "no line end" in build.messages()


def test_a_step_has_a_time_limit(server):
    end = Build(server, "slow", [("RUN", "sleep 300")]).end()
    assert end["status"] == "error" and "sleep 300" in end["reason"]["message"], end
    wait_for(lambda: not sandboxes(server), what="the end of its sandbox")


def test_no_more_builds_run_at_once_than_a_tenant_may_have(server):
    builds = [Build(server, f"queue-{i}", [("RUN", f"echo begun {i}; until [ -e /tmp/go ]; do sleep 0.1; done")]) for i in range(4)]
    wait_for(lambda: sum(f"begun {i}" in b.messages() for i, b in enumerate(builds)) == 2, what="two of them")
    assert sorted(b.status()["status"] for b in builds) == ["building", "building", "waiting", "waiting"]
    assert len(sandboxes(server)) == 2

    def go_on():
        for pid in sandboxes(server):
            with contextlib.suppress(subprocess.CalledProcessError):  # it has just ended
                server.touch_inside(pid, "/tmp/go")
        return all(b.status()["status"] == "ready" for b in builds)
    wait_for(go_on, 60, "all four")


def test_two_builds_of_one_name_leave_one_template(server):
    builds = [Build(server, "twice", [("RUN", f"echo {i} > who")]) for i in range(2)]
    ends = [b.end() for b in builds]
    assert [e["status"] for e in ends] == ["ready", "ready"]
    listed = [t for t in server.request("GET", "/templates").json if t["aliases"] == ["twice"]]
    assert len(listed) == 1 and listed[0]["buildID"] in [b.id for b in builds]


def test_a_full_disk_ends_a_build_and_leaves_nothing(server):
    build = Build(server, "fat", [("RUN", "head -c 900M /dev/zero > big")])
    end = build.end(120)
    assert end["status"] == "error", end
    wait_for(lambda: not sandboxes(server), what="the end of its sandbox")
    assert server.request("GET", "/templates/aliases/fat").status == 404


# ------------------------------------------------------------------ hostile files

def copy_build(server, name, archive, args=("x", "/srv/x/", "", "")):
    hash, status = upload(server, name, archive)
    assert status in (200, 204), status
    made = server.post("/v3/templates", {"name": name})
    build = Build.__new__(Build)
    build.server, build.key, build.id = server, True, made.json["buildID"]
    build.path = f"/templates/{urllib.parse.quote(made.json['templateID'], safe='')}/builds/{build.id}"
    started = server.post(f"/v2{build.path}", {"fromTemplate": "base", "steps": [{"type": "COPY", "args": list(args), "filesHash": hash}]})
    assert started.status == 202, started
    return build


def test_an_archive_cannot_write_outside_its_sandbox(server):
    mark = f"/tmp/cove-escape-{os.getpid()}"
    evil = tar_of(("../../../../../.." + mark, tarfile.REGTYPE, b"out"), (mark, tarfile.REGTYPE, b"out"),
                  ("link", tarfile.SYMTYPE, "/tmp"), ("link/" + mark.split("/")[-1], tarfile.REGTYPE, b"out"),
                  ("dev", tarfile.BLKTYPE, ""), ("x", tarfile.REGTYPE, b"fine"))
    copy_build(server, "evil", evil).end()
    assert not os.path.exists(mark)


@pytest.mark.parametrize("what, archive", [
    ("garbage", b"\x1f\x8b" + os.urandom(2000)),
    ("cut off", gzip.compress(tar_of(("x", tarfile.REGTYPE, os.urandom(100000))))[:5000]),
    ("empty", b""),
    ("another", tar_of(("y", tarfile.REGTYPE, b"y"))),
])
def test_files_that_are_no_archive_fail_the_step(server, what, archive):
    end = copy_build(server, f"bad-{what.replace(' ', '-')}", archive).end()
    assert end["status"] == "error" and "failed to copy 'x'" in end["reason"]["message"], end
    assert end["reason"]["step"] == "1"


def test_a_source_that_leads_out_is_refused(server):
    archive = tar_of(("x", tarfile.REGTYPE, b"x"))
    for i, src in enumerate(("../x", "/etc/passwd", "a/../../x")):
        end = copy_build(server, f"out-{i}", archive, (src, "/srv/", "", "")).end()
        assert end["status"] == "error" and "leads out" in end["reason"]["message"], end


def test_a_bomb_fills_its_own_sandbox_only(server):
    bomb = gzip.compress(tar_of(("x", tarfile.REGTYPE, bytes(600 << 20))))
    assert len(bomb) < 1 << 20
    end = copy_build(server, "bomb", bomb).end(120)
    assert end["status"] == "error", end
    wait_for(lambda: not sandboxes(server), what="the end of its sandbox")


def test_uploads_are_bounded_and_the_oldest_go(server):
    hashes = []
    for i in range(4):
        hash, status = upload(server, "files", bytes([i]) * (3 << 20))
        assert status == 204
        hashes.append(hash)
    stored = [name for name in files_of(server) if name.startswith("f.")]
    assert sum(os.path.getsize(f"{server.config['state_dir']}/builds/{name}") for name in stored) <= 8 << 20
    assert server.request("GET", f"/templates/files/files/{hashes[0]}").json["present"] is False
    assert server.request("GET", f"/templates/files/files/{hashes[-1]}").json["present"] is True
    assert upload(server, "files", bytes(9 << 20))[1] == 413
    assert not [name for name in files_of(server) if name.startswith("n.")]


def test_an_upload_that_is_cut_off_leaves_nothing(server):
    hash = hashlib.sha256(os.urandom(8)).hexdigest()
    assert server.post("/v3/templates", {"name": "x"}).status == 202
    url = server.request("GET", f"/templates/x/files/{hash}").json["url"]
    head = f"PUT /{url.split('/', 3)[3]} HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n".encode()
    connection = server.connect()
    connection.connect()
    connection.sock.sendall(head + b"x" * 1000)
    wait_for(lambda: [n for n in files_of(server) if n.startswith("n.")], what="the beginning of the upload")
    connection.sock.close()
    wait_for(lambda: not [n for n in files_of(server) if n.startswith("n.")], what="the end of the upload")
    assert server.request("GET", f"/templates/x/files/{hash}").json["present"] is False


# ------------------------------------------------------------------ what is kept

def test_templates_with_their_manifests_outlive_a_restart(server):
    Build(server, "stays", [("ENV", "KEPT", "yes"), ("RUN", "echo here > f")], startCmd="echo up > /dev/shm/up; sleep 1000",
          readyCmd="test -s /dev/shm/up").ready()
    old = server.keeper_pid
    os.kill(old, signal.SIGKILL)
    wait_for(lambda: not alive(old), 30, "the keeper's death")
    shutil.rmtree(f"{server.run_dir}/snapshots")  # as after a start of the machine: nothing in run_dir outlives that
    server.quickstart("up", "--no-install")
    assert server.keeper_pid != old
    reply = server.execute("stays", "cat f; echo $KEPT; cat /dev/shm/up", template="stays")
    assert reply.status == 200 and reply.json["stdout"] == "here\nyes\nup\n", reply
    server.cleanup("stays")


def test_nothing_of_a_build_is_left_when_its_template_is_deleted(server):
    for template in [t for t in server.request("GET", "/templates").json if not t["public"]]:
        assert server.request("DELETE", "/templates/" + urllib.parse.quote(template["templateID"], safe="")).status == 204
    assert not [t for t in server.request("GET", "/templates").json if not t["public"]]
    published = f"{server.run_dir}/snapshots"
    wait_for(lambda: not os.listdir(published), 30, "the manifests' end")
    assert read(f"{server.run_dir}/manifests")
