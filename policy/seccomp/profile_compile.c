/*
 * A profile's entries into the BPF program that init installs, by libseccomp.
 *
 * Conditions. libseccomp has no "else": a call with conditional rules falls to the filter's
 * default, ENOSYS, when none fits, where we want EPERM. And its != compares 64 bits, where the
 * kernel looks at 32 of them (an ioctl with a bit set above would get through). So for a set of
 * values the complement is spelled out as well: the few masks that cover all other 32-bit numbers.
 *
 * Architectures. Each gets a filter of its own and they are merged at the end, because one needs
 * special care: 32-bit x86 has socketcall(2), which takes the arguments of socket(2) in memory,
 * where no filter can look. What is conditional there is refused to 32-bit programs altogether.
 */
#include <errno.h>
#include <fcntl.h>
#include <seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cove/mem.h"
#include "cove/seccomp_profile.h"
#include "policy/seccomp/profile_private.h"

struct compiler {
    scmp_filter_ctx ctx;
    bool muxed;        /* this architecture has socketcall */
    bool placeholders; /* for conditions: profile_pack() puts them in */
    const char *path;
    struct cove_err *e;
};

static const uint32_t refused = SCMP_ACT_ERRNO(EPERM), unknown = SCMP_ACT_ERRNO(ENOSYS);

static int fail_rule(struct compiler *c, const struct profile_entry *entry, int rc)
{
    return cove_fail(c->e, COVE_INVALID, "%s:%u:1: %s: %s", c->path, entry->line, entry->name,
                     strerror(-rc));
}

static int add_masked(struct compiler *c, const struct profile_entry *entry, int nr,
                      uint32_t action, uint32_t mask, uint32_t value)
{
    struct scmp_arg_cmp cmp = SCMP_CMP(entry->arg, SCMP_CMP_MASKED_EQ, mask, value);
    int rc = seccomp_rule_add_array(c->ctx, action, nr, 1, &cmp);

    return rc < 0 ? fail_rule(c, entry, rc) : 0;
}

static bool any_below(const struct profile_entry *entry, uint32_t mask, uint32_t prefix)
{
    for (size_t i = 0; i < entry->value_count; i++) {
        if ((entry->values[i] & mask) == prefix)
            return true;
    }
    return false;
}

/* All numbers that begin with `prefix` (in the bits of `mask`) but the entry's: halve until clean.
 */
static int add_others(struct compiler *c, const struct profile_entry *entry, int nr,
                      uint32_t action, uint32_t mask, uint32_t prefix)
{
    uint32_t bit = mask ? (mask & -mask) >> 1 : UINT32_C(1) << 31;

    if (!any_below(entry, mask, prefix))
        return add_masked(c, entry, nr, action, mask, prefix);
    if (bit == 0)
        return 0; /* all 32 bits decided: one of the values itself */
    if (add_others(c, entry, nr, action, mask | bit, prefix) < 0)
        return -1;
    return add_others(c, entry, nr, action, mask | bit, prefix | bit);
}

static int add_values(struct compiler *c, const struct profile_entry *entry, int nr,
                      uint32_t on_value, uint32_t on_other)
{
    for (size_t i = 0; i < entry->value_count; i++) {
        if (add_masked(c, entry, nr, on_value, UINT32_MAX, entry->values[i]) < 0)
            return -1;
    }
    return add_others(c, entry, nr, on_other, 0, 0);
}

static int add_no_bit(struct compiler *c, const struct profile_entry *entry, int nr)
{
    uint32_t mask = entry->values[0];

    if (add_masked(c, entry, nr, SCMP_ACT_ALLOW, mask, 0) < 0)
        return -1;
    for (uint32_t bits = mask; bits; bits &= bits - 1) {
        uint32_t bit = bits & -bits;

        if (add_masked(c, entry, nr, refused, bit, bit) < 0)
            return -1;
    }
    return 0;
}

static int add_plain(struct compiler *c, const struct profile_entry *entry, int nr, uint32_t action)
{
    int rc = action == unknown ? 0 : seccomp_rule_add_array(c->ctx, action, nr, 0, NULL);

    return rc < 0 ? fail_rule(c, entry, rc) : 0;
}

static bool is_exec(const struct profile_entry *entry)
{
    return strcmp(entry->name, "execve") == 0 || strcmp(entry->name, "execveat") == 0;
}

static uint32_t action_of(const struct profile_entry *entry, bool notify_exec)
{
    static const uint32_t actions[] = { [PROFILE_ALLOW] = SCMP_ACT_ALLOW,
                                        [PROFILE_REFUSE] = SCMP_ACT_ERRNO(EPERM),
                                        [PROFILE_ENOSYS] = SCMP_ACT_ERRNO(ENOSYS) };

    if (notify_exec && entry->action == PROFILE_ALLOW && is_exec(entry))
        return SCMP_ACT_NOTIFY;
    return actions[entry->action];
}

static int add_entry(struct compiler *c, const struct profile_entry *entry, size_t index,
                     bool notify_exec)
{
    int nr = seccomp_syscall_resolve_name(entry->name);

    if (nr == __NR_SCMP_ERROR) {
        if (entry->optional)
            return 0;
        return cove_fail(c->e, COVE_INVALID, "%s:%u:1: '%s': libseccomp knows no such syscall",
                         c->path, entry->line, entry->name);
    }
    if (c->muxed && entry->test != TEST_NONE && strcmp(entry->name, "socket") == 0)
        return add_plain(c, entry, nr, refused);
    if (c->placeholders && entry->test != TEST_NONE)
        return add_plain(c, entry, nr, SCMP_ACT_TRACE(index));
    switch (entry->test) {
    case TEST_ONE_OF:
        return add_values(c, entry, nr, SCMP_ACT_ALLOW, refused);
    case TEST_NOT:
        return add_values(c, entry, nr, refused, SCMP_ACT_ALLOW);
    case TEST_NO_BIT:
        return add_no_bit(c, entry, nr);
    case TEST_NONE:
        break;
    }
    return add_plain(c, entry, nr, action_of(entry, notify_exec));
}

/* A context for one architecture, which is added before the native one goes: it may not be empty.
 */
static int new_context(scmp_filter_ctx *ret, uint32_t arch)
{
    scmp_filter_ctx ctx = seccomp_init(unknown);
    int rc = ctx ? 0 : -ENOMEM;

    if (rc == 0)
        rc = seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH, unknown);
    if (rc == 0)
        rc = seccomp_attr_set(ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2);
    if (rc == 0 && arch != seccomp_arch_native()) {
        rc = seccomp_arch_add(ctx, arch);
        if (rc == 0)
            rc = seccomp_arch_remove(ctx, SCMP_ARCH_NATIVE);
    }
    if (rc < 0 && ctx)
        seccomp_release(ctx);
    else
        *ret = ctx;
    return rc;
}

/* libseccomp writes to a descriptor; ours is memory. */
static int export(struct compiler *c, struct sock_filter **ret, size_t *ret_count)
{
    AUTO_CLOSE int fd = memfd_create("seccomp", MFD_CLOEXEC);
    AUTO_FREE struct sock_filter *filter = NULL;
    struct stat st;
    int rc = fd < 0 ? -errno : seccomp_export_bpf(c->ctx, fd);

    if (rc < 0 || fstat(fd, &st) < 0)
        return cove_fail(c->e, COVE_INTERNAL, "%s: writing the filter: %s", c->path,
                         strerror(rc < 0 ? -rc : errno));
    if (st.st_size == 0 || (size_t)st.st_size > BPF_MAXINSNS * sizeof(*filter))
        return cove_fail(c->e, COVE_TOO_LARGE, "%s: a filter of %zu instructions, at most %d fit",
                         c->path, (size_t)st.st_size / sizeof(*filter), BPF_MAXINSNS);
    filter = malloc((size_t)st.st_size);
    if (!filter || pread(fd, filter, (size_t)st.st_size, 0) != st.st_size)
        return cove_fail(c->e, COVE_INTERNAL, "%s: reading the filter back", c->path);
    *ret = take_ptr(filter);
    *ret_count = (size_t)st.st_size / sizeof(**ret);
    return 0;
}

/* All entries for one architecture, into c->ctx. */
static int compile_arch(struct compiler *c, const struct profile *p, uint32_t arch,
                        bool notify_exec)
{
    int rc = new_context(&c->ctx, arch);

    if (rc < 0)
        return cove_fail(c->e, COVE_INTERNAL, "%s: setting up the filter: %s", c->path,
                         strerror(-rc));
    c->muxed = arch == SCMP_ARCH_X86;
    for (size_t i = 0; i < p->count; i++) {
        if (add_entry(c, &p->entries[i], i, notify_exec) < 0)
            return -1;
    }
    return 0;
}

/* One more architecture into the whole. */
static int merge_arch(struct compiler *whole, const struct profile *p, const char *name,
                      bool notify_exec)
{
    struct compiler c = { .path = whole->path, .e = whole->e, .placeholders = whole->placeholders };
    uint32_t arch = seccomp_arch_resolve_name(name);
    int rc;

    if (arch == 0)
        return cove_fail(c.e, COVE_INVALID, "%s: arch '%s': libseccomp does not know it", c.path,
                         name);
    rc = compile_arch(&c, p, arch, notify_exec);
    if (rc == 0 && (rc = seccomp_merge(whole->ctx, c.ctx)) == 0)
        return 0; /* the other context is part of ours now */
    if (c.ctx)
        seccomp_release(c.ctx);
    return rc == -1 ? -1 : cove_fail(c.e, COVE_INTERNAL, "%s: %s: %s", c.path, name, strerror(-rc));
}

static int compile(struct compiler *c, const struct profile *p, bool notify_exec,
                   struct sock_filter **ret, size_t *ret_count)
{
    if (compile_arch(c, p, seccomp_arch_native(), notify_exec) < 0)
        return -1;
    for (size_t i = 0; i < p->compat_count; i++) {
        if (merge_arch(c, p, p->compat[i], notify_exec) < 0)
            return -1;
    }
    return export(c, ret, ret_count);
}

static int compile_file(const char *path, bool notify_exec, bool packed, struct sock_filter **ret,
                        size_t *ret_count, struct cove_err *e)
{
    struct compiler c = { .path = path, .e = e, .placeholders = packed };
    struct profile p;
    int r;

    if (profile_read(path, &p, e) < 0)
        return -1;
    r = compile(&c, &p, notify_exec, ret, ret_count);
    if (r == 0 && packed && profile_pack(&p, ret, ret_count) < 0) {
        free(*ret);
        r = cove_fail(e, COVE_UNSUPPORTED, "%s: the filter cannot be packed", path);
    }
    if (c.ctx)
        seccomp_release(c.ctx);
    profile_done(&p);
    return r;
}

int seccomp_profile_compile_plain(const char *path, bool notify_exec, struct sock_filter **ret,
                                  size_t *ret_count, struct cove_err *e)
{
    return compile_file(path, notify_exec, false, ret, ret_count, e);
}

int seccomp_profile_compile(const char *path, bool notify_exec, struct sock_filter **ret,
                            size_t *ret_count, struct cove_err *e)
{
    if (compile_file(path, notify_exec, true, ret, ret_count, e) == 0)
        return 0;
    if (e && e->code != COVE_UNSUPPORTED)
        return -1;
    return seccomp_profile_compile_plain(path, notify_exec, ret, ret_count, e);
}

/* --- for people ---------------------------------------------------------------------------------
 */

static int by_name(const void *a, const void *b)
{
    const struct profile_entry *x = a, *y = b;

    return strcmp(x->name, y->name);
}

int seccomp_profile_list(const char *path, seccomp_line_fn fn, void *ctx, struct cove_err *e)
{
    static const char *const actions[] = { "allow", "refuse", "enosys" };
    struct profile p;

    if (profile_read(path, &p, e) < 0)
        return -1;
    qsort(p.entries, p.count, sizeof(*p.entries), by_name);
    for (size_t i = 0; i < p.count; i++) {
        const struct profile_entry *entry = &p.entries[i];

        fn(ctx, &(struct seccomp_line){ entry->name, actions[entry->action], entry->condition });
    }
    profile_done(&p);
    return 0;
}

int seccomp_profile_find(const char *name, const char *dir, char *ret, size_t ret_size,
                         struct cove_err *e)
{
    const char *const dirs[] = { dir, COVE_SYSCONFDIR "/profiles", COVE_DATADIR "/profiles" };

    if (name[0] == '.' || strchr(name, '/'))
        return cove_fail(e, COVE_INVALID, "seccomp profile '%s': not a name", name);
    for (size_t i = 0; i < ARRAY_SIZE(dirs); i++) {
        if (!dirs[i] || snprintf(ret, ret_size, "%s/%s.conf", dirs[i], name) >= (int)ret_size)
            continue;
        if (access(ret, R_OK) == 0)
            return 0;
    }
    return cove_fail(e, COVE_NOT_FOUND, "seccomp profile '%s': no such file %s/%s.conf", name,
                     dirs[2], name);
}
