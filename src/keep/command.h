#pragma once
/* The command lines of what keep starts, as keep.h says them. */

#include "keep/options.h"
#include "keep/prepare.h"

#define COMMAND_ARGV_MAX  (OPTIONS_ARGS_MAX + 14)
#define COMMAND_TEXT_SIZE 320

struct command {
    char *argv[COMMAND_ARGV_MAX];
    size_t n;
};

struct commands {
    struct command privd, cayd, egress[OPTIONS_EGRESS_MAX];
    char texts[32 + 8 * OPTIONS_EGRESS_MAX][COMMAND_TEXT_SIZE]; /* argv points to them */
    size_t n_texts;
};

/* o and p must live as long as out. */
void command_make_all(const struct options *o, const struct prepared *p, struct commands *out);
