"""sudo inside a sandbox: what `user` gets by it, who gets nothing, and that it is no way out."""
import os
import shlex
import subprocess

import pytest

from cove import TOP

SUDO = os.path.join(TOP, ".cove/inst/libexec/cove/cove-sudo")
PRIVILEGES = "grep -E '^(Cap|Seccomp:|NoNewPrivs|Uid|Gid|Groups)' /proc/self/status"


def by(user, group, command):
    """The command as another user of the sandbox, started by its root."""
    return f"setpriv --reuid={user} --regid={group} --init-groups env -i PATH=$PATH HOME=/home/user bash -c {shlex.quote(command)}"


def as_user(command):
    return by("user", "user", command)


def test_user_has_sudo_without_a_password(server, project):
    out = server.run(project, as_user("sudo -n true && sudo id -u && sudo -u www-data id -un && sudo -u '#33' id -u && sudo -g sudo id -gn && id -un"))
    assert out.split() == ["0", "www-data", "33", "sudo", "user"]


@pytest.mark.parametrize("command, output, code", [
    ("sudo sh -c 'exit 7'", "", 7),
    ("sudo sh -c 'kill -TERM $$'", "", 143),
    ("echo in | sudo cat; sudo sh -c 'echo err >&2' 2>&1", "in\nerr\n", 0),
    ("sudo no-such-command 2>&1", "sudo: no-such-command: command not found\n", 1),
    ("sudo -u nobody-here true 2>&1", "sudo: unknown user nobody-here\n", 1),
    ("sudo /etc/passwd 2>&1", "sudo: unable to execute /etc/passwd: Permission denied\n", 1),
    ("A=1 sudo sh -c 'echo [$A]'; A=1 sudo -E sh -c 'echo [$A]'; A=1 B=2 sudo --preserve-env=B sh -c 'echo [$A$B]'; sudo A=3 sh -c 'echo [$A]'",
     "[]\n[1]\n[2]\n[3]\n", 0),
    ("sudo sh -c 'echo $HOME $USER $SUDO_USER $SUDO_UID'; sudo -E sh -c 'echo $HOME'; sudo -EH sh -c 'echo $HOME'",
     "/root root user 1000\n/home/user\n/root\n", 0),
    ("cd /tmp; sudo pwd; sudo -D /etc pwd; sudo -i pwd; sudo -s 'echo $0 *' ", "/tmp\n/etc\n/root\n", 127),
    ("sudo -i echo 'a  b' '$HOME' ';'", "a  b /root ;\n", 0),
    ("sudo -nES -p x -- echo -u; sudo -k; sudo -v; sudo -K; sudo -l | tail -1", "-u\n    (ALL : ALL) NOPASSWD: ALL\n", 0),
    ("sudo -b sh -c 'echo later > /tmp/b'; until [ -s /tmp/b ]; do sleep 0.01; done; cat /tmp/b; rm /tmp/b 2>/dev/null || sudo rm /tmp/b", "later\n", 0),
    ("PATH=/nowhere:$PATH sudo sh -c 'echo $PATH'", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n", 0),
    ("sudo 2>/dev/null", "", 1),
    ("sudo --no-such-option true 2>/dev/null", "", 1),
    ("sudo sudo -u user sudo id -un", "root\n", 0),
    ("(umask 0; sudo sh -c umask)", "0022\n", 0),
], ids=lambda value: value[:30] if isinstance(value, str) else None)
def test_it_behaves_as_people_know_it(server, project, command, output, code):
    reply = server.execute(project, as_user(command))
    assert (reply.json["stdout"], reply.json["exitCode"]) == (output, code), reply


def test_it_gives_exactly_what_root_has_anyway(server, project):
    root, user = server.run(project, PRIVILEGES), server.run(project, as_user(f"sudo {PRIVILEGES}"))
    assert root == user and "Seccomp:\t2" in user
    assert "CapBnd:\t00000000800405fb\n" in user  # the eleven of SECURITY.md


def test_other_users_get_nothing(server, project):
    for user in ("www-data", "nobody"):
        reply = server.execute(project, by(user, user if user == "www-data" else "nogroup", "sudo id -u 2>&1"))
        assert reply.json["exitCode"] == 1 and f"{user} may not use sudo" in reply.json["stdout"], reply
    server.run(project, "usermod -h >/dev/null; sed -i 's/^staff:.*/&www-data/; s/^sudo:.*/&,www-data/' /etc/group")
    assert server.run(project, by("www-data", "www-data", "sudo id -u")) == "0\n"


def test_nobody_becomes_root_by_its_surroundings(server, project):
    """Libraries, an empty argv, closed descriptors and odd variables, by a user who may not use it."""
    program = r"""
import os, ctypes
for argv, env in (([], {}), (["sudo"], {}), (["sudo", "id"], {"LD_PRELOAD": "/tmp/x.so", "GCONV_PATH": "/tmp", "MALLOC_TRACE": "/tmp/t"}),
                  (["sudo", "-u", "#-1", "id"], {}), (["sudo", "-u", "#4294967295", "id"], {}), (["sudo", "A" * 100000], {})):
    pid = os.fork()
    if pid == 0:
        for fd in range(3):
            os.close(fd)
        argv_c = (ctypes.c_char_p * (len(argv) + 1))(*[a.encode() for a in argv], None)
        env_c = (ctypes.c_char_p * (len(env) + 1))(*[f"{k}={v}".encode() for k, v in env.items()], None)
        ctypes.CDLL(None).execve(b"/usr/bin/sudo", argv_c, env_c)
        os._exit(99)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    out = server.run(project, "cat > /tmp/odd.py <<'X'\n" + program + "X\n" + by("nobody", "nogroup", "python3 /tmp/odd.py"))
    assert out.split() == ["1"] * 6


def test_without_set_uid_rights_it_says_so(server, project):
    reply = server.execute(project, "setpriv --reuid=user --regid=user --init-groups --no-new-privs sudo true")
    assert reply.json["exitCode"] == 1 and "no_new_privs" in reply.json["stderr"], reply


def test_the_policy_judges_what_it_executes(server, project):
    """The text is seen through, and what the text hides is seen at execve, which runs under the same filter."""
    assert server.execute(project, "sudo shutdown now").status == 400
    hidden = as_user("x=shut; y=down; sudo ${x}${y} now")
    reply = server.execute(project, f"echo {shlex.quote(hidden)} | base64 | base64 -d > /tmp/s; ln -sf /bin/true /usr/sbin/shutdown; bash /tmp/s")
    assert reply.json["exitCode"] != 0 and "Shutting the machine down is not allowed" in reply.json["stderr"], reply


def test_on_the_host_nobody_can_reach_or_use_it(server):
    copy = f"{server.config['state_dir']}/templates/base/tools/root/usr/bin/sudo"
    assert os.stat(copy).st_mode & 0o7777 == 0o4755
    assert os.stat(f"{server.config['state_dir']}/templates/base/tools").st_mode & 0o7777 == 0o700
    with pytest.raises(PermissionError):
        subprocess.run([copy, "id"], user=65534, group=65534, extra_groups=[])
    root = subprocess.run([copy, "id"], capture_output=True, text=True)
    assert root.returncode == 1 and root.stderr == "sudo: this sudo is for the inside of a sandbox only\n", root
    assert os.stat(SUDO).st_mode & 0o7777 == 0o755


def test_a_sandbox_can_replace_it_and_the_next_one_has_it_again(server, project):
    server.run(project, "rm /usr/bin/sudo; ! command -v sudo; printf '#!/bin/sh\\necho mine\\n' > /usr/bin/sudo; chmod 755 /usr/bin/sudo; hash -r; [ $(sudo) = mine ]")
    assert server.run(project + "-2", as_user("sudo id -u")) == "0\n"
