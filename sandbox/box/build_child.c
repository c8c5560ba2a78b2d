/*
 * Building a sandbox, the child until its execve. As after vfork(), the child uses the keeper's memory and the
 * keeper stands still until the child has become another program: a copy of the keeper's page tables, and taking it down
 * again, was a fifth of what a creation cost. So the child only enters its cgroups, puts descriptors in place and becomes
 * cove-init, whose life begins with the sandbox's set-up (sandbox/setup/).
 *
 * Nothing in here can be held up by a sandbox: the cgroup is new and empty, the program is ours, and no
 * path is looked up. The child writes only to its own stack, errno and `err` of struct build_child. A process that
 * shares its parent's memory after vfork() is not chosen when memory runs out, so the limit of its cgroup cannot
 * cost the keeper its life.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/sched.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cove/mem.h"
#include "cove/setup_plan.h"
#include "sandbox/box/build.h"
#include "sandbox/box/build_private.h"
#include "sandbox/box/userns.h"

/*
 * The child begins with the keeper's own table of descriptors. It takes a copy of the table's lower
 * part, where everything for the child is. The upper part has a pidfd for each sandbox: copying these and
 * closing them at execve cost 3 ms with 5,000 sandboxes.
 */
static int take_own_table(const struct build_child *c, struct cove_err *e)
{
    int from = BUILD_HIGH_FD;

    for (size_t i = 0; i < ARRAY_SIZE(c->fds); i++) /* in case the lower part was full */
        from = c->fds[i] < from ? from : c->fds[i] + 1;
    from = c->exe < from ? from : c->exe + 1;
    if (close_range((unsigned)from, ~0U, CLOSE_RANGE_UNSHARE) < 0 && unshare(CLONE_FILES) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "a table of descriptors");
    return 0;
}

/* Puts the descriptors where init and its set-up look for them. They are moved to high numbers first, so that none
 * is overwritten. All others are closed by execve. */
static int place_fds(const struct build_child *c, int *ret_exe, struct cove_err *e)
{
    int high[BUILD_CHILD_FDS];

    *ret_exe = fcntl(c->exe, F_DUPFD_CLOEXEC, 100);
    for (int i = 0; i < BUILD_CHILD_FDS; i++)
        if ((high[i] = fcntl(c->fds[i], F_DUPFD_CLOEXEC, 100)) < 0)
            return cove_fail_errno(e, COVE_INTERNAL, "descriptors for init");
    for (int i = 0; i < BUILD_CHILD_FDS; i++)
        if (dup2(high[i], i) < 0)
            return cove_fail_errno(e, COVE_INTERNAL, "descriptors for init");
    return 0;
}

/* What the set-up and init use; both give it up. The bounding set, from which commands of the sandbox's root get theirs,
 * is lowered by init. */
#define CAP(c) (1ULL << CAP_##c)
static const uint64_t setup_caps = CAP(CHOWN) | CAP(DAC_OVERRIDE) | CAP(FOWNER) | CAP(FSETID) |
                                   CAP(KILL) | CAP(SETGID) | CAP(SETUID) | CAP(SETPCAP) |
                                   CAP(NET_ADMIN) | CAP(SYS_CHROOT) | CAP(SYS_PTRACE) |
                                   CAP(SYS_ADMIN) | CAP(SYS_RESOURCE) | CAP(SYS_TIME);

static void run(void *arg)
{
    struct build_child *c = arg;
    int exe;

    if (take_own_table(c, &c->err) == 0 && cgroup_enter_v1(c->doors, &c->err) == 0 &&
        place_fds(c, &exe, &c->err) == 0 && userns_keep_capabilities(setup_caps, &c->err) == 0) {
        execveat(exe, "", c->argv, c->env, AT_EMPTY_PATH);
        cove_fail_errno(&c->err, COVE_INTERNAL, "executing cove-init");
    }
    _exit(1); /* nothing of the keeper's is closed by that: either table is right */
}

enum { STACK_BYTES = 64 * 1024 };

/*
 * clone3() with a function for the child, on a stack of its own. libc's clone() knows no CLONE_INTO_CGROUP, and a
 * child that returned from libc's syscall() would write over the frame to which the keeper returns.
 */
static long clone_and_run(struct clone_args *args, void (*fn)(void *), void *arg)
{
    static _Alignas(64) char stack[STACK_BYTES]; /* the keeper has one thread, and waits */

    args->flags |= CLONE_VM | CLONE_VFORK;
    args->stack = (uint64_t)(uintptr_t)stack;
    args->stack_size = sizeof(stack);
#if defined(__x86_64__)
    register void (*fn_kept)(void *) __asm__("r12") = fn;
    register void *arg_kept __asm__("r13") = arg;
    long ret;

    __asm__ volatile("syscall\n\t"
                     "test %%rax, %%rax\n\t"
                     "jnz 1f\n\t"
                     "xor %%ebp, %%ebp\n\t" /* in the child: the end of the chain of frames */
                     "mov %[arg], %%rdi\n\t"
                     "call *%[fn]\n\t"
                     "ud2\n"
                     "1:"
                     : "=a"(ret)
                     : "a"((long)SYS_clone3), "D"(args),
                       "S"(sizeof(*args)), [fn] "r"(fn_kept), [arg] "r"(arg_kept)
                     : "rcx", "r11", "memory");
#elif defined(__aarch64__)
    register long ret __asm__("x0") = (long)(uintptr_t)args;
    register long size __asm__("x1") = sizeof(*args);
    register long number __asm__("x8") = SYS_clone3;
    register void (*fn_kept)(void *) __asm__("x20") = fn;
    register void *arg_kept __asm__("x21") = arg;

    __asm__ volatile("svc #0\n\t"
                     "cbnz x0, 1f\n\t"
                     "mov x29, #0\n\t" /* in the child: the end of the chain of frames */
                     "mov x0, %[arg]\n\t"
                     "blr %[fn]\n\t"
                     "brk #0\n"
                     "1:"
                     : "+r"(ret)
                     : "r"(size), "r"(number), [fn] "r"(fn_kept), [arg] "r"(arg_kept)
                     : "memory", "cc", "x30");
#else
#error "clone3() for this machine"
#endif
    if (ret < 0) {
        errno = (int)-ret;
        return -1;
    }
    return ret;
}

long build_child_start(struct build_child *c, struct clone_args *args)
{
    return clone_and_run(args, run, c);
}
