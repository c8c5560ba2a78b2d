/* What the operator wrote and what runs: configuration, policy, keys, coved, workers, PAM. */
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/doctor.h"
#include "cove/keys.h"
#include "cove/mem.h"
#include "cove/policy.h"
#include "cove/text.h"

enum { BEAT_MAX_MS = 10000 };

static void look_config(const struct patient *p, struct diagnosis *d)
{
    if (p->config_ok) {
        found(d, FOUND_OK, "%.200s", cli_config_path());
        return;
    }
    found(d, FOUND_BROKEN, "%.200s", p->config_err.msg);
    fix(d, "mend that line; `coved --check -c %.120s` checks it", cli_config_path());
}

static void look_policy(const struct patient *p, struct diagnosis *d)
{
    AUTO_FREE char *bundle = NULL;
    struct policy *policy = NULL;
    struct cove_err e;
    size_t len;

    if (policy_bundle_read(p->config.policy_file, &bundle, &len, &e) < 0 ||
        policy_compile(bundle, len, &policy, &e) < 0) {
        found(d, FOUND_BROKEN, "%.200s", e.msg);
        fix(d, "`cove policy check` names each mistake with its line");
        return;
    }
    found(d, FOUND_OK, "%zu rules", policy_rule_count(policy));
    policy_free(policy);
}

static void look_keys(const struct patient *p, struct diagnosis *d)
{
    uint64_t now_s = clock_unix_ms() / 1000;
    size_t valid = 0, count;
    struct keys keys;
    struct cove_err e;
    struct stat st;

    if (stat(p->config.keys_file, &st) < 0) {
        found(d, FOUND_BROKEN, "%.200s is not there", p->config.keys_file);
        fix(d, "cove key create default --name first");
        return;
    }
    if (keys_load(p->config.keys_file, &keys, &e) < 0) {
        found(d, FOUND_BROKEN, "%.200s", e.msg);
        fix(d, "mend that line; until then the server uses the keys that it read before");
        return;
    }
    for (size_t i = 0; i < keys.count; i++)
        valid += !key_expired(&keys.items[i], now_s);
    count = keys.count;
    keys_done(&keys);
    found(d, valid ? FOUND_OK : FOUND_WARNING, "%zu valid, %zu expired", valid, count - valid);
    if (!valid)
        fix(d, "nobody can sign in: cove key create TENANT");
}

static void look_keeper(const struct patient *p, struct diagnosis *d)
{
    if (cli_keeper_runs(&p->config)) {
        found(d, FOUND_OK, "coved runs in %s", p->config.run_dir);
        return;
    }
    found(d, FOUND_BROKEN, "coved does not run (%s/coved.pid)", p->config.run_dir);
    if (cli_is_installed() && access("/run/systemd/system", F_OK) == 0)
        fix(d, "systemctl start cove, and see: journalctl -u cove -n 20");
    else
        fix(d, "./quickstart up in its checkout, or: coved -c %.120s", cli_config_path());
}

static void look_workers(const struct patient *p, struct diagnosis *d)
{
    uint64_t now = clock_boot_ms();
    uint32_t alive = 0, stuck = 0;
    struct cove_err e;
    struct state *s;

    if (cli_state(&p->config, &s, &e) < 0) {
        found(d, FOUND_BROKEN, "%.200s", e.msg);
        fix(d, "start coved (see coved)");
        return;
    }
    for (uint32_t i = 0; i < state_worker_count(s); i++) {
        if (!state_worker_pid(s, i))
            continue;
        alive++;
        stuck += now - state_worker_beat_ms(s, i) > BEAT_MAX_MS;
    }
    state_close(s);
    if (alive && !stuck) {
        found(d, FOUND_OK, "%u, all answering", alive);
        return;
    }
    found(d, FOUND_BROKEN, "%u workers, %u of them without a heartbeat for 10 s", alive, stuck);
    fix(d, "kill -HUP $(cat %.72s/coved.pid) starts new ones; the log says why", p->config.run_dir);
}

static void look_pam(const struct patient *p, struct diagnosis *d)
{
    (void)p;
    if (access("/etc/pam.d/cove", F_OK) == 0) {
        found(d, FOUND_OK, "/etc/pam.d/cove");
        return;
    }
    found(d, FOUND_WARNING, "/etc/pam.d/cove is not there: signing in by password is off");
    fix(d, "to sign in by password, copy %s/pam.d/cove to /etc/pam.d/", COVE_DATADIR);
}

const struct doctor_check server_checks[] = {
    { "config", look_config },
    { "policy", look_policy },
    { "keys", look_keys },
    { "coved", look_keeper },
    { "workers", look_workers },
    { "pam", look_pam },
    { NULL },
};
