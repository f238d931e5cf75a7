#pragma once
/* Shared by the fuzz targets: a stream of choices taken from the input, and checks that abort. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FUZZ_CHECK(cond)                                               \
    do {                                                               \
        if (!(cond)) {                                                 \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond); \
            abort();                                                   \
        }                                                              \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Piece sizes from a seed: mostly small, sometimes everything. Never 0. */
static inline size_t fuzz_piece(uint32_t *seed, size_t left)
{
    size_t n;

    *seed = *seed * 1664525u + 1013904223u;
    n = (*seed >> 28) == 0 ? left : (*seed >> 24) % 9 + 1;
    return n < left ? n : left;
}
