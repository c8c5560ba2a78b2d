"""A command that goes on trying what exec-time policy refuses: each try costs the judge and the audit log something."""
import base64
import json

import pytest

from cove import wait_for

LOOP = base64.b64encode(b"while :; do /bin/rm -rf /x 2>/dev/null; done").decode()  # hidden from the check of the text
MAKE_LOOP = f"echo {LOOP} | base64 -d > /tmp/loop; "


@pytest.mark.weak(exec_refusals_max=0, command_timeout="3s")
def test_a_command_that_is_refused_again_and_again_is_ended_and_told(target, attempt):
    server = target(exec_refusals_max=20)
    reply = server.execute("p", MAKE_LOOP + "sh /tmp/loop", timeout=90)
    cause = reply.json["ended"]["cause"]
    attempt("a loop of refused programs runs to its deadline", cause if cause != "policy" else None)
    assert "limit of refusals by the policy (20) reached" in json.dumps(reply.json), reply.json
    assert server.run("p", "echo fine") == "fine\n", "the sandbox and other commands go on"


@pytest.mark.weak(exec_refusals_max=0)
def test_what_a_command_left_behind_is_ended_too(target, attempt):
    server = target(exec_refusals_max=20)
    pid = server.execute("p", MAKE_LOOP + "sh /tmp/loop >/dev/null 2>&1 & echo $!").json["stdout"].strip()
    try:
        wait_for(lambda: server.run("p", f"kill -0 {pid} 2>/dev/null || echo ended") == "ended\n", 10, "its end")
        goes_on = None
    except AssertionError as e:
        goes_on = str(e)
    attempt("a loop of refused programs goes on in the background", goes_on)
