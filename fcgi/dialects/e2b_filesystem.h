/* The filesystem service between its files: e2b_filesystem.c, e2b_entry.c, e2b_watch.c. */
#ifndef COVE_FCGI_E2B_FILESYSTEM_H
#define COVE_FCGI_E2B_FILESYSTEM_H

#include "fcgi/dialects/e2b.h"
#include "fcgi/proto/filesystem.pb-c.h"

/* `path` and `target` live as long as the entry. */
Filesystem__EntryInfo *entry_make(struct envd *d, const char *path, const struct box_stat *st,
                                  const char *target);
void entry_add_metadata(struct envd *d, Filesystem__EntryInfo *entry);
/* What is at that path; of a link, the link with what it leads to. */
int entry_stat(struct envd *d, const char *path, Filesystem__EntryInfo **ret, struct cove_err *e);

rpc_handler e2b_watch_dir, e2b_watcher_create, e2b_watcher_events,
    e2b_watcher_remove; /* e2b_watch.c */

#endif
