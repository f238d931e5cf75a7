#include "calls.h"

#include <arpa/inet.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#define BODY_MAX    (64u * 1024u * 1024u)
#define TIMEOUT_MS  120000L
#define CREATE_BODY "{\"templateID\":\"host\",\"timeout\":3600}"
#define RUN_TRUE    "{\"process\":{\"cmd\":\"/bin/true\",\"args\":[]},\"stdin\":false}"

static NORETURN void die(const struct calls *c, const char *what, const char *why)
{
    fprintf(stderr, "load: %s: %s: %.300s\n", what, why, c->body.data ? c->body.data : "");
    exit(1);
}

static size_t on_body(char *data, size_t size, size_t n, void *arg)
{
    struct calls *c = arg;

    return buf_append(&c->body, data, size * n) == 0 ? size * n : 0;
}

static size_t on_header(char *line, size_t size, size_t n, void *arg)
{
    static const char name[] = "x-next-token: ";
    struct calls *c = arg;
    size_t len = size * n, skip = sizeof(name) - 1;

    if (len > skip + 2 && len - skip - 2 < sizeof(c->next_token) &&
        strncasecmp(line, name, skip) == 0) {
        memcpy(c->next_token, line + skip, len - skip - 2);
        c->next_token[len - skip - 2] = '\0';
    }
    return len;
}

static void add_header(struct calls *c, struct curl_slist **list, const char *name,
                       const char *value)
{
    char line[512];
    struct curl_slist *more;

    snprintf(line, sizeof(line), "%s: %s", name, value);
    more = curl_slist_append(*list, line);
    if (!more)
        die(c, "header", "out of memory");
    *list = more;
}

void calls_open(struct calls *c, const char *url, const char *key)
{
    *c = (struct calls){.url = url, .key = key, .curl = curl_easy_init()};
    buf_init(&c->body, BODY_MAX);
    if (!c->curl)
        die(c, "curl", "out of memory");
    add_header(c, &c->headers, "X-API-Key", key);
    add_header(c, &c->headers, "Content-Type", "application/json");
    add_header(c, &c->headers, "Expect", "");
    curl_easy_setopt(c->curl, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(c->curl, CURLOPT_WRITEDATA, c);
    curl_easy_setopt(c->curl, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(c->curl, CURLOPT_HEADERDATA, c);
    curl_easy_setopt(c->curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c->curl, CURLOPT_TIMEOUT_MS, TIMEOUT_MS);
    curl_easy_setopt(c->curl, CURLOPT_NOPROXY, "*");
}

void calls_close(struct calls *c)
{
    curl_slist_free_all(c->headers);
    curl_easy_cleanup(c->curl);
    buf_free(&c->body);
}

/* body: n bytes, or NULL for none. */
static void call(struct calls *c, const char *method, const char *path, const void *body, size_t n,
                 struct curl_slist *headers)
{
    char url[1024];
    long status = 0;
    CURLcode r;

    snprintf(url, sizeof(url), "%s%s", c->url, path);
    buf_clear(&c->body);
    c->next_token[0] = '\0';
    curl_easy_setopt(c->curl, CURLOPT_URL, url);
    curl_easy_setopt(c->curl, CURLOPT_HTTPGET, 1L); /* forgets the body of the call before */
    curl_easy_setopt(c->curl, CURLOPT_HTTPHEADER, headers);
    if (body) {
        curl_easy_setopt(c->curl, CURLOPT_POSTFIELDSIZE, (long)n);
        curl_easy_setopt(c->curl, CURLOPT_POSTFIELDS, body);
    }
    curl_easy_setopt(c->curl, CURLOPT_CUSTOMREQUEST, method);
    r = curl_easy_perform(c->curl);
    if (r != CURLE_OK)
        die(c, path, curl_easy_strerror(r));
    curl_easy_getinfo(c->curl, CURLINFO_RESPONSE_CODE, &status);
    if (status < 200 || status > 299)
        die(c, path, "refused");
}

static void copy_field(struct calls *c, const json_t *from, const char *name, char *out,
                       size_t size)
{
    const char *text = json_string_value(json_object_get(from, name));

    if (!text || strlen(text) >= size)
        die(c, name, "not in the answer");
    memcpy(out, text, strlen(text) + 1);
}

static void read_made(struct calls *c, struct made *out)
{
    json_t *answer = json_loadb(c->body.data, c->body.len, 0, NULL);

    copy_field(c, answer, "sandboxID", out->id, sizeof(out->id));
    copy_field(c, answer, "envdAccessToken", out->token, sizeof(out->token));
    json_decref(answer);
}

void calls_create(struct calls *c, struct made *out)
{
    call(c, "POST", "/v2/sandboxes", CREATE_BODY, sizeof(CREATE_BODY) - 1, c->headers);
    read_made(c, out);
}

void calls_find(struct calls *c, const char *id, struct made *out)
{
    char path[128];

    snprintf(path, sizeof(path), "/sandboxes/%s", id);
    call(c, "GET", path, NULL, 0, c->headers);
    read_made(c, out);
}

void calls_kill(struct calls *c, const char *id)
{
    char path[128];

    snprintf(path, sizeof(path), "/sandboxes/%s", id);
    call(c, "DELETE", path, NULL, 0, c->headers);
}

void calls_exec_true(struct calls *c, const struct made *made)
{
    char frame[5 + sizeof(RUN_TRUE)] = {0};
    uint32_t n = htonl(sizeof(RUN_TRUE) - 1);
    struct curl_slist *headers = NULL;

    memcpy(frame + 1, &n, sizeof(n));
    memcpy(frame + 5, RUN_TRUE, sizeof(RUN_TRUE));
    add_header(c, &headers, "E2b-Sandbox-Id", made->id);
    add_header(c, &headers, "E2b-Sandbox-Port", "49983");
    add_header(c, &headers, "X-Access-Token", made->token);
    add_header(c, &headers, "Content-Type", "application/connect+json");
    add_header(c, &headers, "Connect-Protocol-Version", "1");
    call(c, "POST", "/process.Process/Start", frame, 5 + sizeof(RUN_TRUE) - 1, headers);
    curl_slist_free_all(headers);
    if (!c->body.data || !memmem(c->body.data, c->body.len, "exit status 0", 13))
        die(c, "/bin/true", "did not end with status 0");
}

void calls_get(struct calls *c, const char *path)
{
    call(c, "GET", path, NULL, 0, c->headers);
}

void calls_connect(struct calls *c)
{
    call(c, "GET", "/health", NULL, 0, c->headers);
}
