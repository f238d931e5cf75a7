#pragma once
/* Configuration: one INI file (inih) and command-line options from one table.
 *
 * Every key is also an option: [listen] port = 3000 is --listen-port=3000. Unknown sections,
 * unknown keys, wrong types and values out of range refuse to start, with file, line, what was
 * found and what is allowed. The table is also the source of the help text, the man page and the
 * commented example file, so that they cannot differ from what is read.
 *
 * A program fills a struct with defaults by config_defaults, then config_load_file, then
 * config_load_args; later ones win. Strings are malloc'd copies freed by config_free. Blocks on
 * file reads only. */

#include "base/err.h"

#include <stdbool.h>
#include <stdio.h>

enum config_type {
    CONFIG_STRING, /* char * */
    CONFIG_BOOL,   /* bool: true false yes no on off 1 0 */
    CONFIG_INT,    /* int64_t within [min, max] */
    CONFIG_BYTES,  /* uint64_t with optional K, M, G, T (powers of 1024) within [min, max] */
    CONFIG_TIME_MS /* uint64_t from 500ms, 30s, 5m, 1h, 2d; a bare number is seconds */
};

struct config_key {
    const char *section; /* "listen" */
    const char *key;     /* "port" */
    enum config_type type;
    size_t offset;       /* of the field in the caller's struct */
    const char *initial; /* default, in the file's syntax; NULL for an absent string */
    int64_t min, max;    /* inclusive; ignored for strings and booleans */
    const char *meta;    /* "PORT": what help shows for the value */
    const char *help;    /* one sentence */
};

/* keys is an array that ends with an entry whose section is NULL. */
enum err_code config_defaults(const struct config_key *keys, void *out, struct err *e);

/* A missing file is ERR_NOT_FOUND, and the caller decides whether that matters. */
enum err_code config_load_file(const struct config_key *keys, const char *path, void *out,
                               struct err *e);

/* Consumes --section-key=value and --section-key value (booleans also alone, and --no-...), in
 * place; *argc and argv keep the rest, argv[0] included, in order. Stops at "--". An option that is
 * not in the table stays. */
enum err_code config_load_args(const struct config_key *keys, int *argc, char **argv, void *out,
                               struct err *e);

void config_free(const struct config_key *keys, void *values);

/* The whole table as a commented example file / as help lines / as man page source (mdoc). */
void config_print_example(const struct config_key *keys, FILE *out);
void config_print_help(const struct config_key *keys, FILE *out);
void config_print_mdoc(const struct config_key *keys, FILE *out);

/* The single value parsers, for options outside a table. */
int config_parse_bytes(const char *text, uint64_t *out);
int config_parse_time_ms(const char *text, uint64_t *out);
