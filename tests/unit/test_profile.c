/* policy/seccomp/profile.c: profiles as files, tried on the real kernel. */
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "cove/mem.h"
#include "cove/seccomp_profile.h"

#define PROFILES TEST_SRCDIR "/policy/profiles/"

static void compile(const char *path, bool notify, struct sock_fprog *ret)
{
    struct sock_filter *filter = NULL;
    struct cove_err e = { 0 };
    size_t count = 0;

    if (seccomp_profile_compile(path, notify, &filter, &count, &e) < 0)
        fail_msg("%s", e.msg);
    assert_true(count > 100 && count <= BPF_MAXINSNS);
    *ret = (struct sock_fprog){ .len = (unsigned short)count, .filter = filter };
}

static int install(const struct sock_fprog *prog, unsigned flags)
{
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return -1;
    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, prog);
}

/* Runs `body` in a child under the filter; its return value is the child's exit status. */
static int under_filter(const struct sock_fprog *prog, int (*body)(const void *), const void *arg)
{
    pid_t pid = fork();
    int status = -1;

    assert_true(pid >= 0);
    if (pid == 0)
        _exit(install(prog, 0) < 0 ? 99 : body(arg));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

struct call {
    long nr, args[3];
    int want; /* errno; 0: success, or any error of the kernel's own but EPERM and ENOSYS */
    const char *because;
};

static int make_call(const void *arg)
{
    const struct call *c = arg;
    long r;

    errno = 0;
    r = syscall(c->nr, c->args[0], c->args[1], c->args[2], 0, 0, 0);
    return r < 0 ? errno : 0;
}

#define HIGH_BIT (1L << 32)

static const struct call calls[] = {
    { SYS_getpid, { 0 }, 0, "allowed" },
    { SYS_mount, { 0 }, EPERM, "mounts" },
    { SYS_umount2, { 0 }, EPERM, "and back" },
    { SYS_fsopen, { 0 }, EPERM, "the new way" },
    { SYS_open_tree, { 0 }, EPERM, "the new way" },
    { SYS_pivot_root, { 0 }, EPERM, "another root" },
    { SYS_bpf, { -1 }, EPERM, "programs in the kernel" },
    { SYS_io_uring_setup, { 0 }, EPERM, "a way round" },
    { SYS_io_uring_enter, { -1 }, EPERM, "a way round" },
    { SYS_userfaultfd, { 0 }, EPERM, "races" },
    { SYS_perf_event_open, { 0 }, EPERM, "watching" },
    { SYS_keyctl, { 0 }, EPERM, "keys" },
    { SYS_add_key, { 0 }, EPERM, "keys" },
    { SYS_request_key, { 0 }, EPERM, "keys" },
    { SYS_kexec_load, { 0 }, EPERM, "another kernel" },
    { SYS_init_module, { 0 }, EPERM, "modules" },
    { SYS_finit_module, { -1 }, EPERM, "modules" },
    { SYS_delete_module, { 0 }, EPERM, "modules" },
    { SYS_swapon, { 0 }, EPERM, "swap" },
    { SYS_reboot, { 0 }, EPERM, "reboot" },
    { SYS_open_by_handle_at, { -1 }, EPERM, "handles" },
    { SYS_name_to_handle_at, { -1 }, EPERM, "handles" },
    { SYS_unshare, { CLONE_NEWUSER }, EPERM, "namespaces" },
    { SYS_unshare, { 0 }, EPERM, "even none" },
    { SYS_setns, { -1 }, EPERM, "others' namespaces" },
    { SYS_clone, { CLONE_NEWUSER | SIGCHLD }, EPERM, "a new user namespace" },
    { SYS_clone, { CLONE_NEWNS | SIGCHLD }, EPERM, "a new mount namespace" },
    { SYS_clone, { CLONE_NEWNET | SIGCHLD }, EPERM, "a new network" },
    { SYS_clone, { CLONE_NEWPID | CLONE_NEWUTS | CLONE_NEWIPC }, EPERM, "several" },
    { SYS_clone, { CLONE_NEWCGROUP }, EPERM, "a new cgroup namespace" },
    { SYS_clone3, { 0 }, ENOSYS, "libc falls back" },
    { SYS_socket, { AF_UNIX, SOCK_STREAM }, 0, "local" },
    { SYS_socket, { AF_INET, SOCK_STREAM }, 0, "IPv4" },
    { SYS_socket, { AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, IPPROTO_UDP }, 0, "flags do not matter" },
    { SYS_socket, { AF_INET, SOCK_DGRAM, IPPROTO_ICMP }, 0, "ping, allowed here" },
    { SYS_socket, { AF_UNIX, SOCK_SEQPACKET }, 0, "local, every type" },
    { SYS_socket, { AF_NETLINK, SOCK_RAW, NETLINK_ROUTE }, 0, "addresses and routes" },
    { SYS_socket, { AF_NETLINK, SOCK_RAW, NETLINK_SOCK_DIAG }, EPERM, "others' sockets" },
    { SYS_socket, { AF_NETLINK, SOCK_RAW, NETLINK_KOBJECT_UEVENT }, EPERM, "the host's devices" },
    { SYS_socket, { AF_NETLINK, SOCK_RAW, NETLINK_GENERIC }, EPERM, "many families in one" },
    { SYS_socket, { AF_INET, SOCK_STREAM, 262 }, EPERM, "MPTCP" },
    { SYS_socket, { AF_INET, SOCK_DGRAM, IPPROTO_UDPLITE }, EPERM, "UDP-Lite" },
    { SYS_socket, { AF_INET, SOCK_SEQPACKET, IPPROTO_SCTP }, EPERM, "SCTP" },
    { SYS_socket, { AF_INET, SOCK_STREAM, IPPROTO_SCTP }, EPERM, "SCTP as a stream" },
    { SYS_socket, { AF_INET, SOCK_DCCP, IPPROTO_DCCP }, EPERM, "DCCP" },
    { SYS_socket, { AF_INET, 10 /* SOCK_PACKET */, 3 }, EPERM, "AF_PACKET by its old name" },
    { SYS_socketpair, { AF_UNIX, SOCK_STREAM }, EFAULT, "local pairs" },
    { SYS_socketpair, { AF_INET, SOCK_STREAM }, EPERM, "no other family" },
    { SYS_socketpair, { 30 /* AF_TIPC */, SOCK_STREAM }, EPERM, "no other family" },
    { SYS_socket, { AF_VSOCK, SOCK_STREAM }, EPERM, "to the hypervisor" },
    { SYS_socket, { AF_ALG, SOCK_SEQPACKET }, EPERM, "kernel crypto" },
    { SYS_socket, { AF_PACKET, SOCK_RAW }, EPERM, "raw packets" },
    { SYS_socket, { HIGH_BIT | AF_VSOCK, SOCK_STREAM }, EPERM, "the kernel sees 32 bits" },
    { SYS_ioctl, { -1, TIOCSTI }, EPERM, "typing for others" },
    { SYS_ioctl, { -1, HIGH_BIT | TIOCSTI }, EPERM, "the kernel sees 32 bits" },
    { SYS_ioctl, { -1, TIOCLINUX }, EPERM, "the console" },
    { SYS_ioctl, { -1, TIOCGWINSZ }, EBADF, "ordinary" },
    { SYS_ioctl, { -1, FIONREAD }, EBADF, "ordinary" },
    { SYS_ioctl, { -1, 0xffffffff }, EBADF, "at the very end" },
    { SYS_ioctl, { -1, 0 }, EBADF, "at the very beginning" },
    { SYS_personality, { 0xffffffff }, 0, "a question" },
    { SYS_personality, { ADDR_NO_RANDOMIZE }, 0, "gdb" },
    { SYS_personality, { READ_IMPLIES_EXEC }, EPERM, "not that" },
    { SYS_setrlimit, { RLIMIT_NOFILE }, EFAULT, "other limits" },
    { SYS_setrlimit, { RLIMIT_CORE }, 0, "does nothing: the kernel would say EFAULT" },
    { SYS_prlimit64, { 0, RLIMIT_NOFILE, 1 }, EFAULT, "other limits" },
    { SYS_prlimit64, { 0, RLIMIT_CORE, 1 }, 0, "does nothing: the kernel would say EFAULT" },
    { SYS_prlimit64, { 0, RLIMIT_CORE, HIGH_BIT }, 0, "a pointer has 64 bits" },
    { SYS_prlimit64, { -1, RLIMIT_CORE, 0 }, ESRCH, "reading it" },
    { SYS_ptrace, { -1 }, ESRCH, "debuggers" },
    { SYS_setgroups, { -1 }, EINVAL, "init drops its groups" },
    { SYS_setresuid, { -1, -1, -1 }, 0, "and its user" },
    { SYS_prctl, { PR_GET_DUMPABLE }, 0, "and its capabilities" },
    { SYS_prctl, { PR_SET_SECCOMP, SECCOMP_MODE_FILTER }, EINVAL, "no filter of its own" },
    { SYS_prctl, { PR_GET_SECCOMP }, 0, "but the question" },
    { SYS_seccomp, { SECCOMP_SET_MODE_FILTER }, EINVAL, "nor this way" },
    { SYS_seccomp, { HIGH_BIT | SECCOMP_SET_MODE_FILTER }, EINVAL, "the kernel sees 32 bits" },
    { SYS_seccomp, { SECCOMP_GET_ACTION_AVAIL }, EFAULT, "but what there is" },
    { 999, { 0 }, ENOSYS, "no such call" },
    { SYS_memfd_secret, { 0 }, EPERM, "hidden memory" },
};

static void the_default_profile_answers_as_it_says(void **state)
{
    struct sock_fprog prog;
    int wrong = 0;

    (void)state;
    compile(PROFILES "default.conf", false, &prog);
    for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
        int got = under_filter(&prog, make_call, &calls[i]);

        if (calls[i].want == got ||
            (calls[i].want == 0 && got != EPERM && got != ENOSYS && got != 99))
            continue;
        print_error("call %ld (%s): %s, not %s\n", calls[i].nr, calls[i].because, strerror(got),
                    strerror(calls[i].want));
        wrong++;
    }
    assert_int_equal(wrong, 0);
    free(prog.filter);
}

static void strict_takes_away_and_build_adds(void **state)
{
    static const struct {
        const char *profile;
        struct call call;
    } rows[] = {
        { "default", { SYS_kcmp, { 0 }, EPERM, "" } },
        { "build", { SYS_kcmp, { -1 }, 0, "" } },
        { "build", { SYS_personality, { READ_IMPLIES_EXEC }, 0, "" } },
        { "build", { SYS_mount, { 0 }, EPERM, "" } },
        { "strict", { SYS_ptrace, { -1 }, EPERM, "" } },
        { "strict", { SYS_socket, { AF_NETLINK, SOCK_RAW }, EPERM, "" } },
        { "strict", { SYS_socket, { AF_INET, SOCK_STREAM }, 0, "" } },
        { "strict", { SYS_socket, { AF_INET, SOCK_RAW, IPPROTO_ICMP }, EPERM, "" } },
        { "build", { SYS_socketpair, { AF_INET, SOCK_STREAM }, EPERM, "" } },
        { "strict", { SYS_memfd_create, { 0 }, EPERM, "" } },
        { "strict", { SYS_mount, { 0 }, EPERM, "" } },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct sock_fprog prog;
        char path[256];
        int got;

        snprintf(path, sizeof(path), PROFILES "%s.conf", rows[i].profile);
        compile(path, false, &prog);
        got = under_filter(&prog, make_call, &rows[i].call);
        free(prog.filter);
        if (rows[i].call.want ? got != rows[i].call.want : got == EPERM || got == ENOSYS)
            fail_msg("%s: call %ld: %s", rows[i].profile, rows[i].call.nr, strerror(got));
    }
}

/* --- ordinary programs - */

static void *thread_body(void *arg)
{
    return arg;
}

static int start_thread(const void *arg)
{
    pthread_t t;

    (void)arg;
    return pthread_create(&t, NULL, thread_body, NULL) || pthread_join(t, NULL);
}

static int run_shell(const void *command)
{
    int status = system(command);

    return WIFEXITED(status) ? WEXITSTATUS(status) : 98;
}

static const char *const programs[] = {
    "bash -c 'sleep 0 & wait; x=$(ls / | wc -l); test $x -gt 0'",
    "python3 -c 'import subprocess, threading, socket; subprocess.run([\"true\"], check=True)' ||"
    " ! command -v python3 >/dev/null",
    "git --version >/dev/null || ! command -v git >/dev/null",
    "echo 'int main(void){return 0;}' | cc -x c - -o /dev/null || ! command -v cc >/dev/null",
    "node -e 'require(\"fs\").readFile(\"/etc/passwd\", e => process.exit(e ? 1 : 0))' ||"
    " ! command -v node >/dev/null",
    "apt-get --version >/dev/null || ! command -v apt-get >/dev/null",
};

static void ordinary_programs_run(void **state)
{
    static const char *const profiles[] = { PROFILES "default.conf", PROFILES "strict.conf",
                                            PROFILES "build.conf" };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(profiles); i++) {
        struct sock_fprog prog;

        compile(profiles[i], false, &prog);
        assert_int_equal(under_filter(&prog, start_thread, NULL), 0);
        for (size_t k = 0; k < ARRAY_SIZE(programs); k++) {
            if (under_filter(&prog, run_shell, programs[k]) != 0)
                fail_msg("%s: %s", profiles[i], programs[k]);
        }
        free(prog.filter);
    }
}

/* --- the 32-bit entry point - */

#if defined(__x86_64__)
static int make_call_32(const void *arg)
{
    const struct call *c = arg;
    long r;

    __asm__ volatile("int $0x80"
                     : "=a"(r)
                     : "a"(c->nr), "b"(c->args[0]), "c"(c->args[1]), "d"(c->args[2])
                     : "memory");
    return r < 0 && r > -4096 ? (int)-r : 0;
}

static void the_32_bit_door_is_shut_or_has_the_same_lock(void **state)
{
    static const struct call by_int80[] = {
        { 20, { 0 }, 0, "getpid" },
        { 21, { 0 }, EPERM, "mount" },
        { 357, { -1 }, EPERM, "bpf" },
        { 310, { 0 }, EPERM, "unshare" },
        { 120, { CLONE_NEWUSER | SIGCHLD }, EPERM, "clone" },
        { 359, { AF_VSOCK, SOCK_STREAM }, EPERM, "socket" },
        { 359, { AF_UNIX, SOCK_STREAM }, 0, "socket" },
        { 360, { AF_INET, SOCK_STREAM }, EPERM, "socketpair" },
        { 102, { 1 }, EPERM, "socketcall: socket" },
        { 102, { 8 }, EPERM, "socketcall: socketpair" },
        { 102, { 2 }, EFAULT, "socketcall: bind" },
        { 102, { 99 }, EPERM, "socketcall: no such call" },
        { 54, { -1, TIOCSTI }, EPERM, "ioctl" },
        { 425, { 0 }, EPERM, "io_uring_setup" },
    };
    struct call x32 = { 0x40000000 | SYS_getpid, { 0 }, ENOSYS, "x32" };
    struct call getpid_32 = { 20, { 0 }, 0, "getpid" };
    struct sock_fprog prog;

    (void)state;
    compile(PROFILES "default.conf", false, &prog);
    assert_int_equal(under_filter(&prog, make_call, &x32), ENOSYS);
    if (make_call_32(&getpid_32) != 0) {
        free(prog.filter);
        skip(); /* this kernel runs no 32-bit programs */
    }
    assert_int_equal(under_filter(&prog, make_call_32, &getpid_32), ENOSYS); /* default: shut */
    free(prog.filter);
    compile(PROFILES "build.conf", false, &prog);
    for (size_t i = 0; i < ARRAY_SIZE(by_int80); i++) {
        int got = under_filter(&prog, make_call_32, &by_int80[i]);

        if (got != by_int80[i].want)
            fail_msg("%s: %s", by_int80[i].because, strerror(got));
    }
    free(prog.filter);
}
#endif

/* --- exec-time notification - */

static bool returns(const struct sock_fprog *prog, uint32_t action)
{
    for (size_t i = 0; i < prog->len; i++) {
        if (prog->filter[i].code == (BPF_RET | BPF_K) && prog->filter[i].k == action)
            return true;
    }
    return false;
}

static void execve_asks_only_when_told_to(void **state)
{
    struct sock_fprog plain, notify;

    (void)state;
    compile(PROFILES "default.conf", false, &plain);
    compile(PROFILES "default.conf", true, &notify);
    assert_false(returns(&plain, SECCOMP_RET_USER_NOTIF));
    assert_true(returns(&notify, SECCOMP_RET_USER_NOTIF));
    free(plain.filter);
    free(notify.filter);
}

static int exec_true(const void *arg)
{
    (void)arg;
    execl("/bin/true", "true", NULL);
    return errno;
}

static int execat_true(const void *arg)
{
    char *argv[] = { "true", NULL };

    (void)arg;
    return (int)syscall(SYS_execveat, AT_FDCWD, "/bin/true", argv, NULL, 0) < 0 ? errno : 0;
}

/* Without a listener the kernel answers such a call with ENOSYS: proof that execve is the one
 * asked. */
static void execve_is_what_is_asked_about(void **state)
{
    struct sock_fprog prog;

    (void)state;
    compile(PROFILES "default.conf", true, &prog);
    assert_int_equal(under_filter(&prog, exec_true, NULL), ENOSYS);
    assert_int_equal(under_filter(&prog, execat_true, NULL), ENOSYS);
    assert_int_equal(under_filter(&prog, make_call, &calls[0]), 0);
    free(prog.filter);
}

/* --- bad files - */

static const struct {
    const char *text, *says;
} bad[] = {
    { "", ":1:1: the profile names no syscall" },
    { "# nothing\n[aarch64x]\nallow read\n", ":1:1: the profile names no syscall" },
    { "allow\n", ":1:6: names of syscalls are missing" },
    { "permit read\n", ":1:1: neither allow, also, refuse" },
    { "allow raed\n", ":1:1: 'raed': libseccomp knows no such syscall" },
    { "allow re/ad\n", ":1:7: not the name" },
    { "\nallow socket if arg9 == 1\n", ":2:17: a test begins with arg0 to arg5" },
    { "allow socket if arg0 < 1\n", ":1:22: neither == nor != nor &" },
    { "allow socket if arg0 == AF_NOPE\n", ":1:25: neither a number nor a name" },
    { "allow socket if arg0 == 1,\n", ":1:27: neither a number nor a name" },
    { "allow clone if arg0 & 1\n", ":1:23: a mask must be compared" },
    { "allow clone if arg0 & 1 < 2\n", ":1:25: neither == nor !=" },
    { "allow clone if arg0 &\n", ":1:22: the bits behind & are missing" },
    { "allow socket if arg0 == 1 and\n", ":1:30: a test begins with arg0" },
    { "allow socket if arg0 == 1 or arg0 == 2\n", ":1:27: something behind the condition" },
    { "allow socket if arg0 == 1 else refuse\n", ":1:32: behind else stands pretend or invalid" },
    { "allow socket if arg0 != NULL\n", ":1:25: NULL stands behind == only" },
    { "also socket if arg0 == 1\n", ":1:6: no earlier line allows this call under a condition" },
    { "allow socket\nalso socket if arg0 == 1\n", ":2:6: no earlier line allows" },
    { "allow socket if arg0 == 1\nalso socket\n", ":2:6: also takes one name and a condition" },
    { "allow read\n[aarch64]\nallow socket if nonsense\n[x86_64]\nallow socket if nonsense\n",
      ":3:17: a test begins" },
    { "arch x86_64 nosuch\narch aarch64 nosuch\nallow read\n", "arch 'nosuch'" },
    { "arch x86_64 x32\narch aarch64 aarch64\nallow read\n", "has no entry point of its own" },
    { "allow a b if arg0 == 1\n", ":1:11: a condition belongs to one name" },
    { "[x86_64\n", ":1:1: a section is" },
    { "include ../default.conf\n", ":1:9: include takes the name of a file, without a folder" },
    { "allow read", ":1:11: the line is too long" },
    { "include self.conf\n", ":1:9: included too deep" },
    { "allow execve if arg0 == 1\n", ":1:14: no condition on execve" },
    { "allow ?execveat if arg4 != 1\n", ":1:17: no condition on execve" },
};

static void a_bad_profile_is_refused_with_its_place(void **state)
{
    char dir[] = "/tmp/cove-profile-XXXXXX", path[64];
    struct sock_filter *filter = NULL;
    struct cove_err e;
    size_t count;

    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/self.conf", dir);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        FILE *f = fopen(path, "w");

        assert_non_null(f);
        fputs(bad[i].text, f);
        fclose(f);
        assert_int_equal(seccomp_profile_compile(path, false, &filter, &count, &e), -1);
        if (!strstr(e.msg, bad[i].says))
            fail_msg("said '%s'\n  instead of '%s'", e.msg, bad[i].says);
        assert_null(filter); /* what a caller would free after all */
    }
    unlink(path);
    assert_int_equal(seccomp_profile_compile(dir, false, &filter, &count, &e), -1);
    assert_int_equal(seccomp_profile_compile(path, false, &filter, &count, &e), -1);
    assert_int_equal(e.code, COVE_NOT_FOUND);
    rmdir(dir);
}

/* An operator's profile goes on from the installed one, with one call more. */
static void a_profile_may_allow_more_under_a_condition(void **state)
{
    struct call diag = { SYS_socket, { AF_NETLINK, SOCK_RAW, NETLINK_SOCK_DIAG }, 0, "" };
    struct call audit = { SYS_socket, { AF_NETLINK, SOCK_RAW, NETLINK_AUDIT }, EPERM, "" };
    char dir[] = "/tmp/cove-profile-XXXXXX", path[64], base[64];
    struct sock_fprog prog;
    FILE *f;

    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/own.conf", dir);
    snprintf(base, sizeof(base), "%s/default.conf", dir);
    assert_int_equal(symlink(PROFILES "default.conf", base), 0);
    f = fopen(path, "w");
    assert_non_null(f);
    fputs("include default.conf\nalso socket if arg0 == AF_NETLINK and arg2 == NETLINK_SOCK_DIAG\n",
          f);
    fclose(f);
    compile(path, false, &prog);
    assert_int_equal(under_filter(&prog, make_call, &diag), 0);
    assert_int_equal(under_filter(&prog, make_call, &audit), EPERM);
    free(prog.filter);
    unlink(path);
    unlink(base);
    rmdir(dir);
}

static void profiles_are_found_by_name_only(void **state)
{
    char path[256];
    struct cove_err e;

    (void)state;
    assert_int_equal(seccomp_profile_find("strict", PROFILES, path, sizeof(path), &e), 0);
    assert_non_null(strstr(path, "/strict.conf"));
    assert_int_equal(seccomp_profile_find("../x", PROFILES, path, sizeof(path), &e), -1);
    assert_int_equal(e.code, COVE_INVALID);
    assert_int_equal(seccomp_profile_find("nope", PROFILES, path, sizeof(path), &e), -1);
    assert_int_equal(e.code, COVE_NOT_FOUND);
}

static void remember(void *ctx, const struct seccomp_line *line)
{
    if (strcmp(line->syscall, "socket") == 0)
        snprintf(ctx, 512, "%s %s", line->action, line->condition);
}

static void a_later_line_replaces_an_earlier_one(void **state)
{
    char text[512] = "";
    struct cove_err e;

    (void)state;
    assert_int_equal(seccomp_profile_list(PROFILES "strict.conf", remember, text, &e), 0);
    assert_string_equal(text, "allow arg0 == AF_UNIX or arg0 == AF_INET,AF_INET6 and "
                              "arg1 & SOCK_TYPE_MASK == SOCK_STREAM and arg2 == 0,IPPROTO_TCP or "
                              "arg0 == AF_INET,AF_INET6 and arg1 & SOCK_TYPE_MASK == SOCK_DGRAM "
                              "and arg2 == 0,IPPROTO_UDP");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_default_profile_answers_as_it_says),
        cmocka_unit_test(strict_takes_away_and_build_adds),
        cmocka_unit_test(ordinary_programs_run),
#if defined(__x86_64__)
        cmocka_unit_test(the_32_bit_door_is_shut_or_has_the_same_lock),
#endif
        cmocka_unit_test(execve_asks_only_when_told_to),
        cmocka_unit_test(execve_is_what_is_asked_about),
        cmocka_unit_test(a_bad_profile_is_refused_with_its_place),
        cmocka_unit_test(a_profile_may_allow_more_under_a_condition),
        cmocka_unit_test(profiles_are_found_by_name_only),
        cmocka_unit_test(a_later_line_replaces_an_earlier_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
