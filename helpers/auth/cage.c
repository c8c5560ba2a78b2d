/*
 * Which files PAM modules may read: accounts, the modules and their settings, and what finding a
 * directory server takes. Keys, configuration and sandboxes of ours lie elsewhere in /etc, /run and
 * /var/lib, and are closed even though this process is root. `pam_paths` in cove.conf adds what an
 * operator's own modules need.
 *
 * Landlock knows files by their inode, and a changed password is a new /etc/shadow. So each
 * conversation looks the files up anew, in its own process; cove-auth itself could not.
 */
#include "helpers/auth/cage.h"

#include <string.h>

#include "cove/mem.h"
#include "process/confine.h"

static const char *const readable[] = {
    /* accounts */
    "/etc/passwd",
    "/etc/group",
    "/etc/shadow",
    "/etc/gshadow",
    "/etc/nsswitch.conf",
    "/etc/login.defs",
    "/etc/shells",
    "/etc/nologin",
    "/run/nologin",
    "/var/lib/extrausers",
    "/var/lib/sss",
    "/run/nscd",
    /* PAM and its modules */
    "/etc/pam.d",
    "/etc/pam.conf",
    "/etc/security",
    "/etc/environment",
    "/etc/default",
    "/etc/selinux",
    "/etc/ld.so.cache",
    "/etc/ld.so.preload",
    "/usr",
    "/lib",
    "/lib64",
    "/proc/self",
    "/dev/null",
    "/dev/urandom",
    "/etc/localtime",
    /* directory servers */
    "/etc/hosts",
    "/etc/host.conf",
    "/etc/resolv.conf",
    "/etc/gai.conf",
    "/etc/ldap",
    "/etc/ldap.conf",
    "/etc/nslcd.conf",
    "/etc/krb5.conf",
    "/etc/krb5.conf.d",
    "/etc/krb5.keytab",
    "/etc/ssl",
};

static int add_path(struct confine_paths *paths, size_t *count, const char *path,
                    struct cove_err *e)
{
    if (*count + 1 >= CONFINE_PATHS_MAX)
        return cove_fail(e, COVE_INVALID, "pam_paths: more than %zu paths",
                         CONFINE_PATHS_MAX - 2 - ARRAY_SIZE(readable));
    paths->readable[(*count)++] = path;
    return 0;
}

int cage_conversation(const struct cove_config *c, struct cove_err *e)
{
    struct confine_paths paths = { .writable = { "/run/faillock", "/dev/null" },
                                   .runnable = { "/usr" } };
    char more[sizeof(c->pam_paths)], *at = more, *word;
    size_t count = 0;

    for (size_t i = 0; i < ARRAY_SIZE(readable); i++)
        paths.readable[count++] = readable[i];
    paths.readable[count++] = c->pam_dir;
    memcpy(more, c->pam_paths, sizeof(more));
    while ((word = strsep(&at, " ,")))
        if (*word && add_path(&paths, &count, word, e) < 0)
            return -1;
    return confine_files(&paths, e);
}
