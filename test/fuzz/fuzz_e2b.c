/* The values that E2B's control plane reads beside JSON itself: the network object, the metadata
 * filter, cursors, paths. The first byte says which. And Daytona's network settings, from the same
 * bodies. */
#include "api/daytona_network.h"
#include "api/e2b.h"
#include "fuzz.h"
#include "http/json.h"
#include "policy/policy.h"

/* Settings that are accepted are a policy, and stay what they are when they are given again. */
static void settings_hold(const json_t *settings)
{
    json_t *policy = daytona_network_policy(settings), *again = NULL, *shown = json_object();
    struct policy *read = NULL;
    struct err e;

    FUZZ_CHECK(policy_new(policy, &read, &e) == ERR_OK);
    FUZZ_CHECK(daytona_network_read(settings, &again, &e) == ERR_OK);
    FUZZ_CHECK(json_equal(settings, again) && json_object_size(settings) <= 1);
    daytona_network_show(NULL, policy, shown);
    policy_free(read);
    json_decref(policy);
    json_decref(again);
    json_decref(shown);
}

static void daytona(const json_t *body)
{
    json_t *settings = NULL, *next = NULL;
    struct err e;

    if (daytona_network_read(body, &settings, &e) == ERR_OK)
        settings_hold(settings);
    else
        FUZZ_CHECK(e.code == ERR_INVALID && e.text[0]);
    if (daytona_network_update(settings, body, &next, &e) == ERR_OK && next)
        settings_hold(next);
    json_decref(settings);
    json_decref(next);
}

static void network(const char *text, size_t n)
{
    json_t *body = NULL, *kept = NULL, *next = NULL, *shown;
    struct err e;

    if (json_parse(text, n, true, &body, &e) != ERR_OK || !json_is_object(body)) {
        json_decref(body);
        return;
    }
    daytona(body);
    if (e2b_network_keep(body, body, &kept, &e) == ERR_OK) {
        FUZZ_CHECK(e2b_network_check(kept, &e) == ERR_OK); /* a kept one passes again */
        FUZZ_CHECK(!json_is_object(json_object_get(kept, "egressProxy")));
        shown = e2b_network_shown(kept);
        FUZZ_CHECK(!json_object_get(shown, E2B_INTERNET_KEY));
        json_decref(shown);
    } else {
        FUZZ_CHECK(e.code == ERR_INVALID && e.text[0]);
    }
    if (e2b_network_update(kept, body, &next, &e) == ERR_OK)
        json_decref(next);
    json_decref(kept);
    json_decref(body);
}

static void metadata(const char *text)
{
    json_t *filter, *value;
    const char *key;
    struct err e;

    filter = e2b_metadata_filter(text, &e);
    FUZZ_CHECK(filter || e.code == ERR_INVALID);
    json_object_foreach (filter, key, value)
        FUZZ_CHECK(json_is_string(value));
    json_decref(filter);
}

static void cursor(const char *text)
{
    char id[IDS_SANDBOX_SIZE], again[E2B_PAGE_TOKEN_SIZE], id2[IDS_SANDBOX_SIZE];
    int64_t ms = 0, ms2 = 0;

    if (e2b_page_token_parse(text, true, &ms, id) < 0)
        return;
    FUZZ_CHECK(ids_is_sandbox(id) && ms >= 0);
    e2b_page_token_make(ms, id, true, again);
    FUZZ_CHECK(e2b_page_token_parse(again, true, &ms2, id2) == 0);
    FUZZ_CHECK(ms == ms2 && strcmp(id, id2) == 0);
}

static void path(const char *text)
{
    static const char *const patterns[] = {"/sandboxes", "/sandboxes/{id}", "/a/{b}/c/{d}", "/{x}"};
    char params[API_PARAMS_MAX][API_PARAM_SIZE];

    for (size_t i = 0; i < ARRAY_SIZE(patterns); i++)
        if (api_route_match(patterns[i], text, params) && strchr(patterns[i], '{'))
            FUZZ_CHECK(params[0][0] && memchr(params[0], '\0', API_PARAM_SIZE));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text;

    if (size == 0)
        return 0;
    text = malloc(size);
    FUZZ_CHECK(text);
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    switch (data[0] % 4) {
    case 0: network(text, size - 1); break;
    case 1: metadata(text); break;
    case 2: cursor(text); break;
    default: path(text);
    }
    free(text);
    return 0;
}
