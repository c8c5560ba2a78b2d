#include "cove/replay.h"

#include <string.h>

#include "cove/text.h"

static uint64_t get(const _Atomic uint64_t *at)
{
    return atomic_load_explicit(at, memory_order_acquire);
}

static void set(_Atomic uint64_t *at, uint64_t value)
{
    atomic_store_explicit(at, value, memory_order_release);
}

static uint64_t hash_of(const char *tenant)
{
    return text_hash(TEXT_HASH_START, tenant) | 1;
}

static struct replay *item(const struct replay_ref *r)
{
    return &r->all->items[r->index];
}

static uint64_t until_of(uint64_t life)
{
    return life >> 1;
}

static bool has_ended(uint64_t life)
{
    return life & 1;
}

static uint64_t life_of(uint64_t until_ms, bool ended)
{
    return until_ms << 1 | ended;
}

/* Does the ring still belong to the stream that the reference was made for? */
static bool is_same(const struct replay_ref *r)
{
    return r->all && get(&item(r)->turn) == r->turn &&
           until_of(get(&item(r)->life)) > clock_boot_ms();
}

/* ------------------------------------------------------------------ a ring for a stream */

/* Takes a ring that is free or whose stream has ended: whoever changes its `life` first owns it. From then
 * on it belongs to a stream that goes on. */
static bool take(struct replay *at, uint64_t before, uint64_t now_ms)
{
    return atomic_compare_exchange_strong(&at->life, &before,
                                          life_of(now_ms + REPLAY_ALIVE_MS, false));
}

struct survey {
    size_t held;              /* how many rings this tenant has */
    struct replay *vacant;    /* a ring that is free */
    struct replay *own, *any; /* the oldest whose stream has ended: this tenant's, anybody's */
    uint64_t vacant_life, own_life, any_life;
};

static struct survey look(struct replays *all, uint64_t tenant, uint64_t now_ms)
{
    struct survey s = { .own_life = UINT64_MAX, .any_life = UINT64_MAX };

    for (size_t i = 0; i < REPLAYS_MAX; i++) {
        struct replay *at = &all->items[i];
        uint64_t life = get(&at->life);
        bool own = get(&at->tenant) == tenant, vacant = until_of(life) <= now_ms;

        if (vacant && !s.vacant) { /* the first free one: if few rings are used, few pages are */
            s.vacant = at;
            s.vacant_life = life;
        }
        if (vacant)
            continue;
        s.held += own;
        if (!has_ended(life))
            continue;
        if (own && life < s.own_life) {
            s.own = at;
            s.own_life = life;
        }
        if (life < s.any_life) {
            s.any = at;
            s.any_life = life;
        }
    }
    return s;
}

/* A tenant that has its share of rings gives up its own oldest. Others get a free ring or, if there is none,
 * the oldest of all. */
static struct replay *choose(const struct survey *s, uint64_t *ret_life)
{
    if (s->held >= REPLAYS_PER_TENANT) {
        *ret_life = s->own_life;
        return s->own;
    }
    *ret_life = s->vacant ? s->vacant_life : s->any_life;
    return s->vacant ? s->vacant : s->any;
}

bool replay_begin(struct replays *all, const char *tenant, const char *name, struct replay_ref *ret)
{
    uint64_t now_ms = clock_boot_ms(), who = hash_of(tenant);

    if (strlen(name) >= REPLAY_NAME_MAX)
        return false;
    for (int tries = 0; tries < 4; tries++) { /* another worker may take the chosen ring first */
        struct survey s = look(all, who, now_ms);
        uint64_t life;
        struct replay *at = choose(&s, &life);

        if (!at)
            return false;
        if (!take(at, life, now_ms))
            continue;
        ret->all = all;
        ret->index = (size_t)(at - all->items);
        ret->turn = atomic_fetch_add(&at->turn, 1) + 1;
        set(&at->tenant, who);
        set(&at->written, 0);
        set(&at->begun, 0);
        set(&at->seen_ms, 0);
        text_copy(at->name, sizeof(at->name), name);
        return true;
    }
    return false;
}

/* ------------------------------------------------------------------ writing */

bool replay_write(const struct replay_ref *r, const char *bytes, size_t len)
{
    uint64_t at;
    char *ring;

    if (len > REPLAY_BYTES || !is_same(r))
        return false;
    ring = r->all->bytes[r->index];
    at = get(&item(r)->written);
    set(&item(r)->begun, at + len);
    atomic_thread_fence(memory_order_seq_cst);
    for (size_t done = 0; done < len;) {
        size_t place = (at + done) % REPLAY_BYTES, room = REPLAY_BYTES - place;
        size_t n = len - done < room ? len - done : room;

        memcpy(ring + place, bytes + done, n);
        done += n;
    }
    set(&item(r)->written, at + len);
    replay_prolong(r);
    return true;
}

void replay_prolong(const struct replay_ref *r)
{
    if (is_same(r))
        set(&item(r)->life, life_of(clock_boot_ms() + REPLAY_ALIVE_MS, false));
}

void replay_end(const struct replay_ref *r)
{
    if (is_same(r))
        set(&item(r)->life, life_of(clock_boot_ms() + REPLAY_KEPT_MS, true));
}

uint64_t replay_written(const struct replay_ref *r)
{
    return is_same(r) ? get(&item(r)->written) : 0;
}

uint64_t replay_seen_ms(const struct replay_ref *r)
{
    return is_same(r) ? get(&item(r)->seen_ms) : 0;
}

/* ------------------------------------------------------------------ reading */

bool replay_find(struct replays *all, const char *tenant, const char *name, struct replay_ref *ret)
{
    uint64_t who = hash_of(tenant);

    for (size_t i = 0; i < REPLAYS_MAX; i++) {
        struct replay_ref r = { all, i, get(&all->items[i].turn) };
        char found[REPLAY_NAME_MAX];

        memcpy(found, all->items[i].name, sizeof(found));
        found[sizeof(found) - 1] = '\0';
        if (get(&all->items[i].tenant) != who || strcmp(found, name) != 0 || !is_same(&r))
            continue;
        *ret = r;
        return true;
    }
    return false;
}

static void copy_out(const struct replay_ref *r, uint64_t from, char *bytes, size_t len)
{
    const char *ring = r->all->bytes[r->index];

    for (size_t done = 0; done < len;) {
        size_t place = (from + done) % REPLAY_BYTES, room = REPLAY_BYTES - place;
        size_t n = len - done < room ? len - done : room;

        memcpy(bytes + done, ring + place, n);
        done += n;
    }
}

/* Is the byte at `at` still in the ring, and not about to be overwritten? */
static bool is_kept(const struct replay_ref *r, uint64_t at)
{
    uint64_t begun;

    atomic_thread_fence(memory_order_seq_cst);
    begun = get(&item(r)->begun);
    return begun < REPLAY_BYTES || at >= begun - REPLAY_BYTES;
}

long replay_read(const struct replay_ref *r, uint64_t *at, char *bytes, size_t max,
                 bool *ret_skipped, bool *ret_ended)
{
    *ret_skipped = *ret_ended = false;
    for (int tries = 0; tries < 8; tries++) {
        uint64_t written, len;
        bool ended;

        if (!is_same(r))
            return -1;
        set(&item(r)->seen_ms, clock_boot_ms());
        ended =
            has_ended(get(&item(r)->life)); /* before `written`: nothing is written after the end */
        written = get(&item(r)->written);
        if (*at > written)
            return -1;
        if (!is_kept(r, *at)) {
            *at = get(&item(r)->begun) - REPLAY_BYTES;
            *ret_skipped = true;
            if (*at > written)
                *at = written;
        }
        len = written - *at < max ? written - *at : max;
        copy_out(r, *at, bytes, (size_t)len);
        if (!is_kept(r, *at) && len > 0)
            continue; /* the writer overwrote the bytes while they were copied */
        if (!is_same(r))
            return -1;
        *at += len;
        *ret_ended = ended && *at == written;
        return (long)len;
    }
    return 0; /* the writer is faster than we are: try again later */
}
