"""`cove doctor` on an instance that is well, and on one that was broken in one place: the finding must name that place."""
import contextlib
import json
import os
import shutil
import signal
import subprocess

import pytest

from cove import Server, alive, new_dir, read, stop, wait_for
from test_front_keys import cove


def findings(server):
    done = cove(server, "doctor", "--json", check=False)
    return done.returncode, {d["check"]: d for d in json.loads(done.stdout)}


def broken(server):
    code, found = findings(server)
    failed = {name: d for name, d in found.items() if d["finding"] == "fail"}
    assert code == (1 if failed else 0)
    assert all(d["fix"] for d in failed.values()), failed
    return failed


@pytest.fixture(scope="module")
def patient():
    """An instance of this file's own: what is broken here must not meet other tests."""
    server = Server(new_dir())
    server.up()
    yield server
    stop(server)


def nginx_pid(server):
    return int(read(f"{server.run_dir}/nginx.pid"))


@contextlib.contextmanager
def mode(path, wrong):
    before = os.stat(path).st_mode & 0o7777
    os.chmod(path, wrong)
    try:
        yield
    finally:
        os.chmod(path, before)


@contextlib.contextmanager
def replaced(path, change):
    """The file with other content."""
    shutil.copy2(path, f"{path}.well")
    text = read(path)
    with open(path, "w") as f:
        f.write(change(text))
    try:
        yield
    finally:
        os.replace(f"{path}.well", path)


@contextlib.contextmanager
def nginx_stopped(server):
    pid = nginx_pid(server)
    os.kill(pid, signal.SIGTERM)
    wait_for(lambda: not alive(pid), 10, "nginx's end")
    try:
        yield
    finally:
        subprocess.run(["nginx", "-c", f"{server.dir}/conf/nginx.conf", "-e", f"{server.dir}/log/nginx-error.log"], check=True)
        wait_for(lambda: server.request("GET", "/health").status == 200, 10, "nginx")


def tls_file(server, directive):
    site = read(f"{server.dir}/conf/nginx-cove.conf")
    return next(x.split()[1].rstrip(";") for x in site.split("\n") if x.strip().startswith(directive + " "))


def certificate(server, days, names):
    """Another certificate for the server's own key, as text."""
    done = subprocess.run(["openssl", "req", "-x509", "-key", tls_file(server, "ssl_certificate_key"), "-subj", "/CN=x",
                           "-days", str(days), "-addext", f"subjectAltName={names}"], check=True, capture_output=True, text=True)
    return done.stdout


# What the kernel would say on another machine: the variable LIES picks one.
LIES = r"""
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <sys/utsname.h>
#include <time.h>
#include <sys/syscall.h>
#include <unistd.h>

static int told(const char *lie) { const char *l = getenv("LIES"); return l && strcmp(l, lie) == 0; }

int uname(struct utsname *u)
{
    int rc = (int)syscall(SYS_uname, u);
    if (told("kernel"))
        strcpy(u->release, "5.10.0-old");
    return rc;
}

int adjtimex(struct timex *t)
{
    memset(t, 0, sizeof(*t));
    t->status = told("unsynchronised") ? STA_UNSYNC : STA_PLL;
    return told("unsynchronised") ? TIME_ERROR : TIME_OK;
}

int clock_gettime(clockid_t clock, struct timespec *t)
{
    int rc = (int)syscall(SYS_clock_gettime, clock, t);
    if (clock == CLOCK_REALTIME && told("1970"))
        t->tv_sec = 1000;
    return rc;
}

int statvfs(const char *path, struct statvfs *fs)
{
    memset(fs, 0, sizeof(*fs));
    fs->f_bsize = fs->f_frsize = 4096;
    fs->f_blocks = fs->f_files = 1000000;
    fs->f_bavail = fs->f_bfree = told("full") ? 100 : 900000;
    fs->f_favail = fs->f_ffree = told("no inodes") ? 100 : 900000;
    return 0;
}
"""


@pytest.fixture(scope="module")
def liar(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lies")
    (folder / "lies.c").write_text(LIES)
    subprocess.run(["gcc", "-D_GNU_SOURCE", "-shared", "-fPIC", "-o", f"{folder}/lies.so", f"{folder}/lies.c"], check=True)
    return f"{folder}/lies.so"


@pytest.mark.parametrize("lie, check, finding, says", [
    ("", "kernel", "ok", "Linux"), ("kernel", "kernel", "fail", "5.10.0-old"),
    ("", "clock", "ok", "synchronised"), ("unsynchronised", "clock", "warn", "nothing sets the clock"), ("1970", "clock", "fail", "years behind"),
    ("full", "disk", "warn", "free"), ("no inodes", "disk", "warn", "inodes")])
def test_a_kernel_a_clock_and_a_disk_that_will_not_do_are_found(patient, liar, monkeypatch, lie, check, finding, says):
    monkeypatch.setenv("LD_PRELOAD", liar)
    monkeypatch.setenv("LIES", lie)
    done = cove(patient, "doctor", "--json", check=False)
    found = {d["check"]: d for d in json.loads(done.stdout)}[check]
    assert found["finding"].startswith(finding) and says in found["what"], found
    assert bool(found["fix"]) == (finding != "ok")


def test_nothing_is_broken_where_all_is_well(patient):
    code, found = findings(patient)
    assert code == 0, {n: d for n, d in found.items() if d["finding"] == "fail"}
    assert "listeners" in found["nginx"]["what"] and "a sandbox was made" in found["sandbox"]["what"]
    assert not [r for r in json.loads(cove(patient, "ls", "--json").stdout) if r["tenant"] == "cove-doctor"]


def test_a_stopped_nginx_is_found(patient):
    with nginx_stopped(patient):
        failed = broken(patient)
    assert list(failed) == ["nginx"] and "nothing answers" in failed["nginx"]["what"]


def test_a_removed_site_is_found(patient):
    with replaced(f"{patient.dir}/conf/nginx.conf", lambda text: "\n".join(x for x in text.split("\n") if "nginx-cove.conf" not in x)):
        failed = broken(patient)
    assert list(failed) == ["nginx"] and "no site" in failed["nginx"]["what"]


def test_a_broken_nginx_file_is_found(patient):
    with replaced(f"{patient.dir}/conf/nginx-cove.conf", lambda text: text + "\nnonsense;\n"):
        failed = broken(patient)
    assert "does not accept" in failed["nginx"]["what"]


def test_a_socket_that_nginx_cannot_reach_is_found(patient):
    with mode(f"{patient.run_dir}/fcgi.sock", 0o600):
        failed = broken(patient)
    assert set(failed) == {"nginx", "socket"} and "0600" in failed["socket"]["what"] and "status 50" in failed["nginx"]["what"]


def test_a_socket_that_everybody_reaches_is_found(patient):
    with mode(f"{patient.run_dir}/fcgi.sock", 0o666):
        assert "any user" in broken(patient)["socket"]["what"]


@pytest.mark.parametrize("which, wrong", [("keys_file", 0o644), ("state_dir", 0o777), ("run_dir", 0o777), ("policy_file", 0o666),
                                          ("audit_file", 0o644)])
def test_files_that_are_too_open_are_found(patient, which, wrong):
    path = patient.config[which]
    patient.execute("audit", "rm -rf /")  # so that there is an audit log
    with mode(path, wrong):
        failed = broken(patient)
    assert list(failed) == ["files"] and path in failed["files"]["what"] and path in failed["files"]["fix"]


def test_a_foreign_owner_is_found(patient):
    path = patient.config["keys_file"]
    os.chown(path, 65534, -1)
    try:
        assert "not to root" in broken(patient)["files"]["what"]
    finally:
        os.chown(path, 0, -1)


@pytest.mark.parametrize("days, names, says", [(1, "DNS:localhost,DNS:*.localhost", "expires within"),
                                               (365, "DNS:else.example", "does not cover *.cove.localhost"),
                                               (365, "DNS:cove.localhost", "does not cover *.cove.localhost"),
                                               (365, "DNS:*.cove.localhost", "does not cover cove.localhost")])
def test_certificates_are_looked_at(patient, days, names, says):
    other = certificate(patient, days, names)
    with replaced(tls_file(patient, "ssl_certificate"), lambda _: other):
        found = findings(patient)[1]["certificate"]
    assert found["finding"] == "warn" and says in found["what"] and found["fix"]


def test_a_server_that_can_make_no_sandbox_is_found(make_server):
    server = make_server(max_sandboxes=1, pool=0)
    assert server.execute("the-only-one", "true").status == 200
    failed = broken(server)
    assert list(failed) == ["sandbox"] and "no sandbox could be made" in failed["sandbox"]["what"]


def test_a_keeper_that_is_gone_is_found(make_server):
    server = make_server()
    pid = server.keeper_pid
    os.kill(pid, signal.SIGTERM)
    wait_for(lambda: not alive(pid), 10, "the keeper's end")
    assert {"coved", "workers", "sandbox", "pool"} <= set(broken(server))
