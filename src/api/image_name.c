#include "api/image_name.h"

#include <string.h>

const char *image_name_of(const struct image_name *rows, size_t n, const char *image)
{
    for (size_t i = 0; i < n; i++) {
        size_t len = strlen(rows[i].image);

        if (strncmp(image, rows[i].image, len) == 0 && (!image[len] || image[len] == ':'))
            return rows[i].name;
    }
    return image;
}
