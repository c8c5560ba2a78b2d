/* The cage of workers and judge, for the day somebody finds a hole in its parsers. */
#ifndef COVE_FCGI_CONFINE_H
#define COVE_FCGI_CONFINE_H

#include "cove/err.h"

/* After all is set up and before the first thread starts: threads inherit it, nothing takes it off
 * again. */
int confine_self(const char *run_dir, struct cove_err *e);
/* The resolver: sockets of the internet families and no others, no file at all. */
int confine_resolver(struct cove_err *e);
int confine_files(const char *run_dir,
                  struct cove_err *e); /* part of it: Landlock; NULL: no file at all */

#endif
