"""Saved sandboxes in an S3-compatible bucket: there and back, whatever the bucket does meanwhile."""
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "system"))

from bucket import KEY, SECRET, Bucket  # noqa: E402
from cove import read, wait_for  # noqa: E402
from test_clients import modules  # noqa: E402, F401
from test_saving import bare, cove_store, restart, save, saved, set_fault, settled, start_fragile, store, wake  # noqa: E402


@pytest.fixture(scope="module")
def bucket(modules, tmp_path_factory):  # noqa: F811
    made = Bucket(modules, tmp_path_factory.mktemp("s3") / "objects")
    yield made
    made.close()


@pytest.fixture(scope="module")
def server(bucket):
    from cove import Server, new_dir, stop
    made = Server(new_dir(), pool=1, workers=1, command_timeout="20s", **bucket.settings(store_part="5M"))
    made.up()
    yield made
    stop(made)


@pytest.fixture(autouse=True)
def honest(bucket, server, project):
    yield
    bucket.mend()
    server.cleanup(project)


FILL = "echo precious >/workspace/f; head -c 300000 /dev/urandom >/workspace/n; md5sum </workspace/n"
LOOK = "cat /workspace/f; md5sum </workspace/n"


def where(server, box):
    return {row["id"]: row["where"] for row in json.loads(cove_store(server, "ls", "--json").stdout)}.get(box)


def in_bucket(server, box, seconds=40):
    wait_for(lambda: os.path.exists(f"{store(server)}/{box}/bucket"), seconds, "the saved sandbox to be in the bucket")


def is_empty(bucket, box):
    wait_for(lambda: not [k for k in bucket.objects if box in k], 40, "its objects to be gone")


def saved_one(server, project, fill=FILL):
    reply = server.execute(project, fill, timeout=60)
    assert save(server, bare(reply)) is True, reply
    return bare(reply), reply.json["stdout"]


def comes_back(server, project, box, noise):
    again = server.execute(project, LOOK, timeout=60)
    assert (bare(again), again.json["stdout"]) == (box, "precious\n" + noise), again


def test_a_tenant_downloads_an_archive_that_is_in_the_bucket(server, bucket, project, tmp_path):
    box, noise = saved_one(server, project, f"{FILL}; head -c 12000000 /dev/urandom >/workspace/big")
    in_bucket(server, box)
    get = lambda **kw: server.request("GET", f"/console/api/sandboxes/{box}/saved", **kw)
    stalled = bucket.fault("GET .*archive", 1, stall=True)
    first = threading.Thread(target=get, daemon=True)
    first.start()
    wait_for(lambda: stalled.met, 20, "the first download to be under way")
    second = get()
    assert second.status == 503 and "already reading an archive" in second.json["error"], second
    bucket.mend()
    first.join(60)
    wait_for(lambda: not [p for p in server.pids() if read(f"/proc/{p}/cmdline").startswith("cove: bucket")], 20, "its end")
    whole = get()
    assert whole.status == 200 and len(whole.body) > 12_000_000, whole
    (tmp_path / "archive").write_bytes(whole.body)
    listed = subprocess.run(["tar", "--zstd", "-tf", tmp_path / "archive"], capture_output=True, text=True, check=True).stdout
    assert re.search(r"workspace/big$", listed, re.M)
    assert get(key=server.add_key("bucket-archive")).status == 404
    assert where(server, box) == "bucket", "it stays there"
    bucket.fault("GET .*archive", 1, status=403)
    refused = get()
    assert refused.status == 503 and "from the bucket" in refused.json["error"], refused
    wait_for(lambda: "an archive in the bucket was not read whole" in log_of(server), 10, "the log to tell why")
    bucket.mend()
    comes_back(server, project, box, noise)
    is_empty(bucket, box)


def helper(server):
    return wait_for(lambda: [p for p in server.pids() if read(f"/proc/{p}/cmdline").startswith("cove: bucket")])[0]


def log_of(server):
    return read(f"{server.dir}/log/coved.log")


def test_a_saved_sandbox_goes_to_the_bucket_where_others_tools_read_it_and_comes_back(server, bucket, project, tmp_path):
    box, noise = saved_one(server, project)
    in_bucket(server, box)
    assert sorted(os.listdir(f"{store(server)}/{box}")) == ["attributes", "bucket", "manifest.json", "record", "seal"] or \
        "archive.tar.zst" not in os.listdir(f"{store(server)}/{box}")
    assert where(server, box) == "bucket"
    at = f"http://127.0.0.1:{bucket.port}"
    config = tmp_path / "s3cfg"
    config.write_text(f"[default]\naccess_key = {KEY}\nsecret_key = {SECRET}\nhost_base = {at[7:]}\nhost_bucket = {at[7:]}\nuse_https = False\n")
    archive, manifest = tmp_path / "archive", tmp_path / "manifest"
    for key in bucket.objects:
        if key.endswith(("manifest.json", "archive.tar.zst")):
            subprocess.run(["s3cmd", "-c", config, "-q", "get", f"s3://saved/{key}", manifest if "manifest" in key else archive], check=True)
    manifest = json.loads(read(manifest))
    assert manifest["id"] == box and manifest["storedBytes"] == os.path.getsize(archive)
    assert manifest["storedSha256"] in subprocess.run(["sha256sum", archive], stdout=subprocess.PIPE, text=True).stdout
    unpacked = subprocess.run(["tar", "--zstd", "-xOf", archive, "root/workspace/f"], stdout=subprocess.PIPE, check=True).stdout
    assert unpacked == b"precious\n"
    assert f"{box}: whole" in cove_store(server, "verify", box).stdout
    cove_store(server, "export", box, str(tmp_path / "out"))
    assert open(tmp_path / "out", "rb").read() == open(archive, "rb").read()
    assert json.loads(cove_store(server, "show", box).stdout)["id"] == box and box in cove_store(server, "ls", "--bucket").stdout
    comes_back(server, project, box, noise)
    is_empty(bucket, box)
    wait_for(lambda: os.listdir(store(server)) == [], what="nothing to be left to do")


def test_a_large_archive_goes_in_parts_and_an_upload_that_was_left_behind_is_ended(server, bucket, project):
    bucket.fault("PUT .*partNumber=2", 1, status=403)
    bucket.seen.clear()
    stalled = bucket.fault("PUT .*record", 1, stall=True)
    box, noise = saved_one(server, project, f"{FILL}; head -c 40000000 /dev/urandom >/workspace/big; md5sum </workspace/big >/workspace/sum")
    wait_for(lambda: bucket.aborted, 30, "the failed upload to be ended")
    wait_for(lambda: stalled.met, 60, "the archive to be there and read back")
    peak = re.search(r"VmHWM:\s+(\d+) kB", read(f"/proc/{helper(server)}/status"))
    assert int(peak[1]) < 32 << 10, "its memory does not grow with the archive"
    bucket.mend()
    in_bucket(server, box)
    parts = [p for m, p in bucket.seen if m == "PUT" and "partNumber" in p]
    assert len(parts) == 2 + 8 and bucket.uploads == {}, parts  # two of the first try, all of the second
    comes_back(server, project, box, noise)
    assert server.run(project, "md5sum </workspace/big | diff - /workspace/sum && echo same") == "same\n"


@pytest.mark.parametrize("which, what", [
    ("PUT .*archive", {"status": 500}), ("PUT .*archive", {"status": 503}), ("PUT .*manifest", {"status": 429}), ("PUT .*archive", {"cut": 0}),
    ("GET [^?]*archive", {"cut": 1000}), ("GET [^?]*archive", {"status": 502}), ("DELETE ", {"status": 500}), ("PUT .*record", {"stall": True}),
    ("PUT .*archive", {"etag": '"00000000000000000000000000000000"'})])
def test_what_passes_is_tried_again(server, bucket, project, which, what):
    up = bucket.fault(which, 2, **what)
    box, noise = saved_one(server, project)
    in_bucket(server, box)
    down = bucket.fault(which, 2, **what)
    comes_back(server, project, box, noise)
    is_empty(bucket, box)
    assert up.met + down.met > 0


def test_a_slow_bucket_is_waited_for(server, bucket, project):
    slow = bucket.fault("GET [^?]*archive", 2, slow=True)
    bucket.seen.clear()
    box, noise = saved_one(server, project)
    in_bucket(server, box)
    comes_back(server, project, box, noise)
    assert slow.met == 2 and len([p for m, p in bucket.seen if m == "GET" and "archive" in p and "?" not in p]) == 2, "nothing was asked for twice"
    is_empty(bucket, box)


def test_a_wrong_secret_keeps_it_here_and_is_told_without_being_shown(server, bucket, project):
    bucket.write_credentials("another-Secret/that-is=wrong")
    try:
        box, noise = saved_one(server, project)
        wait_for(lambda: re.search(rf"not in the bucket yet.*{box}|{box}.*403", log_of(server)), 30, "the log to tell")
        assert "403 SignatureDoesNotMatch" in log_of(server)
        assert where(server, box) == "leaving" and os.path.exists(f"{store(server)}/{box}/archive.tar.zst")
        comes_back(server, project, box, noise)
    finally:
        bucket.write_credentials(SECRET)
    for path in glob.glob(f"{server.dir}/log/*"):
        assert SECRET not in read(path) and "another-Secret" not in read(path), path
    is_empty(bucket, box)


def test_credentials_are_in_no_process_list_and_the_helper_is_nobody(server, bucket, project):
    bucket.fault("PUT .*archive", 1, stall=True)
    box, _ = saved_one(server, project)
    pid = helper(server)
    status = wait_for(lambda: re.search(r"^Seccomp:\s+2", read(f"/proc/{pid}/status"), re.M) and read(f"/proc/{pid}/status"),
                      what="the helper in its cage")
    for name in ("cmdline", "environ"):
        assert SECRET not in read(f"/proc/{pid}/{name}") and KEY not in read(f"/proc/{pid}/{name}")
    assert not re.search(r"^Uid:\s+0", status, re.M) and re.search(r"^CapEff:\s+0+$", status, re.M)
    assert re.search(r"^NoNewPrivs:\s+1", status, re.M)
    bucket.mend()
    in_bucket(server, box)
    server.cleanup(project)
    is_empty(bucket, box)


def test_while_the_bucket_is_away_nothing_is_lost_and_afterwards_it_goes_there(server, bucket, project):
    bucket.away()
    try:
        box, noise = saved_one(server, project)
        wait_for(lambda: box in log_of(server).partition("not in the bucket yet")[2], 40, "the log to tell")
        comes_back(server, project, box, noise)
        assert save(server, box) is True
    finally:
        bucket.open()
    in_bucket(server, box, 60)
    bucket.away()
    try:
        assert "bucket" in wake(server, box)
        assert saved(server) == {box}
    finally:
        bucket.open()
    comes_back(server, project, box, noise)
    is_empty(bucket, box)


def test_etags_that_lie_are_not_believed(server, bucket, project):
    """One that is right for bytes that were not kept, and one that is wrong for bytes that were."""
    spoilt = bucket.fault("PUT .*archive", 1, spoil=True)
    box, noise = saved_one(server, project)
    wait_for(lambda: "the archive in the bucket is not the one that was saved" in log_of(server), 30)
    assert spoilt.met == 1 and os.path.exists(f"{server.dir}/state/saved/{box}/archive.tar.zst"), "nothing was given up"
    wrong = bucket.fault("PUT .*archive", 1, etag='"00000000000000000000000000000000"')
    in_bucket(server, box)
    assert wrong.met == 1
    comes_back(server, project, box, noise)


def test_a_bucket_that_changes_bytes_is_noticed_before_anything_is_given_up(server, bucket, project):
    bucket.fault("GET [^?]*archive", 1, flip=True)
    box, noise = saved_one(server, project)
    wait_for(lambda: "the archive in the bucket is not the one that was saved" in log_of(server), 30)
    in_bucket(server, box)
    bucket.mend()
    bucket.fault("GET [^?]*archive", 1, flip=True)
    assert wake(server, box) is not True
    assert saved(server) == {box}
    wait_for(lambda: not os.path.exists(f"{server.dir}/state/boxes/{box}"), what="the half-made sandbox to be swept")
    comes_back(server, project, box, noise)


def test_what_is_removed_leaves_the_bucket_and_orphans_are_collected(server, bucket, project):
    box, _ = saved_one(server, project)
    in_bucket(server, box)
    cove_store(server, "rm", box)
    is_empty(bucket, box)
    other, _ = saved_one(server, project)
    in_bucket(server, other)
    for key, path in bucket.objects.items():
        if key.endswith("manifest.json"):
            os.unlink(path)
    assert "0 removed from the bucket" in cove_store(server, "gc").stdout, "what is young may be on its way"
    for path in bucket.objects.values():
        os.utime(path, (1e9, 1e9))
    assert "1 removed from the bucket" in cove_store(server, "gc").stdout
    assert bucket.objects == {}
    server.cleanup(project)


def test_what_is_an_orphan_is_old_by_the_clock_of_the_bucket(server, bucket, project):
    """To a machine whose own clock has jumped by two days what another one is just putting there would look left behind."""
    box, _ = saved_one(server, project)
    in_bucket(server, box)
    bucket.clock_s = -2 * 86400
    for key, path in bucket.objects.items():
        if key.endswith("manifest.json"):
            os.unlink(path)
        else:
            os.utime(path, (time.time() + bucket.clock_s,) * 2)
    assert "0 removed from the bucket" in cove_store(server, "gc").stdout
    bucket.clock_s = 0
    assert "1 removed from the bucket" in cove_store(server, "gc").stdout


def other_machine(server, bucket, make_server, **settings):
    """Another server with the same bucket and the same secret."""
    other = make_server(**bucket.settings(**settings))
    shutil.copy(f"{server.dir}/state/token-secret", f"{other.dir}/state/token-secret")
    return other


def test_another_machine_without_the_secret_takes_nothing(server, bucket, project, make_server):
    box, noise = saved_one(server, project)
    in_bucket(server, box)
    other = make_server(**bucket.settings())
    refused = cove_store(other, "restore", box, check=False)
    assert refused.returncode == 2 and "secret" in refused.stderr and saved(other) == set()
    shutil.copy(f"{server.dir}/state/token-secret", f"{other.dir}/state/token-secret")
    assert "free" in cove_store(other, "ls", "--bucket").stdout and json.loads(cove_store(other, "show", box).stdout)["id"] == box
    comes_back(server, project, box, noise)
    is_empty(bucket, box)


def race(server, other, bucket, project, box, noise):
    """Both machines have seen that nobody has it, and write `taken` at the same moment. The winner has it, the loser is told."""
    bucket.fault("PUT .*/taken", 2, meet=threading.Barrier(2))
    answers = {}
    threads = [threading.Thread(target=lambda: answers.update(there=cove_store(other, "restore", box, check=False))),
               threading.Thread(target=lambda: answers.update(here=wake(server, box)))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    here, there = answers["here"] is True, answers["there"].returncode == 0
    assert here != there, answers
    assert "was woken on another machine" in (answers["there"].stderr if here else answers["here"]), answers
    winner, loser = (server, other) if here else (other, server)
    assert box in winner.inits and box not in loser.inits
    comes_back(winner, project, box, noise)
    is_empty(bucket, box)
    if box in saved(loser):
        cove_store(loser, "rm", box)
    winner.cleanup(project)


@pytest.mark.parametrize("conditions", ["honoured", "refused", "ignored"])
def test_of_two_machines_at_the_same_moment_one_gets_it(server, bucket, project, make_server, conditions):
    other = other_machine(server, bucket, make_server)
    box, noise = saved_one(server, project)
    in_bucket(server, box)
    bucket.conditions = conditions
    try:
        race(server, other, bucket, project, box, noise)
    finally:
        bucket.conditions = "honoured"


@pytest.mark.parametrize("conditions", ["refused", "ignored"])
def test_a_bucket_without_conditional_writes_sends_the_archive_while_it_is_decided_who_has_it(server, bucket, project, conditions):
    box, noise = saved_one(server, project)
    in_bucket(server, box)
    bucket.conditions, begin = conditions, len(bucket.seen)
    try:
        comes_back(server, project, box, noise)
    finally:
        bucket.conditions = "honoured"
    reads = [path.rpartition("/")[2] for method, path in bucket.seen[begin:] if method == "GET" and box in path]
    assert reads[:3] == ["taken", "archive.tar.zst", "taken"], reads


def test_an_encrypted_archive_goes_there_and_comes_back(bucket, make_server, tmp_path):
    made = subprocess.run(["age-keygen", "-o", tmp_path / "identity"], capture_output=True, text=True, check=True)
    recipient = re.search(r"age1\w+", made.stderr + made.stdout).group(0)
    server = make_server(**bucket.settings(store_recipient=recipient, store_identity=tmp_path / "identity"))
    box, noise = saved_one(server, "p")
    in_bucket(server, box)
    key, = [k for k in bucket.objects if box in k and "archive" in k]
    assert key.endswith(".age") and open(bucket.objects[key], "rb").read(21) == b"age-encryption.org/v1"
    comes_back(server, "p", box, noise)
    is_empty(bucket, box)


@pytest.mark.parametrize("point", ["bucket-begun", "bucket-put", "bucket-marked"])
def test_a_keeper_killed_on_the_way_to_the_bucket_loses_nothing(bucket, make_server, point):
    server = make_server(**bucket.settings())
    server.quickstart("down")
    set_fault(server, point)
    start_fragile(server)
    reply = server.execute("p", FILL)
    box, noise = bare(reply), reply.json["stdout"]
    keeper = server.keeper_pid
    save(server, box)
    wait_for(lambda: not os.path.exists(f"/proc/{keeper}") or "Z (" in read(f"/proc/{keeper}/status"), 30, "the keeper to die")
    restart(server)
    assert settled(server, box) == "saved"
    in_bucket(server, box)
    comes_back(server, "p", box, noise)
    is_empty(bucket, box)
