#include "egress/flow/local_info_page.h"

#include "base/buf.h"
#include "egress/flow/denial.h"
#include "egress/flow/deny.h"
#include "egress/flow/flow.h"
#include "egress/flow/registry.h"
#include "egress/flow/sandbox.h"
#include "http/json.h"

#include <jansson.h>
#include <string.h>

void local_info_page_serve(struct http_exchange *x, const struct flow *f)
{
    static const struct http_header plain = {"Content-Type", "text/plain"},
                                    json = {"Content-Type", "application/json"};
    static const char hello[] = "cay: this computer's way out.\n"
                                "  /denials       what was refused, newest last\n"
                                "  /denials.txt   the same, to be read\n"
                                "  /allowed       what the policy allows\n";
    const char *path = http_exchange_head(x)->path;
    const char *allows = f->sandbox->allows ? f->sandbox->allows : "[]";
    json_t *list;
    char *text;

    if (strcmp(path, "/") == 0) {
        http_respond(x, 200, &plain, 1, hello, sizeof(hello) - 1);
    } else if (strcmp(path, "/allowed") == 0) {
        http_respond(x, 200, &json, 1, allows, strlen(allows));
    } else if (strcmp(path, "/denials") == 0) {
        list = deny_list(f->sandbox);
        text = json_text(list, JSON_COMPACT | JSON_ENSURE_ASCII);
        json_decref(list);
        http_respond(x, text ? 200 : 503, &json, 1, text ? text : "", text ? strlen(text) : 0);
        free(text);
    } else if (strcmp(path, "/denials.txt") == 0) {
        CLEANUP_BUF struct buf b;
        int rc;

        buf_init(&b, DENIALS_MAX * DENY_LINE_MAX);
        rc = deny_lines(f->sandbox, &b);
        http_respond(x, rc == 0 ? 200 : 503, &plain, 1, b.data, b.len);
    } else {
        http_respond_error(x, 404, "there is /, /denials, /denials.txt and /allowed");
    }
}
