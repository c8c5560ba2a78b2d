"""Lives and deaths: of sandboxes, and of each process of the server."""
import concurrent.futures
import os
import random
import re
import signal
import time

import pytest

from cove import alive, all_pids, namespace, read, wait_for

TICKER = "(while :; do echo >> /workspace/ticks; sleep 0.05; done) > /dev/null 2>&1 & echo"


def ticks(server, init):
    return len(read(server.path_inside(init, "/workspace/ticks")))


def still_ticking(server, init):
    now = ticks(server, init)
    return wait_for(lambda: ticks(server, init) > now, 5, "another tick")


# ------------------------------------------------------------------ time

def test_after_the_reuse_time_a_fresh_sandbox_comes_and_the_old_one_lives_out_its_life(make_server):
    server = make_server(reuse="2s", lifetime="6s")
    born = time.monotonic()
    first = server.execute("p", TICKER)
    init = server.init_of(first)
    assert server.execute("p", "true").id == first.id
    second = wait_for(lambda: (r := server.execute("p", "true")).id != first.id and r, 6, "a fresh sandbox")
    assert time.monotonic() - born >= 1.9
    assert server.run("p", "ls /workspace") == ""
    assert alive(init) and still_ticking(server, init)
    wait_for(lambda: not alive(init), 8, "the end of the old sandbox")
    assert 5.5 < time.monotonic() - born < 9
    assert second.id != first.id


def test_at_the_end_of_its_life_a_sandbox_is_gone_with_all_that_runs_in_it(make_server):
    server = make_server(reuse="2s", lifetime="10s")  # looking for its processes takes a while on a busy machine
    reply = server.execute("p", "trap '' TERM; setsid sleep 1000 & echo")
    init = server.init_of(reply)
    inside = server.inside(init)
    assert inside
    wait_for(lambda: not alive(init) and not any(map(alive, inside)), 20, "the end")
    assert server.execute("p", "true").id != reply.id


def test_an_idle_sandbox_is_one_process(make_server):
    """The launcher, and the process that it makes ahead for the next command, end when no command comes."""
    server = make_server()
    init = server.init_of(server.execute("p", "true"))

    def processes():
        return [p for p in all_pids() if namespace(p, "pid") == namespace(init, "pid") and alive(p)]

    wait_for(lambda: len(processes()) == 3, 10, "the launcher and the process made ahead")
    wait_for(lambda: processes() == [init], 60, "their end")
    assert server.run("p", "echo again") == "again\n"
    wait_for(lambda: len(processes()) == 3, 10, "the next ones")


def test_after_an_idle_time_memory_is_told_as_before(make_server):
    """An idle init has closed the files that it knows the sandbox's memory from."""
    server = make_server(memory_max="256M")
    init = server.init_of(server.execute("p", "true"))

    def counters():
        links = [os.readlink(f"/proc/{init}/fd/{fd}") for fd in os.listdir(f"/proc/{init}/fd")]
        return [link for link in links if "/memory." in link or "/pids." in link]

    assert counters()
    wait_for(lambda: not counters(), 60, "the closing of these files")
    server.run("p", "head -c 50000000 /dev/zero > /dev/shm/file")
    shmem = re.search(r"Shmem:\s+(\d+) kB", server.run("p", "cat /proc/meminfo"))
    assert 48000 < int(shmem.group(1)) < 60000, shmem
    reply = server.execute("p", "head -c 1000000000 /dev/zero | tail -c 999999999 > /dev/null")
    assert reply.json["success"] is False and "256 MiB" in str(reply.json), reply


def test_a_command_that_outlives_its_sandbox_is_answered(make_server):
    server = make_server(reuse="1s", lifetime="2s", command_timeout="30s")
    began = time.monotonic()
    reply = server.execute("p", "echo so far; sleep 20")
    assert time.monotonic() - began < 10
    assert reply.status == 500 and reply.json["success"] is False
    assert "lifetime of the sandbox (2 s) reached" in reply.json["error"]


def test_cleanup_ends_a_project_s_ageing_sandboxes_too(make_server):
    server = make_server(reuse="1s", lifetime="60s", pool=0)
    first = server.execute("p", "true")
    wait_for(lambda: server.execute("p", "true").id != first.id, 5, "a fresh sandbox")
    server.cleanup("p")
    wait_for(lambda: not server.inits, 5, "no sandbox at all")


# ------------------------------------------------------------------ the warm pool

def test_the_pool_is_kept_full(make_server):
    server = make_server(pool=3)
    wait_for(lambda: len(server.inits) == 3, 10, "three warm sandboxes")
    warm = set(server.inits)
    assert server.execute("p", "true").id in warm
    wait_for(lambda: len(server.inits) == 4, 10, "three warm ones and the project's")


def test_without_a_pool_sandboxes_are_made_on_demand(make_server):
    server = make_server(pool=0)
    assert server.inits == {}
    assert server.run("p", "echo made") == "made\n"
    assert len(server.inits) == 1


def test_a_full_server_says_so_with_503(make_server):
    server = make_server(pool=0, max_sandboxes=2)
    server.run("a", "true")
    server.run("b", "true")
    reply = server.execute("c", "true")
    assert reply.status in (429, 503) and int(reply.headers["Retry-After"]) > 0
    server.cleanup("a")
    wait_for(lambda: server.execute("c", "true").status == 200, 5, "room again")


def test_a_burst_makes_the_pool_grow_and_idleness_lets_it_shrink(make_server):
    server = make_server(pool=1, pool_max=4)
    for i in range(6):
        server.run(f"p{i}", "true")
    wait_for(lambda: len(server.inits) == 6 + 4, 15, "a pool of four")
    wait_for(lambda: len(server.inits) == 6 + 1, 90, "a pool of one")
    server.run("one-more", "true")


def test_more_first_requests_than_the_pool_holds_are_all_answered(make_server):
    server = make_server(pool=2)
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        replies = list(pool.map(lambda i: server.execute(f"p{i}", "echo hi"), range(12)))
    assert [r.status for r in replies] == [200] * 12
    assert len({r.id for r in replies}) == 12


# ------------------------------------------------------------------ the keeper dies

def test_after_kill_9_of_the_keeper_the_next_one_finds_everything_undisturbed(make_server):
    server = make_server()
    first = server.execute("p", "echo kept > /workspace/f", TICKER)
    init = server.init_of(first)
    inside = server.inside(init)
    os.kill(server.keeper_pid, signal.SIGKILL)
    wait_for(lambda: not alive(server.keeper_pid), 5, "the keeper's death")
    assert still_ticking(server, init)
    server.up()
    second = server.execute("p", "cat /workspace/f")
    assert second.id == first.id and second.json["stdout"] == "kept\n"
    assert still_ticking(server, init)
    assert set(inside) & set(server.inside(init))
    assert server.run("fresh", "echo new") == "new\n"
    server.cleanup("p")
    wait_for(lambda: not alive(init) and not any(map(alive, inside)), 5, "the end of an adopted sandbox")


def test_an_adopted_sandbox_still_expires(make_server):
    server = make_server(reuse="3s", lifetime="5s")
    init = server.init_of(server.execute("p", TICKER))
    os.kill(server.keeper_pid, signal.SIGKILL)
    wait_for(lambda: not alive(server.keeper_pid), 5)
    server.up()
    wait_for(lambda: not alive(init), 10, "the end of its life")


def test_a_sandbox_that_died_while_there_was_no_keeper_is_swept(make_server):
    server = make_server(pool=0)
    first = server.execute("p", TICKER)
    init = server.init_of(first)
    inside = server.inside(init)
    os.kill(server.keeper_pid, signal.SIGKILL)
    wait_for(lambda: not alive(server.keeper_pid), 5)
    os.kill(init, signal.SIGKILL)
    wait_for(lambda: not any(map(alive, [init, *inside])), 5, "the end of all in it")
    server.up()
    second = server.execute("p", "ls /workspace")
    assert second.status == 200 and second.id != first.id and second.json["stdout"] == ""


def test_sigquit_hands_over_to_the_next_keeper(make_server):
    server = make_server()
    first = server.execute("p", TICKER)
    init = server.init_of(first)
    old = server.keeper_pid
    os.kill(old, signal.SIGQUIT)
    wait_for(lambda: not alive(old), 10, "the keeper's end")
    assert still_ticking(server, init)
    server.up()
    assert server.execute("p", "true").id == first.id


def host_ids(init):
    """(first, one after the last) of the host's user ids that a sandbox has."""
    _, first, count = map(int, read(f"/proc/{init}/uid_map").split())
    return first, first + count


def test_after_a_change_of_id_count_living_sandboxes_have_their_ids_for_themselves(make_server):
    server = make_server(id_count=131072, pool=0)
    old = host_ids(server.init_of(server.execute("old", "true")))
    assert old[1] - old[0] == 131072
    server.quickstart("up", "--no-install", "--set", "id_count=65536")
    for project in ("new-1", "new-2"):
        first, end = host_ids(server.init_of(server.execute(project, "true")))
        assert end - first == 65536 and (end <= old[0] or first >= old[1]), project
    assert host_ids(server.init_of(server.execute("old", "true"))) == old


def test_kill_9_at_random_moments_leaves_a_table_that_is_still_right(make_server):
    server = make_server(pool=2, workers=2)
    keep = server.execute("keep", TICKER)
    init = server.init_of(keep)
    rng = random.Random(1)

    def churn(i):
        try:
            server.execute(f"churn{i % 5}", "true", timeout=20)
            if i % 3 == 0:
                server.cleanup(f"churn{i % 5}")
        except OSError:
            pass  # a request that was on its way when the server died

    def others():
        """Workers and helpers."""
        return [pid for pid, title in server.titles("cove: ").items() if title.split()[1] not in ("keeper", "init", "saver", "capture")]

    assert {title.split()[1] for title in server.titles("cove: ").values()} >= {"worker", "judge", "gate", "fetch", "builder"}
    for round_number in range(200 if os.environ.get("COVE_TEST_LONG") == "yes" else 8):
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            jobs = [pool.submit(churn, i) for i in range(24)]
            time.sleep(rng.uniform(0, 0.15))  # the random moment itself, not a wait for anything
            victim = server.keeper_pid if round_number % 2 else rng.choice(sorted(others()))
            os.kill(victim, signal.SIGKILL)
            if round_number % 2:
                wait_for(lambda: not alive(victim), 5)
                server.up()
            for job in jobs:
                job.result()
    assert server.execute("keep", "true").id == keep.id and still_ticking(server, init)
    for i in range(5):
        assert server.run(f"churn{i}", f"echo {i}") == f"{i}\n"
        assert server.cleanup(f"churn{i}").status == 200
    wait_for(lambda: len(server.inits) == 3, 15, "two warm sandboxes and the kept one, nothing else")


# ------------------------------------------------------------------ a worker dies

def test_a_killed_worker_is_replaced_and_the_other_s_requests_go_on(make_server):
    # More commands than one worker has slots for: both workers have some of them.
    server = make_server(workers=2, threads=8, short_threads=2, command_timeout="60s")
    assert len(server.worker_pids) == 2
    init = server.init_of(server.execute("p", "true"))
    where = server.path_inside(init, "/workspace")
    wait = "mktemp /workspace/on-XXXXXX; while [ ! -e /workspace/go ]; do sleep 0.05; done; echo done"

    def run(_):
        while (reply := server.execute("p", wait)).status == 503:
            pass
        return reply

    with concurrent.futures.ThreadPoolExecutor(9) as pool:
        jobs = [pool.submit(run, i) for i in range(9)]
        wait_for(lambda: len([n for n in os.listdir(where) if n.startswith("on-")]) == 9, 20, "9 running commands")
        victim = server.worker_pids[0]
        os.kill(victim, signal.SIGKILL)
        wait_for(lambda: len(server.worker_pids) == 2 and victim not in server.worker_pids, 10, "a new worker")
        server.touch_inside(init, "/workspace/go")
        replies = [job.result() for job in jobs]
    good = [r for r in replies if r.status == 200]
    lost = [r for r in replies if r.status != 200]
    assert len(good) >= 3 and all(r.json["stdout"].endswith("done\n") for r in good)
    assert len(lost) >= 3 and all(r.status == 502 and r.json["success"] is False for r in lost)
    assert server.run("p", "echo fine") == "fine\n"


def test_commands_of_a_killed_worker_do_not_run_on(make_server):
    server = make_server(workers=1, command_timeout="60s")
    init = server.init_of(server.execute("p", "true"))
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        job = pool.submit(server.execute, "p", "sleep 55")
        wait_for(lambda: "sleep 55" in " ".join(server.inside_titles(init)), 5, "the command")
        os.kill(server.worker_pids[0], signal.SIGKILL)
        assert job.result().status == 502
    wait_for(lambda: "sleep 55" not in " ".join(server.inside_titles(init)), 5, "the command's end")


def test_workers_end_when_the_keeper_is_gone_for_good(make_server):
    server = make_server()
    os.kill(server.keeper_pid, signal.SIGKILL)
    wait_for(lambda: not alive(server.keeper_pid), 5)
    server.quickstart("down")  # may say what it had to clean up: nobody was left to do it
    assert not server.left_over()
    server.up()


# ------------------------------------------------------------------ init dies

def test_when_init_dies_its_sandbox_is_gone_at_once_without_orphans(server, project):
    first = server.execute(project, "setsid sleep 1000 & (sleep 1000 &) ; echo")
    init = server.init_of(first)
    inside = server.inside(init)
    assert len(inside) >= 2
    os.kill(init, signal.SIGKILL)
    wait_for(lambda: not alive(init) and not any(map(alive, inside)), 3, "the end of all in it")
    second = server.execute(project, "ls /workspace")
    assert second.status == 200 and second.id != first.id and second.json["stdout"] == ""


def test_a_command_whose_sandbox_dies_is_answered_at_once(server, project):
    init = server.init_of(server.execute(project, "true"))
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        job = pool.submit(server.execute, project, "echo so far; sleep 3.9")
        wait_for(lambda: "sleep 3.9" in " ".join(server.inside_titles(init)), 5, "the command")
        began = time.monotonic()
        os.kill(init, signal.SIGKILL)
        reply = job.result()
    assert time.monotonic() - began < 2
    assert reply.status == 500 and reply.json["success"] is False and "sandbox" in reply.json["error"]


def test_a_command_cannot_kill_its_own_init(server, project):
    first = server.execute(project, "kill -9 1; kill -TERM 1; kill -9 -1; true")
    again = server.execute(project, "echo alive")
    assert again.json["stdout"] == "alive\n" and again.id == first.id, "the same sandbox goes on"


# ------------------------------------------------------------------ signals to the keeper

def test_sighup_reads_keys_again(make_server):
    server = make_server()
    key = server.add_key("second")
    assert server.execute("p", "true", key=key).status == 200
    # and a key that was taken out stops working
    keys = f"{server.dir}/conf/keys"
    lines = read(keys).split("\n")
    with open(keys, "w") as f:
        f.write(lines[0] + "\n")
    os.kill(server.keeper_pid, signal.SIGHUP)
    wait_for(lambda: server.post("/cleanup", {"projectId": "p"}, key=key).status == 401, 5, "401")


def test_sighup_takes_new_settings_without_touching_sandboxes(make_server):
    server = make_server(command_timeout="30s")
    first = server.execute("p", TICKER)
    server.change_config(command_timeout="1s")
    wait_for(lambda: server.execute("p", "sleep 3").json["exitCode"] == 124, 20, "the new deadline")
    assert server.execute("p", "true").id == first.id


def test_a_mistake_in_the_configuration_is_told_with_its_line_and_the_old_one_holds(make_server):
    server = make_server()
    first = server.execute("p", "true")
    path = f"{server.dir}/conf/cove.conf"
    good = read(path)
    server.change_config(comand_timeout="1s")
    number = len(read(path).rstrip("\n").split("\n"))
    wait_for(lambda: any(f"cove.conf:{number}" in str(line) and "comand_timeout" in str(line)
                         for line in server.log_lines()), 5, "the complaint")
    assert server.execute("p", "sleep 1.2; echo ok").json["stdout"] == "ok\n"
    assert server.execute("p", "true").id == first.id
    with open(path, "w") as f:
        f.write(good)


def test_sigterm_leaves_nothing(make_server):
    server = make_server(pool=3)
    for i in range(5):
        server.run(f"p{i}", "trap '' TERM; setsid sleep 1000 & echo")
    there = server.left_over()
    assert {"processes", "mounts", "cgroups", "sockets"} <= set(there), "the control: each kind is found while it is there"
    inside = [pid for init in server.inits.values() for pid in server.inside(init)]
    assert len(inside) >= 5
    keeper = server.keeper_pid
    os.kill(keeper, signal.SIGTERM)
    wait_for(lambda: not alive(keeper), 15, "the keeper's end")
    wait_for(lambda: not server.left_over(), 3, "nothing left")
    wait_for(lambda: not any(map(alive, inside)), 3, "the end of all that ran in sandboxes")
    assert os.path.isdir(f"{server.dir}/state/boxes"), "the place where their files were"
    assert os.listdir(f"{server.dir}/state/boxes") == [] and not os.path.ismount(f"{server.dir}/state/disk/pool")
    assert not os.path.exists(f"{server.run_dir}/boxes") or os.listdir(f"{server.run_dir}/boxes") == []


def test_sigterm_during_requests_answers_or_closes_them(make_server):
    server = make_server()
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(server.execute, f"p{i}", "sleep 15") for i in range(4)]
        wait_for(lambda: len([1 for pid in server.inits.values() if server.inside(pid)]) == 4, 10, "four commands")
        os.kill(server.keeper_pid, signal.SIGTERM)
        replies = [job.result() for job in jobs]
    assert all(r.status in (500, 502, 503) and r.json["success"] is False for r in replies), replies
    wait_for(lambda: not server.left_over(), 10, "nothing left")


# ------------------------------------------------------------------ tenants

def test_tenants_with_the_same_project_name_do_not_share_a_sandbox(make_server):
    server = make_server()
    other = server.add_key("other")
    mine = server.execute("p", "echo secret > /workspace/f")
    theirs = server.execute("p", "ls /workspace", key=other)
    assert theirs.json["stdout"] == "" and theirs.id != mine.id
    server.cleanup("p", key=other)
    assert server.run("p", "cat /workspace/f") == "secret\n"
