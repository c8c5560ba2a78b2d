/*
 * The secret that tokens of sandboxes are made with (keys/token.c). It is made once and kept with the sandboxes'
 * files, so that a token is valid as long as its sandbox, over restarts. Removing the file makes all tokens
 * invalid at the next start.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cove/mem.h"
#include "cove/text.h"
#include "sandbox/keeper/keeper_private.h"
#include "sandbox/keeper/publish.h"

static int read_or_make_secret(struct keeper *k, unsigned char ret[TOKEN_SECRET_BYTES],
                               struct cove_err *e)
{
    static const char aside[] = TOKEN_SECRET_FILE ".new";
    AUTO_CLOSE int old = openat(k->state_dir, TOKEN_SECRET_FILE, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    AUTO_CLOSE int fd = -1;

    if (old >= 0 && read(old, ret, TOKEN_SECRET_BYTES) == TOKEN_SECRET_BYTES)
        return 0;
    text_random(ret, TOKEN_SECRET_BYTES);
    unlinkat(k->state_dir, aside, 0);
    fd = openat(k->state_dir, aside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || write(fd, ret, TOKEN_SECRET_BYTES) != TOKEN_SECRET_BYTES || fsync(fd) < 0 ||
        renameat(k->state_dir, aside, k->state_dir, TOKEN_SECRET_FILE) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "%s/%s", k->config.state_dir, TOKEN_SECRET_FILE);
    return 0;
}

int publish_secret(struct keeper *k, struct cove_err *e)
{
    unsigned char secret[TOKEN_SECRET_BYTES];
    bool changed = false;
    int rc;

    if (read_or_make_secret(k, secret, e) < 0)
        return -1;
    rc = publish_put(k, TOKEN_SECRET_FILE, secret, sizeof(secret), &changed, e);
    explicit_bzero(secret, sizeof(secret));
    return rc;
}
