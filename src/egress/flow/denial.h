#pragma once
/* One refusal as JSON. Pure. */

#include "egress/flow/egress.h"

/* Free with json_decref; NULL when memory is out. */
json_t *denial_json(const struct denial *d);
