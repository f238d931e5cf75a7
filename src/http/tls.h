#pragma once
/* TLS for connections of http/server.h: a certificate with its key, and the layer made of it.
 * OpenSSL does the work, on the connection's own socket. A library of its own (http_tls), linked
 * into cayd alone: neither the agent nor anything that runs as root has OpenSSL.
 *
 * The protocol: TLS 1.2 and 1.3, AEAD ciphers with ephemeral keys only, ALPN "http/1.1". No
 * renegotiation, no compression, no early data, and no resumption of any kind: no ticket key has to
 * be kept or changed, and no connection's secrecy rests on another's.
 *
 * A struct tls is immutable after tls_load and may serve several loops at a time; it lives until
 * the last connection that uses it has ended. */

#include "base/err.h"
#include "http/layer.h"

#define TLS_FILE_MAX_BYTES (256u * 1024u)

struct tls;

/* Reads the chain and the key from the beginning of two files that a process with more rights
 * opened (both stay the caller's), and checks what can be checked: that they are PEM, belong
 * together, and are valid now. domain (may be NULL) is what sandboxes' names end in, with or
 * without a port: that the certificate names others is a warning in the log, not an error. */
enum err_code tls_load(int cert_fd, int key_fd, const char *domain, struct tls **out,
                       struct err *e);
void tls_free(struct tls *t);

/* For http_server_config; beginnings are limited to sensible values. t may be NULL: no layer. */
struct http_layer tls_layer(struct tls *t, bool required);
