"""Signing in with a password: real PAM stacks, a real account, made here and removed here."""
import base64
import os
import signal
import subprocess
import time

import pytest

from cove import temporary_account, title, wait_for

STACKS = {
    "good": "auth required pam_unix.so\naccount required pam_unix.so\n",
    "failing": "auth required pam_deny.so\naccount required pam_deny.so\n",
    "locked-account": "auth required pam_unix.so\naccount required pam_deny.so\n",
    "missing-module": "auth required pam_there_is_no_such_module.so\naccount required pam_permit.so\n",
    "nonsense": "this is not a stack\n",
}


@pytest.fixture(scope="module")
def account():
    """(name, password) of an account that exists while this file's tests run."""
    with temporary_account() as account:
        yield account


@pytest.fixture
def pam_server(make_server, tmp_path):
    """An instance whose PAM stacks are files of the test's own: /etc/pam.d is not touched."""
    tmp_path.chmod(0o755)
    for name, text in STACKS.items():
        (tmp_path / name).write_text(text)
    return lambda stack, **settings: make_server(pam_dir=str(tmp_path), pam_service=stack, **settings)


def basic(name, password):
    return {"Authorization": "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode(), "Content-Type": "application/json"}


def sign_in(server, name, password, project="pam"):
    return server.post("/execute", {"projectId": project, "commands": ["echo in"]}, key=False,
                       headers=basic(name, password))


def end_of(server, headers):
    server.post("/cleanup", {"projectId": "pam"}, key=False, headers=headers)


def auth_pid(server):
    return next(iter(server.titles("cove: auth")), None)


def test_a_unix_account_signs_in_and_is_a_tenant_of_its_own(pam_server, account):
    server = pam_server("good")
    server.run("pam", "echo secret > /workspace/f")
    reply = sign_in(server, *account)
    assert reply.status == 200 and reply.json["stdout"] == "in\n"
    reply = server.post("/execute", {"projectId": "pam", "commands": ["ls /workspace"]}, key=False, headers=basic(*account))
    assert reply.json["stdout"] == "", "the key's tenant has another sandbox"
    assert any(x.get("tenant") == "user-" + account[0] for x in server.log_lines())
    assert not any(account[1] in str(x) for x in server.log_lines()), "a password in the log"
    assert sign_in(server, account[0], account[1] + "x").status == 401
    assert sign_in(server, "nobody-there", "x").status == 401
    assert "Basic" in sign_in(server, "nobody-there", "x").headers["WWW-Authenticate"]
    assert sign_in(server, "nobody-there", "x").json["error"] == "wrong name or password"


def test_a_page_of_another_site_cannot_use_a_remembered_password(pam_server, account):
    """A browser sends name and password along by itself, but no form can set this content type."""
    server = pam_server("good")
    assert sign_in(server, *account).status == 200
    for content_type in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        reply = server.post("/execute", {"projectId": "pam", "commands": ["true"]}, key=False,
                            headers={**basic(*account), "Content-Type": content_type})
        assert reply.status == 400 and reply.json["error"].startswith("Content-Type"), (content_type, reply)
    reply = server.post("/execute", {"projectId": "pam", "commands": ["true"]}, headers={"Content-Type": "text/plain"})
    assert reply.status == 200, "a key is no cookie: nothing sends it by itself"
    end_of(server, basic(*account))


@pytest.mark.parametrize("stack", ["failing", "locked-account", "missing-module", "nonsense", "no-such-file"])
def test_a_stack_that_cannot_say_yes_says_no_and_keys_go_on(pam_server, account, stack):
    server = pam_server(stack)
    assert sign_in(server, *account).status == 401
    assert server.run("pam", "echo still here") == "still here\n"
    if stack == "missing-module":
        assert wait_for(lambda: [x for x in server.log_lines() if x["event"] == "PAM could not be asked"
                                 or x["event"] == "sign-in failed"], 5, "a word in the log")


def test_root_and_odd_names_are_nobody(pam_server):
    server = pam_server("good")
    for name in ("", "..", "a/b", "a b", "-x", "x" * 100, "root\0"):
        assert sign_in(server, name, "x").status == 401


@pytest.mark.parametrize("value", ["Basic", "Basic ", "Basic !!!", "Basic YWxpY2U=", "Basic " + "Q" * 4000, "Basic a:b", "basic"])
def test_headers_that_are_no_password_are_401(server, value):
    assert server.post("/execute", {}, key=False, headers={"Authorization": value}).status == 401


def test_guessing_is_slowed_down_and_does_not_ask_pam_any_more(pam_server, account):
    server = pam_server("good")
    for _ in range(4):
        assert sign_in(server, account[0], "wrong").status == 401
    began = time.monotonic()
    reply = sign_in(server, *account)
    assert reply.status == 429, "the right password, too, while the back-off lasts"
    assert int(reply.headers["Retry-After"]) >= 1 and "sign-ins" in reply.json["error"]
    assert time.monotonic() - began < 1
    assert server.run("pam", "echo in") == "in\n", "keys go on"
    wait_for(lambda: sign_in(server, *account).status == 200, 8, "the end of the back-off")


def test_a_yes_is_remembered_a_while_and_then_asked_again(pam_server, account):
    server = pam_server("good", pam_cache="2s")
    assert sign_in(server, *account).status == 200
    os.kill(auth_pid(server), signal.SIGSTOP)  # nobody to ask
    try:
        times = []
        for _ in range(20):
            began = time.monotonic()
            assert server.request("GET", "/nothing", key=False, headers=basic(*account)).status == 404
            times.append(time.monotonic() - began)
        assert sorted(times)[10] < 0.05
    finally:
        os.kill(auth_pid(server), signal.SIGCONT)
    subprocess.run(["usermod", "--lock", account[0]], check=True)
    try:
        wait_for(lambda: sign_in(server, *account).status == 401, 6, "the locked account to be refused")
    finally:
        subprocess.run(["usermod", "--unlock", account[0]], check=True)


def test_the_process_that_asks_pam_is_replaced_when_it_dies(pam_server, account):
    server = pam_server("good", pam_cache="1ms")
    first = auth_pid(server)
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: auth_pid(server) not in (None, first), 5, "another one")
    wait_for(lambda: sign_in(server, *account).status == 200, 5, "a sign-in")
    assert title(auth_pid(server)) == "cove: auth"


def test_without_a_service_there_is_no_such_process(make_server):
    server = make_server(pam_service="")
    assert auth_pid(server) is None
    assert "Basic" not in sign_in(server, "a", "b").headers["WWW-Authenticate"]
