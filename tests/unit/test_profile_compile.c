/* policy/seccomp/profile_compile.c: our program decides as libseccomp's own does, and is much shorter.
 * libseccomp's program has a placeholder for each call with a condition; the test reads those
 * conditions itself. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <seccomp.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "cove/mem.h"
#include "cove/seccomp_profile.h"
#include "policy/seccomp/profile_private.h"

/* A plain interpreter, written apart from the one under test. */
static uint32_t judge(const struct sock_filter *p, size_t n, const struct seccomp_data *d)
{
    uint32_t a = 0;

    for (size_t pc = 0; pc < n; pc++) {
        const struct sock_filter *i = &p[pc];
        bool yes;

        switch (i->code) {
        case BPF_LD | BPF_W | BPF_ABS:
            memcpy(&a, (const char *)d + i->k, 4);
            continue;
        case BPF_ALU | BPF_AND | BPF_K:
            a &= i->k;
            continue;
        case BPF_RET | BPF_K:
            return i->k;
        case BPF_JMP | BPF_JA:
            pc += i->k;
            continue;
        case BPF_JMP | BPF_JEQ | BPF_K:
            yes = a == i->k;
            break;
        case BPF_JMP | BPF_JGT | BPF_K:
            yes = a > i->k;
            break;
        case BPF_JMP | BPF_JGE | BPF_K:
            yes = a >= i->k;
            break;
        case BPF_JMP | BPF_JSET | BPF_K:
            yes = (a & i->k) != 0;
            break;
        default:
            fail_msg("instruction %#x", i->code);
            return 0;
        }
        pc += yes ? i->jt : i->jf;
    }
    fail_msg("ran off the end");
    return 0;
}

/* --- the other opinion: libseccomp's program ---------------------------------------------------- */

static uint32_t plain_action(const struct profile_entry *entry, bool notify)
{
    if (notify && entry->action == PROFILE_ALLOW && strncmp(entry->name, "execve", 6) == 0)
        return SCMP_ACT_NOTIFY;
    return entry->action == PROFILE_ALLOW ? SCMP_ACT_ALLOW : SCMP_ACT_ERRNO(EPERM);
}

static scmp_filter_ctx opinion_on_arch(const struct profile *p, uint32_t arch, bool notify)
{
    scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ERRNO(ENOSYS));

    assert_non_null(ctx);
    assert_int_equal(seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_ERRNO(ENOSYS)), 0);
    if (arch != seccomp_arch_native()) {
        assert_int_equal(seccomp_arch_add(ctx, arch), 0);
        assert_int_equal(seccomp_arch_remove(ctx, SCMP_ARCH_NATIVE), 0);
    }
    for (size_t i = 0; i < p->count; i++) {
        const struct profile_entry *entry = &p->entries[i];
        int nr = seccomp_syscall_resolve_name(entry->name);
        uint32_t action = entry->way_count ? SCMP_ACT_TRACE(i) : plain_action(entry, notify);

        if (nr != __NR_SCMP_ERROR && entry->action != PROFILE_ENOSYS)
            assert_int_equal(seccomp_rule_add_array(ctx, action, nr, 0, NULL), 0);
    }
    return ctx;
}

static void libseccomps_opinion(const struct profile *p, bool notify, struct sock_filter **ret,
                                size_t *ret_count)
{
    scmp_filter_ctx ctx = opinion_on_arch(p, seccomp_arch_native(), notify);
    int fd = memfd_create("opinion", MFD_CLOEXEC);
    off_t size;

    for (size_t i = 0; i < p->compat_count; i++)
        assert_int_equal(
            seccomp_merge(ctx, opinion_on_arch(p, seccomp_arch_resolve_name(p->compat[i]), notify)),
            0);
    assert_int_equal(seccomp_export_bpf(ctx, fd), 0);
    size = lseek(fd, 0, SEEK_END);
    *ret = malloc((size_t)size);
    assert_non_null(*ret);
    assert_int_equal(pread(fd, *ret, (size_t)size, 0), size);
    *ret_count = (size_t)size / sizeof(**ret);
    close(fd);
    seccomp_release(ctx);
}

/* --- the other opinion: conditions -------------------------------------------------------------- */

static bool test_holds(const struct profile_test *t, const struct seccomp_data *d)
{
    bool found = false;

    if (t->pointer)
        return d->args[t->arg] == 0;
    for (size_t i = 0; i < t->value_count; i++)
        found = found || ((uint32_t)d->args[t->arg] & t->mask) == t->values[i];
    return found != t->negated;
}

static uint32_t condition_says(const struct profile_entry *entry, const struct seccomp_data *d)
{
    for (size_t w = 0; w < entry->way_count; w++) {
        bool all = true;

        for (size_t i = 0; i < entry->ways[w].test_count; i++)
            all = all && test_holds(&entry->ways[w].tests[i], d);
        if (all)
            return SECCOMP_RET_ALLOW;
    }
    return SECCOMP_RET_ERRNO | (entry->otherwise == PROFILE_PRETEND   ? 0
                                : entry->otherwise == PROFILE_INVALID ? EINVAL
                                                                      : EPERM);
}

static uint32_t expected(const struct profile *p, uint32_t verdict, const struct seccomp_data *d)
{
    bool trace = (verdict & SECCOMP_RET_ACTION_FULL) == SECCOMP_RET_TRACE;
    int old = d->arch == AUDIT_ARCH_I386 && p->compat_count ? d->nr : -1;

    if (old == 90) /* mmap before mmap2: its arguments are in memory */
        return SECCOMP_RET_ERRNO | ENOSYS;
    if (old == 102) /* socketcall: likewise */
        return verdict == SECCOMP_RET_ALLOW ? verdict : SECCOMP_RET_ERRNO | EPERM;
    return trace ? condition_says(&p->entries[verdict & SECCOMP_RET_DATA], d) : verdict;
}

/* --- both on every call -------------------------------------------------------------------------- */

static const uint32_t arches[] = {
    AUDIT_ARCH_X86_64, AUDIT_ARCH_I386, AUDIT_ARCH_AARCH64, AUDIT_ARCH_ARM, 0, 0xffffffff
};

struct pair {
    struct profile p;
    struct sock_filter *theirs, *ours;
    size_t theirs_count, ours_count;
    unsigned seed;
    size_t seen[3]; /* verdicts of calls with a condition: allowed, refused, pretended */
};

static uint64_t some_argument(unsigned *seed)
{
    static const uint64_t telling[] = { 0,       1,          2,  10,    16,
                                        3,       4,          17, 40,    0x5412,
                                        0x541c,  6,          58, 262,   0x7e020000,
                                        0x20000, 0xffffffff, 8,  0x801, 0x10000000 };
    uint64_t low = rand_r(seed) % 4 ? telling[(size_t)rand_r(seed) % ARRAY_SIZE(telling)]
                                    : (uint64_t)rand_r(seed);

    return rand_r(seed) % 4 ? low : low | (uint64_t)rand_r(seed) << 32;
}

static void compare_on(struct pair *pair, uint32_t arch, uint32_t nr, int times)
{
    for (int i = 0; i < times; i++) {
        struct seccomp_data d = { .nr = (int)nr, .arch = arch };
        uint32_t theirs, want, got;

        for (int n = 0; n < 6; n++)
            d.args[n] = some_argument(&pair->seed);
        theirs = judge(pair->theirs, pair->theirs_count, &d);
        want = expected(&pair->p, theirs, &d);
        got = judge(pair->ours, pair->ours_count, &d);
        if (want != got)
            fail_msg("arch %#x nr %#x args %#llx %#llx %#llx: %#x, ours %#x", arch, nr,
                     (unsigned long long)d.args[0], (unsigned long long)d.args[1],
                     (unsigned long long)d.args[2], want, got);
        if (want != theirs) {
            times = 4000; /* a call with a condition: try many arguments */
            pair->seen[want == SECCOMP_RET_ALLOW ? 0 : want & SECCOMP_RET_DATA ? 1 : 2]++;
        }
    }
}

static void compare_everywhere(const char *profile, bool notify)
{
    struct pair pair = { .seed = (unsigned)time(NULL) };
    struct cove_err e = { 0 };
    char path[512];

    print_message("seed %u\n", pair.seed);
    snprintf(path, sizeof(path), "%s/policy/profiles/%s.conf", TEST_SRCDIR, profile);
    if (profile_read(path, &pair.p, &e) < 0 ||
        seccomp_profile_compile(path, notify, &pair.ours, &pair.ours_count, &e) < 0)
        fail_msg("%s", e.msg);
    libseccomps_opinion(&pair.p, notify, &pair.theirs, &pair.theirs_count);
    print_message("%s: libseccomp's %zu instructions, ours %zu\n", profile, pair.theirs_count,
                  pair.ours_count);
    for (size_t i = 0; i < ARRAY_SIZE(arches); i++) {
        for (uint32_t nr = 0; nr < 700; nr++)
            compare_on(&pair, arches[i], nr, 20);
        for (uint32_t nr = 0x3ffffff0; nr < 0x40000300; nr++)
            compare_on(&pair, arches[i], nr, 2);
        compare_on(&pair, arches[i], UINT32_MAX, 2);
        compare_on(&pair, arches[i], 0x7fffffff, 2);
    }
    for (size_t i = 0; i < ARRAY_SIZE(pair.seen); i++)
        assert_true(pair.seen[i] > 20); /* the arguments were telling ones */
    free(pair.theirs);
    free(pair.ours);
    profile_done(&pair.p);
}

static void a_profile_decides_as_libseccomp_would_for_every_syscall(void **state)
{
    (void)state;
    compare_everywhere("default", false);
    compare_everywhere("default", true);
    compare_everywhere("strict", false);
    compare_everywhere("build", true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_profile_decides_as_libseccomp_would_for_every_syscall),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
