#pragma once
/* A process in a sandbox, with this program's terminal, pipes and signals put through to it.
 *
 * The output comes as one stream (process.Process/Start); input, signals and window sizes go as
 * calls beside it, one at a time, so that their order is kept. While it runs, SIGINT, SIGTERM,
 * SIGHUP, SIGQUIT and SIGWINCH are taken from a descriptor: the first of them asks the process to
 * end (SIGTERM), the second kills it, the third gives up waiting. */

#include "base/buf.h"
#include "cli/api.h"

struct session_spec {
    const struct api_sandbox *sandbox;
    const json_t *process; /* {cmd, args, envs, cwd} */
    bool pty;
    int in_fd;          /* -1: the process gets no input */
    int out_fd, err_fd; /* -1: thrown away */
    struct buf *errors; /* not NULL: takes what goes to err_fd else, as much as it may hold */
    void (*output)(void *arg, const char *bytes, size_t n); /* not NULL: takes what goes to both */
    void *output_arg;
    /* Not 0: with more than so many bytes of output, or when they cannot be written, the process is
     * killed as if the reader had gone. */
    uint64_t out_max;
    uint64_t timeout_ms;                                                /* 0: none */
    void (*progress)(void *arg, uint64_t in_bytes, uint64_t out_bytes); /* may be NULL */
    void *progress_arg;
};

/* Runs it to its end. Returns the exit status to pass on (enum cli_exit or the command's own) and
 * sets e->code other than ERR_OK when cay or the server failed, or the program could not be
 * started. */
int session_run(struct api *a, const struct session_spec *spec, struct err *e);

/* Blocks the signals that session_run takes, so that none is lost between two steps (create, run,
 * kill); they stay blocked until session_unblock_signals. */
void session_block_signals(void);
void session_unblock_signals(void);

/* Has one of those that end a program come, while they are blocked? */
bool session_signal_waits(void);
