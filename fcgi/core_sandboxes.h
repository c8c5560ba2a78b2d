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
    /* with `once`: false when the sandbox existed already; NULL = the caller does not want to know */
    bool *ret_made;
    /* a name for this creation: a second call with the same name means the same sandbox; NULL = none */
    const char *once;
    /* for how long a record of it is kept after its end. As long as there is one, `once` still names that
     * sandbox, and its record (BOX_ENDED) is returned */
    uint32_t keep_ended_s;
    const struct core_attributes *attributes;
};

/* Makes a new sandbox that belongs to no project. */
int core_sandbox_create(struct core *c, const struct core_new *args, struct box_info *ret,
                        struct cove_err *e);
/* COVE_NOT_FOUND: there is no such sandbox, or it is another tenant's, or this key may not see it. */
int core_sandbox_find(struct core *c, const char *tenant, const char *id, struct box_info *ret,
                      struct cove_err *e);
/* Lists all sandboxes that the caller may see; `each` is called until it returns non-zero. */
void core_sandbox_list(struct core *c, const char *tenant,
                       int (*each)(void *arg, const struct box_info *box), void *arg);
/* The records of sandboxes that have ended: all of them, or the one of an id in any form (COVE_NOT_FOUND: there is no
 * record). */
void core_sandbox_list_ended(struct core *c, const char *tenant,
                             int (*each)(void *arg, const struct box_info *box), void *arg);
int core_sandbox_find_ended(struct core *c, const char *tenant, const char *name,
                            struct box_info *ret, struct cove_err *e);
/* Replaces the attributes that the sandbox was made with. */
int core_sandbox_describe(struct core *c, const struct box_info *box,
                          const struct core_attributes *attributes, struct cove_err *e);
/* Wakes a paused sandbox because traffic came for it. It then lives for its own lifetime, or for five minutes if that
 * is longer. */
int core_sandbox_wake(struct core *c, struct which *w, struct cove_err *e);
int core_sandbox_kill(struct core *c, const struct box_info *box, struct cove_err *e);

/* Sets a new end of the sandbox's life, counted from now. only_longer: a later end stays as it is. */
int core_sandbox_extend(struct core *c, const struct box_info *box, uint64_t lifetime_ms,
                        bool only_longer, struct cove_err *e);
/* Sets a new end of the sandbox's life, counted from now, and whether it is paused then or killed. */
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

/* Reads the samples of what the sandbox has used. It is no failure if there are none. */
struct sample_ring;
int core_sandbox_samples(struct core *c, const struct box_info *box, struct sample_ring *ret,
                         struct cove_err *e);

/* Times to show: when the sandbox began, and when it will end (for a paused one: when it was paused). */
uint64_t core_sandbox_ends_unix_ms(const struct box_info *box);

#endif
