#include "cove/notes.h"

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

/* Never 0: that is what a note has which is being written. */
static uint64_t hash_of(const char *kind, const char *name)
{
    return text_hash(text_hash_part(TEXT_HASH_START, kind), name) | 1;
}

static bool lives(const struct note *note, uint64_t now_ms)
{
    return get(&note->until_ms) > now_ms;
}

/* Copies the text. False: this is another note, or somebody is changing it right now. */
static bool read_note(const struct note *note, uint64_t about, uint64_t now_ms,
                      char ret[NOTE_TEXT_MAX])
{
    if (!lives(note, now_ms) || get(&note->about) != about)
        return false;
    memcpy(ret, note->text, NOTE_TEXT_MAX);
    ret[NOTE_TEXT_MAX - 1] = '\0';
    return get(&note->about) == about && get(&note->check) == hash_of("text", ret);
}

static struct note *find(struct notes *n, uint64_t about, const char *text, uint64_t now_ms)
{
    char found[NOTE_TEXT_MAX];

    for (size_t i = 0; i < NOTES_MAX; i++)
        if (read_note(&n->items[i], about, now_ms, found) && strcmp(found, text) == 0)
            return &n->items[i];
    return NULL;
}

static void write_note(struct note *note, uint64_t about, uint64_t tenant, const char *text)
{
    set(&note->about, 0);
    set(&note->tenant, tenant);
    text_copy(note->text, sizeof(note->text), text);
    set(&note->check, hash_of("text", note->text));
    set(&note->about, about);
}

/* Takes a free note: whoever changes its time first owns it. */
static bool take(struct note *note, uint64_t now_ms, uint64_t until_ms)
{
    uint64_t before = get(&note->until_ms);

    return before <= now_ms && atomic_compare_exchange_strong(&note->until_ms, &before, until_ms);
}

static size_t count(const struct notes *n, uint64_t tenant, uint64_t now_ms)
{
    size_t found = 0;

    for (size_t i = 0; i < NOTES_MAX; i++)
        found += lives(&n->items[i], now_ms) && get(&n->items[i].tenant) == tenant;
    return found;
}

static int add(struct notes *n, uint64_t about, uint64_t tenant, const char *text, uint64_t now_ms,
               uint64_t for_ms, struct cove_err *e)
{
    if (count(n, tenant, now_ms) >= NOTES_PER_TENANT)
        return cove_fail(e, COVE_LIMIT, "this tenant has %d of these already", NOTES_PER_TENANT);
    for (size_t i = 0; i < NOTES_MAX; i++) {
        if (!take(&n->items[i], now_ms, now_ms + for_ms))
            continue;
        write_note(&n->items[i], about, tenant, text);
        return 0;
    }
    return cove_fail(e, COVE_BUSY, "the server has no room for another note, try again later");
}

int notes_put(struct notes *n, const char *kind, const char *tenant, const char *session,
              const char *text, uint64_t for_ms, struct cove_err *e)
{
    uint64_t about = hash_of(kind, session), now_ms = clock_boot_ms();
    struct note *known;
    int rc = 0;

    if (strlen(text) >= NOTE_TEXT_MAX)
        return cove_fail(e, COVE_INVALID, "longer than %d bytes", NOTE_TEXT_MAX - 1);
    known = find(n, about, text, now_ms);
    if (known)
        set(&known->until_ms, now_ms + for_ms);
    else
        rc = add(n, about, hash_of("tenant", tenant), text, now_ms, for_ms, e);
    atomic_fetch_add(&n->turn, 1);
    return rc;
}

bool notes_has(struct notes *n, const char *kind, const char *session, const char *text)
{
    return find(n, hash_of(kind, session), text, clock_boot_ms()) != NULL;
}

void notes_drop(struct notes *n, const char *kind, const char *session, const char *text)
{
    struct note *note = find(n, hash_of(kind, session), text, clock_boot_ms());

    if (note)
        set(&note->until_ms, 0);
    atomic_fetch_add(&n->turn, 1);
}

void notes_each(struct notes *n, const char *kind, const char *session, uint64_t for_ms,
                void (*each)(void *arg, const char *text), void *arg)
{
    uint64_t about = hash_of(kind, session), now_ms = clock_boot_ms();
    char text[NOTE_TEXT_MAX];

    for (size_t i = 0; i < NOTES_MAX; i++) {
        if (!read_note(&n->items[i], about, now_ms, text))
            continue;
        if (for_ms > 0)
            set(&n->items[i].until_ms, now_ms + for_ms);
        each(arg, text);
    }
}

uint64_t notes_turn(const struct notes *n)
{
    return get(&n->turn);
}
