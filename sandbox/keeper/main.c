/* coved: the command line of the keeper. keeper.c says what the keeper is. */
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cove/buf.h"
#include "cove/log.h"
#include "sandbox/keeper/keeper_private.h"

#define DEFAULT_CONFIG COVE_SYSCONFDIR "/cove.conf" /* used without -c */

static int usage(FILE *to, int code)
{
    fputs("usage: coved [-c FILE] [-o KEY=VALUE]... [--check | --show-config | --sweep | "
          "--version]\n",
          to);
    return code;
}

/* Only a running keeper knows which kind of disk `disk = auto` has become. */
static void add_disk_in_use(const struct cove_config *c, struct buf *out)
{
    char path[320], line[96];

    snprintf(path, sizeof(path), "%s/disk", c->run_dir);
    if (read_file_at(AT_FDCWD, path, line, sizeof(line)) > 0)
        buf_addf(out, "# disk in use: %.*s\n", (int)strcspn(line, " \n"), line);
}

static int show_config(const struct cove_config *c)
{
    struct buf text;

    buf_init(&text, 64 * 1024);
    config_print(c, &text);
    add_disk_in_use(c, &text);
    fwrite(text.data, 1, text.len, stdout);
    buf_done(&text);
    return 0;
}

static void print_mistake(void *ctx, const struct cove_err *e)
{
    (void)ctx;
    fprintf(stderr, "coved: %s\n", e->msg);
}

/* Prints every mistake in the file on a line of its own, then mistakes in the options of the command line. */
static int check_config(struct keeper *k)
{
    struct cove_config c;
    struct cove_err err = { 0 };

    config_default(&c);
    if (k->config_path && config_read(k->config_path, &c, print_mistake, NULL, &err) < 0) {
        if (err.errnum) /* the file itself could not be read */
            print_mistake(NULL, &err);
        return 2;
    }
    if (keeper_load_config(k, &c, &err) < 0) {
        print_mistake(NULL, &err);
        return 2;
    }
    return 0;
}

/* For use after a keeper that was killed and will have no successor. Prints what was removed. */
static int sweep_network(const struct cove_config *c)
{
    if (net_sweep(c))
        puts("rules, interfaces and forwarding");
    return 0;
}

enum task { SERVE, CHECK, SHOW_CONFIG, SWEEP, VERSION, HELP, MISUSE };

/* Fills in config_path and overrides of the keeper; returns the task that the options ask for. */
static enum task read_options(struct keeper *k, int argc, char **argv, char **overrides)
{
    static const struct option options[] = {
        { "config", required_argument, NULL, 'c' },
        { "set", required_argument, NULL, 'o' },
        { "check", no_argument, NULL, CHECK },
        { "show-config", no_argument, NULL, SHOW_CONFIG },
        { "sweep", no_argument, NULL, SWEEP },
        { "version", no_argument, NULL, VERSION },
        { "help", no_argument, NULL, 'h' },
        { NULL, 0, NULL, 0 },
    };
    enum task task = SERVE;
    int opt;

    k->overrides = overrides;
    while ((opt = getopt_long(argc, argv, "c:o:h", options, NULL)) != -1) {
        if (opt == 'c')
            k->config_path = strdup(optarg);
        else if (opt == 'o')
            *overrides++ = strdup(optarg);
        else if (opt == 'h')
            return HELP;
        else if (opt == '?')
            return MISUSE;
        else if (task != SHOW_CONFIG)
            task = (enum task)opt;
    }
    return optind < argc ? MISUSE : task;
}

static int serve(struct keeper *k, int argc, char **argv)
{
    struct cove_err err = { 0 };

    keeper_apply_log_level(&k->config);
    notify_init(&k->notify); /* before title_init(), which takes the environment's place */
    fdstore_init(&k->fdstore, &k->notify);
    title_init(argc, argv);
    if (keeper_setup(k, &err) < 0) {
        log_error("keeper not started", &err);
        fprintf(stderr, "coved: %s\n", err.msg);
        return 1;
    }
    title_set("cove: keeper");
    keeper_stop(k, keeper_run(k));
    return 0;
}

int main(int argc, char **argv)
{
    static struct keeper keeper;
    char **overrides = calloc((size_t)argc + 1, sizeof(*overrides));
    struct cove_err err = { 0 };
    enum task task;

    log_init("keeper", LOG_LEVEL_INFO);
    keeper_init(&keeper);
    task = overrides ? read_options(&keeper, argc, argv, overrides) : MISUSE;
    if (task == HELP || task == MISUSE)
        return task == HELP ? usage(stdout, 0) : usage(stderr, 2);
    if (task == VERSION)
        return puts("coved " COVE_VERSION) < 0;
    if (!keeper.config_path && access(DEFAULT_CONFIG, F_OK) == 0)
        keeper.config_path = strdup(DEFAULT_CONFIG);
    if (task == CHECK)
        return check_config(&keeper);
    if (keeper_load_config(&keeper, &keeper.config, &err) < 0) {
        fprintf(stderr, "coved: %s\n", err.msg);
        return 2;
    }
    switch (task) {
    case SHOW_CONFIG:
        return show_config(&keeper.config);
    case SWEEP:
        return sweep_network(&keeper.config);
    default:
        return serve(&keeper, argc, argv);
    }
}
