#include "egress/flow/denial.h"

#include "base/clock.h"

#include <jansson.h>

json_t *denial_json(const struct denial *d)
{
    char at[CLOCK_RFC3339_SIZE];
    json_t *o;

    clock_format_rfc3339(d->at_ms, at);
    o = json_pack("{s:s, s:s, s:i, s:s, s:s}", "time", at, "name", d->name, "port", (int)d->port,
                  "rule", d->rule, "reason", d->reason);
    if (o && d->count > 1)
        json_object_set_new(o, "count", json_integer(d->count));
    if (o && d->command)
        json_object_set_new(o, "command", json_integer(d->command));
    if (o && d->method[0]) {
        json_object_set_new(o, "method", json_string(d->method));
        json_object_set_new(o, "path", json_string(d->path));
    }
    return o;
}
