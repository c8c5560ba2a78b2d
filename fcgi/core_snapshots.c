#include "fcgi/core_snapshots.h"

#include <string.h>

#include "cove/text.h"
#include "fcgi/caller.h"

const char *core_template_word(const char *tenant, const char *word)
{
    size_t len = strlen(tenant);

    return strncmp(word, tenant, len) == 0 && word[len] == '/' ? word + len + 1 : word;
}

static int split_name(const char *name, struct keeper_capture *ret, struct cove_err *e)
{
    size_t len = strcspn(name, ":");

    if (len >= sizeof(ret->name) ||
        (name[len] && !text_copy(ret->tag, sizeof(ret->tag), name + len + 1)))
        return cove_fail(e, COVE_INVALID, "name: '%.60s…' is too long", name);
    memcpy(ret->name, name, len);
    return 0;
}

static int capture(struct core *c, const struct box_info *box, const char *name, uint32_t flags,
                   struct keeper_snapshot *ret, struct cove_err *e)
{
    struct keeper_capture args = { .flags = flags };

    if (caller_may_box(c, box, e) < 0)
        return -1;
    text_copy(args.tenant, sizeof(args.tenant), box->tenant);
    text_copy(args.id, sizeof(args.id), box->id);
    if (name && split_name(core_template_word(box->tenant, name), &args, e) < 0)
        return -1;
    return keeper_capture(&c->keeper, &args, ret, e);
}

int core_snapshot_make(struct core *c, const struct box_info *box, const char *name,
                       struct keeper_snapshot *ret, struct cove_err *e)
{
    return capture(c, box, name, 0, ret, e);
}

/* Snapshots belong to the whole tenant: a key that is limited to some projects, or a sandbox's token, may
 * not touch them. */
static int may_all(struct core *c, struct cove_err *e)
{
    return caller_may_project(c, "", e);
}

int core_snapshot_list(struct core *c, const char *tenant, keeper_snapshot_fn each, void *arg,
                       struct cove_err *e)
{
    if (may_all(c, e) < 0)
        return -1;
    return keeper_snapshots(&c->keeper, tenant, each, arg, e);
}

int core_snapshot_find(struct core *c, const char *tenant, const char *word,
                       struct keeper_snapshot *ret, struct cove_err *e)
{
    int rc = may_all(c, e);

    if (rc == 0)
        rc = keeper_snapshot_find(&c->keeper, tenant, core_template_word(tenant, word), ret, e);
    if (rc == 0)
        return cove_fail(e, COVE_NOT_FOUND, "no snapshot '%.60s'", word);
    return rc < 0 ? -1 : 0;
}

int core_snapshot_remove(struct core *c, const char *tenant, const char *word, struct cove_err *e)
{
    struct keeper_snapshot_name args = { 0 };

    if (may_all(c, e) < 0)
        return -1;
    text_copy(args.tenant, sizeof(args.tenant), tenant);
    if (!*word || !text_copy(args.name, sizeof(args.name), core_template_word(tenant, word)))
        return cove_fail(e, COVE_NOT_FOUND, "no snapshot '%.60s'", word);
    return keeper_snapshot_remove(&c->keeper, &args, e);
}

int core_snapshot_tag(struct core *c, const char *tenant, const char *which, const char *name,
                      const char *tag, struct keeper_snapshot *ret, struct cove_err *e)
{
    struct keeper_snapshot_tag args = { .remove = which == NULL };

    if (may_all(c, e) < 0)
        return -1;
    text_copy(args.tenant, sizeof(args.tenant), tenant);
    if ((which && !text_copy(args.which, sizeof(args.which), which)) ||
        !text_copy(args.name, sizeof(args.name), name) ||
        !text_copy(args.tag, sizeof(args.tag), tag))
        return cove_fail(e, COVE_INVALID, "a name or a tag is too long");
    return keeper_snapshot_tag(&c->keeper, &args, ret, e);
}

int core_sandbox_fork(struct core *c, const struct box_info *box, const struct core_new *args,
                      unsigned count, struct box_info *ret, struct cove_err *e)
{
    struct core_new each = *args;
    struct keeper_snapshot snapshot;
    unsigned made = 0;

    if (count < 1 || count > CORE_FORKS_MAX)
        return cove_fail(e, COVE_INVALID, "count: %u is not between 1 and %d", count,
                         CORE_FORKS_MAX);
    if (capture(c, box, NULL, CAPTURE_PASSING, &snapshot, e) < 0)
        return -1;
    each.tenant = box->tenant;
    each.template = snapshot.id;
    while (made < count && core_sandbox_create(c, &each, &ret[made], e) == 0)
        made++;
    return made > 0 ? (int)made : -1;
}
