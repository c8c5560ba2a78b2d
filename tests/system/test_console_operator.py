"""Operators in the console: every request is signed, and the keeper believes the signature alone."""
import hashlib
import json
import os
import re
import socket
import struct
import subprocess

import pytest

from cove import TOP, new_key, read, wait_for
from operators import API, Operator
from test_console import told_by

COVE = f"{TOP}/.cove/inst/bin/cove"
VERBS = re.findall(r'\{ "([a-z-]+)",\s+(?:true|false)', read(f"{TOP}/sandbox/keeper/operator_verbs.c"))
HEAD = struct.Struct("=IIII")
HEADER = read(f"{TOP}/include/cove/msg.h")
MAGIC = int(re.search(r"MSG_MAGIC (0x\w+?)u", HEADER).group(1), 16)
CALLS = re.findall(r"^    (KEEPER_[A-Z_]+)(?: = 300)?,", read(f"{TOP}/include/cove/msg_keeper.h"), re.M)
ERROR = 1


def cove(server, *words):
    done = subprocess.run([COVE, "-c", f"{server.dir}/conf/cove.conf", *words], text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def operator(server, tmp_path):
    name = f"ann-{os.urandom(3).hex()}"
    one = Operator(server, cove(server, "operator", "add", name).strip(), tmp_path)
    wait_for(lambda: name in read(f"{server.run_dir}/operators"), what="the new operator")
    yield one
    cove(server, "operator", "remove", name)


def sha256(text):
    return hashlib.sha256(text.encode()).hexdigest()


def test_the_verbs_are_those_of_the_pages_and_of_the_document():
    pages = set(re.findall(r'run(?:Json)?\("([a-z-]+)"', read(f"{TOP}/web/operator_pages.js")))
    document = re.search(r"verb: \{ enum: \[([^\]]+)\]", read(f"{TOP}/docs/api/console.yaml")).group(1)
    assert len(VERBS) == 11 and set(VERBS) == pages == set(document.split(", "))


@pytest.mark.parametrize("verb", VERBS)
def test_a_tenants_key_alone_reaches_no_page_of_operators(server, operator, tmp_path, verb):
    """Unsigned, signed by a stranger, signed for another verb: all of it is refused with the same words."""
    stranger = Operator(server, operator.secret, tmp_path)
    subprocess.run(["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-outform", "DER", "-out", stranger.file], check=True)
    arguments = [sha256("x"), "", "", "", "", "", "", "", "default"] if verb == "key-create" else []
    other = next(v for v in VERBS if v != verb)
    for request in (stranger.signed(verb, *arguments), {**Operator(server, operator.secret, tmp_path).signed(other), "verb": verb},
                    {**operator.signed(verb), "signature": "00" * 64}, {**operator.signed(verb), "operator": "nobody"}):
        reply = operator.send(request)
        assert reply.status == 403 and "signature of an operator" in reply.json["error"], (verb, reply)


def test_without_a_key_nobody_gets_that_far(server, operator):
    assert operator.send(operator.signed("status"), key=False).status == 401
    assert server.request("GET", f"{API}/operator/nonce", key=False).status == 401


def test_an_operator_sees_the_servers_state(server, operator, project):
    server.run(project, "true")
    status = operator.run("status")
    assert status.status == 200 and status.json["keeper"] is True and status.json["node"]["cpus"] > 0
    tenants = {one["tenant"]: one for one in operator.run("tenants").json}
    assert tenants["default"]["sandboxes"] >= 1 and tenants["default"]["keys"] >= 1
    assert any(one["name"] == "base" for one in operator.run("templates").json)
    assert any(one["tenant"] == "default" for one in operator.run("keys").json)
    assert {one["check"] for one in operator.run("doctor").json} >= {"keys"}


def test_an_operator_follows_what_operators_make_and_tenants_are_told_that_something_changed(server, operator, tmp_path):
    """`cove template add` of an archive that is a named pipe: it goes on for as long as nobody writes there."""
    source = tmp_path / "source.tar"
    os.mkfifo(source)
    connection = server.connect()
    connection.request("GET", f"{API}/operator/builds", headers={"X-API-Key": server.key})
    changes = told_by(connection.getresponse())
    builds = lambda: [one for one in operator.run("builds").json if one["source"] == str(source)]
    adding = subprocess.Popen([COVE, "-c", f"{server.dir}/conf/cove.conf", "template", "add", "slow", str(source)], text=True, stderr=subprocess.PIPE)
    try:
        wait_for(builds, what="it is told")
        kind, told = next(changes)
        assert kind == "changed" and set(told) == {"time"}, "when, and nothing else"
        assert [(one["name"], one["state"], "ended" in one) for one in builds()] == [("slow", "running", False)]
        assert "reading" in builds()[0]["log"]
        source.write_bytes(b"no archive")
        assert adding.wait(60) == 2 and "slow" in adding.stderr.read()
        (one,) = builds()
        assert one["state"] == "failed" and one["reason"] and one["ended"] >= one["began"]
        wait_for(lambda: next(changes)[1]["time"] >= one["ended"][:19], what="the last change is told")
    finally:
        adding.kill()
        connection.close()
    assert oct(os.stat(f"{server.run_dir}/template-builds").st_mode & 0o777) == "0o700", "root's alone"
    adding = subprocess.Popen([COVE, "-c", f"{server.dir}/conf/cove.conf", "template", "add", "killed", str(source)])
    wait_for(lambda: [one for one in builds() if one["name"] == "killed" and one["state"] == "running"], what="it is told")
    adding.kill()
    adding.wait()
    assert [one["reason"] for one in builds() if one["name"] == "killed"] == ["the command was interrupted"]


def test_a_signed_request_is_good_once(server, operator):
    request = operator.signed("keys")
    assert operator.send(request).status == 200
    again = operator.send(request)
    assert again.status == 409 and "made before" in again.json["error"]


def test_a_nonce_must_be_the_keepers_own(server, operator):
    nonce = operator.nonce()
    forged = nonce[:-1] + ("0" if nonce[-1] != "0" else "1")
    for bad in (forged, "x", "0-0-0"):
        reply = operator.send({"operator": operator.name, "nonce": bad, "verb": "status", "signature": operator.sign(bad, "status")})
        assert reply.status == 409 and "nonce" in reply.json["error"], (bad, reply)


def test_a_changed_argument_breaks_the_signature(server, operator):
    request = operator.signed("key-revoke", "nothing")
    assert operator.send({**request, "arguments": ["other"]}).status == 403
    assert operator.send({**request, "arguments": ["nothing", ""]}).status == 403
    assert operator.send({**request, "arguments": ["a\nb"]}).status == 400


def test_a_key_is_made_rotated_and_revoked_and_the_server_never_has_its_text(server, operator):
    first, second, tenant = new_key(), new_key(), f"t-{os.urandom(3).hex()}"
    made = operator.run("key-create", sha256(first), "from-console", "", "", "", "", "", "", tenant)
    assert made.status == 200 and made.json["tenant"] == tenant and "key" not in made.json, made
    assert server.request("GET", f"{API}/session", key=first).status == 200
    rotated = operator.run("key-rotate", sha256(second), "", made.json["id"])
    assert rotated.status == 200 and "key" not in rotated.json, rotated
    assert server.request("GET", f"{API}/session", key=first).status == 401
    assert server.request("GET", f"{API}/session", key=second).status == 200
    assert operator.run("key-revoke", rotated.json["id"]).json["revoked"] == rotated.json["id"]
    assert server.request("GET", f"{API}/session", key=second).status == 401
    lines = [json.loads(line) for line in operator.run("audit", "50", "", "").body.decode().splitlines()]
    ours = [line for line in lines if line["event"] == "operator" and line["key"] == operator.name]
    assert [line["command"].split()[:2] for line in ours] == [["key", "create"], ["key", "rotate"], ["key", "revoke"]]
    assert not any(text in json.dumps(lines) for text in (first, second))
    assert operator.run("audit-verify").json["ok"] is True


def test_a_key_without_a_hash_of_its_own_is_refused(server, operator):
    """The server would have to make it, and its text would pass through a worker."""
    before = operator.run("keys").json
    for arguments in (["", "n", "", "", "", "", "", "", "default"], []):
        reply = operator.run("key-create", *arguments)
        assert reply.status == 400 and "arguments" in reply.json["error"], reply
    assert operator.run("key-rotate", "", "", before[0]["id"]).status == 400
    assert operator.run("keys").json == before


def test_options_cannot_be_smuggled_in_as_a_name(server, operator):
    reply = operator.run("key-revoke", "--file=/etc/passwd")
    assert reply.status == 400 and "no key '--file=" in reply.json["error"], reply


def test_what_the_command_refuses_is_told(server, operator):
    reply = operator.run("key-create", "zz", "", "", "", "", "", "", "", "default")
    assert reply.status == 400 and "--hash" in reply.json["error"]
    assert operator.run("key-create", sha256("x"), "", "yesterday", "", "", "", "", "", "default").status == 400


def test_an_operator_who_was_removed_signs_in_vain(server, operator, tmp_path):
    name = f"bob-{os.urandom(3).hex()}"
    gone = Operator(server, cove(server, "operator", "add", name).strip(), tmp_path)
    wait_for(lambda: gone.run("status").status == 200, what="the new operator")
    cove(server, "operator", "remove", name)
    wait_for(lambda: gone.run("status").status == 403, what="the operator to be gone")
    assert operator.run("status").status == 200


# --- a worker that was taken over ---------------------------------------------------------------------------------------

def keeper(server, call, body):
    """What the keeper answers to whoever sits in a worker: (type, words); None if it hung up."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
        s.settimeout(10)
        s.connect(f"{server.run_dir}/keeper.sock")
        s.send(HEAD.pack(MAGIC, 300 + CALLS.index(f"KEEPER_{call}"), HEAD.size + len(body), 1) + body)
        answer = s.recv(4096)
    return (HEAD.unpack_from(answer)[1], answer[HEAD.size + 8:].split(b"\0")[0].decode()) if answer else None


def packet(name, signature, text):
    return struct.pack("64s64s", name.encode(), bytes.fromhex(signature)) + text.encode() + b"\0"


def test_a_worker_cannot_mint_a_key(server, operator):
    """It speaks to the keeper itself: without a signature of this request nothing is done, whatever it has seen before."""
    before = read(server.config["keys_file"])
    seen = operator.signed("keys")
    text = "\n".join(["cove operator", operator.nonce(), "key-create", sha256("mine"), "", "", "", "", "", "", "", "default"])
    for name, signature in ((operator.name, "00" * 64), (operator.name, seen["signature"]), ("root", seen["signature"])):
        kind, words = keeper(server, "OPERATOR", packet(name, signature, text))
        assert kind == ERROR and "signature of an operator" in words, words
    assert keeper(server, "OPERATOR", struct.pack("64s64s", b"a" * 64, b"")) is None
    assert read(server.config["keys_file"]) == before
    # A request that was signed and answered is worth nothing to whoever has kept it.
    assert operator.send(seen).status == 200
    used = "\n".join(["cove operator", seen["nonce"], "keys"])
    kind, words = keeper(server, "OPERATOR", packet(operator.name, seen["signature"], used))
    assert kind == ERROR and "made before" in words, words
