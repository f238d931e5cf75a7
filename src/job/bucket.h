#pragma once
/* JOB_BUCKET_PUT, JOB_BUCKET_GET, JOB_BUCKET_SWEEP (contract/bucket.h). The working directory is
 * <state>/disk/templates. 0 or -errno, whose reason is said. */

#include <stdint.h>

int bucket_put(uint32_t number);
int bucket_get(uint32_t number);
int bucket_sweep(uint32_t number);
