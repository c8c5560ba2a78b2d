/*
 * The manifests of templates: how commands run in their sandboxes, and what starts in them. The keeper reads
 * the flat form that lies beside a template's list of layers (cove/manifest.h), and puts all manifests into one
 * file for workers and helpers. A template with a wrong manifest is not published, but its name and its error
 * are kept, so that a client that asks for it is told what is wrong.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "cove/log.h"
#include "cove/mem.h"
#include "sandbox/keeper/keeper_private.h"
#include "sandbox/keeper/publish.h"

/* A number that changes when a template of this name is made anew; 0: there is no such template. */
static uint64_t version_of(const struct keeper *k, const char *name)
{
    struct stat st;

    if (template_stat(k->state_dir, name, &st) < 0)
        return 0;
    return (uint64_t)st.st_ino << 32 ^ (uint64_t)st.st_ctim.tv_sec << 20 ^
           (uint64_t)st.st_ctim.tv_nsec;
}

static uint64_t made_unix_ms(const struct keeper *k, const char *name)
{
    struct stat st;

    if (template_stat(k->state_dir, name, &st) < 0)
        return 0;
    return (uint64_t)st.st_mtim.tv_sec * 1000 + (uint64_t)st.st_mtim.tv_nsec / 1000000;
}

/* Limits and network of a manifest are lines for the table that keys/ reads. Here they are only checked. */
static int check_settings(const struct manifest *m, struct cove_err *e)
{
    AUTO_BUF struct buf line = BUF(MANIFEST_TEXT_MAX + COVE_TEMPLATE_MAX);
    struct tenants parsed;

    if (!m->settings)
        return 0;
    buf_addf(&line, "%s %s", m->name, m->settings);
    if (templates_parse(line.data, &parsed, e) < 0)
        return -1;
    tenants_done(&parsed);
    return 0;
}

static struct manifest *damaged(const char *name, const struct cove_err *why)
{
    struct manifest *m = NULL;

    if (manifest_parse(name, "", &m, NULL) == 0)
        m->damaged = strdup(why->msg);
    return m;
}

static struct manifest *read_one(const struct keeper *k, const char *name)
{
    AUTO_FREE char *text = NULL;
    struct cove_err err = { 0 };
    struct manifest *m = NULL;

    if (template_read_manifest(k->state_dir, name, &text, &err) < 0 ||
        manifest_parse(name, text, &m, &err) < 0 || check_settings(m, &err) < 0) {
        manifest_free(m);
        log_error("template cannot be used", &err, LOG_S("template", name));
        m = damaged(name, &err);
    }
    if (m) {
        m->version = version_of(k, name);
        m->made_unix_ms = made_unix_ms(k, name);
    }
    return m;
}

static bool is_used(const struct keeper *k, const char *name)
{
    for (uint32_t i = 0; i < state_box_count(k->state); i++)
        if (boxes_runs(k, i) && strcmp(k->boxes[i].info.template, name) == 0)
            return true;
    return false;
}

/* The manifest of a removed template is kept while sandboxes of it live. Its version becomes that of no
 * template, so no new sandbox is made of it. */
static void keep_used(struct keeper *k, struct manifests *fresh)
{
    for (size_t i = 0; i < k->manifests.count; i++) {
        struct manifest *m = k->manifests.items[i];

        if (manifests_find(fresh, m->name) || !is_used(k, m->name))
            continue;
        m->version = 0;
        k->manifests.items[i] = k->manifests.items[--k->manifests.count];
        manifests_add(fresh, m);
        i--;
    }
}

static void read_all(struct keeper *k, struct manifests *ret)
{
    int fd = openat(k->state_dir, "templates", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    char name[COVE_TEMPLATE_MAX];
    struct manifest *m;
    struct dirent *d;

    while (dir && (d = readdir(dir)))
        if (template_name_of(d->d_name, name) && (m = read_one(k, name)))
            manifests_add(ret, m);
    if (dir)
        closedir(dir);
    else
        cove_close(fd);
}

static int publish_manifests(struct keeper *k, bool *ret_changed, struct cove_err *e)
{
    AUTO_BUF struct buf text = BUF(KEYS_FILE_MAX);

    for (size_t i = 0; i < k->manifests.count; i++) {
        const struct manifest *m = k->manifests.items[i];

        if (m->damaged)
            continue;
        buf_addf(&text, "template %s\nversion %llu\nmade_unix_ms %llu\n", m->name,
                 (unsigned long long)m->version, (unsigned long long)m->made_unix_ms);
        manifest_format(m, &text);
    }
    if (text.overflow)
        return cove_fail(e, COVE_TOO_LARGE, "all templates' manifests together");
    return publish_put(k, "manifests", text.data ? text.data : "", text.len, ret_changed, e);
}

/* After a restart nobody knows which version of its template a sandbox was made of: the version that is
 * there now is assumed. */
static void adopt_versions(struct keeper *k)
{
    for (uint32_t i = 0; i < state_box_count(k->state); i++) {
        struct box *b = &k->boxes[i];
        const struct manifest *m =
            b->template_version ? NULL : manifests_find(&k->manifests, b->info.template);

        if (m)
            b->template_version = m->version;
    }
}

int templates_publish(struct keeper *k, bool *ret_changed, struct cove_err *e)
{
    struct manifests fresh = { 0 };

    read_all(k, &fresh);
    keep_used(k, &fresh);
    manifests_done(&k->manifests);
    k->manifests = fresh;
    adopt_versions(k);
    return publish_manifests(k, ret_changed, e);
}

void templates_add_settings(const struct keeper *k, struct buf *out)
{
    for (size_t i = 0; i < k->manifests.count; i++) {
        const struct manifest *m = k->manifests.items[i];

        if (m->settings && !m->damaged)
            buf_addf(out, "%s %s\n", m->name, m->settings);
    }
}

/* ------------------------------------------------------------------ for a claim */

bool templates_is_current(const struct keeper *k, const char *name, uint64_t version)
{
    return version && version_of(k, name) == version;
}

/* The manifest of this template, if the table has it and the template was not replaced since. */
static const struct manifest *look_up(const struct keeper *k, const char *tenant, const char *name)
{
    const struct manifest *m = manifests_resolve(&k->manifests, tenant, name);

    return m && templates_is_current(k, m->name, m->version) ? m : NULL;
}

/* Has a template appeared that is not in the table yet? Asked before the table is read again, so that
 * claims for templates that do not exist cost nothing. */
static bool is_news(const struct keeper *k, const char *tenant, const char *name)
{
    char own[COVE_TEMPLATE_MAX];

    if (manifests_resolve(&k->manifests, tenant, name))
        return true; /* the template was made anew, or removed */
    if ((size_t)snprintf(own, sizeof(own), "%s/%s", tenant, name) < sizeof(own) &&
        version_of(k, own) && !manifests_find(&k->manifests, own))
        return true;
    return version_of(k, name) && !manifests_find(&k->manifests, name);
}

const struct manifest *templates_find(struct keeper *k, const char *tenant, const char *name,
                                      struct cove_err *e)
{
    const struct manifest *m = look_up(k, tenant, name);

    if (!m && is_news(k, tenant, name)) {
        publish_callers(k, NULL);
        m = look_up(k, tenant, name);
    }
    if (!m) {
        cove_fail(e, COVE_NOT_FOUND, "no template '%.60s'", name);
        return NULL;
    }
    if (m->damaged) {
        cove_fail(e, COVE_UNSUPPORTED, "template '%.60s' cannot be used: %.120s", name, m->damaged);
        return NULL;
    }
    return m;
}
