#pragma once
/* May this sandbox be made, and of what? */

#include "core/core.h"

struct snapshot;
struct template_info;

/* Fills in what r leaves to the snapshot that it names. *asked and *used: the template that was
 * named, and the one that stands in for it; of a snapshot (*snapshot, else unchanged) the one that
 * it lies on. They live as long as core's turn of the loop. Counts a create of the tenant's rate
 * when, and only when, ERR_OK. */
enum err_code create_check(struct core *c, struct sandbox_request *r,
                           const struct snapshot **snapshot, const struct template_info **requested,
                           const struct template_info **used, struct err *e);
