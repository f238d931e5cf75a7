#include "egress/control/audit_filter.h"

#include "base/clock.h"
#include "base/util.h"
#include "egress/control/audit_query.h"
#include "http/json.h"
#include "http/server.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_LIMIT 100u

static bool member_is(const json_t *o, const char *key, const char *wanted)
{
    const char *value = json_string_value(json_object_get(o, key));

    return !*wanted || (value && strcmp(value, wanted) == 0);
}

/* Times are all of one form (UTC, milliseconds), so that text order is time order. */
static bool is_old(const struct audit_filter *f, const json_t *o)
{
    const char *time = json_string_value(json_object_get(o, "time"));

    return *f->since && (!time || strcmp(time, f->since) < 0);
}

static bool has_text(const char *line, size_t n, const char *wanted)
{
    return memmem(line, n, wanted, strlen(wanted)) != NULL;
}

/* As is_old, of a line as audit.c writes them. False: it is not known without its JSON. */
static bool is_old_by_text(const struct audit_filter *f, const char *line, size_t n, bool *old)
{
    static const char begin[] = "{\"time\":\"";
    const size_t at = sizeof(begin) - 1, len = strlen(f->since);

    *old = false;
    if (len == 0)
        return true;
    if (n < at + len + 1 || memcmp(line, begin, at) != 0 || line[at + len] != '"')
        return false;
    *old = memcmp(line + at, f->since, len) < 0;
    return true;
}

/* Most of a long log is not asked about: what a line has to have is looked for before its JSON is
 * read, which takes fifty times as long. Only an escape could spell it otherwise. True: the line
 * does not fit, and *old is known. */
static bool is_other(const struct audit_filter *f, const char *line, size_t n, bool *old)
{
    if (has_text(line, n, f->tenant) && has_text(line, n, f->sandbox) &&
        has_text(line, n, f->verdict))
        return false;
    return !memchr(line, '\\', n) && is_old_by_text(f, line, n, old);
}

int audit_filter_fits(const struct audit_filter *f, const char *line, size_t n, bool *old)
{
    json_t *o;
    bool ok;

    if (is_other(f, line, n, old))
        return 0;
    o = json_load(line, n);
    if (!o && json_memory_was_out())
        return -ENOMEM;
    ok = o && member_is(o, "tenant", f->tenant) && member_is(o, "sandbox", f->sandbox) &&
         member_is(o, "verdict", f->verdict);
    *old = o && is_old(f, o);
    json_decref(o);
    return ok && !*old;
}

static int take_text(const char *query, const char *key, char *out, size_t size)
{
    ssize_t n = http_query_get(query, key, out, size);

    if (n == -ENOENT)
        out[0] = '\0';
    return n < 0 && n != -ENOENT ? -EINVAL : 0;
}

int audit_filter_read(const char *query, struct audit_filter *f)
{
    char number[16], since[64];
    int64_t ms;

    if (take_text(query, "tenant", f->tenant, sizeof(f->tenant)) < 0 ||
        take_text(query, "sandbox", f->sandbox, sizeof(f->sandbox)) < 0 ||
        take_text(query, "verdict", f->verdict, sizeof(f->verdict)) < 0 ||
        take_text(query, "since", since, sizeof(since)) < 0 ||
        take_text(query, "limit", number, sizeof(number)) < 0)
        return -EINVAL;
    if (*since) {
        if (clock_parse_rfc3339(since, &ms) < 0)
            return -EINVAL;
        clock_format_rfc3339(ms, f->since);
    }
    f->limit = *number ? strtoul(number, NULL, 10) : DEFAULT_LIMIT;
    f->limit = MIN(MAX(f->limit, (size_t)1), (size_t)AUDIT_QUERY_MAX);
    return 0;
}
