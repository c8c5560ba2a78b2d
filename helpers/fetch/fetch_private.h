/* What the fetch helper's files share among themselves. */
#ifndef COVE_FETCH_PRIVATE_H
#define COVE_FETCH_PRIVATE_H

#include <curl/curl.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "cove/config.h"
#include "cove/loop.h"
#include "cove/msg.h"
#include "cove/msg_helpers.h"

enum {
    JOBS_MAX = 64,       /* fetches under way, of all tenants */
    REDIRECTS_MAX = 5,   /* of one download; an upload is never redirected */
    HEADERS_MAX = 65536, /* bytes of all answers' heads together */
};

struct fetcher;

struct fetch_job { /* one connection of a worker, and the fetch it asked for */
    LIST_ENTRY(fetch_job) link;
    struct fetcher *fetcher;
    struct watch watch; /* the worker; when it hangs up the fetch ends */
    pid_t pid;          /* of the worker */
    struct timer timer; /* until the question must be there; then for progress in the log */
    struct fetch_ask ask;
    int file;
    CURL *curl; /* NULL: the question has not come yet */
    struct curl_slist *headers;
    char host[256]; /* for the log: no more of a URL, which may hold secrets */
    uint64_t began_ms, bytes, most, header_bytes;
    bool refused;        /* an address on the way may not be reached */
    struct cove_err why; /* what one of our callbacks failed with */
    char text[CURL_ERROR_SIZE];
};

struct fetcher {
    struct cove_config config;
    struct loop loop;
    struct watch listen;
    struct timer curl_timer;
    CURLM *multi;
    LIST_HEAD(job_list, fetch_job) jobs;
    unsigned job_count;
};

/* ------------------------------------------------------------------ address.c */

struct sockaddr;
/* May a fetch connect there? `allow` is a list of addresses and ranges that override the refusal. */
bool address_may_be_reached(const char *allow, const struct sockaddr *to);
/* Is it an address of this machine? Nothing is sent to find out. */
bool address_is_own(const struct sockaddr *to);

/* ------------------------------------------------------------------ transfer.c */

int transfer_init(struct fetcher *f, struct cove_err *e);
int transfer_begin(struct fetch_job *j, const char *url, struct cove_err *e);
void transfer_end(struct fetch_job *j); /* takes a job that never began */

/* ------------------------------------------------------------------ fetch.c */

/* The fetch has ended: the worker is told, and the job is gone. e NULL: it went well. */
void job_finish(struct fetch_job *j, long http_status, const struct cove_err *e);

#endif
