/*
 * Requests of operators: what `cove` does for root, asked for over HTTP by somebody who has signed it.
 *
 * A request comes by way of a worker, and a worker may be anybody's. So its text is believed only when
 * the signature on it is that of an operator (keys/operators.c), and only once: it repeats a nonce that
 * this keeper has made within the last minutes, and a nonce is used up by the first request that was
 * signed rightly. What may be asked for is the table below: the words of one `cove` command each, with
 * places for arguments. The command runs as a child, which the keeper never waits for; what the child
 * prints goes back as a file.
 */
#include "cove/operators.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cove/log.h"
#include "cove/mem.h"
#include "cove/text.h"
#include "sandbox/keeper/keeper_private.h"

enum {
    RUNS_MAX = 4, /* commands at a time */
    WORDS_MAX = 32,
    NONCE_MS = 2 * 60000,
    NONCES_USED = 512, /* in NONCE_MS: more is a program that has gone wild */
    RUN_SECONDS = 60,
    OUTPUT_MAX = 8 << 20,
    FILES_MAX = 64 << 20, /* that the command may write */
    SECRET_BYTES = 32,
};

/* ------------------------------------------------------------------ what may be asked for */

struct verb {
    const char *name;
    bool changes; /* something: it gets a line in the audit log */
    /* Places for the request's arguments, in their order: "--hash=" and "$" must be there and not
     * empty, "--name=?" is left out when its argument is empty. */
    const char *words[WORDS_MAX];
};

static const struct verb verbs[] = {
    { "status", false, { "status", "--json" } },
    { "doctor", false, { "doctor", "--json" } },
    { "tenants", false, { "tenant", "list", "--json" } },
    { "templates", false, { "template", "ls", "--json" } },
    { "builds", false, { "template", "builds", "--json" } },
    { "keys", false, { "key", "list", "--json" } },
    { "audit",
      false,
      { "policy", "log", "--all", "--json", "--lines=?", "--tenant=?", "--rule=?" } },
    { "audit-verify", false, { "audit", "verify", "--json" } },
    { "key-create",
      true,
      { "key", "create", "--json", "--hash=", "--name=?", "--expires=?", "--dialects=?",
        "--projects=?", "--requests=?", "--sandboxes=?", "--processes=?", "--", "$" } },
    { "key-rotate", true, { "key", "rotate", "--json", "--hash=", "--grace=?", "--", "$" } },
    { "key-revoke", true, { "key", "revoke", "--json", "--", "$" } },
};

static const struct verb *find_verb(const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(verbs); i++)
        if (strcmp(verbs[i].name, name) == 0)
            return &verbs[i];
    return NULL;
}

struct operator_command {
    char text[2 * OPERATOR_TEXT_MAX]; /* words that were put together */
    size_t used;
    const char *argv[WORDS_MAX + 5];
    size_t count;
};

static bool add_word(struct operator_command *c, const char *word, size_t word_len,
                     const char *value)
{
    size_t len = word_len + strlen(value) + 1;
    char *at = c->text + c->used;

    if (len > sizeof(c->text) - c->used)
        return false;
    snprintf(at, len, "%.*s%s", (int)word_len, word, value);
    c->used += len;
    c->argv[c->count++] = at;
    return true;
}

enum arg_place { ARG_NONE, ARG_REQUIRED, ARG_OPTIONAL };

/* How a word of the table takes an argument, and how much of the word stays in front of it. */
static enum arg_place place_of(const char *word, size_t *ret_kept)
{
    size_t len = strlen(word);

    *ret_kept = len;
    if (strcmp(word, "$") == 0) {
        *ret_kept = 0;
        return ARG_REQUIRED;
    }
    if (len > 2 && strcmp(word + len - 2, "=?") == 0) {
        *ret_kept = len - 1;
        return ARG_OPTIONAL;
    }
    return word[len - 1] == '=' ? ARG_REQUIRED : ARG_NONE;
}

static int build(const struct keeper *k, const struct verb *v, const char *const *arguments,
                 size_t count, struct operator_command *ret, struct cove_err *e)
{
    size_t next = 0;
    bool fits = true;

    *ret = (struct operator_command){ .argv = { "cove" }, .count = 1 };
    if (k->config_path)
        fits = add_word(ret, "-c", 2, "") && add_word(ret, "", 0, k->config_path);
    for (size_t i = 0; i < WORDS_MAX && v->words[i]; i++) {
        size_t kept;
        enum arg_place place = place_of(v->words[i], &kept);
        const char *value = place && next < count ? arguments[next++] : "";

        if (place == ARG_REQUIRED && !*value)
            return cove_fail(e, COVE_INVALID, "arguments: number %zu of %s is missing", next,
                             v->name);
        if (place != ARG_OPTIONAL || *value)
            fits &= add_word(ret, v->words[i], kept, value);
    }
    if (next < count)
        return cove_fail(e, COVE_INVALID, "arguments: %s takes %zu of them", v->name, next);
    return fits ? 0 : cove_fail(e, COVE_TOO_LARGE, "arguments: too long");
}

/* ------------------------------------------------------------------ nonces */

struct operator_run {
    struct watch exit; /* the child's pidfd */
    pid_t pid;
    int out, err;
    struct waiter waiter;
    bool busy;
};

struct operator_desk {
    unsigned char secret[SECRET_BYTES]; /* of this keeper's nonces */
    struct {
        char nonce[KEEPER_NONCE_MAX];
        uint64_t until_ms;
    } used[NONCES_USED];
    struct operator_run runs[RUNS_MAX];
};

static struct operator_desk *desk_of(struct keeper *k)
{
    if (!k->operators && (k->operators = calloc(1, sizeof(*k->operators))))
        text_random(k->operators->secret, SECRET_BYTES);
    return k->operators;
}

/* "MILLISECONDS-RANDOM-MAC" */
static void seal_nonce(const struct operator_desk *d, const char *body, char ret[KEEPER_NONCE_MAX])
{
    unsigned char mac[32];
    char hex[2 * sizeof(mac) + 1];

    HMAC(EVP_sha256(), d->secret, SECRET_BYTES, (const unsigned char *)body, strlen(body), mac,
         NULL);
    text_hex(mac, sizeof(mac), hex);
    snprintf(ret, KEEPER_NONCE_MAX, "%s-%.32s", body, hex);
}

void operator_nonce(struct keeper *k, struct keeper_nonce *ret)
{
    struct operator_desk *d = desk_of(k);
    unsigned char random[16];
    char hex[2 * sizeof(random) + 1], body[KEEPER_NONCE_MAX / 2];

    *ret = (struct keeper_nonce){ 0 };
    if (!d)
        return;
    text_random(random, sizeof(random));
    text_hex(random, sizeof(random), hex);
    snprintf(body, sizeof(body), "%llx-%s", (unsigned long long)clock_boot_ms(), hex);
    seal_nonce(d, body, ret->nonce);
}

static bool nonce_is_ours(const struct operator_desk *d, const char *nonce)
{
    char body[KEEPER_NONCE_MAX], again[KEEPER_NONCE_MAX] = "";
    char *mac = text_copy(body, sizeof(body), nonce) ? strrchr(body, '-') : NULL;
    uint64_t made_ms = strtoull(nonce, NULL, 16), now_ms = clock_boot_ms();

    if (!mac)
        return false;
    *mac = '\0';
    if (strlen(body) >= KEEPER_NONCE_MAX / 2)
        return false;
    seal_nonce(d, body, again);
    return strlen(again) == strlen(nonce) && CRYPTO_memcmp(again, nonce, strlen(again)) == 0 &&
           made_ms <= now_ms && now_ms - made_ms < NONCE_MS;
}

/* After the signature was found good: nobody but an operator fills this table. */
static int use_nonce(struct operator_desk *d, const char *nonce, struct cove_err *e)
{
    uint64_t now_ms = clock_boot_ms();
    size_t room = NONCES_USED;

    for (size_t i = 0; i < NONCES_USED; i++) {
        if (d->used[i].until_ms <= now_ms)
            room = i;
        else if (strcmp(d->used[i].nonce, nonce) == 0)
            return cove_fail(e, COVE_CONFLICT, "this request was made before: sign a new one");
    }
    if (room == NONCES_USED)
        return cove_fail(e, COVE_BUSY, "operators have asked too much: try again in a minute");
    text_copy(d->used[room].nonce, sizeof(d->used[room].nonce), nonce);
    d->used[room].until_ms = now_ms + NONCE_MS;
    return 0;
}

/* ------------------------------------------------------------------ who asks */

/* The copy that workers see is the keeper's own: only root writes it. */
static int check_signature(struct keeper *k, const struct keeper_operator *ask, const char *text,
                           struct cove_err *e)
{
    struct operators all;
    char path[320];
    int rc;

    snprintf(path, sizeof(path), "%s/" OPERATORS_FILE, k->config.run_dir);
    if (operators_load(path, &all, e) < 0)
        return -1;
    rc = operators_check(&all, ask->name, text, strlen(text), ask->signature, e);
    operators_done(&all);
    return rc;
}

static int note(struct keeper *k, const char *who, const struct operator_command *c,
                struct cove_err *e)
{
    AUTO_BUF struct buf line = BUF(OPERATOR_TEXT_MAX * 2);
    struct audit_entry entry = { .event = "operator",
                                 .dialect = dialect_name(DIALECT_OF_OPERATORS),
                                 .key = who };

    for (size_t i = k->config_path ? 3 : 1; i < c->count; i++)
        buf_addf(&line, "%s%s", line.len ? " " : "", c->argv[i]);
    entry.command = line.data;
    entry.command_len = line.len;
    entry.always = true;
    log_event(LOG_LEVEL_INFO, "an operator changes something", LOG_S("operator", who),
              LOG_S("command", line.data));
    return k->audit ? audit_append(k->audit, &entry, e) : 0;
}

/* ------------------------------------------------------------------ the child */

static void become_command(const struct operator_run *run, const struct operator_command *c)
{
    char *const env[] = { "LC_ALL=C.UTF-8", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", NULL };
    const struct rlimit files = { FILES_MAX, FILES_MAX };
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    sigset_t no_signals;

    sigemptyset(&no_signals);
    sigprocmask(SIG_SETMASK, &no_signals, NULL);
    signal(SIGPIPE, SIG_DFL);
    setsid();
    alarm(RUN_SECONDS);
    if (dup2(null, 0) < 0 || dup2(run->out, 1) < 0 || dup2(run->err, 2) < 0 ||
        setrlimit(RLIMIT_FSIZE, &files) < 0)
        _exit(127);
    execve(COVE_BINDIR "/cove", (char *const *)c->argv, env);
    dprintf(2, "cove: " COVE_BINDIR "/cove: %s\n", strerror(errno));
    _exit(127);
}

static void run_done(struct operator_run *run)
{
    watch_close(&run->exit);
    run->out = cove_close(run->out);
    run->err = cove_close(run->err);
    run->busy = false;
}

/* What it said before it gave up, without its own name in front. */
static void explain(const struct operator_run *run, int status, struct cove_err *e)
{
    char text[200] = "";
    ssize_t n = pread(run->err, text, sizeof(text) - 1, 0);
    const char *said = strncmp(text, "cove: ", 6) == 0 ? text + 6 : text;

    if (WIFSIGNALED(status))
        cove_fail(e, COVE_BUSY, "the command was ended by signal %d", WTERMSIG(status));
    else if (n <= 0)
        cove_fail(e, COVE_INTERNAL, "the command failed without saying why");
    else
        cove_fail(e, COVE_INVALID, "%.*s", (int)strcspn(said, "\n"), said);
    cove_err_sanitize(e);
}

static void answer(struct keeper *k, const struct operator_run *run, int status)
{
    struct keeper_output body = { .exit = (uint32_t)WEXITSTATUS(status) };
    struct cove_err err = { 0 };
    struct stat st;

    if (!WIFEXITED(status) || body.exit > 1)
        explain(run, status, &err);
    else if (fstat(run->out, &st) < 0 || st.st_size > OUTPUT_MAX)
        cove_fail(&err, COVE_TOO_LARGE, "the answer is larger than %d bytes: ask for less",
                  OUTPUT_MAX);
    if (err.code) {
        keeper_answer_error(k, &run->waiter, &err);
        return;
    }
    fcntl(run->out, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE);
    lseek(run->out, 0, SEEK_SET); /* the child has left its place at the end */
    body.bytes = (uint64_t)st.st_size;
    keeper_answer_file(k, &run->waiter, KEEPER_OUTPUT, &body, sizeof(body), run->out);
}

static void on_exit_of(struct watch *w, uint32_t events)
{
    struct operator_run *run = container_of(w, struct operator_run, exit);
    struct keeper *k = container_of(w->loop, struct keeper, loop);
    int status = 0;

    (void)events;
    if (waitpid(run->pid, &status, 0) == run->pid)
        answer(k, run, status);
    run_done(run);
}

static int start(struct keeper *k, struct operator_run *run, const struct operator_command *c,
                 struct cove_err *e)
{
    int pidfd = -1;

    run->out = memfd_create("cove-output", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    run->err = memfd_create("cove-errors", MFD_CLOEXEC);
    run->pid = run->out < 0 || run->err < 0 ? -1 : fork();
    if (run->pid == 0)
        become_command(run, c);
    if (run->pid > 0)
        pidfd = pidfd_open(run->pid, 0);
    if (pidfd < 0 || watch_start(&k->loop, &run->exit, pidfd, EPOLLIN, on_exit_of) < 0) {
        cove_fail_errno(e, COVE_INTERNAL, "starting cove");
        cove_close(pidfd);
        if (run->pid > 0 && kill(run->pid, SIGKILL) == 0)
            waitpid(run->pid, NULL, 0);
        run->out = cove_close(run->out);
        run->err = cove_close(run->err);
        return -1;
    }
    run->busy = true;
    return 0;
}

/* ------------------------------------------------------------------ the request */

static struct operator_run *free_run(struct operator_desk *d)
{
    for (size_t i = 0; i < RUNS_MAX; i++)
        if (!d->runs[i].busy)
            return &d->runs[i];
    return NULL;
}

static int obey(struct keeper *k, const struct keeper_operator *ask, char *text,
                const struct waiter *w, struct cove_err *e)
{
    const char *parts[OPERATOR_ARGUMENTS_MAX + 3];
    struct operator_desk *d = desk_of(k);
    struct operator_run *run = d ? free_run(d) : NULL;
    const struct verb *verb;
    struct operator_command command;
    size_t count;

    if (!run)
        return cove_fail(e, COVE_BUSY, "requests of other operators are under way: try again");
    if (check_signature(k, ask, text, e) < 0)
        return -1;
    if (!operator_cut(text, parts, &count) || !nonce_is_ours(d, parts[1]))
        return cove_fail(e, COVE_CONFLICT, "the nonce is too old: sign the request again");
    verb = find_verb(parts[2]);
    if (!verb)
        return cove_fail(e, COVE_INVALID, "verb: there is no '%.40s'", parts[2]);
    if (use_nonce(d, parts[1], e) < 0 || build(k, verb, parts + 3, count - 3, &command, e) < 0 ||
        (verb->changes && note(k, ask->name, &command, e) < 0))
        return -1;
    run->waiter = *w;
    return start(k, run, &command, e);
}

void operator_ask(struct keeper *k, const struct keeper_operator *ask, char *text,
                  const struct waiter *w)
{
    struct cove_err err = { 0 };

    if (obey(k, ask, text, w, &err) < 0)
        keeper_answer_error(k, w, &err);
}
