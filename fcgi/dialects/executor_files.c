/* Files and directories, as JSON. Large ones and those that are no text: executor_raw.c, or
 * "encoding": "base64". */
#include <stdlib.h>
#include <string.h>

#include "fcgi/check.h"
#include "fcgi/dialects/executor.h"

enum { ENTRIES_MAX = 100000 };

struct file_args {
    const char *path;
    struct json_text content;
    const char *encoding;
    bool base64; /* what `encoding` says */
    bool parents;
};

#define ANY_LENGTH (SIZE_MAX / 2) /* the body's own limit holds */

static const struct json_field path_fields[] = {
    JSON_STR(struct file_args, path, "path", JSON_REQUIRED, MSG_PATH_MAX - 1),
    JSON_STR(struct file_args, encoding, "encoding", JSON_OPTIONAL, 16),
    JSON_END,
};

static const struct json_field write_fields[] = {
    JSON_TEXT(struct file_args, content, "content", JSON_REQUIRED, ANY_LENGTH),
    JSON_BOOL(struct file_args, parents, "parents", JSON_OPTIONAL),
    JSON_END,
};

static int decode_path(struct request *req, struct file_args *ret, struct cove_err *e)
{
    *ret = (struct file_args){ 0 };
    if (request_json(req, path_fields, ret, e) < 0)
        return -1;
    if (!*ret->path)
        return cove_fail(e, COVE_INVALID, "path: must not be empty");
    return check_encoding(ret->encoding, &ret->base64, e);
}

static int reply_success(struct reply *rep)
{
    return executor_reply(rep, &(struct executor_result){ .success = true });
}

/* ------------------------------------------------------------------ /write_file */

int executor_write_file(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct core_session session;
    struct file_args args;
    int rc;

    req->note.operation = "write_file";
    if (decode_path(req, &args, e) < 0 || request_json(req, write_fields, &args, e) < 0)
        return -1;
    if ((args.base64 && check_base64(&req->arena, "content", &args.content, e) < 0) ||
        executor_open(req, &session, e) < 0)
        return -1;
    rc = core_file_put(&session, core_default_user(&session), args.path, args.parents,
                       args.content.bytes, args.content.len, e);
    core_session_close(&session);
    return rc < 0 ? executor_fail(e) : reply_success(rep);
}

/* ------------------------------------------------------------------ /read_file */

struct file_content {
    struct json_text content;
    const char *encoding;
};

static const struct json_field content_fields[] = {
    JSON_TEXT(struct file_content, content, "content", JSON_REQUIRED, JSON_ANY),
    JSON_END,
};

static const struct json_field content_base64_fields[] = {
    JSON_BYTES(struct file_content, content, "content", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct file_content, encoding, "encoding", JSON_REQUIRED, JSON_ANY),
    JSON_END,
};

int executor_read_file(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct core_session session;
    struct file_args args;
    struct buf content;
    int rc;

    req->note.operation = "read_file";
    if (decode_path(req, &args, e) < 0 || executor_open(req, &session, e) < 0)
        return -1;
    buf_init_within(&content, session.limits.output_max_bytes, req->core->bytes);
    rc = core_file_read(&session, core_default_user(&session), args.path, &content, e);
    core_session_close(&session);
    if (rc == 0)
        reply_json(rep, args.base64 ? content_base64_fields : content_fields,
                   &(struct file_content){ { content.data, content.len }, "base64" });
    buf_done(&content);
    return rc < 0 ? executor_fail(e) : 0;
}

/* ------------------------------------------------------------------ /delete_file, /make_dir,
 * /delete_dir */

static int delete_file(struct core_session *s, const char *user, const char *path,
                       struct cove_err *e)
{
    return core_remove(s, user, path, 0, e);
}

/* As rm -rf: it is no failure if the path does not exist. */
static int delete_dir(struct core_session *s, const char *user, const char *path,
                      struct cove_err *e)
{
    if (core_remove(s, user, path, FILE_DIR | FILE_RECURSIVE, e) == 0)
        return 0;
    return e->code == COVE_NOT_FOUND ? 0 : -1;
}

static int change(struct request *req, struct reply *rep,
                  int (*verb)(struct core_session *, const char *, const char *, struct cove_err *),
                  struct cove_err *e)
{
    struct core_session session;
    struct file_args args;
    int rc;

    if (decode_path(req, &args, e) < 0 || executor_open(req, &session, e) < 0)
        return -1;
    rc = verb(&session, core_default_user(&session), args.path, e);
    core_session_close(&session);
    return rc < 0 ? executor_fail(e) : reply_success(rep);
}

int executor_delete_file(struct request *req, struct reply *rep, struct cove_err *e)
{
    req->note.operation = "delete_file";
    return change(req, rep, delete_file, e);
}

int executor_make_dir(struct request *req, struct reply *rep, struct cove_err *e)
{
    req->note.operation = "make_dir";
    return change(req, rep, core_make_dir, e);
}

int executor_delete_dir(struct request *req, struct reply *rep, struct cove_err *e)
{
    req->note.operation = "delete_dir";
    return change(req, rep, delete_dir, e);
}

/* ------------------------------------------------------------------ /list_dir */

struct names {
    struct arena *arena;
    struct json_strings list;
    size_t room;
    bool truncated;
};

static int add_name(void *arg, const char *name, const struct box_stat *st, const char *target)
{
    struct names *n = arg;

    (void)st;
    (void)target;
    n->truncated = n->list.count == ENTRIES_MAX;
    if (n->truncated)
        return 1;
    if (n->list.count == n->room) {
        size_t room = n->room ? 2 * n->room : 64;
        const char **more = reallocarray(n->list.items, room, sizeof(*more));

        if (!more)
            return 1;
        n->list.items = more;
        n->room = room;
    }
    n->list.items[n->list.count++] = arena_strdup(n->arena, name);
    return 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static const struct json_field names_fields[] = {
    JSON_STR_ARRAY(struct names, list, "entries", JSON_REQUIRED, JSON_ANY, JSON_ANY),
    JSON_BOOL(struct names, truncated, "truncated", JSON_OPTIONAL),
    JSON_END,
};

int executor_list_dir(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct names names = { .arena = &req->arena };
    struct core_session session;
    struct file_args args;
    int rc;

    req->note.operation = "list_dir";
    if (decode_path(req, &args, e) < 0 || executor_open(req, &session, e) < 0)
        return -1;
    rc = box_list(&session.conn, core_default_user(&session), args.path, add_name, &names, e);
    core_session_close(&session);
    if (rc == 0) {
        if (names.list.count > 0)
            qsort(names.list.items, names.list.count, sizeof(*names.list.items), by_name);
        reply_json(rep, names_fields, &names);
    }
    free(names.list.items);
    return rc < 0 ? executor_fail(e) : 0;
}
