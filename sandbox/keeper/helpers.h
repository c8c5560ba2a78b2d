/* What is particular to single helpers; what all have in common is in supervisor.h. */
#ifndef COVE_KEEPER_HELPERS_H
#define COVE_KEEPER_HELPERS_H

#include "cove/err.h"
#include "sandbox/keeper/supervisor.h"

struct keeper;

/* ------------------------------------------------------------------ workers.c */

int workers_listen(struct keeper *k, struct cove_err *e);
void workers_start(struct keeper *k); /* until as many as configured serve */
void workers_drain_all(struct keeper *k);
void workers_drain_old(struct keeper *k); /* those that an earlier keeper started */
void workers_adopt(struct keeper *k);
void workers_stop(struct keeper *k); /* drain, then kill what is left */

/* ------------------------------------------------------------------ helper_judge.c, helper_gate.c */

void judge_tell(struct keeper *k, uint32_t box);
int gate_listen(struct keeper *k, struct cove_err *e); /* once, before the first start */

/* ------------------------------------------------------------------ helper_resolver.c */

void resolver_tick(struct keeper *k);
void resolver_tell_all(struct keeper *k); /* the server's rules */
void resolver_tell_box(struct keeper *k, uint32_t box);
void resolver_tell_rules(struct keeper *k, uint32_t box);
void resolver_tell_gone(struct keeper *k, uint32_t box);

/* ------------------------------------------------------------------ helper_starter.c */

enum { STARTER_RETRY_MS = 1000 };
/* Does the template of this sandbox start something in it? Then the sandbox is handed out, or ended, when
 * the starter reports. */
bool starter_begin(struct keeper *k, uint32_t index, struct cove_err *e);
uint64_t starter_tick(struct keeper *k, uint64_t now, uint64_t next);

#endif
