#include "api/daytona_fields.h"

#include <stdint.h>
#include <string.h>

enum err_code daytona_check_fields(const json_t *body, const char *const *known, size_t n,
                                   struct err *e)
{
    const char *name;
    json_t *value;

    json_object_foreach ((json_t *)(uintptr_t)body, name, value) {
        size_t i = 0;

        while (i < n && strcmp(known[i], name) != 0)
            i++;
        if (i == n)
            return err_set(e, ERR_INVALID, "property %.64s should not exist", name);
    }
    return ERR_OK;
}
