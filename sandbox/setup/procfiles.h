/* Files that stand in for some of /proc's. */
#ifndef COVE_SETUP_PROCFILES_H
#define COVE_SETUP_PROCFILES_H

#include "cove/err.h"

enum { PROC_DIR_MODE = 0755 };
#define PROC_DIR ".proc" /* below /dev: files that stand in for some of /proc's */

/* To be called when /proc and /dev are there: makes these files, puts them in place, and hides the entries of /proc that are not
 * for sandboxes. */
int procfiles_setup(struct cove_err *e);

#endif
