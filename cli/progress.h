/* A line on the terminal that tells how far long work has come. Without a terminal nothing is written. */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

bool progress_is_seen(void); /* is there a terminal? */
/* A bar with the share that is done; where total is 0, how many bytes were done. */
void progress_show(const char *what, uint64_t done, uint64_t total);
void progress_clear(void);

/* For work that reports no progress: after the first second the line shows the seconds. */
void progress_clock_start(const char *what);
void progress_clock_stop(void);

#endif
