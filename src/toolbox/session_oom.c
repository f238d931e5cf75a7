/* Asks one question at a time: the file of the command first (file_read), then the agent
 * (answered). */
#include "toolbox/session_oom.h"

#include "http/json.h"
#include "toolbox/agent.h"
#include "toolbox/call.h"
#include "toolbox/files.h"
#include "toolbox/session.h"
#include "toolbox/toolbox_internal.h"

#include <stdio.h>
#include <string.h>

#define FILE_MAX_BYTES  64u
#define REPLY_MAX_BYTES 4096u
#define PATH_SIZE       768

struct oom_check {
    struct toolbox_call *call;
    uint64_t before;
    void (*counted)(void *arg, uint64_t kills); /* or: */
    void (*found)(void *arg, const char *text);
    void *arg;
};

static void end(struct oom_check *k, uint64_t kills, const char *text)
{
    struct oom_check done = *k;

    free(k);
    if (!done.call->x)
        return;
    if (done.counted)
        done.counted(done.arg, kills);
    else
        done.found(done.arg, kills > done.before ? text : NULL);
}

static void answered(void *arg, const struct http_head *head, const char *body, size_t len,
                     const struct err *why)
{
    struct oom_check *k = arg;
    json_t *o = why || head->status != 200 ? NULL : json_load_answer(body, len);

    end(k, (uint64_t)json_integer_value(json_object_get(o, "kills")),
        json_string_value(json_object_get(o, "text")));
    json_decref(o);
}

static void get(struct oom_check *k, char *target, size_t max_bytes,
                void (*done)(void *, const struct http_head *, const char *, size_t,
                             const struct err *))
{
    struct toolbox_agent_request r = {.method = "GET",
                                      .target = target,
                                      .max_response_bytes = max_bytes,
                                      .timeout_ms = k->call->toolbox->config.agent_timeout_ms,
                                      .done = done,
                                      .arg = k};

    toolbox_agent(k->call, &r);
}

static void file_read(void *arg, const struct http_head *head, const char *body, size_t len,
                      const struct err *why)
{
    struct oom_check *k = arg;
    char text[FILE_MAX_BYTES] = "";

    if (why || head->status != 200 || len >= sizeof(text) || !k->call->x) {
        end(k, 0, NULL);
        return;
    }
    memcpy(text, body, len);
    k->before = strtoull(text, NULL, 10);
    get(k, strdup("/cay/oom"), REPLY_MAX_BYTES, answered);
}

void session_oom_count(struct toolbox_call *c, void (*done)(void *arg, uint64_t kills), void *arg)
{
    struct oom_check *k = calloc(1, sizeof(*k));

    if (!k) {
        done(arg, 0);
        return;
    }
    *k = (struct oom_check){.call = c, .counted = done, .arg = arg};
    get(k, strdup("/cay/oom"), REPLY_MAX_BYTES, answered);
}

void session_oom_check(struct toolbox_call *c, const char *folder,
                       void (*done)(void *arg, const char *text), void *arg)
{
    struct oom_check *k = calloc(1, sizeof(*k));
    char path[PATH_SIZE];

    if (!k) {
        done(arg, NULL);
        return;
    }
    *k = (struct oom_check){.call = c, .found = done, .arg = arg};
    snprintf(path, sizeof(path), SESSIONS_AGENT "%s/" SESSION_KILLS, folder);
    get(k, toolbox_files_target(path), FILE_MAX_BYTES, file_read);
}
