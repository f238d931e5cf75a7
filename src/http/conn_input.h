#pragma once
/* Bytes that a connection has read and not used yet. */

#include "http/conn.h"

/* Bytes that were read and not used: the connection's own, or during a pump the view of the
 * server's buffer. */
size_t conn_input_len(const struct conn *c);
const char *conn_input_data(const struct conn *c);
void conn_input_used(struct conn *c, size_t n);

/* A head that was read, or is given up, may have a key: nothing of it is left where it was read. */
void conn_input_wipe(const char *data, size_t n);

/* At a pump's end: the rest becomes the connection's own. */
void conn_input_keep(struct conn *c);
