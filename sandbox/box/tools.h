/* Small calls to the system that the privileged files need. */
#ifndef COVE_BOX_TOOLS_H
#define COVE_BOX_TOOLS_H

#include <stdint.h>
#include <sys/types.h>

#include "cove/err.h"
#include "cove/file.h"

uint64_t process_start_time(pid_t pid); /* clock ticks since boot, 0 if there is no such process */
int resolve_user(const char *name_or_number, uid_t *ret_uid, gid_t *ret_gid, struct cove_err *e);
int resolve_group(const char *name_or_number, gid_t *ret, struct cove_err *e);
int fd_raise(int fd, int least); /* moves it to a number of at least `least`, if one is free */
void title_init(int argc, char **argv);
void title_set(const char *title);

#endif
