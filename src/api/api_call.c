/* Readers of a call for handlers (its body and query, the API it belongs to), and the texts that
 * they put into JSON. A malformed body or query is answered here. */

#include "api/api_internal.h"

#include "base/clock.h"
#include "base/word_list.h"
#include "http/json.h"
#include "http/message.h"

#include <errno.h>
#include <string.h>

const struct api_config *api_config_of(const struct api *a)
{
    return &a->config;
}

struct cay_v1 *api_cay_v1(const struct api *a)
{
    return a->cay_v1;
}

struct api_metrics *api_metrics_of(struct api *a)
{
    return &a->metrics;
}

/* Of the connection's own maximum (API_BODY_MAX_BYTES) the loop that all share parses for 14 ms. */
static bool is_within_route(struct api_call *call)
{
    size_t max = call->route->body_max;

    if (max == 0 || call->request->body_len <= max)
        return true;
    api_fail(call, 413, "the request's body is larger than %zu bytes", max);
    return false;
}

bool api_call_body(struct api_call *call)
{
    struct err e;
    json_t *body = NULL;

    if (!is_within_route(call))
        return false;
    if (json_parse_request(call->request->body, call->request->body_len, true, &body, &e) !=
        ERR_OK) {
        api_fail_err(call, &e);
        return false;
    }
    if (!json_is_object(body)) {
        json_decref(body);
        api_fail(call, 400, "the body must be a JSON object");
        return false;
    }
    call->body = body;
    return true;
}

/* -- a body's keys ----------------------------------------------------------------------------- */

/* "a b c" as "a, b, c". */
static void list_words(const char *words, char *out, size_t size)
{
    size_t used = 0;

    for (; *words && used + 3 < size; words++) {
        if (*words == ' ')
            out[used++] = ',';
        out[used++] = *words;
    }
    out[used] = '\0';
}

enum err_code api_check_keys(const json_t *body, const char *known, const char *also, struct err *e)
{
    char list[256];
    const char *key;
    json_t *value;

    json_object_foreach ((json_t *)(uintptr_t)body, key, value) {
        if (word_list_has(known, " ", key) || word_list_has(also, " ", key))
            continue;
        list_words(known, list, sizeof(list));
        return err_set(e, ERR_INVALID, "there is no \"%.40s\": this call takes %s", key, list);
    }
    return ERR_OK;
}

bool api_call_body_of(struct api_call *call, const char *known)
{
    struct err e;

    if (!api_call_body(call))
        return false;
    if (api_check_keys(call->body, known, "", &e) == ERR_OK)
        return true;
    api_fail_err(call, &e);
    return false;
}

/* -- state, query ------------------------------------------------------------------------------ */

void *api_call_state(struct api_call *call, size_t size, void (*state_free)(void *state))
{
    void *state;

    if (!api_call_body(call)) /* the call was answered, and is gone */
        return NULL;
    state = calloc(1, size);
    if (!state) {
        api_fail(call, 503, "memory is out");
        return NULL;
    }
    call->state = state;
    call->state_free = state_free;
    return state;
}

bool api_call_query(struct api_call *call, const char *name, char *out, size_t size)
{
    ssize_t n = http_query_get(call->request->query, name, out, size);

    if (n >= 0)
        return true;
    out[0] = '\0';
    if (n == -ENOENT)
        return true;
    api_fail(call, 400, "the query parameter \"%s\" is %s", name,
             n == -EMSGSIZE ? "too long" : "not validly percent-encoded");
    return false;
}

bool api_call_query_int(struct api_call *call, const char *name, int64_t min, int64_t max,
                        int64_t *out)
{
    char text[32], *end;
    long long value;

    if (!api_call_query(call, name, text, sizeof(text)))
        return false;
    if (text[0] == '\0')
        return true;
    errno = 0;
    value = strtoll(text, &end, 10);
    if (errno || *end || end == text || text[0] == ' ' || value < min || value > max) {
        api_fail(call, 400,
                 "the query parameter \"%s\" must be a whole number of %lld to %lld, not \"%s\"",
                 name, (long long)min, (long long)max, text);
        return false;
    }
    *out = value;
    return true;
}

enum err_code api_read_maps(const json_t *body, const char *metadata, const char *env,
                            struct sandbox_request *r, struct err *e)
{
    enum err_code rc;

    if ((rc = json_get_obj(body, metadata, NULL, JSON_OPTIONAL, &r->metadata, e)) ||
        (rc = json_get_obj(body, env, NULL, JSON_OPTIONAL, &r->env, e)))
        return rc;
    if (r->metadata && (rc = json_check_str_map(r->metadata, metadata, API_MAP_MAX_COUNT,
                                                API_METADATA_MAX_BYTES, e)))
        return rc;
    return r->env ? json_check_program_env(r->env, env, API_MAP_MAX_COUNT, API_ENV_MAX_BYTES, e)
                  : ERR_OK;
}

json_t *api_json_text(const char *text)
{
    size_t n = strlen(text);
    json_t *s = json_stringn(text, n);

    while (!s && n > 0)
        s = json_stringn(text, --n);
    return s ? s : json_string("");
}

json_t *api_json_time(int64_t real_ms)
{
    char text[CLOCK_RFC3339_SIZE];

    clock_format_rfc3339(real_ms, text);
    return json_string(text);
}
