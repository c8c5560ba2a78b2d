/* Tags: NAME:TAG is one of a template's builds. */
#include <string.h>

#include "fcgi/dialects/e2b_templates.h"

enum { TAGS_MAX = 32 };

/* ------------------------------------------------------------------ told */

struct listing {
    struct request *req;
    const char *name;
    struct json_writer w;
    bool found;
};

struct tag {
    const char *tag, *build;
    uint64_t created_unix_ms;
};

static const struct json_field tag_fields[] = {
    JSON_STR(struct tag, tag, "tag", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct tag, build, "buildID", JSON_REQUIRED, JSON_ANY),
    JSON_TIME(struct tag, created_unix_ms, "createdAt", JSON_REQUIRED),
    JSON_END,
};

static int put_tags(void *arg, const struct keeper_snapshot *s)
{
    struct listing *l = arg;
    char *rest, *tag;

    if (strcmp(s->name, l->name) != 0)
        return 0;
    l->found = true;
    rest = arena_strdup(&l->req->arena, s->tags);
    while ((tag = strsep(&rest, " ")))
        json_put_object(&l->w, NULL, tag_fields,
                        &(struct tag){ tag, e2b_build_id(l->req, s), s->created_unix_ms });
    return 0;
}

int e2b_tag_list(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct listing l = { .req = req };
    int rc;

    req->note.operation = "tags";
    if (e2b_template_name(req, &l.name, e) < 0)
        return -1;
    json_writer_init(&l.w, &rep->body);
    json_open(&l.w, NULL, '[');
    rc = core_snapshot_list(req->core, req->tenant, put_tags, &l, e);
    json_close(&l.w, ']');
    if (rc == 0 && !l.found)
        rc = cove_fail(e, COVE_NOT_FOUND, "template '%.60s' not found", l.name);
    return rc;
}

/* ------------------------------------------------------------------ given and taken */

struct tag_args {
    const char *target, *name;
    struct json_strings tags;
};

static const struct json_field give_fields[] = {
    JSON_STR(struct tag_args, target, "target", JSON_REQUIRED, COVE_TEMPLATE_MAX + 64),
    JSON_STR_ARRAY(struct tag_args, tags, "tags", JSON_REQUIRED, TAGS_MAX, COVE_TAG_MAX),
    JSON_END,
};

static const struct json_field take_fields[] = {
    JSON_STR(struct tag_args, name, "name", JSON_REQUIRED, COVE_TEMPLATE_MAX + 64),
    JSON_STR_ARRAY(struct tag_args, tags, "tags", JSON_REQUIRED, TAGS_MAX, COVE_TAG_MAX),
    JSON_END,
};

static int check_tags(const struct json_strings *tags, bool taken, struct cove_err *e)
{
    if (tags->count == 0)
        return cove_fail(e, COVE_INVALID, "tags: must not be empty");
    for (size_t i = 0; i < tags->count; i++) {
        if (e2b_check_tag("tags", tags->items[i], e) < 0)
            return -1;
        if (taken && strcmp(tags->items[i], COVE_TAG_DEFAULT) == 0)
            return cove_fail(e, COVE_INVALID, "tags: the tag 'default' cannot be removed");
    }
    return 0;
}

/* A template of another tenant is not there; what it is called in the field is otherwise checked as a new name would be. */
static int split_own(struct request *req, const char *field, const char *given,
                     const char **ret_name, const char **ret_tag, struct cove_err *e)
{
    if (strchr(core_template_word(req->tenant, given), '/'))
        return cove_fail(e, COVE_NOT_FOUND, "template '%.60s' not found", given);
    return e2b_template_split(req, field, given, ret_name, ret_tag, e);
}

struct given {
    const char *build;
    struct json_strings tags;
};

static const struct json_field given_fields[] = {
    JSON_STR(struct given, build, "buildID", JSON_REQUIRED, JSON_ANY),
    JSON_STR_ARRAY(struct given, tags, "tags", JSON_REQUIRED, JSON_ANY, JSON_ANY),
    JSON_END,
};

int e2b_tag_give(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct keeper_snapshot found, tagged;
    struct tag_args args = { 0 };
    const char *name, *tag;

    req->note.operation = "give_tags";
    if (request_json(req, give_fields, &args, e) < 0 || check_tags(&args.tags, false, e) < 0 ||
        split_own(req, "target", args.target, &name, &tag, e) < 0)
        return -1;
    if (core_snapshot_find(req->core, req->tenant, args.target, &found, e) < 0)
        return e->code == COVE_NOT_FOUND
                   ? cove_fail(e, COVE_NOT_FOUND, "template '%.60s' not found", args.target)
                   : -1;
    for (size_t i = 0; i < args.tags.count; i++)
        if (core_snapshot_tag(req->core, req->tenant, found.id, name, args.tags.items[i], &tagged,
                              e) < 0)
            return -1;
    rep->status = 201;
    reply_json(rep, given_fields, &(struct given){ e2b_build_id(req, &found), args.tags });
    return 0;
}

int e2b_tag_take(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct keeper_snapshot tagged;
    struct tag_args args = { 0 };
    const char *name, *tag;

    req->note.operation = "take_tags";
    if (request_json(req, take_fields, &args, e) < 0 || check_tags(&args.tags, true, e) < 0 ||
        split_own(req, "name", args.name, &name, &tag, e) < 0)
        return -1;
    for (size_t i = 0; i < args.tags.count; i++)
        if (core_snapshot_tag(req->core, req->tenant, NULL, name, args.tags.items[i], &tagged, e) <
            0)
            return -1;
    rep->status = 204;
    return 0;
}
