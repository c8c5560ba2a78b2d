/* Messages from workers to the keeper, and its answers. The keeper's table of them is in
 * sandbox/keeper/calls.c. */
#ifndef COVE_MSG_KEEPER_H
#define COVE_MSG_KEEPER_H

#include "cove/msg_box.h"
#include "cove/names.h"
#include "cove/netlist.h"

enum keeper_msg {
    KEEPER_CLAIM = 300, /* struct keeper_claim (+ attributes) -> KEEPER_BOX */
    KEEPER_RETIRE,      /* struct keeper_retire -> MSG_DONE once it is dead; idempotent */
    KEEPER_EXTEND,      /* struct keeper_extend -> MSG_DONE */
    KEEPER_FREEZE,      /* struct keeper_extend -> MSG_DONE */
    KEEPER_THAW,        /* struct keeper_extend -> MSG_DONE */
    KEEPER_BOX,         /* struct keeper_box */
    KEEPER_NETWORK,     /* struct keeper_network -> MSG_DONE once the rules apply */
    /* struct keeper_audit, tail: event, dialect, tenant, key, project, sandbox, rule, form, command
     * -> MSG_DONE */
    KEEPER_AUDIT,
    KEEPER_ATTRIBUTES, /* struct keeper_which + new attributes -> MSG_DONE */
    /* struct keeper_capture (+ a manifest) -> KEEPER_SNAPSHOT, once it is whole */
    KEEPER_CAPTURE,
    KEEPER_SNAPSHOT,        /* struct keeper_snapshot */
    KEEPER_SNAPSHOTS,       /* struct keeper_snapshots -> KEEPER_SNAPSHOT_LIST, a page of it */
    KEEPER_SNAPSHOT_LIST,   /* struct keeper_snapshot_list */
    KEEPER_SNAPSHOT_REMOVE, /* struct keeper_snapshot_name -> MSG_DONE, or COVE_NOT_FOUND */
    KEEPER_SNAPSHOT_TAG,    /* struct keeper_snapshot_tag -> KEEPER_SNAPSHOT, or COVE_NOT_FOUND */
    KEEPER_SAVE,            /* struct keeper_which -> MSG_DONE once it is saved and has ended */
    KEEPER_WAKE,            /* struct keeper_extend -> KEEPER_BOX once a saved one runs again */
    KEEPER_OPERATOR_NONCE,  /* no body -> KEEPER_NONCE, for an operator's next request */
    KEEPER_NONCE,           /* struct keeper_nonce */
    KEEPER_OPERATOR,        /* struct keeper_operator, tail: text -> KEEPER_OUTPUT */
    KEEPER_OUTPUT,          /* struct keeper_output + a sealed file with what `cove` printed */
    KEEPER_REFUSALS,        /* struct keeper_which -> KEEPER_REFUSAL_LIST */
    KEEPER_REFUSAL_LIST,    /* struct keeper_refusal_list */
    KEEPER_SAVED_ARCHIVE,   /* struct keeper_which -> KEEPER_ARCHIVE of a saved sandbox */
    KEEPER_ARCHIVE,         /* struct keeper_archive + the file, for reading */
};

/*
 * Attributes: bytes that a dialect keeps with a sandbox, in a sealed memfd beside the message. The
 * keeper copies them, unread, to <run_dir>/attributes/ID, where workers can read them.
 */
enum { COVE_ATTRIBUTES_MAX = 64 * 1024 };

struct keeper_audit {
    /* Of the whole command. The tail has its beginning, without secrets. */
    uint64_t command_bytes;
};

enum keeper_claim_flags {
    CLAIM_OWN_PROJECT = 1 << 0, /* always a new sandbox; its id is its project, `project` is "" */
    CLAIM_END_FREEZES = 1 << 1, /* at the end of its lifetime it is frozen instead of killed */
};

struct keeper_claim {
    char tenant[COVE_TENANT_MAX];
    char project[COVE_PROJECT_MAX];
    char template[COVE_TEMPLATE_MAX]; /* or a snapshot's name or id; "" = the configured default */
    char key[COVE_KEY_ID_MAX];        /* public name of the caller's key; "" = none */
    uint32_t flags;                   /* enum keeper_claim_flags */
    uint32_t dialect;                 /* enum cove_dialect of the caller */
    uint32_t key_sandboxes; /* how many sandboxes the key may have; 0 = the tenant's quota alone */
    uint32_t keep_ended_s;  /* how long a record is kept after the sandbox's end; 0 = none */
    uint32_t reserved;
    uint64_t reuse_ms;    /* 0 = as configured */
    uint64_t lifetime_ms; /* 0 = as configured */
};

struct keeper_which {
    char tenant[COVE_TENANT_MAX];
    char id[24]; /* the sandbox's id */
};

struct keeper_retire { /* id "": all sandboxes of the project, ageing ones included */
    char tenant[COVE_TENANT_MAX];
    char id[24];
    char project[COVE_PROJECT_MAX];
};

enum keeper_extend_flags {
    EXTEND_ONLY_LONGER = 1 << 0, /* never make the end earlier */
    EXTEND_END_FREEZES = 1 << 1, /* what happens at the end, from now on; neither flag: no change */
    EXTEND_END_KILLS = 1 << 2,
    EXTEND_REUSE = 1 << 3, /* also the time until which its project uses it */
};

/*
 * Sets a new end for a sandbox, earlier or later than the one it has. With KEEPER_FREEZE this is the end of the
 * frozen sandbox, with KEEPER_THAW that of the sandbox that runs again.
 */
struct keeper_extend {
    char tenant[COVE_TENANT_MAX];
    char id[24];
    uint64_t lifetime_ms; /* from now; with FREEZE and THAW 0 = no change */
    uint32_t flags;       /* enum keeper_extend_flags */
    uint32_t reserved;
};

struct keeper_network { /* can only take away from what the server allows */
    char tenant[COVE_TENANT_MAX];
    char id[24];
    struct net_rules rules;
};

/*
 * Snapshots: the files of a sandbox at one moment, which new sandboxes can be made of. A snapshot
 * belongs to a tenant, who finds it by its id or, if it has one, by its name.
 *
 * Several snapshots may share a name, each with tags of its own: NAME:TAG is one of them, and NAME alone
 * is NAME:default. A snapshot that has lost its last tag is removed. Names that begin with a dot are cove's own:
 * COVE_BUILD_CACHE has the results of build steps, the oldest of which are removed when there are too many.
 *
 * A snapshot may have a manifest (cove/manifest.h), which then tells how commands run in its sandboxes
 * and what starts in them. The template's limits, policy and network apply all the same.
 */
#define COVE_TAG_DEFAULT "default"
#define COVE_BUILD_CACHE ".build-cache"
enum { COVE_TAG_MAX = 64, COVE_TAGS_MAX = 512 };

enum keeper_capture_flags {
    /* For a fork: the keeper removes the snapshot once no sandbox is based on it, but not in its first
     * minute. It is not listed and cannot have a name. */
    CAPTURE_PASSING = 1 << 0,
    /* An image: the files below COVE_IMAGE_DIR are the whole root of sandboxes that are made of this
     * snapshot, and nothing of the template's files lies below them. The captured sandbox must be one
     * of a template, not of a snapshot. */
    CAPTURE_IMAGE = 1 << 1,
};

struct keeper_capture {
    char tenant[COVE_TENANT_MAX];
    char id[24];                  /* of the sandbox */
    char name[COVE_TEMPLATE_MAX]; /* "" = none */
    /* "" = default; another snapshot with this name and tag loses the tag */
    char tag[COVE_TAG_MAX];
    uint32_t flags; /* enum keeper_capture_flags */
    uint32_t reserved;
};

struct keeper_snapshot {
    char id[24];
    char tenant[COVE_TENANT_MAX];
    char name[COVE_TEMPLATE_MAX];     /* "" = none */
    char sandbox[24];                 /* the sandbox that was captured; it may be gone */
    char template[COVE_TEMPLATE_MAX]; /* the template at the bottom of that sandbox */
    uint64_t created_unix_ms;
    uint64_t bytes; /* how much of the tenant's quota it takes */
    uint32_t flags; /* enum keeper_capture_flags */
    uint32_t reserved;
    char tags[COVE_TAGS_MAX]; /* separated by spaces; "" if it has no name */
    char build[40];           /* the build that made it; "" = none */
};

enum { KEEPER_SNAPSHOT_PAGE = 32 };

struct keeper_snapshots {
    char tenant[COVE_TENANT_MAX]; /* "" = of all */
    uint64_t from;                /* 0, or box_page.next of the page before */
};

struct keeper_snapshot_list {
    struct box_page head;
    struct keeper_snapshot items[KEEPER_SNAPSHOT_PAGE]; /* head.count of them */
};

struct keeper_snapshot_name {
    char tenant[COVE_TENANT_MAX];
    char name[COVE_TEMPLATE_MAX]; /* or id */
};

/* The last commands that were refused in one sandbox, the newest first. */
enum { KEEPER_REFUSALS_MAX = 8 };

struct keeper_refusal {
    uint64_t unix_ms;
    char event[16]; /* "refused", "exec-denied" */
    char rule[64], form[24];
    char command[144]; /* its beginning, without secrets */
};

struct keeper_refusal_list {
    uint32_t count, reserved;
    struct keeper_refusal items[KEEPER_REFUSALS_MAX];
};

/* A request that an operator has signed (cove/operators.h); the tail is the text that was signed. */
enum { KEEPER_NONCE_MAX = 128 };

struct keeper_nonce {
    char nonce[KEEPER_NONCE_MAX];
};

struct keeper_operator {
    char name[64];
    unsigned char signature[64];
};

struct keeper_archive {
    uint64_t bytes;
    uint32_t encrypted; /* 1: by age */
    uint32_t reserved;
};

struct keeper_output {
    uint32_t exit; /* 0, or 1: the answer is no (a broken chain, a failed check) */
    uint32_t reserved;
    uint64_t bytes;
};

/* Gives a snapshot a name and a tag. It keeps its other tags; another snapshot with this name and tag loses the
 * tag. A snapshot of a fork (CAPTURE_PASSING) is no longer removed by itself. With `remove`, the snapshot that
 * has this tag loses it. */
struct keeper_snapshot_tag {
    char tenant[COVE_TENANT_MAX];
    char which[COVE_TEMPLATE_MAX]; /* id, NAME or NAME:TAG; with `remove`: not used */
    char name[COVE_TEMPLATE_MAX];
    char tag[COVE_TAG_MAX];
    char build[40]; /* the build that made it; "" = no change */
    uint32_t remove;
    uint32_t reserved;
};

struct keeper_box {
    char id[24];
    uint32_t index, generation; /* its slot in shared memory */
    uint32_t created;           /* 1: made (or taken from the pool) for this claim */
    uint32_t reserved;
};

#endif
