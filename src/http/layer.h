#pragma once
/* The layer that the bytes of a connection pass between HTTP and its socket: TLS (http/tls.h), or
 * nothing. A table and not calls, because the agent has this server without OpenSSL.
 *
 * All of it is one connection's, on its loop; nothing blocks. The socket is non-blocking and stays
 * the connection's. A call returns 0 or more when it was done, or -errno:
 *   -EAGAIN       goes on when the socket is readable
 *   -EINPROGRESS  goes on when the socket is writable
 *   -ENODATA      (read) lost: the socket has ended, and the peer has not announced that
 *   others        the connection is lost */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

struct http_layer_ops {
    /* A connection's state; NULL when memory is out. */
    void *(*open)(void *ctx, int fd);

    /* 0 when both sides are ready for bytes. */
    int (*begin)(void *layer);

    /* n is at least HTTP_LAYER_READ_BYTES: then nothing is left inside that no event would tell of.
     * > 0, or 0 at an end that the peer announced; *end: that end comes right after these bytes. */
    ssize_t (*read)(void *layer, void *out, size_t n, bool *end);

    /* How many bytes were taken. Those that were not are to be offered again, with the same content
     * and no fewer of them. */
    ssize_t (*write)(void *layer, const struct iovec *iov, int n);

    /* Announces the end of what is sent. */
    int (*shut)(void *layer);

    void (*close)(void *layer);
};

#define HTTP_LAYER_READ_BYTES 16384
/* The answer to a TLS client where TLS is not spoken: a fatal alert, handshake_failure (RFC 8446
 * section 6.2), in a record of the version that every client reads. */
#define HTTP_LAYER_ALERT      "\x15\x03\x01\x00\x02\x02\x28"
#define HTTP_LAYER_FIRST_BYTE 0x16 /* of a TLS handshake; no HTTP request begins with it */

struct http_layer {
    const struct http_layer_ops *ops; /* NULL: none */
    void *ctx;
    bool required;             /* plain HTTP is refused */
    size_t max_beginning;      /* connections between open and begun; one more ends the oldest */
    uint64_t begin_timeout_ms; /* from the first byte: close */
};
