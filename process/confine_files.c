/*
 * Landlock for workers and the judge: of the host's files they read what is published for them in
 * run_dir, and what libraries look up in /etc and /usr; all else (state_dir with the sandboxes'
 * files, /home, /var, other programs' sockets' folders) is closed even where its permissions would
 * allow it. Nothing can be written, made or executed. A kernel without Landlock leaves the seccomp
 * filter alone.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cove/mem.h"
#include "process/confine.h"

#define READ_ONLY    (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
#define ALL_OF_ABI_1 ((LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1)

static int allow_reading(int ruleset, const char *path, struct cove_err *e)
{
    struct landlock_path_beneath_attr below = { .allowed_access = READ_ONLY };
    AUTO_CLOSE int dir = open(path, O_PATH | O_CLOEXEC);

    if (dir < 0 && errno == ENOENT)
        return 0;
    below.parent_fd = dir;
    if (dir < 0 ||
        syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &below, 0) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "landlock: %s", path);
    return 0;
}

int confine_files(const char *run_dir, struct cove_err *e)
{
    const char *const readable[] = { run_dir, "/etc", "/usr" };
    struct landlock_ruleset_attr attr = { .handled_access_fs = ALL_OF_ABI_1 };
    AUTO_CLOSE int ruleset = (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof(attr), 0);

    if (ruleset < 0 && (errno == ENOSYS || errno == EOPNOTSUPP))
        return 0;
    if (ruleset < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "landlock");
    for (size_t i = 0; run_dir && i < ARRAY_SIZE(readable); i++)
        if (allow_reading(ruleset, readable[i], e) < 0)
            return -1;
    if (syscall(SYS_landlock_restrict_self, ruleset, 0) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "landlock");
    return 0;
}
