#pragma once
/* Answers that come out of a descriptor, as long as it gives: what core tells without an end goes
 * through a pipe to the connection loop that has the client. A client that reads slowly leaves
 * bytes in the pipe; one that goes away closes it, which its other end sees. Belongs to one
 * loop. */

#include "http/server.h"

struct streams;

/* 0 or -ENOMEM. */
int streams_new(uv_loop_t *loop, struct streams **out);

/* Ends all of them, as if their descriptors had: before the server stops, which waits for
 * answers. */
void streams_end(struct streams *all);

/* Ends those of one owner, as stream_start was told. */
void streams_end_of(struct streams *all, const char *owner);

/* After the loop has closed its handles. */
void streams_free(struct streams *all);

/* Goes on with x, whose answer was begun, until fd (the read end of a pipe, taken over) ends. Uses
 * data and close callback of x. owner: at most STREAM_OWNER_SIZE - 1 bytes. */
#define STREAM_OWNER_SIZE 24
void stream_start(struct streams *all, struct http_exchange *x, const char *owner, int fd);

/* The same of a file, from its beginning: as many bytes as the answer has announced. It is read in
 * the loop's own thread, a part at a time. */
void stream_start_file(struct streams *all, struct http_exchange *x, const char *owner, int fd,
                       uint64_t bytes);
