/* What the template of a sandbox says about commands in it: who runs them, where, with which variables,
 * by which shell; and which template a request means. */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cove/mem.h"
#include "cove/text.h"
#include "cove/which.h"
#include "fcgi/core.h"
#include "fcgi/core_snapshots.h"
#include "process/manifests_live.h"

/* ------------------------------------------------------------------ which template */

static const struct manifest *find(const struct live_ref *manifests, const char *name)
{
    return manifests ? manifests_find(manifests->value, name) : NULL;
}

bool core_template_resolve(struct core *c, const char *tenant, const char *name,
                           struct core_template *ret)
{
    struct live_ref *ref = c->manifests ? live_get(c->manifests) : NULL;
    const struct manifest *m = ref ? manifests_resolve(ref->value, tenant, name) : NULL;

    *ret = (struct core_template){ 0 };
    text_copy(ret->name, sizeof(ret->name), m ? m->name : name);
    text_copy(ret->policy, sizeof(ret->policy), m && m->policy ? m->policy : ret->name);
    text_copy(ret->seccomp, sizeof(ret->seccomp), m && m->seccomp ? m->seccomp : "");
    ret->made_unix_ms = m ? m->made_unix_ms : 0;
    live_put(ref);
    return m != NULL;
}

void core_template_begin(struct core_session *s)
{
    s->manifests = s->core->manifests ? live_get(s->core->manifests) : NULL;
    s->own_manifest = manifest_of_snapshot(s->core->config->run_dir, s->box.snapshot);
    s->manifest = s->own_manifest ? s->own_manifest : find(s->manifests, s->box.template);
}

void core_template_end(struct core_session *s)
{
    if (s->manifests)
        live_put(take_ptr(s->manifests));
    manifest_free(take_ptr(s->own_manifest));
    s->manifest = NULL;
}

int core_template_check(const struct core_session *s, struct cove_err *e)
{
    const char *asked = s->core->template;
    struct keeper_snapshot snapshot;
    struct core_template t;
    bool known;

    if (!asked)
        return 0;
    known = core_template_resolve(s->core, s->tenant, asked, &t);
    if (strcmp(t.name, s->box.template) == 0 ||
        (!known && core_snapshot_find(s->core, s->tenant, asked, &snapshot, NULL) == 0))
        return 0;
    return cove_fail(
        e, COVE_CONFLICT,
        "template: this project has a sandbox of '%.60s'; end it to get one of '%.60s'",
        s->box.template, asked);
}

/* ------------------------------------------------------------------ for a command */

const char *core_user(const struct core_session *s, const char *otherwise)
{
    return s->manifest && s->manifest->user ? s->manifest->user : otherwise;
}

const char *core_default_user(const struct core_session *s)
{
    return core_user(s, s->core->config->user);
}

const char *core_workdir(const struct core_session *s)
{
    return s->manifest ? s->manifest->workdir : NULL;
}

const char *const *core_base_env(const struct core_session *s)
{
    return s->manifest ? (const char *const *)s->manifest->env : NULL;
}

static bool asks_for_bash(const char *program)
{
    const char *slash = strrchr(program, '/');

    return strcmp(slash ? slash + 1 : program, "bash") == 0;
}

/* Is this the first command of the sandbox that asks for bash? It leaves a file there for later commands. */
static bool is_first_time(struct core_session *s)
{
    struct box_stat st;
    int fd = -1;

    if (box_file_open(&s->conn, "root", "/run/.cove-sh-for-bash", O_WRONLY | O_CREAT | O_EXCL, 0644,
                      0, &st, &fd, NULL) < 0)
        return false;
    cove_close(fd);
    return true;
}

/* Without bash, sh gets its arguments. The first such command of a sandbox prints a sentence before. */
const char *const *core_argv(struct core_session *s, const char *const *argv, const char ***ret)
{
    static const char *const telling[] = {
        "/bin/sh", "-c", "printf '%s\\n' \"$0\" >&2; exec /bin/sh \"$@\"",
        "cove: this template has no bash: sh runs what asks for bash", NULL
    };
    size_t count = 0, n = 0;

    *ret = NULL;
    if (!s->manifest || !s->manifest->no_bash || !asks_for_bash(argv[0]))
        return argv;
    while (argv[count])
        count++;
    *ret = calloc(count + ARRAY_SIZE(telling) + 1, sizeof(char *));
    if (!*ret)
        abort();
    if (is_first_time(s))
        while (telling[n]) {
            (*ret)[n] = telling[n];
            n++;
        }
    else
        (*ret)[n++] = "/bin/sh";
    memcpy(*ret + n, argv + 1, count * sizeof(char *));
    return *ret;
}

/* ------------------------------------------------------------------ services */

enum { SERVICE_WAIT_MS = 5000, SERVICE_PAUSE_MS = 20 };

/* May it run, and under which filter? The same question as for a client's command. */
static int spawn_service(struct core_session *s, const struct manifest_service *service,
                         const char *label, struct cove_err *e)
{
    const char *const argv[] = { "/bin/bash", "-c", service->command, NULL };
    struct core_spawn spawn = { .argv = argv, .label = label, .dialect = s->core->dialect };
    struct core_permit permit;
    struct box_spawned spawned;
    int rc = core_permit_one(s->core, s->core->dialect, s->tenant, s->box.id, service->command,
                             &permit, e);

    if (rc < 0)
        return -1;
    spawn.filter = &permit.filter;
    rc = permit.forbidden ? cove_fail(e, COVE_FORBIDDEN,
                                      "the policy forbids the service of port %u", service->port)
                          : core_spawn(s, &spawn, &spawned, e);
    core_permit_put(&permit);
    return rc;
}

/* Waits until something listens on the port, so that the request which comes through the gate next finds it. */
static void await_port(struct core_session *s, uint16_t port, const char *label)
{
    uint64_t until = clock_boot_ms() + SERVICE_WAIT_MS;

    while (clock_boot_ms() < until) {
        struct core_proc p;
        int sock = -1;

        if (box_port(&s->conn, port, &sock, NULL) == 0) {
            cove_close(sock);
            return;
        }
        if (s->conn.unanswered || core_proc_find(s, label, &p, NULL) < 0 || !p.running)
            return;
        poll(NULL, 0, SERVICE_PAUSE_MS);
    }
}

bool core_has_service(struct core *c, const char *template, unsigned port)
{
    struct live_ref *ref = c->manifests ? live_get(c->manifests) : NULL;
    const struct manifest *m = find(ref, template);
    const struct manifest_service *service = m ? manifest_service_at(m, port) : NULL;
    bool has = service && service->on_first_use;

    live_put(ref);
    return has;
}

int core_service_start(struct core_session *s, unsigned port, struct cove_err *e)
{
    const struct manifest_service *service =
        s->manifest ? manifest_service_at(s->manifest, port) : NULL;
    struct core_proc p;
    char label[32];

    if (!service || !service->on_first_use)
        return 0;
    snprintf(label, sizeof(label), MANIFEST_SERVICE, port);
    if (core_proc_find(s, label, &p, e) == 0 && p.running)
        return 0;
    if (spawn_service(s, service, label, e) < 0)
        return -1;
    await_port(s, service->port, label);
    return 0;
}
