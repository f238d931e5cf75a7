#pragma once
/* HTTP CONNECT on the listener (RFC 9110 9.3.6). */

#include <stddef.h>

struct flow;

#define CONNECT_HEAD_MAX 16384u

/* f has just begun with a CONNECT line. */
void connect_start(struct flow *f);

/* f->up_fd is dialled, or f is to be looked at first: says so to the client, goes on. */
void connect_connected(struct flow *f);

/* Answers with this status and JSON body, and ends the flow. */
void connect_refuse(struct flow *f, int status, const char *rule, const char *message,
                    const char *body, size_t n);
