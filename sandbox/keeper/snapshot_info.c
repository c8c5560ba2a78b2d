/* The file `info` of a snapshot: its record, with a word and its value on each line. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cove/buf.h"
#include "cove/file.h"
#include "cove/mem.h"
#include "cove/record.h"
#include "cove/text.h"
#include "sandbox/keeper/snapshots.h"

enum { INFO_BYTES_MAX = 2048 };

static const struct record_field fields[] = {
    RECORD(struct snapshot, info.tenant, RECORD_TEXT, "tenant"),
    RECORD(struct snapshot, info.name, RECORD_TEXT, "name"),
    RECORD(struct snapshot, info.tags, RECORD_TEXT, "tags"),
    RECORD(struct snapshot, info.build, RECORD_TEXT, "build"),
    RECORD(struct snapshot, info.sandbox, RECORD_TEXT, "sandbox"),
    RECORD(struct snapshot, info.template, RECORD_TEXT, "template"),
    RECORD(struct snapshot, parent, RECORD_TEXT, "parent"),
    RECORD(struct snapshot, info.created_unix_ms, RECORD_U64, "created"),
    RECORD(struct snapshot, info.bytes, RECORD_U64, "bytes"),
    RECORD(struct snapshot, info.flags, RECORD_U32, "flags"),
    { 0 },
};

/* Writes a new file and renames it over the old one, so that a record is always whole. */
int snapshot_info_write(int dir, const struct snapshot *s, struct cove_err *e)
{
    AUTO_CLOSE int fd = openat(dir, "info.new", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    AUTO_BUF struct buf text = BUF(INFO_BYTES_MAX);

    record_write(fields, s, &text);
    if (fd < 0 || write(fd, text.data, text.len) != (ssize_t)text.len ||
        renameat(dir, "info.new", dir, "info") < 0)
        return cove_fail_errno(e, errno == ENOSPC ? COVE_LIMIT : COVE_INTERNAL,
                               "record of the snapshot");
    return 0;
}

bool snapshot_info_read(int dir, struct snapshot *s)
{
    char text[INFO_BYTES_MAX], *rest = text, *line;

    if (read_file_at(dir, "info", text, sizeof(text)) <= 0)
        return false;
    while ((line = strsep(&rest, "\n")))
        record_read_line(fields, line, s, NULL);
    if (s->info.name[0] && !s->info.tags[0]) /* written by a version that knew no tags */
        text_copy(s->info.tags, sizeof(s->info.tags), COVE_TAG_DEFAULT);
    return true;
}
