/* What sections say beside rules: of several sections that hold for a query, the last one in the file
 * that says something counts. */
#include <stdio.h>

#include "cove/mem.h"
#include "policy/deny/policy_private.h"

#define DEFAULT_PROFILE    "default"
#define DEFAULT_TEXT_BYTES (2 * 1024 * 1024)
#define DEFAULT_TIME_MS    500

static bool says_exec_time(const struct section *s)
{
    return s->exec_time >= 0;
}

static bool says_audit(const struct section *s)
{
    return s->audit_all >= 0;
}

static bool says_profile(const struct section *s)
{
    return s->profile != NULL;
}

static bool says_max_text(const struct section *s)
{
    return s->max_text > 0;
}

static bool says_max_time(const struct section *s)
{
    return s->max_time_ms > 0;
}

/* Finds the last section that applies and has this setting; NULL: none has it. */
static const struct section *last_that(bool (*says)(const struct section *s),
                                       const struct policy *p, const struct policy_query *q)
{
    for (size_t i = p->section_count; i-- > 0;) {
        if (says(&p->sections[i]) && scope_holds(&p->sections[i].scope, q))
            return &p->sections[i];
    }
    return NULL;
}

bool policy_exec_time(const struct policy *p, const struct policy_query *q)
{
    const struct section *s = last_that(says_exec_time, p, q);

    return s && s->exec_time;
}

bool policy_audit_all(const struct policy *p, const struct policy_query *q)
{
    const struct section *s = last_that(says_audit, p, q);

    return s && s->audit_all;
}

const char *policy_profile(const struct policy *p, const struct policy_query *q)
{
    const struct section *s = last_that(says_profile, p, q);

    return s ? s->profile : DEFAULT_PROFILE;
}

void policy_get_limits(const struct policy *p, const struct policy_query *q,
                       struct policy_limits *ret)
{
    const struct section *text = last_that(says_max_text, p, q);
    const struct section *time = last_that(says_max_time, p, q);

    ret->text_bytes = text ? text->max_text : DEFAULT_TEXT_BYTES;
    ret->time_ms = time ? time->max_time_ms : DEFAULT_TIME_MS;
}

bool policy_choice_get(const struct policy *p, size_t i, struct policy_choice *ret)
{
    for (size_t k = 0; k < p->section_count; k++) {
        const struct section *s = &p->sections[k];

        if (!s->profile || i--)
            continue;
        *ret = (struct policy_choice){ s->profile, s->profile_file, s->profile_line };
        return true;
    }
    return false;
}

/* --- for people ------------------------------------------------------------------------------- */

static void show_exec_time(const struct section *s, char *out, size_t size)
{
    snprintf(out, size, "exec-time = %s", s->exec_time ? "on" : "off");
}

static void show_audit(const struct section *s, char *out, size_t size)
{
    snprintf(out, size, "audit = %s", s->audit_all ? "all" : "refusals");
}

static void show_profile(const struct section *s, char *out, size_t size)
{
    snprintf(out, size, "seccomp = %s", s->profile);
}

static void show_max_text(const struct section *s, char *out, size_t size)
{
    snprintf(out, size, "max-text = %llu", (unsigned long long)s->max_text);
}

static void show_max_time(const struct section *s, char *out, size_t size)
{
    snprintf(out, size, "max-time = %llums", (unsigned long long)s->max_time_ms);
}

static const struct {
    bool (*says)(const struct section *s);
    void (*show)(const struct section *s, char *out, size_t size);
} settings[] = {
    { says_exec_time, show_exec_time }, { says_audit, show_audit },
    { says_profile, show_profile },     { says_max_text, show_max_text },
    { says_max_time, show_max_time },
};

/* One place per section and setting, of which some are empty. */
size_t policy_setting_count(const struct policy *p)
{
    return ARRAY_SIZE(settings) * p->section_count;
}

bool policy_setting_get(const struct policy *p, size_t i, char *out, size_t size)
{
    const struct section *s = &p->sections[i / ARRAY_SIZE(settings)];
    size_t which = i % ARRAY_SIZE(settings);
    char text[128];

    if (!settings[which].says(s))
        return false;
    settings[which].show(s, text, sizeof(text));
    snprintf(out, size, "[%s] %s", s->scope.head, text);
    return true;
}
