#include "base/histogram.h"

#define FIRST_BOUND_US 500u

uint64_t histogram_bound_us(unsigned i)
{
    return (uint64_t)FIRST_BOUND_US << i;
}

void histogram_add(struct histogram *h, uint64_t took_us)
{
    unsigned i = 0;

    while (i < HISTOGRAM_CLASSES - 1 && took_us > histogram_bound_us(i))
        i++;
    h->classes[i]++;
    h->count++;
    h->sum_us += took_us;
}
