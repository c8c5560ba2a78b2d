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

enum which_where which_sandbox_id(const struct state *s, const char *tenant, const char *name,
                                  struct which *ret)
{
    const char *id = which_id(name);

    *ret = (struct which){ .where = WHICH_NONE };
    if (s && id && find_id(s, tenant, id, ret)) {
        ret->where = WHICH_HERE;
        ret->by_id = true;
    } else {
        ret->box = (struct box_info){ 0 };
    }
    return ret->where;
}

enum which_where which_sandbox(const struct state *s, const char *tenant, const char *name,
                               struct which *ret)
{
    if (which_sandbox_id(s, tenant, name, ret) == WHICH_HERE || !s || !tenant)
        return ret->where;
    if (state_find_project(s, tenant, name, &ret->index, &ret->box))
        ret->where = WHICH_HERE;
    else
        ret->box = (struct box_info){ 0 };
    return ret->where;
}
