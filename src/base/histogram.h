#pragma once
/* How often something took how long, in classes whose bounds double: 0.5 ms, 1 ms, ... 16 s, and
 * above. A plain struct without ownership; the thread that adds is the one that reads. */

#include <stdint.h>

#define HISTOGRAM_CLASSES 17u /* the last has no upper bound */

struct histogram {
    uint64_t count, sum_us;
    uint64_t classes[HISTOGRAM_CLASSES]; /* each alone, not those below it too */
};

void histogram_add(struct histogram *h, uint64_t took_us);

/* The largest time that class i counts, in us. i < HISTOGRAM_CLASSES - 1. */
uint64_t histogram_bound_us(unsigned i);
