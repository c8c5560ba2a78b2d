/* One build, from its order to a template: the life of a thread. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cove/dialect.h"
#include "cove/log.h"
#include "cove/mem.h"
#include "cove/text.h"
#include "helpers/builder/builder_private.h"
#include "process/manifests_live.h"

enum {
    READY_MS = MANIFEST_READY_MAX_MS, /* how long a template's start and ready commands may take */
    SPARE_MS = 30 * 60000, /* a build's sandbox lives this much longer than build_timeout */
};

#define DEFAULT_USER    "user"
#define DEFAULT_WORKDIR "/home/user"
#define FETCH_TEMPLATE  "base" /* its sandboxes fetch images with the host's skopeo and tar */

int job_fail(struct build_job *j, const char *fmt, ...)
{
    char text[BUILD_MESSAGE_MAX];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    text_copy(j->reason, sizeof(j->reason), text);
    return -1;
}

int job_fail_err(struct build_job *j, const struct cove_err *e)
{
    return job_fail(j, "%s", e->msg);
}

/* ------------------------------------------------------------------ the build's sandbox */

static void project_of(const struct build_job *j, char out[COVE_PROJECT_MAX])
{
    snprintf(out, COVE_PROJECT_MAX, BUILD_PROJECT "%s", j->build->info.id);
}

static void job_close_box(struct build_job *j)
{
    struct keeper_retire args = { 0 };
    struct cove_err err = { 0 };

    box_close(&j->conn);
    j->conn = (struct box_conn){ .sock = -1 };
    if (!j->box[0])
        return;
    text_copy(args.tenant, sizeof(args.tenant), j->build->tenant);
    text_copy(args.id, sizeof(args.id), j->box);
    if (keeper_retire(&j->keeper, &args, &err) < 0)
        log_error("the sandbox of a build did not end", &err, LOG_S("sandbox", j->box));
    j->box[0] = '\0';
}

int job_open_box(struct build_job *j, const char *word, struct cove_err *e)
{
    uint64_t most = j->builder->config.build_timeout_ms + SPARE_MS;
    struct keeper_claim args = { .dialect = j->build->dialect,
                                 .key_sandboxes = j->build->key_sandboxes,
                                 .reuse_ms = most,
                                 .lifetime_ms = most };
    struct keeper_box box;

    job_close_box(j);
    text_copy(args.tenant, sizeof(args.tenant), j->build->tenant);
    text_copy(args.key, sizeof(args.key), j->build->key);
    project_of(j, args.project);
    if (!text_copy(args.template, sizeof(args.template), word))
        return cove_fail(e, COVE_NOT_FOUND, "template '%.60s' not found", word);
    if (keeper_claim(&j->keeper, &args, NULL, 0, &box, e) < 0)
        return -1;
    text_copy(j->box, sizeof(j->box), box.id);
    return box_open(j->builder->config.run_dir, j->box, &j->conn, e);
}

/* ------------------------------------------------------------------ what a build begins with */

static const struct manifest *parent(const struct build_job *j)
{
    return j->own ? j->own : j->template;
}

static int take_over(struct build_job *j)
{
    const struct manifest *m = parent(j);

    text_copy(j->user, sizeof(j->user), m->user ? m->user : DEFAULT_USER);
    text_copy(j->workdir, sizeof(j->workdir), m->workdir ? m->workdir : DEFAULT_WORKDIR);
    for (size_t i = 0; i < m->env_count; i++)
        if (!(j->env[j->env_count++] = strdup(m->env[i])))
            abort();
    return 0;
}

/* The template that build_images names for this image. NULL: none, so the image must be fetched. */
static char *template_of_image(const struct build_job *j, const char *image)
{
    char text[sizeof(j->builder->config.build_images)], *rest = text, *pair;
    size_t len = strlen(image);

    text_copy(text, sizeof(text), j->builder->config.build_images);
    if (strncmp(image, "docker.io/", 10) == 0)
        image += 10, len -= 10;
    if (len > 7 && strcmp(image + len - 7, ":latest") == 0)
        len -= 7;
    while ((pair = strsep(&rest, " ")))
        if (strncmp(pair, image, len) == 0 && pair[len] == '=' && pair[len + 1])
            return strdup(pair + len + 1);
    return NULL;
}

static int begin(struct build_job *j)
{
    struct build_order *o = &j->build->order;
    struct cove_err err = { 0 };

    if (o->from_image) {
        j->mapped = template_of_image(j, o->from_image);
        j->fetches = !j->mapped;
        o->from_template = j->mapped ? j->mapped : FETCH_TEMPLATE;
    }
    if (!j->policies)
        return job_fail(j, "no policy is loaded, so nothing may run");
    if (cache_begin(j, &err) < 0)
        return job_fail_err(j, &err);
    const struct policy_query q = { .dialect = dialect_name(j->build->dialect),
                                    .tenant = j->build->tenant,
                                    .template = j->template->policy ? j->template->policy
                                                                    : j->template->name,
                                    .profile = j->template->seccomp };

    if (policy_set_filter(j->policies->value, &q, &j->filter, &err) < 0)
        return job_fail_err(j, &err);
    if (j->fetches && image_inspect(j) < 0)
        return -1;
    return take_over(j);
}

/* ------------------------------------------------------------------ steps */

static void announce(struct build_job *j, const struct build_step *s, size_t i, bool cached)
{
    char text[BUILD_MESSAGE_MAX - 64];

    step_describe(s, text, sizeof(text));
    log_addf(j->build, BUILD_INFO, j->step, "%s[builder %zu/%zu] %s", cached ? "CACHED " : "",
             i + 1, j->build->order.step_count, text);
}

static void set_step(struct build_job *j, size_t i)
{
    snprintf(j->step, sizeof(j->step), "%u", (unsigned)(i + 1));
}

/* How many steps, from the first one on, may come from the cache. */
static size_t cacheable(const struct build_order *o)
{
    size_t n = 0;

    while (!o->force && n < o->step_count && !o->steps[n].again)
        n++;
    return n;
}

/* Opens a sandbox in which the first steps are done already, as far as the cache has results of earlier
 * builds. *ret is the number of these steps. */
static int open_cached(struct build_job *j, size_t *ret)
{
    const struct build_order *o = &j->build->order;
    unsigned char begun[sizeof(j->key)];
    struct cove_err err = { 0 };

    memcpy(begun, j->key, sizeof(begun));
    for (size_t n = cacheable(o); n > 0; n--) {
        if (!step_changes_files(&o->steps[n - 1]))
            continue;
        memcpy(j->key, begun, sizeof(begun));
        for (size_t i = 0; i < n; i++)
            cache_step(j, &o->steps[i]);
        if (cache_open(j, &err) == 0) {
            *ret = n;
            return 0;
        }
        if (err.code != COVE_NOT_FOUND)
            return job_fail_err(j, &err);
    }
    memcpy(j->key, begun, sizeof(begun));
    *ret = 0;
    if (j->fetches)
        return image_open(j);
    return job_open_box(j, o->from_template, &err) < 0 ? job_fail_err(j, &err) : 0;
}

static int run_steps(struct build_job *j, size_t done)
{
    const struct build_order *o = &j->build->order;

    for (size_t i = 0; i < o->step_count; i++) {
        const struct build_step *s = &o->steps[i];

        set_step(j, i);
        announce(j, s, i, i < done);
        if (i >= done) {
            cache_step(j, s);
            if (step_run(j, s) < 0)
                return -1;
        }
        if (step_note(j, s) < 0)
            return -1;
        if (i >= done && step_changes_files(s))
            cache_keep(j);
        if (build_is_dropped(j->build))
            return job_fail(j, "the template was deleted");
    }
    return 0;
}

/* ------------------------------------------------------------------ the result */

static int write_manifest(const struct build_job *j, struct buf *out, struct cove_err *e)
{
    const struct build_order *o = &j->build->order;
    struct manifest m = *parent(j), *parsed;

    m.user = j->user;
    m.workdir = j->workdir;
    m.start = o->start && *o->start ? o->start : m.start;
    m.ready = o->ready && *o->ready ? o->ready : m.ready;
    m.ready_timeout_ms = READY_MS;
    m.cpus = j->build->cpus ? j->build->cpus : m.cpus;
    m.memory_bytes = j->build->memory_bytes ? j->build->memory_bytes : m.memory_bytes;
    m.settings = m.policy = m.seccomp = m.tenants = NULL; /* those of the template below apply */
    m.env_count = j->env_count;
    for (size_t i = 0; i <= j->env_count; i++)
        m.env[i] = j->env[i];
    manifest_format(&m, out);
    if (out->overflow)
        return cove_fail(e, COVE_TOO_LARGE, "variables and commands of this template together");
    if (manifest_parse("built", out->data, &parsed, e) < 0)
        return -1;
    manifest_free(parsed);
    return 0;
}

static int capture(struct build_job *j, struct keeper_snapshot *ret, struct cove_err *e)
{
    struct keeper_capture args = { .flags = CAPTURE_PASSING };
    AUTO_BUF struct buf manifest = BUF(24 * 1024);

    text_copy(args.tenant, sizeof(args.tenant), j->build->tenant);
    text_copy(args.id, sizeof(args.id), j->box);
    if (write_manifest(j, &manifest, e) < 0)
        return -1;
    return keeper_capture_as(&j->keeper, &args, manifest.data, ret, e);
}

int build_give_tags(struct keeper_link *keeper, const struct build *b, const char *snapshot,
                    struct cove_err *e)
{
    char tags[COVE_TAGS_MAX], *rest = tags, *tag;
    struct keeper_snapshot_tag args = { 0 };
    struct keeper_snapshot tagged;

    text_copy(tags, sizeof(tags), b->info.tags);
    text_copy(args.tenant, sizeof(args.tenant), b->tenant);
    text_copy(args.which, sizeof(args.which), snapshot);
    text_copy(args.name, sizeof(args.name), b->info.name);
    text_copy(args.build, sizeof(args.build), b->info.id);
    while ((tag = strsep(&rest, " "))) {
        text_copy(args.tag, sizeof(args.tag), tag);
        if (*tag && keeper_snapshot_tag(keeper, &args, &tagged, e) < 0)
            return -1;
    }
    return 0;
}

/* The template gets its name only after a sandbox was made of it and its start and ready commands went well. */
static int finish(struct build_job *j)
{
    const struct build_order *o = &j->build->order;
    struct keeper_snapshot made;
    struct cove_err err = { 0 };

    text_copy(j->step, sizeof(j->step), "finalize");
    log_addf(j->build, BUILD_INFO, j->step, "[finalize] saving the template");
    if (capture(j, &made, &err) < 0)
        return job_fail_err(j, &err);
    if (o->start || o->ready || parent(j)->start || parent(j)->ready) {
        log_addf(j->build, BUILD_INFO, j->step,
                 "[finalize] start command: %.200s, ready command: %.200s",
                 o->start ? o->start : "-", o->ready ? o->ready : "-");
        if (job_open_box(j, made.id, &err) < 0)
            return job_fail_err(j, &err);
    }
    job_close_box(j);
    if (build_is_dropped(j->build))
        return job_fail(j, "the template was deleted");
    if (build_give_tags(&j->keeper, j->build, made.id, &err) < 0)
        return job_fail_err(j, &err);
    log_addf(j->build, BUILD_INFO, j->step, "Build finished");
    return 0;
}

static int build(struct build_job *j)
{
    size_t done = 0;

    log_addf(j->build, BUILD_INFO, j->step, "[base] FROM %s",
             j->build->order.from_image ? j->build->order.from_image
                                        : j->build->order.from_template);
    if (begin(j) < 0)
        return -1;
    if (open_cached(j, &done) < 0 || (j->fetches && image_find_shell(j) < 0))
        return -1;
    return run_steps(j, done) < 0 ? -1 : finish(j);
}

/* ------------------------------------------------------------------ the thread */

static void release(struct build_job *j)
{
    job_close_box(j);
    keeper_link_done(&j->keeper);
    live_put(j->policies);
    live_put(j->manifests);
    manifest_free(j->own);
    for (size_t i = 0; i < j->env_count; i++)
        free(j->env[i]);
    free(j->mapped);
}

void *build_run(void *arg)
{
    struct build *b = arg;
    struct builder *builder = b->builder;
    struct build_job *j = calloc(1, sizeof(*j));
    int rc;

    if (!j)
        abort();
    *j = (struct build_job){ .builder = builder,
                             .build = b,
                             .keeper = KEEPER_LINK(builder->config.run_dir),
                             .conn.sock = -1,
                             .filter.fd = -1,
                             .step = "base",
                             .policies = live_get(&builder->policy),
                             .manifests = live_get(&builder->manifests) };
    rc = build(j);
    release(j);
    if (rc < 0)
        log_addf(b, BUILD_ERROR, j->step, "Build failed: %s", j->reason);
    build_end(b, j->step, rc < 0 ? j->reason : NULL);
    free(j);
    return NULL;
}
