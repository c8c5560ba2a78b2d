/* What a tenant may have and what one sandbox gets: quotas, limits, network, cpu; and what it uses. */
#ifndef COVE_KEEPER_QUOTA_H
#define COVE_KEEPER_QUOTA_H

#include "cove/limits.h"
#include "cove/msg_keeper.h"
#include "sandbox/box/cgroup.h"

struct box;
struct keeper;
struct snapshot;

/* ------------------------------------------------------------------ quota.c */

/* May this tenant have one more sandbox, or one more snapshot? COVE_QUOTA if not. */
int quota_check_claim(struct keeper *k, const struct keeper_claim *args, struct cove_err *e);
int quota_check_snapshot(struct keeper *k, const char *tenant, struct cove_err *e);
uint64_t quota_disk(const struct keeper *k, const char *tenant); /* bytes; 0 = no quota */

/* ------------------------------------------------------------------ box_limits.c */

/* The limits of a sandbox of this template that this tenant claims; tenant "": of one in the pool. */
void box_limits_resolve(const struct keeper *k, const char *template_name, const char *tenant,
                        struct limits *ret);
/* Lowers the limits to those that the tenant's own template asks for, where these are lower. */
void box_limits_narrow(const struct snapshot *s, struct limits *l);
struct cgroup_limits box_limits_cgroup(const struct limits *l);
uint32_t box_limits_cpus(const struct limits *l); /* how many cpus it sees and runs on; 0 = all */
/* Can a sandbox that was made with the limits `has` be brought to `want`? Its disk and its cpus cannot be
 * changed. */
bool box_limits_fit(const struct limits *has, const struct limits *want);
int box_limits_apply(struct keeper *k, struct box *b, const struct limits *want,
                     struct cove_err *e);

/* ------------------------------------------------------------------ box_network.c */

void network_setup(struct keeper *k); /* as the configuration says */
void network_watch(struct keeper *k); /* once */
void network_tick(struct keeper *k);
void network_adopt(struct keeper *k);
int network_set(struct keeper *k, uint32_t box, const struct net_rules *rules, struct cove_err *e);
int network_apply_settings(struct keeper *k, uint32_t box, struct cove_err *e);
void network_review(struct keeper *k); /* tables of tenants or templates have changed */
void network_forget(struct keeper *k, uint32_t box);
/* When the sandbox is saved, the network settings of its client go to a file in `dir` (saved_write()). They
 * come back from there when it is woken. */
int network_keep(const struct keeper *k, const char *id, int dir, bool *changed,
                 struct cove_err *e);
int network_restore(struct keeper *k, uint32_t box, int dir, struct cove_err *e);

/* ------------------------------------------------------------------ cpu_shares.c */

uint64_t cpu_shares_tick(struct keeper *k, uint64_t now, uint64_t next);

/* ------------------------------------------------------------------ process_shares.c */

void process_shares_tick(struct keeper *k, uint64_t now);
/* Does this tenant run so many processes that it gets no more, and no further sandbox? */
bool process_shares_holds(const struct keeper *k, const char *tenant);

/* ------------------------------------------------------------------ sampling.c */

int sampling_setup(struct keeper *k, struct cove_err *e);
void sampling_tick(struct keeper *k, uint64_t now);

#endif
