"""The execute dialect: every sentence of its document, and every way to call it wrongly."""
import concurrent.futures
import json
import datetime
import re
import shlex
import time

import pytest

from test_front_keys import cove
from cove import read, status_field, wait_for

FORBIDDEN_TEXT = '🚨 Forbidden command detected: "{}". This operation is not allowed for security reasons.'


# ------------------------------------------------------------------ /execute

def test_commands_run_in_order_and_their_output_is_joined(server, project):
    reply = server.execute(project, "echo one", "echo two >&2", "echo three; pwd > /dev/null")
    assert reply.status == 200
    assert reply.headers["Content-Type"].startswith("application/json")
    body = reply.json
    assert body["success"] is True and body["exitCode"] == 0
    assert body["stdout"] == "one\nthree\n" and body["stderr"] == "two\n"
    assert re.fullmatch(r"sandbox_[a-z0-9]{20}", body["sandboxId"])


def moment(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))


def test_a_reply_tells_how_long_the_files_are_there_and_a_life_can_be_extended(server, project):
    first = server.execute(project, "true").json
    assert moment(first["created"]) < moment(first["expiresAt"])
    reply = server.post("/execute", {"projectId": project, "commands": ["true"]})
    assert reply.json["created"] == first["created"], "the same sandbox"
    by_id = server.execute(first["sandboxId"].removeprefix("sandbox_"), "true").json
    assert moment(by_id["expiresAt"]) > moment(first["expiresAt"]) + datetime.timedelta(minutes=4), "lifetime is 60m, reuse 55m"
    reply = server.post("/extend", {"projectId": project, "seconds": 3600})
    assert reply.status == 200 and reply.json["sandboxId"] == first["sandboxId"]
    assert moment(reply.json["expiresAt"]) > moment(first["expiresAt"])
    by_action = server.post("/", {"action": "extend", "projectId": project, "seconds": 1})
    assert by_action.status == 200, "asking for less takes nothing away"
    assert moment(by_action.json["expiresAt"]) >= moment(reply.json["expiresAt"]) - datetime.timedelta(seconds=1)
    for seconds in (3601, 10 ** 7):
        reply = server.post("/extend", {"projectId": project, "seconds": seconds})
        assert reply.status == 400 and reply.json["error"].startswith("seconds"), reply
    assert server.post("/extend", {"projectId": project + "-none", "seconds": 10}).status == 404


def test_a_refusal_has_a_hint_and_json_ends_with_a_line_feed(server, project):
    reply = server.post("/execute", {"projectId": project, "commands": ["rm -rf /"]})
    assert reply.status == 400 and reply.json["rule"] in reply.json["hint"]
    assert reply.body.endswith(b"}\n")


def test_each_command_has_a_bash_of_its_own(server, project):
    assert server.run(project, "x=1; cd /tmp", "echo \"[$x]\"; [[ $BASH_VERSION ]] && echo bash") == "[]\nbash\n"


def test_all_commands_run_and_the_first_failure_is_the_exit_code(server, project):
    reply = server.execute(project, "exit 3", "exit 4", "echo still here")
    assert reply.status == 200
    assert reply.json["success"] is False
    assert reply.json["exitCode"] == 3
    assert reply.json["stdout"] == "still here\n"


def test_stop_on_error_ends_at_the_first_failure(server, project):
    reply = server.execute(project, "echo a; exit 7", "echo b", stopOnError=True)
    assert (reply.status, reply.json["exitCode"], reply.json["stdout"]) == (200, 7, "a\n")


def test_a_command_that_dies_by_a_signal_says_128_plus_it(server, project):
    assert server.execute(project, "kill -SEGV $$").json["exitCode"] == 139


def test_programs_use_utf8_and_no_locale_is_complained_about(server, project):
    reply = server.execute(project, r"printf '\303\244\n' | wc -m; bash -c true; locale charmap").json
    assert (reply["stdout"], reply["stderr"]) == ("2\nUTF-8\n", "")


def test_the_same_project_gets_the_same_sandbox_and_its_files(server, project):
    first = server.execute(project, "echo kept > /workspace/f; echo home > /home/user/f")
    second = server.execute(project, "cat /workspace/f /home/user/f")
    assert second.json["stdout"] == "kept\nhome\n"
    assert first.id == second.id


def test_other_projects_get_other_sandboxes(server, project):
    a = server.execute(project + "-a", "touch /workspace/mine; ls /workspace")
    b = server.execute(project + "-b", "ls /workspace")
    assert a.json["stdout"] == "mine\n" and b.json["stdout"] == ""
    assert a.id != b.id


@pytest.mark.parametrize("form", ["{}", "sandbox_{}", "sandbox-{}"])
def test_a_sandbox_answers_to_its_id_as_it_does_to_its_project(server, project, form):
    box = server.execute(project, "echo mine > /workspace/f").id.removeprefix("sandbox_")
    assert server.execute(form.format(box), "cat /workspace/f").json["stdout"] == "mine\n"
    assert server.post("/cleanup", {"projectId": form.format(box)}).json == {"success": True}
    assert server.execute(project, "ls /workspace").json["stdout"] == ""


def test_an_id_of_no_sandbox_is_a_project_of_that_name(server, project):
    name = "sandbox_" + "x7" * 10
    assert server.execute(name, "touch /workspace/f").id != name
    assert server.execute(name, "ls /workspace").json["stdout"] == "f\n"


def test_commands_run_as_root_of_the_sandbox_who_is_nobody_on_the_host(server, project):
    reply = server.execute(project, "id -u; sleep 100 & echo")
    assert reply.json["stdout"].startswith("0\n")
    init = server.init_of(reply)
    base = int(server.config.get("id_base", 1000000))
    uids = {int(status_field(p, "Uid").split()[0]) for p in server.inside(init)}
    assert uids and all(uid >= base for uid in uids)


def test_two_sandboxes_have_different_host_ids(server, project):
    a, b = (server.execute(project + x, "true") for x in "ab")
    uid = lambda r: read(f"/proc/{server.init_of(r)}/uid_map").split()[1]
    assert uid(a) != uid(b)


def test_a_change_of_users_inside_holds_for_the_next_command(server, project):
    server.execute(project, "id -G")
    for gid in (4001, 4002, 4003):  # the same length, one right after the other
        server.execute(project, f"sed -i '/^extra/d' /etc/group; echo extra:x:{gid}:root >>/etc/group")
        assert str(gid) in server.execute(project, "id -G").json["stdout"]


def test_stdin_is_empty(server, project):
    assert server.run(project, "cat; echo end") == "end\n"


def test_the_reply_does_not_wait_for_what_stays_in_the_background(server, project):
    began = time.monotonic()
    reply = server.execute(project, "sleep 100 & echo started", "(sleep 100; echo never) & disown; echo second")
    assert reply.json["stdout"] == "started\nsecond\n"
    assert time.monotonic() - began < 3
    wait_for(lambda: server.inside_titles(server.init_of(reply)).count("sleep 100") == 2, 5, "both in the background")


def test_what_was_written_before_the_shell_ended_is_in_the_reply(server, project):
    for i in range(5):
        out = server.run(project, "seq 20000; sleep 50 & ")
        assert out.endswith("\n20000\n")


def test_background_processes_stay_until_the_sandbox_ends(server, project):
    reply = server.execute(project, "sleep 1000 & echo")
    init = server.init_of(reply)
    server.run(project, "true")
    assert "sleep 1000" in server.inside_titles(init)
    assert server.cleanup(project).status == 200
    wait_for(lambda: not server.inside(init), 5, "an empty sandbox")


def test_a_background_process_may_go_on_writing_after_the_reply(server, project):
    """Nobody reads what it writes, and it does not die of that (SIGPIPE)."""
    server.run(project, "(until [ -e /tmp/go ]; do sleep 0.05; done; echo late; echo later >&2; echo lives > /workspace/after) & echo")
    server.run(project, "touch /tmp/go")
    wait_for(lambda: server.run(project, "cat /workspace/after 2>&1 || true") == "lives\n", 30, "what comes after its writing")


# ------------------------------------------------------------------ routing

@pytest.mark.parametrize("path", ["/execute", "/workers/e2b-worker/execute", "/a/b/c/d/execute"])
def test_any_prefix_leads_to_execute(server, project, path):
    server.projects.add((project, True))
    reply = server.post(path, {"projectId": project, "commands": ["echo ok"]})
    assert reply.status == 200 and reply.json["stdout"] == "ok\n"


@pytest.mark.parametrize("path", ["/", "/worker"])
def test_action_in_the_body_routes_where_the_path_does_not(server, project, path):
    server.projects.add((project, True))
    reply = server.post(path, {"action": "execute", "projectId": project, "commands": ["echo ok"]})
    assert reply.status == 200 and reply.json["stdout"] == "ok\n"
    assert server.post(path, {"action": "cleanup", "projectId": project}).json == {"success": True}


def test_the_path_wins_over_the_action(server, project):
    server.projects.add((project, True))
    reply = server.post("/execute", {"action": "cleanup", "projectId": project, "commands": ["echo ran"]})
    assert reply.json["stdout"] == "ran\n"
    reply = server.post("/cleanup", {"action": "execute", "projectId": project, "commands": ["echo ran"]})
    assert reply.json == {"success": True}


def test_an_unknown_action_is_404(server):
    reply = server.post("/", {"action": "dance", "projectId": "p"})
    assert reply.status == 404 and reply.json["success"] is False


@pytest.mark.parametrize("path", ["/nothing", "/execute/more", "/executes"])
def test_an_unknown_path_is_404(server, path):
    assert server.post(path, {"projectId": "p", "commands": ["true"]}).status == 404


@pytest.mark.parametrize("path", ["/execute", "/x/cleanup"])
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH"])
def test_a_wrong_method_is_405_with_allow(server, method, path):
    reply = server.request(method, path)
    assert reply.status == 405 and "POST" in reply.headers["Allow"]


def test_health_is_open(server):
    reply = server.request("GET", "/health", key=False)
    assert reply.status == 200 and reply.json == {"status": "ok"}


def test_options_answers_the_preflight_without_a_key(server):
    reply = server.request("OPTIONS", "/execute", key=False, headers={
        "Origin": "https://app.example", "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "content-type, x-api-key"})
    assert reply.status in (200, 204)
    assert reply.headers["Access-Control-Allow-Origin"] in ("*", "https://app.example")
    assert "POST" in reply.headers["Access-Control-Allow-Methods"]
    allowed = reply.headers["Access-Control-Allow-Headers"].lower()
    assert "content-type" in allowed and "x-api-key" in allowed


def test_replies_carry_the_cors_header_for_any_origin_by_default(server, project):
    server.projects.add((project, True))
    reply = server.post("/execute", {"projectId": project, "commands": ["true"]},
                        headers={"Origin": "https://app.example"})
    assert reply.headers["Access-Control-Allow-Origin"] in ("*", "https://app.example")


def test_only_configured_origins_are_allowed(make_server):
    server = make_server(cors_origins="https://good.example")
    origin = lambda o: server.request("OPTIONS", "/execute", key=False, headers={
        "Origin": o, "Access-Control-Request-Method": "POST"}).headers.get("Access-Control-Allow-Origin")
    assert origin("https://good.example") == "https://good.example"
    assert origin("https://evil.example") is None


# ------------------------------------------------------------------ /cleanup

def test_cleanup_kills_the_sandbox_and_the_next_request_gets_a_fresh_one(server, project):
    first = server.execute(project, "echo x > /workspace/f")
    assert server.cleanup(project).json == {"success": True}
    wait_for(lambda: first.id not in server.inits, 5, "the end of init")
    second = server.execute(project, "ls /workspace")
    assert second.json["stdout"] == "" and second.id != first.id


def test_cleanup_is_idempotent(server, project):
    for _ in range(3):
        reply = server.cleanup(project)
        assert reply.status == 200 and reply.json == {"success": True}


def test_cleanup_of_one_project_leaves_others_alone(server, project):
    kept = server.execute(project + "-kept", "true")
    server.execute(project + "-gone", "true")
    server.cleanup(project + "-gone")
    assert server.execute(project + "-kept", "true").id == kept.id


# ------------------------------------------------------------------ forbidden commands

@pytest.mark.parametrize("command", [
    "rm -rf /", "rm -rf build", "shutdown -h now", "reboot", "mkfs.ext4 /dev/null", ":(){ :|:& };:",
    "dd if=/dev/zero of=f", "echo x > /dev/sda", "chmod 777 /etc", "true; rm  -rf x"])
def test_forbidden_commands_are_refused_with_the_documented_text(server, project, command):
    reply = server.execute(project, command)
    assert reply.status == 400
    assert reply.json["success"] is False and reply.json["exitCode"] == 1
    assert reply.json["error"] == FORBIDDEN_TEXT.format(command)


@pytest.mark.parametrize("command", ["echo farm", "rm -r x; true", "echo rebooted > f; true", "chmod 755 /workspace"])
def test_commands_that_only_look_a_little_like_it_run(server, project, command):
    assert server.execute(project, command).status == 200


def test_all_commands_are_checked_before_the_first_runs(server, project):
    assert server.execute(project, "touch /workspace/ran", "reboot").status == 400
    assert server.run(project, "ls /workspace") == ""


# ------------------------------------------------------------------ the deadline

def test_at_the_deadline_the_command_is_killed_and_the_reply_tells(server, project):
    began = time.monotonic()
    reply = server.execute(project, "echo before", "echo so far; sleep 100", "echo after")
    assert 3.5 < time.monotonic() - began < 10
    assert reply.status == 500
    body = reply.json
    assert body["success"] is False and body["exitCode"] == 124
    assert "echo so far; sleep 100" in body["error"]
    assert body["stdout"] == "before\nso far\n"


def test_at_the_deadline_all_that_the_command_started_dies_however_it_detached(server, project):
    first = server.execute(project, "sleep 1001 & echo")  # of an earlier command: must live on
    init = server.init_of(first)
    stubborn = "trap '' TERM HUP INT; while :; do sleep 1002; done"
    server.execute(project, f"trap '' TERM; (setsid bash -c \"{stubborn}\" &); setsid nohup sleep 1002 & {stubborn}")
    wait_for(lambda: not [t for t in server.inside_titles(init) if "1002" in t], 2, "the end of all of it")
    assert "sleep 1001" in server.inside_titles(init)


def test_the_sandbox_is_usable_after_a_deadline(server, project):
    first = server.execute(project, "echo 1 > /workspace/f; sleep 100")
    assert first.status == 500
    second = server.execute(project, "cat /workspace/f")
    assert second.json["stdout"] == "1\n"


# ------------------------------------------------------------------ bad input: 4xx with a sentence, never 500

def bad(server, body, names=None, status=400, path="/execute", **kw):
    server.projects.add(("p", True))  # in case it runs after all
    reply = server.post(path, body, **kw)
    assert reply.status == status, reply
    assert reply.json["success"] is False and reply.json["error"]
    if names:
        assert names in reply.json["error"], reply
    return reply


def test_an_empty_body_is_400(server):
    bad(server, b"")


def test_a_body_that_is_not_json_is_400(server):
    for body in (b"hello", b"{", b'{"projectId":', b"\x00\x01\x02", b"[1,2", b'{"a":1}}'):
        bad(server, body)


def test_ten_megabytes_of_garbage_are_413(server):
    bad(server, b"\xfe" * 10_000_000, status=413)


def test_a_body_just_above_the_limit_is_413_and_just_below_is_read(server):
    limit = 8 << 20
    bad(server, b'{"projectId":"' + b"x" * limit, status=413)
    bad(server, b'{"projectId":"' + b"x" * (limit - 1000), status=400)


def test_deeply_nested_json_is_400(server):
    for depth in (50, 10_000, 1_000_000):
        bad(server, b'{"projectId":"p","commands":' + b"[" * depth + b"]" * depth + b"}")


@pytest.mark.parametrize("body", [[], "x", 1, None, True])
def test_a_body_that_is_no_object_is_400(server, body):
    bad(server, json.dumps(body).encode())


@pytest.mark.parametrize("body,names", [
    ({"commands": ["true"]}, "projectId"),
    ({"projectId": 5, "commands": ["true"]}, "projectId"),
    ({"projectId": None, "commands": ["true"]}, "projectId"),
    ({"projectId": "", "commands": ["true"]}, "projectId"),
    ({"projectId": ["p"], "commands": ["true"]}, "projectId"),
    ({"projectId": "p"}, "commands"),
    ({"projectId": "p", "commands": "true"}, "commands"),
    ({"projectId": "p", "commands": []}, "commands"),
    ({"projectId": "p", "commands": [1]}, "commands"),
    ({"projectId": "p", "commands": [["true"]]}, "commands"),
    ({"projectId": "p", "commands": ["true", None]}, "commands"),
    ({"projectId": "p", "commands": {"0": "true"}}, "commands"),
    ({"projectId": "p", "commands": ["true"], "stopOnError": "yes"}, "stopOnError"),
])
def test_wrong_types_and_missing_fields_are_400_and_named(server, body, names):
    bad(server, body, names)


def test_nul_in_a_string_is_400(server):
    bad(server, b'{"projectId":"p","commands":["echo a\\u0000b"]}', "commands")
    bad(server, b'{"projectId":"p\\u0000q","commands":["true"]}', "projectId")


def test_invalid_utf8_in_a_string_is_400(server):
    bad(server, b'{"projectId":"p","commands":["echo \xff\xfe"]}')
    bad(server, b'{"projectId":"\xc3(","commands":["true"]}')
    bad(server, b'{"projectId":"p","commands":["echo \xed\xa0\x80"]}')


def test_ten_thousand_commands_are_400(server):
    bad(server, {"projectId": "p", "commands": ["true"] * 10_000}, "commands")


def test_a_command_of_a_megabyte_is_refused(server):
    reply = server.post("/execute", {"projectId": "p", "commands": ["echo " + "x" * (1 << 20)]})
    assert reply.status in (400, 413) and "commands" in reply.json["error"]


def test_the_longest_allowed_command_runs(server, project):
    text = "true #" + "x" * (131071 - 6)
    assert server.execute(project, text).json["success"] is True


@pytest.mark.parametrize("name", ["a/b", "..", "../../etc", "a\nb", pytest.param("x" * 10_240, id="10 KB"), ".", "/",
                                  "a b\tc", "-", "p\r\nX: y"])
def test_strange_project_names_are_refused_or_are_just_names(server, name):
    reply = server.execute(name, "pwd > /dev/null; ls /workspace")
    assert reply.status in (200, 400), reply
    if reply.status == 400:
        server.projects.clear()
        assert "projectId" in reply.json["error"]
    else:
        assert reply.json["stdout"] == ""


def test_a_project_name_of_128_characters_works(server):
    assert server.execute("n" * 128, "true").status == 200


def test_cleanup_with_bad_input_is_400(server):
    for body in (b"", b"{}", b'{"projectId":7}', b"[]"):
        bad(server, body, path="/cleanup")


# ------------------------------------------------------------------ output

def test_output_that_is_not_utf8_still_makes_valid_json(server, project):
    reply = server.execute(project, r"printf 'a\xff\xfeb\x00c\xc3'; printf '\xed\xa0\x80' >&2; head -c 10000 /dev/urandom")
    assert reply.status == 200
    assert reply.json["stdout"].startswith("a\ufffd\ufffdb\u0000c")
    assert "\ufffd" in reply.json["stderr"]


def test_unicode_survives(server, project):
    assert server.run(project, "echo 'grüße 🚨 \\ \" 日本'") == "grüße 🚨 \\ \" 日本\n"


def test_a_character_split_between_writes_survives(server, project):
    assert server.run(project, r"printf '\xf0\x9f'; sleep 0.2; printf '\x9a\xa8'") == "🚨"


def memory_of(server):
    return sum(int(status_field(p, "VmRSS").split()[0]) for p in server.worker_pids)


def test_endless_output_is_capped_and_the_reply_says_so_and_memory_stays_flat(server, project):
    server.run(project, "true")
    before = memory_of(server)
    began = time.monotonic()
    reply = server.execute(project, "yes | head -c 1000000000")
    assert time.monotonic() - began < 8
    body = reply.json
    assert body["success"] is False
    assert 900_000 < len(body["stdout"]) <= 1 << 20
    rest = json.dumps({k: v for k, v in body.items() if k not in ("stdout", "stderr")})
    assert "output" in rest and "1 MiB" in rest
    assert memory_of(server) - before < 40_000, "KiB more than before"


def test_endless_stderr_is_capped_too(server, project):
    body = server.execute(project, "yes >&2").json
    assert body["success"] is False and len(body["stderr"]) <= 1 << 20


def test_eight_clients_with_endless_output_do_not_harm_each_other(server, project):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda i: server.execute(f"{project}-{i % 4}", "yes"), range(8)))
    assert all("output" in r.json["error"] for r in replies)


def test_output_up_to_the_limit_is_whole(server, project):
    out = server.run(project, "head -c 1000000 /dev/zero | tr '\\0' x")
    assert out == "x" * 1_000_000


def test_the_instances_environment_is_that_of_every_command(make_server):
    server = make_server(environment="MIRROR=https://mirror.example/simple HTTPS_PROXY=http://proxy.example:3128")
    shown = 'echo "$MIRROR $HTTPS_PROXY"'
    assert server.run("p", shown) == "https://mirror.example/simple http://proxy.example:3128\n"
    assert server.run("p", shown, env={"MIRROR": "mine"}) == "mine http://proxy.example:3128\n", "a request has the last word"
    assert cove(server, "exec", "p", "sh", "-c", "echo $MIRROR").stdout == "https://mirror.example/simple\n"


def test_pip_installs_into_the_system_python_of_a_sandbox(server, project):
    """PEP 668 keeps pip from the host's Python; a sandbox's is its own."""
    if "no pip" in server.run(project, "python3 -m pip --version >/dev/null 2>&1 || echo no pip"):
        pytest.skip("this machine's Python has no pip")
    wheel = ("import zipfile\nz = zipfile.ZipFile('/tmp/covetest-1-py3-none-any.whl', 'w')\nd = 'covetest-1.dist-info/'\n"
             "z.writestr('covetest.py', 'word = 42')\nz.writestr(d + 'METADATA', 'Metadata-Version: 2.1\\nName: covetest\\nVersion: 1')\n"
             "z.writestr(d + 'WHEEL', 'Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any')\nz.writestr(d + 'RECORD', '')\nz.close()\n")
    reply = server.execute(project, f"python3 -c {shlex.quote(wheel)} && python3 -m pip install --no-index --no-deps /tmp/covetest-1-py3-none-any.whl 2>&1",
                           timeout=120)
    assert "Successfully installed covetest-1" in reply.json["stdout"], reply
    assert server.run(project, "cd /; python3 -c 'import covetest; print(covetest.word)'") == "42\n"
