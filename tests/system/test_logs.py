"""The log: a JSON line for each operation, never a secret."""
import glob

from cove import new_key, read, wait_for


def lines_of(server, reply):
    request_id = reply.headers["X-Request-Id"]
    return wait_for(lambda: [x for x in server.log_lines() if x.get("request_id") == request_id], 5, "a log line")


def test_an_execute_is_logged_with_all_that_finds_it_again(server, project):
    reply = server.execute(project, "true")
    line = next(x for x in lines_of(server, reply) if "duration_ms" in x)
    assert line["tenant"] == "default" and line["project"] == project
    assert reply.id in line["sandbox"]
    assert line["status"] == 200 and isinstance(line["duration_ms"], int)
    assert line["time"] and line["level"] and line["event"]


def test_refused_commands_and_cleanups_are_logged(server, project):
    refused = server.execute(project, "reboot")
    assert any(x.get("status") == 400 for x in lines_of(server, refused))
    cleaned = server.cleanup(project)
    assert any(x.get("project") == project for x in lines_of(server, cleaned))


def test_the_lives_of_sandboxes_are_logged(server, project):
    reply = server.execute(project, "true")
    server.cleanup(project)
    wait_for(lambda: len([x for x in server.log_lines() if x.get("sandbox", "").endswith(reply.id)
                          and x.get("program") == "keeper"]) >= 2, 5, "its beginning and its end")


def test_every_line_is_json_even_with_a_hostile_project_name(server):
    server.execute('p"\\u0022,"level":"x', "true")
    server.execute("line\nbreak", "true")
    server.projects.clear()
    assert server.log_lines()
    server.cleanup('p"\\u0022,"level":"x')


def test_no_key_is_in_any_log(server, project):
    wrong = new_key()
    server.execute(project, "true")
    for headers in ({"X-API-Key": server.key}, {"Authorization": f"Bearer {server.key}"}, {"X-API-Key": wrong},
                    {"Authorization": f"Bearer {wrong}"}, {"X-Relay-Secret": wrong}):
        server.post("/execute", b"{", headers=headers, key=False)
        server.request("GET", "/nothing", headers=headers, key=False)
    logs = glob.glob(f"{server.dir}/log/*")
    assert logs
    for path in logs:
        text = read(path)
        assert server.key[4:] not in text and wrong[4:] not in text, path


def test_command_output_is_not_logged(server, project):
    server.run(project, "echo top''secret-$((40+2))")
    assert "topsecret-42" not in read(f"{server.dir}/log/coved.log")
