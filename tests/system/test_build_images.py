"""Templates that a tenant builds from an image of a registry, in a small internet that the test makes (internet.py): Debian's docker-registry
is out there at all of its addresses, the private ones included, and sandboxes may reach the public ones."""
import base64
import copy
import crypt
import os
import subprocess
import tarfile

import pytest

from cove import Server, new_dir, stop, wait_for
from internet import HOST, METADATA, OTHER_PUBLIC, PRIVATE, PUBLIC, RESOLVER, World
from test_builds import Build
from test_template import small_root  # noqa: F401 (fixture)
from test_template_sources import CONFIG, TOP as SECOND, Image, base_tar, tar  # noqa: F401 (fixture)

OPEN, CLOSED, HOSTILE = 5000, 5001, 5002  # ports of the registries: the second wants a name and a password
NAME, PASSWORD = "reader", "the-word-that-nobody-may-find"


def registry(world, path, port, access=""):
    (path / f"{port}.yml").write_text(f"version: 0.1\nlog: {{ level: error }}\nstorage: {{ filesystem: {{ rootdirectory: {path}/store }} }}\n"
                                      f'http: {{ addr: ":{port}" }}\n{access}')
    world.servers.append(subprocess.Popen(["ip", "netns", "exec", world.internet, "docker-registry", "serve", path / f"{port}.yml"],
                                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))


# A registry whose images are named after what it does with them.
HOSTILE_REGISTRY = f"""
import hashlib, http.server, json, time
CONFIG = json.dumps({{"architecture": "amd64", "os": "linux", "config": {{}}, "rootfs": {{"type": "layers", "diff_ids": ["sha256:" + "0" * 64]}}}}).encode()
name = lambda content: "sha256:" + hashlib.sha256(content).hexdigest()
MANIFEST = json.dumps({{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
    "config": {{"mediaType": "application/vnd.oci.image.config.v1+json", "digest": name(CONFIG), "size": len(CONFIG)}},
    "layers": [{{"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": "sha256:" + "1" * 64, "size": 4096}}]}}).encode()
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        words = self.path.split("/")  # /v2/IMAGE/KIND/NAME
        image, kind = (words + ["", ""])[2:4]
        if image.startswith("turn-"):
            self.send_response(307)
            self.send_header("Location", "http://" + image[5:] + ":{OPEN}/v2/app/" + "/".join(words[3:]))
            return self.end_headers()
        if image == "slow":
            time.sleep(1000)
        self.send_response(200)
        if kind == "manifests":
            self.send_header("Content-Type", "application/vnd.oci.image.manifest.v1+json")
        self.end_headers()
        if kind == "manifests":
            self.wfile.write(MANIFEST)
        while (image, kind) == ("endless-manifest", "manifests") or (image == "endless" and words[-1].endswith("1" * 64)):
            self.wfile.write(bytes(1 << 16))
        if kind == "blobs":
            self.wfile.write(b"x" * len(CONFIG) if image == "wrong-config" or words[-1] != name(CONFIG) else CONFIG)
http.server.ThreadingHTTPServer(("", {HOSTILE}), Answer).serve_forever()
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """(world, server, push): push(image, name) puts an OCI directory into both registries."""
    path = tmp_path_factory.mktemp("registry")
    (path / "users").write_text(f"{NAME}:{crypt.crypt(PASSWORD, crypt.mksalt(crypt.METHOD_BLOWFISH, rounds=16))}\n")
    with World() as world:
        registry(world, path, OPEN)
        world.servers.append(subprocess.Popen(["ip", "netns", "exec", world.internet, "python3", "-c", HOSTILE_REGISTRY], stderr=subprocess.DEVNULL))
        registry(world, path, CLOSED, f"auth: {{ htpasswd: {{ realm: test, path: {path}/users }} }}\n")

        def push(image, name):
            command = ["ip", "netns", "exec", world.internet, "skopeo", "copy", "--insecure-policy", "--quiet", "--dest-tls-verify=false",
                       image, f"docker://127.0.0.1:{OPEN}/{name}"]
            wait_for(lambda: subprocess.run(command, capture_output=True).returncode == 0, 20, "the registry")

        server = Server(new_dir(), network="none", pool=0, workers=1, disk_max="150M", build_timeout="25s").up()
        try:
            plain = " ".join(f"{host}:{port}" for host in (PUBLIC, PRIVATE, "public.example") for port in (OPEN, CLOSED, HOSTILE))
            world.move_keeper(server, network="egress", network_dns=RESOLVER, build_insecure_registries=plain)
            yield world, server, push
        finally:
            stop(server)


@pytest.fixture(scope="module")
def server(place, base_tar, tmp_path_factory):
    """With the image app:1 in its registries."""
    place[2](Image(tmp_path_factory.mktemp("images") / "app").write(base_tar, SECOND), "app:1")
    return place[1]


def build(server, name, image, steps=(), **order):
    return Build(server, name, steps, fromTemplate=None, fromImage=image, **order)


def error_of(built):
    end = built.end()
    assert end["status"] == "error", end
    return end["reason"]["message"]


# ------------------------------------------------------------------ what is built

def test_an_image_becomes_the_whole_root_of_a_template(server):
    built = build(server, "app", f"{PUBLIC}:{OPEN}/app:1", [("RUN", "echo built by $(id -un) in $(pwd) > made; echo over > /tmp/over"),
                                                           ("USER", "root"), ("RUN", "rm /etc/second")]).ready()
    assert any("layer 2/2" in line for line in built.messages()), built.messages()
    reply = server.execute("p", "cat /home/user/made /tmp/over; ls /etc/second /etc/marker /opt /usr/bin/python3 2>&1; cat /usr/bin/linked; "
                                "echo $GREETING; stat -c %a:%u:%g /usr/bin/true /opt/tool /opt/new; ls -d /.image /.fetch 2>&1", template="app")
    out = reply.json["stdout"] + reply.json["stderr"]
    assert "built by user in /home/user" in out and "over" in out, out
    for gone in ("/etc/second", "/etc/marker", "/usr/bin/python3", "/opt/tool", "/.image", "/.fetch"):
        assert f"'{gone}': No such file" in out, (gone, out)
    assert "new\n" in out and "second layer" in out and "it's here" in out, out
    assert "4755:0:0\n" in out and "644:33:44\n" in out, out  # modes and owners
    server.cleanup("p")


def test_of_an_image_s_own_words_variables_count_and_user_directory_and_command_do_not(server):
    """As the API has it: a build that says nothing else has the user `user` in /home/user, and starts what it is told to start."""
    build(server, "words", f"{PUBLIC}:{OPEN}/app:1").ready()
    reply = server.execute("p", "id -un; pwd; echo $GREETING; ls /tmp/up", template="words")
    assert reply.json["stdout"] == "user\n/home/user\nit's here\n" and "No such file" in reply.json["stderr"], reply
    server.cleanup("p")


def test_an_image_that_was_fetched_is_not_fetched_again_until_its_tag_moves(place, server, tmp_path, base_tar):
    push = place[2]
    push(Image(tmp_path / "one").write(base_tar, tar(("etc/word", b"first\n", {}))), "moving:1")
    name = f"public.example:{OPEN}/moving:1"
    assert not any("CACHED" in line for line in build(server, "moving", name).ready().messages())
    again = build(server, "moving", name, [("RUN", "cat /etc/word > /tmp/word")]).ready().messages()
    assert any(line.startswith("CACHED [base] FROM") for line in again) and not any("layer 1" in line for line in again), again
    push(Image(tmp_path / "two").write(base_tar, tar(("etc/word", b"second\n", {}))), "moving:1")
    build(server, "moving", name, [("RUN", "cat /etc/word > /tmp/word")]).ready()
    assert server.execute("p", "cat /tmp/word", template="moving").json["stdout"] == "second\n"
    server.cleanup("p")


def test_so_many_steps_that_their_results_are_merged_leave_the_image_whole(server):
    build(server, "long", f"{PUBLIC}:{OPEN}/app:1", [("RUN", f"echo {i} > /tmp/step-{i}; rm -f /tmp/step-{i - 3}") for i in range(12)]).ready()
    reply = server.execute("p", "cat /tmp/step-*; cat /etc/second; ls /etc/marker 2>&1; echo $GREETING", template="long")
    assert reply.json["stdout"].startswith("10\n11\n9\nsecond layer\n") and "No such file" in reply.json["stdout"], reply
    server.cleanup("p")
    Build(server, "longer", [("RUN", f"echo {i} > /tmp/more-{i}") for i in range(9)], fromTemplate="long").ready()
    reply = server.execute("p", "cat /tmp/step-11 /tmp/more-8 /etc/second; ls /usr/bin/python3", template="longer")
    assert reply.json["stdout"] == "11\n8\nsecond layer\n", reply
    server.cleanup("p")


def test_a_sandbox_of_an_image_is_saved_and_comes_back_and_outlives_the_keeper(place, server):
    build(server, "kept", f"{PUBLIC}:{OPEN}/app:1").ready()
    made = server.post("/v2/sandboxes", {"templateID": "kept", "timeout": 300})
    assert made.status == 201, made
    path = f"/sandboxes/{made.json['sandboxID']}"
    assert server.post(f"{path}/pause", {"memory": False}).status == 204
    assert server.post(f"/v2{path}/connect", {}).status == 201
    place[0].move_keeper(server)  # stopped and started again: the snapshot is read from its record
    assert server.execute("p", "cat /etc/second", template="kept").json["stdout"] == "second layer\n"
    server.cleanup("p")


# ------------------------------------------------------------------ what may be reached, and by whom

def test_a_registry_at_an_address_that_sandboxes_may_not_reach_is_not_reached(server):
    for host in (PRIVATE, "10.99.0.1", "rebinds.example"):
        assert "was not fetched" in error_of(build(server, "inwards", f"{host}:{OPEN}/app:1", build_timeout="5s")), host


def test_a_registry_leads_skopeo_nowhere_that_sandboxes_may_not_reach(server):
    build(server, "turned", f"{PUBLIC}:{HOSTILE}/turn-{OTHER_PUBLIC}:1").ready()  # skopeo does follow
    for host in (PRIVATE, METADATA, HOST, "127.0.0.1", "rebinds.example", "metadata.example"):
        assert "was not fetched" in error_of(build(server, "inwards", f"{PUBLIC}:{HOSTILE}/turn-{host}:1")), host


def test_a_registry_that_is_slow_endless_or_lies_ends_the_build(server):
    for image in ("wrong-config", "wrong-layer", "endless", "endless-manifest", "slow"):
        assert "was not fetched" in error_of(build(server, "bad", f"{PUBLIC}:{HOSTILE}/{image}:1")), image
        wait_for(lambda: not server.inits, 20, "the end of its sandbox")


def test_credentials_open_a_registry_and_are_kept_nowhere(server):
    image = f"{PUBLIC}:{CLOSED}/app:1"
    assert "was not fetched" in error_of(build(server, "closed", image))
    wrong = {"type": "registry", "username": NAME, "password": PASSWORD + "x"}
    assert "was not fetched" in error_of(build(server, "closed", image, fromImageRegistry=wrong))
    right = {"type": "registry", "username": NAME, "password": PASSWORD}
    built = build(server, "closed", image, [("RUN", "ls -a /dev/shm > /tmp/left; export -p >> /tmp/left")], force=True, fromImageRegistry=right).ready()
    encoded = base64.b64encode(f"{NAME}:{PASSWORD}".encode()).decode()
    assert PASSWORD not in str(built.messages()) and PASSWORD not in str(built.status())
    reply = server.execute("p", "cat /tmp/left", template="closed")
    assert "auth" not in reply.json["stdout"].lower(), reply
    server.cleanup("p")
    for top, _, files in os.walk(server.dir):
        for name in files:
            path = os.path.join(top, name)
            if os.path.isfile(path) and not os.path.islink(path) and os.path.getsize(path) < 64 << 20:
                with open(path, "rb") as f:
                    content = f.read()
                assert PASSWORD.encode() not in content and encoded.encode() not in content, path


# ------------------------------------------------------------------ images that are wrong

@pytest.mark.parametrize("image, says", [
    (f"{PUBLIC}:{OPEN}/nothing:1", "was not fetched"),
    (f"{PUBLIC}:{OPEN}/app:none", "was not fetched"),
    (f"{PUBLIC}:{OPEN + 7}/app:1", "was not fetched"),
    ("--help", "is not a name of an image"),
    ("a b", "is not a name of an image"),
    ("x" * 400, "is not a name of an image"),
    ("$(id)", "is not a name of an image"),
])
def test_an_image_that_cannot_be_had_is_a_build_error(server, image, says):
    before = server.inits
    assert says in error_of(build(server, "nothing", image))
    wait_for(lambda: server.inits.keys() <= before.keys(), what="the end of its sandbox")


def test_an_image_for_another_processor_is_refused(place, server, tmp_path, base_tar):
    config = copy.deepcopy(CONFIG)
    config["architecture"] = "riscv64"
    place[2](Image(tmp_path / "other").write(base_tar, config=config), "other:1")
    assert "riscv64" in error_of(build(server, "other", f"{PUBLIC}:{OPEN}/other:1"))


def test_layers_that_lead_out_stay_within_the_image(place, server, tmp_path, base_tar):
    """Links that lead out, names with .., device nodes below /dev: they hit the tenant's own sandbox at most."""
    hostile = tar(("out", None, {"type": tarfile.SYMTYPE, "linkname": "/etc"}), ("out/passwd-of-others", b"x", {}), (".wh...", b"", {}),
                  ("a/../../../escaped", b"x", {}), ("dev/sda", None, {"type": tarfile.BLKTYPE, "devmajor": 8, "devminor": 0}))
    place[2](Image(tmp_path / "hostile").write(base_tar, hostile), "hostile:1")
    end = build(server, "hostile", f"{PUBLIC}:{OPEN}/hostile:1").end()
    assert end["status"] in ("ready", "error"), end
    assert not os.path.exists("/escaped") and not os.path.exists("/etc/passwd-of-others")
    build(server, "after", f"{PUBLIC}:{OPEN}/app:1").ready()


def test_files_take_the_place_of_directories_and_device_nodes_are_left_out(place, server, tmp_path, base_tar):
    below = tar(("own/a b/c/file", b"below\n", {}), ("own/link/file", b"below\n", {}), ("own/stays/file", b"below\n", {}), ("own/end/x", b"", {}))
    above = tar(("./own/a b", b"above\n", {}), ("own/link", None, {"type": tarfile.SYMTYPE, "linkname": "stays"}),
                ("own/stays", None, {"type": tarfile.DIRTYPE, "mode": 0o755}),
                ("own/node", None, {"type": tarfile.CHRTYPE, "devmajor": 1, "devminor": 3}), ("own/end", b"the end\n", {}))
    place[2](Image(tmp_path / "swaps").write(base_tar, below, above), "swaps:1")
    build(server, "swaps", f"{PUBLIC}:{OPEN}/swaps:1").ready()
    reply = server.execute("p", "cd /own; cat 'a b' link/file stays/file end; ls", template="swaps")
    assert reply.json["stdout"] == "above\nbelow\nbelow\nthe end\na b\nend\nlink\nstays\n", reply
    server.cleanup("p")


def test_an_image_that_does_not_fit_is_an_error_that_says_so(place, server, tmp_path, base_tar):
    place[2](Image(tmp_path / "large").write(base_tar, tar(("large", bytes(200 << 20), {}))), "large:1")
    assert "layer 2" in (error := error_of(build(server, "large", f"{PUBLIC}:{OPEN}/large:1"))) or "fetched" in error, error
    build(server, "after", f"{PUBLIC}:{OPEN}/app:1").ready()


KINDS = ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup", "time")


def a_false_proc():
    """Members of a layer: /proc is a link, and where it leads is all that a set-up wants to find in /proc."""
    link = {"type": tarfile.SYMTYPE, "linkname": "/tmp/inner"}
    names = ["cpuinfo", "stat", "meminfo", "uptime", "loadavg", "swaps", "vmstat", "cmdline", "sys/kernel/random/boot_id"]
    files = [(f"tmp/inner/{name}", open(f"/proc/{name}", "rb").read() or b"x", {}) for name in names if os.path.exists(f"/proc/{name}")]
    files += [(f"tmp/inner/sys/user/max_{kind}_namespaces", b"9999\n", {}) for kind in KINDS]
    return [("proc", None, link), ("inner/keep", b"", {}), *files]


@pytest.mark.parametrize("point", ["proc", "dev"])
def test_an_image_does_not_choose_where_proc_and_dev_are_mounted(place, server, tmp_path, base_tar, point):
    """While a sandbox is put together its root lies at /tmp of the host's: a link there would lead past what /proc is covered with."""
    layers = [tar((f".wh.{point}", b"", {}), ("x", None, {"type": tarfile.SYMTYPE, "linkname": "/tmp"})), tar(("x/inner/keep", b"", {})),
              tar(*a_false_proc()) if point == "proc" else tar(("dev", None, {"type": tarfile.SYMTYPE, "linkname": "/tmp/inner"}), ("inner/keep", b"", {}))]
    place[2](Image(tmp_path / point).write(base_tar, *layers), f"linked-{point}:1")
    built = build(server, f"linked-{point}", f"{PUBLIC}:{OPEN}/linked-{point}:1")
    end = built.end()
    if end["status"] == "error":
        assert point in end["reason"]["message"], end
        return
    reply = server.execute("p", "stat -c %F /proc /dev; ls /inner; cat /proc/sys/user/max_user_namespaces; cat /inner/vmstat | wc -c", template=f"linked-{point}")
    server.cleanup("p")
    assert reply.json["stdout"].startswith("directory\ndirectory\nkeep\n0\n"), reply
