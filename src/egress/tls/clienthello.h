#pragma once
/* Reads the server's name from a TLS ClientHello before anything is decided. OpenSSL reads it, in
 * its own callback for that, and is stopped there: nothing is answered and no key is made.
 *
 * Bounded by what the caller hands over. Does not block. */

#include <stdbool.h>
#include <stddef.h>

#define CLIENTHELLO_NAME_SIZE 256
#define CLIENTHELLO_ALPN_SIZE 256

struct clienthello {
    char name[CLIENTHELLO_NAME_SIZE];          /* as sent, "" without one */
    unsigned char alpn[CLIENTHELLO_ALPN_SIZE]; /* length-prefixed list, as in RFC 7301 3.1 */
    size_t alpn_len;
    bool ech;          /* encrypted_client_hello is there; whether it is GREASE cannot be seen */
    size_t wire_bytes; /* of its records; then begins another message */
};

/* data[0..n) is the start of the stream. 0: out is filled. -EAGAIN: more bytes are needed. -EPROTO:
 * it is no ClientHello that OpenSSL accepts, one whose name is not plain, or there is more than one
 * in its records: an empty record, an alert, another message. -ENOMEM. */
int clienthello_read(const void *data, size_t n, struct clienthello *out);

/* Does it say that it speaks that protocol? */
bool clienthello_offers(const struct clienthello *hello, const char *protocol);
