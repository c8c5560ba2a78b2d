/* Sandboxes by their ids: made, found, listed, paused, given more time. */
#ifndef COVE_FCGI_CORE_SANDBOXES_H
#define COVE_FCGI_CORE_SANDBOXES_H

#include "fcgi/core.h"
#include "fcgi/core_attributes.h"

struct core_new {
    const char *tenant;
    const char *template; /* or a snapshot's name or id; NULL = the configured default */
    uint32_t dialect;     /* enum cove_dialect */
    uint64_t lifetime_ms;
    bool *ret_made;   /* with `once`: false when the sandbox was there already; NULL = not asked */
    const char *once; /* asked for again under this name, the same sandbox is meant; NULL = none */
    uint32_t
        keep_ended_s; /* a record of it is kept so long after its end. With `once` the name then
                              still stands for that sandbox, whose record (BOX_ENDED) is returned */
    const struct core_attributes *attributes;
};

/* A sandbox of its own, which is nobody's project. */
int core_sandbox_create(struct core *c, const struct core_new *args, struct box_info *ret,
                        struct cove_err *e);
/* COVE_NOT_FOUND: there is none, or it is another tenant's, or this key may not see it. */
int core_sandbox_find(struct core *c, const char *tenant, const char *id, struct box_info *ret,
                      struct cove_err *e);
/* All that the caller may see; `each` is called until it returns non-zero. */
void core_sandbox_list(struct core *c, const char *tenant,
                       int (*each)(void *arg, const struct box_info *box), void *arg);
/* The records of those that have ended; of one, by its id in any form: COVE_NOT_FOUND. */
void core_sandbox_list_ended(struct core *c, const char *tenant,
                             int (*each)(void *arg, const struct box_info *box), void *arg);
int core_sandbox_find_ended(struct core *c, const char *tenant, const char *name,
                            struct box_info *ret, struct cove_err *e);
/* Other attributes than it was made with. */
int core_sandbox_describe(struct core *c, const struct box_info *box,
                          const struct core_attributes *attributes, struct cove_err *e);
/* Traffic came to one that is paused: it runs again, as long as it was meant to, or five minutes. */
int core_sandbox_wake(struct core *c, struct which *w, struct cove_err *e);
int core_sandbox_kill(struct core *c, const struct box_info *box, struct cove_err *e);

/* A new end, counted from now. only_longer: an end that is later already stays. */
int core_sandbox_extend(struct core *c, const struct box_info *box, uint64_t lifetime_ms,
                        bool only_longer, struct cove_err *e);
/* A new end, counted from now, and what happens then: it is paused, or else killed. */
int core_sandbox_schedule(struct core *c, const struct box_info *box, uint64_t lifetime_ms,
                          bool pauses, struct cove_err *e);
/*
 * Two ways to pause; which of them this one is, the configuration says (`pause`), for the tenant and
 * the template. In memory: frozen where it is (BOX_FROZEN), runs again within milliseconds, costs its
 * memory. To storage: as below. COVE_CONFLICT: it is paused already.
 */
int core_sandbox_pause(struct core *c, const struct box_info *box, struct cove_err *e);
/*
 * To storage: its files go into an archive, its processes end, nothing of it is left on this machine
 * but that archive (BOX_SAVED); environment variables and other secrets of its attributes are not in
 * it. One that is frozen may be saved. Waits until it is done, which may take minutes: for routes that
 * are ROUTE_LONG. COVE_CONFLICT: it is saved already, or somebody used it meanwhile and it goes on.
 */
int core_sandbox_save(struct core *c, const struct box_info *box, struct cove_err *e);
/*
 * A paused one of either kind runs again, under the same id; lifetime_ms 0: the one it was made with.
 * A saved one has its files, and none of the processes it had. Of several who ask at once all get the
 * same one. Commands by core_session_open() and _open_id() wake a paused sandbox by themselves.
 */
int core_sandbox_resume(struct core *c, const struct box_info *box, uint64_t lifetime_ms,
                        struct cove_err *e);

/* What it has used over its life; none is no failure. */
struct sample_ring;
int core_sandbox_samples(struct core *c, const struct box_info *box, struct sample_ring *ret,
                         struct cove_err *e);

/* Times for people: of its start, and of its end, or of its pause when it is paused. */
uint64_t core_sandbox_ends_unix_ms(const struct box_info *box);

#endif
