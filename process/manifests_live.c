#include "process/manifests_live.h"

#include <stdio.h>
#include <stdlib.h>

#include "cove/file.h"
#include "cove/mem.h"
#include "cove/state.h"

enum { ALL_MAX = 16 * 1024 * 1024 };

static int parse(const char *text, void *ret, struct cove_err *e)
{
    return manifests_parse(text, ret, e);
}

static int load(const char *path, void **ret, struct cove_err *e)
{
    return live_load_text(path, ALL_MAX, sizeof(struct manifests), parse, ret, e);
}

struct manifest *manifest_of_snapshot(const char *run_dir, const char *snapshot)
{
    AUTO_FREE char *text = NULL;
    struct manifest *m = NULL;
    char path[160];
    size_t len;

    if (!*snapshot)
        return NULL;
    snprintf(path, sizeof(path), "%s/snapshots/%s", run_dir, snapshot);
    if (file_read(path, MANIFEST_TEXT_MAX, &text, &len, NULL) < 0 ||
        manifest_parse(snapshot, text, &m, NULL) < 0)
        return NULL;
    return m;
}

static void unload(void *value)
{
    manifests_done(value);
    free(value);
}

const struct live_kind manifests_kind = {
    .what = "manifests",
    .load = load,
    .free = unload,
    .generation = state_keys_generation, /* published together */
};
