#pragma once
/* The tables of routes: which handler a request to the toolbox has. */

struct toolbox_call;
typedef void (*toolbox_handler)(struct toolbox_call *c);

enum {
    TOOLBOX_NO_BODY = 1u << 0,  /* it is not read as JSON: there is none, or it is a stream */
    TOOLBOX_TERMINAL = 1u << 1, /* a terminal's WebSocket: see pty_refuse */
    TOOLBOX_SIGNED = 1u << 2,   /* a signed URL opens it too (core/file_url.h): of one file */
};

struct toolbox_route {
    const char *method;  /* "*": any */
    const char *pattern; /* "/process/session/{}/exec"; a star at its end is all that follows */
    toolbox_handler handler;
    unsigned flags;
    const char *note; /* of toolbox_unsupported: the feature, and what to do instead */
};

extern const struct toolbox_route *const toolbox_tables[]; /* ends with NULL */
