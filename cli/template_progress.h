/*
 * What `cove template add` and `cove template build` are doing: two files in <run_dir>/template-builds, which only
 * root can read, for each of them. ID.json says what is made and how it went, ID.log has the output. The time of
 * <run_dir>/template-builds.changed, an empty file that workers can see, is when any of them was written last: the
 * console's page asks again then.
 */
#ifndef CLI_TEMPLATE_PROGRESS_H
#define CLI_TEMPLATE_PROGRESS_H

#include "cove/config.h"
#include "cove/err.h"
#include "cove/json.h"

struct progress {
    char id[32]; /* "": nothing is written down, and all calls below do nothing */
    int dir, log;
    char changed[320];
    const char *name, *source;
    uint64_t began_unix_ms;
};

/* Without a server there is no run_dir; then nothing is written, and that is no failure. */
void progress_begin(struct progress *p, const struct cove_config *c, const char *name,
                    const char *source);
void progress_say(struct progress *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Adds bytes that a program has printed. */
void progress_add(struct progress *p, const char *bytes, size_t len);
/* why: NULL = the template is there. */
void progress_end(struct progress *p, const struct cove_err *why);

/* Lists the builds that go on and the latest ones that have ended, the newest first. w: NULL = prints a table. */
int progress_list(const struct cove_config *c, struct json_writer *w, struct cove_err *e);

#endif
