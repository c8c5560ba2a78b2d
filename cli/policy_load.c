/* Finds policies and profiles: in a file, in the instance's own files, and the policy that runs. */
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include "cli/policy_cli.h"
#include "cove/buf.h"
#include "cove/mem.h"
#include "cove/seccomp_profile.h"
#include "cove/text.h"

int policy_cli_load(const char *path, struct policy **ret, struct cove_err *e)
{
    AUTO_FREE char *bundle = NULL;
    struct cove_config config;
    size_t len;

    if (!path) {
        if (cli_config(&config, e) < 0)
            return -1;
        path = config.policy_file;
    }
    if (policy_bundle_read(path, &bundle, &len, e) < 0)
        return -1;
    return policy_compile(bundle, len, ret, e);
}

static int read_whole(const char *path, struct buf *text, struct cove_err *e)
{
    FILE *f = fopen(path, "re");
    char chunk[8192];
    size_t n;

    if (!f)
        return cove_fail_errno(e, COVE_NOT_FOUND, "coved is not running here: %s", path);
    while ((n = fread(chunk, 1, sizeof(chunk), f)) > 0)
        buf_add(text, chunk, n);
    fclose(f);
    return text->overflow || !text->data ? cove_fail(e, COVE_INVALID, "%s: not a policy", path) : 0;
}

int policy_cli_running(struct policy **ret, struct cove_err *e)
{
    struct cove_config config;
    char path[320];
    struct buf text;
    int r;

    if (cli_config(&config, e) < 0)
        return -1;
    snprintf(path, sizeof(path), "%s/policy", config.run_dir);
    buf_init(&text, POLICY_BUNDLE_MAX);
    r = read_whole(path, &text, e);
    if (r == 0)
        r = policy_compile(text.data, text.len, ret, e);
    buf_done(&text);
    return r;
}

/* profiles/NAME.conf beside a policy file */
static bool beside(const char *policy_file, const char *name, char *path, size_t size)
{
    char copy[PATH_MAX];

    return text_copy(copy, sizeof(copy), policy_file) &&
           snprintf(path, size, "%s/profiles/%s.conf", dirname(copy), name) < (int)size &&
           access(path, R_OK) == 0;
}

int policy_cli_profile(const char *name, const char *policy_file, char *path, size_t size,
                       struct cove_err *e)
{
    struct cove_config config;

    if (cli_config(&config, e) < 0)
        return -1;
    if ((policy_file && beside(policy_file, name, path, size)) ||
        beside(config.policy_file, name, path, size))
        return 0;
    return seccomp_profile_find(name, config.profile_dir, path, size, e);
}
