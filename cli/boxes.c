/* Finds the sandbox that an operator means: by its id, by the beginning of its id, by its project, or by
 * TENANT/PROJECT. */
#include <string.h>

#include "cli/boxes.h"
#include "cove/which.h"

const char *box_state_name(uint32_t state)
{
    static const char *const names[] = { "empty",  "building", "warm",  "live",
                                         "ageing", "frozen",   "dying", "saved" };

    return state < sizeof(names) / sizeof(names[0]) ? names[state] : "?";
}

/* Takes away what a dialect puts in front of an id. */
static const char *bare_id(const char *word)
{
    const char *id = which_id(word);

    return id ? id : word;
}

/* TENANT/PROJECT: several tenants may have a project of the same name. */
static bool is_qualified(const struct box_info *b, const char *word)
{
    size_t len = strlen(b->tenant);

    return len && strncmp(word, b->tenant, len) == 0 && word[len] == '/' &&
           strcmp(word + len + 1, b->project) == 0;
}

static bool fits(const struct box_info *b, const char *word)
{
    size_t len = strlen(bare_id(word));

    if (b->state == BOX_EMPTY || b->state == BOX_DYING)
        return false;
    return (len >= 4 && strncmp(b->id, bare_id(word), len) == 0) || is_qualified(b, word) ||
           (b->tenant[0] && strcmp(b->project, word) == 0);
}

/* An id (with or without what a dialect puts in front of it), the beginning of one, a project or
 * TENANT/PROJECT; exactly one sandbox must fit. */
static int boxes_find(const struct state *s, const char *word, struct box_info *ret,
                      struct cove_err *e)
{
    size_t hits = 0;

    for (uint32_t i = 0; i < state_box_count(s); i++) {
        struct box_info b;

        state_box_read(s, i, &b);
        if (!fits(&b, word))
            continue;
        *ret = b;
        hits++;
    }
    if (hits == 0)
        return cove_fail(e, COVE_NOT_FOUND, "no sandbox '%.64s' (`cove ls` shows them)", word);
    if (hits > 1)
        return cove_fail(e, COVE_CONFLICT,
                         "%zu sandboxes fit '%.64s': give more of the id, or TENANT/PROJECT", hits,
                         word);
    return 0;
}

int boxes_open(const char *word, struct cove_config *ret_config, struct box_info *ret,
               struct cove_err *e)
{
    struct state *s;
    int rc;

    if (cli_config(ret_config, e) < 0 || cli_state(ret_config, &s, e) < 0)
        return -1;
    rc = boxes_find(s, word, ret, e);
    state_close(s);
    return rc;
}
