#pragma once
/* Reads the output of a program that an agent runs, as it comes: the answer of
 * process.Process/Start (agent/process/proc.h; Connect's server stream with JSON,
 * http/connect_rpc.h) taken apart. The output is kept up to a maximum, and the rest is dropped. The
 * sender is inside a sandbox: every size is bounded, and any other answer ends the stream. Pure but
 * for memory. */

#include "base/buf.h"

#include <stdbool.h>

/* Bytes of one message. An agent's have 44 KiB: 32 KiB of output in base64. A message whose head
 * announces more is refused at the head, before any of it is held. */
#define EXEC_MESSAGE_MAX (128u * 1024u)

enum { EXEC_STDOUT, EXEC_STDERR }; /* a terminal's output is EXEC_STDOUT */

/* Told each piece of output, in its order. False: no reader wants more, and the stream is at its
 * end. */
typedef bool (*exec_output_cb)(void *arg, int which, const char *bytes, size_t len);

struct exec_stream {
    exec_output_cb output; /* NULL: it is kept */
    void *arg;
    struct buf in;     /* an envelope in the making */
    struct buf out[2]; /* output that is kept, by EXEC_STDOUT, EXEC_STDERR */
    size_t left;       /* bytes of output that are still kept */
    bool truncated;    /* there was more */
    bool started;      /* pid is known */
    bool ended;        /* how it ended is known: exit_code, or signal */
    bool over;         /* the last envelope has come */
    int64_t pid;       /* as seen inside */
    int exit_code;     /* -1: by a signal */
    char signal[24];   /* "SIGKILL", "signal 40"; "" without */
    char reason[256]; /* why it ended so, where the agent knows it: "out of memory: ..."; else "" */
    char error[32];   /* Connect's code, "deadline_exceeded"; "" without */
    char message[256]; /* of that error */
};

/* max_output: bytes of both outputs together. */
void exec_stream_init(struct exec_stream *s, size_t max_output);
void exec_stream_free(struct exec_stream *s);

/* False: it is no such answer, or memory is out. */
bool exec_stream_feed(struct exec_stream *s, const char *data, size_t len) WARN_UNUSED;
