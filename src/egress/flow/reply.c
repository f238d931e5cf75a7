#include "egress/flow/reply.h"

#include "http/json.h"
#include "http/server.h"

#include <stdlib.h>
#include <string.h>

void reply_json(struct http_exchange *x, int status, json_t *o)
{
    static const struct http_header type = {"Content-Type", "application/json"};
    char *text = json_was_cut() ? NULL : json_text(o, JSON_COMPACT | JSON_ENSURE_ASCII);

    json_decref(o);
    if (!text)
        http_respond_error(x, 503, "out of memory");
    else
        http_respond(x, status, &type, 1, text, strlen(text));
    free(text);
}
