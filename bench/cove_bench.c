/*
 * cove-bench: what a command costs, measured side by side in one run, because absolute figures of a
 * shared machine mean little. Every round takes one sample of each contestant, so that noise hits
 * all of them.
 *
 *   cove-bench latency  RUN_DIR HOST PORT KEY ROUNDS   posix_spawn, bubblewrap, init socket, nginx:
 * serial cove-bench create   HOST PORT KEY ROUNDS NAME      first command of new projects, serial
 *   cove-bench load     HOST PORT KEY CLIENTS SECONDS  commands in existing sandboxes, many at once
 *   cove-bench exec     RUN_DIR HOST PORT KEY ROUNDS   what exec-time policy adds to each execve in
 * a sandbox
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cove/client.h"
#include "cove/dialect.h"
#include "cove/json.h"
#include "cove/mem.h"

static double now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void die(const char *what)
{
    fprintf(stderr, "cove-bench: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* ------------------------------------------------------------------ samples */

struct samples {
    const char *name;
    double *ms;
    size_t count;
};

static void add(struct samples *s, double ms)
{
    s->ms = realloc(s->ms, (s->count + 1) * sizeof(double));
    if (!s->ms)
        die("memory");
    s->ms[s->count++] = ms;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static double quantile(struct samples *s, double q)
{
    if (s->count == 0)
        return 0;
    qsort(s->ms, s->count, sizeof(double), by_value);
    return s->ms[(size_t)(q * (double)(s->count - 1))];
}

static void print_row(struct samples *s, double baseline)
{
    double p50 = quantile(s, 0.5);

    printf("| %s | %.2f | %.2f | %.2f | %zu |\n", s->name, p50, quantile(s, 0.99),
           baseline > 0 ? p50 / baseline : 1.0, s->count);
}

/* ------------------------------------------------------------------ contestants */

static double run_program(char *const argv[])
{
    posix_spawn_file_actions_t actions;
    double began = now_ms();
    pid_t pid;
    int status;

    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    if (posix_spawnp(&pid, argv[0], &actions, NULL, argv, environ) != 0)
        die(argv[0]);
    posix_spawn_file_actions_destroy(&actions);
    if (waitpid(pid, &status, 0) < 0 || status != 0) {
        fprintf(stderr, "cove-bench: %s failed (status %d)\n", argv[0], status);
        exit(1);
    }
    return now_ms() - began;
}

static double run_bare(void)
{
    char *const argv[] = { "bash", "-c", "true", NULL };

    return run_program(argv);
}

static double run_bwrap(void)
{
    char *const argv[] = { "bwrap",
                           "--unshare-all",
                           "--die-with-parent",
                           "--ro-bind",
                           "/usr",
                           "/usr",
                           "--symlink",
                           "usr/bin",
                           "/bin",
                           "--symlink",
                           "usr/lib",
                           "/lib",
                           "--symlink",
                           "usr/lib64",
                           "/lib64",
                           "--proc",
                           "/proc",
                           "--dev",
                           "/dev",
                           "--tmpfs",
                           "/tmp",
                           "bash",
                           "-c",
                           "true",
                           NULL };

    return run_program(argv);
}

static int open_filter(const char *run_dir, const char *name)
{
    char path[256];
    int fd;

    snprintf(path, sizeof(path), "%s/profiles/%s", run_dir, name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        die(path);
    return fd;
}

/* At the init socket, as a worker asks for it: what remains when HTTP, JSON, policy and
 * authentication are taken away. */
static double run_socket(const char *run_dir, const char *id, const char *script, int filter,
                         bool exec_time)
{
    const char *const argv[] = { "/bin/bash", "-c", script, NULL };
    struct spawn_args args = { .argv = argv,
                               .flags = SPAWN_TIED | (exec_time ? SPAWN_NOTIFY : 0),
                               .context = DIALECT_EXECUTE,
                               .stdin_fd = -1,
                               .stdout_fd = -1,
                               .stderr_fd = -1,
                               .filter_fd = filter };
    struct box_spawned spawned;
    struct cove_err e = { 0 };
    struct box_event ev;
    struct box_conn c;
    double began = now_ms();

    if (box_open(run_dir, id, &c, &e) < 0 || box_spawn(&c, &args, &spawned, NULL, &e) < 0 ||
        box_next_event(&c, 60000, &ev, &e) != 1 || ev.kind != BOX_EVENT_EXITED) {
        fprintf(stderr, "cove-bench: at the socket: %s\n", e.msg);
        exit(1);
    }
    box_close(&c);
    return now_ms() - began;
}

/* ------------------------------------------------------------------ HTTP, as little as needed */

struct http {
    const char *host, *port, *key;
    int sock;
    char reply[65536];
};

static void http_connect(struct http *h)
{
    struct sockaddr_in addr = { .sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(h->port)) };
    int one = 1;

    inet_pton(AF_INET, h->host, &addr.sin_addr);
    h->sock = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (h->sock < 0 || connect(h->sock, (struct sockaddr *)&addr, sizeof(addr)) < 0)
        die("connecting to nginx");
    setsockopt(h->sock, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

/* Reads one reply with a Content-Length; returns its status. */
static int http_reply(struct http *h)
{
    size_t len = 0, want = 0;

    for (;;) {
        ssize_t n = read(h->sock, h->reply + len, sizeof(h->reply) - 1 - len);
        char *body, *field;

        if (n <= 0)
            die("reading a reply");
        len += (size_t)n;
        h->reply[len] = '\0';
        body = strstr(h->reply, "\r\n\r\n");
        field = strcasestr(h->reply, "\r\ncontent-length:");
        if (!body)
            continue;
        if (field)
            want = (size_t)(body + 4 - h->reply) + strtoul(field + 17, NULL, 10);
        if (len >= want)
            return atoi(h->reply + 9);
    }
}

static double run_http(struct http *h, const char *route, const char *project)
{
    char request[1024];
    AUTO_BUF struct buf body = BUF(512);
    double began = now_ms();
    struct json_writer w;
    int len, status;

    json_writer_init(&w, &body);
    json_open(&w, NULL, '{');
    json_put_str(&w, "projectId", project);
    json_open(&w, "commands", '[');
    json_put_str(&w, NULL, "true");
    json_close(&w, ']');
    json_close(&w, '}');
    len = snprintf(request, sizeof(request),
                   "POST /%s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n"
                   "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
                   route, h->host, h->key, body.len, body.data);
    if (write(h->sock, request, (size_t)len) != len)
        die("sending a request");
    status = http_reply(h);
    if (status != 200) {
        fprintf(stderr, "cove-bench: status %d: %s\n", status, h->reply);
        exit(1);
    }
    began = now_ms() - began;
    if (strcasestr(h->reply,
                   "\r\nconnection: close")) { /* nginx ends a connection after 1,000 requests */
        close(h->sock);
        http_connect(h);
    }
    return began;
}

/* ------------------------------------------------------------------ the three benches */

static void find_id(const struct http *h, char id[21])
{
    const char *at = strstr(h->reply, "\"sandbox_");

    if (!at)
        die("no sandboxId in the reply");
    snprintf(id, 21, "%.20s", at + 9);
}

/* Namespaces are taken down after their last process, in the background: nobody pays for the one
 * before. */
static void settle(void)
{
    poll(NULL, 0, 20);
}

/* The same without pauses, so that no process on the way has gone cold and no cpu has gone to sleep. */
static void bench_back_to_back(struct http *h, int rounds)
{
    struct samples bare = { .name = "(a) the same as above, without pauses" };
    struct samples http = { .name = "(c) through nginx, without pauses" };

    for (int i = 0; i < rounds + 10; i++) {
        double a = run_bare(), b = run_http(h, "execute", "bench");

        if (i < 10)
            continue; /* warming up */
        add(&bare, a);
        add(&http, b);
    }
    print_row(&bare, quantile(&bare, 0.5));
    print_row(&http, quantile(&bare, 0.5));
}

static int bench_latency(const char *run_dir, struct http *h, int rounds)
{
    struct samples bare = { .name = "(a) posix_spawn of `bash -c true`" };
    struct samples wrap = { .name = "(b) bubblewrap, all namespaces, the same" };
    struct samples sock = { .name = "(c) cove, existing sandbox, at the init socket" };
    struct samples http = { .name = "(c) cove, existing sandbox, through nginx" };
    int filter = open_filter(run_dir, "default.notify.bpf");
    char id[21];

    run_http(h, "execute", "bench");
    find_id(h, id);
    for (int i = 0; i < rounds + 10; i++) {
        double a, b, c, d;

        settle();
        a = run_bare();
        settle();
        b = run_bwrap();
        settle();
        c = run_socket(run_dir, id, "true", filter, true);
        settle();
        d = run_http(h, "execute", "bench");
        if (i < 10)
            continue; /* warming up */
        add(&bare, a);
        add(&wrap, b);
        add(&sock, c);
        add(&http, d);
    }
    print_row(&bare, quantile(&bare, 0.5));
    print_row(&wrap, quantile(&bare, 0.5));
    print_row(&sock, quantile(&bare, 0.5));
    print_row(&http, quantile(&bare, 0.5));
    bench_back_to_back(h, 4 * rounds);
    return 0;
}

/* A shell that starts a program many times, with and without a verdict on each. */
static int bench_exec(const char *run_dir, struct http *h, int rounds)
{
    static const char script[] = "for i in {1..100}; do /bin/true; done";
    struct samples plain = { .name = "an execve in a sandbox, no exec-time policy" };
    struct samples judged = { .name = "the same, each judged" };
    int plain_filter = open_filter(run_dir, "default.bpf");
    int notify_filter = open_filter(run_dir, "default.notify.bpf");
    char id[21];

    run_http(h, "execute", "bench-exec");
    find_id(h, id);
    for (int i = 0; i < rounds; i++) {
        add(&plain, run_socket(run_dir, id, script, plain_filter, false) / 100);
        add(&judged, run_socket(run_dir, id, script, notify_filter, true) / 100);
    }
    print_row(&plain, quantile(&plain, 0.5));
    print_row(&judged, quantile(&plain, 0.5));
    return 0;
}

/* The first command of a project that has no sandbox; between two the pool has time to fill up
 * again. */
static int bench_create(struct http *h, int rounds, const char *name)
{
    struct samples create = { .name = name }, bare = { .name = "" };
    struct samples wrap = { .name = "(b) bubblewrap, in turns with it" };
    char project[64];

    for (int i = 0; i < rounds; i++) {
        snprintf(project, sizeof(project), "create-%d-%d", (int)getpid(), i);
        add(&bare, run_bare());
        poll(NULL, 0, 150);
        add(&wrap, run_bwrap());
        poll(NULL, 0, 150);
        add(&create, run_http(h, "execute", project));
        run_http(h, "cleanup", project);
        poll(NULL, 0, 150);
    }
    print_row(&create, quantile(&bare, 0.5));
    print_row(&wrap, quantile(&bare, 0.5));
    return 0;
}

struct load {
    pthread_t thread;
    struct http http;
    struct samples samples;
    double until;
    int number;
};

static void *load_thread(void *arg)
{
    struct load *l = arg;
    char project[32];

    snprintf(project, sizeof(project), "load-%d", l->number % 4);
    http_connect(&l->http);
    run_http(&l->http, "execute", project);
    while (now_ms() < l->until)
        add(&l->samples, run_http(&l->http, "execute", project));
    return NULL;
}

struct bare_load {
    pthread_t thread;
    double until;
    struct samples samples;
};

static void *bare_thread(void *arg)
{
    struct bare_load *l = arg;

    while (now_ms() < l->until)
        add(&l->samples, run_bare());
    return NULL;
}

static void add_all(struct samples *to, const struct samples *from)
{
    for (size_t i = 0; i < from->count; i++)
        add(to, from->ms[i]);
}

/* The machine's own best: as many bare spawns at once. */
static double bare_load(int clients, int seconds, struct samples *ret)
{
    struct bare_load l[64] = { 0 };
    double began = now_ms();

    for (int i = 0; i < clients; i++) {
        l[i].until = began + seconds * 1e3;
        pthread_create(&l[i].thread, NULL, bare_thread, &l[i]);
    }
    for (int i = 0; i < clients; i++) {
        pthread_join(l[i].thread, NULL);
        add_all(ret, &l[i].samples);
    }
    return (double)ret->count / ((now_ms() - began) / 1e3);
}

static int bench_load(const struct http *h, int clients, int seconds)
{
    struct samples all = { 0 }, bares = { 0 };
    static struct load l[64];
    double began, bare, rate;

    if (clients > 64)
        clients = 64;
    bare = bare_load(clients, seconds, &bares);
    began = now_ms();
    for (int i = 0; i < clients; i++) {
        l[i] = (struct load){ .http = *h, .until = began + seconds * 1e3, .number = i };
        pthread_create(&l[i].thread, NULL, load_thread, &l[i]);
    }
    for (int i = 0; i < clients; i++) {
        pthread_join(l[i].thread, NULL);
        add_all(&all, &l[i].samples);
    }
    rate = (double)all.count / ((now_ms() - began) / 1e3);
    printf("| bare posix_spawn, %d at once | %.0f | %.2f | %.2f | 1.00 |\n", clients, bare,
           quantile(&bares, 0.5), quantile(&bares, 0.99));
    printf("| cove through nginx, %d clients | %.0f | %.2f | %.2f | %.2f |\n", clients, rate,
           quantile(&all, 0.5), quantile(&all, 0.99), rate / bare);
    return 0;
}

struct burst {
    pthread_t thread;
    struct http http;
    int number;
};

static pthread_barrier_t burst_start;

static void *burst_thread(void *arg)
{
    struct burst *b = arg;
    char project[32];

    snprintf(project, sizeof(project), "burst-%d", b->number);
    pthread_barrier_wait(&burst_start);
    http_connect(&b->http);
    run_http(&b->http, "execute", project);
    return NULL;
}

/* So many clients, each with the first command of its own project, all at the same moment. Prints the seconds until
 * the last one has its answer. */
static int bench_burst(const struct http *h, int clients)
{
    static struct burst all[256];
    double began;

    if (clients > 256)
        clients = 256;
    pthread_barrier_init(&burst_start, NULL, (unsigned)clients + 1);
    for (int i = 0; i < clients; i++) {
        all[i] = (struct burst){ .http = *h, .number = i };
        pthread_create(&all[i].thread, NULL, burst_thread, &all[i]);
    }
    began = now_ms();
    pthread_barrier_wait(&burst_start);
    for (int i = 0; i < clients; i++)
        pthread_join(all[i].thread, NULL);
    printf("%.3f\n", (now_ms() - began) / 1e3);
    return 0;
}

int main(int argc, char **argv)
{
    unsetenv("LC_ALL"); /* the locale as commands in a sandbox have it: bash reads its files */
    unsetenv("LANG");
    setenv("LC_CTYPE", "C.UTF-8", 1);
    if (argc == 7 && strcmp(argv[1], "latency") == 0) {
        struct http h = { .host = argv[3], .port = argv[4], .key = argv[5] };

        http_connect(&h);
        return bench_latency(argv[2], &h, atoi(argv[6]));
    }
    if (argc == 7 && strcmp(argv[1], "exec") == 0) {
        struct http h = { .host = argv[3], .port = argv[4], .key = argv[5] };

        http_connect(&h);
        return bench_exec(argv[2], &h, atoi(argv[6]));
    }
    if (argc == 7 && strcmp(argv[1], "create") == 0) {
        struct http h = { .host = argv[2], .port = argv[3], .key = argv[4] };

        http_connect(&h);
        return bench_create(&h, atoi(argv[5]), argv[6]);
    }
    if (argc == 7 && strcmp(argv[1], "load") == 0) {
        struct http h = { .host = argv[2], .port = argv[3], .key = argv[4] };

        return bench_load(&h, atoi(argv[5]), atoi(argv[6]));
    }
    if (argc == 6 && strcmp(argv[1], "burst") == 0) {
        struct http h = { .host = argv[2], .port = argv[3], .key = argv[4] };

        return bench_burst(&h, atoi(argv[5]));
    }
    fprintf(stderr, "usage: see bench/README.md\n");
    return 2;
}
