#include "base/heap.h"

#include <malloc.h>

#define KEPT_BYTES (1 << 20)

void heap_bound_kept(void)
{
    mallopt(M_MMAP_THRESHOLD, KEPT_BYTES);
    mallopt(M_TRIM_THRESHOLD, KEPT_BYTES);
}

void heap_give_back(void)
{
    malloc_trim(0);
}
