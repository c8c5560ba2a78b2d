#include "cove/log.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cove/buf.h"
#include "cove/mem.h"
#include "cove/text.h"

enum { LINE_MAX_BYTES = 16 * 1024 };

static char program[32] = "cove";
static _Atomic int most_level = LOG_LEVEL_INFO;

static const char *const level_names[] = {
    [LOG_LEVEL_ERROR] = "error",
    [LOG_LEVEL_WARN] = "warn",
    [LOG_LEVEL_INFO] = "info",
    [LOG_LEVEL_DEBUG] = "debug",
};

void log_init(const char *name, enum log_level most)
{
    text_copy(program, sizeof(program), name);
    log_set_level(most);
}

void log_set_level(enum log_level most)
{
    atomic_store(&most_level, (int)most);
}

int log_level_parse(const char *name, enum log_level *ret, struct cove_err *e)
{
    for (size_t i = 0; i < ARRAY_SIZE(level_names); i++) {
        if (strcmp(name, level_names[i]) == 0) {
            *ret = (enum log_level)i;
            return 0;
        }
    }
    return cove_fail(e, COVE_INVALID, "'%.40s' is not one of error, warn, info, debug", name);
}

static void add_field(struct buf *b, const struct log_field *f)
{
    buf_add_char(b, ',');
    buf_add_json_str(b, f->key, strlen(f->key));
    buf_add_char(b, ':');
    if (f->is_text)
        buf_add_json_str(b, f->str ? f->str : "", f->str ? strnlen(f->str, 4096) : 0);
    else
        buf_addf(b, "%lld", (long long)f->num);
}

void log_event_fields(enum log_level level, const struct log_field *fields)
{
    struct buf line;
    char when[32];

    if ((int)level > atomic_load(&most_level))
        return;
    buf_init(&line, LINE_MAX_BYTES);
    text_format_time(clock_unix_ms(), when);
    buf_addf(&line, "{\"time\":\"%s\",\"level\":\"%s\",\"program\":\"%s\"", when,
             level_names[level], program);
    for (; fields->key; fields++)
        add_field(&line, fields);
    if (!line.overflow && buf_add_str(&line, "}\n") == 0) {
        /* A full disk or a closed stderr must not stop the server: the line is lost, nothing else.
         */
        ssize_t n = write(STDERR_FILENO, line.data, line.len);

        (void)n;
    }
    buf_done(&line);
}
