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

static void add_field(struct json_writer *w, const char *key, const char *value)
{
    if (value)
        json_put_text(w, key, value, audit_fitting(value, strlen(value), AUDIT_FIELD_MAX));
}

static void add_number(struct json_writer *w, const char *key, uint64_t value)
{
    if (value)
        json_put_int(w, key, (int64_t)value);
}

static void add_command(struct audit *a, struct json_writer *w, const struct audit_entry *entry)
{
    size_t bytes = entry->command_bytes ? entry->command_bytes : entry->command_len, shown;
    AUTO_FREE char *clean = NULL;
    const char *text = entry->command;

    if (!text)
        return;
    shown = audit_fitting(text, entry->command_len, AUDIT_COMMAND_MAX);
    if (a->redactor) {
        if (redactor_command(a->redactor, text, entry->command_len, &clean, NULL) < 0)
            return;
        text = clean;
    }
    json_put_text(w, "command", text, clean ? strlen(clean) : shown);
    add_number(w, "command_bytes", shown < bytes ? bytes : 0);
}

/* All of a line that its hash covers. count: of the lines that a "more" line stands for, or 0. */
static void add_body(struct audit *a, struct json_writer *w, const struct audit_entry *entry,
                     uint64_t count)
{
    json_open(w, NULL, '{');
    json_put_int(w, "seq", (int64_t)a->last.seq + 1);
    json_put_time(w, "time", entry->time_ms ? entry->time_ms : clock_unix_ms());
    add_field(w, "event", entry->event);
    add_field(w, "dialect", entry->dialect);
    add_field(w, "tenant", entry->tenant);
    add_field(w, "key", entry->key);
    add_field(w, "project", entry->project);
    add_field(w, "sandbox", entry->sandbox);
    add_field(w, "rule", entry->rule);
    add_field(w, "form", entry->form);
    add_command(a, w, entry);
    add_number(w, "count", count);
    if (a->continues[0])
        add_field(w, "continues", a->continues);
    add_number(w, "torn_bytes", a->torn_bytes);
    add_number(w, "removed_files", a->removed_files);
    json_put_str(w, "prev", a->last.hash);
}

int audit_line_make(struct audit *a, const struct audit_entry *entry, uint64_t count,
                    struct buf *line, char ret_hash[AUDIT_HASH_LEN + 1])
{
    struct json_writer w;

    json_writer_init(&w, line);
    add_body(a, &w, entry, count);
    if (line->overflow || audit_hash(line->data, line->len, ret_hash) < 0)
        return -1;
    json_put_str(&w, "hash", ret_hash);
    json_close(&w, '}');
    return buf_add_char(line, '\n');
}
