/* Which dialect and which route of it a request is for: the tables of all dialects, and the match
 * of a path against a pattern. Used by api_dispatch. */
#include "api/api.h"
#include "api/cay_v1.h"
#include "api/daytona.h"
#include "api/e2b.h"
#include "http/message.h"

#include <stdio.h>
#include <string.h>

/* E2B's shape, and cay's own. */
static json_t *plain_error(struct api_call *call, int status, const char *message, const char *hint)
{
    json_t *body = json_object();

    json_object_set_new(body, "code", json_integer(status));
    json_object_set_new(body, "message", api_json_text(message));
    if (hint[0])
        json_object_set_new(body, "hint", api_json_text(hint));
    return body;
}

static const struct api_route *const plain_tables[] = {e2b_sandbox_routes,
                                                       e2b_template_routes,
                                                       e2b_secret_routes,
                                                       e2b_volume_routes,
                                                       e2b_other_routes,
                                                       cay_v1_routes,
                                                       NULL};
static const struct api_dialect plain_dialect = {"/", plain_tables, plain_error};

/* The first whose prefix fits has the request. */
static const struct api_dialect *const dialects[] = {&daytona_dialect, &plain_dialect};

bool api_route_match(const char *pattern, const char *path,
                     char params[API_PARAMS_MAX][API_PARAM_SIZE])
{
    size_t used = 0;

    while (*pattern && *path) {
        size_t n;

        if (*pattern == '*')
            return true; /* and all that follows */
        if (*pattern != '{') {
            if (*pattern++ != *path++)
                return false;
            continue;
        }
        n = strcspn(path, "/");
        if (n == 0 || used >= API_PARAMS_MAX ||
            http_percent_decode(path, n, false, params[used], API_PARAM_SIZE) <= 0)
            return false;
        used++;
        path += n;
        pattern += strcspn(pattern, "}") + 1;
    }
    return (*pattern == '\0' || *pattern == '*') && *path == '\0';
}

static bool has_prefix(const char *path, const struct api_dialect *d)
{
    return strncmp(path, d->prefix, strlen(d->prefix)) == 0;
}

const struct api_dialect *api_route_dialect(const struct api_dialect *const *more, const char *path)
{
    size_t i = 0;

    for (; more && *more; more++)
        if (has_prefix(path, *more))
            return *more;
    while (i + 1 < ARRAY_SIZE(dialects) && !has_prefix(path, dialects[i]))
        i++;
    return dialects[i];
}

const struct api_route *api_route_find(const struct api_dialect *d, const char *method,
                                       const char *path,
                                       char params[API_PARAMS_MAX][API_PARAM_SIZE], char *allow,
                                       size_t size)
{
    size_t used = 0;

    allow[0] = '\0';
    for (const struct api_route *const *table = d->tables; *table; table++) {
        for (const struct api_route *r = *table; r->method; r++) {
            if (!api_route_match(r->pattern, path, params))
                continue;
            if (strcmp(r->method, method) == 0 || strcmp(r->method, "*") == 0)
                return r;
            if (used < size)
                used += (size_t)snprintf(allow + used, size - used, "%s%s", used ? ", " : "",
                                         r->method);
        }
    }
    return NULL;
}

void api_each_route(void (*fn)(void *arg, const struct api_route *r), void *arg)
{
    for (size_t i = 0; i < ARRAY_SIZE(dialects); i++)
        for (const struct api_route *const *table = dialects[i]->tables; *table; table++)
            for (const struct api_route *r = *table; r->method; r++)
                fn(arg, r);
}
