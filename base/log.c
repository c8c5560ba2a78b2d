#include "cove/log.h"

#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "cove/json.h"

enum { LINE_MAX_BYTES = 16 * 1024, TEXT_MAX_BYTES = 4096 };

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

static void add_field(struct json_writer *w, const struct log_field *f)
{
    if (f->is_text)
        json_put_text(w, f->key, f->str, f->str ? strnlen(f->str, TEXT_MAX_BYTES) : 0);
    else
        json_put_int(w, f->key, (int64_t)f->num);
}

struct line_head {
    uint64_t time_ms;
    const char *level, *program;
};

static const struct json_field head_fields[] = {
    JSON_TIME(struct line_head, time_ms, "time", JSON_ALWAYS),
    JSON_STR(struct line_head, level, "level", JSON_ALWAYS, JSON_ANY),
    JSON_STR(struct line_head, program, "program", JSON_ALWAYS, JSON_ANY),
    JSON_END,
};

void log_event_fields(enum log_level level, const struct log_field *fields)
{
    AUTO_BUF struct buf line;
    struct json_writer w;

    buf_init(&line, LINE_MAX_BYTES);
    if ((int)level > atomic_load(&most_level))
        return;
    json_writer_init(&w, &line);
    json_open(&w, NULL, '{');
    json_put_members(&w, head_fields,
                     &(struct line_head){ clock_unix_ms(), level_names[level], program });
    for (; fields->key; fields++)
        add_field(&w, fields);
    json_close(&w, '}');
    if (!line.overflow && buf_add_char(&line, '\n') == 0) {
        /* A full disk or a closed stderr must not stop the server: only this line is lost. */
        ssize_t n = write(STDERR_FILENO, line.data, line.len);

        (void)n;
    }
}
