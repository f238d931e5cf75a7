#include "base/env_name.h"

#include <string.h>

bool env_name_is_valid(const char *name)
{
    return name[0] != '\0' && !strchr(name, '=');
}
