/*
 * GET /files: a file as it is. The body streams through one buffer; what was announced by
 * Content-Length comes, or the connection breaks. Uploads are in e2b_upload.c.
 */
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

#include "cove/base64.h"
#include "cove/keys.h"
#include "cove/meters.h"
#include "cove/text.h"
#include "fcgi/dialects/e2b.h"
#include "fcgi/transfer.h"

enum { CHUNK_BYTES = 64 * 1024 };

/* ------------------------------------------------------------------ signed addresses */

static const char *query_or_empty(const struct request *req, const char *name)
{
    const char *value = request_query(req, name);

    return value ? value : "";
}

/* What is signed: path, verb, user, token and, if there is one, time. The place of the token is filled in for one sandbox after another. */
struct signing {
    char *text;
    size_t len, token_at;
};

enum {
    SIGNATURE_LEN = 46, /* "v1_" and the base64 of a hash, without the '=' at its end */
    TRIES_A_SECOND = 20000,
};

static struct signing begin_signing(struct request *req)
{
    const char *expires = query_or_empty(req, "signature_expiration");
    const char *head = arena_printf(&req->arena, "%s:%s:%s:", query_or_empty(req, "path"),
                                    req->method & (GET | HEAD) ? "read" : "write",
                                    query_or_empty(req, "username"));
    struct signing s = { .token_at = strlen(head) };

    s.text = arena_strdup(&req->arena, arena_printf(&req->arena, "%s%*s%s%s", head, TOKEN_LEN, "",
                                                    *expires ? ":" : "", expires));
    s.len = strlen(s.text);
    return s;
}

static bool signature_fits(const struct request *req, const struct signing *s, const char *id)
{
    const char *given = query_or_empty(req, "signature");
    unsigned char hash[SHA256_DIGEST_LENGTH];
    char token[TOKEN_LEN + 1], wanted[64] = "v1_";
    bool fits;

    token_make(req->core->token_secret, id, token);
    memcpy(s->text + s->token_at, token, TOKEN_LEN);
    SHA256((const unsigned char *)s->text, s->len, hash);
    base64_encode(hash, sizeof(hash), wanted + 3);
    fits = strlen(given) == SIGNATURE_LEN && CRYPTO_memcmp(given, wanted, SIGNATURE_LEN) == 0;
    OPENSSL_cleanse(token, sizeof(token));
    OPENSSL_cleanse(s->text + s->token_at, TOKEN_LEN);
    return fits;
}

int envd_signature_check(const struct envd *d, struct cove_err *e)
{
    const char *expires = query_or_empty(d->req, "signature_expiration");
    struct signing s;

    if (!*query_or_empty(d->req, "signature"))
        return cove_fail(e, COVE_UNAUTHORIZED, "missing signature query parameter");
    s = begin_signing(d->req);
    if (!signature_fits(d->req, &s, d->found.box.id))
        return cove_fail(e, COVE_UNAUTHORIZED, "invalid signature");
    if (*expires && strtoull(expires, NULL, 10) < clock_unix_ms() / 1000)
        return cove_fail(e, COVE_UNAUTHORIZED, "signature is already expired");
    return 0;
}

bool envd_is_signed_alone(const struct request *req)
{
    return !req->host_box && req->segment_count == 1 && strcmp(req->segments[0], "files") == 0 &&
           !*request_param(req, "HTTP_E2B_SANDBOX_ID") && request_query(req, "signature");
}

typedef char box_id[COVE_ID_LEN + 1];

static uint32_t list_living(struct request *req, box_id **ret)
{
    uint32_t count = state_box_count(req->core->state), found = 0;

    *ret = arena_alloc(&req->arena, count * sizeof(**ret));
    for (uint32_t i = 0; i < count; i++) {
        struct box_info box;

        state_box_read(req->core->state, i, &box);
        if (box.state == BOX_LIVE || box.state == BOX_FROZEN)
            text_copy((*ret)[found++], sizeof(box_id), box.id);
    }
    return found;
}

/* Strangers can ask for a search, and each sandbox costs two hashes: all searches of the machine together may take a quarter of one cpu. */
static int admit_search(struct request *req, uint32_t sandboxes, struct cove_err *e)
{
    uint64_t per_second = sandboxes ? TRIES_A_SECOND / sandboxes : 0, wait_ms = 0;

    if (req->core->meters && sandboxes)
        wait_ms = meters_admit(req->core->meters, "signed", "urls", per_second ? per_second : 1,
                               clock_boot_ms() * 1000);
    if (!wait_ms)
        return 0;
    req->retry_after_s = (unsigned)((wait_ms + 999) / 1000);
    return cove_fail(e, COVE_QUOTA,
                     "too many signed URLs that name no sandbox: send the header E2b-Sandbox-Id");
}

int envd_signature_owner(struct request *req, char ret_id[COVE_ID_LEN + 1], struct cove_err *e)
{
    struct signing s = begin_signing(req);
    box_id *ids;
    uint32_t count;

    if (!req->core->token_secret || s.len > MSG_PATH_MAX)
        return cove_fail(e, COVE_UNAUTHORIZED, "invalid signature");
    count = list_living(req, &ids);
    if (admit_search(req, count, e) < 0)
        return -1;
    for (uint32_t i = 0; i < count; i++)
        if (signature_fits(req, &s, ids[i])) {
            text_copy(ret_id, COVE_ID_LEN + 1, ids[i]);
            return 0;
        }
    return cove_fail(e, COVE_UNAUTHORIZED, "invalid signature");
}

/* ------------------------------------------------------------------ what part of it */

struct range {
    uint64_t from, len;
    bool part; /* 206 */
};

/* One range of bytes: "bytes=0-99", "bytes=100-", "bytes=-100". Anything else is the whole file. -1:
 * nothing of the file is in it. */
static int read_range(const char *text, uint64_t size, struct range *ret)
{
    unsigned long long first = 0, last = 0;
    int used = 0;

    *ret = (struct range){ .len = size };
    if (strncmp(text, "bytes=", 6) != 0 || strchr(text, ','))
        return 0;
    text += 6;
    if (*text == '-' && sscanf(text, "-%llu%n", &last, &used) == 1 && !text[used]) {
        first = last < size ? size - last : 0;
        last = size - 1;
        if (size == 0 || last + 1 == first)
            return -1;
    } else if (sscanf(text, "%llu-%llu%n", &first, &last, &used) == 2 && used && !text[used]) {
        last = last < size ? last : size - 1;
    } else if (sscanf(text, "%llu-%n", &first, &used) == 1 && used && !text[used]) {
        last = size - 1;
    } else {
        return 0;
    }
    if (first >= size || last < first)
        return -1;
    *ret = (struct range){ .from = first, .len = last - first + 1, .part = true };
    return 0;
}

static const char *http_time(struct arena *a, int64_t unix_ns)
{
    time_t when = (time_t)(unix_ns / 1000000000);
    char text[64];
    struct tm tm;

    gmtime_r(&when, &tm);
    strftime(text, sizeof(text), "%a, %d %b %Y %H:%M:%S GMT", &tm);
    return arena_strdup(a, text);
}

/* Does the client already have this version of the file? */
static bool is_known(const struct request *req, const char *etag, int64_t mtime_ns)
{
    const char *none = request_param(req, "HTTP_IF_NONE_MATCH");
    const char *since = request_param(req, "HTTP_IF_MODIFIED_SINCE");
    struct tm tm = { 0 };

    if (*none)
        return strcmp(none, "*") == 0 || strstr(none, etag) != NULL;
    return *since && strptime(since, "%a, %d %b %Y %H:%M:%S GMT", &tm) &&
           mtime_ns / 1000000000 <= timegm(&tm);
}

/* ------------------------------------------------------------------ the answer */

static const char *type_of(const char *path)
{
    static const struct {
        const char *suffix, *type;
    } types[] = {
        { ".txt", "text/plain; charset=utf-8" },
        { ".html", "text/html; charset=utf-8" },
        { ".css", "text/css; charset=utf-8" },
        { ".js", "text/javascript; charset=utf-8" },
        { ".json", "application/json" },
        { ".xml", "text/xml; charset=utf-8" },
        { ".svg", "image/svg+xml" },
        { ".png", "image/png" },
        { ".jpg", "image/jpeg" },
        { ".jpeg", "image/jpeg" },
        { ".gif", "image/gif" },
        { ".webp", "image/webp" },
        { ".pdf", "application/pdf" },
        { ".wasm", "application/wasm" },
    };
    const char *dot = strrchr(path, '.');

    for (size_t i = 0; dot && i < ARRAY_SIZE(types); i++)
        if (strcasecmp(dot, types[i].suffix) == 0)
            return types[i].type;
    return "application/octet-stream";
}

/* inline; filename="..." with what a quoted string must not hold replaced. */
static const char *disposition(struct arena *a, const char *path)
{
    const char *slash = strrchr(path, '/');
    char *name = arena_strdup(a, slash ? slash + 1 : path);

    for (char *at = name; *at; at++)
        if (*at == '"' || *at == '\\' || (unsigned char)*at < ' ' || *at == 0x7f)
            *at = '_';
    return arena_printf(a, "inline; filename=\"%s\"", name);
}

/* ------------------------------------------------------------------ packed */

/* What "gzip, br;q=0.5, *;q=0" says of `coding`: 1: it is welcome; 0: it is refused; -1: nothing. */
static int welcomes(struct arena *a, const char *list, const char *coding)
{
    char *rest = arena_strdup(a, list), *item;

    while ((item = strsep(&rest, ","))) {
        char *name = strsep(&item, ";"), *q = item ? strcasestr(item, "q=") : NULL;

        name += strspn(name, " \t");
        name[strcspn(name, " \t")] = '\0';
        if (strcasecmp(name, coding) == 0)
            return !q || strtod(q + 2, NULL) > 0;
    }
    return -1;
}

/*
 * A client that asks for gzip and for nothing else gets the file packed. HTTP libraries say "gzip, deflate"
 * without being asked, and packing costs more than most networks gain by it. A client that refuses the file
 * as it is gets it packed, or 406 if it refuses gzip as well.
 */
static int choose_packing(struct request *req, bool *ret_gzip)
{
    const char *list = request_param(req, "HTTP_ACCEPT_ENCODING");
    int identity = welcomes(&req->arena, list, "identity");
    int gzip = welcomes(&req->arena, list, "gzip"), any = welcomes(&req->arena, list, "*");
    bool refused = identity == 0 || (identity < 0 && any == 0);

    *ret_gzip = strcasecmp(list, "gzip") == 0 || (refused && (gzip > 0 || (gzip < 0 && any > 0)));
    return refused && !*ret_gzip ? -1 : 0;
}

/* Sends what the packer has ready, until the packer wants more input or has ended. */
static int send_ready(struct stream *s, z_stream *z, int flush)
{
    int rc = Z_OK;

    do {
        struct buf *out = stream_open_frame(s, &(struct frame){ 0 });
        char *at = out ? buf_reserve(out, CHUNK_BYTES) : NULL;

        if (!at)
            return -1;
        z->next_out = (unsigned char *)at;
        z->avail_out = CHUNK_BYTES;
        rc = deflate(z, flush);
        out->len = CHUNK_BYTES - z->avail_out;
        stream_close_frame(s);
        if (stream_drain(s) < 0)
            return -1;
    } while (z->avail_out == 0);
    return rc == Z_STREAM_ERROR ? -1 : 0;
}

static int pack(struct stream *s, z_stream *z, int fd)
{
    char chunk[CHUNK_BYTES];
    ssize_t n;

    while ((n = read(fd, chunk, sizeof(chunk))) > 0) {
        z->next_in = (unsigned char *)chunk;
        z->avail_in = (unsigned)n;
        if (send_ready(s, z, Z_NO_FLUSH) < 0)
            return -1;
    }
    return n < 0 ? -1 : send_ready(s, z, Z_FINISH);
}

static int send_packed(struct stream *s, int fd)
{
    z_stream z = { 0 };
    int rc;

    if (deflateInit2(&z, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK)
        return -1;
    rc = pack(s, &z, fd);
    deflateEnd(&z);
    return rc < 0 ? -1 : stream_end(s);
}

/* ------------------------------------------------------------------ the file */

struct file {
    const char *path;
    int fd;
    struct box_stat st;
    struct range range;
    bool gzip;    /* the file is sent packed, so its length is not known before */
    bool endless; /* its size is 0 although it has content, as in /proc: it is read to the end */
    const char *etag;
};

static int open_file(struct envd *d, struct file *f, struct cove_err *e)
{
    const char *given = request_query(d->req, "path");

    if (envd_path(d, given, &f->path, e) < 0)
        return -1;
    if (core_file_open(&d->session, "root", f->path, &f->fd, &f->st, e) < 0)
        return e->code == COVE_NOT_FOUND
                   ? cove_fail(e, COVE_NOT_FOUND, "path '%.160s' does not exist", f->path)
               : strstr(e->msg, "is a directory")
                   ? cove_fail(e, COVE_INVALID, "path '%.160s' is a directory", f->path)
                   : -1;
    f->endless = f->st.bytes == 0 && strncmp(f->path, "/proc/", 6) == 0;
    f->etag = arena_printf(&d->req->arena, "\"%llx-%llx\"", (unsigned long long)f->st.mtime_ns,
                           (unsigned long long)f->st.bytes);
    return 0;
}

static int answer_head(struct request *req, struct reply *rep, struct file *f)
{
    const char *range = request_param(req, "HTTP_RANGE");
    const char *if_range = request_param(req, "HTTP_IF_RANGE");
    const char *modified = http_time(&req->arena, f->st.mtime_ns);

    reply_header(rep, "ETag", f->etag);
    reply_header(rep, "Last-Modified", modified);
    reply_header(rep, "Accept-Ranges", "bytes");
    f->range.len = f->st.bytes;
    if (is_known(req, f->etag, f->st.mtime_ns))
        return 304;
    if (!*range || f->endless ||
        (*if_range && strcmp(if_range, f->etag) != 0 && strcmp(if_range, modified) != 0))
        return 200;
    if (read_range(range, f->st.bytes, &f->range) < 0) {
        reply_header(rep, "Content-Range",
                     arena_printf(&req->arena, "bytes */%llu", (unsigned long long)f->st.bytes));
        return 416;
    }
    return f->range.part ? 206 : 200;
}

static void announce(struct request *req, struct reply *rep, const struct file *f)
{
    const struct range *r = &f->range;

    reply_header(rep, "Content-Type", type_of(f->path));
    reply_header(rep, "Content-Disposition", disposition(&req->arena, f->path));
    reply_header(rep, "Vary", "Accept-Encoding");
    if (f->gzip)
        reply_header(rep, "Content-Encoding", "gzip");
    if (!f->endless && !f->gzip)
        reply_header(rep, "Content-Length",
                     arena_printf(&req->arena, "%llu", (unsigned long long)r->len));
    if (r->part)
        reply_header(rep, "Content-Range",
                     arena_printf(&req->arena, "bytes %llu-%llu/%llu", (unsigned long long)r->from,
                                  (unsigned long long)(r->from + r->len - 1),
                                  (unsigned long long)f->st.bytes));
}

/* The file stays open when its sandbox ends. */
static bool sandbox_is_there(const struct request *req)
{
    struct which found;

    return which_sandbox_id(req->core->state, NULL, req->note.sandbox, &found) != WHICH_NONE;
}

static int answer(struct request *req, struct reply *rep, struct file *f, struct cove_err *e)
{
    struct stream stream;
    uint64_t left;

    if (choose_packing(req, &f->gzip) < 0) {
        rep->status = 406;
        reply_json(rep, e2b_error_fields,
                   &(struct e2b_bad_news){
                       .code = rep->status,
                       .message = "no acceptable encoding: identity and gzip are there" });
        return 0;
    }
    rep->status = answer_head(req, rep, f);
    left = req->method == HEAD ? 0 : f->endless ? UINT64_MAX : f->range.len;
    if (rep->status == 304 || rep->status == 416)
        return 0;
    if (f->range.from > 0 && lseek(f->fd, (off_t)f->range.from, SEEK_SET) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "'%.160s'", f->path);
    f->gzip = f->gzip && rep->status == 200 && f->st.bytes > 0 && req->method == GET;
    announce(req, rep, f);
    stream_init(&stream, req, rep, &framing_bytes);
    stream.stands = sandbox_is_there;
    stream_begin(&stream);
    if ((f->gzip ? send_packed(&stream, f->fd)
                 : transfer_bytes(&stream, f->fd, left, !f->endless)) < 0)
        req->note.cause = "client";
    return 0;
}

int envd_files_get(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct file f = { .fd = -1 };
    struct envd d;
    int rc;

    req->note.operation = "read_file";
    if (envd_open(req, rep, ENVD_SIGNATURE, &d, e) < 0)
        return -1;
    rc = envd_user(&d, request_query(req, "username"), e) < 0 ? -1 : open_file(&d, &f, e);
    envd_close(&d);
    if (rc == 0)
        rc = answer(req, rep, &f, e);
    cove_close(f.fd);
    return rc;
}
