/* Each handler reads its body as the SDKs send it and answers once: /execute by a stream that the
 * context owns from then on, a new or restarted context when its kernel is ready. The table at the
 * end is all that there is; anything else is 404. */
#include "kernels/routes.h"

#include "http/json.h"
#include "kernels/env_code.h"

#include <stdio.h>
#include <string.h>

#define ID_MAX    128
#define ENV_COUNT 1024
#define ENV_BYTES (1024u * 1024u)

/* -- answers ----------------------------------------------------------------------------------- */

static void answer(struct http_exchange *x, int status, const char *type, const char *text)
{
    const struct http_header headers[] = {{"Content-Type", type},
                                          {"Access-Control-Allow-Origin", "*"},
                                          {"Access-Control-Allow-Methods", "*"},
                                          {"Access-Control-Allow-Headers", "*"}};

    http_respond(x, status, headers, ARRAY_SIZE(headers), text, strlen(text));
}

static void answer_text(struct http_exchange *x, int status, const char *text)
{
    answer(x, status, "text/plain; charset=utf-8", text);
}

static void answer_json(struct http_exchange *x, int status, json_t *value)
{
    CLEANUP_FREE char *text = value ? json_dumps(value,
                                                 JSON_COMPACT | JSON_ENSURE_ASCII | JSON_ENCODE_ANY)
                                    : NULL;

    json_decref(value);
    if (text)
        answer(x, status, "application/json", text);
    else
        answer_text(x, 500, "out of memory");
}

/* A body that does not fit. */
static void answer_unfit(struct http_exchange *x, const struct err *e)
{
    answer_json(x, 422, json_pack("{s:s}", "detail", e->text));
}

static void answer_no_context(struct http_exchange *x, const char *id)
{
    char text[ID_MAX + 32];

    snprintf(text, sizeof(text), "Context %s not found", id);
    answer_text(x, 404, text);
}

static struct contexts *contexts_of(struct http_exchange *x)
{
    return http_exchange_get(x);
}

/* -- /execute ---------------------------------------------------------------------------------- */

struct execute {
    const char *code, *context_id, *language;
    json_t *env;
};

static enum err_code read_execute(const json_t *body, struct execute *r, struct err *e)
{
    enum err_code code = json_get_str(body, "code", NULL, JSON_REQUIRED, ROUTES_BODY_MAX, &r->code,
                                      e);

    if (code == ERR_OK)
        code = json_get_str(body, "context_id", NULL, JSON_OPTIONAL, ID_MAX - 1, &r->context_id, e);
    if (code == ERR_OK)
        code = json_get_str(body, "language", NULL, JSON_OPTIONAL, SPEC_NAME_MAX, &r->language, e);
    if (code == ERR_OK)
        code = json_get_obj(body, "env_vars", NULL, JSON_OPTIONAL, &r->env, e);
    if (code == ERR_OK && r->env)
        code = json_check_env(r->env, "env_vars", ENV_COUNT, ENV_BYTES, e);
    return code;
}

/* NULL: x is answered. */
static struct context *context_of(struct http_exchange *x, struct contexts *all,
                                  const struct execute *r)
{
    char language[SPEC_NAME_MAX];
    struct context *c = NULL;
    struct err e = {0};

    if (r->context_id && r->language) {
        answer_text(x, 400, "Only one of context_id or language can be provided");
    } else if (r->context_id) {
        c = contexts_find(all, r->context_id);
        if (!c)
            answer_no_context(x, r->context_id);
    } else if (!spec_language(r->language ? r->language : "", language)) {
        answer_text(x, 500, "no language has such a name");
    } else if (contexts_default(all, language, NULL, &c, &e) != ERR_OK) {
        answer_text(x, 500, e.text);
        return NULL;
    }
    return c;
}

static void execute(struct http_exchange *x, struct contexts *all, const struct execute *r)
{
    json_t *env = json_object_size(r->env) > 0 ? r->env : NULL;
    struct context *c = context_of(x, all, r);
    struct err e = {0};
    char *code;

    if (!c)
        return;
    if (env && env_check(context_language(c), env, &e) != ERR_OK) {
        answer_unfit(x, &e);
        return;
    }
    code = strdup(r->code);
    if (!code)
        answer_text(x, 500, "out of memory");
    else
        context_execute(c, x, code, env ? json_deep_copy(env) : NULL);
}

static void on_execute_body(struct http_exchange *x, char *body, size_t len)
{
    struct contexts *all = contexts_of(x);
    struct execute r = {0};
    json_t *object = NULL;
    struct err e = {0};

    if (json_parse(body, len, false, &object, &e) != ERR_OK ||
        read_execute(object, &r, &e) != ERR_OK)
        answer_unfit(x, &e);
    else
        execute(x, all, &r);
    json_decref(object);
}

static void post_execute(struct http_exchange *x, const char *id)
{
    http_body_collect(x, ROUTES_BODY_MAX, on_execute_body);
}

/* -- contexts ---------------------------------------------------------------------------------- */

/* A client that waits for a context to be ready. */
struct waiter {
    struct context_waiter w;
    struct contexts *all;
    struct http_exchange *x;
    bool describe;
};

static void on_waiter_closed(struct http_exchange *x, void *data)
{
    struct waiter *w = data;

    if (w)
        contexts_forget_waiter(w->all, &w->w);
    free(w);
}

static void on_started(struct context_waiter *cw, struct context *c, const char *why)
{
    struct waiter *w = CONTAINER_OF(cw, struct waiter, w);
    struct http_exchange *x = w->x;

    http_exchange_set(x, NULL, NULL);
    if (why)
        answer_text(x, 500, why);
    else
        answer_json(x, 200, w->describe ? context_describe(c) : json_null());
    free(w);
}

static struct waiter *new_waiter(struct http_exchange *x, struct contexts *all, bool describe)
{
    struct waiter *w = calloc(1, sizeof(*w));

    if (!w) {
        answer_text(x, 500, "out of memory");
        return NULL;
    }
    *w = (struct waiter){.w.fn = on_started, .all = all, .x = x, .describe = describe};
    http_exchange_set(x, w, on_waiter_closed);
    return w;
}

static void make_context(struct http_exchange *x, struct contexts *all, const char *name,
                         const char *cwd)
{
    char language[SPEC_NAME_MAX];
    struct context *c;
    struct waiter *w;
    struct err e = {0};

    if (!spec_language(name, language)) {
        answer_text(x, 500, "no language has such a name");
        return;
    }
    w = new_waiter(x, all, true);
    if (!w || contexts_make(all, language, cwd, &w->w, &c, &e) == ERR_OK)
        return;
    http_exchange_set(x, NULL, NULL);
    free(w);
    answer_text(x, 500, e.text);
}

static void on_context_body(struct http_exchange *x, char *body, size_t len)
{
    struct contexts *all = contexts_of(x);
    const char *language = "", *cwd = contexts_home(all);
    json_t *object = NULL;
    struct err e = {0};

    if (json_parse(body, len, true, &object, &e) != ERR_OK ||
        json_get_str(object, "language", NULL, JSON_OPTIONAL, SPEC_NAME_MAX, &language, &e) !=
            ERR_OK ||
        json_get_str(object, "cwd", NULL, JSON_OPTIONAL, PATH_MAX - 1, &cwd, &e) != ERR_OK)
        answer_unfit(x, &e);
    else
        make_context(x, all, language, cwd);
    json_decref(object);
}

static void post_contexts(struct http_exchange *x, const char *id)
{
    http_body_collect(x, ROUTES_BODY_MAX, on_context_body);
}

static void get_contexts(struct http_exchange *x, const char *id)
{
    json_t *list = json_array();

    for (struct context *c = NULL; list && (c = contexts_next(contexts_of(x), c)) != NULL;)
        if (json_array_append_new(list, context_describe(c)) < 0) {
            json_decref(list);
            list = NULL;
        }
    answer_json(x, 200, list);
}

static void post_restart(struct http_exchange *x, const char *id)
{
    struct contexts *all = contexts_of(x);
    struct context *c = contexts_find(all, id);
    struct waiter *w;

    if (!c) {
        answer_no_context(x, id);
        return;
    }
    w = new_waiter(x, all, false);
    if (w)
        context_restart(c, &w->w);
}

static void delete_context(struct http_exchange *x, const char *id)
{
    struct context *c = contexts_find(contexts_of(x), id);

    if (!c) {
        answer_no_context(x, id);
        return;
    }
    context_remove(c);
    answer_json(x, 200, json_null());
}

static void get_health(struct http_exchange *x, const char *id)
{
    if (contexts_python_starts(contexts_of(x)))
        answer_text(x, 503, "Python is starting");
    else
        answer_json(x, 200, json_string("OK"));
}

/* -- the table --------------------------------------------------------------------------------- */

static const struct {
    const char *method, *path, *after; /* the context's id stands between path and after */
    void (*fn)(struct http_exchange *x, const char *id);
} routes[] = {
    {"GET", "/health", NULL, get_health},
    {"POST", "/execute", NULL, post_execute},
    {"POST", "/contexts", NULL, post_contexts},
    {"GET", "/contexts", NULL, get_contexts},
    {"POST", "/contexts/", "/restart", post_restart},
    {"DELETE", "/contexts/", "", delete_context},
};

static bool matches(size_t i, const char *path, char id[static ID_MAX])
{
    size_t before = strlen(routes[i].path), len = strlen(path), after;

    id[0] = '\0';
    if (!routes[i].after)
        return strcmp(path, routes[i].path) == 0;
    after = strlen(routes[i].after);
    if (len <= before + after || len - before - after >= ID_MAX ||
        strncmp(path, routes[i].path, before) != 0 ||
        strcmp(path + len - after, routes[i].after) != 0)
        return false;
    snprintf(id, ID_MAX, "%.*s", (int)(len - before - after), path + before);
    return strchr(id, '/') == NULL;
}

void routes_dispatch(struct http_exchange *x, void *ctx)
{
    const struct http_head *head = http_exchange_head(x);
    char id[ID_MAX];
    bool known = false;

    if (strcmp(head->method, "OPTIONS") == 0) {
        answer_text(x, 200, "OK");
        return;
    }
    for (size_t i = 0; i < ARRAY_SIZE(routes); i++) {
        if (!matches(i, head->path, id))
            continue;
        known = true;
        if (strcmp(head->method, routes[i].method) == 0) {
            http_exchange_set(x, ctx, NULL);
            routes[i].fn(x, id);
            return;
        }
    }
    if (known)
        answer_json(x, 405, json_pack("{s:s}", "detail", "Method Not Allowed"));
    else
        answer_json(x, 404, json_pack("{s:s}", "detail", "Not Found"));
}
