/* GET /metrics, in Prometheus' text format. */
#ifndef COVE_FCGI_METRICS_H
#define COVE_FCGI_METRICS_H

#include "fcgi/router.h"

extern const struct dialect metrics_dialect;

#endif
