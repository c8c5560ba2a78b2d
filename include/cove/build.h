/*
 * Builds of templates, as workers and cove-builder speak of them. One SEQPACKET connection to
 * <run_dir>/builder.sock is one question, or one upload.
 *
 * An order is a file of strings in pairs, a key and its value, each with its NUL:
 *
 *   from-template NAME     the build begins with a template or an image: one of these two
 *   from-image REFERENCE
 *   registry-user NAME     for the image; optional, like all that follows
 *   registry-password TEXT
 *   start COMMAND          runs in each sandbox when it is made
 *   ready COMMAND          a sandbox is handed out when this command succeeds
 *   force 1                use nothing of earlier builds
 *   step KIND              COPY, RUN, ENV, WORKDIR or USER; what follows belongs to this step:
 *   arg TEXT               any number of them
 *   files HASH             of a COPY: the name its archive was uploaded by
 *   again 1                run this step and all after it anew
 */
#ifndef COVE_BUILD_H
#define COVE_BUILD_H

#include "cove/client.h"
#include "cove/msg_keeper.h"
#include "cove/names.h"

#define BUILD_PROJECT ".build-" /* prefix of the projects of builds' sandboxes */

enum {
    BUILD_ORDER_MAX = 1024 * 1024,
    BUILD_STEPS_MAX = 200,
    BUILD_MESSAGE_MAX = 1024, /* bytes of one log entry */
    BUILD_ENTRIES_MAX = 100,  /* in one answer */
    BUILD_LIST_MAX = 64,
    BUILD_HASH_LEN = 64, /* hexadecimal digits */
};

/* worker to cove-builder */
enum build_msg {
    BUILD_NEW = 900, /* struct build_new -> BUILD_TOLD */
    BUILD_START,     /* struct build_which + the order -> MSG_DONE */
    BUILD_ASK,       /* struct build_ask -> BUILD_TOLD */
    BUILD_TOLD,      /* struct build_told, tail: log entries */
    BUILD_LIST,      /* struct build_which, `id` is a name or "" -> BUILD_LISTED */
    BUILD_LISTED,    /* struct build_listed */
    BUILD_FILE,      /* struct build_file -> MSG_DONE: the archive is there; or COVE_NOT_FOUND */
    BUILD_UPLOAD,    /* struct build_file -> MSG_DONE + a file to write; then BUILD_UPLOADED */
    BUILD_UPLOADED,  /* no body: the file is written whole -> MSG_DONE */
    BUILD_FORGET,    /* struct build_which, `id` is a name: its builds end and go -> MSG_DONE */
};

enum build_state {
    BUILD_WAITING, /* for its order */
    BUILD_QUEUED,  /* has its order; other builds of the tenant come first */
    BUILD_RUNNING,
    BUILD_READY,
    BUILD_FAILED,
};

enum build_level { BUILD_DEBUG, BUILD_INFO, BUILD_WARN, BUILD_ERROR };

struct build_new {
    char tenant[COVE_TENANT_MAX];
    char key[COVE_KEY_ID_MAX]; /* the key that the sandboxes are claimed with */
    uint32_t key_sandboxes;
    uint32_t cpus; /* limit of its sandboxes; 0 = none of its own */
    uint64_t memory_bytes;
    uint32_t dialect; /* enum cove_dialect of the caller, for the policy and for its sandboxes */
    uint32_t reserved;
    char name[COVE_TEMPLATE_MAX]; /* without the tenant */
    char tags[COVE_TAGS_MAX];     /* separated by spaces, at least one */
};

struct build_which {
    char tenant[COVE_TENANT_MAX];
    char id[COVE_TEMPLATE_MAX];
};

struct build_ask {
    struct build_which which;
    uint64_t offset;   /* how many entries to skip */
    uint32_t limit;    /* at most BUILD_ENTRIES_MAX */
    uint32_t level;    /* enum build_level: entries below it are left out */
    uint32_t backward; /* 1: the newest first, `offset` counts from the end */
    uint32_t reserved;
};

struct build_info {
    char id[40];
    char name[COVE_TEMPLATE_MAX];
    char tags[COVE_TAGS_MAX];
    uint32_t state; /* enum build_state */
    uint32_t reserved;
    uint64_t created_unix_ms, finished_unix_ms; /* 0 = not yet */
};

struct build_told {
    struct build_info info;
    char step[16]; /* where a failed build stopped: "base", a number, "finalize" */
    char reason[BUILD_MESSAGE_MAX];
    uint32_t count; /* entries in the tail */
    uint32_t reserved;
};

/* An entry in the tail: these 16 bytes, then step and message as strings. */
struct build_entry {
    uint64_t unix_ms;
    uint32_t level;
    uint32_t reserved;
};

struct build_listed {
    uint32_t count, reserved;
    struct build_info items[BUILD_LIST_MAX]; /* the newest first */
};

struct build_file {
    char tenant[COVE_TENANT_MAX];
    char hash[BUILD_HASH_LEN + 1];
    char reserved[7];
    uint64_t bytes; /* of an upload, at most */
};

#endif
