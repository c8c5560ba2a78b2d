/*
 * The serving threads.
 *
 * Workers share one listening socket, where the kernel wakes the thread that has waited longest. If all threads
 * waited there, connections would be dealt out thread by thread. So only AT_THE_DOOR threads of each worker wait in
 * accept(), "at the door"; the others wait for their turn, and connections are dealt out among workers. A thread that
 * leaves the door with a connection calls the next one only if nobody else is there: one client after another is then
 * served by the same few threads, whose memory is still in the cpu's cache.
 *
 * A worker begins with THREADS_AT_FIRST threads. When its last thread has left the door and none waits for its turn,
 * another is started, until there are `threads`.
 *
 * A worker whose long slots are all taken (slots.h) leaves new connections to other workers. When no worker has a slot
 * left, the threads of all workers wait at the door again, for short requests; a thread of its own calls them back as
 * soon as a slot is free.
 *
 * nginx opens a connection for each request, and each connection is closed after its reply, so no thread is ever held
 * by an idle connection.
 *
 * We accept ourselves and hand the connection to libfcgi as one that is "kept": its own accept loop
 * could only be interrupted by a signal that may just as well hit the read of a request, which it
 * takes for a broken connection. Here SIGUSR1 is blocked except around accept(), and accept() alone
 * is what it interrupts.
 */
#include "fcgi/threads.h"

#include <errno.h>
#include <fcgiapp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cove/log.h"
#include "cove/mem.h"
#include "fcgi/core.h"
#include "fcgi/serve.h"

enum {
    STACK_BYTES = 256 * 1024, /* the largest frame is run.c's 64 KiB of output */
    WAKE_EVERY_US = 20000,
    /* after EMFILE and similar errors: trying again at once would fail as well */
    ACCEPT_PAUSE_US = 50000,
    RECALL_EVERY_MS = 1, /* a signal that comes just before accept() is lost, and sent again */
    RECALL_IDLE_MS = 1000,
    AT_THE_DOOR = 2,
    THREADS_AT_FIRST = 32,
    LINKED_THREADS =
        64, /* so many keep their connection to the keeper, which has places for 8192 */
};

struct thread_args {
    struct worker *worker;
    uint32_t index;
};

static void start_another_locked(struct worker *w);

static void nothing(int signo)
{
    (void)signo;
}

static sigset_t wake_signals(void)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    return set;
}

/* Returns a connection, or -1 when a signal has called the thread back. */
static int accept_any(struct worker *w)
{
    sigset_t wake = wake_signals();
    int fd, saved;

    pthread_sigmask(SIG_UNBLOCK, &wake, NULL);
    fd = accept4(w->listen_fd, NULL, NULL, SOCK_CLOEXEC);
    saved = errno;
    pthread_sigmask(SIG_BLOCK, &wake, NULL);
    if (fd < 0 && saved != EINTR && saved != ECONNABORTED)
        usleep(ACCEPT_PAUSE_US);
    return fd;
}

/* No worker has room for a long request, but this one has threads for short ones. */
static int accept_slotless(struct worker *w, uint32_t thread)
{
    int fd = -1;

    atomic_store(&w->slotless[thread], true);
    if (!slots_anywhere(&w->router.slots)) /* recall_main() sees the flag, or we see the room */
        fd = accept_any(w);
    atomic_store(&w->slotless[thread], false);
    return fd;
}

static int accept_one(struct worker *w, uint32_t thread, bool *ret_promised)
{
    struct slots *slots = &w->router.slots;
    enum slot_answer answer = slots_ask(slots);
    int fd;

    *ret_promised = answer == SLOT_PROMISED;
    if (answer == SLOT_LATER)
        return -1;
    fd = *ret_promised ? accept_any(w) : accept_slotless(w, thread);
    if (fd < 0)
        slots_withdraw(slots, ret_promised);
    return fd;
}

static size_t interrupt_slotless(struct worker *w)
{
    size_t interrupted = 0, count = atomic_load(&w->thread_count);

    for (size_t i = 0; i < count; i++)
        if (atomic_load(&w->slotless[i])) {
            pthread_kill(w->threads[i], SIGUSR1);
            interrupted++;
        }
    return interrupted;
}

static void *recall_main(void *arg)
{
    struct worker *w = arg;
    struct slots *slots = &w->router.slots;

    while (!atomic_load(&w->draining)) {
        uint32_t turn = slots_turn(slots);
        bool call = slots_anywhere(slots) && interrupt_slotless(w) > 0;

        slots_wait(slots, turn, call ? RECALL_EVERY_MS : RECALL_IDLE_MS);
    }
    return NULL;
}

static void serve_connection(struct worker *w, struct core *core, int fd, bool promised)
{
    FCGX_Request fcgi;

    FCGX_InitRequest(&fcgi, w->listen_fd, FCGI_FAIL_ACCEPT_ON_INTR);
    fcgi.ipcFd = fd;
    /* FCGX_Accept_r() then uses this connection, as if it had been kept after an earlier request */
    fcgi.keepConnection = 1;
    if (FCGX_Accept_r(&fcgi) == 0)
        serve_request(core, &w->router, &w->callers, &fcgi, promised);
    else
        slots_withdraw(&w->router.slots, &promised);
    FCGX_Free(&fcgi, 1);
}

/* Waits until this thread may wait in accept(). When the worker drains, every thread may. */
static void door_enter(struct worker *w)
{
    pthread_mutex_lock(&w->door.lock);
    w->door.waiting++;
    while (w->door.there >= AT_THE_DOOR && !atomic_load(&w->draining))
        pthread_cond_wait(&w->door.next, &w->door.lock);
    w->door.waiting--;
    w->door.there++;
    pthread_mutex_unlock(&w->door.lock);
}

/* for_long: the thread has a connection to serve. If not, it comes back at once. */
static void door_leave(struct worker *w, bool for_long)
{
    pthread_mutex_lock(&w->door.lock);
    if (--w->door.there == 0 && w->door.waiting > 0)
        pthread_cond_signal(&w->door.next);
    else if (w->door.there == 0 && for_long)
        start_another_locked(w);
    pthread_mutex_unlock(&w->door.lock);
}

static void door_open_wide(struct worker *w)
{
    pthread_mutex_lock(&w->door.lock);
    pthread_cond_broadcast(&w->door.next);
    pthread_mutex_unlock(&w->door.lock);
}

static void *thread_main(void *arg)
{
    struct thread_args *args = arg;
    struct worker *w = args->worker;
    uint32_t index = args->index;
    struct core core = {
        .config = &w->config,
        .state = w->state,
        .worker = w->index,
        .task = state_task(w->state, w->index, index),
        .policy = &w->policy,
        .manifests = &w->callers.manifests,
        .meters = w->meters,
        .token_secret = w->token_secret,
        .tenant_shares = &w->tenant_shares,
        .box_shares = &w->box_shares,
        .kept = &w->kept,
        .keeper = KEEPER_LINK(w->config.run_dir),
        .leaving = &w->leaving,
    };

    free(args);
    core.worker_bytes = core.bytes = &w->bytes;
    while (!atomic_load(&w->draining)) {
        bool promised = false;
        int fd = -1;

        door_enter(w);
        if (!atomic_load(&w->draining))
            fd = accept_one(w, index, &promised);
        door_leave(w, fd >= 0);
        if (fd >= 0)
            serve_connection(w, &core, fd, promised);
        if (index >= LINKED_THREADS)
            keeper_link_done(&core.keeper);
    }
    core_done(&core);
    atomic_fetch_sub(&w->running, 1);
    return NULL;
}

static int start_one(struct worker *w, struct cove_err *e)
{
    struct thread_args *args = malloc(sizeof(*args));
    size_t index = atomic_load(&w->thread_count);

    if (!args)
        return cove_fail(e, COVE_INTERNAL, "out of memory");
    *args = (struct thread_args){ .worker = w, .index = (uint32_t)index };
    atomic_fetch_add(&w->running, 1);
    errno = pthread_create(&w->threads[index], &w->thread_kind, thread_main, args);
    if (errno) {
        atomic_fetch_sub(&w->running, 1);
        free(args);
        return cove_fail_errno(e, COVE_INTERNAL, "thread %zu", index);
    }
    atomic_store(&w->thread_count, index + 1); /* from now on it may be sent signals */
    return 0;
}

/* If no thread can be started, nobody is at the door until one of the others comes back. */
static void start_another_locked(struct worker *w)
{
    struct cove_err e;

    if (!atomic_load(&w->draining) && atomic_load(&w->thread_count) < w->config.threads &&
        start_one(w, &e) < 0)
        log_error("no more threads for this worker", &e);
}

static int start_recalling(struct worker *w, struct cove_err *e)
{
    errno = pthread_create(&w->recaller, &w->thread_kind, recall_main, w);
    return errno ? cove_fail_errno(e, COVE_INTERNAL, "the thread that recalls others") : 0;
}

int threads_start(struct worker *w, struct cove_err *e)
{
    struct sigaction action = { .sa_handler = nothing }; /* no SA_RESTART: accept() must return */
    sigset_t wake = wake_signals();
    int rc = 0;

    sigaction(SIGUSR1, &action, NULL);
    pthread_sigmask(SIG_BLOCK, &wake, NULL);
    w->threads = calloc(w->config.threads, sizeof(*w->threads));
    w->slotless = calloc(w->config.threads, sizeof(*w->slotless));
    if (!w->threads || !w->slotless)
        return cove_fail(e, COVE_INTERNAL, "out of memory");
    pthread_mutex_init(&w->door.lock, NULL);
    pthread_cond_init(&w->door.next, NULL);
    pthread_attr_init(&w->thread_kind);
    pthread_attr_setstacksize(&w->thread_kind, STACK_BYTES);
    pthread_mutex_lock(&w->door.lock); /* threads that were just started may want to start others */
    while (rc == 0 && w->thread_count < w->config.threads && w->thread_count < THREADS_AT_FIRST)
        rc = start_one(w, e);
    pthread_mutex_unlock(&w->door.lock);
    return rc < 0 ? -1 : start_recalling(w, e);
}

/* Between two rounds of signals: SIGINT after SIGTERM means that time has run out for streams. */
static void pause_draining(struct worker *w)
{
    const struct timespec pause = { .tv_nsec = WAKE_EVERY_US * 1000 };
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    if (sigtimedwait(&set, NULL, &pause) == SIGINT)
        atomic_store(&w->leaving, true);
}

/* A signal is lost on a thread that is between looking at `draining` and accept(), so they are
 * repeated. */
void threads_drain(struct worker *w)
{
    atomic_store(&w->draining, true);
    slots_close(&w->router.slots);
    door_open_wide(w);
    while (atomic_load(&w->running) > 0) {
        for (size_t i = 0; i < w->thread_count; i++)
            pthread_kill(w->threads[i], SIGUSR1);
        state_worker_beat(w->state, w->index);
        pause_draining(w);
    }
    for (size_t i = 0; i < w->thread_count; i++)
        pthread_join(w->threads[i], NULL);
    pthread_join(w->recaller, NULL);
    pthread_attr_destroy(&w->thread_kind);
    pthread_cond_destroy(&w->door.next);
    pthread_mutex_destroy(&w->door.lock);
}
