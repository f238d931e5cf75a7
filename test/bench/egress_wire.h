/* A client connection of the bench of the way out: bytes that are sent back, or HTTP over TLS; dialled
 * directly or through a proxy that is told where to. Everything blocks; an error ends the program
 * with a sentence. */
#pragma once

#include "base/util.h"

#include <openssl/ssl.h>
#include <stdint.h>
#include <sys/types.h>

#define WIRE_TRIP_BYTES  64
#define WIRE_CHUNK_BYTES (1u << 20)

struct wire_target {
    const char *address, *port; /* to connect to: an IPv4 address */
    const char *proxy;          /* NULL, "connect" or "socks5" is spoken there first */
    const char *to;             /* HOST:PORT that the proxy is told */
    const char *ca, *name; /* file of authorities and server's name: HTTP over TLS; NULL: bytes */
};

struct wire {
    const struct wire_target *target;
    int fd;
    SSL *ssl; /* owned; NULL without TLS */
};

/* Ends the program unless r >= 0; r is -1 with errno, or -errno. */
void wire_must(ssize_t r, const char *what);

int wire_no_delay(int fd);
void wire_write(struct wire *w, const void *data, size_t size);
/* Bytes read, 0 at the end. */
size_t wire_read(struct wire *w, void *data, size_t size);
void wire_read_full(struct wire *w, void *data, size_t size);

/* Connects and shakes hands. */
struct wire wire_open(const struct wire_target *t);
/* That, and asks once, so that all that is between has made its own connection. */
struct wire wire_open_asked(const struct wire_target *t);
void wire_close(struct wire *w);

/* A question (64 bytes, or a GET), and its whole answer. */
void wire_ask(struct wire *w);
void wire_answer(struct wire *w);

/* A stream of so many MiB from the server, on a connection that nothing was asked on (bytes). */
void wire_pull(struct wire *w, unsigned mib);
