/*
 * How much one source may write to the audit log. Whoever is refused a thousand times a second gains
 * nothing from a thousand lines a second, and the disk would be full in an hour: each source has a
 * bucket of lines that refills with time, and what does not fit is counted.
 */
#include <string.h>

#include "cove/text.h"
#include "policy/audit/audit_private.h"

static bool same(const char *stored, size_t size, const char *given)
{
    return strncmp(stored, given ? given : "", size - 1) == 0;
}

bool audit_source_is(const struct audit_source *s, const struct audit_entry *entry)
{
    return s->last_ms && same(s->tenant, sizeof(s->tenant), entry->tenant) &&
           same(s->project, sizeof(s->project), entry->project) &&
           same(s->sandbox, sizeof(s->sandbox), entry->sandbox);
}

struct audit_source *audit_source_find(struct audit_source *rows, const struct audit_entry *entry)
{
    struct audit_source *oldest = &rows[0];

    for (size_t i = 0; i < AUDIT_SOURCES; i++) {
        if (audit_source_is(&rows[i], entry))
            return &rows[i];
        if (rows[i].last_ms < oldest->last_ms)
            oldest = &rows[i];
    }
    return oldest;
}

static uint64_t line_cost_ms(const struct audit_options *o)
{
    return 60000 / o->per_minute ? 60000 / o->per_minute : 1;
}

static uint64_t full_ms(const struct audit_options *o)
{
    return (o->burst ? o->burst : 1) * line_cost_ms(o);
}

void audit_source_begin(struct audit_source *s, const struct audit_entry *entry,
                        const struct audit_options *o, uint64_t now_ms)
{
    *s = (struct audit_source){ .last_ms = now_ms ? now_ms : 1, .credit_ms = full_ms(o) };
    text_copy(s->tenant, sizeof(s->tenant), entry->tenant ? entry->tenant : "");
    text_copy(s->project, sizeof(s->project), entry->project ? entry->project : "");
    text_copy(s->sandbox, sizeof(s->sandbox), entry->sandbox ? entry->sandbox : "");
}

bool audit_source_take(struct audit_source *s, const struct audit_options *o, uint64_t now_ms)
{
    if (now_ms > s->last_ms) {
        s->credit_ms += now_ms - s->last_ms;
        s->last_ms = now_ms;
    }
    if (s->credit_ms > full_ms(o))
        s->credit_ms = full_ms(o);
    if (s->credit_ms < line_cost_ms(o))
        return false;
    s->credit_ms -= line_cost_ms(o);
    return true;
}
