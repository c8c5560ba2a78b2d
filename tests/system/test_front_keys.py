"""Keys and tenants: `cove key`, what a key may do, and how much a tenant may use."""
import json
import os
import re
import subprocess
import threading
import time

import pytest

from cove import TOP, read, wait_for

COVE = os.path.join(TOP, ".cove/inst/bin/cove")


def cove(server, *args, check=True):
    done = subprocess.run([COVE, "-c", f"{server.dir}/conf/cove.conf", *args], text=True, capture_output=True, timeout=30)
    assert not check or done.returncode == 0, done
    return done


def create(server, *args):
    return cove(server, "key", "create", *args).stdout.strip()


def key_id(server, name):
    return next(k["id"] for k in json.loads(cove(server, "key", "list", "--json").stdout) if k["name"] == name)


def try_key(server, key, project="keys"):
    return server.post("/execute", {"projectId": project, "commands": ["echo in"]}, key=key)


def becomes(server, key, status, project="keys", seconds=5):
    return wait_for(lambda: (r := try_key(server, key, project)).status == status and r, seconds, f"{status} for the key")


@pytest.fixture
def instance(make_server):
    return make_server()


def test_a_key_is_shown_once_works_within_seconds_and_is_stored_hashed(instance):
    key = create(instance, "acme", "--name", "ci")
    assert re.fullmatch(r"e2b_[0-9a-f]{40}", key)
    becomes(instance, key, 200)
    assert key not in read(f"{instance.dir}/conf/keys")
    listed = json.loads(cove(instance, "key", "list", "--json").stdout)
    assert {"acme", "default"} == {k["tenant"] for k in listed}
    assert "ci" in cove(instance, "key", "list").stdout and key not in cove(instance, "key", "list").stdout


def test_a_revoked_key_is_refused_within_seconds(instance):
    key = create(instance, "acme", "--name", "gone")
    becomes(instance, key, 200)
    cove(instance, "key", "revoke", "gone")
    began = time.monotonic()
    becomes(instance, key, 401)
    assert time.monotonic() - began < 3
    assert try_key(instance, instance.key).status == 200


def test_a_broken_policy_does_not_hold_a_revocation_up(instance):
    key = create(instance, "acme", "--name", "gone")
    becomes(instance, key, 200)
    with open(f"{instance.dir}/conf/policy.conf", "a") as f:
        f.write("nonsense here\n")
    cove(instance, "key", "revoke", key_id(instance, "gone"))
    becomes(instance, key, 401)


def test_rotation_replaces_the_key_and_can_leave_the_old_one_a_while(instance):
    old = create(instance, "acme", "--name", "ci", "--projects", "keys")
    new = cove(instance, "key", "rotate", "ci").stdout.strip()
    becomes(instance, new, 200)
    becomes(instance, old, 401)
    newer = cove(instance, "key", "rotate", "ci", "--grace", "2s").stdout.strip()
    becomes(instance, newer, 200)
    assert try_key(instance, new).status == 200
    becomes(instance, new, 401)
    assert try_key(instance, newer).status == 200
    assert try_key(instance, newer, "other").status == 403, "the new key has the old one's scopes"


def test_an_expired_key_is_refused(instance):
    key = create(instance, "acme", "--expires", "3s")
    becomes(instance, key, 200)
    becomes(instance, key, 401, seconds=6)
    assert "EXPIRED" in cove(instance, "key", "list").stdout


def test_a_key_for_some_projects_or_dialects_opens_nothing_else(instance):
    key = create(instance, "acme", "--projects", "web-*,ci")
    becomes(instance, key, 200, "ci")
    assert try_key(instance, key, "web-1").status == 200
    reply = try_key(instance, key, "xweb-1")
    assert reply.status == 403 and reply.json["success"] is False and "web-*" in reply.json["error"]
    assert instance.cleanup("secret", key=key).status == 403
    other = create(instance, "acme", "--dialects", "e2b")
    becomes(instance, other, 403)
    assert instance.request("GET", "/health", key=other).status == 200


@pytest.mark.parametrize("args, words", [
    (["create"], "usage"), (["create", "a b"], "usage"), (["create", "x/y"], "usage"),
    (["create", "t", "--expires", "soon"], "neither a time"), (["create", "t", "--expires", "2001-01-01"], "in the past"),
    (["create", "t", "--dialects", "soap"], "none of"), (["create", "t", "--requests", "-1"], "requests"),
    (["create", "t", "--projects", "a b"], "blank"), (["create", "t", "--name", "a b"], "--name"),
    (["revoke", "nobody"], "no key 'nobody'"), (["frobnicate"], "usage"), (["create", "t", "--nonsense"], "nonsense")])
def test_wrong_words_are_refused_and_change_nothing(server, args, words):
    before = read(f"{server.dir}/conf/keys")
    done = cove(server, "key", *args, check=False)
    assert done.returncode == 2 and words in done.stderr, done
    assert read(f"{server.dir}/conf/keys") == before


def test_a_file_with_a_typo_keeps_the_old_keys_and_names_the_line(instance):
    with open(f"{instance.dir}/conf/keys", "a") as f:
        f.write("0" * 64 + " acme ci expirse=2027-01-01\n")
    wait_for(lambda: any("line 2: 'expirse': no such setting" in x.get("error", "") for x in instance.log_lines()),
             5, "the line in the log")
    assert try_key(instance, instance.key).status == 200


# ------------------------------------------------------------------ quotas

def over(reply):
    assert reply.status == 429, reply
    assert re.fullmatch(r"[1-9][0-9]*", reply.headers["Retry-After"])
    assert reply.json["success"] is False and "quota" in reply.json["error"]
    return int(reply.headers["Retry-After"])


def test_a_tenant_over_its_sandboxes_gets_429_and_others_do_not(make_server):
    server = make_server(tenant_sandboxes=2)
    other = create(server, "other")
    becomes(server, other, 200)
    assert [server.execute(f"p{i}", "true").status for i in range(2)] == [200, 200]
    over(server.execute("p2", "true"))
    assert server.execute("p1", "true").status == 200, "what it has goes on"
    assert try_key(server, other, "o2").status == 200
    server.cleanup("p0")
    assert server.execute("p2", "true").status == 200


def test_no_number_of_requests_at_once_gets_past_the_quota(make_server):
    server = make_server(tenant_sandboxes=3, pool=4, workers=2)
    statuses = []
    threads = [threading.Thread(target=lambda i=i: statuses.append(server.execute(f"race{i}", "true").status))
               for i in range(16)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert statuses.count(200) == 3 and statuses.count(429) == 13, statuses


def test_a_tenants_own_line_and_a_keys_own_limit(make_server):
    server = make_server(tenant_sandboxes=1)
    with open(f"{server.dir}/conf/tenants", "w") as f:
        f.write("default sandboxes=0\n")
    wait_for(lambda: server.execute("a", "true").status == 200 and server.execute("b", "true").status == 200, 5, "no quota")
    key = create(server, "default", "--sandboxes", "2")
    assert [try_key(server, key, p).status for p in "cd"] == [200, 200], "the tenant's other sandboxes are not the key's"
    over(try_key(server, key, "e"))
    assert try_key(server, key, "a").status == 200, "a sandbox that is there already may be used"
    assert server.execute("e", "true").status == 200, "the tenant's other key may"
    server.cleanup("c")
    assert try_key(server, key, "f").status == 200


def test_a_new_key_works_and_a_revoked_one_is_refused_as_soon_as_the_tool_returns(make_server):
    server = make_server(workers=2)
    for i in range(5):
        key = create(server, "default", "--name", f"k{i}")
        assert try_key(server, key).status == 200
        cove(server, "key", "revoke", f"k{i}")
        assert try_key(server, key).status == 401


def test_the_pace_of_a_tenant_holds_over_all_workers_and_heals(make_server):
    server = make_server(tenant_requests=5, workers=2)
    began = time.monotonic()
    replies = [server.execute("pace", "true") for _ in range(40)]
    took = time.monotonic() - began
    passed = sum(r.status == 200 for r in replies)
    assert 5 <= passed <= 6 + 5 * took, (passed, took)
    wait = max(over(r) for r in replies if r.status != 200)
    assert wait <= 2
    assert server.request("GET", "/health").status == 200, "open paths have no quota"
    wait_for(lambda: server.execute("pace", "true").status == 200, wait + 5, "the pace to heal")


def test_a_keys_own_pace_does_not_slow_its_tenant(make_server):
    server = make_server()
    key = create(server, "default", "--requests", "1")
    becomes(server, key, 200)
    wait_for(lambda: try_key(server, key).status == 429, 3, "429")
    assert [try_key(server, server.key).status for _ in range(5)] == [200] * 5


# --- what nginx remembers of the answers about keys

def asked(server):
    """How often workers were asked whose key it is."""
    return len(re.findall(r'"operation":"auth"', read(f"{server.dir}/log/coved.log")))


def ask_often(server, **headers):
    for _ in range(30):
        assert server.request("GET", "/list_processes", headers={"X-Project-Id": "keys", **headers}).status == 200


def test_nginx_asks_about_a_key_once_a_second_and_about_anything_else_each_time(make_server):
    server = make_server(log_level="debug")
    server.run("keys", "true")
    ask_often(server)
    known = asked(server)
    assert known < 25
    ask_often(server, Authorization="Bearer nothing")
    assert asked(server) < known + 25, "a header that may hold a key as well"
    known = asked(server)
    for more in ({"Origin": "http://elsewhere.example"}, {"Cookie": "a=b"}, {"X-Access-Token": "t"}, {"X-Relay-Secret": "s"}):
        ask_often(server, **more)
        known = wait_for(lambda: asked(server) >= known + 30 and asked(server), what=f"30 questions with {more}")


def test_an_answer_about_one_key_is_no_answer_about_another(make_server):
    server = make_server()
    server.run("keys", "true")
    other = create(server, "other", "--name", "o")
    for _ in range(10):
        assert server.request("GET", "/list_processes", headers={"X-Project-Id": "keys"}).json["processes"] == []
        assert try_key(server, other, "theirs").status == 200
        assert try_key(server, other[:-1]).status == 401
        assert try_key(server, server.key + "0").status == 401


def test_an_answer_about_one_bearer_is_no_answer_about_another(make_server):
    server = make_server()
    keys = [server.key, create(server, "other", "--name", "o"), server.key + "0"]
    becomes(server, keys[1], 200)
    server.run("keys", "echo secret > /workspace/f")
    for _ in range(10):
        replies = [server.post("/execute", {"projectId": "keys", "commands": ["ls /workspace"]}, key=False,
                               headers={"Authorization": f"Bearer {key}"}) for key in keys]
        assert [r.status for r in replies] == [200, 200, 401]
        assert [r.json["stdout"] for r in replies[:2]] == ["f\n", ""]


def test_what_nginx_remembers_is_in_memory_and_for_nginx_alone(make_server):
    server = make_server()
    server.run("keys", "true")
    where = re.search(r"^fastcgi_cache_path (\S+) ", read(f"{server.dir}/conf/nginx-cove.conf"), re.M).group(1)
    kind = subprocess.run(["stat", "-f", "-c", "%T", where], capture_output=True, text=True).stdout.strip()
    owner = subprocess.run(["stat", "-c", "%U %a", where], capture_output=True, text=True).stdout.strip()
    assert (kind, owner) == ("tmpfs", "www-data 700")
    server.down()
    assert not os.path.exists(where), "keys of a server that is down"
    server.up()
