/* A tenant's policy and what is asked of it. Four lines, name, address, method, path, then the policy's
 * JSON. Checked: a bad policy is refused with a text; a decision before all is known is never
 * narrower nor wider afterwards; the list of what has a say agrees with what decides; a ceiling
 * only takes away; sentences are plain text. */
#include "fuzz.h"
#include "http/json.h"
#include "policy/policy.h"

#include <arpa/inet.h>
#include <ctype.h>

#define PORT        443
#define MATCHES_MAX 64u

struct question {
    const char *name, *method, *path; /* name NULL: by address alone */
    const struct policy_address *address;
};

/* The next line of *text, ended; the rest stays. "" when there is none. */
static char *line(char **text)
{
    char *begin = *text, *end = strchr(begin, '\n');

    if (end)
        *end = '\0';
    *text = end ? end + 1 : begin + strlen(begin);
    return begin;
}

static void check_sentence(const struct policy *p, const struct policy_verdict *v,
                           const struct question *q)
{
    char out[POLICY_REASON_SIZE];

    policy_explain(p, v, q->name, q->address, PORT, q->method, q->path, out);
    FUZZ_CHECK(out[0]);
    for (const char *c = out; *c; c++)
        FUZZ_CHECK(isprint((unsigned char)*c));
}

static void check_matches(const struct policy *p, const struct policy_verdict *v,
                          const struct question *q)
{
    struct policy_verdict all[MATCHES_MAX];
    size_t n = policy_matches(p, q->name, q->address, PORT, q->method, q->path, all, MATCHES_MAX),
           i = 0;

    FUZZ_CHECK(n > 0);
    while (i < n && i < MATCHES_MAX && all[i].action == POLICY_INSPECT)
        i++;
    if (v->source == POLICY_BY_NEVER || i == MATCHES_MAX)
        return;
    FUZZ_CHECK(i < n);
    FUZZ_CHECK(all[i].source == v->source && all[i].rule == v->rule);
    FUZZ_CHECK(all[i].action == v->action);
}

static void check_ceiling(const struct policy *p, const struct policy_verdict *own,
                          const struct question *q)
{
    static const char *const presets[] = {"deny", "public", "allow"};

    for (size_t i = 0; i < sizeof(presets) / sizeof(presets[0]); i++) {
        struct policy_verdict ceiling = policy_request(policy_preset(presets[i]), q->name,
                                                       q->address, PORT, q->method, q->path),
                              both = policy_both(*own, ceiling),
                              turned = policy_both(ceiling, *own);

        FUZZ_CHECK((both.action == POLICY_DENY) ==
                   (own->action == POLICY_DENY || ceiling.action == POLICY_DENY));
        FUZZ_CHECK(turned.action == both.action);
        check_sentence(both.by ? both.by : p, &both, q);
    }
}

static void ask(const struct policy *p, const struct question *q)
{
    struct policy_verdict by_address = policy_address(p, q->name, q->address, PORT),
                          by_request = policy_request(p, q->name, q->address, PORT, q->method,
                                                      q->path);

    if (q->name) {
        struct policy_verdict by_name = policy_name(p, q->name, PORT);

        check_sentence(p, &by_name, q);
        if (by_name.action == POLICY_DENY)
            return; /* its addresses are never asked for */
    }
    FUZZ_CHECK(by_request.action != POLICY_INSPECT);
    if (by_address.action != POLICY_INSPECT)
        FUZZ_CHECK(by_request.action == by_address.action);
    if (policy_address_is_never(q->address))
        FUZZ_CHECK(by_address.action == POLICY_DENY && by_address.source == POLICY_BY_NEVER);
    FUZZ_CHECK(!by_request.credential || policy_uses_credential(p, by_request.credential));
    check_sentence(p, &by_request, q);
    check_matches(p, &by_request, q);
    check_ceiling(p, &by_request, q);
}

static void read_policy(const char *text, size_t n, const struct question *q)
{
    struct policy *p = NULL;
    json_t *json = NULL;
    struct err e = {.code = ERR_OK};

    if (json_parse(text, n, true, &json, &e) == ERR_OK) {
        if (policy_new(json, &p, &e) == ERR_OK)
            ask(p, q);
        else
            FUZZ_CHECK(e.code == ERR_INVALID && e.text[0] && !p);
        policy_free(p);
    }
    json_decref(json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1), *rest = text, name[POLICY_NAME_MAX + 1], shown[INET6_ADDRSTRLEN],
         *given, *address;
    struct policy_address a, again;
    struct question q = {.address = &a};

    FUZZ_CHECK(text);
    memcpy(text, data, size);
    text[size] = '\0';
    given = line(&rest);
    q.name = policy_name_normalize(given, name) == 0 ? name : NULL;
    address = line(&rest);
    if (policy_address_parse(address, &a) < 0)
        FUZZ_CHECK(policy_address_parse("203.0.113.7", &a) == 0);
    policy_address_format(&a, shown);
    FUZZ_CHECK(policy_address_parse(shown, &again) == 0);
    FUZZ_CHECK(memcmp(&a.in6, &again.in6, sizeof(a.in6)) == 0);
    FUZZ_CHECK(!policy_address_is_never(&a) || !policy_address_is_public(&a));
    q.method = line(&rest);
    q.path = line(&rest);
    if (q.name)
        FUZZ_CHECK(policy_name_normalize(name, name) == 0);
    read_policy(rest, size - (size_t)(rest - text), &q);
    free(text);
    return 0;
}
