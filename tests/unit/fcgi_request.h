/* A request without nginx: parameters and a body as a test writes them. */
#ifndef FCGI_REQUEST_H
#define FCGI_REQUEST_H

#include <string.h>

#include "fcgi/http.h"

struct fake_request {
    char params_text[4][4096];
    char *params[5];
    struct request req;
};

/* "POST", "/path?query", an extra parameter "NAME=value" or NULL; returns what request_init() does. */
static inline int fake_init(struct fake_request *f, const char *method, const char *uri,
                            const char *extra, struct cove_err *e)
{
    size_t n = 0;

    memset(f, 0, sizeof(*f));
    snprintf(f->params_text[0], sizeof(f->params_text[0]), "REQUEST_METHOD=%s", method);
    snprintf(f->params_text[1], sizeof(f->params_text[1]), "REQUEST_URI=%s", uri);
    snprintf(f->params_text[2], sizeof(f->params_text[2]), "COVE_TENANT=acme");
    snprintf(f->params_text[3], sizeof(f->params_text[3]), "%s", extra ? extra : "COVE_ROLE=api");
    for (; n < 4; n++)
        f->params[n] = f->params_text[n];
    return request_init(&f->req, f->params, e);
}

static inline void fake_body(struct fake_request *f, const char *body, size_t len)
{
    f->req.body.max = len;
    buf_add(&f->req.body, body, len);
}

#endif
