/* Loop devices: files that stand in for disks. */
#ifndef COVE_BOX_LOOP_H
#define COVE_BOX_LOOP_H

#include "cove/err.h"

enum { LOOP_PATH_MAX = 32 };

/* Attach a file to a free device. *ret_fd keeps the device; it lets go of the file when the last
 * descriptor and the last mount are gone. */
int loop_attach(int image, int *ret_number, int *ret_fd, struct cove_err *e);
/* The device that stands for this file already; -1 if there is none. */
int loop_find(int image, int *ret_number, int *ret_fd);
void loop_path(int number, char out[LOOP_PATH_MAX]);
/* Take the device itself away once nobody uses it: every block device that is there costs each
 * sysinfo() of the host a step. Waits for its last user, at most two seconds. */
void loop_remove(int number);

#endif
