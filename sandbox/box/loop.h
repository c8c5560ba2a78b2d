/* Loop devices: files that stand in for disks. */
#ifndef COVE_BOX_LOOP_H
#define COVE_BOX_LOOP_H

#include "cove/err.h"

enum { LOOP_PATH_MAX = 32 };

/* Attaches a file to a free device. The device lets go of the file when the last descriptor (*ret_fd is one) and
 * the last mount are gone. */
int loop_attach(int image, int *ret_number, int *ret_fd, struct cove_err *e);
/* Finds the device that is attached to this file; -1 if there is none. */
int loop_find(int image, int *ret_number, int *ret_fd);
void loop_path(int number, char out[LOOP_PATH_MAX]);
/* Removes the device itself: each sysinfo() call of the host walks all block devices. Waits for the device's last
 * user, at most two seconds. */
void loop_remove(int number);

#endif
