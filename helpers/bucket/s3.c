/*
 * One request to the bucket by libcurl, signed by it (SigV4). Debian's libcurl signs a request as it is
 * given: names in a query must be sorted and have their "=", values must be encoded, and
 * x-amz-content-sha256 is a header that we set. The digest of a body is computed before it is sent, so
 * that what arrives is what was signed.
 */
#include <ctype.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cove/mem.h"
#include "cove/text.h"
#include "helpers/bucket/bucket_private.h"

enum {
    TRIES = 6,
    PAUSE_MS = 250, /* before the second try; twice that before the third, ... */
    PAUSE_MAX_MS = 8000,
    CONNECT_MS = 15000,
    READ_BYTES = 64 * 1024,
    HEADERS_MAX = 64 * 1024, /* of one answer's head */
    PROGRESS_BYTES = 1 << 20,
    SLOWEST_BYTES = 1024, /* a second, of a file: slower than that for stall_ms is a failure */
};

struct attempt { /* what the callbacks of one try need */
    struct s3 *s;
    struct s3_request *r;
    uint64_t sent;
    bool goes_on; /* this try asks for the bytes that an earlier one did not get */
    size_t head_bytes;
    struct buf trouble; /* the body of an answer that is no success */
    struct cove_err why;
    char text[CURL_ERROR_SIZE];
};

/* ------------------------------------------------------------------ the bucket */

int s3_open(struct s3 *s, const struct bucket_place *place, int credentials, int ca,
            struct cove_err *e)
{
    s->place = place;
    if (credentials_read(s, credentials, e) < 0 || (ca >= 0 && credentials_read_ca(s, ca, e) < 0))
        return -1;
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK || !(s->curl = curl_easy_init()))
        return cove_fail(e, COVE_INTERNAL, "libcurl does not start");
    return 0;
}

void s3_done(struct s3 *s)
{
    if (s->curl)
        curl_easy_cleanup(s->curl);
    explicit_bzero(s->secret, sizeof(s->secret));
    buf_done(&s->ca);
}

void s3_encode(const char *text, char *out, size_t size)
{
    static const char plain[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~";
    size_t at = 0;

    for (; *text && at + 4 < size; text++)
        at += (size_t)snprintf(out + at, size - at, strchr(plain, *text) ? "%c" : "%%%02X",
                               (unsigned char)*text);
    out[at] = '\0';
}

/* ------------------------------------------------------------------ what libcurl calls */

static uint64_t body_size(const struct s3_request *r)
{
    return r->text ? strlen(r->text) : r->size;
}

static ssize_t body_read(const struct s3_request *r, char *out, size_t size, uint64_t at)
{
    uint64_t left = body_size(r) - at;
    size_t n = size < left ? size : (size_t)left;

    if (!r->text)
        return n ? pread(r->file, out, n, (off_t)(r->at + at)) : 0;
    memcpy(out, r->text + at, n);
    return (ssize_t)n;
}

static size_t give_body(char *out, size_t size, size_t count, void *arg)
{
    struct attempt *a = arg;
    ssize_t n = body_read(a->r, out, size * count, a->sent);

    if (n < 0 || (n == 0 && a->sent < body_size(a->r))) {
        cove_fail(&a->why, COVE_INTERNAL, "the file changed while it was uploaded");
        return CURL_READFUNC_ABORT;
    }
    a->sent += (uint64_t)n;
    return (size_t)n;
}

static int seek_body(void *arg, curl_off_t offset, int origin)
{
    struct attempt *a = arg;

    if (origin != SEEK_SET || offset < 0)
        return CURL_SEEKFUNC_CANTSEEK;
    a->sent = (uint64_t)offset;
    return CURL_SEEKFUNC_OK;
}

static bool is_success(long status)
{
    return status >= 200 && status < 300;
}

/* A partial answer must begin where it was asked to: otherwise a server that sends the object from its beginning
 * would corrupt the file. */
static int take_content(struct attempt *a, long status, const char *bytes, size_t len)
{
    struct s3_request *r = a->r;

    if (r->take) {
        if (a->goes_on && status != 206)
            return cove_fail(&a->why, COVE_GONE, "the bucket does not give parts of an object");
        if (r->take(r->arg, bytes, len, &a->why) < 0)
            return -1;
        r->got += len;
        return 0;
    }
    if (r->answer && buf_add(r->answer, bytes, len) < 0)
        return cove_fail(&a->why, COVE_TOO_LARGE, "the bucket's answer is too long");
    return 0;
}

static size_t take_body(char *bytes, size_t size, size_t count, void *arg)
{
    struct attempt *a = arg;
    long status = 0;

    curl_easy_getinfo(a->s->curl, CURLINFO_RESPONSE_CODE, &status);
    if (!is_success(status)) {
        buf_add(&a->trouble, bytes, size * count); /* a longer answer is cut off */
        return size * count;
    }
    return take_content(a, status, bytes, size * count) < 0 ? 0 : size * count;
}

/* The value of a header line, if it is that header's. */
static bool header_is(const char *name, const char *line, size_t len, char *out, size_t size)
{
    size_t n = strlen(name);

    if (len <= n || strncasecmp(line, name, n) != 0)
        return false;
    while (n < len && isspace((unsigned char)line[n]))
        n++;
    snprintf(out, size, "%.*s", (int)(len - n), line + n);
    text_trim(out);
    return true;
}

static size_t take_header(char *bytes, size_t size, size_t count, void *arg)
{
    struct attempt *a = arg;
    size_t len = size * count;
    char date[64];
    time_t now;

    a->head_bytes += len;
    if (a->head_bytes > HEADERS_MAX)
        return 0;
    if (header_is("date:", bytes, len, date, sizeof(date))) {
        now = curl_getdate(date, NULL);
        a->s->now_unix_ms = now > 0 ? (uint64_t)now * 1000 : 0;
    }
    header_is("etag:", bytes, len, a->r->etag, sizeof(a->r->etag));
    return len;
}

/* ------------------------------------------------------------------ setting one up */

static int digest_body(const struct s3_request *r, char ret[SAVED_DIGEST_TEXT], struct cove_err *e)
{
    EVP_MD_CTX *sha = EVP_MD_CTX_new();
    unsigned char sum[EVP_MAX_MD_SIZE];
    char buf[READ_BYTES];
    uint64_t at = 0;
    ssize_t n = 1;

    if (!sha || EVP_DigestInit_ex(sha, EVP_sha256(), NULL) != 1)
        n = -1;
    while (n > 0 && at < body_size(r) && (n = body_read(r, buf, sizeof(buf), at)) > 0) {
        EVP_DigestUpdate(sha, buf, (size_t)n);
        at += (uint64_t)n;
    }
    if (n >= 0)
        EVP_DigestFinal_ex(sha, sum, NULL);
    EVP_MD_CTX_free(sha);
    if (n < 0 || at != body_size(r))
        return cove_fail(e, COVE_INTERNAL, "reading what is to be uploaded");
    text_hex(sum, 32, ret);
    return 0;
}

/* Either https://HOST/BUCKET/KEY or https://BUCKET.HOST/KEY. */
static int make_url(const struct s3 *s, const struct s3_request *r, char *out, size_t size)
{
    const struct bucket_place *p = s->place;
    const char *host = strstr(p->endpoint, "://");
    const char *q = r->query ? "?" : "", *query = r->query ? r->query : "";
    size_t host_len;

    if (!host)
        return -1;
    host += 3;
    host_len = strcspn(host, "/");
    if (p->path_style)
        return snprintf(out, size, "%.*s/%s%s%s%s%s", (int)(host + host_len - p->endpoint),
                        p->endpoint, p->bucket, r->key[0] ? "/" : "", r->key, q, query);
    return snprintf(out, size, "%.*s%s.%.*s/%s%s%s", (int)(host - p->endpoint), p->endpoint,
                    p->bucket, (int)host_len, host, r->key, q, query);
}

static void set_body(CURL *c, struct attempt *a)
{
    const struct s3_request *r = a->r;

    if (strcmp(r->method, "PUT") == 0 || strcmp(r->method, "POST") == 0) {
        curl_easy_setopt(c, CURLOPT_UPLOAD, 1L);
        curl_easy_setopt(c, CURLOPT_INFILESIZE_LARGE, (curl_off_t)body_size(r));
        curl_easy_setopt(c, CURLOPT_READFUNCTION, give_body);
        curl_easy_setopt(c, CURLOPT_READDATA, a);
        curl_easy_setopt(c, CURLOPT_SEEKFUNCTION, seek_body);
        curl_easy_setopt(c, CURLOPT_SEEKDATA, a);
    }
    curl_easy_setopt(c, CURLOPT_CUSTOMREQUEST, r->method);
}

static void set_rules(CURL *c, struct attempt *a)
{
    long stall_s = (long)(a->s->place->stall_ms / 1000);
    struct curl_blob ca = { a->s->ca.data, a->s->ca.len, CURL_BLOB_NOCOPY };

    curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(c, CURLOPT_PROXY, "");
    if (ca.len)
        curl_easy_setopt(c, CURLOPT_CAINFO_BLOB, &ca);
    curl_easy_setopt(c, CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
    curl_easy_setopt(c, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_LIMIT,
                     a->r->take || a->r->size ? (long)SLOWEST_BYTES : 1L);
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_TIME, stall_s ? stall_s : 1L);
    curl_easy_setopt(c, CURLOPT_USERAGENT, "cove");
    curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, take_header);
    curl_easy_setopt(c, CURLOPT_HEADERDATA, a);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, take_body);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, a);
    curl_easy_setopt(c, CURLOPT_ERRORBUFFER, a->text);
}

static int set_signature(CURL *c, const struct s3 *s)
{
    char provider[128];

    snprintf(provider, sizeof(provider), "aws:amz:%s:s3", s->place->region);
    return curl_easy_setopt(c, CURLOPT_AWS_SIGV4, provider) != CURLE_OK ||
                   curl_easy_setopt(c, CURLOPT_USERNAME, s->key_id) != CURLE_OK ||
                   curl_easy_setopt(c, CURLOPT_PASSWORD, s->secret) != CURLE_OK
               ? -1
               : 0;
}

static struct curl_slist *make_headers(const struct s3 *s, const struct s3_request *r,
                                       const char *digest)
{
    struct curl_slist *list = NULL;
    char line[sizeof(s->token) + 64];

    snprintf(line, sizeof(line), "x-amz-content-sha256: %s", digest);
    list = curl_slist_append(list, line);
    if (s->token[0]) {
        snprintf(line, sizeof(line), "x-amz-security-token: %s", s->token);
        list = curl_slist_append(list, line);
    }
    return r->header ? curl_slist_append(list, r->header) : list;
}

/* ------------------------------------------------------------------ trying */

static bool may_pass(long status)
{
    return status == 408 || status == 429 || (status >= 500 && status != 501);
}

static int explain(struct attempt *a, CURLcode code, long status, struct cove_err *e)
{
    char word[64] = "";
    const char *at = a->trouble.data;

    if (a->why.code) {
        if (e)
            *e = a->why;
        return -1;
    }
    if (code != CURLE_OK)
        return cove_fail(e, COVE_GONE, "the bucket: %s",
                         *a->text ? a->text : curl_easy_strerror(code));
    if (!at || !xml_next(&at, "Code", word, sizeof(word)) ||
        word[strspn(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")])
        word[0] = '\0';
    return cove_fail(e, status == 404 ? COVE_NOT_FOUND : COVE_GONE, "the bucket answered %ld%s%s",
                     status, word[0] ? " " : "", word);
}

static int try_once(struct s3 *s, struct s3_request *r, const char *digest, bool *ret_again,
                    struct cove_err *e)
{
    struct attempt a = { .s = s, .r = r, .goes_on = r->got > 0, .trouble = BUF(16 * 1024) };
    struct curl_slist *headers = make_headers(s, r, digest);
    char url[1024], range[48];
    CURLcode code;
    int rc;

    curl_easy_reset(s->curl); /* keeps the connection */
    set_rules(s->curl, &a);
    set_body(s->curl, &a);
    if (r->answer)
        buf_clear(r->answer);
    if (r->got) {
        snprintf(range, sizeof(range), "%llu-", (unsigned long long)r->got);
        curl_easy_setopt(s->curl, CURLOPT_RANGE, range);
    }
    rc = make_url(s, r, url, sizeof(url));
    if (!headers || rc < 0 || (size_t)rc >= sizeof(url) || set_signature(s->curl, s) < 0)
        return cove_fail(e, COVE_INVALID, "store_endpoint, store_bucket or store_prefix");
    curl_easy_setopt(s->curl, CURLOPT_URL, url);
    curl_easy_setopt(s->curl, CURLOPT_HTTPHEADER, headers);
    s->requests++;
    code = curl_easy_perform(s->curl);
    curl_easy_getinfo(s->curl, CURLINFO_RESPONSE_CODE, &r->status);
    curl_slist_free_all(headers);
    rc = code == CURLE_OK && is_success(r->status) ? 0 : explain(&a, code, r->status, e);
    *ret_again = !a.why.code && (code != CURLE_OK || may_pass(r->status));
    buf_done(&a.trouble);
    return rc;
}

/* Waits between half of the pause and all of it, so that many processes that failed together do not come back
 * together. */
static void pause_before(unsigned try)
{
    uint64_t most = (uint64_t)PAUSE_MS << (try - 1), ms;
    uint32_t chance;

    text_random(&chance, sizeof(chance));
    most = most < PAUSE_MAX_MS ? most : PAUSE_MAX_MS;
    ms = most / 2 + chance % (most / 2 + 1);
    nanosleep(&(struct timespec){ (time_t)(ms / 1000), (long)(ms % 1000) * 1000000 }, NULL);
}

int s3_perform(struct s3 *s, struct s3_request *r, struct cove_err *e)
{
    char digest[SAVED_DIGEST_TEXT];
    bool again = true;
    uint64_t had = 0;
    int rc = -1;

    if (digest_body(r, digest, e) < 0)
        return -1;
    for (unsigned try = 0; try < TRIES && again && rc < 0; try++) {
        if (r->got >= had + PROGRESS_BYTES) { /* this try made progress: count the tries anew */
            had = r->got;
            try = 0;
        }
        if (try)
            pause_before(try);
        rc = try_once(s, r, digest, &again, e);
    }
    return rc;
}
