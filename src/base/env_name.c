#include "base/env_name.h"

bool env_name_is_valid(const char *name)
{
    for (const char *c = name; *c; c++)
        if (*c == '=' || (unsigned char)*c < ' ' || *c == 0x7f)
            return false;
    return name[0] != '\0';
}
