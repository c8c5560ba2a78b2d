/*
 * Landlock, a second barrier against what seccomp and capabilities refuse already. One domain is
 * laid around init and with it around all that it ever starts. Whatever it handles, a domain also
 * forbids every change of the mount tree (mount, pivot_root, move_mount, ...) and every ptrace of
 * what is outside, also to those who have the capabilities for it.
 *
 * Handled: device nodes cannot be made. Moving files between folders (REFER) is denied by every
 * domain that does not say otherwise, so it is handled only to be allowed below /. On a kernel
 * without Landlock this barrier is missing.
 */
#include "config.h" /* _GNU_SOURCE */

#include <fcntl.h>
#include <linux/landlock.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cove/weak.h"
#include "sandbox/init/init_private.h"

/* Newer than Debian 12's headers. */
enum { ABI_REFER = 2, ABI_SCOPES = 6 };

struct ruleset { /* struct landlock_ruleset_attr as of ABI 6 */
    uint64_t handled_fs, handled_net, scoped;
};

#define REFER        (1ULL << 13)
#define SCOPE_SOCKET (1ULL << 0) /* abstract unix sockets */
#define SCOPE_SIGNAL (1ULL << 1)

static int make_ruleset(long abi)
{
    struct ruleset r = {
        .handled_fs = LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_BLOCK | REFER,
        .scoped = abi >= ABI_SCOPES ? SCOPE_SOCKET | SCOPE_SIGNAL : 0,
    };
    size_t known = abi >= ABI_SCOPES ? sizeof(r) : sizeof(r.handled_fs);

    return (int)syscall(SYS_landlock_create_ruleset, &r, known, 0);
}

static int allow_refer(int ruleset, struct cove_err *e)
{
    struct landlock_path_beneath_attr below = { .allowed_access = REFER };
    AUTO_CLOSE int root = open("/", O_PATH | O_CLOEXEC);

    below.parent_fd = root;
    if (root < 0 ||
        syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &below, 0) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "landlock rule");
    return 0;
}

int landlock_setup(struct cove_err *e)
{
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    AUTO_CLOSE int ruleset = -1;

    if (abi < ABI_REFER || weak("landlock"))
        return 0; /* before REFER a domain would forbid ordinary renames */
    ruleset = make_ruleset(abi);
    if (ruleset < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "landlock");
    if (allow_refer(ruleset, e) < 0)
        return -1;
    if (syscall(SYS_landlock_restrict_self, ruleset, 0) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "landlock");
    return 0;
}
