/* The policy in use, and the seccomp programs that belong to it. */
#ifndef COVE_FCGI_POLICY_LIVE_H
#define COVE_FCGI_POLICY_LIVE_H

#include "cove/policy.h"
#include "process/live.h"

struct policy_set; /* the value of a live_ref of this kind */

extern const struct live_kind policy_kind; /* of <run_dir>/policy */

const struct policy *policy_set_policy(const struct policy_set *set);

/*
 * The compiled seccomp program for the commands of a query, as a file to hand to init: <run_dir>/profiles/NAME.bpf,
 * or NAME.notify.bpf when each of their execve calls is to be judged. The fd belongs to the set. No command can run
 * without a filter.
 */
struct policy_filter {
    int fd;
    bool exec_time;
};
int policy_set_filter(struct policy_set *set, const struct policy_query *q,
                      struct policy_filter *ret, struct cove_err *e);

#endif
