/* A template's manifest as people see it: manifest.json, docs/template.schema.json. */
#ifndef CLI_TEMPLATE_DOC_H
#define CLI_TEMPLATE_DOC_H

#include "cove/buf.h"
#include "cove/json.h"
#include "cove/manifest.h"

struct doc_service {
    int64_t port, when; /* when: 1 = on first use */
    const char *command;
};

struct doc_network {
    const char *mode;
    struct json_strings allow, deny;
};

struct template_doc { /* strings belong to the arena or the tree that was read */
    int64_t schema, created_unix_ms;
    const char *name, *source, *architecture;
    struct json_strings layers; /* "sha256:...", the topmost first */
    const char *user, *workdir, *start, *ready, *policy, *seccomp, *shell;
    double ready_timeout_s; /* 0 = not given: MANIFEST_READY_MS applies */
    struct json_map env, limits, labels;
    struct json_array services; /* of struct doc_service */
    struct doc_network *network;
    struct json_strings tenants;
};

enum {
    DOC_MAX = 1 << 20, /* bytes of a manifest's JSON text */
    DOC_LABELS_MAX = 64,
    DOC_LABEL_MAX = 1024,
};

/* Reads a manifest's JSON text. Unknown fields are refused: a typo must not go unnoticed. */
int doc_read(struct arena *a, const char *text, size_t len, struct template_doc *ret,
             struct cove_err *e);
int doc_read_file(struct arena *a, const char *path, struct template_doc *ret, struct cove_err *e);
void doc_write(const struct template_doc *d, struct buf *out); /* indented */
/* The flat form (cove/manifest.h), checked as coved will check it. */
int doc_flatten(const struct template_doc *d, struct buf *out, struct cove_err *e);

/* doc_set() sets an entry of a map, doc_add() adds to the end of a list. Both lie in the arena. */
void doc_set(struct arena *a, struct json_map *map, const char *name, const char *value);
void doc_add(struct arena *a, struct json_strings *list, const char *item);

#endif
