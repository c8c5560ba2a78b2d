#include "fcgi/kept.h"

#include <poll.h>
#include <string.h>

#include "cove/mem.h"
#include "cove/text.h"
#include "fcgi/core.h"

static bool is_of(const struct kept_conn *c, const struct core_box *box)
{
    return c->index == box->index && c->generation == box->generation &&
           strcmp(c->id, box->id) == 0;
}

static struct kept_conn remove_at_locked(struct kept_conns *k, size_t at)
{
    struct kept_conn c = k->conns[at];

    k->count--;
    memmove(&k->conns[at], &k->conns[at + 1], (k->count - at) * sizeof(k->conns[0]));
    return c;
}

/* The one that was used last: its init is the likeliest to be awake, and the others can expire. */
static int take_newest(struct kept_conns *k, const struct core_box *box, struct kept_conn *ret)
{
    int found = -1;

    pthread_mutex_lock(&k->lock);
    for (size_t i = k->count; i > 0 && found < 0; i--)
        if (is_of(&k->conns[i - 1], box)) {
            *ret = remove_at_locked(k, i - 1);
            found = 0;
        }
    pthread_mutex_unlock(&k->lock);
    return found;
}

/* Init has neither closed it nor sent anything. */
static bool is_silent(int sock)
{
    struct pollfd p = { .fd = sock, .events = POLLIN };

    return poll(&p, 1, 0) == 0;
}

bool kept_take(struct kept_conns *k, const struct core_box *box, struct box_conn *ret)
{
    struct kept_conn c;

    while (k && take_newest(k, box, &c) == 0) {
        if (is_silent(c.sock)) {
            *ret = (struct box_conn){ .sock = c.sock, .tag = c.tag, .settled = c.tag };
            return true;
        }
        cove_close(c.sock);
    }
    return false;
}

static size_t count_of_locked(const struct kept_conns *k, const struct core_box *box)
{
    size_t n = 0;

    for (size_t i = 0; i < k->count; i++)
        n += is_of(&k->conns[i], box);
    return n;
}

void kept_put(struct kept_conns *k, const struct core_box *box, struct box_conn *c)
{
    struct kept_conn new = {
        .index = box->index,
        .generation = box->generation,
        .tag = c->tag,
        .since_ms = clock_boot_ms(),
    };

    int oldest = -1;

    if (!k || !box_is_settled(c))
        return;
    text_copy(new.id, sizeof(new.id), box->id);
    pthread_mutex_lock(&k->lock);
    if (!k->closed && count_of_locked(k, box) < KEPT_OF_ONE_BOX) {
        if (k->count == KEPT_MAX)
            oldest = remove_at_locked(k, 0).sock;
        new.sock = take_fd(&c->sock);
        k->conns[k->count++] = new;
    }
    pthread_mutex_unlock(&k->lock);
    cove_close(oldest);
}

void kept_expire(struct kept_conns *k, uint64_t now_ms)
{
    int old[KEPT_MAX];
    size_t count = 0;

    pthread_mutex_lock(&k->lock);
    while (k->count > 0 && now_ms >= k->conns[0].since_ms + KEPT_MS)
        old[count++] = remove_at_locked(k, 0).sock;
    pthread_mutex_unlock(&k->lock);
    while (count > 0)
        cove_close(old[--count]);
}

void kept_close(struct kept_conns *k)
{
    pthread_mutex_lock(&k->lock);
    k->closed = true;
    pthread_mutex_unlock(&k->lock);
    kept_expire(k, UINT64_MAX);
}

void kept_done(struct kept_conns *k)
{
    kept_expire(k, UINT64_MAX);
    pthread_mutex_destroy(&k->lock);
}
