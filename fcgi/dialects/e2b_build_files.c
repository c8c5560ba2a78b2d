/*
 * Files of COPY steps. A client asks where to put an archive, and puts it there without its key: the URL
 * is signed for one tenant, one name and a quarter of an hour.
 */
#include <fcgiapp.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cove/file.h"
#include "cove/keys.h"
#include "fcgi/dialects/e2b_templates.h"

enum { SIGNED_S = 15 * 60, CHUNK_BYTES = 64 * 1024 };

/* ------------------------------------------------------------------ the signature */

/* The purpose stands in front, so that no other MAC under this secret can be taken for this one. */
static void sign(const unsigned char *secret, const char *text, char ret[TOKEN_LEN + 1])
{
    unsigned char mac[TOKEN_LEN / 2];
    char whole[256];
    int len = snprintf(whole, sizeof(whole), "build files %s", text);

    HMAC(EVP_sha256(), secret, TOKEN_SECRET_BYTES, (unsigned char *)whole, (size_t)len, mac, NULL);
    text_hex(mac, sizeof(mac), ret);
}

/* "UNTIL.HASH.TENANT.MAC": a tenant's name may contain dots, so it reaches to the last one. */
static const char *make_ticket(struct request *req, const char *hash)
{
    const char *text =
        arena_printf(&req->arena, "%llu.%s.%s",
                     (unsigned long long)(clock_unix_ms() / 1000 + SIGNED_S), hash, req->tenant);
    char mac[TOKEN_LEN + 1];

    sign(req->core->token_secret, text, mac);
    return arena_printf(&req->arena, "%s.%s", text, mac);
}

static int fail_ticket(struct cove_err *e)
{
    return cove_fail(e, COVE_UNAUTHORIZED, "this URL for an upload is not valid, or not any more");
}

static int read_ticket(struct request *req, struct build_file *ret, struct cove_err *e)
{
    char *text = arena_strdup(&req->arena, request_capture(req, "ticket")), *mac, *hash, *tenant;
    char want[TOKEN_LEN + 1];
    uint64_t until;

    mac = strrchr(text, '.');
    if (!mac || !req->core->token_secret || strlen(text) > 200)
        return fail_ticket(e);
    *mac++ = '\0';
    sign(req->core->token_secret, text, want);
    hash = strchr(text, '.');
    tenant = hash ? strchr(hash + 1, '.') : NULL;
    if (strlen(mac) != TOKEN_LEN || CRYPTO_memcmp(mac, want, TOKEN_LEN) != 0 || !tenant)
        return fail_ticket(e);
    *hash++ = '\0';
    *tenant++ = '\0';
    if (text_parse_u64(text, &until, NULL) < 0 || until < clock_unix_ms() / 1000 ||
        !text_copy(ret->hash, sizeof(ret->hash), hash) ||
        !text_copy(ret->tenant, sizeof(ret->tenant), tenant))
        return fail_ticket(e);
    return 0;
}

/* ------------------------------------------------------------------ where to */

struct link {
    bool present;
    const char *url; /* where to put it; NULL: it is there */
};

static const struct json_field link_fields[] = {
    JSON_BOOL(struct link, present, "present", JSON_REQUIRED),
    JSON_STR(struct link, url, "url", JSON_OPTIONAL, JSON_ANY),
    JSON_END,
};

struct search {
    const char *name;
    bool found;
};

static int look(void *arg, const struct keeper_snapshot *s)
{
    struct search *search = arg;

    search->found = strcmp(s->name, search->name) == 0;
    return search->found;
}

/* Fails unless a build of this name was asked for, or has made a template. */
static int check_template(struct request *req, const char *name, struct cove_err *e)
{
    struct build_listed *builds = arena_alloc(&req->arena, sizeof(*builds));
    struct search search = { .name = name };

    if (core_build_list(req->core, req->tenant, name, builds, e) < 0)
        return -1;
    if (builds->count == 0 && core_snapshot_list(req->core, req->tenant, look, &search, e) < 0)
        return -1;
    if (builds->count == 0 && !search.found)
        return cove_fail(e, COVE_NOT_FOUND, "template '%.60s' not found", name);
    return 0;
}

int e2b_build_file_link(struct request *req, struct reply *rep, struct cove_err *e)
{
    const char *hash = request_capture(req, "hash"), *name;
    struct link link = { 0 };

    req->note.operation = "build_file_link";
    if (e2b_template_name(req, &name, e) < 0 || check_template(req, name, e) < 0 ||
        core_build_has_files(req->core, req->tenant, hash, &link.present, e) < 0)
        return -1;
    rep->status = 201;
    if (!link.present)
        link.url = arena_printf(&req->arena, "%s://%s/template-files/%s",
                                request_param(req, "REQUEST_SCHEME"),
                                request_param(req, "COVE_AUTHORITY"), make_ticket(req, hash));
    reply_json(rep, link_fields, &link);
    return 0;
}

/* ------------------------------------------------------------------ the upload */

static int receive(struct request *req, int fd, const struct build_file *file, bool declared,
                   struct cove_err *e)
{
    char chunk[CHUNK_BYTES];
    uint64_t got = 0;
    int n;

    while ((n = FCGX_GetStr(chunk, CHUNK_BYTES, req->in)) > 0) {
        got += (uint64_t)n;
        if (got > file->bytes)
            return cove_fail(e, COVE_TOO_LARGE, "body: is longer than it may be");
        if (write_all(fd, chunk, (size_t)n) < 0)
            return cove_fail_errno(e, COVE_BUSY, "keeping the upload");
    }
    if (FCGX_GetError(req->in) || (declared && got < file->bytes))
        return cove_fail(e, COVE_INVALID, "body: ended before its Content-Length");
    return 0;
}

int e2b_build_file_put(struct request *req, struct reply *rep, struct cove_err *e)
{
    const char *declared = request_param(req, "CONTENT_LENGTH");
    struct build_file file = { 0 };
    struct core_upload upload;
    int rc;

    req->note.operation = "build_file";
    if (read_ticket(req, &file, e) < 0)
        return -1;
    file.bytes = req->core->config->build_files_bytes;
    if (*declared && text_parse_u64(declared, &file.bytes, e) < 0)
        return cove_context(e, "Content-Length");
    if (core_build_upload(req->core, &file, &upload, e) < 0)
        return -1;
    rc = receive(req, upload.fd, &file, *declared != '\0', e) < 0 ||
                 core_build_uploaded(&upload, e) < 0
             ? -1
             : 0;
    core_upload_done(&upload);
    if (rc == 0)
        rep->status = 204;
    return rc;
}
