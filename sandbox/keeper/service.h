/* The service manager: what it is told, and descriptors it keeps over a restart. */
#ifndef COVE_KEEPER_SERVICE_H
#define COVE_KEEPER_SERVICE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct notify {         /* the service manager, if one started us */
    char path[108];     /* "" = none */
    uint64_t period_ms; /* 0 = the manager does not watch us */
    uint64_t next_ms;
};

enum { FDSTORE_NAME_MAX = 32 };

struct fdstore { /* descriptors from the service manager that nobody has taken yet */
    const struct notify *notify;
    struct {
        int fd; /* -1: taken */
        char name[FDSTORE_NAME_MAX];
    } * items;
    size_t count;
    unsigned boxes; /* sandboxes whose pidfd was among them */
};

/* ------------------------------------------------------------------ notify.c */

void notify_init(struct notify *n);
void notify_tell(const struct notify *n, const char *text); /* "READY=1", ... */
void notify_tell_fd(const struct notify *n, const char *text, int fd);
void notify_reloading(const struct notify *n);
void notify_alive(struct notify *n);

/* ------------------------------------------------------------------ fdstore.c */

void fdstore_init(struct fdstore *s, const struct notify *notify);
/* A listening socket that was bound as `bound` and was renamed to `path`. */
int fdstore_take_socket(struct fdstore *s, const char *name, int type, const char *bound,
                        const char *path);
int fdstore_take_box(struct fdstore *s, const char *id, pid_t pid);
void fdstore_put(const struct fdstore *s, const char *name, int fd);
void fdstore_put_box(const struct fdstore *s, const char *id, int pidfd);
void fdstore_drop(const struct fdstore *s, const char *name);
void fdstore_drop_box(const struct fdstore *s, const char *id);
void fdstore_done(struct fdstore *s); /* closes what nobody took */

#endif
