/*
 * How long the caller of a port or of a WebSocket on a process may stay: until the key is revoked or ends, or the
 * console's session or the signed link does. A worker has looked at them when the connection began. The keeper writes the
 * public names of the keys that hold into a file, in place, which the gate opened at its start.
 */
#include <fcntl.h>
#include <stdio.h>

#include "cove/log.h"
#include "cove/mem.h"
#include "cove/text.h"
#include "helpers/gate/attach.h"

/* A list that is just being written is read again at the next sweep. */
static void refresh(struct gate *g)
{
    uint32_t generation = state_keys_generation(g->state);
    AUTO_BUF struct buf text = BUF(KEYS_FILE_MAX + 1);
    struct key_names names;
    struct cove_err e = { 0 };

    if (g->keys.lines && generation == g->keys_generation)
        return;
    if (gate_read_copy(g->keys_fd, &text, &e) < 0 || key_names_read(text.data, &names, &e) < 0) {
        if (e.code != COVE_BUSY)
            log_error("the list of keys stays as it is", &e);
        return;
    }
    key_names_done(&g->keys);
    g->keys = names;
    g->keys_generation = generation;
}

/* Why the caller may no longer stay; NULL: it may. */
static const char *why_not(const struct gate *g, const struct gate_caller *c, uint64_t now_s)
{
    if (c->until_s && now_s >= c->until_s)
        return "the session is over: sign in again";
    if (*c->key && g->keys.lines && !key_names_hold(&g->keys, c->key, now_s))
        return "the key was revoked, or has expired";
    return NULL;
}

void callers_sweep(struct gate *g)
{
    uint64_t now_s = clock_unix_ms() / 1000;
    struct relay *r, *next;
    const char *why;

    refresh(g);
    for (r = LIST_FIRST(&g->relays); r; r = next) {
        next = LIST_NEXT(r, link); /* a close may free the relay */
        why = why_not(g, &r->caller, now_s);
        if (why && !r->viewer)
            relay_close(r);
        else if (why && !r->viewer->socket.closing)
            viewer_close(r->viewer, WEBSOCKET_REFUSED + 401, why);
    }
}

int callers_open(struct gate *g, struct cove_err *e)
{
    char path[160];

    snprintf(path, sizeof(path), "%s/keys.gate", g->config.run_dir);
    g->keys_fd = open(path, O_RDONLY | O_CLOEXEC);
    return g->keys_fd < 0 ? cove_fail_errno(e, COVE_INTERNAL, "%s", path) : 0;
}
