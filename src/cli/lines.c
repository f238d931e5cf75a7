#include "cli/lines.h"

#include <string.h>

struct reader {
    struct api_easy easy;
    struct buf line, refusal; /* of what has not ended yet; of an answer that is an error */
    api_line_cb take;
    void *arg;
};

static bool take_line(struct reader *r, size_t n)
{
    json_t *o = json_loadb(r->line.data, n, 0, NULL);
    bool more = o && r->take(r->arg, o);

    json_decref(o);
    return more;
}

static size_t on_data(char *data, size_t size, size_t n, void *arg)
{
    struct reader *r = arg;
    long status = 0;
    char *end;

    curl_easy_getinfo(r->easy.curl, CURLINFO_RESPONSE_CODE, &status);
    if (buf_append(status == 200 ? &r->line : &r->refusal, data, size * n) < 0)
        return 0;
    while (r->line.len > 0 && (end = memchr(r->line.data, '\n', r->line.len))) {
        size_t len = (size_t)(end - r->line.data);

        if (!take_line(r, len))
            return 0;
        buf_consume(&r->line, len + 1);
    }
    return size * n;
}

static enum err_code run(struct api *a, struct reader *r, const char *body, struct err *e)
{
    long status = 0;
    CURLcode rc;

    if (body && api_easy_header(&r->easy, "Content-Type: application/json") < 0)
        return err_set(e, ERR_EXHAUSTED, "out of memory");
    if (body)
        curl_easy_setopt(r->easy.curl, CURLOPT_POSTFIELDS, body);
    curl_easy_setopt(r->easy.curl, CURLOPT_WRITEFUNCTION, on_data);
    curl_easy_setopt(r->easy.curl, CURLOPT_WRITEDATA, r);
    curl_easy_setopt(r->easy.curl, CURLOPT_TCP_KEEPALIVE, 1L);
    rc = api_easy_run(a, &r->easy);
    curl_easy_getinfo(r->easy.curl, CURLINFO_RESPONSE_CODE, &status);
    if (status >= 400)
        return api_status_error(status, r->refusal.data, e);
    return rc == CURLE_OK ? ERR_OK : api_curl_error(a, &r->easy, rc, e);
}

enum err_code api_lines(struct api *a, const char *path, const json_t *body, size_t line_max,
                        api_line_cb take, void *arg, struct err *e)
{
    CLEANUP_FREE char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    struct reader r = {.take = take, .arg = arg};
    enum err_code code;

    if (body && !text)
        return err_set(e, ERR_EXHAUSTED, "out of memory");
    code = api_control_easy(a, path, &r.easy, e);
    if (code != ERR_OK)
        return code;
    buf_init(&r.line, line_max);
    buf_init(&r.refusal, line_max);
    code = run(a, &r, text, e);
    buf_free(&r.line);
    buf_free(&r.refusal);
    api_easy_free(&r.easy);
    return code;
}
