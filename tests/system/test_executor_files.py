"""The executor dialect: files and directories, in the sandbox and nowhere else."""
import base64
import hashlib
import os
import select
import signal
import threading
import time

import pytest

from cove import all_pids, namespace, status_field, title, wait_for
from executor import Executor


@pytest.fixture
def box(server, project):
    return Executor(server, project)


def test_what_was_written_can_be_read(box):
    for content in ("Hello, World!", "", "ünï\n\ttabs \"quotes\" \\", "a\0b\0", "x" * 1000000):
        assert box.ok("/write_file", path="/tmp/f", content=content) == {"success": True}
        assert box.ok("/read_file", path="/tmp/f") == {"content": content}


def test_base64_carries_any_byte(box):
    data = bytes(range(256)) * 100
    box.ok("/write_file", path="/tmp/f", content=base64.b64encode(data).decode(), encoding="base64")
    assert box.sh("sha256sum < /tmp/f").split()[0] == hashlib.sha256(data).hexdigest()
    assert base64.b64decode(box.ok("/read_file", path="/tmp/f", encoding="base64")["content"]) == data
    reply = box.post("/write_file", path="/tmp/f", content="a!b=", encoding="base64")
    assert reply.status == 400 and reply.json["error"].startswith("content")


def test_a_file_that_is_not_utf8_is_still_valid_json(box):
    box.sh("printf 'a\\377' > /tmp/f")
    assert box.ok("/read_file", path="/tmp/f")["content"] == "a\ufffd"


def test_writing_keeps_mode_and_owner(box):
    box.sh("echo old > /tmp/f; chown 1000:1000 /tmp/f; chmod 0751 /tmp/f")
    box.ok("/write_file", path="/tmp/f", content="new")
    assert box.sh("stat -c '%a %u %g' /tmp/f; cat /tmp/f") == "751 1000 1000\nnew"


def test_a_new_file_is_readable_for_all(box):
    box.ok("/write_file", path="/tmp/f", content="x")
    assert box.sh("stat -c %a /tmp/f") == "644\n"


def test_a_reader_never_sees_half_a_file(box):
    box.ok("/write_file", path="/tmp/f", content="a" * 500000)
    stop = threading.Event()

    def rewrite():
        while not stop.is_set():
            for letter in "ba":
                box.ok("/write_file", path="/tmp/f", content=letter * 500000)

    writer = threading.Thread(target=rewrite)
    writer.start()
    try:
        for _ in range(30):
            content = box.ok("/read_file", path="/tmp/f")["content"]
            assert len(content) == 500000 and len(set(content)) == 1
    finally:
        stop.set()
        writer.join()
    assert box.ok("/list_dir", path="/tmp") == {"entries": ["f"]}  # and nothing lies beside it


def test_a_link_is_written_through_and_stays(box):
    box.sh("mkdir /tmp/d; echo old > /tmp/d/real; ln -s d/real /tmp/link")
    box.ok("/write_file", path="/tmp/link", content="new")
    assert box.sh("cat /tmp/d/real; readlink /tmp/link") == "newd/real\n"
    box.sh("ln -s loop /tmp/loop; ln -s d/to-be /tmp/dangling")
    assert box.post("/write_file", path="/tmp/loop", content="x").status == 400
    box.ok("/write_file", path="/tmp/dangling", content="made")  # as open() would: what the link names is made
    assert box.sh("cat /tmp/d/to-be; readlink /tmp/dangling") == "maded/to-be\n"


def test_links_lead_nowhere_but_into_the_sandbox(box):
    secret = f"/var/tmp/cove-secret-{os.getpid()}"
    with open(secret, "w") as f:
        f.write("host")
    try:
        box.sh(f"ln -s /../../../../..{secret} /tmp/out; ln -s /proc/1/root{secret} /tmp/proc")
        for path in ("/tmp/out", "/tmp/proc", f"/tmp/../../..{secret}", f"../..{secret}"):
            assert box.post("/read_file", path=path).status in (400, 403), path
    finally:
        os.unlink(secret)


def test_parents_are_made_when_asked_for(box):
    reply = box.post("/write_file", path="/tmp/a/b/f", content="x")
    assert reply.status == 400 and "/tmp/a/b/f" in reply.json["error"]
    box.ok("/write_file", path="/tmp/a/b/f", content="x", parents=True)
    assert box.sh("cat /tmp/a/b/f") == "x"


@pytest.mark.parametrize("path,body", [
    ("/read_file", {}), ("/delete_file", {}), ("/list_dir", {}), ("/write_file", {"content": "x"}),
])
def test_errors_name_the_path_as_it_was_written(box, path, body):
    box.sh("echo > /tmp/file")
    for given in ("/tmp/file/below", "tmp/./nowhere//x", "/tmp/nö/x"):
        reply = box.post(path, path=given, **body)
        assert reply.status == 400 and reply.json["success"] is False and given in reply.json["error"], reply


@pytest.mark.parametrize("path", ["/write_file", "/read_file", "/delete_file", "/make_dir", "/delete_dir", "/list_dir"])
def test_bad_bodies_are_400_and_name_the_field(box, path):
    for body, field in [({}, "path"), ({"path": 1}, "path"), ({"path": ""}, "path"), ({"path": "a\0b"}, "path"),
                        ({"path": "/" + "x" * 5000}, "path"), (b"nonsense", "body")]:
        reply = box.request("POST", path, body)
        assert reply.status == 400 and reply.json["error"].startswith(field), (body, reply)


def test_devices_fifos_and_directories_are_no_files(box):
    box.sh("mkfifo /tmp/fifo")
    for given in ("/tmp/fifo", "/dev/null", "/tmp"):
        assert box.post("/read_file", path=given, wait=10).status == 400, given
        assert box.post("/write_file", path=given, content="x", wait=10).status == 400, given
    assert box.sh("test -p /tmp/fifo && test -c /dev/null && echo same") == "same\n"


def test_delete_file_deletes_one_file(box):
    box.sh("touch /tmp/f; mkdir /tmp/d")
    assert box.ok("/delete_file", path="/tmp/f") == {"success": True}
    assert box.post("/delete_file", path="/tmp/f").status == 400
    assert box.post("/delete_file", path="/tmp/d").status == 400
    assert box.ok("/list_dir", path="/tmp") == {"entries": ["d"]}


def test_make_dir_makes_parents_with_0755(box):
    assert box.ok("/make_dir", path="/tmp/my/nested/directory") == {"success": True}
    assert box.ok("/make_dir", path="/tmp/my/nested/directory") == {"success": True}  # as mkdir -p
    assert box.sh("stat -c %a /tmp/my /tmp/my/nested /tmp/my/nested/directory") == "755\n755\n755\n"


def test_delete_dir_deletes_all_in_it_and_nothing_else(box):
    box.sh("mkdir -p /tmp/a/b/c /tmp/keep; touch /tmp/a/b/f /tmp/keep/f; ln -s /tmp/keep /tmp/a/link")
    assert box.ok("/delete_dir", path="/tmp/a") == {"success": True}
    assert box.ok("/delete_dir", path="/tmp/a") == {"success": True}  # as rm -rf
    assert box.sh("cd /tmp; find . -mindepth 1 | sort") == "./keep\n./keep/f\n"


def removers(init):
    """Host pids of init's helpers that remove a tree: forks of init in its namespaces that have something below that tree open."""
    ns = namespace(init, "pid")
    return [pid for pid in all_pids() if pid != init and namespace(pid, "pid") == ns and title(pid).startswith("cove: init")
            and any("/workspace/big" in target for target in open_files(pid))]


def open_files(pid):
    try:
        return [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
    except OSError:
        return []


@pytest.mark.skipif(os.environ.get("COVE_TEST_LONG") != "yes", reason="waits longer than an init has for an answer; COVE_TEST_LONG=yes")
def test_a_directory_that_takes_long_to_delete_costs_nobody_the_sandbox(make_server):
    box = Executor(make_server(pool=0, command_timeout="60s"), "p")
    box.sh("mkdir /workspace/big; cd /workspace/big; seq 40000 | xargs touch; echo kept > /workspace/kept")
    init = box.server.init_of(box.server.execute(box.project, "true"))
    done = []
    deletes = threading.Thread(target=lambda: done.append(box.post("/delete_dir", path="/workspace/big")))
    deletes.start()
    helper = wait_for(lambda: removers(init), 10, "the helper that removes")[0]
    os.kill(helper, signal.SIGSTOP)
    try:
        began = time.monotonic()
        while time.monotonic() < began + 13:  # an init that leaves a question unanswered for 10 s is ended
            assert box.sh("cat /workspace/kept") == "kept\n" and not done
    finally:
        os.kill(helper, signal.SIGCONT)
    deletes.join(60)
    assert done and done[0].status == 200 and done[0].json == {"success": True}, done
    assert box.sh("ls /workspace") == "kept\n"


def test_list_dir_gives_names_only_and_does_not_descend(box):
    box.sh("mkdir -p /tmp/d/sub; touch /tmp/d/b /tmp/d/a /tmp/d/.hidden /tmp/d/sub/x")
    assert box.ok("/list_dir", path="/tmp/d") == {"entries": [".hidden", "a", "b", "sub"]}
    box.sh("mkdir /tmp/many; cd /tmp/many; seq 5000 | xargs touch")
    assert len(box.ok("/list_dir", path="/tmp/many")["entries"]) == 5000


# ------------------------------------------------------------------ /raw_file

def test_raw_files_of_any_size_pass_with_constant_memory(box, tmp_path):
    data = os.urandom(1 << 20) * 200
    before = [int(status_field(p, "VmHWM").split()[0]) for p in box.server.worker_pids]
    reply = box.request("PUT", "/raw_file?path=/tmp/big", data)
    assert reply.status == 200 and reply.json == {"success": True, "bytes": len(data)}
    assert box.sh("sha256sum < /tmp/big").split()[0] == hashlib.sha256(data).hexdigest()
    got = box.request("GET", "/raw_file?path=/tmp/big")
    assert got.status == 200 and got.body == data and got.headers["Content-Length"] == str(len(data))
    after = [int(status_field(p, "VmHWM").split()[0]) for p in box.server.worker_pids]
    assert max(b - a for a, b in zip(before, after)) < 16 * 1024, (before, after)


def test_an_upload_that_breaks_leaves_the_old_file_and_nothing_beside_it(box):
    box.ok("/write_file", path="/tmp/f", content="old")
    c = box.server.connect(10)
    c.putrequest("PUT", "/raw_file?path=/tmp/f")
    for name, value in {**box.headers, "Content-Length": "1000000"}.items():
        c.putheader(name, value)
    c.endheaders()
    c.send(b"x" * 300000)
    c.close()
    wait_for(lambda: box.ok("/list_dir", path="/tmp") == {"entries": ["f"]}, 10, "the part to go")
    assert box.ok("/read_file", path="/tmp/f") == {"content": "old"}


def test_an_upload_ends_with_its_sandbox(box):
    """The worker has the file open, which would go on growing where no limit counts it."""
    box.sh("true")
    c = box.server.connect(10)
    c.putrequest("PUT", "/raw_file?path=/tmp/f")
    for name, value in {**box.headers, "Content-Length": str(1 << 30)}.items():
        c.putheader(name, value)
    c.endheaders()
    c.send(b"x" * 300000)
    wait_for(lambda: any(name.endswith(".part") for name in box.ok("/list_dir", path="/tmp")["entries"]), what="an upload that has begun")
    init = box.init
    assert box.server.cleanup(box.project).status == 200
    wait_for(lambda: not os.path.exists(f"/proc/{init}"), what="the sandbox's end")
    for _ in range(200):  # 20 MB in 4 s at least
        try:
            c.send(b"x" * 100000)
        except OSError:
            break
        if select.select([c.sock], [], [], 0.02)[0]:
            break
    else:
        pytest.fail("the upload goes on")
    c.close()


def test_a_raw_file_above_the_limit_is_413(make_server):
    box = Executor(make_server(file_max="1M"), "p")
    assert box.request("PUT", "/raw_file?path=/tmp/f", b"x" * (1 << 20)).status == 200
    assert box.request("PUT", "/raw_file?path=/tmp/f", b"x" * (3 << 20)).status == 413


def test_raw_errors(box):
    assert box.request("GET", "/raw_file").status == 400
    reply = box.request("GET", "/raw_file?path=/tmp/n%C3%B6")
    assert reply.status == 400 and "/tmp/nö" in reply.json["error"]
    assert box.request("PUT", "/raw_file?path=/no/such/f", b"x").status == 400
    assert box.request("HEAD", "/raw_file?path=/etc/passwd").status == 200
