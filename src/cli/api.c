/* Calls of the server by one struct api for a run of the command line (api_open.c opens it). Calls
 * block until their answer is whole (exchange), but for streams, which session.c drives on the same
 * pool of connections. An error of the server becomes a struct err with its hint once, in
 * api_status_error. */

#include "cli/api.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

#define CONNECT_TIMEOUT_MS 10000L
#define ANSWER_TIMEOUT_MS  120000L

/* -- transfers --------------------------------------------------------------------------------- */

int api_easy_header(struct api_easy *x, const char *fmt, ...)
{
    struct curl_slist *more;
    char line[1024];
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    if (n < 0 || n >= (int)sizeof(line) || strpbrk(line, "\r\n"))
        return -EINVAL;
    more = curl_slist_append(x->headers, line);
    if (!more)
        return -ENOMEM;
    x->headers = more;
    return curl_easy_setopt(x->curl, CURLOPT_HTTPHEADER, x->headers) == CURLE_OK ? 0 : -ENOMEM;
}

void api_easy_free(struct api_easy *x)
{
    if (x->curl)
        curl_easy_cleanup(x->curl);
    curl_slist_free_all(x->headers);
    memset(x, 0, sizeof(*x));
}

static enum err_code easy_new(struct api *a, const char *path, struct api_easy *out, struct err *e)
{
    CLEANUP_FREE char *url = NULL;

    memset(out, 0, sizeof(*out));
    if (asprintf(&url, "%s%s", a->url, path) < 0)
        url = NULL;
    out->curl = curl_easy_init();
    if (!url || !out->curl) {
        api_easy_free(out);
        return err_set(e, ERR_EXHAUSTED, "out of memory");
    }
    curl_easy_setopt(out->curl, CURLOPT_URL, url);
    curl_easy_setopt(out->curl, CURLOPT_ERRORBUFFER, out->error);
    curl_easy_setopt(out->curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(out->curl, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_TIMEOUT_MS);
    curl_easy_setopt(out->curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(out->curl, CURLOPT_USERAGENT, "cay/" CAY_VERSION);
    curl_easy_setopt(out->curl, CURLOPT_TCP_NODELAY, 1L);
    if (a->ca_file)
        curl_easy_setopt(out->curl, CURLOPT_CAINFO, a->ca_file);
    /* No proxy setting may carry a key to somewhere else on the way to this machine. */
    curl_easy_setopt(out->curl, CURLOPT_NOPROXY, "localhost,127.0.0.1,::1");
    /* curl would wait a second for a 100 before it sends a body. */
    if (api_easy_header(out, "Expect:") < 0) {
        api_easy_free(out);
        return err_set(e, ERR_EXHAUSTED, "out of memory");
    }
    return ERR_OK;
}

CURLcode api_easy_run(struct api *a, struct api_easy *x)
{
    CURLcode result = CURLE_FAILED_INIT;
    int running = 1, left;
    CURLMsg *m;

    if (curl_multi_add_handle(a->multi, x->curl) != CURLM_OK)
        return CURLE_FAILED_INIT;
    while (running > 0) {
        if (curl_multi_perform(a->multi, &running) != CURLM_OK)
            break;
        if (running > 0 && curl_multi_poll(a->multi, NULL, 0, 1000, NULL) != CURLM_OK)
            break;
    }
    while ((m = curl_multi_info_read(a->multi, &left)))
        if (m->msg == CURLMSG_DONE && m->easy_handle == x->curl)
            result = m->data.result;
    curl_multi_remove_handle(a->multi, x->curl);
    return result;
}

enum err_code api_curl_error(const struct api *a, const struct api_easy *x, CURLcode code,
                             struct err *e)
{
    const char *why = x->error[0] ? x->error : curl_easy_strerror(code);

    switch (code) {
    case CURLE_OK: return ERR_OK;
    case CURLE_COULDNT_CONNECT:
    case CURLE_COULDNT_RESOLVE_HOST:
        err_set(e, ERR_UNAVAILABLE, "cannot reach a cay server at %s: %s", a->url, why);
        err_hint(e, "Start one with `cay up`, or name another with --url or CAY_URL.");
        return ERR_UNAVAILABLE;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
        err_set(e, ERR_UNAVAILABLE, "%s cannot be trusted: %s", a->url, why);
        err_hint(e, "Name the authority of its certificate with --ca-file or CAY_CA_FILE.");
        return ERR_UNAVAILABLE;
    case CURLE_OPERATION_TIMEDOUT:
        return err_set(e, ERR_TIMEOUT, "%s did not answer in time: %s", a->url, why);
    default: return err_set(e, ERR_UNAVAILABLE, "the connection to %s failed: %s", a->url, why);
    }
}

static enum err_code code_of_status(long status)
{
    static const struct {
        long status;
        enum err_code code;
    } map[] = {
        {400, ERR_INVALID},     {401, ERR_UNAUTHENTICATED}, {403, ERR_DENIED},
        {404, ERR_NOT_FOUND},   {409, ERR_CONFLICT},        {413, ERR_TOO_LARGE},
        {429, ERR_EXHAUSTED},   {499, ERR_CANCELED},        {501, ERR_UNIMPLEMENTED},
        {502, ERR_UNAVAILABLE}, {503, ERR_UNAVAILABLE},     {504, ERR_TIMEOUT},
        {507, ERR_NO_SPACE},
    };

    for (size_t i = 0; i < ARRAY_SIZE(map); i++)
        if (map[i].status == status)
            return map[i].code;
    return ERR_INTERNAL;
}

/* The server ends its message with the hint, for clients that show nothing else; here both are
 * shown. */
static size_t len_without_hint(const char *message, const char *hint)
{
    char tail[512];
    size_t len = strlen(message), n;

    if (!hint)
        return len;
    n = (size_t)snprintf(tail, sizeof(tail), "; %s", hint);
    return n < len && strcmp(message + len - n, tail) == 0 ? len - n : len;
}

enum err_code api_status_error(long status, const char *body, struct err *e)
{
    json_t *answer = body ? json_loads(body, 0, NULL) : NULL;
    const char *message = json_string_value(json_object_get(answer, "message"));
    const char *hint = json_string_value(json_object_get(answer, "hint"));
    enum err_code code = code_of_status(status);

    if (message && message[0])
        err_set(e, code, "%.*s", (int)len_without_hint(message, hint), message);
    else
        err_set(e, code, "the server answered with status %ld and no reason", status);
    if (hint)
        err_hint(e, "%s", hint);
    else if (status == 401)
        err_hint(e, "The key comes from --api-key, E2B_API_KEY, or the server's own key file.");
    json_decref(answer);
    return code;
}

static size_t collect(char *data, size_t size, size_t n, void *arg)
{
    return buf_append(arg, data, size * n) == 0 ? size * n : 0;
}

/* Runs x with a body and gives the whole answer. */
static enum err_code exchange(struct api *a, struct api_easy *x, const char *method,
                              const json_t *body, json_t **out, struct err *e)
{
    CLEANUP_FREE char *text = body ? json_dumps(body, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    CLEANUP_BUF struct buf answer;
    json_error_t bad;
    json_t *value = NULL;
    long status = 0;
    CURLcode r;

    buf_init(&answer, API_MAX_ANSWER);
    if (text) {
        curl_easy_setopt(x->curl, CURLOPT_POSTFIELDS, text);
        curl_easy_setopt(x->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(text));
    }
    curl_easy_setopt(x->curl, CURLOPT_CUSTOMREQUEST, method);
    curl_easy_setopt(x->curl, CURLOPT_TIMEOUT_MS,
                     a->answer_ms ? (long)a->answer_ms : ANSWER_TIMEOUT_MS);
    curl_easy_setopt(x->curl, CURLOPT_WRITEFUNCTION, collect);
    curl_easy_setopt(x->curl, CURLOPT_WRITEDATA, &answer);
    r = api_easy_run(a, x);
    if (r != CURLE_OK)
        return api_curl_error(a, x, r, e);
    curl_easy_getinfo(x->curl, CURLINFO_RESPONSE_CODE, &status);
    if (status >= 400)
        return api_status_error(status, answer.data, e);
    if (answer.len > 0)
        value = json_loadb(answer.data, answer.len, JSON_DECODE_ANY, &bad);
    if (answer.len > 0 && !value)
        return err_set(e, ERR_INTERNAL, "the server's answer is not JSON: %s", bad.text);
    if (out)
        *out = value;
    else
        json_decref(value);
    return ERR_OK;
}

enum err_code api_control_easy(struct api *a, const char *path, struct api_easy *out, struct err *e)
{
    enum err_code code = easy_new(a, path, out, e);

    if (code != ERR_OK || api_easy_header(out, "X-API-Key: %s", a->key) == 0)
        return code;
    api_easy_free(out);
    return err_set(e, ERR_INVALID, "the API key cannot be sent");
}

enum err_code api_call_header(struct api *a, const char *method, const char *path,
                              const json_t *body, json_t **out, const char *name, char **header,
                              struct err *e)
{
    struct curl_header *found;
    struct api_easy x;
    enum err_code code = api_control_easy(a, path, &x, e);

    if (code != ERR_OK)
        return code;
    if (body && api_easy_header(&x, "Content-Type: application/json") < 0)
        code = err_set(e, ERR_EXHAUSTED, "out of memory");
    if (code == ERR_OK)
        code = exchange(a, &x, method, body, out, e);
    if (code == ERR_OK && name) {
        *header = NULL;
        if (curl_easy_header(x.curl, name, 0, CURLH_HEADER, -1, &found) == CURLHE_OK)
            *header = strdup(found->value);
    }
    api_easy_free(&x);
    return code;
}

enum err_code api_list_all(struct api *a, const char *path, int pages_max, json_t *all,
                           struct err *e)
{
    CLEANUP_FREE char *token = NULL;

    for (int page = 0; page < pages_max; page++) {
        char from[1024];
        json_t *items = NULL;
        enum err_code code;

        (void)snprintf(from, sizeof(from), "%s%slimit=100%s%s", path, strchr(path, '?') ? "&" : "?",
                       token ? "&nextToken=" : "", token ? token : "");
        free(TAKE_PTR(token));
        code = api_call_header(a, "GET", from, NULL, &items, "X-Next-Token", &token, e);
        if (code != ERR_OK)
            return code;
        json_array_extend(all, items);
        json_decref(items);
        if (!token || !token[0])
            break;
    }
    return ERR_OK;
}

enum err_code api_call(struct api *a, const char *method, const char *path, const json_t *body,
                       json_t **out, struct err *e)
{
    return api_call_header(a, method, path, body, out, NULL, NULL, e);
}

/* -- agents ------------------------------------------------------------------------------------ */

static bool id_is_clean(const char *id)
{
    return id[0] && strspn(id, "abcdefghijklmnopqrstuvwxyz0123456789") == strlen(id);
}

static enum err_code no_such_sandbox(const char *id, struct err *e)
{
    err_set(e, ERR_NOT_FOUND, "there is no sandbox %s", id);
    err_hint(e, "`cay ls` lists those that are there, `cay ls --ended` tells how others ended");
    return ERR_NOT_FOUND;
}

/* Completes the first characters of an id: of all sandboxes, as another one may begin with them. */
static enum err_code complete_id(struct api *a, const char *start, char *out, size_t size,
                                 struct err *e)
{
    json_t *list = json_array(), *item;
    size_t i, found = 0;
    enum err_code code = api_list_all(a, "/v2/sandboxes", API_LIST_PAGES_MAX, list, e);

    if (code != ERR_OK) {
        json_decref(list);
        return code;
    }
    json_array_foreach (list, i, item) {
        const char *id = json_string_value(json_object_get(item, "sandboxID"));

        if (!id || strncmp(id, start, strlen(start)) != 0)
            continue;
        found++;
        snprintf(out, size, "%s", id);
    }
    json_decref(list);
    if (found == 1)
        return ERR_OK;
    if (found > 1)
        return err_set(e, ERR_INVALID, "%zu sandboxes begin with %s", found, start);
    return no_such_sandbox(start, e);
}

static enum err_code read_sandbox(struct api *a, const char *id, struct api_sandbox *out,
                                  struct err *e)
{
    json_t *detail = NULL;
    const char *token;
    char path[128];
    enum err_code code;

    snprintf(path, sizeof(path), "/sandboxes/%s", id);
    code = api_call(a, "GET", path, NULL, &detail, e);
    if (code != ERR_OK)
        return code;
    token = json_string_value(json_object_get(detail, "envdAccessToken"));
    memset(out, 0, sizeof(*out));
    snprintf(out->id, sizeof(out->id), "%s", id);
    snprintf(out->token, sizeof(out->token), "%s", token ? token : "");
    json_decref(detail);
    return ERR_OK;
}

enum err_code api_sandbox_open(struct api *a, const char *id, struct api_sandbox *out,
                               struct err *e)
{
    enum err_code code;
    struct err first; /* that it is no whole id is no error yet */
    char whole[64];

    if (!id_is_clean(id) || strlen(id) >= sizeof(whole))
        return err_set(e, ERR_INVALID, "\"%s\" is not the id of a sandbox", id);
    code = read_sandbox(a, id, out, &first);
    if (code != ERR_NOT_FOUND || strlen(id) >= IDS_SANDBOX_LEN) {
        if (code == ERR_NOT_FOUND)
            return no_such_sandbox(id, e);
        if (code != ERR_OK && e)
            *e = first;
        return code;
    }
    code = complete_id(a, id, whole, sizeof(whole), e);
    return code == ERR_OK ? read_sandbox(a, whole, out, e) : code;
}

static int add_user(struct api_easy *x, const char *user)
{
    char pair[80];

    if (!user[0])
        return 0;
    snprintf(pair, sizeof(pair), "%s:", user);
    curl_easy_setopt(x->curl, CURLOPT_HTTPAUTH, (long)CURLAUTH_BASIC);
    return curl_easy_setopt(x->curl, CURLOPT_USERPWD, pair) == CURLE_OK ? 0 : -ENOMEM;
}

enum err_code api_agent_easy(struct api *a, const struct api_sandbox *s, const char *path,
                             const char *content_type, struct api_easy *out, struct err *e)
{
    enum err_code code = easy_new(a, path, out, e);

    if (code != ERR_OK)
        return code;
    if (api_easy_header(out, "E2b-Sandbox-Id: %s", s->id) == 0 &&
        api_easy_header(out, "E2b-Sandbox-Port: " API_AGENT_PORT) == 0 &&
        (!s->token[0] || api_easy_header(out, "X-Access-Token: %s", s->token) == 0) &&
        (!content_type || api_easy_header(out, "Content-Type: %s", content_type) == 0) &&
        add_user(out, s->user) == 0)
        return ERR_OK;
    api_easy_free(out);
    return err_set(e, ERR_EXHAUSTED, "out of memory");
}

enum err_code api_agent_call(struct api *a, const struct api_sandbox *s, const char *method,
                             const json_t *body, json_t **out, struct err *e)
{
    struct api_easy x;
    char path[128];
    enum err_code code;

    snprintf(path, sizeof(path), "/%s", method);
    code = api_agent_easy(a, s, path, "application/json", &x, e);
    if (code != ERR_OK)
        return code;
    if (api_easy_header(&x, "Connect-Protocol-Version: 1") < 0)
        code = err_set(e, ERR_EXHAUSTED, "out of memory");
    if (code == ERR_OK)
        code = exchange(a, &x, "POST", body, out, e);
    api_easy_free(&x);
    return code;
}
