/*
 * /upload-file: a form with the fields sandbox_id, file_path and file, in any order. A file whose place
 * is known when it comes goes straight into the sandbox; one that comes first waits in a spool file.
 * Either way one buffer holds what is on its way.
 */
#include <fcgiapp.h>
#include <string.h>
#include <unistd.h>

#include "cove/text.h"
#include "fcgi/caller.h"
#include "fcgi/dialects/agent.h"
#include "fcgi/multipart.h"
#include "fcgi/spool.h"

enum { CHUNK_BYTES = 64 * 1024 };

enum field { FIELD_OTHER, FIELD_SANDBOX, FIELD_PATH, FIELD_FILE, FIELDS };

struct upload {
    struct request *req;
    struct core_session session;
    struct core_file file;
    struct spool spool;
    bool open; /* the sandbox's file is being written */
    bool in_session;
    bool given[FIELDS];
    bool of_sandbox; /* a failure was about a path in the sandbox, not about the sandbox itself */
    enum field at;   /* the part at hand */
    struct buf sandbox, path;
};

/* ------------------------------------------------------------------ into the sandbox */

static int check_size(const struct upload *u, uint64_t written, size_t more, struct cove_err *e)
{
    uint64_t most = u->req->core->config->upload_max_bytes;
    char size[32];

    if (more <= most - written)
        return 0;
    text_format_bytes(most, size);
    return cove_fail(e, COVE_TOO_LARGE, "file: larger than upload_max (%s)", size);
}

static int open_file(struct upload *u, struct cove_err *e)
{
    if (agent_open(u->req, u->sandbox.data, &u->session, e) < 0)
        return -1;
    u->in_session = true;
    u->of_sandbox = true;
    if (core_file_create(&u->session, core_default_user(&u->session), u->path.data, true, &u->file,
                         e) < 0)
        return -1;
    u->open = true;
    return 0;
}

static int write_file(struct upload *u, const char *bytes, size_t len, struct cove_err *e)
{
    if (check_size(u, u->file.written, len, e) < 0)
        return -1;
    return core_file_write(&u->file, bytes, len, e);
}

/* Moves the bytes that were kept in the spool file to their place. */
static int copy_spool(struct upload *u, struct cove_err *e)
{
    char chunk[CHUNK_BYTES];

    if (open_file(u, e) < 0)
        return -1;
    for (uint64_t done = 0; done < u->spool.written;) {
        ssize_t n = pread(u->spool.fd, chunk, CHUNK_BYTES, (off_t)done);

        if (n <= 0)
            return cove_fail(e, COVE_INTERNAL, "reading the kept upload");
        if (write_file(u, chunk, (size_t)n, e) < 0)
            return -1;
        done += (uint64_t)n;
    }
    return 0;
}

/* ------------------------------------------------------------------ parts of the form */

static int begin_file(struct upload *u, struct cove_err *e)
{
    const struct core *c = u->req->core;

    if (u->given[FIELD_SANDBOX] && u->given[FIELD_PATH])
        return open_file(u, e);
    return spool_take(u->req->tenant, c->config->upload_max_bytes,
                      c->caller ? c->caller->quota.disk : 0, &u->spool, e);
}

static int begin_part(void *arg, const struct multipart_part *part, struct cove_err *e)
{
    static const char *const names[FIELDS] = { "", "sandbox_id", "file_path", "file" };
    struct upload *u = arg;

    u->at = FIELD_OTHER;
    for (int i = FIELD_SANDBOX; i < FIELDS; i++)
        if (strcmp(part->name, names[i]) == 0)
            u->at = (enum field)i;
    if (u->at == FIELD_OTHER)
        return 0;
    if (u->given[u->at])
        return cove_fail(e, COVE_INVALID, "%s: the form has this field twice", names[u->at]);
    if (u->at == FIELD_FILE) {
        u->given[FIELD_FILE] = true;
        return begin_file(u, e);
    }
    return 0;
}

static int part_data(void *arg, const char *bytes, size_t len, struct cove_err *e)
{
    struct upload *u = arg;
    struct buf *text = u->at == FIELD_SANDBOX ? &u->sandbox : &u->path;

    if (u->at == FIELD_OTHER)
        return 0;
    if (u->at == FIELD_FILE)
        return u->open ? write_file(u, bytes, len, e) : spool_write(&u->spool, bytes, len, e);
    if (memchr(bytes, '\0', len) || buf_add(text, bytes, len) < 0)
        return cove_fail(e, COVE_INVALID, "%s: too long, or with a NUL in it",
                         u->at == FIELD_SANDBOX ? "sandbox_id" : "file_path");
    return 0;
}

static int end_part(void *arg, struct cove_err *e)
{
    struct upload *u = arg;
    struct buf *text = u->at == FIELD_SANDBOX ? &u->sandbox : &u->path;

    if (u->at == FIELD_OTHER || u->at == FIELD_FILE)
        return 0;
    if (text->len == 0 || !text_is_utf8(text->data, text->len))
        return cove_fail(e, COVE_INVALID, "%s: is empty or not UTF-8",
                         u->at == FIELD_SANDBOX ? "sandbox_id" : "file_path");
    u->given[u->at] = true;
    return 0;
}

/* ------------------------------------------------------------------ the request */

static int read_form(struct upload *u, struct multipart *m, struct cove_err *e)
{
    const char *declared = request_param(u->req, "CONTENT_LENGTH");
    char chunk[CHUNK_BYTES];
    uint64_t want = 0, got = 0;
    int n;

    if (*declared && text_parse_u64(declared, &want, e) < 0)
        return cove_context(e, "Content-Length");
    while ((n = FCGX_GetStr(chunk, CHUNK_BYTES, u->req->in)) > 0) {
        got += (uint64_t)n;
        if (multipart_feed(m, chunk, (size_t)n, e) < 0)
            return -1;
    }
    if (FCGX_GetError(u->req->in) || got < want)
        return cove_fail(e, COVE_INVALID, "body: ended before its Content-Length");
    return multipart_finish(m, e);
}

static int check_complete(const struct upload *u, struct cove_err *e)
{
    static const char *const names[FIELDS] = { "", "sandbox_id", "file_path", "file" };

    for (int i = FIELD_SANDBOX; i < FIELDS; i++)
        if (!u->given[i])
            return cove_fail(e, COVE_INVALID, "%s: the form has no such field", names[i]);
    return 0;
}

static int receive(struct upload *u, struct cove_err *e)
{
    struct multipart m = { .begin = begin_part, .data = part_data, .end = end_part, .arg = u };
    int rc;

    if (multipart_init(&m, request_param(u->req, "CONTENT_TYPE"), e) < 0)
        return -1;
    rc = read_form(u, &m, e);
    multipart_done(&m);
    if (rc < 0 || check_complete(u, e) < 0 || (!u->open && copy_spool(u, e) < 0))
        return -1;
    return core_file_commit(&u->file, e);
}

static void release(struct upload *u)
{
    if (u->open)
        core_file_done(&u->file);
    if (u->in_session)
        core_session_close(&u->session);
    spool_release(&u->spool);
}

int agent_upload_file(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct upload *u = arena_alloc(&req->arena, sizeof(*u));
    int rc;

    req->note.operation = "upload_file";
    u->req = req;
    u->spool.slot = -1;
    buf_init(&u->sandbox, AGENT_NAME_MAX);
    buf_init(&u->path, MSG_PATH_MAX - 1);
    rc = receive(u, e);
    release(u);
    if (rc == 0)
        agent_reply_done(rep, arena_printf(&req->arena, "File uploaded to %s", u->path.data));
    else if (u->of_sandbox)
        rc = agent_fail_file(req, rep, e);
    buf_done(&u->sandbox);
    buf_done(&u->path);
    return rc;
}
