/*
 * Descriptors that outlive the keeper, kept by the service manager (sd_pid_notify_with_fds(3),
 * FileDescriptorStoreMax=): sockets that go on queueing connections while nobody accepts, and a
 * pidfd of each sandbox. They come back at the next start as $LISTEN_FDS, and so do the sockets of
 * cove.socket. Nothing depends on them: without a manager, or with a store that is full, sockets are bound anew
 * and sandboxes are found by what shared memory says.
 */
#include "sandbox/keeper/keeper_private.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "cove/mem.h"
#include "cove/text.h"
#include "sandbox/keeper/manager.h"

/* Names that do not fit are left out: an item without a name is taken by nobody. */
void fdstore_init(struct fdstore *s, const struct notify *notify)
{
    char **names = NULL;
    int count = sd_listen_fds_with_names(1, &names);

    *s = (struct fdstore){ .notify = notify };
    if (count > 0 && (s->items = calloc((size_t)count, sizeof(*s->items)))) {
        s->count = (size_t)count;
        for (int i = 0; i < count; i++) {
            s->items[i].fd = SD_LISTEN_FDS_START + i;
            if (names && strlen(names[i]) < sizeof(s->items[i].name))
                strcpy(s->items[i].name, names[i]);
        }
    }
    for (int i = 0; names && names[i]; i++)
        free(names[i]);
    free(names);
}

/* -1: there is none */
static int fdstore_take(struct fdstore *s, const char *name)
{
    for (size_t i = 0; i < s->count; i++)
        if (s->items[i].fd >= 0 && strcmp(s->items[i].name, name) == 0)
            return take_fd(&s->items[i].fd);
    return -1;
}

static bool listens_at(int fd, int type, const char *bound, const char *path)
{
    struct sockaddr_un addr = { 0 };
    socklen_t addr_len = sizeof(addr), len = sizeof(int);
    int listening = 0, is = 0;
    struct stat st;

    return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &len) == 0 && listening &&
           getsockopt(fd, SOL_SOCKET, SO_TYPE, &is, &len) == 0 && is == type &&
           getsockname(fd, (struct sockaddr *)&addr, &addr_len) == 0 &&
           addr.sun_family == AF_UNIX &&
           strncmp(addr.sun_path, bound, sizeof(addr.sun_path)) == 0 && lstat(path, &st) == 0 &&
           S_ISSOCK(st.st_mode);
}

/* A stored socket that listens at another path than `path` (run_dir was changed, or the file is gone) is
 * closed and not used. */
int fdstore_take_socket(struct fdstore *s, const char *name, int type, const char *bound,
                        const char *path)
{
    int fd = fdstore_take(s, name);

    if (fd >= 0 && !listens_at(fd, type, bound, path)) {
        fdstore_drop(s, name);
        fd = cove_close(fd);
    }
    return fd;
}

void fdstore_put(const struct fdstore *s, const char *name, int fd)
{
    char text[96];

    /* FDPOLL=1: the manager itself drops a descriptor that hangs up, in case we do not. */
    snprintf(text, sizeof(text), "FDSTORE=1\nFDNAME=%s\nFDPOLL=1", name);
    notify_tell_fd(s->notify, text, fd);
}

void fdstore_drop(const struct fdstore *s, const char *name)
{
    char text[96];

    snprintf(text, sizeof(text), "FDSTOREREMOVE=1\nFDNAME=%s", name);
    notify_tell(s->notify, text);
}

void fdstore_done(struct fdstore *s)
{
    for (size_t i = 0; i < s->count; i++) {
        if (s->items[i].fd < 0)
            continue;
        if (s->items[i].name[0])
            fdstore_drop(s, s->items[i].name);
        cove_close(s->items[i].fd);
    }
    free(s->items);
    s->items = NULL;
    s->count = 0;
}

/* ------------------------------------------------------------------ a sandbox's pidfd */

static void name_of(const char *id, char out[FDSTORE_NAME_MAX])
{
    snprintf(out, FDSTORE_NAME_MAX, "box-%s", id);
}

void fdstore_put_box(const struct fdstore *s, const char *id, int pidfd)
{
    char name[FDSTORE_NAME_MAX];

    name_of(id, name);
    fdstore_put(s, name, pidfd);
}

void fdstore_drop_box(const struct fdstore *s, const char *id)
{
    char name[FDSTORE_NAME_MAX];

    name_of(id, name);
    fdstore_drop(s, name);
}

static pid_t pid_of(int pidfd)
{
    char path[48], text[512];
    const char *line;

    snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", pidfd);
    if (read_file_at(AT_FDCWD, path, text, sizeof(text)) < 0 || !(line = strstr(text, "\nPid:")))
        return -1;
    return (pid_t)strtol(line + 5, NULL, 10);
}

/* The pidfd was opened when the process was born: it never stands for another process that has the same pid now. */
int fdstore_take_box(struct fdstore *s, const char *id, pid_t pid)
{
    char name[FDSTORE_NAME_MAX];
    int fd;

    name_of(id, name);
    fd = fdstore_take(s, name);
    if (fd >= 0 && pid_of(fd) != pid) {
        fdstore_drop(s, name);
        fd = cove_close(fd);
    }
    s->boxes += fd >= 0;
    return fd;
}
