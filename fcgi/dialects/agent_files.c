/* Files as JSON, and directories. Large files come as a form (agent_upload.c) or by a URL
 * (agent_fetch.c). */
#include <string.h>
#include <sys/stat.h>

#include "fcgi/check.h"
#include "fcgi/dialects/agent.h"

struct file_args {
    const char *sandbox, *path;
    struct json_text content;
    const char *encoding; /* an extension of the document */
    bool base64;          /* what `encoding` says */
};

static const struct json_field path_fields[] = {
    JSON_STR(struct file_args, sandbox, "sandbox_id", JSON_REQUIRED, AGENT_NAME_MAX),
    JSON_STR(struct file_args, path, "file_path", JSON_REQUIRED, MSG_PATH_MAX - 1),
    JSON_STR(struct file_args, encoding, "encoding", JSON_OPTIONAL, 16),
    JSON_END,
};

static const struct json_field write_fields[] = {
    JSON_TEXT(struct file_args, content, "content", JSON_REQUIRED, SIZE_MAX / 2),
    JSON_END,
};

static int decode_path(struct request *req, struct file_args *ret, struct cove_err *e)
{
    *ret = (struct file_args){ 0 };
    if (request_json(req, path_fields, ret, e) < 0)
        return -1;
    if (!*ret->path)
        return cove_fail(e, COVE_INVALID, "file_path: must not be empty");
    return check_encoding(ret->encoding, &ret->base64, e);
}

/* ------------------------------------------------------------------ /write-file */

static int decode_content(struct request *req, struct file_args *args, struct cove_err *e)
{
    if (request_json(req, write_fields, args, e) < 0)
        return -1;
    return args->base64 ? check_base64(&req->arena, "content", &args->content, e) : 0;
}

int agent_write_file(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct core_session session;
    struct file_args args;
    int rc;

    req->note.operation = "write_file";
    if (decode_path(req, &args, e) < 0 || decode_content(req, &args, e) < 0 ||
        agent_open(req, args.sandbox, &session, e) < 0)
        return -1;
    rc = core_file_put(&session, core_default_user(&session), args.path, true, args.content.bytes,
                       args.content.len, e);
    core_session_close(&session);
    if (rc < 0)
        return agent_fail_file(req, rep, e);
    return agent_reply_done(rep, arena_printf(&req->arena, "File written to %s", args.path));
}

/* ------------------------------------------------------------------ /read-file */

struct file_content {
    bool success;
    struct json_text content;
    const char *encoding;
};

static const struct json_field content_fields[] = {
    JSON_BOOL(struct file_content, success, "success", JSON_REQUIRED),
    JSON_TEXT(struct file_content, content, "content", JSON_REQUIRED, JSON_ANY),
    JSON_END,
};

static const struct json_field content_base64_fields[] = {
    JSON_BOOL(struct file_content, success, "success", JSON_REQUIRED),
    JSON_BYTES(struct file_content, content, "content", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct file_content, encoding, "encoding", JSON_REQUIRED, JSON_ANY),
    JSON_END,
};

int agent_read_file(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct core_session session;
    struct file_args args;
    struct buf content;
    int rc;

    req->note.operation = "read_file";
    if (decode_path(req, &args, e) < 0 || agent_open(req, args.sandbox, &session, e) < 0)
        return -1;
    buf_init_within(&content, session.limits.output_max_bytes, req->core->bytes);
    rc = core_file_read(&session, core_default_user(&session), args.path, &content, e);
    core_session_close(&session);
    if (rc == 0)
        agent_reply(rep, args.base64 ? content_base64_fields : content_fields,
                    &(struct file_content){ true, { content.data, content.len }, "base64" });
    buf_done(&content);
    return rc < 0 ? agent_fail_file(req, rep, e) : 0;
}

/* ------------------------------------------------------------------ /create-directory */

struct dir_args {
    const char *sandbox, *path;
    bool exist_ok;
};

static int read_bool(const char *name, const char *text, bool *ret, struct cove_err *e)
{
    if (!text)
        return 0;
    *ret = strcmp(text, "true") == 0 || strcmp(text, "1") == 0;
    if (!*ret && strcmp(text, "false") != 0 && strcmp(text, "0") != 0)
        return cove_fail(e, COVE_INVALID, "%s: must be true or false", name);
    return 0;
}

static int decode_dir(struct request *req, struct dir_args *ret, struct cove_err *e)
{
    ret->sandbox = request_query(req, "sandbox_id");
    ret->path = request_query(req, "directory_path");
    if (!ret->sandbox || !*ret->sandbox)
        return cove_fail(e, COVE_INVALID, "sandbox_id: is missing from the query");
    if (check_query_path("directory_path", ret->path, e) < 0)
        return -1;
    return read_bool("exist_ok", request_query(req, "exist_ok"), &ret->exist_ok, e);
}

/* Looks first whether the path exists, because init reports success for a directory that exists already. */
static int make_dir(struct core_session *s, const struct dir_args *args, struct cove_err *e)
{
    const char *user = core_default_user(s);
    struct box_stat st;

    if (box_file_stat(&s->conn, user, args->path, 0, &st, e) == 0) {
        if (!S_ISDIR(st.mode))
            return cove_fail(e, COVE_CONFLICT,
                             "directory_path: '%.160s' exists and is not a directory", args->path);
        if (!args->exist_ok)
            return cove_fail(e, COVE_CONFLICT, "directory_path: '%.160s' exists already",
                             args->path);
        return 0;
    }
    if (e->code != COVE_NOT_FOUND)
        return -1;
    return core_make_dir(s, user, args->path, e);
}

int agent_create_directory(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct dir_args args = { 0 };
    struct core_session session;
    int rc;

    req->note.operation = "create_directory";
    if (decode_dir(req, &args, e) < 0 || agent_open(req, args.sandbox, &session, e) < 0)
        return -1;
    rc = make_dir(&session, &args, e);
    core_session_close(&session);
    if (rc < 0)
        return agent_fail_file(req, rep, e);
    return agent_reply_done(rep, arena_printf(&req->arena, "Directory created at %s", args.path));
}
