/* What the files of `cove key` share. */
#ifndef CLI_KEY_H
#define CLI_KEY_H

#include <stdbool.h>

#include "cove/config.h"
#include "cove/keys.h"

struct key_options {
    char file[512];
    const char *tenant; /* list: only keys of this tenant */
    const char *grace;  /* rotate: how long the old key stays valid */
    struct key key;     /* create: the new key's settings */
    const char *hash;   /* the hash of a key that the caller has made; NULL: make a key */
    bool json;
    bool served; /* a running server reads this file */
    struct cove_config config;
};

struct key_change {
    const char *word;            /* the argument of revoke and rotate: it names a key */
    char text[KEY_TEXT_LEN + 1]; /* of the key that was added */
    struct key added, removed;   /* tenant "": no key was added (removed) */
};

/* One kind of change: finds what c->word names, and writes the file. */
typedef int key_change_fn(struct keys_edit *edit, const struct key_options *o, struct key_change *c,
                          struct cove_err *e);
key_change_fn keys_add_key;
key_change_fn keys_remove_key;
/* The new key has the old one's scopes. With --grace the old one is written again with an earlier end. */
key_change_fn keys_replace_key;

/* CLI_OK: the change is in the file, and every worker has heard of it. Otherwise the failure has been told. */
int keys_change(const struct key_options *o, key_change_fn *change, struct key_change *c);

#endif
