/* A connection's first bytes, at the listener and elsewhere: sniffing, SOCKS5, CONNECT's authority. A
 * decision about a start stays when more comes, but for what is no server's request before its line is
 * whole. The judge is llhttp, strict and lenient: bytes that it takes for a request are never carried
 * unread, however they are cut. */
#include "egress/flow/authority.h"
#include "egress/flow/connect.h"
#include "egress/flow/sniff.h"
#include "egress/flow/socks.h"
#include "fuzz.h"
#include "policy/policy.h"

#include <errno.h>
#include <llhttp.h>

static void sniff(const uint8_t *data, size_t size)
{
    for (int listener = 0; listener < 2; listener++) {
        enum sniff decided = SNIFF_MORE;

        for (size_t n = 0; n <= size; n++) {
            enum sniff now = sniff_bytes(data, n, false, listener);

            /* An unknown method is seen only once its line is whole. */
            FUZZ_CHECK(now == decided || decided == SNIFF_MORE ||
                       (decided == SNIFF_OPAQUE && (now == SNIFF_HTTP || now == SNIFF_CONNECT)));
            FUZZ_CHECK(sniff_bytes(data, n, true, listener) != SNIFF_MORE);
            decided = now;
        }
    }
}

static int on_headers(llhttp_t *parser)
{
    *(bool *)parser->data = true;
    return 0;
}

static bool is_request(const uint8_t *data, size_t size, bool lenient)
{
    const llhttp_settings_t settings = {.on_headers_complete = on_headers};
    bool complete = false;
    llhttp_t parser;

    llhttp_init(&parser, HTTP_REQUEST, &settings);
    parser.data = &complete;
    if (lenient) {
        llhttp_set_lenient_headers(&parser, 1);
        llhttp_set_lenient_chunked_length(&parser, 1);
        llhttp_set_lenient_keep_alive(&parser, 1);
    }
    (void)llhttp_execute(&parser, (const char *)data, size);
    return complete;
}

static void evaluate(const uint8_t *data, size_t size)
{
    if (!is_request(data, size, false) && !is_request(data, size, true))
        return;
    for (size_t n = 0; n <= size; n++) {
        enum sniff now = sniff_bytes(data, n, false, false);

        FUZZ_CHECK(now == SNIFF_MORE || now == SNIFF_HTTP || now == SNIFF_HTTP2);
    }
    FUZZ_CHECK(sniff_bytes(data, size, true, false) != SNIFF_OPAQUE);
}

static void request(const uint8_t *data, size_t size)
{
    char name[POLICY_NAME_MAX + 1] = "", again[POLICY_NAME_MAX + 1];
    struct policy_address a = {0};
    enum socks_reply reply = SOCKS_DONE;
    uint16_t port = 0;
    ssize_t len = socks_parse_request(data, size, name, &a, &port, &reply);

    FUZZ_CHECK(len <= (ssize_t)size && (len >= 0 || len == -EPROTO));
    if (len <= 0 || reply != SOCKS_DONE)
        return;
    FUZZ_CHECK((size_t)len <= SOCKS_MESSAGE_MAX && port != 0);
    if (name[0]) { /* a text taken for a name is a normal one, and no address */
        FUZZ_CHECK(policy_name_normalize(name, again) == 0 && strcmp(name, again) == 0);
        FUZZ_CHECK(policy_address_parse(name, &a) < 0);
    }
    for (ssize_t n = 0; n < len; n++)
        FUZZ_CHECK(socks_parse_request(data, (size_t)n, name, &a, &port, &reply) == 0);
}

static void authority(const uint8_t *data, size_t size)
{
    char text[512], name[POLICY_NAME_MAX + 1], again[POLICY_NAME_MAX + 1];
    struct policy_address a = {0};
    uint16_t port = 0;
    size_t n = size < sizeof(text) - 1 ? size : sizeof(text) - 1;

    memcpy(text, data, n);
    text[n] = '\0';
    if (authority_parse(text, name, &a, &port) < 0)
        return;
    FUZZ_CHECK(port != 0 && !strpbrk(text, " /@\\?#%\t\r\n"));
    if (name[0])
        FUZZ_CHECK(policy_name_normalize(name, again) == 0 && strcmp(name, again) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    bool accepts;
    ssize_t n;

    if (size > 2048)
        return 0;
    sniff(data, size);
    evaluate(data, size);
    n = socks_parse_greeting(data, size, &accepts);
    FUZZ_CHECK(n <= (ssize_t)size && (n >= 0 || n == -EPROTO));
    request(data, size);
    authority(data, size);
    return 0;
}
