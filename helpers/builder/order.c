#include <string.h>

#include "cove/mem.h"
#include "cove/msg.h"
#include "helpers/builder/builder_private.h"

static int set_once(const char **member, const char *value, struct cove_err *e)
{
    if (*member)
        return cove_fail(e, COVE_INVALID, "is given twice");
    *member = value;
    return 0;
}

static const char **member_of(struct build_order *o, const char *key)
{
    const struct {
        const char *key;
        const char **member;
    } rows[] = {
        { "from-template", &o->from_template },
        { "from-image", &o->from_image },
        { "registry-user", &o->registry_user },
        { "registry-password", &o->registry_password },
        { "start", &o->start },
        { "ready", &o->ready },
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        if (strcmp(rows[i].key, key) == 0)
            return rows[i].member;
    return NULL;
}

static int begin_step(struct build_order *o, const char *kind, struct cove_err *e)
{
    if (o->step_count == BUILD_STEPS_MAX)
        return cove_fail(e, COVE_TOO_LARGE, "more than %d steps", BUILD_STEPS_MAX);
    o->steps[o->step_count++] = (struct build_step){ .kind = kind };
    return 0;
}

static int set_in_step(struct build_step *s, const char *key, const char *value, struct cove_err *e)
{
    if (strcmp(key, "arg") == 0 && s->arg_count == ARGS_MAX)
        return cove_fail(e, COVE_TOO_LARGE, "more than %d arguments", ARGS_MAX);
    if (strcmp(key, "arg") == 0)
        s->args[s->arg_count++] = value;
    else if (strcmp(key, "files") == 0)
        return set_once(&s->files, value, e);
    else if (strcmp(key, "again") == 0)
        s->again = true;
    else
        return cove_fail(e, COVE_INVALID, "no such key");
    return 0;
}

static int set_pair(struct build_order *o, const char *key, const char *value, struct cove_err *e)
{
    const char **member = member_of(o, key);
    int rc = 0;

    if (member)
        rc = set_once(member, value, e);
    else if (strcmp(key, "force") == 0)
        o->force = true;
    else if (strcmp(key, "step") == 0)
        rc = begin_step(o, value, e);
    else if (o->step_count > 0)
        rc = set_in_step(&o->steps[o->step_count - 1], key, value, e);
    else
        rc = cove_fail(e, COVE_INVALID, "no such key");
    return rc < 0 ? cove_context(e, "%.40s", key) : 0;
}

int order_parse(char *text, size_t len, struct build_order *ret, struct cove_err *e)
{
    struct build_order o = { .text = text,
                             .steps = calloc(BUILD_STEPS_MAX, sizeof(struct build_step)) };
    const char *at = text, *end = text + len, *key, *value;
    int rc = 0;

    if (!o.steps)
        abort();
    while (rc == 0 && (key = msg_next_str(&at, end))) {
        value = msg_next_str(&at, end);
        rc = value ? set_pair(&o, key, value, e)
                   : cove_fail(e, COVE_INVALID, "the order is cut off");
    }
    if (rc == 0 && !o.from_template == !o.from_image)
        rc = cove_fail(e, COVE_INVALID,
                       "a build begins with a template or an image, one of the two");
    if (rc < 0)
        order_done(&o);
    else
        *ret = o;
    return rc;
}

void order_done(struct build_order *o)
{
    free(o->text);
    free(o->steps);
    *o = (struct build_order){ 0 };
}
