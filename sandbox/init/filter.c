/*
 * Init's own seccomp filter. Init has CAP_SYS_ADMIN in its namespace, to install commands' filters;
 * an attacker who took init over must not reach with that capability what no command can reach. All that
 * init starts inherits this filter besides its own one, so it can refuse only what no profile allows
 * (refused.h): a profile that an operator writes cannot give these calls back.
 *
 * The kernel remembers which calls a filter passes whatever their arguments are, so the list costs
 * ordinary calls nothing. To find that out it runs the filter for every call there is when the filter is installed:
 * therefore the filter searches its list by halves.
 */
#include "config.h" /* _GNU_SOURCE */

#include <asm/unistd.h> /* knows newer calls than libc does */
#include <assert.h>
#include <errno.h>
#include <linux/seccomp.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cove/weak.h"
#include "sandbox/init/init_private.h"
#include "sandbox/init/refused.h"

#define ROW_NATIVE(name, x86, arm) __NR_##name,
#define ROW_X86(name, x86, arm)    x86,
#define ROW_ARM(name, x86, arm)    arm,

static int native[] = { REFUSED_CALLS(ROW_NATIVE) };
#if defined(__x86_64__)
#define COMPAT_ARCH AUDIT_ARCH_I386
static int compat[] = { REFUSED_CALLS(ROW_X86) REFUSED_OLD_X86 };
#elif defined(__aarch64__)
#define COMPAT_ARCH AUDIT_ARCH_ARM
static int compat[] = { REFUSED_CALLS(ROW_ARM) REFUSED_OLD_ARM };
#endif

enum { X32_BIT = 0x40000000 }; /* x86-64 under other numbers; no profile lets it run */

#define RETURN(action) (struct sock_filter) BPF_STMT(BPF_RET | BPF_K, action)
#define LOAD(field)                                                                                \
    (struct sock_filter) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define REFUSE(errnum) RETURN(SECCOMP_RET_ERRNO | (errnum))

enum { LEAF = 4, JUMP_MOST = 255 }; /* a conditional jump has eight bits for its distance */

static int by_number(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

/* Refuses the calls of a sorted list and lets all others pass, by a binary search. Returns the end. */
static struct sock_filter *add_search(struct sock_filter *at, const int *list, size_t count)
{
    struct sock_filter *jump = at;
    size_t half = count / 2;

    if (count <= LEAF) {
        for (size_t i = 0; i < count; i++)
            *at++ = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)list[i],
                                                 (uint8_t)(count - i), 0);
        *at++ = RETURN(SECCOMP_RET_ALLOW);
        *at++ = REFUSE(EPERM);
        return at;
    }
    at = add_search(at + 1, list, half);
    assert(at - jump - 1 <= JUMP_MOST);
    *jump = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, (uint32_t)list[half],
                                         (uint8_t)(at - jump - 1), 0);
    return add_search(at, list + half, count - half);
}

/* The part for one architecture. Entries of -1, which are calls that it does not have, sort to the front. */
static struct sock_filter *add_list(struct sock_filter *at, int *list, size_t count)
{
    size_t missing = 0;

    *at++ = LOAD(nr);
    *at++ = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, X32_BIT, 0, 1);
    *at++ = REFUSE(ENOSYS);
    qsort(list, count, sizeof(*list), by_number);
    while (list[missing] < 0)
        missing++;
    return add_search(at, list + missing, count - missing);
}

int filter_setup(struct cove_err *e)
{
    static LARGE struct sock_filter code[16 + 3 * ARRAY_SIZE(native) + 3 * ARRAY_SIZE(compat)];
    struct sock_filter *at = code, *jump;
    struct sock_fprog program = { .filter = code };

    if (weak("seccomp"))
        return 0;
    *at++ = LOAD(arch);
    *at++ = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, COMPAT_ARCH, 0, 1);
    jump = at++; /* to the list of the other architecture, which stands last */
    *at++ = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, NATIVE_ARCH, 1, 0);
    *at++ = REFUSE(ENOSYS);
    at = add_list(at, native, ARRAY_SIZE(native));
    *jump = (struct sock_filter)BPF_STMT(BPF_JMP | BPF_JA, (uint32_t)(at - jump - 1));
    at = add_list(at, compat, ARRAY_SIZE(compat));
    program.len = (unsigned short)(at - code);
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, &program) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "installing init's own filter");
    return 0;
}
