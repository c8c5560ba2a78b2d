"""Every rule of every shipped seccomp profile, with the real system call, in a real sandbox.

Each call is made with arguments that mean nothing, in a child of its own: an allowed one gets as far as the kernel's own
opinion of them (or waits, and is killed), a refused one gives EPERM, an unknown one ENOSYS.
"""
import errno
import os
import re
import subprocess
import textwrap

import pytest

from cove import TOP, read

PROFILES = f"{TOP}/policy/profiles"


def rules_of(name):
    """{call: (verb, condition)} on this architecture, later lines replacing earlier ones."""
    rules, section = {}, "*"
    for line in read(f"{PROFILES}/{name}").split("\n"):
        line = line.split("#")[0].strip()
        if match := re.match(r"\[(.+)\]", line):
            section = match.group(1)
        elif line.startswith("include "):
            rules.update(rules_of(line.split()[1]))
        elif section in ("*", os.uname().machine) and (match := re.match(r"(allow|refuse|enosys) (.+)", line)):
            verb, rest = match.groups()
            names, _, condition = rest.partition(" if ")
            rules.update({n.lstrip("?"): (verb, condition) for n in names.split()})
    return rules


def breaking_arguments(condition):
    """Six C expressions of which one breaks the condition."""
    arg, op, values = re.match(r"arg(\d) (==|!=|&) (.+)", condition).groups()
    bad = {"==": "0x7f12", "!=": values.split(",")[0], "&": values.split("|")[0].split(" ")[0]}[op]
    return ", ".join(bad if i == int(arg) else "0" for i in range(6))


# Not called: they end or replace the caller, or are this program's own means.
OWN = {"exit", "exit_group", "fork", "vfork", "rt_sigreturn", "sigreturn", "restart_syscall", "execve", "execveat"}

PROGRAM = textwrap.dedent("""
    #define _GNU_SOURCE
    #include <errno.h>
    #include <linux/seccomp.h>
    #include <sched.h>
    #include <signal.h>
    #include <stdio.h>
    #include <string.h>
    #include <sys/ioctl.h>
    #include <sys/socket.h>
    #include <sys/syscall.h>
    #include <sys/wait.h>
    #include <unistd.h>
    static void try(const char *name, long nr, long a, long b, long c, long d, long e, long f)
    {
        int status;
        pid_t pid = fork();
        if (pid == 0) {
            alarm(1);
            long rc = syscall(nr, a, b, c, d, e, f);
            _exit(rc == -1 ? errno : 0);
        }
        waitpid(pid, &status, 0);
        printf("%s %d\\n", name, WIFEXITED(status) ? WEXITSTATUS(status) : 0);
        fflush(stdout);
    }
    int main(void)
    {
    @CALLS@
        try("x32", 0x40000000 + 39, 0, 0, 0, 0, 0, 0);
    #ifdef __x86_64__
        long rc;
        __asm__ volatile("int $0x80" : "=a"(rc) : "a"(20) : "memory");
        printf("int80 %d\\n", rc < 0 ? (int)-rc : 0);
    #endif
        return 0;
    }
""")


def compile_calls(rules, directory):
    lines = []
    for name, (verb, condition) in sorted(rules.items()):
        if name in OWN:
            continue
        calls = [(name, "-1, -1, -1, -1, -1, -1")] if not condition else []
        if condition:
            calls.append((name + "!", breaking_arguments(condition)))
        for label, args in calls:
            lines.append(f'#ifdef SYS_{name}\n    try("{label}", SYS_{name}, {args});\n#endif')
    source, program = directory / "calls.c", directory / "calls"
    source.write_text(PROGRAM.replace("@CALLS@", "\n".join(lines)))
    subprocess.run(["gcc", "-static", "-w", "-o", program, source], check=True)
    return program


def outcomes(text):
    return {name: int(code) for name, code in (line.split() for line in text.strip().split("\n"))}


@pytest.mark.parametrize("profile", ["default", "strict", "build"])
def test_every_rule_does_what_it_says(make_server, tmp_path, profile):
    policy = tmp_path / "policy.conf"
    policy.write_text(f'[*]\nseccomp = {profile}\ndeny nothing words /^cove-no-such-command$/ "never"\n')
    server = make_server(policy_file=str(policy))
    rules = rules_of(f"{profile}.conf")
    program = compile_calls(rules, tmp_path)
    reply = server.execute("p", "true")
    with open(program, "rb") as f:
        put_file(server, reply.id, "/workspace/calls", f.read())
    got = outcomes(server.run("p", "/workspace/calls", timeout=120))
    wrong = []
    for name, code in got.items():
        verb, condition = rules.get(name.rstrip("!"), ("", ""))
        if name.endswith("!") or verb == "refuse":
            good = code == errno.EPERM
        elif verb == "enosys":
            good = code == errno.ENOSYS
        elif name in ("x32", "int80"):
            good = code == (0 if profile == "build" and name == "int80" else errno.ENOSYS)
        else:
            good = code != errno.ENOSYS or name in outcomes_outside(program, {errno.ENOSYS})
        if not good:
            wrong.append((name, errno.errorcode.get(code, code)))
    assert len(got) > 300 and not wrong, wrong


_outside = {}


def outcomes_outside(program, codes):
    """Calls that this kernel itself answers so, found by running the same program without a sandbox, as nobody."""
    if program not in _outside:
        done = subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", program],
                              capture_output=True, text=True)
        _outside[program] = outcomes(done.stdout)
    return {name for name, code in _outside[program].items() if code in codes}


def put_file(server, box_id, path, data):
    import sys
    sys.path.insert(0, f"{TOP}/tests/escape")
    from box import Box
    with Box(server.run_dir, box_id) as box:
        box.put(path, data)
