"""A tenant that wants the audit log full, so that lines about others are pushed out: by commands that run, and by refusals under new names."""
import json
import struct

import pytest

from cove import read, wait_for
from hostile import Keeper, as_worker

BURST = 1000  # what a tenant may write at once: ten times the hundred of one sandbox


def audit(server):
    return [json.loads(line) for line in read(server.config["audit_file"]).splitlines()]


@pytest.mark.weak(audit_ran_rate=0)
def test_a_tenant_that_runs_commands_in_a_loop_does_not_fill_the_audit_log(target, attempt):
    server = target(audit_ran_rate=20)
    with open(server.config["policy_file"], "a") as f:
        f.write("\n[execute]\naudit = all\n")
    wait_for(lambda: server.run("p", "true") == "" and audit(server), 5, "the first line")
    for i in range(10):
        server.execute(f"p{i % 2}", *["true"] * 20)
    lines = audit(server)
    attempt("a line for each command of a loop", sum(line["event"] == "ran" for line in lines) > 100 and len(lines))
    server.execute("p", "shutdown now")
    assert any(line["event"] == "refused" for line in audit(server)), "a refusal is not hidden behind commands that ran"
    wait_for(lambda: any(line["event"] == "more" and line["form"] == "ran" for line in audit(server)), 15, "the count of the rest")


@pytest.mark.weak(audit_rate=0)
def test_new_names_of_projects_do_not_fill_the_audit_log(target, attempt):
    """Refusals come before there is a sandbox, so a name costs nothing."""
    server = target(audit_rate=1)
    for i in range(1100):
        assert server.execute(f"new-{i}", "shutdown now").status == 400
    refused = sum(line["event"] == "refused" for line in audit(server))
    assert refused >= BURST // 2
    attempt("a line for each refusal under a new name", refused > BURST + 50 and refused)


def write_raw(run_dir, command):
    """As a worker would send it that does not take secrets out itself."""
    fields = ["exec-denied", "execute", "default", "", "p", "", "rule", "", command]
    with Keeper(run_dir) as keeper:
        return keeper.ask("KEEPER_AUDIT", struct.pack("=Q", len(command)) + "".join(f"{x}\0" for x in fields).encode())[0]


def test_no_pattern_runs_in_the_keeper_over_what_a_sandbox_wrote(server):
    """About 30 patterns find secrets in commands. Workers and the judge run them; the keeper, which is root, only copies bytes."""
    word = "--password=from-a-sandbox"
    assert as_worker(server, write_raw, server.run_dir, f"raw {word}") == "MSG_DONE"
    assert any(line["command"] == f"raw {word}" for line in audit(server)), "the keeper has changed the text"
    server.execute("p", f"/bin/r[m] -rf /workspace/x {word}")
    judged = wait_for(lambda: [line["command"] for line in audit(server) if line["event"] == "exec-denied" and "/workspace/x" in line["command"]],
                      10, "the judge's line")
    assert judged[0] == "/bin/rm -rf /workspace/x --password=[redacted]"
