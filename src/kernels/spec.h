#pragma once
/* Kernel specifications: <dir>/<name>/kernel.json with argv, env and interrupt_mode. Source:
 * jupyter_client docs, "Making kernels for Jupyter", section "Kernel specs". They are the
 * template's own files; a broken one makes its language unavailable, with the reason. */

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>

#define SPEC_NAME_MAX      64
#define SPEC_BYTES_MAX     65536u
#define SPEC_ARGV_MAX      32u
#define SPEC_SETTLE_MAX_MS 1000u

struct spec {
    json_t *object;           /* owned */
    bool interrupt_by_signal; /* else by a message on the control channel */
    /* metadata.cay_settle_ms: a result may come so long after "idle", as with Deno's kernel (2.9),
     * which publishes it by a task of its own */
    unsigned settle_ms;
};

/* The language that a client's name stands for: lower case, trimmed; js, ts and none are known.
 * out[SPEC_NAME_MAX]. false: it cannot be the name of a language. */
bool spec_language(const char *name, char *out);

/* Whether there is a kernel for it in one of dirs (ends with NULL). */
bool spec_exists(const char *const *dirs, const char *language);

/* ERR_NOT_FOUND: no such kernel; ERR_INVALID: a broken file. spec_free follows ERR_OK. */
enum err_code spec_load(const char *const *dirs, const char *language, struct spec *out,
                        struct err *e);
void spec_free(struct spec *s);

/* argv with {connection_file} replaced, ending with NULL; free it and its strings by
 * spec_free_argv. NULL: out of memory. */
char **spec_argv(const struct spec *s, const char *connection_file);
void spec_free_argv(char **argv);
