/*
 * Changes of the file of keys for `cove key`: one edit at a time, and then a wait until every worker uses the file as
 * it is now.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/key.h"
#include "cove/text.h"

/* ------------------------------------------------------------------ until workers know */

enum { TAKEN_OVER_MS = 5000, LOOK_EVERY_MS = 10 };

/* Has the keeper published a table that has `present` (or NULL) and lacks `absent` (or NULL)? */
static bool is_published(const char *run_dir, const struct key *present, const struct key *absent)
{
    struct keys published;
    char path[256];
    bool fits;

    snprintf(path, sizeof(path), "%s/keys", run_dir);
    if (keys_load(path, &published, NULL) < 0)
        return false;
    fits = (!present || keys_find(&published, present->hash)) &&
           (!absent || !keys_find(&published, absent->hash));
    keys_done(&published);
    return fits;
}

/*
 * Returns when every worker uses the change: the keeper has checked the file, put its copy in
 * place and raised the generation that workers look at with each request. Without a running server,
 * or for a file that is not the server's, there is nothing to wait for.
 */
static void wait_for_workers(const struct key_options *o, uint32_t generation,
                             const struct key *present, const struct key *absent)
{
    uint64_t end_ms = clock_boot_ms() + TAKEN_OVER_MS;
    struct state *s = NULL;

    if (!o->served || cli_state(&o->config, &s, NULL) < 0)
        return;
    while (clock_boot_ms() < end_ms) {
        if (state_keys_generation(s) != generation &&
            is_published(o->config.run_dir, present, absent))
            break;
        usleep(LOOK_EVERY_MS * 1000);
    }
    if (clock_boot_ms() >= end_ms)
        fprintf(stderr, "cove: the server has not read the change yet; `cove doctor` tells "
                        "what is wrong with it\n");
    state_close(s);
}

static uint32_t keys_generation(const struct key_options *o)
{
    struct state *s = NULL;
    uint32_t generation = 0;

    if (!o->served || cli_state(&o->config, &s, NULL) < 0)
        return 0;
    generation = state_keys_generation(s);
    state_close(s);
    return generation;
}

int keys_change(const struct key_options *o, key_change_fn *change, struct key_change *c)
{
    struct keys_edit edit;
    struct cove_err e;
    uint32_t generation;
    int rc;

    if (keys_edit_begin(o->file, &edit, &e) < 0)
        return cli_fail(&e);
    generation = keys_generation(o);
    rc = change(&edit, o, c, &e);
    keys_edit_done(&edit);
    if (rc < 0)
        return cli_fail(&e);
    wait_for_workers(o, generation, c->added.tenant[0] ? &c->added : NULL,
                     c->removed.tenant[0] ? &c->removed : NULL);
    return CLI_OK;
}

/* ------------------------------------------------------------------ the changes */

/* Makes a new key in *ret, and its text. With --hash only the caller knows the text: it is "" here. */
static int new_key(const struct key_options *o, char text[KEY_TEXT_LEN + 1], struct key *ret,
                   struct cove_err *e)
{
    keys_new(text, ret);
    if (!o->hash)
        return 0;
    text[0] = '\0';
    if (!text_unhex(o->hash, ret->hash, KEY_HASH_BYTES))
        return cove_fail(e, COVE_INVALID, "--hash: must be the 64 hex digits of a key's SHA-256");
    return 0;
}

int keys_add_key(struct keys_edit *edit, const struct key_options *o, struct key_change *c,
                 struct cove_err *e)
{
    struct key added = o->key;

    if (new_key(o, c->text, &added, e) < 0)
        return -1;
    c->added = added;
    return keys_edit_commit(edit, NULL, &added, 1, e);
}

/* Finds a key by its id, or by its name if only one key has it. */
static int find(const struct keys *keys, const char *word, const struct key **ret,
                struct cove_err *e)
{
    const struct key *found = keys_find_id(keys, word);
    size_t hits = found ? 1 : 0, by_name = found ? 0 : keys->count;

    for (size_t i = 0; i < by_name; i++) {
        if (strcmp(keys->items[i].name, word) != 0)
            continue;
        found = &keys->items[i];
        hits++;
    }
    if (hits == 0)
        return cove_fail(e, COVE_NOT_FOUND, "no key '%.64s' (`cove key list` shows them)", word);
    if (hits > 1)
        return cove_fail(e, COVE_CONFLICT, "%zu keys are named '%.64s': say which by its id", hits,
                         word);
    *ret = found;
    return 0;
}

int keys_remove_key(struct keys_edit *edit, const struct key_options *o, struct key_change *c,
                    struct cove_err *e)
{
    const struct key *key = NULL;

    (void)o;
    if (find(&edit->keys, c->word, &key, e) < 0)
        return -1;
    c->removed = *key;
    return keys_edit_commit(edit, key, NULL, 0, e);
}

int keys_replace_key(struct keys_edit *edit, const struct key_options *o, struct key_change *c,
                     struct cove_err *e)
{
    const struct key *old = NULL;
    struct key add[2];
    uint64_t end_s = 0;

    if (find(&edit->keys, c->word, &old, e) < 0)
        return -1;
    add[0] = add[1] = *old;
    if (new_key(o, c->text, &add[0], e) < 0)
        return -1;
    if (o->grace && keys_parse_time(o->grace, clock_unix_ms() / 1000, &end_s, e) < 0)
        return cove_context(e, "--grace");
    if (!add[1].expires_s || add[1].expires_s > end_s)
        add[1].expires_s = end_s;
    c->added = add[0];
    return keys_edit_commit(edit, old, add, o->grace ? 2 : 1, e);
}
