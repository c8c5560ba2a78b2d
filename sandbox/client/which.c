/* Which sandbox is meant: see cove/which.h. */
#include "cove/which.h"

#include <string.h>

const char *which_id(const char *name)
{
    size_t word = strspn(name, "abcdefghijklmnopqrstuvwxyz");

    if (text_is_id(name))
        return name;
    if (word > 0 && (name[word] == '_' || name[word] == '-') && text_is_id(name + word + 1))
        return name + word + 1;
    return NULL;
}

static bool find_id(const struct state *s, const char *tenant, const char *id, struct which *ret)
{
    if (tenant)
        return state_find_id(s, tenant, id, &ret->index, &ret->box);
    return state_find_id_any(s, id, &ret->index, &ret->box) && ret->box.tenant[0];
}

static bool find_project(const struct state *s, const char *tenant, const char *name,
                         struct which *ret)
{
    return state_find_project(s, tenant, name, &ret->index, &ret->box);
}

typedef bool (*find_fn)(const struct state *s, const char *tenant, const char *name,
                        struct which *ret);

/* Looks among living sandboxes, then among saved ones. A sandbox that is woken appears among the living
 * before it leaves the saved, so if it is found in neither, the first look came too early and is repeated. */
static enum which_where find(const struct state *s, const char *tenant, const char *name,
                             find_fn find_in, struct which *ret)
{
    const struct state *saved = state_saved(s);

    if (find_in(s, tenant, name, ret))
        return ret->where = WHICH_HERE;
    if (saved && find_in(saved, tenant, name, ret))
        return ret->where = WHICH_SAVED;
    if (saved && find_in(s, tenant, name, ret))
        return ret->where = WHICH_HERE;
    ret->box = (struct box_info){ 0 };
    return ret->where = WHICH_NONE;
}

enum which_where which_sandbox_id(const struct state *s, const char *tenant, const char *name,
                                  struct which *ret)
{
    const char *id = which_id(name);

    *ret = (struct which){ .where = WHICH_NONE };
    if (!s || !id || find(s, tenant, id, find_id, ret) == WHICH_NONE)
        return WHICH_NONE;
    ret->by_id = true;
    return ret->where;
}

enum which_where which_sandbox(const struct state *s, const char *tenant, const char *name,
                               struct which *ret)
{
    if (which_sandbox_id(s, tenant, name, ret) != WHICH_NONE || !s || !tenant)
        return ret->where;
    return find(s, tenant, name, find_project, ret);
}

bool which_ended_id(const struct state *s, const char *tenant, const char *name,
                    struct box_info *ret)
{
    const struct state *ended = s ? state_ended(s) : NULL;
    const char *id = which_id(name);
    uint32_t index;

    return ended && id && state_find_id(ended, tenant, id, &index, ret);
}

bool which_ended_project(const struct state *s, const char *tenant, const char *project,
                         struct box_info *ret)
{
    const struct state *ended = s ? state_ended(s) : NULL;
    uint32_t index;

    return ended && state_find_project(ended, tenant, project, &index, ret);
}
