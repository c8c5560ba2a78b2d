/*
 * One fetch by libcurl: a download into a file, or an upload out of one. Every connection that libcurl is
 * about to make, the first one and those after a redirect, passes open_socket(), which decides on its
 * address. Nothing is kept from one fetch to the next: no connection, no name, no cookie.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cove/file.h"
#include "cove/mem.h"
#include "cove/text.h"
#include "helpers/fetch/fetch_private.h"

enum {
    CONNECT_MS = 15000,
    SLOW_BYTES = 64, /* bytes a second; a fetch that is slower for SLOW_S seconds is given up */
    SLOW_S = 30,
    ANSWER_MAX = 64 * 1024, /* bytes of a server's answer to an upload, which is thrown away */
};

#define USER_AGENT "cove-fetch"

/* ------------------------------------------------------------------ libcurl's questions */

static curl_socket_t open_socket(void *arg, curlsocktype purpose, struct curl_sockaddr *to)
{
    struct fetch_job *j = arg;

    if (purpose != CURLSOCKTYPE_IPCXN ||
        !address_may_be_reached(j->fetcher->config.fetch_allow, &to->addr)) {
        j->refused = true;
        return CURL_SOCKET_BAD;
    }
    return socket(to->family, to->socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, to->protocol);
}

static int fail_too_large(struct fetch_job *j)
{
    char size[32];

    text_format_bytes(j->most, size);
    return cove_fail(&j->why, COVE_TOO_LARGE, "url: the file is larger than %s", size);
}

/* Any other number than `len` ends the fetch. */
static size_t take_download(char *bytes, size_t size, size_t count, void *arg)
{
    size_t len = size * count;
    struct fetch_job *j = arg;

    if (len > j->most - j->bytes) {
        fail_too_large(j);
        return 0;
    }
    if (write_all(j->file, bytes, len) < 0) {
        cove_fail_errno(&j->why, COVE_LIMIT, "writing the file");
        return 0;
    }
    j->bytes += len;
    return len;
}

static size_t take_answer(char *bytes, size_t size, size_t count, void *arg)
{
    struct fetch_job *j = arg;

    (void)bytes;
    j->header_bytes += size * count;
    return j->header_bytes < HEADERS_MAX + ANSWER_MAX ? size * count : 0;
}

static size_t take_header(char *bytes, size_t size, size_t count, void *arg)
{
    struct fetch_job *j = arg;

    (void)bytes;
    j->header_bytes += size * count;
    return j->header_bytes < HEADERS_MAX ? size * count : 0;
}

/* Sends as many bytes as were announced: if the file became shorter meanwhile, the upload fails. */
static size_t give_upload(char *out, size_t size, size_t count, void *arg)
{
    struct fetch_job *j = arg;
    uint64_t left = j->ask.size - j->bytes;
    size_t want = size * count < left ? size * count : (size_t)left;
    ssize_t n = want ? pread(j->file, out, want, (off_t)j->bytes) : 0;

    if (n < 0 || (n == 0 && left > 0)) {
        cove_fail(&j->why, COVE_CONFLICT, "the file changed while it was uploaded");
        return CURL_READFUNC_ABORT;
    }
    j->bytes += (uint64_t)n;
    return (size_t)n;
}

/* ------------------------------------------------------------------ setting one up */

/* Only http and https, and a host. */
static int check_url(struct fetch_job *j, const char *url, struct cove_err *e)
{
    CURLU *u = curl_url();
    char *scheme = NULL, *host = NULL;
    int rc = 0;

    if (!u || curl_url_set(u, CURLUPART_URL, url, 0) != CURLUE_OK ||
        curl_url_get(u, CURLUPART_SCHEME, &scheme, 0) != CURLUE_OK ||
        curl_url_get(u, CURLUPART_HOST, &host, 0) != CURLUE_OK)
        rc = cove_fail(e, COVE_INVALID, "url: is not a URL");
    else if (strcmp(scheme, "http") != 0 && strcmp(scheme, "https") != 0)
        rc = cove_fail(e, COVE_INVALID, "url: must begin with http:// or https://");
    else if (!text_copy(j->host, sizeof(j->host), host))
        rc = cove_fail(e, COVE_INVALID, "url: the host's name is too long");
    curl_free(scheme);
    curl_free(host);
    curl_url_cleanup(u);
    return rc;
}

static void set_bounds(struct fetch_job *j)
{
    const struct cove_config *c = &j->fetcher->config;

    curl_easy_setopt(j->curl, CURLOPT_TIMEOUT_MS, (long)c->fetch_timeout_ms);
    curl_easy_setopt(j->curl, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
    curl_easy_setopt(j->curl, CURLOPT_LOW_SPEED_LIMIT, (long)SLOW_BYTES);
    curl_easy_setopt(j->curl, CURLOPT_LOW_SPEED_TIME, (long)SLOW_S);
    curl_easy_setopt(j->curl, CURLOPT_MAX_RECV_SPEED_LARGE, (curl_off_t)c->fetch_rate_bytes);
    curl_easy_setopt(j->curl, CURLOPT_MAX_SEND_SPEED_LARGE, (curl_off_t)c->fetch_rate_bytes);
    curl_easy_setopt(j->curl, CURLOPT_HEADERFUNCTION, take_header);
    curl_easy_setopt(j->curl, CURLOPT_HEADERDATA, j);
}

/* Forbids what libcurl would do by default: use proxies, other protocols, state of other fetches, or passwords
 * stored on this machine. */
static void set_rules(struct fetch_job *j)
{
    curl_easy_setopt(j->curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(j->curl, CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(j->curl, CURLOPT_PROXY, "");
    curl_easy_setopt(j->curl, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(j->curl, CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
    curl_easy_setopt(j->curl, CURLOPT_UNRESTRICTED_AUTH, 0L);
    curl_easy_setopt(j->curl, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(j->curl, CURLOPT_FRESH_CONNECT, 1L);
    curl_easy_setopt(j->curl, CURLOPT_FORBID_REUSE, 1L);
    curl_easy_setopt(j->curl, CURLOPT_DNS_CACHE_TIMEOUT, 0L);
    curl_easy_setopt(j->curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(j->curl, CURLOPT_USERAGENT, USER_AGENT);
    curl_easy_setopt(j->curl, CURLOPT_OPENSOCKETFUNCTION, open_socket);
    curl_easy_setopt(j->curl, CURLOPT_OPENSOCKETDATA, j);
    curl_easy_setopt(j->curl, CURLOPT_ERRORBUFFER, j->text);
    curl_easy_setopt(j->curl, CURLOPT_PRIVATE, j);
}

static void set_download(struct fetch_job *j)
{
    curl_easy_setopt(j->curl, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(j->curl, CURLOPT_MAXREDIRS, (long)REDIRECTS_MAX);
    curl_easy_setopt(j->curl, CURLOPT_FAILONERROR, 1L);
    curl_easy_setopt(j->curl, CURLOPT_MAXFILESIZE_LARGE, (curl_off_t)j->most);
    curl_easy_setopt(j->curl, CURLOPT_WRITEFUNCTION, take_download);
    curl_easy_setopt(j->curl, CURLOPT_WRITEDATA, j);
}

static void set_upload(struct fetch_job *j)
{
    j->headers = curl_slist_append(NULL, j->ask.verb == FETCH_UPLOAD_TEXT
                                             ? "Content-Type: text/plain; charset=utf-8"
                                             : "Content-Type: application/octet-stream");
    j->headers = curl_slist_append(j->headers, "Expect:");
    curl_easy_setopt(j->curl, CURLOPT_HTTPHEADER, j->headers);
    curl_easy_setopt(j->curl, CURLOPT_UPLOAD, 1L);
    curl_easy_setopt(j->curl, CURLOPT_INFILESIZE_LARGE, (curl_off_t)j->ask.size);
    curl_easy_setopt(j->curl, CURLOPT_READFUNCTION, give_upload);
    curl_easy_setopt(j->curl, CURLOPT_READDATA, j);
    curl_easy_setopt(j->curl, CURLOPT_WRITEFUNCTION, take_answer);
    curl_easy_setopt(j->curl, CURLOPT_WRITEDATA, j);
}

int transfer_begin(struct fetch_job *j, const char *url, struct cove_err *e)
{
    uint64_t ours = j->fetcher->config.fetch_max_bytes;

    if (check_url(j, url, e) < 0)
        return -1;
    j->most = j->ask.most < ours ? j->ask.most : ours;
    if (j->ask.verb != FETCH_DOWNLOAD && j->ask.size > j->most) {
        j->why = (struct cove_err){ 0 };
        return cove_fail(e, COVE_TOO_LARGE, "the file is larger than fetch_max");
    }
    j->curl = curl_easy_init();
    if (!j->curl || curl_easy_setopt(j->curl, CURLOPT_URL, url) != CURLE_OK)
        return cove_fail(e, COVE_BUSY, "no memory for a fetch");
    set_rules(j);
    set_bounds(j);
    if (j->ask.verb == FETCH_DOWNLOAD)
        set_download(j);
    else
        set_upload(j);
    if (curl_multi_add_handle(j->fetcher->multi, j->curl) != CURLM_OK)
        return cove_fail(e, COVE_BUSY, "no memory for a fetch");
    return 0;
}

void transfer_end(struct fetch_job *j)
{
    if (j->curl) {
        curl_multi_remove_handle(j->fetcher->multi, j->curl);
        curl_easy_cleanup(j->curl);
    }
    j->curl = NULL;
    curl_slist_free_all(j->headers);
    j->headers = NULL;
}

/* ------------------------------------------------------------------ how it ended */

/* Finds out whose fault a failure is: the caller's, ours, or the other side's (COVE_GONE). */
static int explain(struct fetch_job *j, CURLcode code, long status, struct cove_err *e)
{
    if (j->why.code) {
        *e = j->why;
        return -1;
    }
    if (j->refused)
        return cove_fail(e, COVE_FORBIDDEN,
                         "url: leads to an address that fetches may not reach (rule fetch_allow: "
                         "loopback, private, link-local, metadata and this server's own addresses "
                         "are refused)");
    switch (code) {
    case CURLE_OPERATION_TIMEDOUT:
        return cove_fail(e, COVE_TIMEOUT, "url: the other side took too long");
    case CURLE_FILESIZE_EXCEEDED:
        fail_too_large(j);
        *e = j->why;
        return -1;
    case CURLE_HTTP_RETURNED_ERROR:
        return cove_fail(e, COVE_GONE, "url: the server answered %ld", status);
    case CURLE_UNSUPPORTED_PROTOCOL:
        return cove_fail(e, COVE_FORBIDDEN, "url: redirected to something that is not http");
    case CURLE_TOO_MANY_REDIRECTS:
        return cove_fail(e, COVE_GONE, "url: redirected more than %d times", REDIRECTS_MAX);
    default:
        return cove_fail(e, COVE_GONE, "url: %s", *j->text ? j->text : curl_easy_strerror(code));
    }
}

static void finish(struct fetch_job *j, CURLcode code)
{
    struct cove_err e = { 0 };
    long status = 0;
    int rc = 0;

    curl_easy_getinfo(j->curl, CURLINFO_RESPONSE_CODE, &status);
    if (code != CURLE_OK)
        rc = explain(j, code, status, &e);
    else if (status < 200 || status > 299)
        rc = cove_fail(&e, COVE_GONE, "url: the server answered %ld", status);
    else if (j->ask.verb != FETCH_DOWNLOAD && j->bytes != j->ask.size)
        rc = cove_fail(&e, COVE_GONE, "url: the server took only a part of the file");
    job_finish(j, status, rc < 0 ? &e : NULL);
}

static void reap_ended(struct fetcher *f)
{
    CURLMsg *m;
    int left;

    while ((m = curl_multi_info_read(f->multi, &left))) {
        struct fetch_job *j = NULL;

        if (m->msg != CURLMSG_DONE)
            continue;
        curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&j);
        finish(j, m->data.result);
    }
}

/* ------------------------------------------------------------------ libcurl in the event loop */

static void socket_ready(struct watch *w, uint32_t events)
{
    struct fetcher *f = container_of(w->loop, struct fetcher, loop);
    int what = (events & (EPOLLIN | EPOLLHUP) ? CURL_CSELECT_IN : 0) |
               (events & EPOLLOUT ? CURL_CSELECT_OUT : 0) |
               (events & EPOLLERR ? CURL_CSELECT_ERR : 0);
    int running;

    curl_multi_socket_action(f->multi, w->fd, what, &running);
    reap_ended(f);
}

static void curl_time(struct timer *t)
{
    struct fetcher *f = container_of(t, struct fetcher, curl_timer);
    int running;

    curl_multi_socket_action(f->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    reap_ended(f);
}

/* The sockets are libcurl's: a watch of one is stopped, never closed. */
static int watch_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *known)
{
    uint32_t events = (what & CURL_POLL_IN ? EPOLLIN : 0) | (what & CURL_POLL_OUT ? EPOLLOUT : 0);
    struct fetcher *f = arg;
    struct watch *w = known;

    (void)easy;
    if (what == CURL_POLL_REMOVE) {
        if (w)
            watch_take(w);
        free(w);
        curl_multi_assign(f->multi, fd, NULL);
        return 0;
    }
    if (w)
        return watch_want(w, events);
    w = calloc(1, sizeof(*w));
    if (!w || watch_start(&f->loop, w, fd, events, socket_ready) < 0) {
        free(w);
        return -1;
    }
    curl_multi_assign(f->multi, fd, w);
    return 0;
}

static int set_timer(CURLM *multi, long after_ms, void *arg)
{
    struct fetcher *f = arg;

    (void)multi;
    if (after_ms < 0)
        timer_stop(&f->curl_timer);
    else
        timer_start(&f->loop, &f->curl_timer, (uint64_t)after_ms, curl_time);
    return 0;
}

int transfer_init(struct fetcher *f, struct cove_err *e)
{
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK || !(f->multi = curl_multi_init()))
        return cove_fail(e, COVE_INTERNAL, "libcurl does not start");
    curl_multi_setopt(f->multi, CURLMOPT_SOCKETFUNCTION, watch_socket);
    curl_multi_setopt(f->multi, CURLMOPT_SOCKETDATA, f);
    curl_multi_setopt(f->multi, CURLMOPT_TIMERFUNCTION, set_timer);
    curl_multi_setopt(f->multi, CURLMOPT_TIMERDATA, f);
    return 0;
}
