#include "egress/credential/override.h"

#include "base/util.h"

#include <errno.h>
#include <string.h>

static bool is_one_of(const char *const *names, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (http_name_like(names[i], name))
            return true;
    return false;
}

bool override_is(const char *name)
{
    static const char *const names[] = {"x-http-method-override",
                                        "x-http-method",
                                        "x-method-override",
                                        "x-method",
                                        "x-original-url",
                                        "x-original-uri",
                                        "x-original-method",
                                        "x-original-path",
                                        "x-rewrite-url",
                                        "x-rewrite-uri",
                                        "x-forwarded-uri",
                                        "x-forwarded-method",
                                        "x-forwarded-path",
                                        "x-forwarded-prefix",
                                        "x-forwarded-host",
                                        "x-http-path-override",
                                        "x-override-url",
                                        "x-override-uri",
                                        "x-path-override",
                                        "x-host",
                                        "x-http-host-override",
                                        "forwarded",
                                        "x-original-host",
                                        "x-forwarded-server",
                                        "x-forwarded-url",
                                        "x-forwarded-original-url",
                                        "x-request-uri",
                                        "x-http-url-override",
                                        "x-proxy-url",
                                        "x-envoy-original-path",
                                        "x-envoy-original-host",
                                        "x-http-verb",
                                        "x-verb",
                                        "x-requested-method",
                                        "x-tunnel-method"};

    return is_one_of(names, ARRAY_SIZE(names), name);
}

/* WebDAV and Swift; S3, and those that have its API with their own names; Google, Azure. */
bool override_is_second(const char *name)
{
    static const char *const names[] = {
        "destination",        "x-copy-from",         "x-object-manifest",    "x-symlink-target",
        "x-amz-copy-source",  "x-amz-rename-source", "x-goog-copy-source",   "x-ms-copy-source",
        "x-ms-rename-source", "x-oss-copy-source",   "x-oss-symlink-target", "x-cos-copy-source",
        "x-obs-copy-source",  "x-bce-copy-source",   "x-tos-copy-source",    "x-kss-copy-source"};

    return is_one_of(names, ARRAY_SIZE(names), name);
}

const char *override_second(const struct http_head *h)
{
    for (size_t i = 0; i < h->header_count; i++)
        if (override_is_second(h->headers[i].name))
            return h->headers[i].name;
    return NULL;
}

const char *override_bound_path(const struct http_head *h)
{
    return override_second(h) ? OVERRIDE_SECOND_PATH : h->path;
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
