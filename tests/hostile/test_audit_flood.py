"""A tenant that wants the audit log full, so that lines about others are pushed out: by commands that run, and by refusals under new names."""
import json

import pytest

from cove import read, wait_for

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
