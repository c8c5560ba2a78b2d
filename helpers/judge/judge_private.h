/* What the judge's files share among themselves. */
#ifndef COVE_JUDGE_PRIVATE_H
#define COVE_JUDGE_PRIVATE_H

#include <stdint.h>
#include <sys/queue.h>

#include "cove/client.h"
#include "cove/config.h"
#include "cove/loop.h"
#include "cove/msg.h"
#include "cove/state.h"
#include "process/live.h"

struct conversation { /* with the init of one sandbox */
    LIST_ENTRY(conversation) link;
    struct watch watch;
    uint32_t index; /* of its slot */
    char id[24];
    uint32_t denied_pid; /* the process that was denied something last, what that was, and when */
    uint64_t denied_what, denied_ms;
    uint64_t logged_ms; /* when a denial in this sandbox was last told in the log */
    unsigned unlogged;  /* denials since then that were not */
};

struct judge {
    struct cove_config config;
    struct state *state;
    struct live policy, manifests;
    struct keeper_link keeper;
    struct loop loop;
    struct watch orders; /* the connection on which the keeper names sandboxes */
    LIST_HEAD(conversation_list, conversation) conversations;
    char buf[MSG_MAX_BYTES];
};

/* Answers a question of a sandbox's init (BOX_EXEC_ASK): verdict.c. */
void verdict_answer(struct judge *j, struct conversation *talk, const struct msg *m);

#endif
