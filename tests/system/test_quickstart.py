"""quickstart: the first five minutes, and the clean end."""
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time

import pytest

from cove import QUICKSTART, TOP, Server, alive, read, wait_for


def test_up_shows_its_steps_and_prints_url_key_and_a_command_that_works(server):
    out = server.up_output
    steps = re.findall(r"^\[(\d)/(\d)\]", out, re.M)
    assert [int(a) for a, _ in steps] == list(range(1, int(steps[0][1]) + 1))
    assert f"http://127.0.0.1:{server.http}" in out and server.key in out
    command = out[out.index("curl -s"):]
    server.projects.add(("hello", True))
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert '"success":true' in done.stdout.replace(" ", "") and "hello from" in done.stdout, done


def test_the_env_file_is_private_and_complete(server):
    path = f"{server.dir}/env"
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert server.env == {"COVE_URL": f"http://127.0.0.1:{server.http}", "COVE_DOMAIN": "cove.localhost",
                          "COVE_TLS_URL": f"https://127.0.0.1:{server.https}", "COVE_KEY": server.key,
                          "COVE_CONFIG": f"{os.path.realpath(server.dir)}/conf/cove.conf"}
    assert re.fullmatch(r"e2b_[0-9a-f]{40}", server.key)
    assert stat.S_IMODE(os.stat(f"{server.dir}/conf/keys").st_mode) & 0o077 == 0


@pytest.mark.parametrize("shell", ["bash", "dash"])
def test_a_shell_that_reads_the_env_file_is_about_that_instance(server, project, shell):
    reply = server.execute(project, "true")
    script = f'. {server.dir}/env; . {server.dir}/env; cove ls; curl -s -H "X-API-Key: $COVE_KEY" $COVE_URL/health; man -w cove; echo $PATH'
    done = subprocess.run([shell, "-eu", "-c", script], capture_output=True, text=True, env={"PATH": os.environ["PATH"]})
    assert done.returncode == 0 and reply.id in done.stdout and '{"status":"ok"}' in done.stdout, done
    assert f"{TOP}/.cove/inst/share/man/man1/cove.1" in done.stdout, done
    assert done.stdout.count(f"{TOP}/.cove/inst/bin") == 1, "reading it twice changes nothing"


def test_a_second_up_is_quick_and_changes_nothing(server, project):
    first = server.execute(project, "true")
    before = (server.keeper_pid, server.worker_pids, server.key)
    began = time.monotonic()
    out = server.quickstart("up", "--no-install").stdout
    assert time.monotonic() - began < 5
    assert "running already" in out and server.key in out
    assert (server.keeper_pid, server.worker_pids, server.env["COVE_KEY"]) == before
    assert server.execute(project, "true").id == first.id


def test_up_with_a_new_setting_restarts_the_keeper_and_keeps_the_sandboxes(make_server):
    server = make_server()
    first = server.execute("p", "true")
    server.quickstart("up", "--no-install", "--set", "command_timeout=1s")
    second = server.execute("p", "sleep 10")
    assert second.json["exitCode"] == 124 and server.execute("p", "true").id == first.id


def test_status_says_what_runs(server):
    out = server.quickstart("status").stdout
    assert f"pid {server.keeper_pid}" in out and f"http://127.0.0.1:{server.http}" in out
    assert re.search(rf"workers\s+{len(server.worker_pids)}\b", out)
    assert re.search(r"sandboxes\s+\d+", out)


def test_logs_are_for_people_and_can_be_searched(server, project):
    server.run(project, "true")
    server.cleanup(project)
    out = wait_for(lambda: (lambda text: text if "sandbox retired" in text else None)(server.quickstart("logs", project).stdout), what="the line")
    lines = out.strip().splitlines()
    assert all(project in line and not line.startswith("{") for line in lines), out
    assert re.match(r"\d{4}-\d\d-\d\dT\S+ info ", lines[-1]), lines[-1]


def test_logs_of_what_never_ran_say_what_to_do(tmp_path):
    done = Server(tmp_path).quickstart("logs", check=False)
    assert done.returncode == 1 and "./quickstart up" in done.stdout


def test_status_fails_when_something_is_down(make_server):
    server = make_server()
    assert server.quickstart("status", check=False).returncode == 0
    pid = int(read(f"{server.run_dir}/nginx.pid"))
    os.kill(pid, signal.SIGTERM)
    wait_for(lambda: not alive(pid), 10, "the end of nginx")
    done = server.quickstart("status", check=False)
    assert done.returncode == 1 and "nginx" in done.stdout and "not running" in done.stdout, done.stdout
    assert "/health does not answer" in done.stdout
    server.quickstart("up", "--no-install")
    assert server.quickstart("status", check=False).returncode == 0


def test_status_fails_without_workers(make_server):
    server = make_server()
    stopped = server.keeper_pid
    os.kill(stopped, signal.SIGSTOP)  # or it would replace them
    try:
        for pid in server.worker_pids:
            os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not server.worker_pids, 5, "the end of the workers")
        done = server.quickstart("status", check=False)
    finally:
        os.kill(stopped, signal.SIGCONT)
    assert done.returncode == 1 and "no worker runs" in done.stdout, done.stdout


def test_a_wrong_setting_leaves_the_running_server_alone(make_server):
    server = make_server()
    first, before = server.execute("p", "true"), (server.keeper_pid, server.worker_pids)
    for wrong, word in (("memroy_max=1G", "memroy_max"), ("memory_max=lots", "memory_max"), ("policy_file=/no/such/file", "/no/such/file")):
        done = server.quickstart("up", "--no-install", "--set", wrong, check=False)
        assert done.returncode == 1 and word in done.stdout and "still runs" in done.stdout, done.stdout
    assert (server.keeper_pid, server.worker_pids) == before and server.execute("p", "true").id == first.id
    assert "running already" in server.quickstart("up", "--no-install").stdout, "a wrong setting is not remembered"


def test_up_keeps_what_an_operator_wrote_into_the_policy(make_server):
    server = make_server()
    with open(f"{server.dir}/conf/policy.conf", "a") as f:
        f.write("# an operator's own line\n")
    edited = read(f"{server.dir}/conf/policy.conf")
    server.quickstart("up", "--no-install", "--set", "command_timeout=3s")
    assert read(f"{server.dir}/conf/policy.conf") == edited
    server.down()
    server.up()
    assert read(f"{server.dir}/conf/policy.conf") == edited


def test_status_and_down_of_what_does_not_run(tmp_path):
    server = Server(tmp_path)
    done = server.quickstart("status", check=False)
    assert done.returncode == 3 and "not running" in done.stdout
    assert "not running" in server.quickstart("down").stdout


@pytest.mark.parametrize("flag", ["http", "https"])
def test_a_taken_port_is_told_with_its_owner_and_the_flag(tmp_path, flag):
    server = Server(tmp_path)
    with socket.socket() as s:
        s.bind(("127.0.0.1", getattr(server, flag)))
        s.listen()
        done = server.quickstart("up", "--no-install", "--http", str(server.http), "--https", str(server.https),
                                 check=False)
    assert done.returncode == 1
    last = done.stdout.strip().split("\n")[-1]
    assert str(getattr(server, flag)) in last and f"--{flag} PORT" in last and f"pid {os.getpid()}" in last
    assert not os.path.exists(f"/run/{server.config.get('cgroup', 'cove-none')}")
    server.quickstart("down")


@pytest.mark.parametrize("args,words", [
    (["up", "--http", "abc"], "not a port"), (["up", "--http", "70000"], "not a port"), (["up", "--http"], "value"),
    (["up", "--set", "x"], "key=value"), (["up", "--wrong"], "--wrong"), (["dance"], "dance"),
    (["test", "--only", "x"], "--only")])
def test_wrong_arguments_are_told_in_a_sentence(tmp_path, args, words):
    extra = ["--no-install"] if args[0] == "up" else []
    done = subprocess.run([QUICKSTART, args[0], *extra, *args[1:]], capture_output=True, text=True,
                          env={**os.environ, "HOME": str(tmp_path)})
    assert done.returncode != 0 and words in done.stderr and "[1/" not in done.stdout, "before anything is begun"


def test_an_unknown_setting_is_told_and_nothing_is_started(tmp_path):
    server = Server(tmp_path)
    done = server.quickstart("up", "--no-install", "--http", str(server.http), "--https", str(server.https),
                             "--set", "no_such_key=1", check=False)
    assert done.returncode != 0 and "no_such_key" in done.stdout
    assert not os.path.exists(f"{tmp_path}/conf/cove.conf") and not os.path.exists(f"{tmp_path}/log/coved.log")
    server.quickstart("down")


def test_without_root_it_says_so():
    done = subprocess.run(["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", QUICKSTART, "up"],
                          capture_output=True, text=True)
    assert done.returncode != 0 and "root" in done.stderr


@pytest.mark.parametrize("without, words", [
    ("mount -t tmpfs none /proc/sys/user; echo 0 >/proc/sys/user/max_user_namespaces", "max_user_namespaces=65536"),
    ("echo 'nodev proc' >$T/fs; mount --bind $T/fs /proc/filesystems; "
     "printf '#!/bin/sh\\nexit 1' >$T/modprobe; chmod +x $T/modprobe", "modprobe overlay"),
    ("umount --lazy $(findmnt --noheadings --output TARGET --types cgroup2)", "cgroup v2 is not mounted"),
    ("mkdir $T/root; mount --rbind / $T/root; set -- chroot $T/root \"$@\"", "in a plain chroot"),
], ids=["user namespaces", "overlayfs", "cgroup v2", "any namespace"])
def test_a_kernel_without_a_feature_is_told_with_what_to_do(tmp_path, without, words):
    done = subprocess.run(["unshare", "--mount", "bash", "-c", f'export T={tmp_path} PATH={tmp_path}:$PATH; '
                           f'{without}; exec "$@"', "-", QUICKSTART, "up", "--no-install", "--dir", f"{tmp_path}/dir"],
                          capture_output=True, text=True, timeout=60)
    started = os.path.exists(f"{tmp_path}/dir/conf")
    if started:
        subprocess.run([QUICKSTART, "down", "--dir", f"{tmp_path}/dir"], check=True)
    assert done.returncode != 0 and words in done.stderr and not started, done


def test_configure_names_every_missing_library_with_its_package(tmp_path):
    os.mkdir(tmp_path / "no-libraries")
    done = subprocess.run([f"{TOP}/configure", "ac_cv_header_security_pam_appl_h=no", "ac_cv_header_sys_capability_h=no",
                           "ac_cv_header_wslay_wslay_h=no"],
                          cwd=tmp_path, capture_output=True, text=True,
                          env={**os.environ, "PKG_CONFIG_LIBDIR": str(tmp_path / "no-libraries"), "PKG_CONFIG_PATH": ""})
    told = done.stderr[done.stderr.index("apt install"):].split()
    assert done.returncode != 0
    assert {"libfcgi-dev", "libjson-c-dev", "libseccomp-dev", "libpcre2-dev", "libssl-dev", "libnftables-dev", "libpam0g-dev",
            "libcap-dev", "libwslay-dev", "libprotobuf-c-dev", "zlib1g-dev"} <= set(told), done.stderr


def test_instances_run_side_by_side(make_server):
    a, b = make_server(), make_server()
    assert a.run_dir != b.run_dir and a.cgroup != b.cgroup and a.key != b.key
    assert a.run("p", "echo a > /workspace/f; echo a") == "a\n"
    assert b.run("p", "ls /workspace") == ""
    assert b.execute("p", "true", key=a.key).status == 401


def test_down_stops_all_and_up_again_keeps_the_key(make_server):
    server = make_server()
    key = server.key
    server.run("p", "sleep 1000 & echo")
    run_dir = server.run_dir
    out = server.down().stdout
    assert "nothing of it is left" in out
    assert not server.left_over() and not os.path.exists(run_dir)
    server.up()
    assert server.key == key and server.run("p", "echo again") == "again\n"


def test_down_cleans_up_after_a_keeper_that_was_killed(make_server):
    server = make_server()
    server.run("p", "setsid sleep 1000 & echo")
    os.kill(server.keeper_pid, 9)
    wait_for(lambda: not alive(server.keeper_pid), 5)
    out = server.quickstart("down").stdout
    assert "left behind" in out, "it says what it found"
    assert not server.left_over()
    server.up()


def test_a_private_directory_works_because_nothing_unprivileged_must_enter_it(tmp_path):
    """Checkout, build and state below a directory that only root can enter, like a home of mode 0700."""
    home = tempfile.mkdtemp(prefix="cove-home-")
    os.chmod(home, 0o700)
    top = f"{home}/cove"
    skip = re.compile(r"\.git|\.cove|build(-.*)?|autom4te\.cache|__pycache__|\.pytest_cache")  # build-aux comes back below
    shutil.copytree(TOP, top, symlinks=True, ignore=lambda _, names: [n for n in names if skip.fullmatch(n)])
    shutil.copytree(f"{TOP}/build-aux", f"{top}/build-aux")  # with it, configure need not be made again
    server = Server(f"{top}/.cove", pool=1, workers=1)
    try:
        server.up(top=top)
        assert server.run("p", "echo private") == "private\n"
        mode = stat.S_IMODE(os.stat(home).st_mode)
        assert mode == 0o700
    finally:
        server.quickstart("down", top=top)
        assert not server.left_over()
        shutil.rmtree(home)


def test_nothing_is_written_outside_of_its_directories(make_server):
    def entries():
        return {f"{folder}/{name}" for folder in ("/run", "/etc", "/var/lib") for name in os.listdir(folder)}
    before = entries()
    server = make_server()
    server.run("p", "true")
    own = os.path.basename(server.run_dir)
    new = {path for path in entries() - before if own in path or "/cove-" not in path}  # not what other suites made meanwhile
    assert new == {f"/run/{own}"}
    assert [name for name in os.listdir("/dev/shm") if name.startswith(own)] == [own]
