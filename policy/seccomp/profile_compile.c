/*
 * Compiles a profile's entries to the BPF program that init installs. The kernel reads a seccomp program again for
 * every process that installs it (the kernel compiles the program, and tries every syscall number to learn which are
 * always allowed), so a command's start pays for each instruction. Most neighbouring syscalls have the same fate, so
 * the program here is, for each architecture, a binary search over ranges of syscall numbers. Each range has a
 * verdict, or a jump to the few instructions that look at arguments. libseccomp knows the names, numbers and
 * architectures; it has no "else" for conditions, and its own programs, one comparison per syscall, are five times as
 * long. tests/unit/test_profile_compile.c holds the two side by side. 32-bit x86 has socketcall(2), whose arguments
 * lie in memory, where no filter can look. There only those of its calls go through that the profile allows without a
 * condition. Its first mmap(2) takes its arguments in memory, too, and with a condition it is an unknown call there:
 * libc uses mmap2(2).
 */
#include <assert.h>
#include <errno.h>
#include <linux/seccomp.h>
#include <seccomp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cove/mem.h"
#include "cove/seccomp_profile.h"
#include "policy/seccomp/profile_private.h"

enum { OLD_MMAP_NR_X86 = 90, SOCKETCALL_NR_X86 = 102 };

/* A syscall of one architecture. entry NULL: the profile does not name it. */
struct call {
    uint32_t nr;
    const struct profile_entry *entry;
};

struct range {
    uint32_t first;                        /* up to the next range's first */
    uint32_t verdict;                      /* SECCOMP_RET_*, where there is no condition */
    const struct profile_entry *condition; /* or NULL */
};

/* A jump to a condition, whose place is known only when everything before it is written. */
struct leaf {
    size_t at;
    const struct profile_entry *condition;
};

struct program {
    struct sock_filter *insns;
    size_t count;
    struct leaf *leaves;
    size_t leaf_count;
    bool too_long; /* sticky */
};

struct compiler {
    const struct profile *p;
    bool notify_exec;
    const char *path;
    struct profile_entry socketcall; /* made of the profile's entries, for 32-bit x86 */
    struct profile_way socketcall_way;
    struct cove_err *e;
};

static const uint32_t unknown = SECCOMP_RET_ERRNO | ENOSYS;

/* --- numbers ---------------------------------------------------------------------------------- */

static bool is_exec(const struct profile_entry *entry)
{
    return strcmp(entry->name, "execve") == 0 || strcmp(entry->name, "execveat") == 0;
}

static uint32_t verdict_of(enum profile_action action)
{
    static const uint32_t verdicts[] = { [PROFILE_ALLOW] = SECCOMP_RET_ALLOW,
                                         [PROFILE_REFUSE] = SECCOMP_RET_ERRNO | EPERM,
                                         [PROFILE_ENOSYS] = SECCOMP_RET_ERRNO | ENOSYS,
                                         [PROFILE_PRETEND] = SECCOMP_RET_ERRNO | 0,
                                         [PROFILE_INVALID] = SECCOMP_RET_ERRNO | EINVAL };

    return verdicts[action];
}

static struct range range_of(const struct compiler *c, const struct call *call)
{
    const struct profile_entry *entry = call->entry;

    if (entry->way_count)
        return (struct range){ .first = call->nr, .condition = entry };
    if (c->notify_exec && entry->action == PROFILE_ALLOW && is_exec(entry))
        return (struct range){ .first = call->nr, .verdict = SECCOMP_RET_USER_NOTIF };
    return (struct range){ .first = call->nr, .verdict = verdict_of(entry->action) };
}

static int by_number(const void *a, const void *b)
{
    const struct call *x = a, *y = b;

    return x->nr < y->nr ? -1 : x->nr > y->nr;
}

/* The calls of socketcall(2), in the order of their numbers, from 1 on. */
static const char *const socket_calls[] = {
    "socket",     "bind",    "connect", "listen",  "accept",   "getsockname", "getpeername",
    "socketpair", "send",    "recv",    "sendto",  "recvfrom", "shutdown",    "setsockopt",
    "getsockopt", "sendmsg", "recvmsg", "accept4", "recvmmsg", "sendmmsg",
};

static_assert(ARRAY_SIZE(socket_calls) <= PROFILE_VALUES_MAX, "socketcall() has more calls");

static bool allowed_always(const struct profile *p, const char *name)
{
    for (size_t i = 0; i < p->count; i++) {
        if (strcmp(p->entries[i].name, name) == 0)
            return p->entries[i].action == PROFILE_ALLOW && p->entries[i].way_count == 0;
    }
    return false;
}

static const struct profile_entry *socketcall_entry(struct compiler *c)
{
    struct profile_test *test = &c->socketcall_way.tests[0];

    c->socketcall_way.test_count = 1;
    *test = (struct profile_test){ .arg = 0, .mask = UINT32_MAX };
    for (uint32_t i = 0; i < ARRAY_SIZE(socket_calls); i++) {
        if (allowed_always(c->p, socket_calls[i]))
            test->values[test->value_count++] = i + 1;
    }
    c->socketcall = (struct profile_entry){ .action = PROFILE_ALLOW,
                                            .otherwise = PROFILE_REFUSE,
                                            .ways = &c->socketcall_way,
                                            .way_count = 1 };
    return &c->socketcall;
}

/* On 32-bit x86 libseccomp gives those calls that socketcall(2) and ipc(2) can make a negative number,
 * also where the kernel has a number for them as well: look for the number that has the name. */
static int direct_number(uint32_t arch, const char *name)
{
    for (int nr = 0; nr < 1024; nr++) {
        AUTO_FREE char *found = seccomp_syscall_resolve_num_arch(arch, nr);

        if (found && strcmp(found, name) == 0)
            return nr;
    }
    return -1;
}

/* Finds the profile's calls that this architecture has, sorted by number. */
static int find_calls(struct compiler *c, uint32_t arch, struct call *calls, size_t *ret_count)
{
    size_t n = 0;

    for (size_t i = 0; i < c->p->count; i++) {
        const struct profile_entry *entry = &c->p->entries[i];
        int nr = seccomp_syscall_resolve_name_arch(arch, entry->name);

        if (nr == __NR_SCMP_ERROR && !entry->optional)
            return cove_fail(c->e, COVE_INVALID, "%s:%u:1: '%s': libseccomp knows no such syscall",
                             c->path, entry->line, entry->name);
        if (nr < 0 && arch == SCMP_ARCH_X86)
            nr = direct_number(arch, entry->name);
        if (arch == SCMP_ARCH_X86 && nr == OLD_MMAP_NR_X86 && entry->way_count)
            continue;
        if (nr >= 0) /* below 0: another architecture has this call */
            calls[n++] = (struct call){ (uint32_t)nr, entry };
    }
    if (arch == SCMP_ARCH_X86)
        calls[n++] = (struct call){ SOCKETCALL_NR_X86, socketcall_entry(c) };
    qsort(calls, n, sizeof(*calls), by_number);
    *ret_count = n;
    return 0;
}

static void add_range(struct range *ranges, size_t *count, struct range r)
{
    const struct range *last = *count ? &ranges[*count - 1] : NULL;

    if (!last || last->verdict != r.verdict || last->condition != r.condition)
        ranges[(*count)++] = r;
}

/* Every number from 0 on is in a range; numbers between two calls are unknown ones. */
static size_t find_ranges(const struct compiler *c, const struct call *calls, size_t call_count,
                          struct range *ranges)
{
    uint32_t next = 0;
    size_t n = 0;

    for (size_t i = 0; i < call_count; i++) {
        if (calls[i].nr < next)
            continue; /* two names of one number: the first in the file counts */
        if (calls[i].nr > next || n == 0)
            add_range(ranges, &n, (struct range){ .first = next, .verdict = unknown });
        add_range(ranges, &n, range_of(c, &calls[i]));
        next = calls[i].nr + 1;
    }
    add_range(ranges, &n, (struct range){ .first = next, .verdict = unknown });
    return n;
}

/* --- instructions ----------------------------------------------------------------------------- */

static void emit(struct program *prog, uint16_t code, uint32_t k, size_t jt, size_t jf)
{
    assert(jt <= UINT8_MAX && jf <= UINT8_MAX);
    if (prog->count == BPF_MAXINSNS)
        prog->too_long = true;
    else
        prog->insns[prog->count++] = (struct sock_filter){ code, (uint8_t)jt, (uint8_t)jf, k };
}

static void emit_leaf(struct program *prog, const struct range *range)
{
    if (!range->condition) {
        emit(prog, BPF_RET | BPF_K, range->verdict, 0, 0);
        return;
    }
    if (prog->count < BPF_MAXINSNS)
        prog->leaves[prog->leaf_count++] = (struct leaf){ prog->count, range->condition };
    emit(prog, BPF_JMP | BPF_JA, 0, 0, 0);
}

/* How many instructions emit_search() writes. */
static size_t search_size(size_t count)
{
    size_t left;

    if (count == 1)
        return 1;
    left = search_size(count / 2);
    return (left <= UINT8_MAX ? 1 : 2) + left + search_size(count - count / 2);
}

/* "nr >= the middle's first?": the left half follows, the right half is jumped to. */
static void emit_search(struct program *prog, const struct range *ranges, size_t count)
{
    size_t half = count / 2, left;

    if (count == 1) {
        emit_leaf(prog, &ranges[0]);
        return;
    }
    left = search_size(half);
    if (left <= UINT8_MAX) {
        emit(prog, BPF_JMP | BPF_JGE | BPF_K, ranges[half].first, left, 0);
    } else { /* further than a test can jump */
        emit(prog, BPF_JMP | BPF_JGE | BPF_K, ranges[half].first, 0, 1);
        emit(prog, BPF_JMP | BPF_JA, (uint32_t)left, 0, 0);
    }
    emit_search(prog, ranges, half);
    emit_search(prog, ranges + half, count - half);
}

static void emit_load(struct program *prog, size_t offset)
{
    emit(prog, BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset, 0, 0);
}

/* Compares the value that was loaded. The last instruction is the jump for "does not hold", whose target the caller
 * sets; for a value that fits, the program goes on behind that jump. */
static void emit_compare(struct program *prog, const uint32_t *values, size_t n, bool negated)
{
    for (size_t i = 0; i < n; i++)
        emit(prog, BPF_JMP | BPF_JEQ | BPF_K, values[i], n - i, 0);
    if (negated)
        emit(prog, BPF_JMP | BPF_JA, 1, 0, 0);
    emit(prog, BPF_JMP | BPF_JA, 0, 0, 0);
}

/* Writes where the jumps for "does not hold" are to `exits`, and returns how many there are. */
static size_t emit_test(struct program *prog, const struct profile_test *test, size_t *exits)
{
    static const uint32_t zero[] = { 0 };
    size_t offset = offsetof(struct seccomp_data, args) + 8 * test->arg;

    emit_load(prog, offset);
    if (!test->pointer) {
        if (test->mask != UINT32_MAX)
            emit(prog, BPF_ALU | BPF_AND | BPF_K, test->mask, 0, 0);
        emit_compare(prog, test->values, test->value_count, test->negated);
        exits[0] = prog->count - 1;
        return 1;
    }
    emit_compare(prog, zero, 1, false); /* both halves of the pointer */
    exits[0] = prog->count - 1;
    emit_load(prog, offset + 4);
    emit_compare(prog, zero, 1, false);
    exits[1] = prog->count - 1;
    return 2;
}

static void emit_condition(struct program *prog, const struct profile_entry *entry)
{
    for (size_t w = 0; w < entry->way_count; w++) {
        const struct profile_way *way = &entry->ways[w];
        size_t exits[2 * PROFILE_TESTS_MAX], n = 0;

        for (size_t i = 0; i < way->test_count; i++)
            n += emit_test(prog, &way->tests[i], exits + n);
        emit(prog, BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0, 0);
        for (size_t i = 0; i < n && !prog->too_long; i++)
            prog->insns[exits[i]].k = (uint32_t)(prog->count - exits[i] - 1);
    }
    emit(prog, BPF_RET | BPF_K, verdict_of(entry->otherwise), 0, 0);
}

/* Writes each condition once, however many architectures jump to it. */
static void emit_conditions(struct program *prog)
{
    for (size_t i = 0; i < prog->leaf_count; i++) {
        const struct profile_entry *condition = prog->leaves[i].condition;
        size_t at = prog->count;

        if (!condition)
            continue;
        for (size_t k = i; k < prog->leaf_count; k++) {
            if (prog->leaves[k].condition != condition)
                continue;
            prog->insns[prog->leaves[k].at].k = (uint32_t)(at - prog->leaves[k].at - 1);
            prog->leaves[k].condition = NULL;
        }
        emit_condition(prog, condition);
    }
}

/* --- the whole -------------------------------------------------------------------------------- */

static int emit_arch(struct compiler *c, struct program *prog, uint32_t arch)
{
    AUTO_FREE struct call *calls = calloc(c->p->count + 1, sizeof(*calls));
    AUTO_FREE struct range *ranges = calloc(2 * c->p->count + 4, sizeof(*ranges));
    size_t call_count = 0, range_count;

    if (!calls || !ranges)
        return cove_fail(c->e, COVE_INTERNAL, "out of memory");
    if (find_calls(c, arch, calls, &call_count) < 0)
        return -1; /* cppcheck-suppress memleak ; both free themselves */
    range_count = find_ranges(c, calls, call_count, ranges);
    emit(prog, BPF_JMP | BPF_JEQ | BPF_K, arch, 1, 0);
    emit(prog, BPF_JMP | BPF_JA, (uint32_t)search_size(range_count) + 1, 0, 0);
    emit_load(prog, offsetof(struct seccomp_data, nr));
    emit_search(prog, ranges, range_count);
    return 0;
}

static int compat_arch(struct compiler *c, const char *name, uint32_t *ret)
{
    uint32_t arch = seccomp_arch_resolve_name(name);

    if (arch == 0)
        return cove_fail(c->e, COVE_INVALID, "%s: arch '%s': libseccomp does not know it", c->path,
                         name);
    if (arch == SCMP_ARCH_X32 || arch == seccomp_arch_native())
        return cove_fail(c->e, COVE_INVALID, "%s: arch '%s' has no entry point of its own", c->path,
                         name);
    *ret = arch;
    return 0;
}

static int emit_program(struct compiler *c, struct program *prog)
{
    uint32_t arch = 0;

    emit_load(prog, offsetof(struct seccomp_data, arch));
    if (emit_arch(c, prog, seccomp_arch_native()) < 0)
        return -1;
    for (size_t i = 0; i < c->p->compat_count; i++) {
        if (compat_arch(c, c->p->compat[i], &arch) < 0 || emit_arch(c, prog, arch) < 0)
            return -1;
    }
    emit(prog, BPF_RET | BPF_K, unknown, 0, 0); /* every other architecture */
    emit_conditions(prog);
    if (prog->too_long)
        return cove_fail(c->e, COVE_TOO_LARGE, "%s: the filter has more than %d instructions",
                         c->path, BPF_MAXINSNS);
    return 0;
}

static int compile(struct compiler *c, struct sock_filter **ret, size_t *ret_count)
{
    AUTO_FREE struct sock_filter *insns = calloc(BPF_MAXINSNS, sizeof(*insns));
    AUTO_FREE struct leaf *leaves = calloc(BPF_MAXINSNS, sizeof(*leaves));
    struct program prog = { .insns = insns, .leaves = leaves };

    if (!insns || !leaves)
        return cove_fail(c->e, COVE_INTERNAL, "out of memory");
    if (emit_program(c, &prog) < 0)
        return -1;
    *ret = take_ptr(insns);
    *ret_count = prog.count;
    return 0;
}

int seccomp_profile_compile(const char *path, bool notify_exec, struct sock_filter **ret,
                            size_t *ret_count, struct cove_err *e)
{
    struct profile p;
    struct compiler c = { .p = &p, .notify_exec = notify_exec, .path = path, .e = e };
    int r;

    if (profile_read(path, &p, e) < 0)
        return -1;
    r = compile(&c, ret, ret_count);
    profile_done(&p);
    return r;
}
