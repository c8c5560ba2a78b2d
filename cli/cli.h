/* `cove`, the operators' tool: an entry point for each subcommand, whose argv[0] is the subcommand's name. */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include <stdbool.h>

#include "cove/config.h"
#include "cove/err.h"
#include "cove/state.h"

enum cli_exit {
    CLI_OK = 0,    /* done, or the answer is yes: allowed, whole, the same */
    CLI_NO = 1,    /* the answer is no: denied, broken, different */
    CLI_ERROR = 2, /* wrong usage, or the command failed */
};

int cli_policy(int argc, char **argv);
int cli_audit(int argc, char **argv);
int cli_key(int argc, char **argv);
int cli_operator(int argc, char **argv);
int cli_tenant(int argc, char **argv);
int cli_ls(int argc, char **argv);
int cli_top(int argc, char **argv);
int cli_exec(int argc, char **argv);
int cli_logs(int argc, char **argv);
int cli_kill(int argc, char **argv);
int cli_network(int argc, char **argv);
int cli_doctor(int argc, char **argv);
int cli_token(int argc, char **argv);
int cli_mcp(int argc, char **argv);
int cli_status(int argc, char **argv);
int cli_version(int argc, char **argv);
int cli_snapshot(int argc, char **argv);
int cli_store(int argc, char **argv);
int cli_template(int argc, char **argv);

/* Finds the instance's configuration: `cove -c FILE ...`, $COVE_CONFIG, or the installed one. Takes the option
 * from the front of argv. */
int cli_take_config(int *argc, char ***argv);
const char *cli_config_path(void);
/* Is this the instance of the installed configuration, and not one of a checkout? */
bool cli_is_installed(void);
int cli_config(struct cove_config *ret, struct cove_err *e);
int cli_state(const struct cove_config *c, struct state **ret, struct cove_err *e);
/* The pid file is locked as long as a keeper lives, whatever the number in it says. */
bool cli_keeper_runs(const struct cove_config *c);

/* policy log, policy seccomp: the rest of `cove policy`. */
int cli_policy_log(int argc, char **argv);
int cli_policy_seccomp(int argc, char **argv);

enum cli_kind {
    CLI_PLAIN,
    CLI_GROUP,   /* more commands follow: `cove key create` */
    CLI_PROGRAM, /* a program's own words follow: `cove exec SANDBOX ls --help` */
};

struct cli_command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *usage; /* what may follow the name */
    enum cli_kind kind;
    const char *help; /* a sentence, and examples, a line each; NULL: the usage says it all */
};

/* `word` means the command `name`. "list" and "ls" are the same word everywhere. */
bool cli_is_word(const char *name, const char *word);
/* Finds argv[1] in a table that ends with a NULL name, and runs that command with argv moved on by one. */
int cli_dispatch(const char *whose, const struct cli_command *commands, int argc, char **argv);

/* Both print and return CLI_ERROR. */
int cli_fail(const struct cove_err *e);
int cli_usage(const char *usage);

#endif
