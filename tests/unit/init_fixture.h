/* The real cove-init as a child, started as the keeper does it but without namespaces, and a client
 * of it. */
#ifndef TESTS_INIT_FIXTURE_H
#define TESTS_INIT_FIXTURE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "cove/msg.h"
#include "cove/msg_box.h"

enum { ANSWER_MS = 5000 };

struct fixture {
    pid_t init;
    char address[64]; /* abstract: "" then the name */
    char dir[64];     /* a directory that everybody may write to */
    char cgroup[256]; /* "" without */
    int sock;         /* one connection, for most tests */
};

extern struct fixture fx;

int fixture_start(void **state);             /* setup: without cgroups */
int fixture_start_with_cgroup(void **state); /* setup; the test must skip when fx.cgroup is "" */
int fixture_start_with_counters(
    void **state);              /* setup: fx.dir/memory and fx.dir/pids are its controllers */
int fixture_stop(void **state); /* teardown: nothing is left running */

int fixture_connect(void);
int open_fd_count(void); /* of this process */
int init_fd_count(void); /* of init */
bool eventually(bool (*condition)(void *), void *arg);
bool process_exists(void *pid);
bool init_holds_only(void *fd_count);
/* A number in /proc/PID/status; UINT64_MAX if there is none. */
uint64_t status_number(pid_t pid, const char *field, int base);
const char *in_dir(const char *name); /* fx.dir/name, in a buffer of a few that take turns */

/* A message as it came; the body is in a static buffer until the next one. */
int receive_from(int sock, struct msg *ret, int timeout_ms); /* 1, 0: closed, -1: nothing in time */
/* The next message on fx.sock must be of this type; fds are closed unless wanted. Returns its body. */
const void *expect(uint32_t type, int *ret_fd);
const void *expect_on(int sock, uint32_t type, int *ret_fd);
enum cove_code expect_error(void); /* prints nothing: the test compares */
extern struct msg last;
void assert_init_answers(void); /* a ping on fx.sock */

void send_on(int sock, uint32_t type, uint32_t tag, const void *body, size_t len, const char *tail,
             size_t tail_len, const int *fds, size_t fd_count);
/* tail: strings separated by NUL, as a literal; its own NUL ends the last one. */
#define ASK(type, body, tail)                                                                      \
    send_on(fx.sock, type, 1, &(body), sizeof(body), tail, sizeof(tail), NULL, 0)

struct command {
    const char *user, *cwd, *label;
    const char *argv[8], *env[8];
    uint32_t flags, context, timeout_ms;
    uint64_t log_bytes, max_open_files, max_file_bytes;
    uint16_t rows, cols;
    int fds[4];
    size_t fd_count;
};

void send_spawn(int sock, const struct command *cmd);
struct box_spawned spawn(const struct command *cmd); /* and expect it to start */
struct cove_end expect_exit(uint32_t proc);          /* on fx.sock */
struct cove_end run(const struct command *cmd, char *out, size_t out_size); /* stdout and stderr */
struct cove_end run_sh(const char *script, char *out, size_t out_size);

#endif
