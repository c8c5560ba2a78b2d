/*
 * Landlock: a process of ours reads (and, if its row says so, writes) only the host's files that are
 * named; all others (state_dir with the sandboxes' files, /home, other programs' folders) are closed even
 * where their permissions would allow it. On a kernel without Landlock only the seccomp filter is left.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cove/mem.h"
#include "process/confine.h"

#define ALL_OF_ABI_1 ((LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1)
#define READ_FILE    LANDLOCK_ACCESS_FS_READ_FILE
#define READ_ALL     (READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
#define WRITE_FILE   (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE)
#define WRITE_ALL                                                                                  \
    (WRITE_FILE | LANDLOCK_ACCESS_FS_READ_DIR | LANDLOCK_ACCESS_FS_MAKE_REG |                      \
     LANDLOCK_ACCESS_FS_REMOVE_FILE)

/* Rights that only directories have are refused for a file. */
static int allow(int ruleset, const char *path, uint64_t file_rights, uint64_t dir_rights,
                 struct cove_err *e)
{
    struct landlock_path_beneath_attr below;
    AUTO_CLOSE int fd = open(path, O_PATH | O_CLOEXEC);
    struct stat st;

    if (fd < 0 && errno == ENOENT)
        return 0;
    if (fd < 0 || fstat(fd, &st) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "landlock: %s", path);
    below = (struct landlock_path_beneath_attr){
        .allowed_access = S_ISDIR(st.st_mode) ? dir_rights : file_rights,
        .parent_fd = fd,
    };
    if (syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &below, 0) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "landlock: %s", path);
    return 0;
}

static int allow_all(int ruleset, const char *const *paths, uint64_t file_rights,
                     uint64_t dir_rights, struct cove_err *e)
{
    for (size_t i = 0; i < CONFINE_PATHS_MAX && paths[i]; i++)
        if (allow(ruleset, paths[i], file_rights, dir_rights, e) < 0)
            return -1;
    return 0;
}

int confine_files(const struct confine_paths *paths, struct cove_err *e)
{
    struct landlock_ruleset_attr attr = { .handled_access_fs = ALL_OF_ABI_1 };
    AUTO_CLOSE int ruleset = (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof(attr), 0);

    if (ruleset < 0 && (errno == ENOSYS || errno == EOPNOTSUPP))
        return 0;
    if (ruleset < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "landlock");
    if (allow_all(ruleset, paths->readable, READ_FILE, READ_ALL, e) < 0 ||
        allow_all(ruleset, paths->writable, WRITE_FILE, WRITE_ALL, e) < 0 ||
        allow_all(ruleset, paths->runnable, LANDLOCK_ACCESS_FS_EXECUTE, LANDLOCK_ACCESS_FS_EXECUTE,
                  e) < 0)
        return -1;
    if (syscall(SYS_landlock_restrict_self, ruleset, 0) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "landlock");
    return 0;
}
