/* The directory of saved sandboxes, as `cove store` reads it: one entry for each. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/store.h"
#include "cove/mem.h"
#include "cove/saved.h"
#include "cove/text.h"

int store_place_open(struct store_place *p, struct cove_err *e)
{
    char path[640];

    p->dir = p->state_dir = -1;
    if (geteuid() != 0)
        return cove_fail(e, COVE_INVALID,
                         "saved sandboxes belong to root: run this command as root");
    if (cli_config(&p->config, e) < 0)
        return -1;
    p->state_dir = open(p->config.state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    snprintf(path, sizeof(path), "%s/" SAVED_DIR, p->config.state_dir);
    p->dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return p->dir < 0 ? cove_fail_errno(e, COVE_NOT_FOUND, "%s", path) : 0;
}

void store_entry_read(const struct store_place *p, const char *name, struct store_entry *ret)
{
    AUTO_CLOSE int dir = openat(p->dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    *ret = (struct store_entry){ .name = name };
    ret->place = dir >= 0 ? saved_place_of(dir) : SAVED_IS_HERE;
    ret->whole = text_is_id(name) && dir >= 0 && saved_read(dir, &ret->info, &ret->why) == 0;
}

int store_entries_each(struct store_place *p, store_entry_fn fn, void *arg, struct cove_err *e)
{
    int fd = openat(p->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc = 0;
    DIR *all = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *d;

    if (!all)
        return cove_fail_errno(e, COVE_INTERNAL, "reading the store");
    while (rc == 0 && (d = readdir(all))) {
        struct store_entry entry;

        if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0 ||
            strncmp(d->d_name, SAVED_GONE, strlen(SAVED_GONE)) == 0) /* the keeper removes these */
            continue;
        store_entry_read(p, d->d_name, &entry);
        rc = fn(p, &entry, arg, e);
    }
    closedir(all);
    return rc;
}

int store_entry_find(struct store_place *p, const char *id, struct saved_info *ret,
                     struct cove_err *e)
{
    struct store_entry entry;

    if (!text_is_id(id))
        return cove_fail(e, COVE_INVALID,
                         "'%.40s' is not the id of a sandbox (`cove store ls` shows them)", id);
    store_entry_read(p, id, &entry);
    if (!entry.whole)
        return cove_fail(e, COVE_NOT_FOUND, "no saved sandbox '%s'%s%s", id,
                         entry.why.msg[0] ? ": " : "", entry.why.msg);
    *ret = entry.info;
    return 0;
}

bool store_is_in_bucket(const struct store_place *p, const char *id)
{
    struct store_entry entry;

    store_entry_read(p, id, &entry);
    return entry.place >= SAVED_IS_OURS;
}

bool store_is_elsewhere(const struct store_place *p, const char *id)
{
    return p->config.store_bucket[0] && text_is_id(id) &&
           faccessat(p->dir, id, F_OK, AT_SYMLINK_NOFOLLOW) < 0;
}
