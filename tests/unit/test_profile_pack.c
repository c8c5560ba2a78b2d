/* policy/seccomp/profile_pack.c: the packed filter decides as libseccomp's own does, and is much shorter.
 */
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

static const uint32_t arches[] = {
    AUDIT_ARCH_X86_64, AUDIT_ARCH_I386, AUDIT_ARCH_AARCH64, AUDIT_ARCH_ARM, 0, 0xffffffff
};

static uint64_t some_argument(unsigned *seed)
{
    static const uint64_t telling[] = { 0,          1,       2,          10,     16,
                                        17,         40,      0x5412,     0x541c, 0x10000000,
                                        0x7e020000, 0x20000, 0xffffffff, 8,      0x4000000 };
    uint64_t low = rand_r(seed) % 3 ? telling[(size_t)rand_r(seed) % ARRAY_SIZE(telling)]
                                    : (uint64_t)rand_r(seed);

    return rand_r(seed) % 4 ? low : low | (uint64_t)rand_r(seed) << 32;
}

static void compare_on(const struct sock_filter *a, size_t a_count, const struct sock_filter *b,
                       size_t b_count, uint32_t arch, uint32_t nr, unsigned *seed)
{
    for (int i = 0; i < 20; i++) {
        struct seccomp_data d = { .nr = (int)nr, .arch = arch };
        uint32_t want, got;

        for (int n = 0; n < 6; n++)
            d.args[n] = some_argument(seed);
        want = judge(a, a_count, &d);
        got = judge(b, b_count, &d);
        if (want != got)
            fail_msg("arch %#x nr %#x args %#llx %#llx: %#x, packed %#x", arch, nr,
                     (unsigned long long)d.args[0], (unsigned long long)d.args[1], want, got);
    }
}

static void compare_everywhere(const char *profile, bool notify, unsigned seed)
{
    AUTO_FREE struct sock_filter *plain = NULL, *packed = NULL;
    size_t plain_count, packed_count;
    char path[512];
    struct cove_err e = { 0 };

    snprintf(path, sizeof(path), "%s/policy/profiles/%s.conf", TEST_SRCDIR, profile);
    if (seccomp_profile_compile_plain(path, notify, &plain, &plain_count, &e) < 0)
        fail_msg("%s", e.msg);
    if (seccomp_profile_compile(path, notify, &packed, &packed_count, &e) < 0)
        fail_msg("%s", e.msg);
    print_message("%s: %zu instructions, packed %zu\n", profile, plain_count, packed_count);
    assert_true(packed_count <= plain_count);
    assert_true(packed_count * 3 < plain_count || strcmp(profile, "build") == 0);
    for (size_t i = 0; i < ARRAY_SIZE(arches); i++) {
        for (uint32_t nr = 0; nr < 700; nr++)
            compare_on(plain, plain_count, packed, packed_count, arches[i], nr, &seed);
        for (uint32_t nr = 0x3ffffff0; nr < 0x40000300; nr++)
            compare_on(plain, plain_count, packed, packed_count, arches[i], nr, &seed);
        compare_on(plain, plain_count, packed, packed_count, arches[i], UINT32_MAX, &seed);
        compare_on(plain, plain_count, packed, packed_count, arches[i], 0x7fffffff, &seed);
    }
}

static void a_packed_profile_decides_as_before_for_every_syscall(void **state)
{
    unsigned seed = (unsigned)time(NULL);

    (void)state;
    print_message("seed %u\n", seed);
    compare_everywhere("default", false, seed);
    compare_everywhere("default", true, seed);
    compare_everywhere("strict", false, seed);
    compare_everywhere("build", true, seed);
}

static void a_program_of_another_shape_stays_as_it_is(void **state)
{
    struct sock_filter *odd = calloc(2, sizeof(*odd)), *before = odd;
    struct profile none = { 0 };
    size_t count = 2;

    (void)state;
    odd[0] = (struct sock_filter){ BPF_LD | BPF_W | BPF_LEN, 0, 0, 0 };
    odd[1] = (struct sock_filter){ BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW };
    assert_int_equal(profile_pack(&none, &odd, &count), -1);
    assert_ptr_equal(odd, before);
    assert_int_equal(count, 2);
    free(odd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_packed_profile_decides_as_before_for_every_syscall),
        cmocka_unit_test(a_program_of_another_shape_stays_as_it_is),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
