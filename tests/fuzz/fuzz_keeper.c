/*
 * What a worker that was taken over can send to the keeper: sandbox/keeper/calls.c and clients.c, which are root. The input is a
 * script of packets on one connection. What the calls hand on is checked here as the rest of the keeper relies on it: texts
 * end within their fields, a lone descriptor is a sealed memory file, and the rules of a network are read by the real reader.
 */
#include <assert.h>

#include "tests/fuzz/packets.h"

#include "sandbox/keeper/calls.c"
#include "sandbox/keeper/clients.c" /* connections and the reader of messages are static */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { TURNS = 8 };

/* ------------------------------------------------------------------ the rest of the keeper */

#define ENDS(field) assert(strnlen((field), sizeof(field)) < sizeof(field))

static bool answers_fail; /* decided by the script */

static int answer(struct cove_err *e)
{
    return answers_fail ? cove_fail(e, COVE_NOT_FOUND, "no such sandbox") : 0;
}

void waiters_forget_client(struct keeper *k, uint32_t client)
{
    assert(client < CLIENTS_MAX && k->clients);
}

bool attributes_are_sealed(int fd)
{
    return fcntl(fd, F_GET_SEALS) > 0;
}

void claim_box(struct keeper *k, const struct claim *c, const struct waiter *w)
{
    ENDS(c->args->tenant);
    ENDS(c->args->project);
    ENDS(c->args->template);
    ENDS(c->args->key);
    assert(c->args->tenant[0]);
    assert(c->attributes < 0 || attributes_are_sealed(c->attributes));
    keeper_answer(k, w, MSG_DONE, NULL, 0);
}

void life_retire(struct keeper *k, const struct keeper_retire *args, const struct waiter *w)
{
    ENDS(args->tenant);
    ENDS(args->id);
    ENDS(args->project);
    assert(args->tenant[0] && (args->id[0] || args->project[0]));
    keeper_answer(k, w, MSG_DONE, NULL, 0);
}

static int of_one(const char *tenant, size_t tenant_size, const char *id, size_t id_size,
                  struct cove_err *e)
{
    assert(*tenant && *id && strnlen(tenant, tenant_size) < tenant_size &&
           strnlen(id, id_size) < id_size);
    return answer(e);
}

#define OF_ONE(args, e)                                                                            \
    of_one((args)->tenant, sizeof((args)->tenant), (args)->id, sizeof((args)->id), e)

/* Nothing is saved here, so no archive is ever opened. */
bool saved_find_id(const struct keeper *k, const char *tenant, const char *id, uint32_t *ret)
{
    (void)k, (void)ret;
    assert(*tenant && *id && strlen(tenant) < sizeof(((struct keeper_which *)0)->tenant) &&
           strlen(id) < sizeof(((struct keeper_which *)0)->id));
    return false;
}

int saved_open_dir(const struct keeper *k, const char *id, int *ret, struct cove_err *e)
{
    (void)k, (void)id, (void)ret, (void)e;
    abort();
}

int life_extend(struct keeper *k, const struct keeper_extend *args, struct cove_err *e)
{
    (void)k;
    return OF_ONE(args, e);
}

int life_set_network(struct keeper *k, const struct keeper_network *args, struct cove_err *e)
{
    (void)k;
    return OF_ONE(args, e) < 0 ? -1 : net_rules_check(&args->rules, e);
}

int life_freeze(struct keeper *k, const struct keeper_extend *args, bool freeze,
                const struct waiter *w, struct cove_err *e)
{
    (void)freeze;
    if (OF_ONE(args, e) < 0)
        return -1;
    keeper_answer(k, w, MSG_DONE, NULL, 0);
    return 0;
}

int life_set_attributes(struct keeper *k, const struct keeper_which *args, int fd,
                        struct cove_err *e)
{
    (void)k;
    assert(attributes_are_sealed(fd));
    return OF_ONE(args, e);
}

void capture_box(struct keeper *k, const struct keeper_capture *args, const char *manifest,
                 const struct waiter *w)
{
    struct cove_err e = { 0 };

    ENDS(args->name);
    ENDS(args->tag);
    assert(!manifest || strlen(manifest) < SNAPSHOT_MANIFEST_MAX);
    if (OF_ONE(args, &e) < 0)
        keeper_answer_error(k, w, &e);
}

void snapshots_list(const struct keeper *k, const struct keeper_snapshots *args,
                    struct keeper_snapshot_list *ret)
{
    (void)k;
    ENDS(args->tenant);
    memset(ret, 0, sizeof(*ret));
}

int snapshots_remove(struct keeper *k, const struct keeper_snapshot_name *args, struct cove_err *e)
{
    (void)k;
    ENDS(args->tenant);
    ENDS(args->name);
    return answer(e);
}

int snapshot_change_tag(struct keeper *k, const struct keeper_snapshot_tag *args,
                        struct keeper_snapshot *ret, struct cove_err *e)
{
    (void)k;
    ENDS(args->tenant);
    ENDS(args->which);
    ENDS(args->name);
    ENDS(args->tag);
    ENDS(args->build);
    memset(ret, 0, sizeof(*ret));
    return answer(e);
}

void refusals_note(struct keeper *k, const struct audit_entry *entry)
{
    assert(k && entry);
}

void refusals_list(struct keeper *k, const char *tenant, const char *id,
                   struct keeper_refusal_list *ret)
{
    assert(k && *tenant && *id);
    memset(ret, 0, sizeof(*ret));
}

void operator_nonce(struct keeper *k, struct keeper_nonce *ret)
{
    assert(k);
    memset(ret, 0, sizeof(*ret));
}

void operator_ask(struct keeper *k, const struct keeper_operator *ask, char *text,
                  const struct waiter *w)
{
    ENDS(ask->name);
    assert(strlen(text) < OPERATOR_TEXT_MAX);
    keeper_answer(k, w, MSG_DONE, NULL, 0);
}

int saving_ask(struct keeper *k, const struct keeper_which *args, const struct waiter *w,
               struct cove_err *e)
{
    (void)k;
    (void)w;
    return OF_ONE(args, e);
}

int waking_ask(struct keeper *k, const struct keeper_extend *args, const struct waiter *w,
               struct cove_err *e)
{
    (void)k;
    (void)w;
    return OF_ONE(args, e);
}

/* ------------------------------------------------------------------ one connection */

static struct keeper keeper;

static void setup(void)
{
    const struct audit_options options = { .already_redacted = true };
    struct cove_err e = { 0 };

    log_init("fuzz",
             LOG_LEVEL_ERROR + 1); /* a refused message is told, which is not of interest here */
    keeper.clients = calloc(CLIENTS_MAX, sizeof(*keeper.clients));
    if (!keeper.clients || loop_init(&keeper.loop, &e) < 0 ||
        audit_open("/dev/null", &options, &keeper.audit, &e) < 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct script s = { data, data + size };
    struct client *c;
    int pair[2], before;

    if (!keeper.clients)
        setup();
    before = lowest_free();
    answers_fail = next(&s) & 1;
    c = &keeper.clients[0];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0 ||
        watch_start(&keeper.loop, &c->watch, pair[0], EPOLLIN, on_request) < 0)
        abort();
    for (int i = 0; i < TURNS && s.at < s.end && watch_is_on(&c->watch); i++) {
        send_packet(pair[1], KEEPER_CLAIM, KEEPER_ARCHIVE + 2 - KEEPER_CLAIM, &s);
        on_request(&c->watch, EPOLLIN);
    }
    if (watch_is_on(&c->watch))
        client_close(&keeper, c);
    close(pair[1]);
    if (lowest_free() != before)
        abort(); /* a descriptor stayed open */
    return 0;
}
