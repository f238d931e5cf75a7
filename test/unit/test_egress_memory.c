/* cay-egress while memory is out: the n-th allocation of a call fails, for every n that the call makes, alone or with all
 * after it, those of jansson too. A policy is refused for that reason or in force as a whole,
 * nothing leaks, and the policy in force before is the same. Of ldns, which makes answers to
 * questions about names, each function that gives memory fails in turn. A whole cay-egress, with
 * connections: test/scenario/test_memory_out.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include <cmocka.h>

#include "base/err.h"
#include "base/util.h"
#include "egress/control/control_policy.h"
#include "egress/control/explain.h"
#include "egress/credential/credential.h"
#include "egress/flow/dial.h"
#include "egress/flow/dns.h"
#include "egress/flow/egress.h"
#include "egress/flow/intercept.h"
#include "egress/flow/intercept_internal.h"
#include "egress/flow/names.h"
#include "egress/flow/registry.h"
#include "egress/flow/sandbox.h"
#include "egress/tls/turns.h"
#include "failing_malloc.h"
#include "http/json.h"
#include "policy/policy.h"

#include <fcntl.h>
#include <jansson.h>
#include <ldns/ldns.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define CALLS_MAX 5000u
#define SLOT      7u
#define GEN       3u
#define SECRET    "sk-live-0123456789abcdef"
#define NEWER     "sk-live-fedcba9876543210"

struct world {
    uv_loop_t loop;
    struct egress egress;
    struct intercept intercept;
    json_t *seal;                /* a request for NEWER */
    char *plain, *with_commands; /* bodies of PUT: with SECRET; the same and policies of commands */
    char *question;              /* of explain */
};

/* A call, run for each n. Its code: ERR_OK, or why not, with a text in e. */
struct action {
    const char *name;
    enum err_code (*call)(struct world *w, struct err *e);
    void (*check)(struct world *w, enum err_code code); /* of what is in force after it; or NULL */
};

/* -- the world --------------------------------------------------------------------------------- */

static json_t *binding(void)
{
    return json_pack("{s:s, s:[s]}", "kind", "bearer", "domains", "api.example.com");
}

static json_t *seal_request(const char *value)
{
    return json_pack("{s:s, s:s, s:s, s:o}", "tenant", "one", "name", "KEY", "value", value, "bind",
                     binding());
}

static json_t *rules(const char *domain)
{
    return json_pack("{s:[{s:s, s:[s], s:[s], s:[s]}], s:[{s:s, s:[s]}], s:[s]}", "rules", "action",
                     "allow", "domains", domain, "methods", "GET", "paths", "/v1/*", "inject",
                     "credential", "KEY", "domains", "api.example.com", "presets",
                     "package-registries");
}

static json_t *credentials(struct world *w, const char *value)
{
    json_t *request = seal_request(value), *out;
    char *sealed = NULL;
    struct err e;

    assert_int_equal(credential_seal(w->intercept.sealer, request, &sealed, &e), ERR_OK);
    out = json_pack("[{s:s, s:s, s:o}]", "name", "KEY", "sealed", sealed, "bind", binding());
    free(sealed);
    json_decref(request);
    return out;
}

static char *body(struct world *w, const char *value, bool commands)
{
    json_t *o = json_pack("{s:s, s:s, s:o, s:[o], s:o}", "id", "i1", "tenant", "one", "policy",
                          rules("api.example.com"), "ceilings", rules("*.example.com"),
                          "credentials", credentials(w, value));
    char *text;

    if (commands)
        json_object_set_new(o, "command_sandboxes",
                            json_pack("[{s:i, s:o, s:o}, {s:i, s:o}]", "number", 1, "policy",
                                      rules("api.example.com"), "credentials",
                                      credentials(w, value), "number", 2, "policy",
                                      rules("other.example.com")));
    text = json_dumps(o, 0);
    json_decref(o);
    assert_non_null(text);
    return text;
}

static enum err_code put(struct world *w, const char *text, struct err *e)
{
    struct sandbox_rules *r = NULL;
    json_t *o = NULL;
    enum err_code code = json_parse(text, strlen(text), false, &o, e);

    if (code == ERR_OK)
        code = control_policy_read(&w->egress, o, &r, e);
    json_decref(o);
    return code == ERR_OK ? control_policy_put(&w->egress, SLOT, GEN, r, e) : code;
}

static struct sandbox *sandbox(struct world *w)
{
    struct sandbox *s = registry_find(&w->egress, SLOT, GEN, 0);

    assert_non_null(s);
    assert_true(s->has_policy);
    return s;
}

static int key_file(void)
{
    int fd = memfd_create("key", MFD_CLOEXEC);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, "0123456789abcdef0123456789abcdef", 32), 32);
    return fd;
}

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof(*w));
    int fd = key_file();
    struct err e;

    assert_non_null(w);
    assert_int_equal(uv_loop_init(&w->loop), 0);
    w->egress.loop = &w->loop;
    w->egress.config.shards = 1;
    w->egress.config.flows_max = EGRESS_FLOWS_MAX;
    w->egress.intercept = &w->intercept;
    assert_int_equal(sealer_new(NULL, fd, &w->intercept.sealer, &e), ERR_OK);
    close(fd);
    assert_int_equal(registry_new(&w->egress, &w->egress.registry), 0);
    assert_int_equal(turns_new(&w->loop, &w->egress.turns), 0);
    w->seal = seal_request(NEWER);
    w->plain = body(w, SECRET, false);
    w->with_commands = body(w, SECRET, true);
    w->question = strdup("{\"to\": \"https://api.example.com\", \"method\": \"GET\", \"path\": "
                         "\"/v1/x\", \"policy\": {\"rules\": [{\"action\": \"allow\", "
                         "\"domains\": [\"api.example.com\"]}]}}");
    assert_int_equal(put(w, w->plain, &e), ERR_OK);
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;

    registry_free(w->egress.registry);
    turns_free(w->egress.turns);
    uv_run(&w->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&w->loop), 0);
    sealer_free(w->intercept.sealer);
    json_decref(w->seal);
    free(w->plain);
    free(w->with_commands);
    free(w->question);
    free(w);
    return 0;
}

/* -- calls ------------------------------------------------------------------------------------- */

static enum err_code call_policy(struct world *w, struct err *e)
{
    return put(w, w->plain, e);
}

static enum err_code call_policy_of_commands(struct world *w, struct err *e)
{
    return put(w, w->with_commands, e);
}

/* A slot's first policy, where its generation is new. */
static enum err_code call_policy_of_a_new_one(struct world *w, struct err *e)
{
    enum err_code code;

    registry_close(&w->egress, SLOT, GEN, 0);
    registry_begin_sync(&w->egress); /* so that its generation is not late */
    code = put(w, w->plain, e);
    assert_true((code == ERR_OK) == (registry_find(&w->egress, SLOT, GEN, 0) != NULL));
    return code;
}

static const char *value_in_force(struct world *w)
{
    const struct credential *c = credentials_find(sandbox(w)->credentials, "KEY", 3);

    assert_non_null(c);
    return c->value;
}

/* Sealed, and put in force for the one before. */
static enum err_code call_credential(struct world *w, struct err *e)
{
    static const char head[] = "{\"id\": \"i1\", \"tenant\": \"one\", \"ceilings\": [], "
                               "\"policy\": {\"inject\": [{\"credential\": \"KEY\", \"domains\": "
                               "[\"api.example.com\"]}]}, \"credentials\": [{\"name\": \"KEY\", "
                               "\"bind\": {\"kind\": \"bearer\", \"domains\": "
                               "[\"api.example.com\"]}, \"sealed\": \"";
    char *sealed = NULL, text[2048];
    enum err_code code = credential_seal(w->intercept.sealer, w->seal, &sealed, e);

    if (code != ERR_OK)
        return code;
    assert_in_range(snprintf(text, sizeof(text), "%s%s\"}]}", head, sealed), 1, sizeof(text) - 1);
    free(sealed);
    return put(w, text, e);
}

static void check_credential(struct world *w, enum err_code code)
{
    assert_string_equal(value_in_force(w), code == ERR_OK ? NEWER : SECRET);
}

/* The policy that is in force, with its ceiling, is whole. */
static void check_policy(struct world *w, enum err_code code)
{
    struct sandbox *s = sandbox(w);

    (void)code;
    assert_string_equal(value_in_force(w), SECRET);
    assert_int_not_equal(policy_name(s->policy, "api.example.com", 443).action, POLICY_DENY);
    assert_int_equal(policy_name(s->policy, "other.example.com", 443).action, POLICY_DENY);
    assert_non_null(s->ceilings[0]);
    assert_null(s->ceilings[1]);
}

static void check_commands(struct world *w, enum err_code code)
{
    check_policy(w, code);
    if (code != ERR_OK)
        return;
    for (const struct sandbox *r = sandbox(w)->command_sandboxes; r; r = r->next_command_sandbox)
        if (r->has_policy)
            assert_int_equal(policy_name(r->policy, "other.example.com", 443).action == POLICY_DENY,
                             r->command == 1);
}

static enum err_code call_question(struct world *w, struct err *e)
{
    struct policy *instead = NULL;
    json_t *o = NULL, *answer = NULL;
    enum err_code code = json_parse(w->question, strlen(w->question), false, &o, e);

    if (code == ERR_OK)
        code = explain_policy(o, &instead, e);
    if (code == ERR_OK && !(answer = explain(sandbox(w), o, instead, e)))
        code = e->code;
    if (code == ERR_OK)
        assert_non_null(json_string_value(json_object_get(answer, "verdict")));
    policy_free(instead);
    json_decref(answer);
    json_decref(o);
    return code;
}

static const struct action actions[] = {
    {"policy", call_policy, check_policy},
    {"policies of commands", call_policy_of_commands, check_commands},
    {"policy of a new sandbox", call_policy_of_a_new_one, NULL},
    {"credential", call_credential, check_credential},
    {"question", call_question, check_policy},
};

/* -- each allocation --------------------------------------------------------------------------- */

/* Is it an error that says that memory is out, so that it is asked for again? */
static bool is_for_memory(enum err_code code)
{
    return code == ERR_EXHAUSTED || code == ERR_UNAVAILABLE || code == ERR_INTERNAL;
}

/* false: the call makes fewer allocations than n. */
static bool run_once(struct world *w, const struct action *action, size_t n, bool for_good)
{
    struct err e = {.code = ERR_OK};
    enum err_code code;
    bool failed;

    failing_malloc_begin(n, for_good);
    code = action->call(w, &e);
    failed = failing_malloc_end();
    if (code != ERR_OK && !failed)
        fail_msg("%s: failed without a reason: %s", action->name, e.text);
    if (code != ERR_OK && (!e.text[0] || !is_for_memory(code)))
        fail_msg("%s, allocation %zu: %d, \"%s\"", action->name, n, (int)code, e.text);
    if (action->check)
        action->check(w, code);
    assert_int_equal(put(w, w->plain, &e), ERR_OK); /* all as before */
    uv_run(&w->loop, UV_RUN_NOWAIT);
    return failed;
}

static void sweep(struct world *w, const struct action *action, bool for_good)
{
    size_t n = 0, held;

    (void)run_once(w, action, 0, false); /* memory kept from then on is there */
    held = failing_malloc_held();
    while (run_once(w, action, ++n, for_good) && n < CALLS_MAX)
        if (failing_malloc_held() != held)
            fail_msg("%s, allocation %zu: %zu blocks are held after it, %zu before", action->name,
                     n, failing_malloc_held(), held);
    print_message("%s%s: %zu allocations\n", action->name, for_good ? ", for good" : "", n - 1);
    assert_in_range(n, 2, CALLS_MAX - 1);
}

static void each_allocation_may_fail(void **state)
{
    for (size_t i = 0; i < ARRAY_SIZE(actions); i++)
        sweep(*state, &actions[i], false);
}

static void memory_may_be_out_for_the_rest_of_a_call(void **state)
{
    for (size_t i = 0; i < ARRAY_SIZE(actions); i++)
        sweep(*state, &actions[i], true);
}

/* -- names ------------------------------------------------------------------------------------- */

static size_t ldns_calls, ldns_fails_at;

static bool ldns_fails(void)
{
    return ++ldns_calls == ldns_fails_at;
}

ldns_pkt *__real_ldns_pkt_new(void);
ldns_pkt *__wrap_ldns_pkt_new(void);
ldns_rr *__real_ldns_rr_new(void);
ldns_rr *__wrap_ldns_rr_new(void);
ldns_rr *__real_ldns_rr_clone(const ldns_rr *rr);
ldns_rr *__wrap_ldns_rr_clone(const ldns_rr *rr);
ldns_rdf *__real_ldns_rdf_clone(const ldns_rdf *rd);
ldns_rdf *__wrap_ldns_rdf_clone(const ldns_rdf *rd);
ldns_rdf *__real_ldns_rdf_new_frm_data(ldns_rdf_type type, size_t size, const void *data);
ldns_rdf *__wrap_ldns_rdf_new_frm_data(ldns_rdf_type type, size_t size, const void *data);
ldns_rdf *__real_ldns_dname_new_frm_str(const char *str);
ldns_rdf *__wrap_ldns_dname_new_frm_str(const char *str);
bool __real_ldns_rr_push_rdf(ldns_rr *rr, const ldns_rdf *f);
bool __wrap_ldns_rr_push_rdf(ldns_rr *rr, const ldns_rdf *f);
bool __real_ldns_pkt_push_rr(ldns_pkt *packet, ldns_pkt_section section, ldns_rr *rr);
bool __wrap_ldns_pkt_push_rr(ldns_pkt *packet, ldns_pkt_section section, ldns_rr *rr);

ldns_pkt *__wrap_ldns_pkt_new(void)
{
    return ldns_fails() ? NULL : __real_ldns_pkt_new();
}

ldns_rr *__wrap_ldns_rr_new(void)
{
    return ldns_fails() ? NULL : __real_ldns_rr_new();
}

ldns_rr *__wrap_ldns_rr_clone(const ldns_rr *rr)
{
    return ldns_fails() ? NULL : __real_ldns_rr_clone(rr);
}

ldns_rdf *__wrap_ldns_rdf_clone(const ldns_rdf *rd)
{
    return ldns_fails() ? NULL : __real_ldns_rdf_clone(rd);
}

ldns_rdf *__wrap_ldns_rdf_new_frm_data(ldns_rdf_type type, size_t size, const void *data)
{
    return ldns_fails() ? NULL : __real_ldns_rdf_new_frm_data(type, size, data);
}

ldns_rdf *__wrap_ldns_dname_new_frm_str(const char *str)
{
    return ldns_fails() ? NULL : __real_ldns_dname_new_frm_str(str);
}

bool __wrap_ldns_rr_push_rdf(ldns_rr *rr, const ldns_rdf *f)
{
    return !ldns_fails() && __real_ldns_rr_push_rdf(rr, f);
}

bool __wrap_ldns_pkt_push_rr(ldns_pkt *packet, ldns_pkt_section section, ldns_rr *rr)
{
    return !ldns_fails() && __real_ldns_pkt_push_rr(packet, section, rr);
}

/* Of one name, A: 16 bytes are its header and the type behind the name. */
static size_t question_of(uint8_t *out, const char *wire, size_t len, uint8_t type)
{
    memcpy(out, "\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00", 12);
    memcpy(out + 12, wire, len);
    memcpy(out + 12 + len, (uint8_t[]){0, type, 0, 1}, 4);
    return 16 + len;
}

/* An answer: rcode 0 has a record, and else there is none. */
static void check_answer(const uint8_t *out, size_t len)
{
    unsigned code = out[3] & 15u, records = (unsigned)out[6] << 8 | out[7];

    assert_true(len >= 12 && (out[2] & 0x80));
    if (code == LDNS_RCODE_NOERROR)
        assert_int_equal(records, 1);
    else
        assert_true(records == 0 && (code == LDNS_RCODE_SERVFAIL || code == LDNS_RCODE_REFUSED));
}

static const struct {
    const char *wire;
    size_t len;
    uint8_t type;
} asked[] = {
#define WIRE(text) text, sizeof(text)
    {WIRE("\3web\7example\3com"), LDNS_RR_TYPE_A},
    {WIRE("\3web\7example\3com"), LDNS_RR_TYPE_AAAA},
    {WIRE("\11localhost"), LDNS_RR_TYPE_A},
    {WIRE("\2"
          "16\1"
          "0\2"
          "18\3"
          "198\7in-addr\4arpa"),
     LDNS_RR_TYPE_PTR},
};

static const unsigned char names_key[NAMES_KEY_BYTES];

static void no_answer_says_that_a_name_has_no_address(void **state)
{
    struct names *known = names_new(names_key); /* for PTR */

    (void)state;
    assert_true(names_restore(known, NAMES_FIRST, "web.example.com"));
    for (size_t i = 0; i < ARRAY_SIZE(asked); i++) {
        uint8_t q[512], out[DNS_ANSWER_MAX];
        size_t n = question_of(q, asked[i].wire, asked[i].len, asked[i].type), len, failed = 0;

        ldns_fails_at = 0;
        do {
            ldns_fails_at++;
            ldns_calls = 0;
            len = dns_answer(known, q, n, out, sizeof(out));
            if (len > 0)
                check_answer(out, len);
            failed += len == 0 || (out[3] & 15) != 0;
        } while (ldns_calls >= ldns_fails_at);
        assert_true(len > 0 && (out[3] & 15) == 0); /* when all did what they should */
        assert_true(failed >= 5);
    }
    ldns_fails_at = 0;
    names_free(known);
}

static void names_without_memory_are_refused(void **state)
{
    uint8_t q[512], out[DNS_ANSWER_MAX];
    size_t n = question_of(q, asked[0].wire, asked[0].len, asked[0].type), held, len;

    (void)state;
    for (int for_good = 0; for_good < 2; for_good++) {
        bool failed = true;

        for (size_t at = 1; failed; at++) {
            struct names *names = names_new(names_key);

            assert_non_null(names);
            held = failing_malloc_held();
            failing_malloc_begin(at, for_good);
            len = dns_answer(names, q, n, out, sizeof(out));
            failed = failing_malloc_end();
            check_answer(out, len);
            assert_int_equal((out[3] & 15) != 0, failed);
            len = dns_answer(names, q, n, out, sizeof(out)); /* and then it has its address */
            assert_int_equal(out[3] & 15, 0);
            check_answer(out, len);
            assert_in_range(failing_malloc_held(), held, held + 2);
            names_free(names);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_allocation_may_fail, setup, teardown),
        cmocka_unit_test_setup_teardown(memory_may_be_out_for_the_rest_of_a_call, setup, teardown),
        cmocka_unit_test(no_answer_says_that_a_name_has_no_address),
        cmocka_unit_test(names_without_memory_are_refused),
    };

    failing_malloc_init();
    json_wipe_frees(); /* jansson's calls count as the program's, too */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
