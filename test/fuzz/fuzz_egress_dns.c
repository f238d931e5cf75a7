/* A sandbox's packets to port 53: any bytes in, an answer of DNS's form or none out, names bounded. */
#include "egress/flow/dns.h"
#include "egress/flow/names.h"
#include "fuzz.h"

#include <ldns/ldns.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const unsigned char key[NAMES_KEY_BYTES];
    static struct names *names;
    uint8_t out[DNS_ANSWER_MAX], again[DNS_ANSWER_MAX];
    ldns_pkt *answer = NULL;
    size_t n;

    if (!names || names_count(names) > NAMES_MAX / 2) {
        names_free(names);
        names = names_new(key);
    }
    FUZZ_CHECK(names);
    n = dns_answer(names, data, size, out, sizeof(out));
    FUZZ_CHECK(n <= sizeof(out));
    if (n == 0)
        return 0;
    /* It is an answer to this question, it can be read, and it is the same a second time. */
    FUZZ_CHECK(n >= 12 && size >= 12 && memcmp(out, data, 2) == 0 && out[2] & 0x80);
    FUZZ_CHECK(ldns_wire2pkt(&answer, out, n) == LDNS_STATUS_OK);
    FUZZ_CHECK(ldns_pkt_ancount(answer) <= 1);
    ldns_pkt_free(answer);
    FUZZ_CHECK(dns_answer(names, data, size, again, sizeof(again)) == n);
    FUZZ_CHECK(memcmp(out, again, n) == 0);
    FUZZ_CHECK(dns_answer(names, data, size, again, n - 1) == 0 || n == 12);
    return 0;
}
