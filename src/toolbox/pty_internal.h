#pragma once
/* Shared by the two files of terminals. */

#include "toolbox/call.h"
#include "toolbox/pty.h"

#include <jansson.h>

struct err;
struct toolbox_run;

#define PTY_TAG      "daytona-pty-"
#define PTY_ID_SIZE  129
#define PTY_TAG_SIZE (sizeof(PTY_TAG) + PTY_ID_SIZE)
#define PTY_SIZE_MAX 1000 /* columns and rows */

struct pty_shape {
    char id[PTY_ID_SIZE];
    char cwd[TOOLBOX_PATH_SIZE];
    json_t *envs; /* borrowed; NULL: none */
    int64_t cols, rows;
};

bool pty_is_id(const char *id);
void pty_tag(const char *id, char out[static PTY_TAG_SIZE]);

/* Fills r with the shell of a new terminal. r's arguments point into words, which lives as long as
 * r. */
struct pty_words {
    char tag[PTY_TAG_SIZE], cols[8], rows[8], created[40];
    json_t *envs;
};
void pty_fill(const struct pty_shape *s, struct pty_words *words, struct toolbox_run *r);

/* Is there a terminal of that id? done(arg, info or NULL, why): info is borrowed, as clients see
 * it. */
void pty_find(struct toolbox_call *c, const char *id,
              void (*done)(void *arg, const json_t *info, const struct err *why), void *arg);
