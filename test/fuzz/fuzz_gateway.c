/* Routing and access of sandbox traffic. The input is NUL-separated: method, path, query, host, then
 * names and values of headers. A client that has not shown the token or a signature must not
 * pass, and a routed one has an id and a port of the only forms that there are. */
#include "fuzz.h"
#include "gateway/access.h"
#include "gateway/answer.h"
#include "gateway/route.h"

#define TOKEN "0tQG31xiMp0IOQfaz9dcwi72L1CPo8e0"
#define NOW_S 1000

static const char *next(char **at, const char *end)
{
    char *text = *at;

    *at += strlen(text) + 1;
    if (*at > end)
        *at = (char *)end;
    return text;
}

static void read_head(struct http_head *h, char *text, const char *end)
{
    h->method = next(&text, end);
    h->path = next(&text, end);
    h->query = next(&text, end);
    h->host = next(&text, end);
    while (text < end && h->header_count < HTTP_MAX_HEADERS) {
        struct http_header *header = &h->headers[h->header_count++];

        header->name = next(&text, end);
        header->value = next(&text, end);
    }
}

static void check_route(const struct http_head *h)
{
    struct route r;

    route_request(h, &r);
    if (r.kind == ROUTE_SANDBOX) {
        size_t n = strlen(r.id);

        FUZZ_CHECK(n > 0 && n < sizeof(r.id) && r.port > 0);
        FUZZ_CHECK(strspn(r.id, "abcdefghijklmnopqrstuvwxyz0123456789") == n);
    }
    FUZZ_CHECK((r.kind == ROUTE_BAD) == (r.why != NULL));
    if (route_agent_path_is_open(h->path)) {
        FUZZ_CHECK(h->path[0] == '/' && !strpbrk(h->path, "%?#\\; "));
        FUZZ_CHECK(!strstr(h->path, "//") && !strstr(h->path, "/."));
        FUZZ_CHECK(strcmp(h->path, "/init") != 0 && strncmp(h->path, "/cay/", 5) != 0);
    }
    (void)answer_wants_html(h);
}

static void check_access(const struct http_head *h)
{
    char message[ACCESS_MESSAGE_SIZE] = "", right[ACCESS_SIGNATURE_SIZE] = "";
    const char *token = http_head_get(h, ACCESS_TOKEN_HEADER);
    struct access a;

    FUZZ_CHECK(access_read(h, &a) == 0);
    if (access_check_agent(&a, TOKEN, NOW_S, message)) {
        bool shown = token && strcmp(token, TOKEN) == 0;

        if (!shown && !a.exempt) {
            FUZZ_CHECK(a.may_sign && a.subject && (!a.has_expiry || a.expiry_s >= NOW_S));
            FUZZ_CHECK(access_sign(a.subject, TOKEN, a.has_expiry, a.expiry_s, right) == 0);
            FUZZ_CHECK(strcmp(a.signature, right) == 0);
        }
        FUZZ_CHECK(!a.exempt || strcmp(h->path, "/health") == 0);
    } else {
        FUZZ_CHECK(message[0]);
    }
    (void)access_check_traffic(&a, TOKEN, message);
    access_free(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct http_head h;
    char *text = malloc(size + 1);

    FUZZ_CHECK(text);
    memcpy(text, data, size);
    text[size] = '\0';
    memset(&h, 0, sizeof(h));
    read_head(&h, text, text + size);
    check_route(&h);
    check_access(&h);
    free(text);
    return 0;
}
