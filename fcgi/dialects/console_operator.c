/*
 * Operators' requests: the pages for keys, tenants, the audit log and the server's health. A worker only
 * carries them. The text is signed in the operator's browser, the keeper checks the signature and does
 * the work (sandbox/keeper/operator.c); what is checked here only spares the keeper strangers' requests.
 *
 *     GET  /operator/nonce   {"nonce"}, good for one request within two minutes
 *     POST /operator/run     a signed request; the reply is what the `cove` command prints, as JSON
 *     GET  /operator/builds  Server-Sent Events: `changed` whenever `cove template add` or `build` went a step further.
 *                            Nothing else is told: the page signs a request then (verb `builds`)
 */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "cove/operators.h"
#include "cove/text.h"
#include "fcgi/dialects/console.h"
#include "fcgi/stream.h"
#include "fcgi/transfer.h"

struct signed_args {
    const char *operator, * nonce, *verb, *signature;
    struct json_strings arguments;
};

static const struct json_field signed_fields[] = {
    JSON_STR(struct signed_args, operator, "operator", JSON_REQUIRED, OPERATOR_NAME_MAX - 1),
    JSON_STR(struct signed_args, nonce, "nonce", JSON_REQUIRED, KEEPER_NONCE_MAX - 1),
    JSON_STR(struct signed_args, verb, "verb", JSON_REQUIRED, 40),
    JSON_STR_ARRAY(struct signed_args, arguments, "arguments", JSON_OPTIONAL,
                   OPERATOR_ARGUMENTS_MAX, 1024),
    JSON_STR(struct signed_args, signature, "signature", JSON_REQUIRED, 2 * OPERATOR_SIGNATURE),
    JSON_END,
};

struct nonce_reply {
    const char *nonce;
};

static const struct json_field nonce_fields[] = {
    JSON_STR(struct nonce_reply, nonce, "nonce", JSON_REQUIRED, JSON_ANY),
    JSON_END,
};

int console_operator_nonce(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct keeper_nonce nonce;

    req->note.operation = "operator-nonce";
    if (keeper_operator_nonce(&req->core->keeper, &nonce, e) < 0)
        return -1;
    reply_header(rep, "Cache-Control", "no-store");
    reply_json(rep, nonce_fields, &(struct nonce_reply){ nonce.nonce });
    return 0;
}

/* The keeper checks the signature too: this check only spares it strangers' requests. */
static int check(struct request *req, const struct keeper_operator *ask, const char *text,
                 struct cove_err *e)
{
    struct operators all;
    char path[320];
    int rc;

    snprintf(path, sizeof(path), "%s/" OPERATORS_FILE, req->core->config->run_dir);
    if (operators_load(path, &all, e) < 0)
        return -1;
    rc = operators_check(&all, ask->name, text, strlen(text), ask->signature, e);
    operators_done(&all);
    return rc;
}

static int read_ask(const struct signed_args *args, struct keeper_operator *ask, struct buf *text,
                    struct cove_err *e)
{
    const struct operator_request r = {
        .nonce = args->nonce,
        .verb = args->verb,
        .arguments = args->arguments.items,
        .count = args->arguments.count,
    };

    text_copy(ask->name, sizeof(ask->name), args->operator);
    if (!text_unhex(args->signature, ask->signature, sizeof(ask->signature)))
        return cove_fail(e, COVE_INVALID, "signature: must be %d hex digits",
                         2 * OPERATOR_SIGNATURE);
    return operator_text(&r, text, e);
}

int console_operator_run(struct request *req, struct reply *rep, struct cove_err *e)
{
    AUTO_BUF struct buf text = BUF(OPERATOR_TEXT_MAX);
    struct keeper_operator ask = { 0 };
    struct keeper_output output;
    struct signed_args args = { 0 };
    AUTO_CLOSE int fd = -1;

    req->note.operation = "operator";
    if (request_json(req, signed_fields, &args, e) < 0 || read_ask(&args, &ask, &text, e) < 0 ||
        check(req, &ask, text.data, e) < 0 ||
        keeper_operator(&req->core->keeper, &ask, text.data, &output, &fd, e) < 0)
        return -1;
    reply_header(rep, "Content-Type", "application/json");
    reply_header(rep, "Cache-Control", "no-store");
    reply_header(rep, "X-Cove-Exit", output.exit ? "1" : "0");
    transfer_send(req, rep, fd, output.bytes);
    return 0;
}

/* ------------------------------------------------------------------ builds of operators */

struct changed_event {
    uint64_t unix_ms;
};

static const struct json_field changed_fields[] = {
    JSON_TIME(struct changed_event, unix_ms, "time", JSON_REQUIRED),
    JSON_END,
};

/* The time at which the progress of any build was last written (cli/template_progress.h); 0: never. */
static uint64_t changed_at(const struct request *req)
{
    struct stat st;
    char path[320];

    snprintf(path, sizeof(path), "%s/template-builds.changed", req->core->config->run_dir);
    if (stat(path, &st) < 0)
        return 0;
    return (uint64_t)st.st_mtim.tv_sec * 1000 + (uint64_t)st.st_mtim.tv_nsec / 1000000;
}

int console_operator_builds(struct request *req, struct reply *rep, struct cove_err *e)
{
    uint64_t told = 0, now;
    struct stream stream;

    (void)e;
    req->note.operation = "operator-builds";
    stream_init(&stream, req, rep, &framing_sse);
    stream_begin(&stream);
    do {
        now = changed_at(req);
        if (now != told)
            stream_event(&stream, &(struct frame){ .name = "changed" }, changed_fields,
                         &(struct changed_event){ now });
        told = now;
    } while (stream_drain(&stream) == 0 && console_wait(&stream, req));
    stream_end(&stream);
    return 0;
}
