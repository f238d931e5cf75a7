#pragma once
/* The part of an HTTP/2 connection in the memory that a loop's connections share. */

#include <stdbool.h>
#include <stddef.h>

struct h2;

/* So many bytes more are held for it, or less. True: there is room for more than the windows. */
bool h2_conn_hold(struct h2 *conn, size_t n);
void h2_conn_release(struct h2 *conn, size_t n);

/* Windows may be so much larger: false, where there is no room. And they are smaller again. */
bool h2_conn_grow(struct h2 *conn, size_t n);
void h2_conn_shrink(struct h2 *conn, size_t n);

/* n bytes more of heads: false, where there is no room. And they are gone again. */
bool h2_conn_take_head(struct h2 *conn, size_t n);
void h2_conn_drop_head(struct h2 *conn, size_t n);

/* All that it holds and has grown by is no longer counted: once, at its end. */
void h2_conn_leave_share(struct h2 *conn);
