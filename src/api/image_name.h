#pragma once
/* Images that an SDK names by itself, and the templates that are meant by them here. */

#include <stddef.h>

struct image_name {
    const char *image, *name;
};

/* The name of the first of n rows whose image it is, with any tag; else image itself. */
const char *image_name_of(const struct image_name *rows, size_t n, const char *image);
