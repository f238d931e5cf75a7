/* Answers of the gateway itself: E2B's JSON forms for SDKs, or a small page for a browser.
 * Called by gateway.c in place of a relayed answer, once for each exchange. Ids and messages are
 * escaped, since an id may come from a host name that any client can send. */

#include "gateway/answer.h"

#include "base/buf.h"
#include "http/json.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#define PAGE_MAX_BYTES 4096

bool answer_wants_html(const struct http_head *h)
{
    const char *accept = http_head_get(h, "Accept");

    return accept && strstr(accept, "text/html") &&
           (strcmp(h->method, "GET") == 0 || strcmp(h->method, "HEAD") == 0);
}

static int append_escaped(struct buf *b, const char *text)
{
    int rc = 0;

    for (; *text && rc == 0; text++)
        switch (*text) {
        case '<': rc = buf_append_str(b, "&lt;"); break;
        case '>': rc = buf_append_str(b, "&gt;"); break;
        case '&': rc = buf_append_str(b, "&amp;"); break;
        case '"': rc = buf_append_str(b, "&quot;"); break;
        default: rc = buf_append(b, text, 1);
        }
    return rc;
}

static int append_page(struct buf *page, int status, const char *id, const char *message)
{
    int rc;

    if ((rc = buf_printf(page,
                         "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">"
                         "<title>%d</title><style>body{font:16px system-ui,sans-serif;margin:15vh "
                         "auto;max-width:36em;padding:0 1em}code{background:#eee;padding:.1em .3em}"
                         "</style></head><body><h1>%d %s</h1><p>",
                         status, status, http_status_text(status))) ||
        (rc = append_escaped(page, message)) ||
        (rc = buf_append_str(page, "</p><p>Sandbox <code>")) || (rc = append_escaped(page, id)))
        return rc;
    return buf_append_str(page, "</code></p></body></html>\n");
}

static void respond_page(struct http_exchange *x, int status, const char *id, const char *message)
{
    static const struct http_header headers[] = {
        {"Content-Type", "text/html; charset=utf-8"},
        {"Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'"},
        {"Cache-Control", "no-store"},
    };
    CLEANUP_BUF struct buf page;

    buf_init(&page, PAGE_MAX_BYTES);
    if (append_page(&page, status, id, message) < 0)
        buf_clear(&page);
    http_respond(x, status, headers, ARRAY_SIZE(headers), page.data, page.len);
}

/* Takes the reference to body. A page of another origin may read errors, too. */
static void respond_json(struct http_exchange *x, int status, json_t *body)
{
    static const struct http_header headers[] = {
        {"Content-Type", "application/json"},
        {"Access-Control-Allow-Origin", "*"},
        {"Cache-Control", "no-store"},
    };
    CLEANUP_FREE char *text = json_text(body, JSON_COMPACT);

    json_decref(body);
    http_respond(x, status, headers, ARRAY_SIZE(headers), text, text ? strlen(text) : 0);
}

/* port 0: not in the answer. */
static void respond(struct http_exchange *x, int status, const char *id, const char *message,
                    uint16_t port)
{
    json_t *body;

    if (answer_wants_html(http_exchange_head(x))) {
        respond_page(x, status, id, message);
        return;
    }
    body = json_object();
    json_object_set_new(body, "sandboxId", json_string(id));
    json_object_set_new(body, "message", json_string(message));
    if (port)
        json_object_set_new(body, "port", json_integer(port));
    json_object_set_new(body, "code", json_integer(status));
    respond_json(x, status, body);
}

void answer_not_found(struct http_exchange *x, const char *id)
{
    respond(x, 502, id, "The sandbox was not found", 0);
}

void answer_paused(struct http_exchange *x, const char *id)
{
    respond(x, 502, id, "The sandbox was paused before it had answered; connect to it to resume it",
            0);
}

void answer_port_closed(struct http_exchange *x, const char *id, uint16_t port)
{
    respond(x, 502, id, "The sandbox is running but port is not open", port);
}

void answer_stuck(struct http_exchange *x, const char *id, const char *why)
{
    char message[256];

    snprintf(
        message, sizeof(message),
        "The sandbox does not answer (%.100s): its agent is stopped or has too much to do. Try "
        "again, or kill the sandbox",
        why);
    respond(x, 504, id, message, 0);
}

void answer_refused(struct http_exchange *x, const struct gateway_answer *a)
{
    if (a->shaped)
        respond(x, a->status, a->id, a->message, 0);
    else
        respond_json(x, a->status,
                     json_pack("{s:i, s:s}", "code", a->status, "message", a->message));
}
