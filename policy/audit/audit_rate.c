/*
 * How much one source may write to the audit log. Whoever is refused a thousand times a second gains
 * nothing from a thousand lines a second, and the disk would be full in an hour: each source has a
 * bucket of lines that refills with time, and what does not fit is counted. A source is a sandbox, a
 * project without a sandbox, or a tenant.
 */
#include <string.h>

#include "cove/text.h"
#include "policy/audit/audit_private.h"

static bool same(const char *stored, size_t size, const char *given)
{
    return strncmp(stored, given ? given : "", size - 1) == 0;
}

bool audit_source_is(const struct audit_limit *l, const struct audit_source *s,
                     const struct audit_entry *entry)
{
    return s->last_ms && same(s->tenant, sizeof(s->tenant), entry->tenant) &&
           (l->by_tenant || (same(s->project, sizeof(s->project), entry->project) &&
                             same(s->sandbox, sizeof(s->sandbox), entry->sandbox)));
}

struct audit_source *audit_source_find(const struct audit_limit *l, const struct audit_entry *entry)
{
    struct audit_source *oldest = &l->rows[0];

    for (size_t i = 0; i < AUDIT_SOURCES; i++) {
        if (audit_source_is(l, &l->rows[i], entry))
            return &l->rows[i];
        if (l->rows[i].last_ms < oldest->last_ms)
            oldest = &l->rows[i];
    }
    return oldest;
}

static uint64_t line_cost_ms(const struct audit_rate *r)
{
    return 60000 / r->per_minute ? 60000 / r->per_minute : 1;
}

static uint64_t full_ms(const struct audit_rate *r)
{
    return (r->burst ? r->burst : 1) * line_cost_ms(r);
}

void audit_source_begin(const struct audit_limit *l, struct audit_source *s,
                        const struct audit_entry *entry, uint64_t now_ms)
{
    *s = (struct audit_source){ .last_ms = now_ms ? now_ms : 1, .credit_ms = full_ms(&l->rate) };
    text_copy(s->tenant, sizeof(s->tenant), entry->tenant ? entry->tenant : "");
    if (l->by_tenant)
        return;
    text_copy(s->project, sizeof(s->project), entry->project ? entry->project : "");
    text_copy(s->sandbox, sizeof(s->sandbox), entry->sandbox ? entry->sandbox : "");
}

bool audit_source_take(const struct audit_limit *l, struct audit_source *s, uint64_t now_ms)
{
    if (now_ms > s->last_ms) {
        s->credit_ms += now_ms - s->last_ms;
        s->last_ms = now_ms;
    }
    if (s->credit_ms > full_ms(&l->rate))
        s->credit_ms = full_ms(&l->rate);
    if (s->credit_ms < line_cost_ms(&l->rate))
        return false;
    s->credit_ms -= line_cost_ms(&l->rate);
    return true;
}
