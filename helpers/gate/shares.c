/*
 * What each tenant's ports may use: the configuration's limits, which the tenant's line in the tenants file
 * may override. The keeper checks the operator's file and writes a copy, in place: the gate opened the copy at
 * its start and may open no file after it has confined itself. A read while the keeper writes may see half of
 * the copy; the keeper raises a generation when it is done, and the next sweep reads again.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cove/keys.h"
#include "cove/log.h"
#include "cove/mem.h"
#include "cove/text.h"
#include "helpers/gate/gate_private.h"

int gate_read_copy(int fd, struct buf *text, struct cove_err *e)
{
    char *room;
    ssize_t n;

    do {
        room = buf_reserve(text, 64 * 1024);
        n = room ? pread(fd, room, 64 * 1024, (off_t)text->len) : -1;
        if (n < 0)
            return cove_fail_errno(e, COVE_INTERNAL, "a copy of the keeper's");
        text->len += (size_t)n;
    } while (n > 0);
    buf_add(text, "", 1);
    return 0;
}

static int read_tenants(const struct gate *g, struct tenants *ret, struct cove_err *e)
{
    AUTO_BUF struct buf text = BUF(KEYS_FILE_MAX + 1);

    if (gate_read_copy(g->tenants_fd, &text, e) < 0)
        return -1;
    return tenants_parse(text.data, ret, e);
}

static void refresh(struct gate *g)
{
    uint32_t generation = state_keys_generation(g->state);
    struct tenants tenants = { 0 };
    struct cove_err e = { 0 };
    struct tenant_share *s;

    if (g->tenants_fd < 0 || generation == g->tenants_generation)
        return;
    if (read_tenants(g, &tenants, &e) < 0) {
        log_error("the tenants' limits stay as they are", &e);
        return;
    }
    g->tenants_generation = generation;
    LIST_FOREACH(s, &g->shares, link)
    limits_resolve(&g->config, NULL, "", &tenants, s->tenant, &s->limits);
    tenants_done(&tenants);
}

/* Tenants are few, so records are kept for ever. A new tenant's limits are looked up at once. */
struct tenant_share *share_of(struct gate *g, const char *tenant)
{
    struct tenant_share *s;

    LIST_FOREACH(s, &g->shares, link)
    if (strcmp(s->tenant, tenant) == 0)
        return s;
    s = calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    text_copy(s->tenant, sizeof(s->tenant), tenant);
    s->socket_bytes = (struct budget){ .max = g->socket_bytes.max / 2, .above = &g->socket_bytes };
    limits_from_config(&g->config, &s->limits);
    LIST_INSERT_HEAD(&g->shares, s, link);
    g->tenants_generation = state_keys_generation(g->state) - 1;
    refresh(g);
    return s;
}

static void count_rates(struct gate *g)
{
    uint64_t now_ms = clock_boot_ms(), ms = now_ms - g->swept_ms;

    if (ms == 0)
        return;
    g->swept_ms = now_ms;
    for (uint32_t i = 0; i < state_box_count(g->state); i++) {
        struct box_traffic *u = &g->usage[i];

        u->rate_in = (u->bytes_in - u->before_in) * 1000 / ms;
        u->rate_out = (u->bytes_out - u->before_out) * 1000 / ms;
        u->before_in = u->bytes_in;
        u->before_out = u->bytes_out;
    }
}

void shares_sweep(struct gate *g)
{
    refresh(g);
    count_rates(g);
}

int shares_open(struct gate *g, struct cove_err *e)
{
    char path[160];

    snprintf(path, sizeof(path), "%s/tenants.gate", g->config.run_dir);
    g->swept_ms = clock_boot_ms();
    g->tenants_fd = open(path, O_RDONLY | O_CLOEXEC);
    return g->tenants_fd < 0 ? cove_fail_errno(e, COVE_INTERNAL, "%s", path) : 0;
}
