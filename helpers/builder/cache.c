/* What a build begins with, and the results of earlier builds' steps: see builder_private.h. */
#include <openssl/sha.h>
#include <stdio.h>
#include <string.h>

#include "cove/text.h"
#include "helpers/builder/builder_private.h"
#include "process/manifests_live.h"

enum { SLOW_CAPTURE_MS = 3000, KEY_HEX = 40 };

static void mix(struct build_job *j, const void *bytes, size_t len)
{
    unsigned char whole[sizeof(j->key) + 32];

    memcpy(whole, j->key, sizeof(j->key));
    SHA256(bytes, len, whole + sizeof(j->key));
    SHA256(whole, sizeof(whole), j->key);
}

static void mix_str(struct build_job *j, const char *text)
{
    mix(j, text ? text : "", text ? strlen(text) + 1 : 0);
}

/* ------------------------------------------------------------------ what a build begins with */

/* Returns NAME of "TENANT/NAME". */
static const char *own_word(const struct build_job *j, const char *word)
{
    size_t len = strlen(j->build->tenant);

    return strncmp(word, j->build->tenant, len) == 0 && word[len] == '/' ? word + len + 1 : word;
}

int cache_begin(struct build_job *j, struct cove_err *e)
{
    const char *word = own_word(j, j->build->order.from_template);
    const struct manifests *all = j->manifests ? j->manifests->value : NULL;
    struct keeper_snapshot found;
    char version[32];
    int is_found;

    is_found = keeper_snapshot_find(&j->keeper, j->build->tenant, word, &found, e);
    if (is_found < 0)
        return -1;
    j->template = is_found ? manifests_find(all, found.template)
                           : manifests_resolve(all, j->build->tenant, word);
    if (!j->template)
        return cove_fail(e, COVE_NOT_FOUND, "template '%.60s' not found",
                         j->build->order.from_template);
    if (is_found)
        j->own = manifest_of_snapshot(j->builder->config.run_dir, found.id);
    mix_str(j, "1"); /* raise this number when the same steps make other files */
    mix_str(j, is_found ? found.id : j->template->name);
    snprintf(version, sizeof(version), "%llu", (unsigned long long)j->template->version);
    mix_str(j, version);
    return 0;
}

/* ------------------------------------------------------------------ results of steps */

void cache_step(struct build_job *j, const struct build_step *s)
{
    mix_str(j, s->kind);
    for (size_t i = 0; i < s->arg_count; i++)
        mix_str(j, s->args[i]);
    mix_str(j, s->files);
}

static void tag_of(const struct build_job *j, char out[2 * sizeof(j->key) + 1])
{
    text_hex(j->key, sizeof(j->key), out);
    out[KEY_HEX] = '\0';
}

void cache_image(struct build_job *j)
{
    mix(j, j->image, sizeof(j->image));
}

static void name_result(const struct build_job *j, struct keeper_capture *args)
{
    char tag[2 * sizeof(j->key) + 1];

    tag_of(j, tag);
    text_copy(args->name, sizeof(args->name), COVE_BUILD_CACHE);
    text_copy(args->tenant, sizeof(args->tenant), j->build->tenant);
    text_copy(args->id, sizeof(args->id), j->box);
    text_copy(args->tag, sizeof(args->tag), tag);
}

int cache_open(struct build_job *j, struct cove_err *e)
{
    char tag[2 * sizeof(j->key) + 1], word[COVE_TEMPLATE_MAX];

    tag_of(j, tag);
    snprintf(word, sizeof(word), COVE_BUILD_CACHE ":%s", tag);
    return job_open_box(j, word, e);
}

/* A build does not fail because there is no room for its intermediate results. Where a snapshot is a copy,
 * a build keeps only its first one. */
void cache_keep(struct build_job *j)
{
    struct keeper_capture args = { 0 };
    uint64_t began = clock_boot_ms();
    struct keeper_snapshot made;
    struct cove_err err = { 0 };

    if (j->slow_capture)
        return;
    name_result(j, &args);
    if (keeper_capture(&j->keeper, &args, &made, &err) < 0)
        log_addf(j->build, BUILD_DEBUG, j->step, "the result of this step is not cached: %s",
                 err.msg);
    j->slow_capture = clock_boot_ms() - began > SLOW_CAPTURE_MS;
}

int cache_keep_image(struct build_job *j, struct cove_err *e)
{
    struct keeper_capture args = { .flags = CAPTURE_IMAGE };
    struct keeper_snapshot made;

    name_result(j, &args);
    return keeper_capture(&j->keeper, &args, &made, e);
}
