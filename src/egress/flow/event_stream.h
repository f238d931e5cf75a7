#pragma once
/* The events that cayd watches by GET /v1/events, as JSON lines. A refusal is told when it happens,
 * of each sandbox at most EVENT_STREAM_PER_SECOND; refusals beyond that, and those while the
 * watcher does not read, are counted, and the number is told a second later: nothing that a sandbox
 * does can make a queue grow here. */

#include <jansson.h>
#include <stdbool.h>

struct denial;
struct egress;
struct sandbox;

#define EVENT_STREAM_PER_SECOND   20u /* refusals of a sandbox */
#define EVENT_STREAM_WATCHERS_MAX 8u

struct event_stream;
struct http_exchange;

/* 0 or -errno. */
int event_stream_new(struct egress *eg, struct event_stream **out);

/* Answers x, which watches from now on, or is refused (503). Uses its data and close callback. */
void event_stream_watch(struct event_stream *t, struct http_exchange *x);

/* d was refused to s. */
void event_stream_denial(struct egress *eg, struct sandbox *s, const struct denial *d);

/* A question to the owner of s, which is dropped: true when it was told. A sandbox's questions and
 * refusals have one rate. */
bool event_stream_ask(struct egress *eg, struct sandbox *s, json_t *question);

/* Asks cayd to renew a credential (oauth.h bounds how often); request is dropped. Does nothing
 * where cayd does not watch or read: the caller asks again. */
void event_stream_send_renewal(struct egress *eg, struct sandbox *s, json_t *request);

/* s ends: its count is told at once. */
void event_stream_end(struct egress *eg, struct sandbox *s);

/* No answer of event_stream_watch is open any more. */
void event_stream_free(struct event_stream *t);
