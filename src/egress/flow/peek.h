#pragma once
/* A look at what a socket has, without taking it: how first messages are read before anything is
 * decided about them. The bytes that were looked at are those that are carried then, from the
 * first to the last, so that a decision holds for them. */

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Before the first look at a socket: bytes that TCP marks as urgent stay where they stand. Else a
 * look steps over them, and carries others than it has seen. */
void peek_prepare(int fd);

/* Up to `size` bytes of what is there, 0 at its end; -EAGAIN: nothing yet; -EPROTO: a mark of
 * urgent data stands among them, behind which nothing can be looked at, also not when all has come;
 * other -errno: it broke. *all: nothing but these is there, so that they are the whole where the
 * peer has ended; NULL: it does not matter. */
ssize_t peek_bytes(int fd, void *data, size_t size, bool *all);
