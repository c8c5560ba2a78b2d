/* Messages to and from the helpers that have few: judge, auth, fetch, resolver, starter. */
#ifndef COVE_MSG_HELPERS_H
#define COVE_MSG_HELPERS_H

#include "cove/msg.h"
#include "cove/names.h"
#include "cove/netlist.h"

/* ------------------------------------------------------------------ judge */

enum judge_msg {
    /* --- keeper to judge --- */
    JUDGE_BOX = 400, /* struct judge_box: this sandbox runs now, attach to it */
};

struct judge_box {
    char id[24];
    uint32_t index; /* its slot in shared memory */
    uint32_t reserved;
};

/* ------------------------------------------------------------------ auth */

enum auth_msg {
    /* --- worker to cove-auth, one question a connection --- */
    AUTH_ASK = 600, /* tail: user, password, address of the client -> AUTH_VERDICT */
    AUTH_VERDICT,   /* struct auth_verdict */
};

struct auth_verdict {
    uint32_t yes;
    uint32_t wait_ms; /* with a no: too many failures, PAM was not asked; try again after this */
};

/* ------------------------------------------------------------------ fetch */

enum fetch_msg {
    /* --- worker to cove-fetch, one fetch a connection --- */
    FETCH_ASK = 650, /* struct fetch_ask + the file; tail: the URL -> FETCH_DONE */
    FETCH_DONE,      /* struct fetch_done */
};

enum fetch_verb { FETCH_DOWNLOAD, FETCH_UPLOAD, FETCH_UPLOAD_TEXT };
enum { FETCH_URL_MAX = 8192 };

struct fetch_ask {
    char tenant[COVE_TENANT_MAX];
    uint32_t verb; /* enum fetch_verb */
    uint32_t reserved;
    uint64_t most; /* bytes of a download; the helper's own limit applies too */
    uint64_t size; /* of the file that is uploaded */
};

struct fetch_done {
    uint64_t bytes;
    uint32_t http_status;
    uint32_t reserved;
};

/* ------------------------------------------------------------------ resolver */

enum resolver_msg {
    /* --- keeper to resolver --- */
    RESOLVER_RULES = 700, /* struct resolver_rules: these apply from now on */
    RESOLVER_BOX,         /* struct resolver_box + UDP socket, listening TCP socket */
    RESOLVER_GONE,        /* struct resolver_box */

    /* --- resolver to keeper: all that it can make root do --- */
    RESOLVER_PIN = 750, /* struct resolver_pin -> MSG_DONE, or MSG_ERROR */
};

#define RESOLVER_ALL UINT32_MAX

struct resolver_rules {
    uint32_t slot; /* the sandbox's slot; RESOLVER_ALL = the server's rules */
    uint32_t generation;
    uint32_t stage; /* enum net_stage, for a sandbox's rules */
    uint32_t reserved;
    struct net_rules rules;
    char upstreams[256]; /* RESOLVER_ALL: addresses of name servers, separated by spaces */
};

struct resolver_box {
    uint32_t slot, generation;
};

struct resolver_pin { /* lets a sandbox reach an address for some time */
    uint32_t slot, generation;
    uint32_t family; /* AF_INET, AF_INET6 */
    uint32_t seconds;
    uint8_t addr[16];
};

/* ------------------------------------------------------------------ starter */

enum starter_msg {
    /* --- keeper to starter --- */
    STARTER_BOX = 950, /* struct starter_box: run what its template says, then STARTER_DONE */

    /* --- starter to keeper: all that it can make root do --- */
    STARTER_DONE, /* struct starter_done -> MSG_DONE */
};

struct starter_box {
    char id[24];
    char template[COVE_TEMPLATE_MAX];
    char snapshot[24];            /* if it has a manifest, that applies instead of the template's */
    char tenant[COVE_TENANT_MAX]; /* "" = it is for the pool */
    uint32_t index, generation;
    uint64_t log_max_bytes, open_files_max, file_max_bytes; /* limits of the commands */
};

struct starter_done {
    char id[24];
    uint32_t index, generation;
    struct cove_err err; /* COVE_OK: the sandbox may be handed out */
};

#endif
