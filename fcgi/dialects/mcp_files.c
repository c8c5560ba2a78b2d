/* Files: written whole, listed, moved, deleted. mcp_read.c reads them, mcp_edit.c changes parts of them. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fcgi/dialects/mcp.h"

enum { ENTRIES_MAX = 1000 };

struct file_args {
    const char *path, *to;
    struct json_text content;
    bool overwrite, recursive;
};

static const struct mcp_about about[] = {
    { "path", "Absolute path, or one that begins in the home directory." },
    { "to", "The new path." },
    { "content", "The text of the whole file." },
    { "overwrite", "Replace what is there at the new path. Default: false." },
    { "recursive", "Delete a directory with all that is in it. Default: false." },
    { "size_bytes", "The size of the whole file." },
    { "bytes", "How many bytes were written." },
    { "entries", "What is in the directory, sorted by name." },
    { "name", "Its name in the directory." },
    { "type", "file, directory, link or other." },
    { "truncated", "True: there is more than is listed." },
    { NULL, NULL },
};

/* ------------------------------------------------------------------ write_file */

static const struct json_field write_fields[] = {
    JSON_STR(struct file_args, path, "path", JSON_REQUIRED, MSG_PATH_MAX - 1),
    JSON_TEXT(struct file_args, content, "content", JSON_REQUIRED, JSON_ANY),
    JSON_END,
};

struct write_result {
    const char *path;
    int64_t bytes;
};

static const struct json_field write_result_fields[] = {
    JSON_STR(struct write_result, path, "path", JSON_REQUIRED, JSON_ANY),
    JSON_INT(struct write_result, bytes, "bytes", JSON_REQUIRED, 0, INT64_MAX),
    JSON_END,
};

static int write_file(struct mcp_call *c, const void *args, struct cove_err *e)
{
    const struct file_args *a = args;
    struct core_session s;
    int rc;

    if (mcp_open(c, &s, e) < 0)
        return -1;
    rc = core_file_put(&s, core_default_user(&s), a->path, true, a->content.bytes, a->content.len,
                       e);
    core_session_close(&s);
    if (rc < 0)
        return -1;
    return mcp_replyf(c, write_result_fields,
                      &(struct write_result){ a->path, (int64_t)a->content.len },
                      "Wrote %zu bytes to %.400s", a->content.len, a->path);
}

const struct mcp_tool mcp_tool_write = {
    .name = "write_file",
    .title = "Write a file",
    .description = "Write a text file, new or in place of the old one; missing directories are "
                   "made. To change a part "
                   "of a file use edit_file.",
    .hints = MCP_DESTROYS | MCP_REPEATS,
    .args = write_fields,
    .args_size = sizeof(struct file_args),
    .result = write_result_fields,
    .about = about,
    .run = write_file,
};

/* ------------------------------------------------------------------ list_files */

static const struct json_field path_fields[] = {
    JSON_STR(struct file_args, path, "path", JSON_REQUIRED, MSG_PATH_MAX - 1),
    JSON_END,
};

struct entry {
    const char *name, *type;
    int64_t size;
};

static const struct json_field entry_fields[] = {
    JSON_STR(struct entry, name, "name", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct entry, type, "type", JSON_REQUIRED, JSON_ANY),
    JSON_INT(struct entry, size, "size_bytes", JSON_REQUIRED, 0, INT64_MAX),
    JSON_END,
};

struct entries {
    struct arena *arena;
    struct entry *items;
    struct json_array list;
    bool truncated;
};

static const struct json_field entries_fields[] = {
    JSON_OBJECTS(struct entries, list, struct entry, "entries", JSON_REQUIRED, entry_fields,
                 ENTRIES_MAX),
    JSON_BOOL(struct entries, truncated, "truncated", JSON_REQUIRED),
    JSON_END,
};

static const char *type_of(uint32_t mode)
{
    return S_ISREG(mode) ? "file" : S_ISDIR(mode) ? "directory" : S_ISLNK(mode) ? "link" : "other";
}

static int add_entry(void *arg, const char *name, const struct box_stat *st, const char *target)
{
    struct entries *all = arg;

    (void)target;
    all->truncated = all->list.count == ENTRIES_MAX;
    if (all->truncated)
        return 1;
    all->items[all->list.count++] = (struct entry){
        .name = arena_strdup(all->arena, name),
        .type = type_of(st->mode),
        .size = S_ISREG(st->mode) ? (int64_t)(st->bytes & INT64_MAX) : 0,
    };
    return 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct entry *)a)->name, ((const struct entry *)b)->name);
}

static int list_files(struct mcp_call *c, const void *args, struct cove_err *e)
{
    const struct file_args *a = args;
    struct entries all = { .arena = &c->req->arena };
    AUTO_BUF struct buf text = BUF(ENTRIES_MAX * 300);
    struct core_session s;
    int rc;

    all.list.items = all.items = arena_alloc(all.arena, ENTRIES_MAX * sizeof(*all.items));
    if (mcp_open(c, &s, e) < 0)
        return -1;
    rc = box_list(&s.conn, core_default_user(&s), a->path, add_entry, &all, e);
    core_session_close(&s);
    if (rc < 0)
        return -1;
    qsort(all.items, all.list.count, sizeof(*all.items), by_name);
    for (size_t i = 0; i < all.list.count; i++)
        buf_addf(&text, "%s%s\n", all.items[i].name, *all.items[i].type == 'd' ? "/" : "");
    if (all.list.count == 0)
        buf_add_str(&text, "The directory is empty.");
    if (all.truncated)
        buf_add_str(&text, "[there are more]");
    return mcp_reply(c, text.data, text.len, entries_fields, &all);
}

const struct mcp_tool mcp_tool_list = {
    .name = "list_files",
    .title = "List a directory",
    .description = "List what is in a directory, up to 1000 entries. For names in a whole tree use "
                   "find_files.",
    .hints = MCP_READS,
    .args = path_fields,
    .args_size = sizeof(struct file_args),
    .result = entries_fields,
    .about = about,
    .run = list_files,
};

/* ------------------------------------------------------------------ changes */

static const struct json_field changed_fields[] = {
    JSON_STR(struct file_args, path, "path", JSON_REQUIRED, JSON_ANY),
    JSON_END,
};

typedef int change(struct core_session *s, const struct file_args *a, struct cove_err *e);

static int make_change(struct mcp_call *c, const struct file_args *a, change *verb,
                       const char *done, const char *path, struct cove_err *e)
{
    struct core_session s;
    int rc;

    if (mcp_open(c, &s, e) < 0)
        return -1;
    rc = verb(&s, a, e);
    core_session_close(&s);
    if (rc < 0)
        return -1;
    return mcp_replyf(c, changed_fields, &(struct file_args){ .path = path }, "%s: %.400s", done,
                      path);
}

static int do_mkdir(struct core_session *s, const struct file_args *a, struct cove_err *e)
{
    return core_make_dir(s, core_default_user(s), a->path, e);
}

static int make_directory(struct mcp_call *c, const void *args, struct cove_err *e)
{
    return make_change(c, args, do_mkdir, "Made the directory",
                       ((const struct file_args *)args)->path, e);
}

const struct mcp_tool mcp_tool_mkdir = {
    .name = "make_directory",
    .title = "Make a directory",
    .description = "Make a directory, with those above it. One that is there already is fine.",
    .hints = MCP_REPEATS,
    .args = path_fields,
    .args_size = sizeof(struct file_args),
    .result = changed_fields,
    .about = about,
    .run = make_directory,
};

static const struct json_field move_fields[] = {
    JSON_STR(struct file_args, path, "path", JSON_REQUIRED, MSG_PATH_MAX - 1),
    JSON_STR(struct file_args, to, "to", JSON_REQUIRED, MSG_PATH_MAX - 1),
    JSON_BOOL(struct file_args, overwrite, "overwrite", JSON_OPTIONAL),
    JSON_END,
};

static int do_move(struct core_session *s, const struct file_args *a, struct cove_err *e)
{
    struct box_file args = { .flags = a->overwrite ? 0 : FILE_NOREPLACE };

    if (box_file_change(&s->conn, BOX_RENAME, core_default_user(s), a->path, a->to, &args, e) == 0)
        return 0;
    if (e->code == COVE_CONFLICT)
        return cove_fail(e, COVE_CONFLICT,
                         "to: '%.120s' exists already; set overwrite to replace it", a->to);
    return -1;
}

static int move(struct mcp_call *c, const void *args, struct cove_err *e)
{
    return make_change(c, args, do_move, "Moved to", ((const struct file_args *)args)->to, e);
}

const struct mcp_tool mcp_tool_move = {
    .name = "move_file",
    .title = "Move or rename",
    .description = "Move or rename a file or a directory.",
    .hints = MCP_DESTROYS,
    .args = move_fields,
    .args_size = sizeof(struct file_args),
    .result = changed_fields,
    .about = about,
    .run = move,
};

static const struct json_field delete_fields[] = {
    JSON_STR(struct file_args, path, "path", JSON_REQUIRED, MSG_PATH_MAX - 1),
    JSON_BOOL(struct file_args, recursive, "recursive", JSON_OPTIONAL),
    JSON_END,
};

static int do_delete(struct core_session *s, const struct file_args *a, struct cove_err *e)
{
    struct box_stat st;

    if (box_file_stat(&s->conn, core_default_user(s), a->path, FILE_NOFOLLOW, &st, e) < 0)
        return -1;
    if (!S_ISDIR(st.mode))
        return core_remove(s, core_default_user(s), a->path, 0, e);
    if (!a->recursive)
        return cove_fail(
            e, COVE_INVALID,
            "'%.120s' is a directory; set recursive to delete it with all that is in it", a->path);
    return core_remove(s, core_default_user(s), a->path, FILE_DIR | FILE_RECURSIVE, e);
}

static int delete (struct mcp_call *c, const void *args, struct cove_err *e)
{
    return make_change(c, args, do_delete, "Deleted", ((const struct file_args *)args)->path, e);
}

const struct mcp_tool mcp_tool_delete = {
    .name = "delete_file",
    .title = "Delete",
    .description = "Delete a file, or with `recursive` a directory and all that is in it.",
    .hints = MCP_DESTROYS,
    .args = delete_fields,
    .args_size = sizeof(struct file_args),
    .result = changed_fields,
    .about = about,
    .run = delete,
};
