/* The manifests of templates, as the keeper published them last. */
#ifndef COVE_PROCESS_MANIFESTS_LIVE_H
#define COVE_PROCESS_MANIFESTS_LIVE_H

#include "cove/manifest.h"
#include "process/live.h"

/* The manifest of a snapshot, which applies instead of its template's; NULL: it has none. The caller
 * frees it. */
struct manifest *manifest_of_snapshot(const char *run_dir, const char *snapshot);

extern const struct live_kind manifests_kind; /* of <run_dir>/manifests; a struct manifests */

#endif
