/*
 * What nginx hands on of a request: fcgi/http.c. Lines of the input are FastCGI parameters, and the
 * first line is the request's URI. A path or query that was taken apart has no NUL and no escape left.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fcgi/http.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { PARAMS_MAX = 16 };

static void check(const struct request *req)
{
    if (!req->path || !req->tenant || !req->request_id || !req->method_name)
        abort();
    for (size_t i = 0; i < req->segment_count; i++)
        if (strlen(req->segments[i]) > strlen(req->path))
            abort(); /* decoding makes nothing longer */
    for (size_t i = 0; i < req->query_count; i++)
        (void)(strlen(req->query[i].name) + strlen(req->query[i].value));
    if (req->host_box && (!*req->host_box || req->host_port > 99999))
        abort();
    (void)request_query(req, "a");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *params[PARAMS_MAX + 2] = { NULL }, *text, *at, *line, *uri;
    struct request req;
    struct cove_err e = { 0 };
    size_t count = 0;

    text = at = strndup((const char *)data, size); /* parameters end at a NUL */
    line = strsep(&at, "\n");
    if (asprintf(&uri, "REQUEST_URI=%s", line) < 0)
        abort();
    params[count++] = uri;
    while (count < PARAMS_MAX && (line = strsep(&at, "\n")))
        params[count++] = line;
    if (request_init(&req, params, &e) < 0 && e.msg[0] == '\0')
        abort(); /* a refusal always says why */
    check(&req);
    request_done(&req);
    free(uri);
    free(text);
    return 0;
}
