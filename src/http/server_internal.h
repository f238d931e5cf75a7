#pragma once
/* The server's own state: its listeners, connections, limits and timers; conn.h says which file of
 * the server has what. */

#include "http/conn.h"

#include <time.h>

struct listener {
    uv_poll_t poll;
    struct http_server *server;
    struct listener *next;
    int fd;
};

struct http_server {
    uv_loop_t *loop;
    struct http_server_config config;
    http_handler handler;
    void *ctx;
    struct listener *listeners;
    struct conn *conns;
    size_t conn_count, conns_closing; /* the latter are among the former */
    size_t collected;                 /* bytes in all exchanges' collect */
    size_t held;                      /* bytes of all connections' held */
    uint64_t full_said_ms, held_said_ms;
    size_t beginning; /* connections in that state */
    size_t handles;   /* not yet closed by libuv */
    struct conn *dirty, **dirty_tail;
    struct wait waits[WAIT_KINDS]; /* heads of circular lists */
    uv_timer_t timer;
    uint64_t timer_due_ms; /* 0: not set */
    uv_prepare_t prepare;
    bool preparing;
    struct http_exchange *free_exchanges;
    size_t free_count;
    char *read_buf; /* shared: lives for one read event */
    size_t read_bytes;
    struct pass pass; /* likewise */
    size_t piece;     /* bytes that go through it at once */
    /* as scratch: their memory is there from the start, so that an answer needs none */
    struct buf error_body;
    struct buf scratch; /* heads in the making */
    time_t date_second;
    char date[32];
    bool stopping, accept_paused, resting;
    uint64_t accept_again_ms, stop_at_ms;
    void (*on_stopped)(void *);
    void *stopped_ctx;
};

/* (Re)starts the wait of that kind from now; a kind whose time is 0 does not wait. */
void server_wait(struct http_server *s, struct wait *w, enum wait_kind kind);
void server_wait_stop(struct wait *w);
void server_mark_dirty(struct conn *c);

/* http_server_config.enter, is_over and leave, of a connection with this tag (conn_turn.c). */
bool server_enter(struct http_server *s, uint64_t tag, bool again, uint32_t *round);
bool server_is_over(const struct http_server *s, uint64_t tag);
void server_leave(struct http_server *s, uint64_t tag);
/* Whether new connections are taken; not while it rests. */
void server_set_accepting(struct http_server *s, bool on);

void server_conn_gone(struct conn *c); /* takes it off the list; its handle is closing */
const char *server_date(struct http_server *s);

/* After its last handle was closed; tells that it has stopped. */
void server_free(struct http_server *s);
