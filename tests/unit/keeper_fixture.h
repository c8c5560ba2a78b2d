/*
 * A keeper for unit tests: real shared memory and files in a directory of its own, a real process
 * for each sandbox's init, but no namespaces, cgroups or mounts, and a clock that the test sets.
 */
#ifndef COVE_KEEPER_FIXTURE_H
#define COVE_KEEPER_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cove/mem.h"
#include "sandbox/keeper/keeper_private.h"

enum { FIXTURE_BOXES = 8, ID_BYTES = 24 };

struct fixture {
    struct keeper k;
    int sock; /* the other end of client 0's connection */
    uint32_t last_tag;
    char run_dir[64], state_dir[64];
};

struct fake_pids { /* of one cgroup; "": of all sandboxes together */
    char id[ID_BYTES];
    uint64_t now, most;
};

/* What the kernel's side is told to do, and what was asked of it. */
extern struct fake {
    uint64_t now_ms;           /* what clock_boot_ms() says */
    bool builds_fail;          /* the next set-ups tell an error instead of "ready" */
    bool builds_hang;          /* the next set-ups tell nothing */
    bool freeze_fails;         /* nothing ever stands still */
    bool cgroup_busy;          /* cgroup_remove_box() says "not yet" */
    bool pids_are_elsewhere;   /* cgroup_has_pid() says no */
    unsigned frozen, thawed;   /* calls of cgroup_freeze_begin() */
    unsigned kills;            /* calls of cgroup_kill_box() */
    char stray[2][ID_BYTES];   /* what cgroup_each_box() finds */
    char removed[8][ID_BYTES]; /* whose cgroups were removed */
    unsigned removed_count;
    struct id_range ids[64]; /* of each build_start() */
    unsigned built;
    struct fake_pids pids[2 * FIXTURE_BOXES];
    unsigned pids_counted; /* calls of cgroup_count_pids() */
} fake;

/* What cgroup_count_pids() says of this sandbox, and what cgroup_limit_pids() has set. */
struct fake_pids *fake_pids_of(const char *id);

int fixture_setup(void **state); /* *state is a struct fixture */
int fixture_teardown(void **state);

/* A keeper that finds what the one before it has left: the same directories, the same processes. */
void fixture_restart(struct fixture *f);

struct keeper_claim claim_of(const char *tenant, const char *project);
/* Ask, without waiting for the answer; returns the tag. */
uint32_t fixture_claim(struct fixture *f, const struct keeper_claim *args, int attributes);
/* Every sandbox that is being built becomes ready. */
void fixture_finish_builds(struct fixture *f);
/* As the kernel's cgroup.kill would; returns when the process has ended. Nobody has told the keeper yet. */
void fixture_kill_init(struct fixture *f, uint32_t i);
/* The next answer on the connection: its type, 0 if there is none. */
uint32_t fixture_answer(struct fixture *f, struct keeper_box *ret_box, struct cove_err *ret_err);
/* All of it: claim, build if need be, answer. The claim must succeed. */
struct keeper_box fixture_claimed(struct fixture *f, const char *tenant, const char *project);
/* Let dead processes be noticed and their remains be swept; ends when no sandbox is dying. */
void fixture_settle(struct fixture *f);
unsigned fixture_count(const struct fixture *f, enum box_state state);
int sealed_memfd(const void *bytes, size_t len);

#endif
