/* Whose the files of an instance are, and who may read and write them. */
#include <errno.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/doctor.h"
#include "cove/mem.h"

struct expectation {
    const char *path;
    mode_t forbidden; /* bits that must not be set */
    mode_t wanted;    /* bits that must be set */
    const char *mend; /* chmod's word */
    const char *why;
};

/* Returns true if something is wrong. */
static bool look_at(const struct expectation *x, struct diagnosis *d)
{
    struct stat st;

    if (lstat(x->path, &st) < 0) {
        if (errno == ENOENT)
            return false; /* another check reports a missing file */
        found(d, FOUND_BROKEN, "%.200s: %.40s", x->path, strerror(errno));
        return true;
    }
    if (geteuid() == 0 && st.st_uid != 0) {
        found(d, FOUND_BROKEN, "%.160s belongs to uid %u, not to root", x->path, st.st_uid);
        fix(d, "chown root %.200s", x->path);
        return true;
    }
    if (!(st.st_mode & x->forbidden) && (st.st_mode & x->wanted) == x->wanted)
        return false;
    found(d, FOUND_BROKEN, "%.140s has mode %04o: %s", x->path, st.st_mode & 07777, x->why);
    fix(d, "chmod %s %.200s", x->mend, x->path);
    return true;
}

static void look_files(const struct patient *p, struct diagnosis *d)
{
    const struct cove_config *c = &p->config;
    char secret[600], published[160];
    const struct expectation expectations[] = {
        { c->keys_file, 0077, 0, "600", "others can read or change who may call" },
        { c->state_dir, 0022, 0, "755", "others can add files to sandboxes" },
        { c->run_dir, 0022, 0, "755", "others can replace its sockets" },
        { c->policy_file, 0022, 0, "644", "others can change what may run" },
        { cli_config_path(), 0022, 0, "644", "others can change what root runs" },
        { c->audit_file, 0027, 0, "640", "others can read or change the audit log" },
        { secret, 0077, 0, "600", "others can make tokens of every sandbox" },
        { published, 0007, 0, "o=", "others can read the hashes of keys" },
    };

    snprintf(secret, sizeof(secret), "%s/token-secret", c->state_dir);
    snprintf(published, sizeof(published), "%s/keys", c->run_dir);
    for (size_t i = 0; i < ARRAY_SIZE(expectations); i++) {
        if (expectations[i].path[0] && look_at(&expectations[i], d))
            return;
    }
    found(d, FOUND_OK, "owners and modes of %zu files and folders", ARRAY_SIZE(expectations));
}

/* A process that can connect to the workers' socket can claim to be any tenant: only nginx's group may. */
static void look_socket(const struct patient *p, struct diagnosis *d)
{
    const char *group = p->config.socket_group;
    const struct group *g = getgrnam(group);
    gid_t gid = g ? g->gr_gid : (gid_t)strtoul(group, NULL, 10);
    char path[160];
    struct stat st;

    snprintf(path, sizeof(path), "%s/fcgi.sock", p->config.run_dir);
    if (stat(path, &st) < 0 || !S_ISSOCK(st.st_mode)) {
        found(d, FOUND_BROKEN, "%s is not there for nginx to connect to", path);
        fix(d, "start coved");
    } else if ((st.st_mode & 0777) != 0660) {
        found(d, FOUND_BROKEN, "%s has mode %04o, not 0660: %s", path, st.st_mode & 0777,
              st.st_mode & 0006 ? "any user can claim to be any tenant" : "nginx cannot connect");
        fix(d, "chmod 660 %s", path);
    } else if (st.st_gid != gid) {
        found(d, FOUND_BROKEN, "%s belongs to group %u, not to %s", path, st.st_gid, group);
        fix(d, "chgrp %s %s, or restart coved", group, path);
    } else {
        found(d, FOUND_OK, "%s is open to group %s", path, group);
    }
}

const struct doctor_check file_checks[] = {
    { "files", look_files },
    { "socket", look_socket },
    { NULL },
};
