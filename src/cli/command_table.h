#pragma once
/* The macros that the tables of commands are written with. A group of commands is an array in a
 * file of its own, commands_*.c, that ends with an entry without a name; commands.c lists the
 * groups in the order that help shows them in. Only those files include this. */

#include "cli/cli.h"

#define OPTIONS(...)            \
    (const struct cli_option[]) \
    {                           \
        __VA_ARGS__,            \
        {                       \
            0                   \
        }                       \
    }
#define EXAMPLES(...)            \
    (const struct cli_example[]) \
    {                            \
        __VA_ARGS__,             \
        {                        \
            0                    \
        }                        \
    }

#define OPTION_QUIET                                             \
    {                                                            \
        'q', "quiet", NULL, "Say only what was asked for.", NULL \
    }

extern const struct cli_command commands_server[];
extern const struct cli_command commands_sandbox[];
extern const struct cli_command commands_policy[];
extern const struct cli_command commands_access[];
