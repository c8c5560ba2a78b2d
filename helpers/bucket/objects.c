/*
 * Objects: putting them, whole or in parts, reading and removing them. What the bucket says about an object is
 * not trusted, ETags least of all: to be sure, the object is read and its digest computed.
 */
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

#include "cove/file.h"
#include "cove/text.h"
#include "helpers/bucket/bucket_private.h"

enum { PARTS_MAX = 10000, UPLOAD_ID_MAX = 1024, QUERY_MAX = 4096 };

void object_key(const struct s3 *s, const struct bucket_order *o, const char *name,
                char ret[KEY_MAX])
{
    const char *prefix = s->place->prefix;

    snprintf(ret, KEY_MAX, "%s%s%s/%llu/%s", prefix, prefix[0] ? "/" : "", o->id,
             (unsigned long long)o->saved_unix_ms, name);
}

int object_put_text(struct s3 *s, const char *key, const char *text, const char *header,
                    struct cove_err *e)
{
    struct s3_request r = { .method = "PUT", .key = key, .text = text, .header = header };

    if (s3_perform(s, &r, e) == 0)
        return 0;
    if (r.status == 409 || r.status == 412)
        return cove_fail(e, COVE_CONFLICT, "the object is there already");
    if (r.status == 501)
        return cove_fail(e, COVE_UNSUPPORTED, "the bucket does not know conditional writes");
    return -1;
}

int object_read(struct s3 *s, const char *key, struct buf *ret, bool *ret_there, struct cove_err *e)
{
    struct s3_request r = { .method = "GET", .key = key, .answer = ret };
    int rc = s3_perform(s, &r, e);

    *ret_there = rc == 0;
    return rc < 0 && r.status != 404 ? -1 : 0;
}

int object_remove(struct s3 *s, const char *key, struct cove_err *e)
{
    struct s3_request r = { .method = "DELETE", .key = key };

    return s3_perform(s, &r, e) < 0 && r.status != 404 ? -1 : 0;
}

/* ------------------------------------------------------------------ reading */

struct sink {
    int out;
    uint64_t bytes, most;
    char *last; /* gets the last byte, which is not written to `out`; NULL: all bytes are written */
    EVP_MD_CTX *sha;
};

static int sink_take(void *arg, const char *bytes, size_t len, struct cove_err *e)
{
    struct sink *k = arg;

    if (len > k->most - k->bytes)
        return cove_fail(e, COVE_INVALID, "the bucket sends more bytes than were saved");
    EVP_DigestUpdate(k->sha, bytes, len);
    k->bytes += len;
    if (k->last && len > 0 && k->bytes == k->most)
        *k->last = bytes[--len];
    if (k->out >= 0 && write_all(k->out, bytes, len) < 0)
        return cove_fail_errno(e, COVE_LIMIT, "writing what came from the bucket");
    return 0;
}

int object_get(struct s3 *s, const char *key, int out, uint64_t size, const char *digest,
               char *ret_last, struct cove_err *e)
{
    struct sink sink = { .out = out, .most = size, .last = ret_last, .sha = EVP_MD_CTX_new() };
    struct s3_request r = { .method = "GET", .key = key, .take = sink_take, .arg = &sink };
    unsigned char sum[EVP_MAX_MD_SIZE];
    char text[SAVED_DIGEST_TEXT] = "";
    int rc;

    if (!sink.sha || EVP_DigestInit_ex(sink.sha, EVP_sha256(), NULL) != 1)
        return cove_fail(e, COVE_INTERNAL, "libcrypto offers no SHA-256");
    rc = s3_perform(s, &r, e);
    EVP_DigestFinal_ex(sink.sha, sum, NULL);
    EVP_MD_CTX_free(sink.sha);
    text_hex(sum, 32, text);
    if (rc == 0 && (sink.bytes != size || strcmp(text, digest) != 0))
        rc = cove_fail(e, COVE_INVALID, "the archive in the bucket is not the one that was saved");
    return rc;
}

/* ------------------------------------------------------------------ putting, in parts */

static int begin_parts(struct s3 *s, const char *key, char ret_id[UPLOAD_ID_MAX],
                       struct cove_err *e)
{
    AUTO_BUF struct buf answer = BUF(ANSWER_MAX);
    struct s3_request r = {
        .method = "POST", .key = key, .query = "uploads=", .text = "", .answer = &answer
    };
    char id[UPLOAD_ID_MAX];
    const char *at;

    if (s3_perform(s, &r, e) < 0)
        return -1;
    at = answer.data ? answer.data : "";
    if (!xml_next(&at, "UploadId", id, sizeof(id)) || !id[0])
        return cove_fail(e, COVE_GONE, "the bucket did not begin an upload");
    s3_encode(id, ret_id, UPLOAD_ID_MAX);
    return 0;
}

static int put_part(struct s3 *s, const char *key, const char *id, unsigned number,
                    struct s3_request *r, struct buf *list, struct cove_err *e)
{
    char query[QUERY_MAX];

    snprintf(query, sizeof(query), "partNumber=%u&uploadId=%s", number, id);
    r->method = "PUT";
    r->key = key;
    r->query = query;
    if (s3_perform(s, r, e) < 0)
        return -1;
    if (strpbrk(r->etag, "<>&"))
        return cove_fail(e, COVE_GONE, "the bucket answered a part without an ETag");
    return buf_addf(list, "<Part><PartNumber>%u</PartNumber><ETag>%s</ETag></Part>", number,
                    r->etag);
}

/* Some stores answer 200 before they have finished, and report a failure in the body. */
static int end_parts(struct s3 *s, const char *key, const char *id, struct buf *list,
                     struct cove_err *e)
{
    AUTO_BUF struct buf answer = BUF(ANSWER_MAX);
    char query[QUERY_MAX];
    struct s3_request r = {
        .method = "POST", .key = key, .query = query, .text = list->data, .answer = &answer
    };

    snprintf(query, sizeof(query), "uploadId=%s", id);
    if (buf_add_str(list, "</CompleteMultipartUpload>") < 0)
        return cove_fail(e, COVE_TOO_LARGE, "the list of parts is too long");
    r.text = list->data;
    if (s3_perform(s, &r, e) < 0)
        return -1;
    if (!answer.data || strstr(answer.data, "<Error>"))
        return cove_fail(e, COVE_GONE, "the bucket did not put the parts together");
    return 0;
}

static void abort_parts(struct s3 *s, const char *key, const char *encoded_id)
{
    char query[QUERY_MAX];
    struct s3_request r = { .method = "DELETE", .key = key, .query = query };

    snprintf(query, sizeof(query), "uploadId=%s", encoded_id);
    s3_perform(s, &r, NULL); /* if this fails, `cove store gc` ends the upload */
}

static int put_in_parts(struct s3 *s, const char *key, int file, uint64_t size, struct cove_err *e)
{
    AUTO_BUF struct buf list = BUF(4 << 20);
    uint64_t part = s->place->part_bytes, at = 0;
    char id[UPLOAD_ID_MAX];
    int rc = 0;

    if (part < (size + PARTS_MAX - 1) / PARTS_MAX)
        part = (size + PARTS_MAX - 1) / PARTS_MAX;
    if (begin_parts(s, key, id, e) < 0)
        return -1;
    buf_add_str(&list, "<CompleteMultipartUpload>");
    for (unsigned number = 1; rc == 0 && at < size; number++, at += part) {
        struct s3_request r = { .file = file,
                                .at = at,
                                .size = size - at < part ? size - at : part };

        rc = put_part(s, key, id, number, &r, &list, e);
    }
    if (rc == 0)
        rc = end_parts(s, key, id, &list, e);
    if (rc < 0)
        abort_parts(s, key, id);
    return rc;
}

int object_put(struct s3 *s, const char *key, int file, uint64_t size, struct cove_err *e)
{
    struct s3_request r = { .method = "PUT", .key = key, .file = file, .size = size };

    return size > s->place->part_bytes ? put_in_parts(s, key, file, size, e) : s3_perform(s, &r, e);
}

void object_abort_uploads(struct s3 *s, const char *prefix, uint64_t before_unix_ms)
{
    AUTO_BUF struct buf answer = BUF(ANSWER_MAX);
    char encoded[KEY_MAX * 3], query[QUERY_MAX], key[KEY_MAX], raw[UPLOAD_ID_MAX],
        id[UPLOAD_ID_MAX], when[64];
    struct s3_request r = { .method = "GET", .key = "", .query = query, .answer = &answer };
    const char *at;
    uint64_t began;

    s3_encode(prefix, encoded, sizeof(encoded));
    snprintf(query, sizeof(query), "prefix=%s&uploads=", encoded);
    if (s3_perform(s, &r, NULL) < 0 || !answer.data)
        return;
    at = strstr(answer.data, "<Upload>");
    while (at && xml_next(&at, "Key", key, sizeof(key)) &&
           xml_next(&at, "UploadId", raw, sizeof(raw)) &&
           xml_next(&at, "Initiated", when, sizeof(when))) {
        s3_encode(raw, id, sizeof(id));
        if (strncmp(key, prefix, strlen(prefix)) == 0 &&
            !key[strspn(key, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                             "abcdefghijklmnopqrstuvwxyz"
                             "0123456789-_./")] &&
            text_parse_time(when, &began) == 0 && began < before_unix_ms)
            abort_parts(s, key, id);
    }
}
