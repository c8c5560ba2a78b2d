/*
 * cove-worker: one of the pre-forked servers.
 *
 *   privilege: its own user, no capabilities, its own seccomp filter
 *   does:      FastCGI, dialects, the policy check, moving bytes
 *   never:     creates namespaces, opens a sandbox's paths itself
 *
 * Started by the keeper with argv[0] = "cove: worker N" (what ps shows) and these descriptors: 0
 * the listening FastCGI socket, 2 the log, 3 the configuration as bytes. SIGTERM: answer what is
 * running, take nothing new, exit 0. SIGINT: the same, and end streams that could go on elsewhere.
 */
#include <fcgiapp.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "cove/log.h"
#include "cove/mem.h"
#include "cove/meters.h"
#include "cove/text.h"
#include "fcgi/auth.h"
#include "fcgi/caller.h"
#include "fcgi/dialects/dialects.h"
#include "fcgi/spool.h"
#include "fcgi/threads.h"
#include "process/confine.h"
#include "process/manifests_live.h"
#include "process/policy_live.h"
#include "process/process.h"

enum {
    LISTEN_FD = 0,
    SPOOL_DIR_FD = 1, /* where spool files are made (spool.h); /dev/null afterwards */
};

static void setup_log(const struct worker *w)
{
    enum log_level level = LOG_LEVEL_INFO;
    char name[32];

    snprintf(name, sizeof(name), "worker %u", w->index);
    log_level_parse(w->config.log_level, &level, NULL);
    log_init(name, level);
}

static int setup_state(struct worker *w, struct cove_err *e)
{
    char path[256];

    snprintf(path, sizeof(path), "%s/state", w->config.run_dir);
    if (state_attach(path, &w->state, e) < 0)
        return -1;
    snprintf(path, sizeof(path), "%s/meters", w->config.run_dir);
    if (meters_attach(path, &w->meters, e) < 0)
        return -1;
    if (w->index >= state_worker_count(w->state))
        return cove_fail(e, COVE_INTERNAL, "worker %u has no slot in shared memory", w->index);
    state_worker_claim(w->state, w->index, (uint32_t)getpid());
    return 0;
}

/* The policy and the keys are there before the first request; a worker without a policy refuses to
 * run commands. */
static void setup_live(struct worker *w)
{
    unsigned char hash[KEY_HASH_BYTES];
    struct cove_err e;

    /* If the secret cannot be read, this random one is used: then no token opens anything. */
    text_random(w->token_secret, sizeof(w->token_secret));
    keys_hash("", hash); /* libcrypto sets itself up now, while it may still read its files */
    if (token_read_secret(w->config.run_dir, w->token_secret, &e) < 0)
        log_error("tokens of sandboxes open nothing: their secret cannot be read", &e);
    live_init(&w->policy, &policy_kind, w->state, w->config.run_dir, "policy");
    live_init(&w->callers.keys, &keys_kind, w->state, w->config.run_dir, "keys");
    live_init(&w->callers.tenants, &tenants_kind, w->state, w->config.run_dir, "tenants");
    live_init(&w->callers.templates, &templates_kind, w->state, w->config.run_dir, "templates");
    live_init(&w->callers.manifests, &manifests_kind, w->state, w->config.run_dir, "manifests");
}

static int setup_router(struct worker *w, struct cove_err *e)
{
    unsigned threads = (unsigned)w->config.threads, spare = (unsigned)w->config.short_threads;

    w->router.dialects = all_dialects;
    w->router.cors_origins = w->config.cors_origins;
    w->router.body_max = w->config.body_max_bytes;
    slots_init(&w->router.slots, w->state, w->index, (int)(threads - spare), (int)spare / 2);
    if (shares_init(&w->tenant_shares, threads, threads - spare, (unsigned)w->config.tenant_threads,
                    e) < 0)
        return -1;
    shares_halve_among(&w->tenant_shares, threads - spare);
    pthread_mutex_init(&w->kept.lock, NULL);
    w->bytes.max = w->config.worker_memory_bytes;
    w->tenant_shares.all = &w->bytes;
    w->tenant_shares.bytes_max = w->bytes.max / 100 * w->config.tenant_memory;
    return shares_init(&w->box_shares, threads, threads - spare,
                       (unsigned)w->config.sandbox_threads, e);
}

/*
 * Two pipes with both ends, a connection to init, one to the keeper, nginx's, and a filter make up
 * to nine descriptors per busy thread.
 */
static void setup_limits(const struct worker *w)
{
    struct rlimit limit;
    rlim_t want = 64 + KEPT_MAX + 12 * w->config.threads;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < want) {
        limit.rlim_cur = want < limit.rlim_max ? want : limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    /* with a heap for each thread, the memory of a large output would stay behind in every one of them */
    mallopt(M_ARENA_MAX, 4);
}

/* Signals come to this thread only, when it asks for them. */
static sigset_t setup_signals(void)
{
    sigset_t set;

    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigprocmask(SIG_BLOCK, &set, NULL);
    return set;
}

/* Without spool files everything works but uploads that name their sandbox last. */
static void setup_spool(const struct worker *w)
{
    AUTO_CLOSE int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    struct cove_err e;

    if (spool_init(SPOOL_DIR_FD, w->config.disk_reserve_bytes, &e) < 0)
        log_error("no spool files", &e);
    if (null >= 0)
        dup2(null, SPOOL_DIR_FD);
}

static int setup(struct worker *w, const char *index, struct cove_err *e)
{
    uint64_t n;

    if (text_parse_u64(index, &n, e) < 0 || process_start("cove-worker", &w->config, e) < 0)
        return -1;
    w->index = (uint32_t)n;
    w->listen_fd = LISTEN_FD;
    setup_log(w);
    setup_limits(w);
    if (setup_state(w, e) < 0)
        return -1;
    setup_live(w);
    setup_spool(w);
    if (setup_router(w, e) < 0)
        return -1;
    if (FCGX_Init() != 0)
        return cove_fail(e, COVE_INTERNAL, "libfcgi does not start");
    return 0;
}

static void beat_until_told(struct worker *w, const sigset_t *signals)
{
    const struct timespec second = { .tv_sec = 1 };
    int signo;

    do {
        state_worker_beat(w->state, w->index);
        kept_expire(&w->kept, clock_boot_ms());
    } while ((signo = sigtimedwait(signals, NULL, &second)) < 0);
    atomic_store(&w->leaving, signo == SIGINT);
}

/* "cove: worker 3" -> "3" */
static const char *number_of(const char *title)
{
    const char *blank = strrchr(title, ' ');

    return blank ? blank + 1 : title;
}

int main(int argc, char **argv)
{
    static struct worker worker; /* zeroed */
    struct cove_err e;
    sigset_t signals;

    log_init("worker", LOG_LEVEL_INFO);
    if (argc != 1 || strncmp(argv[0], "cove: worker ", 13) != 0) {
        fprintf(stderr, "cove-worker is started by coved, not by hand\n");
        return 2;
    }
    signals = setup_signals(); /* before libfcgi, which would take SIGTERM for itself */
    if (setup(&worker, number_of(argv[0]), &e) < 0 ||
        confine(CONFINE_WORKER, worker.config.run_dir, &e) < 0 || threads_start(&worker, &e) < 0) {
        log_error("worker cannot start", &e);
        return 1;
    }
    log_event(LOG_LEVEL_INFO, "worker ready", LOG_N("threads", worker.thread_count));
    beat_until_told(&worker, &signals);
    kept_close(&worker.kept);
    threads_drain(&worker);
    log_event(LOG_LEVEL_INFO, "worker drained");
    live_done(&worker.policy);
    live_done(&worker.callers.keys);
    live_done(&worker.callers.tenants);
    live_done(&worker.callers.templates);
    live_done(&worker.callers.manifests);
    kept_done(&worker.kept);
    shares_done(&worker.tenant_shares);
    shares_done(&worker.box_shares);
    meters_close(worker.meters);
    state_close(worker.state);
    free(worker.threads);
    free(worker.slotless);
    return 0;
}
