"""What a template's manifest says holds in its sandboxes: user, directory, variables, start and ready commands, services."""
import json
import os
import re
import subprocess
import time

import pytest

from agent import Agent, is_error
from cove import read, wait_for
from mcp import Mcp
from test_template import COVE, instance, pack, small_root, store  # noqa: F401 (fixtures)
from websocket import Refused, WebSocket

SERVER = r"""
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
/* A WebSocket as test clients open it (always with the same key), which sends back short frames. */
static void echo(int c)
{
    unsigned char f[256];
    const char *yes = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                      "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
    write(c, yes, strlen(yes));
    for (int n, len; (n = read(c, f, sizeof(f))) >= 6 && (len = f[1] & 127) <= n - 6;) {
        unsigned char mask[4];
        memcpy(mask, f + 2, 4);
        for (int i = 0; i < len; i++)
            f[2 + i] = f[6 + i] ^ mask[i % 4];
        f[1] = len;
        write(c, f, 2 + len);
    }
}
int main(int argc, char **argv)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(atoi(argv[1])) };
    int s = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (argc < 2 || bind(s, (void *)&a, sizeof(a)) < 0 || listen(s, 8) < 0)
        return 3;
    for (;;) {
        char in[4096] = "";
        int c = accept(s, NULL, NULL), n = read(c, in, sizeof(in) - 1);
        if (n > 0 && strcasestr(in, "Upgrade: websocket"))
            echo(c);
        else if (n > 0)
            write(c, "HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nserved", 63);
        close(c);
    }
}
"""


@pytest.fixture(scope="module")
def root(small_root, tmp_path_factory):
    """The small root file system, and a server of HTTP in it."""
    folder = tmp_path_factory.mktemp("server")
    (folder / "serve.c").write_text(SERVER)
    subprocess.run(["cc", "-static", "-O1", "-w", "-o", small_root / "usr/bin/serve", folder / "serve.c"], check=True)
    return small_root


def add(store, root, *options, name="app", ok=True):
    return store.template("add", name, root, *options, ok=ok)


def use(store, command, project="p", template="app", **kw):
    return store.execute(project, command, template=template, **kw)


def executor(store, path, body, project="p", template="app"):
    return store.post(path, body, headers={"X-Project-Id": project, "X-Template": template})


# ------------------------------------------------------------------ user, directory, variables

def test_user_directory_and_variables_hold_in_every_dialect(store, root):
    add(store, root, "--user", "www", "--workdir", "/srv/app", "--env", "A=from template", "--env", "PATH=/usr/bin:/extra")
    reply = use(store, "id -un; pwd; echo $A $PATH")
    assert reply.json["stdout"] == "www\n/srv/app\nfrom template /usr/bin:/extra\n", reply
    reply = executor(store, "/run", {"cmd": "id -un; pwd; echo $A"})
    assert reply.json["stdout"] == "www\n/srv/app\nfrom template\n", reply
    assert use(store, "echo $A; pwd", env={"A": "mine"}, cwd="/").json["stdout"] == "mine\n/\n"  # what a client says goes first
    made = store.post("/sandboxes", {"templateID": "app"})
    assert made.status == 201 and made.json["templateID"] == "app", made
    id = made.json["sandboxID"]
    ran = store.post("/api/v1/agent/sandboxes/run-cmd", {"sandbox_id": id, "command": "id -un; pwd; echo $A"})
    assert ran.json["data"]["output"] == "www\n/srv/app\nfrom template\n", ran
    assert store.post("/api/v1/agent/sandboxes/write-file", {"sandbox_id": id, "file_path": "/tmp/agent", "content": "a"}).status == 200
    started = store.post(f"/console/api/sandboxes/{id}/processes", {"command": ": > /tmp/console"})
    assert started.status in (200, 201), started
    mcp = Mcp(store, path=f"/mcp/{id}")
    mcp.ok("write_file", path="/tmp/mcp", content="m")
    mcp.ok("run_command", command=": > /tmp/mcp-command")
    own = {"sandbox_id": id, "command": "for f in agent console mcp mcp-command; do test -O /tmp/$f && echo $f; done"}
    wait_for(lambda: store.post("/api/v1/agent/sandboxes/run-cmd", own).json["data"]["output"].split() ==
             ["agent", "console", "mcp", "mcp-command"], what="files of all dialects that are the template's user's own")
    assert store.request("DELETE", f"/sandboxes/{made.json['sandboxID']}").status == 204


def test_relay_s_way_of_naming_a_template_reaches_it(store, root):
    add(store, root, "--env", "A=from template")
    assert store.post("/api/sandboxes/named", {"template": "app"}).status in (200, 201)
    ran = store.post("/api/sandboxes/named/bridge/exec", {"command": "cat /etc/marker; echo $A"})
    assert ran.json["stdout"] == "from the template\nfrom template\n", ran
    assert store.post("/api/sandboxes/other", {"template": "nosuch"}).status == 404
    assert store.request("DELETE", "/api/sandboxes/named").status in (200, 204)


def test_limits_and_network_of_a_manifest_hold(store, root):
    add(store, root, "--limit", "pids_max=37", "--network", "none")
    reply = use(store, "true")
    corner, = [d for d in store.cgroups() if os.path.exists(f"{d}/pids.max")]
    assert read(f"{corner}/{reply.id}/pids.max") == "37\n"
    line = next(x for x in read(f"{store.run_dir}/templates").split("\n") if x.startswith("app "))
    assert line == "app pids_max=37 network=none"
    assert "limits" in add(store, root, "--limit", "pids=5", ok=False)
    assert "pids_max: '5 memory_max=1' is not a valid value" in add(store, root, "--limit", "pids_max=5 memory_max=1", ok=False)


def test_the_policy_and_the_seccomp_profile_of_a_manifest_hold(store, root):
    add(store, root, name="plain")
    add(store, root, "--policy", "careful", "--seccomp", "strict", name="strange")
    with open(store.config["policy_file"], "a") as f:
        f.write('\n[template=careful]\ndeny  careful-only  words  /^stat( |$)/  "not there"\n'
                '[template=strange]\ndeny  by-its-own-name  words  /^id( |$)/  "not here"\n')
    wait_for(lambda: use(store, "stat /", "strange", "strange").status == 400, 30, "the section in force")
    assert use(store, "stat /", "strange", "strange").json["rule"] == "careful-only"
    hidden = "x=$(echo /usr/bin/s?at); $x /; id -u; mkfifo /tmp/fifo && echo made"
    strange, plain = use(store, hidden, "strange", "strange").json, use(store, hidden, "plain", "plain").json
    assert "(careful-only)" in strange["stderr"] and "mkfifo" in strange["stderr"] and strange["stdout"] == "0\n", strange
    assert plain["stdout"].endswith("0\nmade\n") and plain["stderr"] == "", plain


def test_what_show_prints_can_be_given_back(store, root, tmp_path):
    add(store, root, "--start", "sleep\n1 \\ 'x'", "--ready", "true", "--env", "A=b\nc", "--label", "team=x", "--service-on-use", "9000=serve 9000",
        "--tenants", "default,acme", "--ready-timeout", "7")
    shown = json.loads(store.template("show", "app"))
    assert shown["start"] == "sleep\n1 \\ 'x'" and shown["env"] == {"A": "b\nc"} and shown["labels"] == {"team": "x"}, shown
    assert shown["services"] == [{"port": 9000, "command": "serve 9000", "when": "first-use"}] and shown["ready_timeout_s"] == 7
    (tmp_path / "m.json").write_text(json.dumps(shown))
    add(store, root, "--manifest", tmp_path / "m.json", name="again")
    again = json.loads(store.template("show", "again"))
    assert {k: v for k, v in again.items() if k not in ("name", "created_unix_ms")} == \
        {k: v for k, v in shown.items() if k not in ("name", "created_unix_ms")}


@pytest.mark.parametrize("manifest,says", [('{"strat": "x"}', "strat"), ('{"user": 5}', "user"), ('{"services": [{"port": 0, "command": "x"}]}', "port"),
                                           ("{", "m.json"), ('{"workdir": "here"}', "workdir"), ('{"env": {"A B": "x"}}', "env"),
                                           ('{"start": "x\\u0000y"}', "start"), ('{"ready_timeout_s": 1e9}', "ready_timeout_s")])
def test_a_manifest_with_a_mistake_is_refused_by_its_field(store, root, tmp_path, manifest, says):
    (tmp_path / "m.json").write_text(manifest)
    assert says in add(store, root, "--manifest", tmp_path / "m.json", ok=False)
    assert "app" not in store.template("ls") and not store.layers()


# ------------------------------------------------------------------ start and ready

def test_the_start_command_runs_before_the_hand_out_and_has_a_log(store, root):
    add(store, root, "--start", "echo begins; echo early > /etc/started; sleep 1000", "--ready", "test -s /etc/started", "--env", "WHO=start")
    reply = use(store, "cat /etc/started")
    assert reply.json["stdout"] == "early\n", reply
    logs = subprocess.run([COVE, "-c", f"{store.dir}/conf/cove.conf", "logs", reply.id], capture_output=True, text=True).stdout
    assert "start" in logs, logs
    text = subprocess.run([COVE, "-c", f"{store.dir}/conf/cove.conf", "logs", reply.id, "start"], capture_output=True, text=True).stdout
    assert "begins" in text
    assert any(t.startswith("sleep 1000") for t in store.inside_titles(store.init_of(reply)))


def test_a_sandbox_is_handed_out_when_its_ready_command_succeeds(store, root):
    add(store, root, "--start", "sleep 0.5; echo yes > /etc/up; sleep 1000", "--ready", "test -e /etc/up")
    assert use(store, "cat /etc/up").json["stdout"] == "yes\n"


@pytest.mark.parametrize("options,says", [
    (["--ready", "exit 3", "--ready-timeout", "0.5"], "ready command did not succeed within 1 s (exit code 3)"),
    (["--ready", "sleep 1000", "--ready-timeout", "0.5"], "ready command did not end within 1 s"),
    (["--start", "exit 7", "--ready", "false"], "start command ended with code 7"),
    (["--start", "exit 7", "--ready", "sleep 1"], "start command ended with code 7"),  # the ready command alone would have succeeded
    (["--start", "kill -9 $$", "--ready", "false"], "start command was ended by signal 9"),
    (["--start", "true", "--user", "nosuchuser"], "nosuchuser"),
    (["--start", "rm -rf /"], "policy forbids"),
])
def test_a_template_that_does_not_get_ready_fails_the_claim_with_a_sentence(store, root, options, says):
    add(store, root, *options)
    for ask in (lambda: use(store, "true"), lambda: executor(store, "/run", {"cmd": "true"}),
                lambda: store.post("/sandboxes", {"templateID": "app"})):
        reply = ask()
        assert reply.status == 422 and says in reply.body.decode() and "template 'app'" in reply.body.decode(), reply
    assert says in is_error(Agent(store).post("/create", user_id="u", sandbox_template_id="app"), 422, "SandboxNotInitializedError")
    wait_for(lambda: not store.inits, 10, "the end of what did not start")


def test_everybody_who_waits_for_one_sandbox_gets_it(store, root):
    import threading
    add(store, root, "--start", "sleep 0.7; echo x >> /etc/up; sleep 1000", "--ready", "test -e /etc/up")
    replies = []
    threads = [threading.Thread(target=lambda: replies.append(use(store, "cat /etc/up"))) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert {r.id for r in replies} == {replies[0].id} and all(r.json["stdout"] == "x\n" for r in replies), replies


def test_a_killed_starter_is_replaced_and_nothing_starts_twice(store, root):
    add(store, root, "--start", "echo x >> /etc/starts; sleep 1.5; echo > /etc/up; sleep 1000", "--ready", "test -e /etc/up")
    import threading
    replies = []
    thread = threading.Thread(target=lambda: replies.append(use(store, "cat /etc/starts")))
    thread.start()
    started = lambda: [pid for pid in store.inits.values() if os.path.exists(store.path_inside(pid, "/etc/starts"))]
    wait_for(started, 10, "the start command")
    pid = next(iter(store.titles("cove: starter")))
    os.kill(pid, 9)
    thread.join()
    assert replies[0].json["stdout"] == "x\n", replies
    assert pid not in store.titles("cove: starter")


# ------------------------------------------------------------------ services

def port(store, sandbox, number):
    return store.request("GET", "/", headers={"Host": f"{number}-{sandbox}.localhost"})


def test_services_start_at_creation_or_when_their_port_is_first_reached(store, root):
    add(store, root, "--service", "3000=serve 3000", "--service-on-use", "9000=serve 9000", "--ready", "test -e /proc/net/tcp")
    reply = use(store, "true")
    running = lambda: store.inside_titles(store.init_of(reply))
    assert "serve 3000" in running() and "serve 9000" not in running()
    got = port(store, reply.id, 3000)
    assert got.status == 200 and got.body == b"served", got
    assert "serve 9000" not in running()
    stranger = store.request("GET", "/", headers={"Host": f"9000-{reply.id}.localhost"}, key=False)
    assert stranger.status == 401 and "serve 9000" not in running(), stranger
    got = port(store, reply.id, 9000)
    assert got.status == 200 and got.body == b"served", got
    assert running().count("serve 9000") == 1
    assert port(store, reply.id, 9000).status == 200 and running().count("serve 9000") == 1


def test_what_a_template_declares_for_vs_code_starts_when_its_link_is_opened(store, root):
    """A stand-in for code-server: a page, and a WebSocket with the cookie that the link has set (docs/TEMPLATES.md has the real one)."""
    add(store, root, "--service-on-use", "9000=serve 9000")
    made = store.post("/api/v1/agent/sandboxes/create", {"user_id": "coder", "sandbox_template_id": "app"}).json["data"]
    sandbox = made["sandbox_id"]
    try:
        init = store.inits[made["provider_sandbox_id"]]
        urls = store.request("GET", f"/api/v1/agent/sandboxes/{sandbox}/urls").json["data"]
        host, path = re.fullmatch(r"https?://([^/]+)(/.*)", urls["vscode_link"]).groups()
        assert urls["vscode_url"].split("//")[1] == host and host.startswith("9000-")
        with pytest.raises(Refused) as refused:
            WebSocket(store, "/", host=host)
        assert refused.value.status == 401 and "serve 9000" not in store.inside_titles(init), "a stranger starts nothing"
        opened = store.request("GET", path, headers={"Host": host}, key=False)
        cookie = opened.headers["Set-Cookie"].split(";")[0]
        page = store.request("GET", "/", headers={"Host": host, "Cookie": cookie}, key=False)
        assert opened.status == 302 and page.body == b"served" and store.inside_titles(init).count("serve 9000") == 1
        with WebSocket(store, "/", {"Cookie": cookie}, host=host) as socket:
            socket.send("typed in the editor")
            assert socket.recv() == "typed in the editor"
    finally:
        store.request("DELETE", f"/api/v1/agent/sandboxes/{sandbox}")


# ------------------------------------------------------------------ names

def test_unknown_and_foreign_templates_are_refused_in_every_dialect(store, root):
    add(store, root, "--tenants", "acme")
    add(store, root, name="acme/mine")
    for name in ("app", "acme/mine", "mine", "nosuch"):
        for reply in (use(store, "true", template=name), executor(store, "/run", {"cmd": "true"}, template=name),
                      store.post("/sandboxes", {"templateID": name})):
            assert reply.status in (400, 404) and name in reply.body.decode(), (name, reply)
    for name in ("UPPER", "../base", "a b", "x" * 200):
        assert use(store, "true", template=name).status == 400
    key = store.add_key("acme")
    for name in ("app", "acme/mine", "mine"):
        reply = store.execute(f"p-{name.replace('/', '-')}", "cat /etc/marker", key=key, template=name)
        assert reply.status == 200 and reply.json["stdout"] == "from the template\n", (name, reply)


def test_default_is_another_name_of_base(store):
    assert "gcc" in store.run("p", "ls /usr/bin", template="default")
    assert store.run("p", "true", template="base") == ""


def test_a_project_with_a_sandbox_of_another_template_is_told_so(store, root):
    add(store, root)
    store.run("p", "true", template="base")
    reply = use(store, "true")
    assert reply.status == 409 and "base" in reply.body.decode(), reply


def test_a_changed_template_is_seen_by_the_next_sandbox(store, root):
    add(store, root, "--env", "V=1")
    assert use(store, "echo $V", project="a").json["stdout"] == "1\n"
    store.template("set", "app", "--env", "V=2")
    assert use(store, "echo $V", project="b").json["stdout"] == "2\n"


def test_an_image_without_bash_uses_sh_and_says_so_once(store, root, tmp_path):
    tree = tmp_path / "nobash"
    subprocess.run(["cp", "-a", root, tree], check=True)
    os.unlink(tree / "usr/bin/bash")
    assert "has no bash" in add(store, tree)
    first, second = use(store, "echo one"), use(store, "echo two")
    assert first.json["stdout"] == "one\n" and "no bash" in first.json["stderr"], first
    assert second.json["stdout"] == "two\n" and second.json["stderr"] == "", second
    assert executor(store, "/run", {"cmd": "echo three"}).json["stdout"] == "three\n"


def test_an_image_without_any_shell_is_told_what_it_can_do(store, small_root, tmp_path):
    tree = tmp_path / "noshell"
    subprocess.run(["cp", "-a", small_root, tree], check=True)
    os.unlink(tree / "usr/bin/bash")
    os.unlink(tree / "usr/bin/sh")
    said = add(store, tree)
    assert "neither bash nor sh" in said and "start" not in said.split("without one")[1] and "run with sh" not in said, said
    assert "shell" not in json.loads(store.template("show", "app"))
    reply = use(store, "echo one")
    assert reply.status == 400 and "/bin/bash': No such file" in reply.json["error"], reply
    direct = subprocess.run([COVE, "-c", f"{store.dir}/conf/cove.conf", "exec", reply.id, "cat", "/etc/marker"], capture_output=True, text=True)
    assert direct.stdout == "from the template\n", direct
    said = add(store, tree, "--start", "sleep 100")
    assert '--start ""' in said, said
    reply = use(store, "true", project="q")
    assert reply.status == 422 and "start command" in reply.json["error"], reply
    assert '--start ""' not in add(store, tree, "--start", "")



def test_an_image_for_another_processor_is_refused(store, root, tmp_path):
    tree = tmp_path / "arm"
    (tree / "bin").mkdir(parents=True)
    program = bytearray(open(root / "usr/bin/bash", "rb").read(4096))
    program[18:20] = (183).to_bytes(2, "little")  # AArch64
    (tree / "bin/bash").write_bytes(program)
    assert "another processor" in add(store, tree, ok=False)
    assert "app" not in store.template("ls")


# ------------------------------------------------------------------ the pool

@pytest.fixture
def pooled():
    from cove import Server, new_dir, stop
    server = Server(new_dir(), pool=1, workers=1)
    yield server.up()
    stop(server)


def test_what_waits_in_the_pool_has_started_and_a_change_empties_the_pool(pooled, root):
    server = pooled
    template = lambda *args: subprocess.run([COVE, "-c", f"{server.dir}/conf/cove.conf", "template", *map(str, args)], check=True,
                                            capture_output=True)
    template("add", "app", root, "--start", "echo 1 > /etc/started; sleep 1000", "--ready", "test -e /etc/started")
    server.change_config(template="app")
    server.run("drain", "true", template="base")  # the one that was in the pool before
    warm = lambda: [pid for pid in server.inits.values() if read(server.path_inside(pid, "/etc/started")) == "1\n"]
    pid = wait_for(warm, 15, "a started sandbox in the pool")[0]
    reply = server.execute("p", "cat /etc/started")
    assert reply.json["stdout"] == "1\n" and server.init_of(reply) == pid
    wait_for(lambda: [p for p in warm() if p != pid], 15, "the next one")
    template("set", "app", "--start", "echo 2 > /etc/started; sleep 1000")
    assert server.run("q", "cat /etc/started") == "2\n"
    assert server.run("p", "cat /etc/started") == "1\n"  # it goes on
    for project in ("drain", "p", "q"):
        server.cleanup(project)


def test_a_removed_template_leaves_the_pool_and_its_sandboxes_go_on(pooled, root):
    server = pooled
    template = lambda *args: subprocess.run([COVE, "-c", f"{server.dir}/conf/cove.conf", "template", *map(str, args)], check=True,
                                            capture_output=True, text=True).stdout
    template("add", "app", root, "--start", "echo 1 > /etc/started; sleep 1000", "--ready", "test -e /etc/started")
    server.change_config(template="app")
    server.run("drain", "true", template="base")
    warm = lambda: [pid for pid in server.inits.values() if read(server.path_inside(pid, "/etc/started")) == "1\n"]
    pid = wait_for(warm, 15, "a started sandbox in the pool")[0]
    assert server.init_of(server.execute("p", "true")) == pid
    wait_for(lambda: [p for p in warm() if p != pid], 15, "the next one in the pool")
    template("rm", "app")
    reply = server.execute("q", "true")
    assert reply.status == 404 and "no template 'app'" in reply.body.decode(), reply
    wait_for(lambda: warm() == [pid], 15, "a pool without it")
    assert template("gc").startswith("0 layers") and server.run("p", "cat /etc/marker /etc/started") == "from the template\n1\n"
    server.change_config(template="base")
    for project in ("drain", "p"):
        server.cleanup(project)
    wait_for(lambda: template("gc").startswith("2 layers"), 15, "layers that nobody needs")
