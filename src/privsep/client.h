#pragma once
/* cayd's and cay-egress's end of privd's channel, on a libuv loop: sends requests, matches replies
 * by sequence number.
 *
 * Reconnects by itself (privd may restart): requests under way then end with -ECONNRESET, and
 * on_up is called again after each successful HELLO (which is waited for PRIVSEP_CLIENT_HELLO_MS),
 * so that the owner lists what lives. Requests made while down end with -ENOTCONN at once. Bounded:
 * PRIVSEP_CLIENT_MAX_PENDING requests at a time (-EBUSY above). Never blocks. */

#include "contract/proto.h"

#include <stdbool.h>
#include <uv.h>

#define PRIVSEP_CLIENT_MAX_PENDING 16384
#define PRIVSEP_CLIENT_HELLO_MS    3000

struct privsep_client;

/* m is NULL and status -errno when the channel failed. fds are owned by the callback: it closes
 * them or keeps them (n_fds of them). */
typedef void (*privsep_reply_cb)(void *arg, int status, const struct privsep_msg *m, int *fds,
                                 size_t n_fds);

struct privsep_client_events {
    void (*on_up)(void *arg, const struct privsep_msg *hello);
    void (*on_down)(void *arg);
    /* seq 0: ENDED, ITEM, ... fds are the callback's, as of a reply. */
    void (*on_event)(void *arg, const struct privsep_msg *m, int *fds, size_t n_fds);
    void *arg;
};

int privsep_client_new(uv_loop_t *loop, const char *path, const struct privsep_client_events *ev,
                       struct privsep_client **out);

/* Requests under way end with -ECANCELED, from inside this call. May be called from any callback.
 * The memory goes when the loop has closed its handles. */
void privsep_client_free(struct privsep_client *c);

/* Sends a request (version, seq and fds are filled in). cb is called exactly once, never from
 * inside this call. Returns its sequence number, or -errno when nothing was sent (cb is then not
 * called). */
int64_t privsep_client_send(struct privsep_client *c, const struct privsep_msg *request,
                            privsep_reply_cb cb, void *arg);
/* Begins the connection anew, as if it had broken: for an owner whose request privd owes an answer
 * to for too long. Requests under way end with -ECONNRESET, from inside this call. */
void privsep_client_restart(struct privsep_client *c);

bool privsep_client_is_up(const struct privsep_client *c);
