"""Templates from container images, Dockerfiles and debootstrap, with Debian's own tools; and images that are wrong."""
import gzip
import hashlib
import io
import json
import os
import re
import random
import shutil
import signal
import stat
import subprocess
import tarfile
import zipfile

import pytest

from cove import alive, free_port, title, wait_for
from test_snapshots import create, end_all, inside, take
from test_template import COVE, instance, small_root, store  # noqa: F401 (fixtures)

CONFIG = {"architecture": "amd64", "os": "linux", "config": {
    "User": "www:www", "Env": ["PATH=/usr/bin", "GREETING=it's here"], "WorkingDir": "/srv/app", "Entrypoint": ["bash", "-c"],
    "Cmd": ["echo it\\'s up > /tmp/up; sleep 1000"], "ExposedPorts": {"8000/tcp": {}}, "Labels": {"maker": "test"}}}
LAYER, PLAIN_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip", "application/vnd.oci.image.layer.v1.tar"


def tar(*members):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as t:
        for name, content, more in members:
            info = tarfile.TarInfo(name)
            for key, value in more.items():
                setattr(info, key, value)
            if isinstance(content, bytes):
                info.size = len(content)
            t.addfile(info, io.BytesIO(content) if isinstance(content, bytes) else None)
    return out.getvalue()


class Image:
    """An OCI directory, made by hand so that it can be wrong."""

    def __init__(self, path):
        self.path = path
        os.makedirs(path / "blobs/sha256")
        (path / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')

    def blob(self, content, media_type, **wrong):
        digest = hashlib.sha256(content).hexdigest()
        (self.path / "blobs/sha256" / digest).write_bytes(content)
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content), **wrong}

    def write(self, *layers, config=CONFIG, packed=True):
        blobs = [self.blob(gzip.compress(x) if packed else x, LAYER if packed else PLAIN_LAYER) for x in layers]
        config = dict(config, rootfs={"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(x).hexdigest() for x in layers]})
        manifest = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "layers": blobs,
                    "config": self.blob(json.dumps(config).encode(), "application/vnd.oci.image.config.v1+json")}
        entry = self.blob(json.dumps(manifest).encode(), manifest["mediaType"], annotations={"org.opencontainers.image.ref.name": "image"})
        (self.path / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [entry]}))
        return f"oci:{self.path}:image"


@pytest.fixture(scope="module")
def base_tar(small_root):
    return subprocess.run(["tar", "-C", small_root, "--numeric-owner", "-cf", "-", "."], check=True, capture_output=True).stdout


TOP = tar(("etc", None, {"type": tarfile.DIRTYPE, "mode": 0o755}), ("etc/second", b"second layer\n", {}), ("etc/.wh.marker", b"", {}),
          ("opt/.wh..wh..opq", b"", {}), ("opt/new", b"new\n", {"uid": 33, "gid": 44}), ("usr/bin/linked", None, {"type": tarfile.LNKTYPE, "linkname": "etc/second"}))


@pytest.fixture
def image(tmp_path, base_tar):
    return Image(tmp_path / "image").write(base_tar, TOP)


def check_runs(store, name="app"):
    reply = store.execute("p", "cat /etc/second; ls /etc/marker 2>&1; ls /opt; cat /usr/bin/linked; echo $GREETING; id -un; pwd; cat /tmp/up", template=name)
    assert reply.status == 200, reply
    out = reply.json["stdout"].split("\n")
    assert out[0] == "second layer" and "No such file" in out[1] and out[2:] == \
        ["new", "second layer", "it's here", "www", "/srv/app", "it's up", ""], out


def test_an_image_becomes_layers_that_sandboxes_run_on(store, image, tmp_path, base_tar):
    store.template("add", "app", image, "--ready", "test -s /tmp/up")
    shown = json.loads(store.template("show", "app"))
    assert shown["user"] == "www" and shown["workdir"] == "/srv/app" and shown["labels"] == {"maker": "test"}, shown
    assert len(shown["layers"]) == 3 and shown["architecture"] == "amd64"
    check_runs(store)
    other = Image(tmp_path / "other").write(base_tar, tar(("etc/other", b"x", {})))
    store.template("add", "other", other)
    again = json.loads(store.template("show", "other"))
    assert again["layers"][-1] == shown["layers"][-1] and len(store.layers()) == 5, store.layers()  # the lowest layer is stored once


@pytest.mark.parametrize("kind", ["oci-archive", "docker-archive"])
def test_archives_of_images_are_taken(store, image, tmp_path, kind):
    target = f"{kind}:{tmp_path}/image.tar:app:1"
    subprocess.run(["skopeo", "copy", "--insecure-policy", "--quiet", image, target], check=True)
    store.template("add", "app", f"{kind}:{tmp_path}/image.tar", "--ready", "test -s /tmp/up")
    check_runs(store)


def test_an_image_of_a_registry_is_taken(store, image, tmp_path, monkeypatch):
    port = free_port()
    (tmp_path / "registry.yml").write_text(f"""
version: 0.1
log: {{ level: error }}
storage: {{ filesystem: {{ rootdirectory: {tmp_path}/registry }} }}
http: {{ addr: 127.0.0.1:{port} }}
""")
    registry = subprocess.Popen(["docker-registry", "serve", tmp_path / "registry.yml"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        push = ["skopeo", "copy", "--insecure-policy", "--quiet", "--dest-tls-verify=false", image, f"docker://127.0.0.1:{port}/app:1"]
        wait_for(lambda: subprocess.run(push, capture_output=True).returncode == 0, 20, "the registry")
        os.makedirs(tmp_path / ".config/containers")
        (tmp_path / ".config/containers/registries.conf").write_text(f'[[registry]]\nlocation = "127.0.0.1:{port}"\ninsecure = true\n')
        monkeypatch.setenv("HOME", str(tmp_path))  # where skopeo looks for whom to trust without TLS
        store.template("add", "app", f"docker://127.0.0.1:{port}/app:1", "--ready", "test -s /tmp/up")
        check_runs(store)
        assert "skopeo has failed" in store.template("add", "none", f"docker://127.0.0.1:{port}/nothing:1", ok=False)
    finally:
        registry.terminate()
        registry.wait()


def test_a_dockerfile_becomes_a_template(store, small_root, base_tar, tmp_path):
    context = tmp_path / "context"
    context.mkdir()
    (context / "root.tar").write_bytes(base_tar)
    (context / "Dockerfile").write_text("FROM scratch\nADD root.tar /\nENV GREETING=built\nWORKDIR /srv/app\nRUN id -u > /etc/built-by\n"
                                        "USER www\nCMD [\"bash\", \"-c\", \"echo up > /tmp/up; sleep 1000\"]\n")
    store.template("build", "app", context, "--ready", "test -s /tmp/up")
    reply = store.execute("p", "cat /etc/built-by /tmp/up; echo $GREETING; id -un; pwd", template="app")
    assert reply.json["stdout"] == "0\nup\nbuilt\nwww\n/srv/app\n", reply
    (context / "Dockerfile").write_text("FROM scratch\nADD root.tar /\nRUN exit 3\n")
    assert "buildah has failed" in store.template("build", "bad", context, ok=False)
    assert "bad" not in store.template("ls")
    assert [x for x in os.listdir(f"{store.config['state_dir']}/layers") if x.startswith(".")] == []


def zip_of(root, path):
    """As `zip --symlinks` has it: kinds and modes stand in the directory at the end of the archive alone."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as z:
        for folder, folders, files in os.walk(root):
            for name in sorted(folders + files):
                whole = os.path.join(folder, name)
                st, inner = os.lstat(whole), os.path.relpath(whole, root)
                info = zipfile.ZipInfo(inner + "/" * stat.S_ISDIR(st.st_mode))
                info.create_system, info.external_attr, info.compress_type = 3, st.st_mode << 16, zipfile.ZIP_DEFLATED
                z.writestr(info, os.readlink(whole) if os.path.islink(whole) else open(whole, "rb").read() if os.path.isfile(whole) else b"")
    return path


def test_a_zip_keeps_links_and_modes(store, small_root, tmp_path):
    store.template("add", "zipped", zip_of(small_root, tmp_path / "root.zip"))
    assert store.run("p", "cat /etc/marker; stat -c %F:%a /bin /usr/bin/cat /usr/bin/true", template="zipped") == \
        "from the template\nsymbolic link:777\nregular file:755\nregular file:4755\n"


@pytest.mark.parametrize("how", ["pipe", "gzip"])
def test_a_zip_that_cannot_be_read_from_its_end_is_refused(store, small_root, tmp_path, how):
    """Its links would be files and no program could be started."""
    path = zip_of(small_root, tmp_path / "root.zip")
    if how == "gzip":
        subprocess.run(["gzip", path], check=True)
        out = store.template("add", "bad", f"{path}.gz", ok=False)
    else:
        done = subprocess.run(["sh", "-c", f'cat {path} | {COVE} -c {store.dir}/conf/cove.conf template add bad /dev/stdin'], capture_output=True, text=True)
        assert done.returncode != 0
        out = done.stderr
    assert "zip" in out and "bad" not in store.template("ls") and not store.layers(), out


# ------------------------------------------------------------------ images of many layers

class Changes:
    """Random layers of an image, and what the files below /m are when they all lie on each other."""

    def __init__(self, seed):
        self.random, self.files, self.dirs = random.Random(seed), {}, {"m"}

    def drop(self, path):
        below = lambda p: p == path or p.startswith(path + "/")
        self.files = {p: c for p, c in self.files.items() if not below(p)}
        self.dirs = {p for p in self.dirs if not below(p)}

    def layer(self, n):
        members, touched = [], set()
        free = lambda p: not any(p == t or p.startswith(t + "/") or t.startswith(p + "/") for t in touched)
        for path in self.random.sample(sorted(self.files) + sorted(self.dirs - {"m"}), min(2, len(self.files))):
            if free(path):
                touched.add(path)
                self.drop(path)
                parent, name = path.rsplit("/", 1)
                members.append((f"{parent}/.wh.{name}", b"", {}))
        for path in self.random.sample(sorted(self.dirs - {"m"}), min(1, len(self.dirs) - 1)) if n % 3 == 0 else []:
            if free(path):
                touched.add(path)
                self.drop(path)
                self.dirs.add(path)
                members += [(path, None, {"type": tarfile.DIRTYPE, "mode": 0o755}), (f"{path}/.wh..wh..opq", b"", {}), (f"{path}/anew", b"%d" % n, {})]
                self.files[f"{path}/anew"] = str(n)
        for i in range(12):
            path = f"{self.random.choice(sorted(self.dirs))}/{self.random.choice('abcdefgh')}"
            if not free(path) or path.count("/") > 4:
                continue
            touched.add(path)
            self.drop(path)  # a file in the place of a directory, or the reverse
            if self.random.random() < 0.3:
                self.dirs.add(path)
                members += [(path, None, {"type": tarfile.DIRTYPE, "mode": 0o755}), (f"{path}/.wh..wh..opq", b"", {})]
            else:
                self.files[path] = f"{n}.{i}"
                members.append((path, self.files[path].encode(), {}))
        return tar(*members)

    def listing(self):
        return "".join(sorted([f"d {p}\n" for p in self.dirs - {"m"}] + [f"f {p} {c}\n" for p, c in self.files.items()]))


FOLDER = {"type": tarfile.DIRTYPE, "mode": 0o755}
LIST = 'shopt -s globstar dotglob; cd /; for f in m/**; do if [ -d "$f" ]; then [ "$f" = m/ ] || echo "d $f"; elif [ -e "$f" ]; then echo "f $f $(<"$f")"; fi; done'
PLAIN = dict(CONFIG, config={})


def listed(out):
    return "".join(sorted(out.splitlines(True)))


def test_an_image_of_forty_layers_is_what_its_layers_are_on_each_other(store, tmp_path, base_tar):
    """The lowest layers become one. What whiteouts and opaque directories hide stays hidden on both sides of that border."""
    changes = Changes(40)
    layers = [base_tar, tar(("m", None, {"type": tarfile.DIRTYPE, "mode": 0o755}), ("etc/twice", b"low\n", {"mode": 0o4755, "uid": 33}),
                            ("etc/linked", None, {"type": tarfile.LNKTYPE, "linkname": "etc/twice"}))]
    layers += [tar(*[(f"srv/{folder}/{n}", b"x", {}) for folder in "abcd" for n in range(3)]),
               tar(("srv/a", None, FOLDER), ("srv/a/.wh..wh..opq", b"", {}), ("srv/a/3", b"x", {}), ("srv/b/.wh.1", b"", {}), ("srv/.wh.c", b"", {}),
                   ("srv/d", b"a file", {})),
               tar(("srv/c", None, FOLDER), ("srv/c/4", b"x", {}), ("srv/d", None, FOLDER), ("srv/d/5", b"x", {}))]
    layers += [changes.layer(n) for n in range(34)] + [tar(("etc/.wh.marker", b"", {}))]
    store.template("add", "forty", Image(tmp_path / "forty").write(*layers, config=PLAIN))
    shown = json.loads(store.template("show", "forty"))["layers"]
    assert len(layers) == 40 and len(shown) <= 16 and len(store.layers()) == len(shown), shown
    assert listed(store.run("p", LIST, template="forty")) == changes.listing()
    assert store.run("p", "cd /srv; ls -d */*").split() == ["a/3", "b/0", "b/2", "c/4", "d/5"]
    out = store.run("p", "ls /etc/marker 2>&1; stat -c '%a %u %h' /etc/twice /etc/linked; id -un user", template="forty").split("\n", 1)
    assert "No such file" in out[0] and out[1] == "4755 33 2\n4755 33 2\nuser\n", out
    assert "ok" in store.template("verify", "forty")
    other = Image(tmp_path / "other").write(*layers, tar(("etc/more", b"x", {})), config=PLAIN)
    store.template("add", "other", other)
    again = json.loads(store.template("show", "other"))["layers"]
    assert again[1:][-len(shown) + 1:] == shown[1:] and again[0] == shown[0] and len(store.layers()) == len(shown) + 1, "what they share is stored once"
    store.cleanup("p")
    wait_for(lambda: not os.listdir(f"{store.config['state_dir']}/boxes"), 15, "the sandbox's end")
    store.template("rm", "other")
    assert store.template("gc").startswith("1 layers") and sorted(store.layers()) == sorted(x.removeprefix("sha256:") for x in shown)


def test_snapshots_fit_on_top_of_an_image_of_many_layers(store, tmp_path, base_tar):
    store.template("add", "many", Image(tmp_path / "i").write(base_tar, *[tar((f"etc/l{n}", b"%d\n" % n, {})) for n in range(22)], config=PLAIN))
    box = create(store, "many").json["sandboxID"]
    for n in range(10):
        inside(store, box, f"echo {n} > /workspace/{n}")
        take(store, box, "step")
        box = create(store, "step").json["sandboxID"]
    assert inside(store, box, "cat /workspace/* /etc/l0 /etc/l21") == "".join(f"{n}\n" for n in range(10)) + "0\n21\n"
    end_all(store)


def test_a_layer_whose_top_is_opaque_hides_all_below_it(store, tmp_path, base_tar):
    new_root = tar((".wh..wh..opq", b"", {}))
    store.template("add", "few", Image(tmp_path / "few").write(tar(("etc/old", b"x", {})), new_root, base_tar, config=PLAIN))
    assert "No such file" in store.run("p", "ls /etc/old 2>&1; true", template="few")
    many = [tar((f"etc/old{n}", b"x", {})) for n in range(20)] + [new_root, base_tar]
    store.template("add", "many", Image(tmp_path / "many").write(*many[:3], *many, config=PLAIN))
    assert store.run("q", "ls /etc/old* 2>&1; ls /etc/marker", template="many").endswith("No such file or directory\n/etc/marker\n")


GONE = [("w/a/.wh.foo", b"", {})]
ANEW = [("w/a/foo", None, FOLDER), ("w/a/foo/new", b"x", {})]
REPLACED = {
    "whiteout first": tar(*GONE, *ANEW),
    "whiteout last": tar(*ANEW, *GONE),
    "no member for the directory": tar(*GONE, ANEW[1]),
    "opaque, too": tar(*GONE, ("w/a/foo/.wh..wh..opq", b"", {}), ("w/a/foo/.wh.old", b"", {}), ANEW[1]),
    "device": tar(("w/a/foo", None, {"type": tarfile.CHRTYPE, "devmajor": 0, "devminor": 0}), *ANEW),
}


@pytest.mark.parametrize("how", REPLACED)
def test_a_directory_that_a_layer_deletes_and_makes_anew_has_only_the_new_files(store, tmp_path, base_tar, how):
    """Alike whether layers lie on each other or are merged."""
    below, more = tar(("w/a/foo/old", b"x", {}), ("w/a/kept", b"x", {})), [tar((f"etc/l{n}", b"x", {})) for n in range(20)]
    for name, layers in (("stacked", [base_tar, below, REPLACED[how]]), ("merged", [base_tar, below, REPLACED[how], *more]),
                         ("on-merged", [base_tar, below, *more, REPLACED[how]])):
        store.template("add", name, Image(tmp_path / name).write(*layers, config=PLAIN))
        assert store.run(name, "cd /w/a; ls; ls -A foo 2>&1", template=name).split() == ["foo", "kept", "new"], name


@pytest.mark.parametrize("how", [".wh.etc", "etc/.wh..wh..opq"])
def test_accounts_that_a_layer_hides_are_not_in_the_template(store, tmp_path, base_tar, how):
    """The template's topmost layer has the image's accounts and `user`. It must not bring back what a layer deleted."""
    store.template("add", "app", Image(tmp_path / "i").write(base_tar, tar((how, b"", {}), ("etc/new", b"x", {})), config=PLAIN))
    assert store.run("p", "cat /etc/passwd; ls /etc/marker 2>&1; true", template="app").splitlines() == [
        "root:x:0:0:root:/root:/bin/bash", "user:x:1000:1000:user:/home/user:/bin/bash", "ls: cannot access '/etc/marker': No such file or directory"]


def folder(name, mode, owner=0):
    return name, None, {"type": tarfile.DIRTYPE, "mode": mode, "uid": owner, "gid": owner}


DESCRIBED = tar(folder("var/tmp", 0o1777), folder("srv", 0o711), folder("srv/app", 0o2750, 33), ("srv/app/old", b"x", {}), folder("srv/app/sub", 0o700, 33),
                folder("opt/emptied", 0o705, 33), ("opt/emptied/old", b"x", {}), folder("opt/anew", 0o700, 33), folder("opt/gone", 0o700, 33),
                folder("opt/later", 0o700, 33))
IMPLYING = tar(("var/tmp/x", b"x", {}), ("srv/app/sub/x", b"x", {}), ("srv/new/x", b"x", {}), ("opt/emptied/.wh..wh..opq", b"", {}), ("opt/emptied/x", b"x", {}),
               ("opt/.wh.anew", b"", {}), ("opt/anew/x", b"x", {}), ("opt/gone/x", b"x", {}), ("opt/later/x", b"x", {}))
ABOVE = tar(("opt/.wh.gone", b"", {}), folder("opt/later", 0o711, 44), ("srv/app/sub/y", b"x", {}))
MODES = """1777 0 /var/tmp\n711 0 /srv\n2750 33 /srv/app\n700 33 /srv/app/sub\n755 0 /srv/new\n705 33 /opt/emptied\n755 0 /opt/anew\n711 44 /opt/later
/opt:\nanew\nemptied\nlater\ntool\n\n/opt/emptied:\nx\n"""


def test_a_directory_that_an_archive_only_implies_is_as_the_layers_below_have_it(store, tmp_path, base_tar):
    """Alike whether layers lie on each other or are merged; and the layer is the same over whatever it lies."""
    few, more = [base_tar, DESCRIBED, IMPLYING, ABOVE], [tar((f"etc/l{n}", b"x", {})) for n in range(20)]
    for name, layers in (("stacked", few), ("merged", few + more), ("on-merged", few[:2] + more + few[2:]), ("across", few[:3] + more + few[3:])):
        store.template("add", name, Image(tmp_path / name).write(*layers, config=PLAIN), "--user", "root")
        command = "stat -c '%a %u %n' /var/tmp /srv /srv/app /srv/app/sub /srv/new /opt/emptied /opt/anew /opt/later; ls /opt /opt/emptied"
        assert store.run(name, command, template=name) == MODES, name
    store.template("add", "alone", Image(tmp_path / "alone").write(base_tar, IMPLYING, config=PLAIN))
    layers = lambda name: json.loads(store.template("show", name))["layers"]
    assert layers("alone")[1] == layers("stacked")[2]
    assert store.run("alone", "stat -c '%a %u' /var/tmp /srv/app /srv", template="alone") == "1777 0\n755 0\n755 0\n"


# ------------------------------------------------------------------ images that are wrong

def spoil(image, how):
    path = image.path
    index = json.loads((path / "index.json").read_text())
    entry = index["manifests"][0]
    blob = lambda d: path / "blobs/sha256" / d["digest"].removeprefix("sha256:")
    manifest = json.loads(blob(entry).read_text())
    if how == "no index":
        os.unlink(path / "index.json")
    elif how == "no manifest":
        os.unlink(blob(entry))
    elif how == "manifest of another digest":
        blob(entry).write_text(json.dumps(dict(manifest, schemaVersion=3)))  # of the same size
    elif how == "layer of another digest":
        layer = blob(manifest["layers"][-1])
        layer.write_bytes(layer.read_bytes().replace(b"second layer", b"SECOND LAYER"))  # a good archive all the same
    elif how == "layer missing":
        os.unlink(blob(manifest["layers"][-1]))
    elif how == "layer cut":
        os.truncate(blob(manifest["layers"][0]), 1000)
    elif how == "two images":
        index["manifests"].append(dict(entry))
        (path / "index.json").write_text(json.dumps(index))
    elif how == "index is no JSON":
        (path / "index.json").write_text("{" * 1000)
    elif how == "layer of an unknown kind":
        manifest["layers"][-1]["mediaType"] = "application/vnd.example.layer"
        entry.update(image.blob(json.dumps(manifest).encode(), entry["mediaType"]))
        (path / "index.json").write_text(json.dumps(index))
    elif how == "index that names itself":
        entry.update(image.blob(json.dumps(index).encode(), "application/vnd.oci.image.index.v1+json"))
        (path / "index.json").write_text(json.dumps(index))
    elif how == "blob is a link":
        layer = blob(manifest["layers"][-1])
        os.rename(layer, path / "elsewhere")
        os.symlink("/etc/shadow", layer)
    elif how in ("index is a link", "index is a pipe"):
        os.rename(path / "index.json", path.parent / "elsewhere")  # a good one, but not of the image
        os.symlink("../elsewhere", path / "index.json") if how == "index is a link" else os.mkfifo(path / "index.json")
    elif how == "blobs are elsewhere":
        os.rename(path / "blobs/sha256", path.parent / "elsewhere")
        os.symlink("../../elsewhere", path / "blobs/sha256")


@pytest.mark.parametrize("how", ["no index", "no manifest", "manifest of another digest", "layer of another digest", "layer missing", "layer cut",
                                 "two images", "index is no JSON", "layer of an unknown kind", "index that names itself", "blob is a link",
                                 "index is a link", "index is a pipe", "blobs are elsewhere"])
def test_a_spoilt_image_is_refused_and_leaves_nothing(store, tmp_path, base_tar, how):
    image = Image(tmp_path / "image")
    source = image.write(base_tar, TOP, packed=False)
    spoil(image, how)
    out = store.template("add", "bad", source, ok=False)
    assert "digest" in out or "another digest" not in how, out
    assert "bad" not in store.template("ls")
    store.template("gc")
    assert not os.listdir(f"{store.config['state_dir']}/layers")


@pytest.mark.parametrize("layers,options,says", [
    ([tar(("../evil", b"x", {}))], {}, ".."),
    ([tar(("/evil", b"x", {}))], {}, "absolute"),
    ([tar(("evil", None, {"type": tarfile.LNKTYPE, "linkname": "/etc/shadow"}))], {}, "absolute"),
    ([tar(("ok", b"x", {})), tar(("again", None, {"type": tarfile.LNKTYPE, "linkname": "ok"}))], {}, "ok"),  # of a layer below
    ([tar(("ok", b"x", {}))], {"config": dict(CONFIG, architecture="s390x")}, "s390x"),
    ([tar(("ok", b"x", {}))], {"config": dict(CONFIG, os="windows")}, "windows"),
    ([tar((f"l{i}", b"x", {})) for i in range(513)], {}, "layers"),
    ([tar(("ok", b"x", {}))], {"config": dict(CONFIG, config={"User": "a b"})}, "user"),
    ([tar(("ok", b"x", {}))], {"config": dict(CONFIG, config={"WorkingDir": "relative"})}, "workdir"),
])
def test_an_image_that_cannot_be_used_is_refused_with_the_reason(store, tmp_path, layers, options, says):
    out = store.template("add", "bad", Image(tmp_path / "image").write(*layers, **options), ok=False)
    assert says in out and "bad" not in store.template("ls"), out


def test_an_image_that_names_no_processor_is_taken(store, tmp_path, base_tar):
    store.template("add", "app", Image(tmp_path / "i").write(base_tar, config={"architecture": "", "os": "", "config": {}}))
    assert "architecture" not in json.loads(store.template("show", "app"))
    assert store.run("p", "cat /etc/marker", template="app") == "from the template\n"


def test_labels_of_an_image_never_stand_in_the_way(store, tmp_path, base_tar):
    """They are for people: the operator's own go first, and those that do not fit are left out."""
    labels = {"maker": "the image", "long": "x" * 5000, **{f"label-{n}": "y" * 1000 for n in range(100)}}
    env = [f"V{n}=" + "z" * 7000 for n in range(5)]
    store.template("add", "app", Image(tmp_path / "i").write(base_tar, config=dict(CONFIG, config={"Labels": labels, "Env": env})), "--label", "maker=me")
    shown = json.loads(store.template("show", "app"))
    assert shown["labels"]["maker"] == "me" and "long" not in shown["labels"] and len(shown["labels"]) > 50, shown
    store.template("set", "app", "--env", "MORE=yes")
    again = json.loads(store.template("show", "app"))
    assert again["labels"] == shown["labels"] and again["env"] == {**shown["env"], "MORE": "yes"}


def test_root_of_an_image_is_nobody_on_the_host(store, tmp_path, base_tar):
    """A set-uid file of root in a layer is of no use on the host: nosuid, below a directory that only root can enter."""
    store.template("add", "app", Image(tmp_path / "i").write(base_tar, tar(("usr/bin/gain", b"#!/bin/sh\nid\n", {"mode": 0o4755, "uid": 0}))),
                   "--user", "root", "--start", "sleep 1000")
    reply = store.execute("p", "stat -c %a:%u /usr/bin/gain; cat /proc/self/uid_map", template="app")
    mode, uid_map = reply.json["stdout"].strip().split("\n")
    assert mode == "4755:0" and int(uid_map.split()[1]) > 65535, reply
    assert os.stat(f"{store.config['state_dir']}/layers").st_mode & 0o777 == 0o700


def test_two_builds_of_one_name_at_once_leave_a_whole_template(store, tmp_path, base_tar):
    sources = [Image(tmp_path / f"i{n}").write(base_tar, tar(("etc/which", b"%d" % n, {}))) for n in range(3)]
    builds = [subprocess.Popen([COVE, "-c", f"{store.dir}/conf/cove.conf", "template", "add", "app", s, "--start", "sleep 1000"], stderr=subprocess.STDOUT,
                               stdout=subprocess.PIPE, text=True) for s in sources]
    for b in builds:
        assert b.wait(60) == 0, b.stdout.read()
    assert store.run("p", "cat /etc/which", template="app") in ("0", "1", "2")
    assert "ok" in store.template("verify", "app")


def test_a_killed_build_leaves_nothing_that_can_be_seen(store, tmp_path, base_tar):
    image = Image(tmp_path / "i")
    source = image.write(base_tar, tar(("big", os.urandom(30 << 20), {})))
    layers = f"{store.config['state_dir']}/layers"
    build = subprocess.Popen([COVE, "-c", f"{store.dir}/conf/cove.conf", "template", "add", "app", source], stderr=subprocess.DEVNULL,
                             stdout=subprocess.DEVNULL)
    wait_for(lambda: os.path.exists(layers) and any(x.startswith(".new-") for x in os.listdir(layers)), 20, "work under way")
    assert "another" in store.template("gc", ok=False)  # gc takes nothing away from a build
    build.kill()
    build.wait()
    assert "app" not in store.template("ls")
    wait_for(lambda: "removed" in subprocess.run([COVE, "-c", f"{store.dir}/conf/cove.conf", "template", "gc"], capture_output=True, text=True).stdout,
             20, "gc after the build's children have ended")
    assert os.listdir(layers) == []


CHILD = 91357  # seconds that no other sleep has


def running(command):
    return [pid for pid in filter(str.isdigit, os.listdir("/proc")) if title(pid) == command and alive(pid)]


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_what_a_dockerfile_runs_ends_with_its_build(store, tmp_path, base_tar, end):
    """It runs as root of the machine: it must not go on when nobody waits for it any more."""
    (tmp_path / "root.tar").write_bytes(base_tar)
    (tmp_path / "Dockerfile").write_text(f"FROM scratch\nADD root.tar /\nRUN sleep {CHILD}\n")
    build = subprocess.Popen([COVE, "-c", f"{store.dir}/conf/cove.conf", "template", "build", "app", tmp_path], stderr=subprocess.DEVNULL,
                             stdout=subprocess.DEVNULL, start_new_session=True)
    wait_for(lambda: running(f"sleep {CHILD}"), 60, "RUN")
    build.send_signal(end)
    build.wait(30)
    wait_for(lambda: not running(f"sleep {CHILD}"), 10, "the end of RUN")
    wait_for(lambda: "removed" in subprocess.run([COVE, "-c", f"{store.dir}/conf/cove.conf", "template", "gc"], capture_output=True, text=True).stdout, 20, "gc")
    assert "app" not in store.template("ls") and os.listdir(f"{store.config['state_dir']}/layers") == []
    assert store.config["state_dir"] + "/layers" not in open("/proc/mounts").read()


def test_a_tool_that_never_ends_is_ended_and_leaves_nothing(store, tmp_path):
    """buildah was seen to wait for ever after a full disk: who removes templates would wait with it."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/buildah").write_text(f"#!/bin/sh\necho STEP 1; setsid sleep {CHILD} >/dev/null 2>&1 & wait\n")
    os.chmod(tmp_path / "bin/buildah", 0o755)
    with open(f"{store.dir}/conf/cove.conf") as conf:
        settings = [line for line in conf if not line.startswith("build_timeout")]
    (tmp_path / "cove.conf").write_text("".join(settings) + "build_timeout = 1s\n")
    (tmp_path / "Dockerfile").write_text("FROM scratch\n")
    done = subprocess.run([COVE, "-c", f"{tmp_path}/cove.conf", "template", "build", "endless", str(tmp_path)], capture_output=True, text=True, timeout=60,
                          env=dict(os.environ, PATH=f"{tmp_path}/bin:{os.environ['PATH']}"))
    assert done.returncode != 0 and "STEP 1" in done.stderr and "buildah took longer than build_timeout (1 s) and was ended" in done.stderr, done
    wait_for(lambda: not running(f"sleep {CHILD}"), 10, "the end of what the tool had started")
    assert "endless" not in store.template("ls")
    store.template("gc")


# ------------------------------------------------------------------ docs/TEMPLATES.md

def commands_of(section):
    page = open(os.path.join(os.path.dirname(__file__), "../../docs/TEMPLATES.md")).read()
    block = page.split(f"## {section}\n")[1].split("\n\n")[0]
    return "\n".join(line[4:] for line in block.split("\n"))


def mirror_answers(folder):
    """A Debian by mmdebstrap, from the machine's own apt sources."""
    return subprocess.run(["mmdebstrap", "--variant=extract", "--include=base-files", "--quiet", "bookworm", f"{folder}/probe.tar"], timeout=120,
                          capture_output=True).returncode == 0


def test_the_page_takes_a_new_user_from_debootstrap_and_a_dockerfile_to_a_sandbox(store, tmp_path):
    if not mirror_answers(tmp_path):
        pytest.skip("no Debian mirror answers")
    os.makedirs(tmp_path / "bin")
    (tmp_path / "bin/cove").write_text(f"#!/bin/sh\nexec {COVE} -c {store.dir}/conf/cove.conf \"$@\"\n")
    os.chmod(tmp_path / "bin/cove", 0o755)
    env = dict(os.environ, **store.env, PATH=f"{tmp_path}/bin:{os.environ['PATH']}")
    store.projects |= {("first", True), ("second", True)}
    for section, says in (("From debootstrap", '"stdout":"12.'), ("From a Dockerfile", r'"stdout":"runner\n/srv/app\nhello\nready\n"')):
        done = subprocess.run(["bash", "-euc", commands_of(section)], cwd=tmp_path, env=env, timeout=240, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)
        assert done.returncode == 0 and says in done.stdout, done.stdout


@pytest.mark.skipif(os.environ.get("COVE_TEST_LONG") != "yes", reason="two whole Debians: long runs")
def test_the_other_ways_of_the_page_give_a_debian_too(store, tmp_path):
    if not mirror_answers(tmp_path):
        pytest.skip("no Debian mirror answers")
    page = open(os.path.join(os.path.dirname(__file__), "../../docs/TEMPLATES.md")).read()
    words = page.split("## From debootstrap\n")[1].split("\n\n")[1].replace("\n", " ")
    at_once, debootstrap, add = re.findall(r"`((?:cove|debootstrap) [^`]+)`", words)
    mirror = subprocess.run("apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -v security | sort -u | head -n 1", shell=True,
                            capture_output=True, text=True, check=True).stdout.strip()
    for way in ([at_once], [f"{debootstrap} {mirror}", add]):
        for command in way:
            command = command.replace("DIRECTORY", str(tmp_path / "root"))
            if command.startswith("cove template "):
                store.template(*command.split()[2:])
            else:
                subprocess.run(command.split(), check=True, capture_output=True, timeout=300)
        store.projects.add(("way", True))
        assert store.run("way", "cat /etc/debian_version", template="bookworm").startswith("12.")
        store.cleanup("way")


@pytest.mark.parametrize("source, says", [("debootstrap:", "suite"), ("debootstrap:../x", "suite"), ("debootstrap:bookworm;id", "suite"),
                                          ("debootstrap:bookworm,file:///nowhere", "could not be read")])
def test_a_debian_that_cannot_be_had_leaves_nothing(store, source, says):
    assert says in store.template("add", "bad", source, ok=False)
    assert "bad" not in store.template("ls") and store.layers() == []


def test_a_debian_that_finds_no_room_is_told_to_who_asked_for_it(store, tmp_path):
    """mmdebstrap sends a signal to its whole process group when nobody reads its archive any more."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/mmdebstrap").write_text("#!/bin/sh\ntrap '' PIPE\nhead -c 1M /dev/zero | tr '\\0' x 2>/dev/null || true\nkill -HUP 0\nexit 1\n")
    os.chmod(tmp_path / "bin/mmdebstrap", 0o755)
    done = subprocess.run([COVE, "-c", f"{store.dir}/conf/cove.conf", "template", "add", "bad", "debootstrap:bookworm"], capture_output=True, text=True,
                          timeout=60, start_new_session=True, env=dict(os.environ, PATH=f"{tmp_path}/bin:{os.environ['PATH']}"))
    assert done.returncode > 0 and "template 'bad': " in done.stderr, done
    assert "bad" not in store.template("ls") and store.layers() == []
