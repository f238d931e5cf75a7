#pragma once
/* Descriptors over unix sockets (SCM_RIGHTS), one message at a time. */

#include "base/util.h"

#include <sys/types.h>

#define FDPASS_MAX 16

/* Sends n bytes and n_fds (0..FDPASS_MAX) descriptors in one message; the caller keeps them. flags
 * as of sendmsg(2), MSG_NOSIGNAL is added. 0 or -errno (-EMSGSIZE when the socket took only a
 * part). */
int fdpass_send(int sock, const void *bytes, size_t n, const int *fds, size_t n_fds,
                int flags) WARN_UNUSED;

/* Receives one message. Descriptors arrive close-on-exec and belong to the caller (*n_fds of them,
 * at most max_fds <= FDPASS_MAX). Returns its length, 0 at end of file, or -errno. A message that
 * was cut, in bytes or descriptors, is -EBADMSG, with what came closed. */
ssize_t fdpass_recv(int sock, void *out, size_t size, int *fds, size_t max_fds, size_t *n_fds,
                    int flags) WARN_UNUSED;
