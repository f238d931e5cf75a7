#pragma once
/* The TLS of a connection, on its own non-blocking socket: the context's settings, and the calls of
 * http/layer.h. For http/tls.c, and for cay-egress, which has TLS ends without that server, on both
 * sides. Nothing here blocks.
 *
 * The protocol: TLS 1.2 and 1.3, AEAD ciphers with ephemeral keys on elliptic curves (as a client
 * also with CBC, which some servers still want), ALPN "http/1.1". No renegotiation, no compression,
 * no early data, no resumption. */

#include "http/layer.h"

#include <openssl/ssl.h>

/* Messages of handshakes between contents: the handshake's own (a dozen), and after it session
 * tickets, key updates, requests to begin anew. A further record ends the connection. */
#define TLS_CONN_MESSAGES_MAX 32u

/* Reads of the socket in one call of OpenSSL: a record takes two. */
#define TLS_CONN_READS_MAX 128u

/* Free with SSL_CTX_free; NULL when memory is out. A server's refuses a client whose ALPN does not
 * have http/1.1 with the alert no_application_protocol. A client's verifies nothing yet. */
SSL_CTX *tls_conn_context(bool client);

/* A layer of ssl, whose socket and side (SSL_set_fd, SSL_set_accept_state or SSL_set_connect_state)
 * are set; takes it over, also on failure. NULL when memory is out. */
void *tls_conn_new(SSL *ssl);

/* begin, read, write, shut and close of such a layer; open takes an SSL_CTX as ctx, for a
 * server. */
extern const struct http_layer_ops tls_conn_ops;

SSL *tls_conn_ssl(void *layer);

/* OpenSSL's reason when the connection was lost: a static text, or NULL where it said nothing (the
 * peer just went away). */
const char *tls_conn_reason(const void *layer);
