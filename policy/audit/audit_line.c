/* One line of the audit log as text. See audit_private.h for its shape. */
#include <string.h>

#include "cove/json.h"
#include "cove/mem.h"
#include "cove/text.h"
#include "policy/audit/audit_private.h"

/* Upper bounds of what one character becomes in JSON. */
static size_t json_cost(unsigned char c)
{
    if (c < ' ' || c == 127)
        return 6;
    return c >= 0x80 ? 3 : c == '"' || c == '\\' ? 2 : 1;
}

size_t audit_fitting(const char *text, size_t len, size_t max)
{
    size_t n = 0, cost = 0;

    while (n < len) {
        size_t seq = text_utf8_seq(text + n, len - n);
        size_t more = seq > 1 ? seq : json_cost((unsigned char)text[n]);

        if (cost + more > max)
            break;
        cost += more;
        n += seq ? seq : 1;
    }
    return n;
}

struct line { /* all of a line that its hash covers */
    int64_t seq;
    uint64_t time_ms;
    struct json_text event, dialect, tenant, key, project, sandbox, rule, form, command;
    int64_t command_bytes; /* of the whole command; 0: all of it is shown */
    int64_t count;         /* of the lines that a "more" line stands for, or 0 */
    struct json_text continues;
    int64_t torn_bytes, removed_files;
    const char *prev;
};

#define TEXT(f, name)   JSON_TEXT(struct line, f, name, JSON_OPTIONAL, JSON_ANY)
#define NUMBER(f, name) JSON_INT(struct line, f, name, JSON_OPTIONAL, 0, INT64_MAX)

static const struct json_field line_fields[] = {
    JSON_INT(struct line, seq, "seq", JSON_ALWAYS, 1, INT64_MAX),
    JSON_TIME(struct line, time_ms, "time", JSON_ALWAYS),
    TEXT(event, "event"),
    TEXT(dialect, "dialect"),
    TEXT(tenant, "tenant"),
    TEXT(key, "key"),
    TEXT(project, "project"),
    TEXT(sandbox, "sandbox"),
    TEXT(rule, "rule"),
    TEXT(form, "form"),
    TEXT(command, "command"),
    NUMBER(command_bytes, "command_bytes"),
    NUMBER(count, "count"),
    TEXT(continues, "continues"),
    NUMBER(torn_bytes, "torn_bytes"),
    NUMBER(removed_files, "removed_files"),
    JSON_STR(struct line, prev, "prev", JSON_ALWAYS, JSON_ANY),
    JSON_END,
};

struct line_end {
    const char *hash;
};

static const struct json_field end_fields[] = {
    JSON_STR(struct line_end, hash, "hash", JSON_ALWAYS, AUDIT_HASH_LEN),
    JSON_END,
};

/* A field as it is shown: at most AUDIT_FIELD_MAX bytes. */
static struct json_text shown(const char *value)
{
    return (struct json_text){ value,
                               value ? audit_fitting(value, strlen(value), AUDIT_FIELD_MAX) : 0 };
}

/* Puts the command into the line, without its secrets if they are to be left out. *clean, which the caller frees,
 * may hold its text. */
static void set_command(struct audit *a, const struct audit_entry *entry, struct line *line,
                        char **clean)
{
    size_t bytes = entry->command_bytes ? entry->command_bytes : entry->command_len, fits;

    if (!entry->command)
        return;
    fits = audit_fitting(entry->command, entry->command_len, AUDIT_COMMAND_MAX);
    if (!a->redactor)
        line->command = (struct json_text){ entry->command, fits };
    else if (redactor_command(a->redactor, entry->command, entry->command_len, clean, NULL) == 0)
        line->command = (struct json_text){ *clean, strlen(*clean) };
    else
        return;
    line->command_bytes = fits < bytes ? (int64_t)bytes : 0;
}

static void add_body(struct audit *a, struct json_writer *w, const struct audit_entry *entry,
                     uint64_t count)
{
    AUTO_FREE char *clean = NULL;
    struct line line = {
        .seq = (int64_t)a->last.seq + 1,
        .time_ms = entry->time_ms ? entry->time_ms : clock_unix_ms(),
        .event = shown(entry->event),
        .dialect = shown(entry->dialect),
        .tenant = shown(entry->tenant),
        .key = shown(entry->key),
        .project = shown(entry->project),
        .sandbox = shown(entry->sandbox),
        .rule = shown(entry->rule),
        .form = shown(entry->form),
        .count = (int64_t)count,
        .continues = shown(a->continues[0] ? a->continues : NULL),
        .torn_bytes = (int64_t)a->torn_bytes,
        .removed_files = (int64_t)a->removed_files,
        .prev = a->last.hash,
    };

    set_command(a, entry, &line, &clean);
    json_put_members(w, line_fields, &line);
}

int audit_line_make(struct audit *a, const struct audit_entry *entry, uint64_t count,
                    struct buf *line, char ret_hash[AUDIT_HASH_LEN + 1])
{
    struct json_writer w;

    json_writer_init(&w, line);
    json_open(&w, NULL, '{');
    add_body(a, &w, entry, count);
    if (line->overflow || audit_hash(line->data, line->len, ret_hash) < 0)
        return -1;
    json_put_members(&w, end_fields, &(struct line_end){ ret_hash });
    json_close(&w, '}');
    return buf_add_char(line, '\n');
}
