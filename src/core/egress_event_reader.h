#pragma once
/* Events that cay-egress sends on the connection that shows that it runs (GET /v1/events): JSON
 * lines of what it refused, and of how much it refused that it does not tell. They become events of
 * the sandbox's tenant, which core knows by slot and generation: what cay-egress says of a tenant
 * counts for nothing here. */

#include "core/events.h"

/* Of one connection. All zero at its begin. */
struct egress_event_reader {
    size_t len;
    bool skip; /* to the end of a line that is longer than any of cay-egress's */
    char line[EVENTS_LINE_MAX];
};

/* The next bytes that came, the answer's head among them. */
void egress_event_reader_take(struct core *c, struct egress_event_reader *reader, const char *data,
                              size_t n);
