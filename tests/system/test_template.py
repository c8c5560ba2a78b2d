"""Templates: from a directory or an archive to a running sandbox, with hostile input and faults on the way."""
import fcntl
import io
import json
import os
import re
import select
import shutil
import signal
import subprocess
import tarfile

import pytest

from cove import TOP, read, wait_for

COVE = os.path.join(TOP, ".cove/inst/bin/cove")
PROGRAMS = ["bash", "cat", "ls", "id", "stat", "rm", "mkdir", "su", "true", "sh", "sleep", "mkfifo"]


@pytest.fixture(scope="module")
def small_root(tmp_path_factory):
    """A root file system with a shell and a few programs of the host."""
    root = tmp_path_factory.mktemp("root")
    for folder in ("usr/bin", "usr/lib", "usr/lib64", "etc", "opt/tool"):
        os.makedirs(root / folder)
    for link in ("bin", "lib", "lib64"):
        os.symlink(f"usr/{link}", root / link)
    for program in PROGRAMS:
        path = shutil.which(program)
        shutil.copy(path, root / "usr/bin" / program)
        for library in re.findall(r"(/\S+\.so[.\d]*)", subprocess.run(["ldd", path], capture_output=True, text=True).stdout):
            target = root / "usr" / os.path.realpath(os.path.dirname(library)).removeprefix("/usr").lstrip("/")
            os.makedirs(target, exist_ok=True)
            shutil.copy(library, target)
    (root / "etc/marker").write_text("from the template\n")
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/bash\nwww:x:33:33::/:/bin/bash")
    os.chown(root / "opt/tool", 33, 33)
    os.chmod(root / "usr/bin/true", 0o4755)
    return root


@pytest.fixture(scope="module")
def instance():
    from cove import new_dir, stop
    from cove import Server
    server = Server(new_dir(), pool=0, workers=1)
    yield server.up()
    stop(server)


@pytest.fixture
def store(instance):
    """An instance without templates but `base`; template() is `cove template`."""
    server, folder = instance, f"{instance.config['state_dir']}/layers"

    def template(*args, ok=True):
        done = subprocess.run([COVE, "-c", f"{server.dir}/conf/cove.conf", "template", *map(str, args)], timeout=300,
                              text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert (done.returncode == 0) == ok, done.stdout
        return done.stdout

    server.template = template
    server.layers = lambda: sorted(os.listdir(folder)) if os.path.exists(folder) else []
    yield server
    server.tidy()
    use(server, "base")
    wait_for(lambda: not os.listdir(f"{server.config['state_dir']}/boxes"), 15, "the sandboxes' end")
    for name in os.listdir(f"{server.config['state_dir']}/templates"):
        if name != "base" and not name.startswith("."):
            template("rm", name.replace("@", "/"))
    template("gc")
    assert server.layers() == []


def use(server, name):
    reloads = lambda: sum(line["event"] == "configuration reloaded" for line in server.log_lines())
    before = reloads()
    server.change_config(template=name)
    wait_for(lambda: reloads() > before, 10, "the reload")


def pack(path, *members, mode="w"):
    """A tar of (name, content or None or link target, {attributes})."""
    with tarfile.open(path, mode) as tar:
        for name, content, more in members:
            info = tarfile.TarInfo(name)
            for key, value in more.items():
                setattr(info, key, value)
            if isinstance(content, bytes):
                info.size = len(content)
            tar.addfile(info, io.BytesIO(content) if isinstance(content, bytes) else None)
    return path


# ------------------------------------------------------------------ from a source to a sandbox

def test_a_directory_becomes_a_template_that_sandboxes_run_on(store, small_root):
    store.template("add", "small", small_root)
    assert "small" in store.template("ls") and "base" in store.template("ls")
    manifest = json.loads(store.template("show", "small"))
    assert manifest["schema"] == 1 and manifest["name"] == "small" and len(manifest["layers"]) == 2
    use(store, "small")
    assert store.run("p", "cat /etc/marker; stat -c %u:%g /opt/tool /workspace; id -u user") == "from the template\n33:33\n1000:1000\n1000\n"
    assert store.run("p", "echo mine > /etc/marker; rm /usr/bin/cat; mkdir /usr/new; ls /usr/new /usr/bin/cat 2>&1 | true; echo done") == "done\n"
    assert store.run("q", "cat /etc/marker") == "from the template\n"  # another sandbox, the same layers
    assert store.run("q", "sudo -u user sudo id -u") == "0\n"  # it has no sudo of its own: it gets cove's
    assert store.execute("p", "ls /proc/self/fd /dev/null").json["exitCode"] == 0
    folder = f"{store.config['state_dir']}/layers"
    assert os.stat(folder).st_mode & 0o777 == 0o700 and os.stat(folder).st_uid == 0


def test_every_command_has_json_for_scripts(store, small_root):
    ask = lambda *args: json.loads(store.template(*args, "--json"))
    made = ask("add", "scripted", small_root)[0]
    assert made["name"] == "scripted" and made["layers"] >= 1 and made in ask("ls")
    assert ask("set", "scripted", "--user", "user")[0] == made and ask("show", "scripted")["user"] == "user"
    assert ask("verify", "scripted") == [{"name": "scripted", "state": "whole"}]
    assert ask("rm", "scripted") == [{"name": "scripted", "state": "removed"}]
    assert all(set(one) == {"layer", "state"} for one in ask("gc")) and ask("gc") == []


def test_ls_is_a_table_in_the_order_of_names(store, tmp_path):
    for name in ("zz", "aa", "acme/mine", "mm"):
        store.template("add", name, pack(tmp_path / "t.tar", ("x", b"x", {})))
    rows = [line.split() for line in store.template("ls").splitlines()]
    assert rows[0] == ["NAME", "LAYERS", "LOWEST", "LAYER"] and [row[0] for row in rows[1:]] == ["aa", "acme/mine", "base", "mm", "zz"], rows
    assert rows[1][1] == "2" and len(rows[1][2]) == 12 and rows[3][1] == "-"
    assert [one["name"] for one in json.loads(store.template("ls", "--json"))] == [row[0] for row in rows[1:]]


@pytest.mark.parametrize("name", ["base", "default"])
def test_base_has_neither_manifest_nor_files_to_verify(store, name):
    assert "host's /usr" in store.template("show", name, ok=False)
    assert "nothing to verify" in store.template("verify", name)
    assert json.loads(store.template("verify", name, "--json")) == [{"name": "base", "state": "host"}]


def test_a_template_whose_list_of_layers_is_lost_is_not_whole(store, small_root):
    store.template("add", "small", small_root)
    path = f"{store.config['state_dir']}/templates/small/layers"
    before = read(path)
    for text in ("nonsense\n", None):
        os.unlink(path) if text is None else open(path, "w").write(text)
        assert re.search(r"small\s+.*layers of 'small'", store.template("verify", "small", ok=False)), text
    with open(path, "w") as f:
        f.write(before)


def test_verify_names_templates_as_everybody_does(store, small_root):
    store.template("add", "acme/mine", small_root)
    assert re.search(r"^acme/mine\s+ok$", store.template("verify"), re.M)
    assert json.loads(store.template("verify", "acme/mine", "--json")) == [{"name": "acme/mine", "state": "whole"}]


def test_a_template_s_own_sudo_counts(store, small_root, tmp_path):
    root = tmp_path / "root"
    shutil.copytree(small_root, root, symlinks=True)
    (root / "usr/bin/sudo").write_text("#!/bin/sh\necho the template\\'s own\n")
    os.chmod(root / "usr/bin/sudo", 0o755)
    store.template("add", "with-sudo", root)
    use(store, "with-sudo")
    assert store.run("p", "sudo anything") == "the template's own\n"


@pytest.mark.parametrize("compression", ["", "gz", "xz", "bz2", "zst"])
def test_an_archive_gives_the_same_layers_as_the_directory(store, small_root, tmp_path, compression):
    path = tmp_path / f"root.tar.{compression}"
    program = {"": [], "gz": ["--gzip"], "xz": ["--xz"], "bz2": ["--bzip2"], "zst": ["--zstd"]}[compression]
    subprocess.run(["tar", "-C", small_root, "--numeric-owner", *program, "-cf", path, "."], check=True)
    store.template("add", "tarred", path)
    store.template("add", "plain", small_root)
    assert json.loads(store.template("show", "tarred"))["layers"] == json.loads(store.template("show", "plain"))["layers"]
    assert len(store.layers()) == 2, store.layers()


# ------------------------------------------------------------------ hostile input

REFUSED = {
    "absolute": [("/etc/evil", b"x", {})],
    "dot-dot": [("ok", b"x", {}), ("a/../../evil", b"x", {})],
    "dot-dot-alone": [("..", None, {"type": tarfile.DIRTYPE})],
    "hard-link-out": [("evil", None, {"type": tarfile.LNKTYPE, "linkname": "../../../etc/shadow"})],
    "hard-link-absolute": [("evil", None, {"type": tarfile.LNKTYPE, "linkname": "/etc/shadow"})],
    "whiteout-of-nothing": [(".wh...", b"", {})],
}


@pytest.mark.parametrize("case", REFUSED)
def test_an_archive_with_names_that_lead_out_is_refused_whole(store, tmp_path, case):
    before = store.layers()
    out = store.template("add", "bad", pack(tmp_path / "bad.tar", ("first", b"fine", {}), *REFUSED[case]), ok=False)
    assert "template 'bad'" in out, out
    assert "bad" not in store.template("ls") and store.layers() == before


@pytest.mark.parametrize("content", [b"this is no archive, by far\n" * 100, b"\x1f\x8b\x08\x00garbage" * 50])
def test_what_is_no_archive_is_refused(store, tmp_path, content):
    (tmp_path / "x").write_bytes(content)
    store.template("add", "bad", tmp_path / "x", ok=False)
    assert "bad" not in store.template("ls") and not store.layers()


@pytest.mark.parametrize("what", ["file of no bytes", "archive of nothing", "folder"])
def test_what_has_no_files_is_refused_and_the_template_stays(store, small_root, tmp_path, what):
    """`find | cpio > FILE` on a machine without cpio leaves such a file."""
    store.template("add", "app", small_root)
    before, source = store.layers(), tmp_path / "nothing"
    if what == "folder":
        source.mkdir()
    else:
        source.write_bytes(bytes(10240 if what == "archive of nothing" else 0))
    assert "has no files" in store.template("add", "app", source, ok=False)
    assert store.layers() == before and store.run("p", "cat /etc/marker", template="app") == "from the template\n"


def test_a_cut_archive_is_refused(store, small_root, tmp_path):
    subprocess.run(["tar", "-C", small_root, "-czf", tmp_path / "whole.tgz", "."], check=True)
    (tmp_path / "cut.tgz").write_bytes((tmp_path / "whole.tgz").read_bytes()[:100_000])
    store.template("add", "bad", tmp_path / "cut.tgz", ok=False)
    assert "bad" not in store.template("ls") and not store.layers()


def test_links_stay_inside_and_devices_are_left_out(store, tmp_path):
    """A member through a link that leads out lands in the layer, never on the host."""
    marker = tmp_path / "host"
    marker.mkdir()
    archive = pack(tmp_path / "links.tar",
                   ("out", None, {"type": tarfile.SYMTYPE, "linkname": str(marker)}), ("out/evil", b"x", {}),
                   ("up", None, {"type": tarfile.SYMTYPE, "linkname": "../../../../../../../.." + str(marker)}), ("up/evil", b"x", {}),
                   ("disk", None, {"type": tarfile.BLKTYPE, "devmajor": 8, "devminor": 0}),
                   ("mem", None, {"type": tarfile.CHRTYPE, "devmajor": 1, "devminor": 1}),
                   ("root-shell", b"#!/bin/sh\n", {"mode": 0o6755}))
    store.template("add", "links", archive)
    assert os.listdir(marker) == []
    tree = f"{store.config['state_dir']}/layers/" + json.loads(store.template("show", "links"))["layers"][-1].removeprefix("sha256:")
    kinds = {name: os.lstat(f"{tree}/{name}").st_mode & 0o170000 for name in os.listdir(tree)}
    assert not {0o060000, 0o020000} & set(kinds.values()), kinds
    assert read(f"{tree}/root-shell") == "#!/bin/sh\n"


def test_whiteouts_are_understood_in_both_spellings(store, tmp_path):
    archive = pack(tmp_path / "w.tar", ("etc", None, {"type": tarfile.DIRTYPE, "mode": 0o755}), ("etc/.wh.gone", b"", {}),
                   ("opt/.wh..wh..opq", b"", {}), ("usr/gone", None, {"type": tarfile.CHRTYPE, "devmajor": 0, "devminor": 0}),
                   ("srv", None, {"type": tarfile.DIRTYPE, "mode": 0o755,
                                  "pax_headers": {"SCHILY.xattr.trusted.overlay.opaque": "y", "SCHILY.xattr.user.overlay.redirect": "/etc"}}))
    store.template("add", "w", archive)
    tree = f"{store.config['state_dir']}/layers/" + json.loads(store.template("show", "w"))["layers"][-1].removeprefix("sha256:")
    for name in ("etc/gone", "usr/gone"):
        st = os.lstat(f"{tree}/{name}")
        assert st.st_mode & 0o170000 == 0o020000 and st.st_rdev == 0, name
    for name in ("opt", "srv"):
        assert os.getxattr(f"{tree}/{name}", "user.overlay.opaque") == b"y", name
    assert os.listxattr(f"{tree}/srv") == ["user.overlay.opaque"]


NET_RAW = "\x01\0\0\2\0\x20\0\0" + "\0" * 12  # struct vfs_cap_data: version 2, effective, CAP_NET_RAW permitted


def test_attributes_of_users_stay_and_all_others_go(store, tmp_path):
    """security.* would give rights, and trusted.* and user.overlay.* change what the overlay shows."""
    foreign = {f"SCHILY.xattr.{name}": "x" for name in ("security.selinux", "trusted.x", "user.overlay.metacopy")}
    foreign["SCHILY.xattr.security.capability"] = NET_RAW
    store.template("add", "x", pack(tmp_path / "x.tar", ("f", b"x", {"pax_headers": {**foreign, "SCHILY.xattr.user.color": "red"}})))
    tree = f"{store.config['state_dir']}/layers/" + json.loads(store.template("show", "x"))["layers"][-1].removeprefix("sha256:")
    assert os.listxattr(f"{tree}/f") == ["user.color"] and os.getxattr(f"{tree}/f", "user.color") == b"red"


def test_a_program_with_a_capability_that_no_sandbox_has_runs_without_it(store, small_root, tmp_path):
    """With the capability the kernel would refuse to start it: it is not in the bounding set."""
    subprocess.run(["tar", "-C", small_root, "--numeric-owner", "-cf", tmp_path / "c.tar", "."], check=True)
    capable = {"mode": 0o755, "pax_headers": {"SCHILY.xattr.security.capability": NET_RAW}}
    pack(tmp_path / "c.tar", ("usr/bin/capable", (small_root / "usr/bin/cat").read_bytes(), capable), mode="a")
    store.template("add", "c", tmp_path / "c.tar", "--user", "www")
    assert re.search(r"CapEff:\s+0+$", store.run("p", "capable /proc/self/status", template="c"), re.M)


def test_files_that_differ_in_their_attributes_alone_are_not_the_same(store, tmp_path):
    def shown(value):
        store.template("add", value, pack(tmp_path / "x.tar", ("d/f", b"x", {"pax_headers": {"SCHILY.xattr.user.color": value}})))
        tree = f"{store.config['state_dir']}/layers/" + json.loads(store.template("show", value))["layers"][-1].removeprefix("sha256:")
        return os.getxattr(f"{tree}/d/f", "user.color"), f"{tree}/d/f"

    assert shown("red")[0] == b"red" and shown("blue")[0] == b"blue"
    os.setxattr(shown("red")[1], "user.color", b"green")
    assert "is damaged" in store.template("verify", "red", ok=False) and "ok" in store.template("verify", "blue")


@pytest.mark.parametrize("name", ["base", "", ".", "..", "default", "a/b/c", "/b", "a/", "UPPER", "-x", ".hidden", "x" * 64, "sp ace"])
def test_odd_names_are_refused(store, tmp_path, name):
    store.template("add", name, pack(tmp_path / "t.tar", ("x", b"x", {})), ok=False)
    assert not store.layers()


# ------------------------------------------------------------------ faults, verify, rm, gc

def test_a_changed_file_is_found(store, small_root):
    store.template("add", "small", small_root)
    assert re.search(r"small\s+ok", store.template("verify"))
    tree = f"{store.config['state_dir']}/layers/" + json.loads(store.template("show", "small"))["layers"][-1].removeprefix("sha256:")
    with open(f"{tree}/etc/marker", "r+") as f:
        f.write("F")
    told = store.template("verify", "small", ok=False)
    assert "is damaged" in told and "add these templates again" in told, told
    assert read(f"{tree}/etc/marker") == "From the template\n"


def test_an_add_replaces_a_damaged_layer_and_sandboxes_on_it_go_on(store, small_root):
    store.template("add", "small", small_root)
    tree = f"{store.config['state_dir']}/layers/" + json.loads(store.template("show", "small"))["layers"][-1].removeprefix("sha256:")
    os.unlink(f"{tree}/usr/bin/mkfifo")
    store.run("old", "true", template="small")
    store.template("add", "small", small_root)  # nobody knows yet that it is damaged
    assert not os.path.exists(f"{tree}/usr/bin/mkfifo")
    store.template("verify", "small", ok=False)
    store.template("add", "small", small_root)
    assert os.path.exists(f"{tree}/usr/bin/mkfifo") and re.search(r"small\s+ok", store.template("verify"))
    assert store.run("new", "mkfifo /tmp/p; stat -c %F /tmp/p", template="small") == "fifo\n"
    assert store.template("gc").startswith("0 layers")
    assert store.run("old", "cat /etc/marker; stat -c %a /usr/bin/su; ls /usr/bin/mkfifo 2>&1 | cat").startswith("from the template\n4755\nls: ")
    store.cleanup("old")
    store.cleanup("new")
    wait_for(lambda: not os.listdir(f"{store.config['state_dir']}/boxes"), 15, "the sandboxes' end")
    assert store.template("gc").startswith("1 layers") and len(store.layers()) == 2, store.layers()
    os.unlink(f"{tree}/usr/bin/mkfifo")
    store.template("verify", "small", ok=False)
    subprocess.run(["cp", "-p", small_root / "usr/bin/mkfifo", f"{tree}/usr/bin/mkfifo"], check=True)
    store.template("verify", "small")
    assert len(store.layers()) == 2, "what is whole again is no longer marked"


def test_sandboxes_outlive_their_template_and_gc_waits_for_them(store, small_root):
    store.template("add", "small", small_root)
    use(store, "small")
    store.run("p", "true")
    store.template("rm", "small")
    assert "small" not in store.template("ls")
    assert store.template("gc").startswith("0 layers") and len(store.layers()) == 2
    assert store.run("p", "cat /etc/marker; ls /usr/bin/id") == "from the template\n/usr/bin/id\n"
    reply = store.execute("new", "true")
    assert reply.status >= 400 and "no template 'small'" in reply.body.decode(), reply
    store.cleanup("p")
    wait_for(lambda: not os.listdir(f"{store.config['state_dir']}/boxes"), 15, "the sandbox's end")
    assert store.template("gc").startswith("2 layers") and store.layers() == []


def test_what_a_killed_add_left_is_seen_by_nobody_and_collected(store, tmp_path):
    store.template("add", "t", pack(tmp_path / "t.tar", ("x", b"x", {})))
    before = store.layers()
    os.makedirs(f"{store.config['state_dir']}/layers/.new-left/etc")
    os.makedirs(f"{store.config['state_dir']}/templates/.new-left")
    assert "left" not in store.template("ls")
    store.template("gc")
    assert store.layers() == before and not os.path.exists(f"{store.config['state_dir']}/templates/.new-left")


def test_only_one_at_a_time_changes_templates(store, tmp_path):
    archive = pack(tmp_path / "t.tar", ("x", b"x", {}))
    store.template("add", "t", archive)
    fd = os.open(f"{store.config['state_dir']}/layers", os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    assert "another" in store.template("add", "t", archive, ok=False)
    os.close(fd)
    store.template("add", "t", archive)  # replaces it
    assert store.template("ls").count("\nt ") + store.template("ls").startswith("t ") == 1


# ------------------------------------------------------------------ somebody waits at a terminal

class AtTerminal:
    """`cove` with a terminal for its stderr."""

    def __init__(self, server, *args):
        self.master, slave = os.openpty()
        self.process = subprocess.Popen([COVE, "-c", f"{server.dir}/conf/cove.conf", *map(str, args)], stdout=subprocess.PIPE, stderr=slave, text=True)
        os.close(slave)
        self.text = ""

    def shows(self, words):
        if select.select([self.master], [], [], 0)[0]:
            try:
                self.text += os.read(self.master, 65536).decode()
            except OSError:  # nobody has the terminal any more
                pass
        return words in self.text

    def end(self):
        out = self.process.communicate(timeout=60)[0]
        assert self.process.returncode == 0, (out, self.text)
        self.shows("")
        os.close(self.master)
        assert re.search(r"\r\033\[K(cove: [^\r]*\r\n)?$", self.text), "the line is taken away"
        return out


def test_who_waits_at_a_terminal_is_shown_how_far_an_add_is(store, tmp_path):
    archive = pack(tmp_path / "t.tar", ("big", os.urandom(20 << 20), {}))
    whole = AtTerminal(store, "template", "add", "t", archive)
    wait_for(lambda: whole.shows(" %  unpacking"), 20, "the bar")
    whole.end()
    os.mkfifo(tmp_path / "slow.tar")  # as tar or mmdebstrap write it: nobody knows how much there is to come
    slow = AtTerminal(store, "template", "add", "t", tmp_path / "slow.tar")
    with open(archive, "rb") as source, open(tmp_path / "slow.tar", "wb") as pipe:
        pipe.write(source.read(12 << 20))
        pipe.flush()
        wait_for(lambda: slow.shows("unpacking, 1"), 20, "megabytes")
        pipe.write(source.read())
    slow.end()


def test_who_waits_at_a_terminal_for_a_snapshot_sees_the_seconds(store):
    box = store.execute("p", "true").id
    os.kill(store.keeper_pid, signal.SIGSTOP)
    try:
        taken = AtTerminal(store, "snapshot", "make", box)
        wait_for(lambda: taken.shows("taking the snapshot, 1 s"), 20, "a second")
    finally:
        os.kill(store.keeper_pid, signal.SIGCONT)
    subprocess.run([COVE, "-c", f"{store.dir}/conf/cove.conf", "snapshot", "rm", taken.end().strip()], check=True, capture_output=True)


# ------------------------------------------------------------------ too much

def test_an_archive_that_would_fill_the_machine_is_refused(store, tmp_path):
    """A file of 100 GiB that takes no room in the archive."""
    with open(tmp_path / "huge", "wb") as f:
        f.truncate(100 << 30)
    subprocess.run(["tar", "-C", tmp_path, "--sparse", "-czf", tmp_path / "bomb.tgz", "huge"], check=True)
    assert os.path.getsize(tmp_path / "bomb.tgz") < 1 << 20
    assert "more than" in store.template("add", "bomb", tmp_path / "bomb.tgz", ok=False)
    assert "bomb" not in store.template("ls") and not store.layers()


@pytest.mark.parametrize("name", [".wh.gone", "a", "a/.wh..wh..opq"])
def test_a_member_that_claims_too_much_is_refused_before_its_bytes_are_read(store, tmp_path, name):
    """Packed several times over, 100 GiB that are only skipped are some kilobytes, and hours."""
    with open(tmp_path / "skipped.tar", "wb") as f:
        info = tarfile.TarInfo(name)
        info.size = 100 << 30
        f.write(info.tobuf(tarfile.GNU_FORMAT) + bytes(4096))
    assert "more than" in store.template("add", "skipped", tmp_path / "skipped.tar", ok=False)
    assert not store.layers()


def test_a_full_disk_ends_an_add_and_leaves_nothing(store, tmp_path):
    layers = f"{store.config['state_dir']}/layers"
    os.makedirs(layers, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", layers], check=True)
    try:
        out = store.template("add", "big", pack(tmp_path / "big.tar", ("big", os.urandom(8 << 20), {})), ok=False)
        assert "No space left" in out, out
        assert "big" not in store.template("ls") and os.listdir(layers) == []
        subprocess.run(["mount", "-o", "remount,nr_inodes=20", layers], check=True)
        assert "No space left" in store.template("add", "wide", pack(tmp_path / "wide.tar", *[(f"d/{n}/e/f", b"", {}) for n in range(50)]), ok=False)
        assert "wide" not in store.template("ls") and os.listdir(layers) == []
        subprocess.run(["mount", "-o", "remount,nr_inodes=2000", layers], check=True)
        store.template("add", "small", pack(tmp_path / "small.tar", ("x", b"x", {})))
        store.template("rm", "small")
    finally:
        subprocess.run(["umount", layers], check=True)
