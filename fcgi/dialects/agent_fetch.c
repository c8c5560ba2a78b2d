/* /upload-file-from-url, /download-to-presigned-url: cove-fetch moves the bytes. */
#include <string.h>

#include "fcgi/core_fetch.h"
#include "fcgi/dialects/agent.h"

struct fetch_args {
    const char *sandbox, *url, *path, *format;
};

static const struct json_field from_url_fields[] = {
    JSON_STR(struct fetch_args, sandbox, "sandbox_id", JSON_REQUIRED, AGENT_NAME_MAX),
    JSON_STR(struct fetch_args, url, "url", JSON_REQUIRED, FETCH_URL_MAX - 1),
    JSON_STR(struct fetch_args, path, "file_path", JSON_REQUIRED, MSG_PATH_MAX - 1),
    JSON_END,
};

static const struct json_field presigned_fields[] = {
    JSON_STR(struct fetch_args, sandbox, "sandbox_id", JSON_REQUIRED, AGENT_NAME_MAX),
    JSON_STR(struct fetch_args, path, "sandbox_path", JSON_REQUIRED, MSG_PATH_MAX - 1),
    JSON_STR(struct fetch_args, url, "presigned_url", JSON_REQUIRED, FETCH_URL_MAX - 1),
    JSON_STR(struct fetch_args, format, "format", JSON_OPTIONAL, 16),
    JSON_END,
};

struct fetched {
    bool success;
    const char *message;
    int64_t bytes;
};

static const struct json_field fetched_fields[] = {
    JSON_BOOL(struct fetched, success, "success", JSON_REQUIRED),
    JSON_STR(struct fetched, message, "message", JSON_REQUIRED, JSON_ANY),
    JSON_INT(struct fetched, bytes, "bytes", JSON_ALWAYS, 0, INT64_MAX), /* extension */
    JSON_END,
};

/* The other side's failure is neither the client's nor ours. */
static int fail_fetch(struct request *req, struct reply *rep, const struct cove_err *e)
{
    if (e->code != COVE_GONE)
        return -1;
    req->note.cause = "fetch";
    agent_reply_error(rep, 502, "SandboxFetchError", e->msg);
    return 0;
}

static int reply_fetched(struct reply *rep, const char *message, const struct fetch_done *done)
{
    return agent_reply(rep, fetched_fields,
                       &(struct fetched){ true, message, (int64_t)done->bytes });
}

/* ------------------------------------------------------------------ /upload-file-from-url */

static int download(struct request *req, struct reply *rep, const struct fetch_args *args,
                    struct core_file *file, struct cove_err *e)
{
    struct core_fetch fetch = {
        .verb = FETCH_DOWNLOAD,
        .tenant = req->tenant,
        .url = args->url,
        .fd = file->fd,
        .most = file->session->limits.file_max_bytes,
        .client_fd = req->client_fd,
    };
    struct fetch_done done;

    if (core_fetch(req->core, &fetch, &done, e) < 0)
        return fail_fetch(req, rep, e);
    if (core_file_commit(file, e) < 0)
        return agent_fail_file(req, rep, e);
    return reply_fetched(
        rep, arena_printf(&req->arena, "File downloaded from URL and uploaded to %s", args->path),
        &done);
}

int agent_upload_from_url(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct fetch_args args = { 0 };
    struct core_session session;
    struct core_file file;
    int rc;

    req->note.operation = "upload_from_url";
    if (request_json(req, from_url_fields, &args, e) < 0)
        return -1;
    if (!*args.path)
        return cove_fail(e, COVE_INVALID, "file_path: must not be empty");
    if (agent_open(req, args.sandbox, &session, e) < 0)
        return -1;
    if (core_file_create(&session, core_default_user(&session), args.path, true, &file, e) < 0) {
        rc = agent_fail_file(req, rep, e);
    } else {
        rc = download(req, rep, &args, &file, e);
        core_file_done(&file);
    }
    core_session_close(&session);
    return rc;
}

/* ------------------------------------------------------------------ /download-to-presigned-url */

static int read_format(const char *format, enum fetch_verb *ret, struct cove_err *e)
{
    bool text = format && strcmp(format, "text") == 0;

    if (format && !text && strcmp(format, "binary") != 0)
        return cove_fail(e, COVE_INVALID, "format: must be binary or text");
    *ret = text ? FETCH_UPLOAD_TEXT : FETCH_UPLOAD;
    return 0;
}

int agent_download_to_url(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct core_fetch fetch = { .tenant = req->tenant, .client_fd = req->client_fd };
    struct fetch_args args = { 0 };
    struct core_session session;
    struct fetch_done done;
    AUTO_CLOSE int fd = -1;
    struct box_stat st;
    int rc;

    req->note.operation = "download_to_url";
    if (request_json(req, presigned_fields, &args, e) < 0 ||
        read_format(args.format, &fetch.verb, e) < 0)
        return -1;
    if (!*args.path)
        return cove_fail(e, COVE_INVALID, "sandbox_path: must not be empty");
    if (agent_open(req, args.sandbox, &session, e) < 0)
        return -1;
    rc = core_file_open(&session, core_default_user(&session), args.path, &fd, &st, e);
    core_session_close(&session);
    if (rc < 0)
        return agent_fail_file(req, rep, e);
    fetch.url = args.url;
    fetch.fd = fd;
    fetch.most = UINT64_MAX;
    fetch.size = st.bytes;
    if (core_fetch(req->core, &fetch, &done, e) < 0)
        return fail_fetch(req, rep, e);
    return reply_fetched(rep, "File uploaded to presigned URL", &done);
}
