/* Ownership: things that release themselves, and how they are handed over. */
#ifndef COVE_MEM_H
#define COVE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

/* Close unless negative; errno survives. Returns -1, so `fd = cove_close(fd)` forgets it too. */
int cove_close(int fd);

static inline void cove_auto_free(void *p)
{
    free(*(void **)p);
}

static inline void cove_auto_close(const int *fd)
{
    cove_close(*fd);
}

#define AUTO_FREE  __attribute__((cleanup(cove_auto_free)))
#define AUTO_CLOSE __attribute__((cleanup(cove_auto_close)))

/* Hand over: the variable forgets what it held, the value is the new owner's. */
static inline int take_fd(int *fd)
{
    int taken = *fd;

    *fd = -1;
    return taken;
}

#define take_ptr(p)                                                                                \
    ({                                                                                             \
        __typeof__(p) *slot_ = &(p);                                                               \
        __typeof__(p) taken_ = *slot_;                                                             \
        *slot_ = NULL;                                                                             \
        taken_;                                                                                    \
    })

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

/* The object that a member is embedded in. */
#define container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

struct budget; /* cove/budget.h */

/*
 * Arena: memory of one request, freed whole after the reply. Never returns NULL: running out of
 * memory for a request's own small objects ends the process, which costs that worker's requests
 * only; what a client can make large goes into a buf, which has a ceiling and can fail. With a budget
 * an arena is counted there, and whoever decodes a client's text into it looks at `starved` afterwards.
 */
struct arena {
    struct arena_block *blocks;
    size_t bytes;          /* of all blocks */
    struct budget *budget; /* NULL = not counted */
    bool starved;          /* the budget was overdrawn for it */
};

void *arena_alloc(struct arena *a, size_t size); /* zeroed */
/* From now on the arena's memory is counted in this budget. */
void arena_within(struct arena *a, struct budget *budget);
char *arena_strdup(struct arena *a, const char *s);
char *arena_strndup(struct arena *a, const char *s, size_t len);
char *arena_printf(struct arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void arena_done(struct arena *a);

#endif
