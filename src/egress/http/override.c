#include "egress/http/override.h"

#include "base/util.h"

#include <errno.h>
#include <string.h>

bool override_is(const char *name)
{
    static const char *const names[] = {
        "x-http-method-override", "x-http-method",      "x-method-override", "x-method",
        "x-original-url",         "x-original-uri",     "x-original-method", "x-original-path",
        "x-rewrite-url",          "x-rewrite-uri",      "x-forwarded-uri",   "x-forwarded-method",
        "x-forwarded-path",       "x-forwarded-prefix", "x-forwarded-host",  "x-http-path-override",
        "x-override-url",         "x-override-uri",     "x-path-override",   "x-host",
        "x-http-host-override"};

    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (http_name_like(names[i], name))
            return true;
    return false;
}

int override_names(const struct http_head *h, struct arena *a, const char *const **out)
{
    const char **names = arena_alloc(a, (h->header_count + 1) * sizeof(names[0]));
    size_t n = 0;

    if (!names)
        return -ENOMEM;
    for (size_t i = 0; i < h->header_count; i++)
        if (override_is(h->headers[i].name))
            names[n++] = h->headers[i].name;
    names[n] = NULL;
    *out = names;
    return 0;
}
