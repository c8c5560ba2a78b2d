"""Every rule of every shipped seccomp profile, with the real system call, in a real sandbox.

Each call is made with arguments that mean nothing, in a child of its own: an allowed one gets as far as the kernel's own
opinion of them (or waits, and is killed), a refused one gives EPERM, an unknown one ENOSYS. A call with conditions is made
once for each of them with arguments that fit, and once with arguments that fit none.
"""
import errno
import os
import re
import subprocess
import textwrap

import pytest

from cove import TOP, read

PROFILES = f"{TOP}/policy/profiles"


class Rule:
    """What a profile says about one call: allow, refuse or enosys, and for allow the conditions (one of them must hold)."""

    def __init__(self, verb):
        self.verb, self.conditions, self.otherwise = verb, [], errno.EPERM

    def add_condition(self, text):
        text, _, otherwise = text.partition(" else ")
        self.otherwise = {"pretend": 0, "invalid": errno.EINVAL}.get(otherwise, self.otherwise)
        self.conditions.append([parse_test(test) for test in text.split(" and ")])


def parse_test(text):
    arg, mask, op, values = re.fullmatch(r"arg(\d)(?: & (\S+))? (==|!=) (\S+)", text.strip()).groups()
    return int(arg), mask, op, values.split(",")


def rules_of(name):
    """{call: Rule} on this architecture, later lines replacing earlier ones."""
    rules, section = {}, "*"
    for line in read(f"{PROFILES}/{name}").split("\n"):
        line = line.split("#")[0].strip()
        if match := re.match(r"\[(.+)\]", line):
            section = match.group(1)
        elif line.startswith("include "):
            rules.update(rules_of(line.split()[1]))
        elif section in ("*", os.uname().machine) and (match := re.match(r"(allow|also|refuse|enosys) (.+)", line)):
            verb, rest = match.groups()
            names, _, condition = rest.partition(" if ")
            for call in (n.lstrip("?") for n in names.split()):
                if verb != "also":
                    rules[call] = Rule(verb)
                if condition:
                    rules[call].add_condition(condition)
    return rules


def breaking_arguments(rule):
    """Six C expressions that break every condition of the rule."""
    args = ["-1"] * 6
    for condition in rule.conditions:
        arg, mask, op, values = condition[0]
        if values == ["NULL"]:
            args[arg] = "1L << 32"  # the low half alone says nothing about a pointer
        else:
            args[arg] = values[0] if op == "!=" else mask.split("|")[0] if mask else "0x7f12"
    return ", ".join(args)


def holding_arguments(condition):
    """Six C expressions under which the condition holds."""
    args = ["0"] * 6
    for arg, mask, op, values in condition:
        args[arg] = "0" if op == "!=" or values == ["NULL"] else values[-1]
    return ", ".join(args)


# Not called: they end or replace the caller, or are this program's own means.
OWN = {"exit", "exit_group", "fork", "vfork", "rt_sigreturn", "sigreturn", "restart_syscall", "execve", "execveat"}

PROGRAM = textwrap.dedent("""
    #define _GNU_SOURCE
    #include <errno.h>
    #include <fcntl.h>
    #include <linux/netlink.h>
    #include <linux/seccomp.h>
    #include <netinet/in.h>
    #include <sched.h>
    #include <signal.h>
    #include <stdio.h>
    #include <string.h>
    #include <sys/ioctl.h>
    #include <sys/mman.h>
    #include <sys/prctl.h>
    #include <sys/shm.h>
    #include <sys/resource.h>
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
    for name, rule in sorted(rules.items()):
        if name in OWN:
            continue
        calls = [(name, "-1, -1, -1, -1, -1, -1")] if not rule.conditions else [(name + "!", breaking_arguments(rule))]
        calls += [(name, holding_arguments(condition)) for condition in rule.conditions]
        for label, args in calls:
            lines.append(f'#ifdef SYS_{name}\n    try("{label}", SYS_{name}, {args});\n#endif')
    source, program = directory / "calls.c", directory / "calls"
    source.write_text(PROGRAM.replace("@CALLS@", "\n".join(lines)))
    subprocess.run(["gcc", "-static", "-w", "-o", program, source], check=True)
    return program


def outcomes(text):
    """[(call, errno)]: a call with several conditions appears once for each."""
    return [(name, int(code)) for name, code in (line.split() for line in text.strip().split("\n"))]


def wanted(profile, rules, name):
    """The errno that a call must give, or None for an allowed one."""
    if name in ("x32", "int80"):
        return 0 if profile == "build" and name == "int80" else errno.ENOSYS
    rule = rules[name.rstrip("!")]
    if name.endswith("!"):
        return rule.otherwise
    return {"refuse": errno.EPERM, "enosys": errno.ENOSYS}.get(rule.verb)


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
    for i, (name, code) in enumerate(got):
        want = wanted(profile, rules, name)
        if want is None:
            good = code not in (errno.ENOSYS, errno.EPERM) or outcomes_outside(program)[i] == (name, code)
        else:
            good = code == want
        if not good:
            wrong.append((name, errno.errorcode.get(code, code)))
    assert len(got) > 300 and not wrong, wrong


def test_the_limit_of_core_files_stays_where_it_is(make_server):
    """1 byte is the only limit for which no kernel runs the host's crash handler; neither 0 nor more can be had."""
    server = make_server()
    limit = "awk '/^Max core/ {print $5, $6}' /proc/self/limits"
    assert server.run("p", limit) == "1 1\n"
    assert server.run("p", f"ulimit -c 0; {limit}; ulimit -c unlimited; {limit}; prlimit --core=0:0; {limit}") == "1 1\n" * 3


_outside = {}


def outcomes_outside(program):
    """How this kernel itself answers the same calls: the same program without a sandbox, as nobody."""
    if program not in _outside:
        done = subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", program],
                              capture_output=True, text=True)
        _outside[program] = outcomes(done.stdout)
    return _outside[program]


def put_file(server, box_id, path, data):
    import sys
    sys.path.insert(0, f"{TOP}/tests/escape")
    from box import Box
    with Box(server.run_dir, box_id) as box:
        box.put(path, data)
