/* GET /metrics, in Prometheus' text format. */
#ifndef COVE_FCGI_METRICS_H
#define COVE_FCGI_METRICS_H

#include "fcgi/router.h"

extern const struct dialect metrics_dialect;

/* All of it; core->meters and core->state must be there. */
struct core;
void metrics_print(const struct core *core, struct buf *out);

#endif
