/* The log: one JSON object a line on stderr, where journald or the operator's own file takes it. */
#ifndef COVE_LOG_H
#define COVE_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "cove/err.h"

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

struct log_field {
    const char *key;
    bool is_text;
    const char *str; /* NULL is shown as "" */
    int64_t num;
};

#define LOG_S(k, v) ((struct log_field){ .key = (k), .is_text = true, .str = (v) })
#define LOG_N(k, v) ((struct log_field){ .key = (k), .num = (int64_t)(v) })

void log_init(const char *program, enum log_level most); /* program: "keeper", "worker 3" */
void log_set_level(enum log_level most);
int log_level_parse(const char *name, enum log_level *ret, struct cove_err *e);

/*
 * log_event(LOG_LEVEL_INFO, "sandbox created", LOG_S("sandbox", id), LOG_N("duration_ms", 3));
 * The line is made whole in memory and leaves in one write, so lines of many processes never mix.
 * Secrets never go in here: keys, tokens, env values and command output are not log fields.
 */
#define log_event(level, what, ...)                                                                \
    log_event_fields((level),                                                                      \
                     (const struct log_field[]){ LOG_S("event", (what)), ##__VA_ARGS__, { 0 } })
void log_event_fields(enum log_level level, const struct log_field *fields);

/* Logs an error, with its code, errno and message as fields. Called where the error ends, not on its way up. */
#define log_error(what, err, ...)                                                                  \
    log_event(LOG_LEVEL_ERROR, (what), LOG_S("error", (err)->msg),                                 \
              LOG_S("code", cove_code_name((err)->code)), ##__VA_ARGS__)

#endif
