#pragma once
/* Shared by session.c (the loop, input, signals) and session_stream.c (the process's output). */

#include "cli/session.h"

#include "base/buf.h"

#define SESSION_ENVELOPE_MAX (8u << 20) /* bytes of one, its head not counted */

/* A call beside the stream: at most one of input and one of control at a time. */
struct side_call {
    struct api_easy easy;
    bool active;
    char *body;
};

/* A process that runs. */
struct session {
    struct api *api;
    const struct session_spec *spec;
    struct err *e;
    struct api_easy stream;
    struct buf in;    /* bytes of envelopes that are not whole yet */
    struct buf plain; /* body of an answer that is not a stream */
    struct side_call input, control;
    bool started, ended, stream_done, in_done, close_wanted, resize_wanted;
    bool in_line; /* the last byte of the input that was sent ended no line */
    bool broken_pipe;
    uint32_t pid;
    int status;
    char why[320]; /* its end, where there is more to say than its status; the agent's text */
    int signals_seen, first_signal;
    const char *signal_wanted; /* "SIGNAL_SIGTERM" until it is sent */
    uint64_t in_bytes, out_bytes;
    int signal_fd;
};

/* Takes the whole envelopes of s->in (Connect's framing): output is written, how it started and
 * ended is noted. 0; -EBADMSG or -EMSGSIZE for what no server sends. */
int session_take_envelopes(struct session *s);

/* body as one envelope; NULL when memory is out. The caller frees it. */
char *session_pack_envelope(const json_t *body, size_t *len);
