/*
 * Making a filter small. The kernel reads a seccomp program again for every process that installs
 * it (it compiles it, and tries every syscall number to learn which are always allowed), so a
 * command's start pays for each instruction. libseccomp writes one comparison per syscall, and has
 * no "else" for conditions; most neighbours have the same fate. Here its program is said in ranges:
 * for each architecture a binary search over ranges of syscall numbers, each with a verdict, or
 * with a jump to the few instructions that look at an argument.
 *
 * What libseccomp decided is found by running its program on one number of every range between two
 * constants it compares with, so nothing is guessed. Entries with a condition reach us as
 * placeholders (SECCOMP_RET_TRACE with the entry's number). tests/unit/test_profile_pack.c runs the
 * packed program beside one that libseccomp wrote whole.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "cove/mem.h"
#include "policy/seccomp/profile_private.h"

enum { ARCHES_MAX = 8, CONSTANTS_MAX = 2 * BPF_MAXINSNS };

enum holds { HOLDS_NOTHING, HOLDS_NR, HOLDS_ARCH }; /* what register A was loaded with */

struct range {
    uint32_t first;   /* up to the next range's first */
    uint32_t verdict; /* SECCOMP_RET_*; SECCOMP_RET_TRACE stands for a condition */
};

struct code {
    struct sock_filter *insns;
    size_t count;
    bool failed; /* out of room or memory: sticky */
};

/* ------------------------------------------------------------------ running a program on a number
 */

static bool compare(const struct sock_filter *i, uint32_t a)
{
    switch (BPF_OP(i->code)) {
    case BPF_JEQ:
        return a == i->k;
    case BPF_JGT:
        return a > i->k;
    default: /* BPF_JGE */
        return a >= i->k;
    }
}

/* False: an instruction we do not know, one that looks at arguments, or one that makes no sense
 * here. */
static bool run(const struct sock_filter *prog, size_t count, uint32_t arch, uint32_t nr,
                uint32_t *ret)
{
    enum holds holds = HOLDS_NOTHING;

    for (uint32_t pc = 0; pc < count; pc++) {
        const struct sock_filter *i = &prog[pc];

        switch (i->code) {
        case BPF_LD | BPF_W | BPF_ABS:
            if (i->k >= offsetof(struct seccomp_data, instruction_pointer))
                return false;
            holds = i->k == offsetof(struct seccomp_data, nr) ? HOLDS_NR : HOLDS_ARCH;
            break;
        case BPF_RET | BPF_K:
            *ret = i->k;
            return true;
        case BPF_JMP | BPF_JA:
            pc += i->k;
            break;
        case BPF_JMP | BPF_JEQ | BPF_K:
        case BPF_JMP | BPF_JGT | BPF_K:
        case BPF_JMP | BPF_JGE | BPF_K:
            if (holds == HOLDS_NOTHING)
                return false;
            pc += compare(i, holds == HOLDS_NR ? nr : arch) ? i->jt : i->jf;
            break;
        default:
            return false;
        }
    }
    return false;
}

/* ------------------------------------------------------------------ ranges */

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

/* Between two neighbours in this list the program cannot tell numbers apart. */
static size_t break_points(const struct sock_filter *prog, size_t count, uint32_t *out)
{
    size_t n = 0, kept = 0;

    out[n++] = 0;
    for (size_t i = 0; i < count; i++) {
        if (BPF_CLASS(prog[i].code) != BPF_JMP || BPF_OP(prog[i].code) == BPF_JA)
            continue;
        out[n++] = prog[i].k;
        if (prog[i].k != UINT32_MAX)
            out[n++] = prog[i].k + 1;
    }
    qsort(out, n, sizeof(*out), by_number);
    for (size_t i = 0; i < n; i++)
        if (i == 0 || out[i] != out[kept - 1])
            out[kept++] = out[i];
    return kept;
}

/* The ranges of one architecture; 0 when the program is of an unknown shape. */
static size_t find_ranges(const struct sock_filter *prog, size_t count, uint32_t arch,
                          const uint32_t *points, size_t point_count, struct range *out)
{
    size_t n = 0;

    for (size_t i = 0; i < point_count; i++) {
        uint32_t verdict;

        if (!run(prog, count, arch, points[i], &verdict))
            return 0;
        if (n == 0 || out[n - 1].verdict != verdict)
            out[n++] = (struct range){ points[i], verdict };
    }
    return n;
}

/* What A holds at each instruction. Jumps go forward only, so one pass sees every way to a place
 * before the place. */
static void flow(const struct sock_filter *prog, size_t count, enum holds *holds)
{
    for (size_t pc = 0; pc < count; pc++) {
        const struct sock_filter *i = &prog[pc];
        enum holds after = holds[pc];

        if (i->code == (BPF_LD | BPF_W | BPF_ABS))
            after = i->k == offsetof(struct seccomp_data, nr)     ? HOLDS_NR
                    : i->k == offsetof(struct seccomp_data, arch) ? HOLDS_ARCH
                                                                  : HOLDS_NOTHING;
        if (BPF_CLASS(i->code) == BPF_RET)
            continue;
        if (i->code == (BPF_JMP | BPF_JA)) {
            holds[pc + 1 + i->k] = after;
        } else if (BPF_CLASS(i->code) == BPF_JMP) {
            holds[pc + 1 + i->jt] = after;
            holds[pc + 1 + i->jf] = after;
        } else {
            holds[pc + 1] = after;
        }
    }
}

static bool jumps_stay_inside(const struct sock_filter *prog, size_t count)
{
    for (size_t pc = 0; pc < count; pc++) {
        size_t far = prog[pc].code == (BPF_JMP | BPF_JA) ? prog[pc].k
                     : prog[pc].jt > prog[pc].jf         ? prog[pc].jt
                                                         : prog[pc].jf;

        if (BPF_CLASS(prog[pc].code) != BPF_RET && pc + 1 + far >= count)
            return false;
    }
    return true;
}

/* Every architecture the program knows: what it compares `arch` with. */
static size_t find_arches(const struct sock_filter *prog, size_t count, uint32_t *out)
{
    AUTO_FREE enum holds *holds = calloc(count + 1, sizeof(*holds));
    size_t n = 0;

    if (!holds || !jumps_stay_inside(prog, count))
        return 0;
    flow(prog, count, holds);
    for (size_t i = 0; i < count && n < ARCHES_MAX; i++) {
        bool seen = false;

        if (holds[i] != HOLDS_ARCH || prog[i].code != (BPF_JMP | BPF_JEQ | BPF_K))
            continue;
        for (size_t k = 0; k < n; k++)
            seen = seen || out[k] == prog[i].k;
        if (!seen)
            out[n++] = prog[i].k;
    }
    return n;
}

/* ------------------------------------------------------------------ writing the new program */

static void emit(struct code *c, uint16_t code, uint32_t k, size_t jt, size_t jf)
{
    if (c->count == BPF_MAXINSNS || jt > 255 || jf > 255) {
        c->failed = true;
        return;
    }
    c->insns[c->count++] = (struct sock_filter){ code, (uint8_t)jt, (uint8_t)jf, k };
}

static bool is_condition(uint32_t verdict)
{
    return (verdict & SECCOMP_RET_ACTION_FULL) == SECCOMP_RET_TRACE;
}

/* A leaf: a verdict, or a jump whose target is known only when all is written: append_conditions()
 * finds it by BPF_X. */
static void emit_leaf(struct code *c, uint32_t verdict)
{
    if (is_condition(verdict))
        emit(c, BPF_JMP | BPF_JA | BPF_X, verdict & SECCOMP_RET_DATA, 0, 0);
    else
        emit(c, BPF_RET | BPF_K, verdict, 0, 0);
}

/* "nr >= the middle's first?": the left half follows, the right half is jumped to. */
static void emit_search(struct code *c, const struct range *ranges, size_t count)
{
    size_t half = count / 2, test = c->count, far;

    if (count == 1) {
        emit_leaf(c, ranges[0].verdict);
        return;
    }
    emit(c, BPF_JMP | BPF_JGE | BPF_K, ranges[half].first, 0, 1);
    emit(c, BPF_JMP | BPF_JA, 0, 0, 0);
    emit_search(c, ranges, half);
    if (c->failed)
        return;
    far = c->count - (test + 2);
    if (far + 1 <= 255) { /* near enough to do without the extra jump */
        memmove(&c->insns[test + 1], &c->insns[test + 2], far * sizeof(*c->insns));
        c->count--;
        c->insns[test].jt = (uint8_t)far;
        c->insns[test].jf = 0;
    } else {
        c->insns[test + 1].k = (uint32_t)far;
    }
    emit_search(c, ranges + half, count - half);
}

/* Values are compared as the 32 bits that the kernel looks at. */
static void emit_condition(struct code *c, const struct profile_entry *entry)
{
    const uint32_t allow = SECCOMP_RET_ALLOW, refuse = SECCOMP_RET_ERRNO | EPERM;
    bool listed_is_fine = entry->test == TEST_ONE_OF;
    size_t n = entry->value_count;

    emit(c, BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args) + 8 * entry->arg, 0, 0);
    if (entry->test == TEST_NO_BIT) {
        emit(c, BPF_JMP | BPF_JSET | BPF_K, entry->values[0], 1, 0);
        emit(c, BPF_RET | BPF_K, allow, 0, 0);
        emit(c, BPF_RET | BPF_K, refuse, 0, 0);
        return;
    }
    for (size_t i = 0; i < n; i++)
        emit(c, BPF_JMP | BPF_JEQ | BPF_K, entry->values[i], n - i, 0);
    emit(c, BPF_RET | BPF_K, listed_is_fine ? refuse : allow, 0, 0);
    emit(c, BPF_RET | BPF_K, listed_is_fine ? allow : refuse, 0, 0);
}

/* Each condition once, however many leaves lead to it. */
static void append_conditions(struct code *c, const struct profile *p)
{
    size_t heads = c->count;

    for (size_t entry = 0; entry < p->count && !c->failed; entry++) {
        size_t at = c->count;
        bool used = false;

        for (size_t i = 0; i < heads; i++) {
            struct sock_filter *leaf = &c->insns[i];

            if (leaf->code != (BPF_JMP | BPF_JA | BPF_X) || leaf->k != entry)
                continue;
            *leaf = (struct sock_filter){ BPF_JMP | BPF_JA, 0, 0, (uint32_t)(at - i - 1) };
            used = true;
        }
        if (used)
            emit_condition(c, &p->entries[entry]);
    }
}

static void emit_arch(struct code *c, uint32_t arch, const struct range *ranges, size_t count)
{
    size_t test = c->count;

    emit(c, BPF_JMP | BPF_JEQ | BPF_K, arch, 1, 0);
    emit(c, BPF_JMP | BPF_JA, 0, 0, 0); /* to the next architecture */
    emit(c, BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr), 0, 0);
    emit_search(c, ranges, count);
    if (!c->failed)
        c->insns[test + 1].k = (uint32_t)(c->count - (test + 2));
}

/* False: it cannot be said in ranges. */
static bool pack(const struct sock_filter *prog, size_t count, const struct profile *p,
                 struct code *c)
{
    AUTO_FREE uint32_t *points = calloc(CONSTANTS_MAX + 1, sizeof(*points));
    AUTO_FREE struct range *ranges = calloc(CONSTANTS_MAX + 1, sizeof(*ranges));
    uint32_t arches[ARCHES_MAX];
    size_t arch_count = find_arches(prog, count, arches), point_count, n;

    if (!points || !ranges || arch_count == 0 || arch_count == ARCHES_MAX)
        return false;
    point_count = break_points(prog, count, points);
    emit(c, BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch), 0, 0);
    for (size_t i = 0; i < arch_count; i++) {
        n = find_ranges(prog, count, arches[i], points, point_count, ranges);
        if (n == 0)
            return false;
        emit_arch(c, arches[i], ranges, n);
    }
    n = find_ranges(prog, count, 0, points, point_count, ranges); /* an architecture nobody has */
    if (n != 1)
        return false;
    emit_leaf(c, ranges[0].verdict);
    append_conditions(c, p);
    return !c->failed;
}

int profile_pack(const struct profile *p, struct sock_filter **filter, size_t *count)
{
    struct code c = { .insns = calloc(BPF_MAXINSNS, sizeof(*c.insns)) };

    if (!c.insns || !pack(*filter, *count, p, &c)) {
        free(c.insns);
        return -1;
    }
    free(*filter);
    *filter = c.insns;
    *count = c.count;
    return 0;
}
