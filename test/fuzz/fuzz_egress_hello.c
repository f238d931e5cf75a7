/* The start of a TLS connection: what its ClientHello says does not depend on what follows it, and a
 * cut one is never read as something. */
#include "egress/clienthello.h"
#include "fuzz.h"

#include <errno.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct clienthello h, more;
    uint8_t *longer;
    int rc;

    if (size > 32768)
        return 0;
    rc = clienthello_read(data, size, &h);
    FUZZ_CHECK(rc == 0 || rc == -EAGAIN || rc == -EPROTO);
    if (rc == -EAGAIN)
        return 0;
    if (rc == 0)
        FUZZ_CHECK(strlen(h.name) < sizeof(h.name) && h.alpn_len <= sizeof(h.alpn));
    longer = malloc(size + 64);
    FUZZ_CHECK(longer);
    memcpy(longer, data, size);
    memset(longer + size, 'x', 64);
    FUZZ_CHECK(clienthello_read(longer, size + 64, &more) == rc);
    if (rc == 0)
        FUZZ_CHECK(strcmp(h.name, more.name) == 0);
    free(longer);
    return 0;
}
