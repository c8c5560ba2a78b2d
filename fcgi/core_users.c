/* Lines of /etc/passwd ("name:x:uid:gid:gecos:home:shell") and /etc/group ("name:x:gid:..."). */
#include "fcgi/core_users.h"

#include <stdlib.h>
#include <string.h>

enum { FILE_MAX = 256 * 1024, FIELDS_MAX = 7 };

static int load(struct core_session *s, struct arena *a, const char *path, const char **ret,
                struct cove_err *e)
{
    struct buf text;
    int rc;

    buf_init(&text, FILE_MAX);
    rc = core_file_read(s, "root", path, &text, e);
    *ret = arena_strndup(a, text.data ? text.data : "", rc < 0 ? 0 : text.len);
    buf_done(&text);
    return rc < 0 && e->code == COVE_GONE ? -1 : 0;
}

int core_users_load(struct core_session *s, struct arena *a, struct core_users *ret,
                    struct cove_err *e)
{
    if (load(s, a, "/etc/passwd", &ret->passwd, e) < 0)
        return -1;
    return load(s, a, "/etc/group", &ret->group, e);
}

struct line {
    const char *fields[FIELDS_MAX];
    size_t lens[FIELDS_MAX];
    size_t count;
};

static const char *next_line(const char *at, struct line *ret)
{
    ret->count = 0;
    if (!*at)
        return NULL;
    while (ret->count < FIELDS_MAX) {
        size_t len = strcspn(at, ":\n");

        ret->fields[ret->count] = at;
        ret->lens[ret->count++] = len;
        at += len;
        if (*at != ':')
            break;
        at++;
    }
    at += strcspn(at, "\n");
    return *at ? at + 1 : at;
}

static bool is_name(const struct line *l, const char *name)
{
    return l->lens[0] == strlen(name) && strncmp(l->fields[0], name, l->lens[0]) == 0;
}

static uint32_t number(const struct line *l, size_t field)
{
    return (uint32_t)strtoul(l->fields[field], NULL, 10);
}

int core_user_find(const struct core_users *u, struct arena *a, const char *name,
                   struct core_user *ret, struct cove_err *e)
{
    struct line l;

    for (const char *at = u->passwd; (at = next_line(at, &l));) {
        if (l.count < 6 || !is_name(&l, name))
            continue;
        *ret = (struct core_user){
            .uid = number(&l, 2),
            .gid = number(&l, 3),
            .home = l.fields[5][0] == '/' ? arena_strndup(a, l.fields[5], l.lens[5]) : "/",
        };
        return 0;
    }
    if (strcmp(name, "root") != 0)
        return cove_fail(e, COVE_UNAUTHORIZED, "invalid username: '%.64s'", name);
    *ret = (struct core_user){ .home = "/root" };
    return 0;
}

static const char *name_of(const char *text, struct arena *a, uint32_t id)
{
    struct line l;

    for (const char *at = text; (at = next_line(at, &l));)
        if (l.count >= 3 && l.lens[2] > 0 && number(&l, 2) == id)
            return arena_strndup(a, l.fields[0], l.lens[0]);
    return arena_printf(a, "%u", id);
}

const char *core_user_name(const struct core_users *u, struct arena *a, uint32_t uid)
{
    return name_of(u->passwd, a, uid);
}

const char *core_group_name(const struct core_users *u, struct arena *a, uint32_t gid)
{
    return name_of(u->group, a, gid);
}
