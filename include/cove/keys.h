/*
 * Keys and tenants: who may call, as whom, how much, until when.
 *
 *   keys      <sha256 hex> <tenant> <name> [created= expires= dialects= projects= requests= sandboxes=
 *             processes=]
 *   tenants   <tenant> [requests= sandboxes= processes= disk=] [limits, as cove.conf names them]
 *   templates <template> [limits]
 *
 * Each is a line; '#' begins a comment. The key itself is not stored: only its hash is. A file with an unknown
 * setting is refused whole: a typo in `expires=` must not make a key that lives forever.
 */
#ifndef COVE_KEYS_H
#define COVE_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cove/buf.h"
#include "cove/dialect.h"
#include "cove/err.h"
#include "cove/limits.h"
#include "cove/names.h"

enum {
    KEY_HASH_BYTES = 32,
    KEY_ID_LEN = 16, /* hex digits: a key's public name, the beginning of its hash */
    KEY_NAME_MAX = 64,
    KEY_PREFIX_LEN = sizeof(DIALECT_KEY_PREFIX) - 1,
    KEY_TEXT_LEN = KEY_PREFIX_LEN + 40, /* and 40 hex digits */
    KEYS_FILE_MAX = 16 * 1024 * 1024,
};

struct quota {         /* 0 = no limit */
    uint64_t requests; /* per second */
    uint64_t sandboxes;
    uint64_t processes; /* in the background */
    uint64_t disk;      /* bytes, in all sandboxes together; tenants only */
};

struct key {
    unsigned char hash[KEY_HASH_BYTES];
    char tenant[COVE_TENANT_MAX];
    char name[KEY_NAME_MAX];
    uint64_t created_s, expires_s; /* unix time; created 0 = not known, expires 0 = never */
    char dialects[64];             /* "execute,e2b"; "" = all */
    char projects[256];            /* globs, "web-*,ci"; "" = all */
    struct quota limits;           /* on top of the tenant's */
};

struct keys {
    struct key *items;
    size_t count;
};

/* COVE_INVALID begins with "line 3: " when that line is not a key. */
int keys_parse(const char *text, struct keys *ret, struct cove_err *e);
void keys_done(struct keys *k);
/* One line of the file, with its line feed. */
int keys_format(const struct key *key, struct buf *out);

void keys_hash(const char *key, unsigned char ret[KEY_HASH_BYTES]);
void keys_id(const struct key *key, char ret[KEY_ID_LEN + 1]);

/* Finds the key with this hash, or NULL. Takes the same time wherever the key stands in the table, and if it
 * is not there. */
const struct key *keys_find(const struct keys *k, const unsigned char hash[KEY_HASH_BYTES]);
/* Finds a key by its public name; NULL if there is none, or more than one. */
const struct key *keys_find_id(const struct keys *k, const char *id);

/* Which keys are valid, by their public names alone (keys/names.c): written by the keeper, read by the gate. */
struct key_names {
    char *lines;
    size_t count;
};

int key_names_write(const struct keys *keys, struct buf *out);
/* COVE_BUSY: the text is not whole, because the list is just being written. */
int key_names_read(const char *text, struct key_names *ret, struct cove_err *e);
bool key_names_hold(const struct key_names *names, const char *id, uint64_t now_s);
void key_names_done(struct key_names *names);

bool key_expired(const struct key *key, uint64_t now_s);
bool key_may_dialect(const struct key *key, const char *dialect);
bool key_may_project(const struct key *key, const char *project);

/* ------------------------------------------------------------------ tenants */

struct tenant {
    char name[COVE_TEMPLATE_MAX]; /* of the tenant; in a table of templates, of the template */
    struct quota quota;
    unsigned given; /* a bit for each member of quota that the tenant's line sets */
    struct limits limits;
    unsigned limits_given;
    struct net_rules *network; /* NULL: the line says nothing about the network */
};

struct tenants {
    struct tenant *items;
    size_t count;
};

int tenants_parse(const char *text, struct tenants *ret, struct cove_err *e);
/* The same for templates, which have limits and no quotas. */
int templates_parse(const char *text, struct tenants *ret, struct cove_err *e);
void tenants_done(struct tenants *t);
/* The defaults, replaced by what the tenant's own line says. t may be NULL. */
struct quota tenants_quota(const struct tenants *t, const char *tenant,
                           const struct quota *defaults);

/* What the last line with this name says about the network; NULL if it says nothing. */
const struct net_rules *tenants_network(const struct tenants *t, const char *name);

/* The limits of a sandbox: those of cove.conf, replaced by what its template's line says,
 * replaced by what its tenant's line says. Either table may be NULL; `tenant` is "" for a
 * sandbox of the pool, which belongs to nobody yet. */
void limits_resolve(const struct cove_config *c, const struct tenants *templates,
                    const char *template, const struct tenants *tenants, const char *tenant,
                    struct limits *ret);
/* The largest output that any template or this tenant may have. */
uint64_t limits_output_ceiling(const struct cove_config *c, const struct tenants *templates,
                               const struct tenants *tenants, const char *tenant);

/* ------------------------------------------------------------------ the file, for `cove key` */

/* Reads the file. No lock is needed for that, because the file is replaced whole. A missing file
 * counts as empty. */
int keys_load(const char *path, struct keys *ret, struct cove_err *e);

struct keys_edit { /* the file, locked against other editors */
    char path[512];
    int lock_fd;
    char *text; /* the text of the file, comments included */
    struct keys keys;
};

int keys_edit_begin(const char *path, struct keys_edit *ret, struct cove_err *e);
void keys_edit_done(struct keys_edit *edit);
/* Removes the line of `drop` (unless NULL) and adds `count` lines. The file is replaced by one
 * rename; comments stay. */
int keys_edit_commit(struct keys_edit *edit, const struct key *drop, const struct key *add,
                     size_t add_count, struct cove_err *e);
/* Makes a new key: its text, which is shown once, and its hash in *ret. */
void keys_new(char ret_text[KEY_TEXT_LEN + 1], struct key *ret);

/* "2027-01-31", "2027-01-31T12:00:00Z", or from now: "90d", "12h". */
int keys_parse_time(const char *text, uint64_t now_s, uint64_t *ret_s, struct cove_err *e);
bool keys_is_name(const char *s); /* letters, digits, '.', '_', '-'; at least one */
int keys_set(struct key *key, const char *setting, const char *value, struct cove_err *e);

/* ------------------------------------------------------------------ the token of one sandbox */

enum { TOKEN_SECRET_BYTES = 32, TOKEN_LEN = 64 };
/* Below state_dir, and a copy for workers below run_dir. */
#define TOKEN_SECRET_FILE "token-secret"

void token_make(const unsigned char secret[TOKEN_SECRET_BYTES], const char *id,
                char ret[TOKEN_LEN + 1]);
/* Makes the token that gives access to a sandbox's ports and to nothing else of the sandbox. */
void traffic_token_make(const unsigned char secret[TOKEN_SECRET_BYTES], const char *id,
                        char ret[TOKEN_LEN + 1]);
bool traffic_token_fits(const unsigned char secret[TOKEN_SECRET_BYTES], const char *id,
                        const char *given);
bool token_fits(const unsigned char secret[TOKEN_SECRET_BYTES], const char *id, const char *given);
int token_read_secret(const char *run_dir, unsigned char ret[TOKEN_SECRET_BYTES],
                      struct cove_err *e);

#endif
