#pragma once
/* A program in a sandbox, to its end or as a stream. */

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TOOLBOX_OUTPUT_MAX (8u * 1024u * 1024u) /* a program's: collect.h says what it takes */
#define TOOLBOX_RUN_MAX_MS 86400000u
#define TOOLBOX_ARGS_MAX   96

struct toolbox_call;
struct toolbox_run_op; /* run.c */

struct toolbox_result {
    int exit_code;      /* -1: none */
    const char *out[2]; /* NUL-terminated */
    size_t len[2];
    bool truncated, timed_out;
    const char *reason; /* why it was killed: "out of memory: ..."; NULL: not known */
};

struct toolbox_run {
    /* the tag of a program that runs already; NULL: it is started by what follows */
    const char *attach;
    const char *argv[TOOLBOX_ARGS_MAX]; /* ends with NULL */
    const json_t *envs;                 /* borrowed; NULL: none */
    const char *cwd;                    /* NULL or "": the home */
    const char *tag;                    /* NULL: none */
    uint64_t timeout_ms;                /* 0: none */
    bool stdin_open;                    /* it can be written to later, by its tag */
    uint16_t cols, rows;                /* of a terminal; 0: it has none */
    /* A token that stands, after a record separator and before " EXIT\n", at the end of what is of
     * interest: with it the program counts as ended, though what it left behind may still hold its
     * outputs. After " 137\n" its end, which says why it was killed, is waited for for a moment:
     * the program has to exit with that status. NULL: at its end. */
    const char *token;
    /* NULL: kept for done. False ends the wait, and done is told so (ERR_CANCELED); the program
     * goes on. */
    bool (*on_output)(void *arg, int which, const char *bytes, size_t len);
    /* It runs; op is valid until done. May be NULL. */
    void (*on_started)(void *arg, struct toolbox_run_op *op, int64_t pid);
    /* Exactly once, perhaps from inside. why: it was not started, or the connection broke. */
    void (*done)(void *arg, const struct toolbox_result *r, const struct err *why);
    void *arg;
};

void toolbox_run(struct toolbox_call *c, const struct toolbox_run *r);

/* From on_output and later: output waits in the sandbox until it is resumed. */
void toolbox_run_pause(struct toolbox_run_op *op, bool pause);

/* Letters, digits and a NUL: unknown to whatever runs in a sandbox. */
#define TOOLBOX_TOKEN_SIZE 33
void toolbox_token(char out[static TOOLBOX_TOKEN_SIZE]);

/* `sh -c script sh ARGS...`: args ends with NULL. */
void toolbox_script(struct toolbox_run *r, const char *script, const char *const *args);
