/*
 * POST /files: one file as the body, or several as a form. Each is written beside its place and moved
 * there when it is whole, so an upload that breaks off leaves the old file as it was. A form's files
 * are moved one by one, each when its part has ended.
 */
#include <ctype.h>
#include <errno.h>
#include <fcgiapp.h>
#include <string.h>
#include <strings.h>
#include <zlib.h>

#include "cove/text.h"
#include "fcgi/dialects/e2b.h"
#include "fcgi/multipart.h"

enum { CHUNK_BYTES = 64 * 1024, FILES_MAX = MULTIPART_PARTS_MAX };

struct upload {
    struct envd *envd;
    const char *path; /* in the query; used instead of a part's own name; NULL = none */
    struct core_file file;
    bool open;    /* a file is being written */
    bool ignored; /* the part that is being read is no file */
    const char *names[FILES_MAX];
    size_t count;
    struct envd_metadata metadata; /* every file of the request gets this */
};

/* ------------------------------------------------------------------ metadata */

enum { METADATA_KEY_MAX = 246, METADATA_ALL_MAX = 4096 };

static bool is_printable(const char *text)
{
    for (; *text; text++)
        if (*text < ' ' || *text > '~')
            return false;
    return true;
}

/* HTTP_X_METADATA_MY_KEY is "my-key": FastCGI does not tell '-' from '_' in names of headers. */
static const char *key_of(struct request *req, const char *name, size_t len)
{
    char *key = arena_strndup(&req->arena, name, len);

    for (char *at = key; *at; at++)
        *at = *at == '_' ? '-' : (char)tolower((unsigned char)*at);
    return key;
}

/* Reads the headers X-Metadata-KEY. COVE_INVALID names the key that is wrong. */
static int envd_metadata_read(struct request *req, struct envd_metadata *ret, struct cove_err *e)
{
    static const char prefix[] = "HTTP_X_METADATA_";
    size_t all = 0;

    ret->count = 0;
    for (char **param = req->params; *param; param++) {
        const char *name = *param + sizeof(prefix) - 1, *equals = strchr(*param, '=');
        struct pair *p = &ret->pairs[ret->count];

        if (!equals || strncmp(*param, prefix, sizeof(prefix) - 1) != 0)
            continue;
        if (ret->count == BOX_MARKS_MAX)
            return cove_fail(e, COVE_INVALID, "metadata: more than %d keys", BOX_MARKS_MAX);
        *p = (struct pair){ key_of(req, name, (size_t)(equals - name)), equals + 1 };
        all += sizeof("user." ENVD_METADATA ".") - 1 + strlen(p->name) + strlen(p->value);
        if (!*p->name || strlen(p->name) > METADATA_KEY_MAX || !is_printable(p->value))
            return cove_fail(e, COVE_INVALID,
                             "metadata '%.60s': must be printable ASCII, its key up to %d bytes",
                             p->name, METADATA_KEY_MAX);
        ret->count++;
    }
    if (all > METADATA_ALL_MAX)
        return cove_fail(e, COVE_INVALID, "metadata: keys and values above %d bytes",
                         METADATA_ALL_MAX);
    return 0;
}

struct written_file {
    const char *path, *name, *type;
    struct json_map metadata;
};

static const struct json_field written_fields[] = {
    JSON_STR(struct written_file, path, "path", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct written_file, name, "name", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct written_file, type, "type", JSON_REQUIRED, JSON_ANY),
    JSON_STR_MAP(struct written_file, metadata, "metadata", JSON_OPTIONAL, JSON_ANY, JSON_ANY),
    JSON_END,
};

void envd_put_file(struct json_writer *w, const char *path, const struct envd_metadata *metadata)
{
    struct written_file file = {
        .path = path,
        .name = strrchr(path, '/') + 1,
        .type = "file",
        .metadata = { (struct pair *)metadata->pairs, metadata->count },
    };

    json_put_object(w, NULL, written_fields, &file);
}

int envd_write_failed(struct cove_err *e)
{
    if (e->errnum == ENOSPC || e->errnum == EDQUOT)
        cove_fail(e, COVE_LIMIT, "not enough disk space available");
    else if (e->code == COVE_LIMIT)
        e->code = COVE_INTERNAL;
    return -1;
}

/* ------------------------------------------------------------------ one file */

static int begin_file(struct upload *u, const char *given, struct cove_err *e)
{
    struct envd *d = u->envd;
    const char *path;

    if (envd_path(d, given, &path, e) < 0)
        return -1;
    for (size_t i = 0; i < u->count; i++)
        if (strcmp(u->names[i], path) == 0)
            return cove_fail(e, COVE_INVALID, "two files have the same path: %.160s", path);
    if (core_file_create(&d->session, d->user, path, true, &u->file, e) < 0)
        return envd_write_failed(e);
    u->open = true;
    u->names[u->count++] = path;
    return 0;
}

static int end_file(struct upload *u, struct cove_err *e)
{
    int rc = box_mark(&u->envd->session.conn, u->file.part, ENVD_METADATA, u->metadata.pairs,
                      u->metadata.count, e);

    if (rc == 0)
        rc = core_file_commit(&u->file, e);
    if (rc < 0)
        envd_write_failed(e);
    core_file_done(&u->file);
    u->open = false;
    return rc;
}

static void give_up(struct upload *u)
{
    if (u->open)
        core_file_done(&u->file);
    u->open = false;
}

/* ------------------------------------------------------------------ a form */

static int begin_part(void *arg, const struct multipart_part *part, struct cove_err *e)
{
    struct upload *u = arg;
    const char *path = u->path ? u->path : part->filename;

    u->ignored = strcmp(part->name, "file") != 0;
    if (u->ignored)
        return 0;
    if (!path || !*path)
        return cove_fail(e, COVE_INVALID, "a part has no file name, and there is no path");
    return begin_file(u, path, e);
}

static int part_data(void *arg, const char *bytes, size_t len, struct cove_err *e)
{
    struct upload *u = arg;

    return u->ignored || core_file_write(&u->file, bytes, len, e) == 0 ? 0 : envd_write_failed(e);
}

static int end_part(void *arg, struct cove_err *e)
{
    struct upload *u = arg;

    return u->ignored ? 0 : end_file(u, e);
}

/* ------------------------------------------------------------------ the body */

typedef int feed_fn(void *arg, const char *bytes, size_t len, struct cove_err *e);

struct body { /* where the body's bytes go, unpacked if they were packed */
    feed_fn *feed;
    void *arg;
    bool gzip, ended;
    z_stream z;
};

static int inflate_some(struct body *b, const char *bytes, size_t len, struct cove_err *e)
{
    unsigned char out[CHUNK_BYTES];

    b->z.next_in = (unsigned char *)bytes;
    b->z.avail_in = (unsigned)len;
    while (b->z.avail_in > 0) {
        int rc;

        if (b->ended)
            return cove_fail(e, COVE_INVALID, "body: something follows the end of the gzip data");
        b->z.next_out = out;
        b->z.avail_out = sizeof(out);
        rc = inflate(&b->z, Z_NO_FLUSH);
        if (rc != Z_OK && rc != Z_STREAM_END && rc != Z_BUF_ERROR)
            return cove_fail(e, COVE_INVALID, "body: not valid gzip");
        b->ended = rc == Z_STREAM_END;
        if (b->feed(b->arg, (char *)out, sizeof(out) - b->z.avail_out, e) < 0)
            return -1;
    }
    return 0;
}

static int read_body(struct request *req, struct body *b, struct cove_err *e)
{
    const char *declared = request_param(req, "CONTENT_LENGTH");
    char chunk[CHUNK_BYTES];
    uint64_t want = 0, got = 0;
    int n;

    if (*declared && text_parse_u64(declared, &want, e) < 0)
        return cove_context(e, "Content-Length");
    while ((n = FCGX_GetStr(chunk, CHUNK_BYTES, req->in)) > 0) {
        got += (uint64_t)n;
        if ((b->gzip ? inflate_some(b, chunk, (size_t)n, e)
                     : b->feed(b->arg, chunk, (size_t)n, e)) < 0)
            return -1;
    }
    if (FCGX_GetError(req->in) || got < want)
        return cove_fail(e, COVE_INVALID, "body: ended before its Content-Length");
    if (b->gzip && !b->ended)
        return cove_fail(e, COVE_INVALID, "body: the gzip data ends early");
    return 0;
}

static int receive(struct request *req, feed_fn *feed, void *arg, struct cove_err *e)
{
    const char *encoding = request_param(req, "HTTP_CONTENT_ENCODING");
    struct body b = { .feed = feed, .arg = arg, .gzip = strcasecmp(encoding, "gzip") == 0 };
    int rc;

    if (!b.gzip && *encoding && strcasecmp(encoding, "identity") != 0)
        return cove_fail(e, COVE_INVALID, "Content-Encoding '%.40s' is not supported; gzip is",
                         encoding);
    if (b.gzip && inflateInit2(&b.z, 15 + 16) != Z_OK)
        return cove_fail(e, COVE_BUSY, "no memory to unpack the body");
    rc = read_body(req, &b, e);
    if (b.gzip)
        inflateEnd(&b.z);
    return rc;
}

static int feed_form(void *arg, const char *bytes, size_t len, struct cove_err *e)
{
    return multipart_feed(arg, bytes, len, e);
}

static int receive_form(struct upload *u, struct request *req, struct cove_err *e)
{
    struct multipart m = { .begin = begin_part, .data = part_data, .end = end_part, .arg = u };
    int rc;

    if (multipart_init(&m, request_param(req, "CONTENT_TYPE"), e) < 0)
        return -1;
    rc = receive(req, feed_form, &m, e) < 0 || multipart_finish(&m, e) < 0 ? -1 : 0;
    multipart_done(&m);
    return rc;
}

static int feed_file(void *arg, const char *bytes, size_t len, struct cove_err *e)
{
    return core_file_write(&((struct upload *)arg)->file, bytes, len, e) < 0 ? envd_write_failed(e)
                                                                             : 0;
}

static int receive_one(struct upload *u, struct request *req, struct cove_err *e)
{
    if (!u->path)
        return cove_fail(e, COVE_INVALID, "path: is missing from the query");
    if (begin_file(u, u->path, e) < 0 || receive(req, feed_file, u, e) < 0)
        return -1;
    return end_file(u, e);
}

/* ------------------------------------------------------------------ the request */

static void reply_files(struct reply *rep, const struct upload *u)
{
    struct json_writer w;

    json_writer_init(&w, &rep->body);
    json_open(&w, NULL, '[');
    for (size_t i = 0; i < u->count; i++)
        envd_put_file(&w, u->names[i], &u->metadata);
    json_close(&w, ']');
}

static int receive_files(struct upload *u, struct request *req, struct cove_err *e)
{
    const char *type = request_param(req, "CONTENT_TYPE");

    if (envd_metadata_read(req, &u->metadata, e) < 0 ||
        envd_user(u->envd, request_query(req, "username"), e) < 0)
        return -1;
    if (strncasecmp(type, "multipart/form-data", 19) == 0)
        return receive_form(u, req, e);
    if (strncasecmp(type, "application/octet-stream", 24) == 0)
        return receive_one(u, req, e);
    return cove_fail(e, COVE_INVALID,
                     "Content-Type: must be multipart/form-data or application/octet-stream");
}

int envd_files_post(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct upload *u = arena_alloc(&req->arena, sizeof(*u));
    struct envd d;
    int rc;

    req->note.operation = "write_file";
    if (envd_open(req, rep, ENVD_SIGNATURE, &d, e) < 0)
        return -1;
    u->envd = &d;
    u->path = request_query(req, "path");
    if (u->path && !*u->path)
        u->path = NULL;
    rc = receive_files(u, req, e);
    give_up(u);
    envd_close(&d);
    if (rc == 0)
        reply_files(rep, u);
    return rc;
}
