/* The run of a directory's hooks, from the request to its answer: one process after another, each
 * told of by its watcher, under one timer. The timer is the deadline, and also the next step after
 * a hook has ended, as no process is started from inside the end of another. Which files are hooks
 * is hooks_find.c's. */

#include "agent/hooks.h"

#include "agent/common/logs.h"
#include "agent/common/user.h"
#include "agent/process/proc.h"
#include "agent/process/proc_signal.h"
#include "agent/process/proc_start.h"
#include "agent/tail.h"
#include "base/clock.h"
#include "http/json.h"

#include <stdio.h>
#include <string.h>

#define BODY_MAX  4096u
#define WORD_MAX  32
#define WHY_SIZE  (TAIL_MAX + 128)
#define PATH_SIZE (sizeof(HOOKS_DIR) + HOOKS_NAME + 16)

struct hooks_run {
    struct agent *agent;
    struct http_exchange *x; /* NULL: the client is gone */
    uv_timer_t timer;
    struct proc_watcher watcher;
    struct hooks_list list;
    const char *dir; /* a literal */
    size_t at;       /* of the one that runs */
    unsigned ran;
    uint64_t until_ms;
    bool ended; /* that one has */
    int wait_status, start_error;
    struct tail tail;
    json_t *env, *failed;
};

static void on_timer(uv_timer_t *t);

/* -- its end ----------------------------------------------------------------------------------- */

static void add_failed(struct hooks_run *r, const char *name, const char *why)
{
    json_t *one = json_pack("{s:s, s:s}", "name", name, "error", why);
    char text[WHY_SIZE];

    snprintf(text, sizeof(text), "%s", why);
    if (!one) { /* its output is not UTF-8 */
        for (char *c = text; *c; c++)
            if (*c & 0x80)
                *c = '?';
        one = json_pack("{s:s, s:s}", "name", name, "error", text);
    }
    logs_add(r->agent, "warn", "hook", 0, "%s/%s: %s", r->dir, name, text);
    (void)json_array_append_new(r->failed, one);
}

static void free_run(uv_handle_t *h)
{
    struct hooks_run *r = h->data;

    json_decref(r->env);
    json_decref(r->failed);
    free(r);
}

static void answer(struct http_exchange *x, unsigned ran, json_t *failed)
{
    static const struct http_header type = {"Content-Type", "application/json"};
    json_t *body = json_pack("{s:i, s:O}", "ran", (int)ran, "failed", failed);
    CLEANUP_FREE char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;

    json_decref(body);
    if (text)
        http_respond(x, 200, &type, 1, text, strlen(text));
    else
        http_respond_error(x, 500, "memory is out");
}

static void finish(struct hooks_run *r)
{
    struct http_exchange *x = TAKE_PTR(r->x);

    r->agent->hooks = NULL;
    proc_unwatch(&r->watcher);
    if (x) {
        http_exchange_set(x, r->agent, NULL);
        answer(x, r->ran, r->failed);
    }
    uv_close((uv_handle_t *)&r->timer, free_run);
}

/* The one that runs is killed with all that it started; it is not waited for. */
static void stop(struct hooks_run *r, const char *why)
{
    struct proc *p = r->watcher.proc;

    if (r->at < r->list.n)
        add_failed(r, r->list.hooks[r->at].name, why);
    proc_unwatch(&r->watcher);
    if (p)
        (void)proc_signal(p, SIGKILL);
    while (++r->at < r->list.n)
        add_failed(r, r->list.hooks[r->at].name, "it was not run: the time was over");
    finish(r);
}

/* -- one hook ---------------------------------------------------------------------------------- */

static void on_output(struct proc_watcher *watcher, const char *bytes, size_t n)
{
    tail_add(&CONTAINER_OF(watcher, struct hooks_run, watcher)->tail, bytes, n);
}

static void on_ended(struct proc_watcher *watcher, int wait_status, int start_error)
{
    struct hooks_run *r = CONTAINER_OF(watcher, struct hooks_run, watcher);

    r->ended = true;
    r->wait_status = wait_status;
    r->start_error = start_error;
    uv_timer_start(&r->timer, on_timer, 0, 0);
}

static void note_result(struct hooks_run *r)
{
    char why[WHY_SIZE], how[64], tail[TAIL_MAX + 1];

    if (r->start_error == 0)
        r->ran++;
    if (r->start_error == 0 && r->wait_status == 0)
        return;
    tail_text(&r->tail, tail);
    if (r->start_error != 0)
        snprintf(how, sizeof(how), "it could not be started: %s", strerror(r->start_error));
    else
        proc_describe_end(r->wait_status, how, sizeof(how));
    snprintf(why, sizeof(why), "%s%s%s", how, tail[0] ? ": " : "", tail);
    add_failed(r, r->list.hooks[r->at].name, why);
}

static enum err_code start(struct hooks_run *r, struct err *e)
{
    char path[PATH_SIZE];
    json_t *config;
    struct user user;
    struct proc_start s = {.user = &user,
                           .cwd = "/",
                           .cmd = path,
                           .envs = r->env,
                           .tag = "hook",
                           .watcher = &r->watcher};

    snprintf(path, sizeof(path), HOOKS_DIR "/%s/%s", r->dir, r->list.hooks[r->at].name);
    config = json_pack("{s:s, s:[], s:{}, s:s}", "cmd", path, "args", "envs", "cwd", "/");
    s.config = config;
    s.config_bytes = strlen(path);
    r->tail.n = 0;
    r->ended = false;
    if (!config)
        return err_set(e, ERR_EXHAUSTED, "memory is out");
    if (user_find("root", &user, e) == ERR_OK && proc_start(r->agent, &s, NULL, e) == CONNECT_OK)
        e->code = ERR_OK;
    json_decref(config);
    return e->code;
}

/* The next that can be run, or the end. */
static void go_on(struct hooks_run *r)
{
    for (; r->at < r->list.n; r->at++) {
        const struct hook *h = &r->list.hooks[r->at];
        struct err e = {0};

        if (h->why_not) {
            add_failed(r, h->name, h->why_not);
            continue;
        }
        if (start(r, &e) == ERR_OK) {
            uint64_t now_ms = clock_mono_ms();

            uv_timer_start(&r->timer, on_timer, r->until_ms > now_ms ? r->until_ms - now_ms : 0, 0);
            return;
        }
        add_failed(r, h->name, e.text);
    }
    finish(r);
}

static void on_timer(uv_timer_t *t)
{
    struct hooks_run *r = t->data;

    if (!r->ended) {
        stop(r, "it was ended: the time of all hooks together was over");
        return;
    }
    note_result(r);
    r->at++;
    go_on(r);
}

/* -- the request ------------------------------------------------------------------------------- */

static void on_exchange_closed(struct http_exchange *x UNUSED, void *data)
{
    struct hooks_run *r = data;

    r->x = NULL;
}

static struct hooks_run *run_new(struct agent *a, const char *dir, json_t *env)
{
    struct hooks_run *r = calloc(1, sizeof(*r));

    if (!r)
        return NULL;
    *r = (struct hooks_run){.agent = a,
                            .dir = dir,
                            .watcher = {.output = on_output, .ended = on_ended},
                            .until_ms = clock_mono_ms() + AGENT_HOOKS_MS,
                            .env = json_incref(env),
                            .failed = json_array()};
    if (r->failed)
        return r;
    json_decref(r->env);
    free(r);
    return NULL;
}

static void begin(struct http_exchange *x, struct agent *a, const char *dir, json_t *env)
{
    struct hooks_run *r = run_new(a, dir, env);

    if (!r) {
        http_respond_error(x, 500, "memory is out");
        return;
    }
    hooks_find(dir, &r->list);
    uv_timer_init(a->loop, &r->timer);
    r->timer.data = r;
    r->x = x;
    a->hooks = r;
    http_exchange_set(x, r, on_exchange_closed);
    if (r->list.why_not)
        add_failed(r, dir, r->list.why_not);
    go_on(r);
}

static enum err_code read_request(const json_t *body, const char **dir, json_t **env, struct err *e)
{
    const char *hook = NULL, *tier = "", *reason = "";

    if (json_get_str(body, "hook", NULL, JSON_REQUIRED, WORD_MAX, &hook, e) != ERR_OK ||
        json_get_str(body, "tier", NULL, JSON_OPTIONAL, WORD_MAX, &tier, e) != ERR_OK ||
        json_get_str(body, "reason", NULL, JSON_OPTIONAL, WORD_MAX, &reason, e) != ERR_OK)
        return e->code;
    if (strcmp(hook, "pause") == 0)
        *dir = "pause.d";
    else if (strcmp(hook, "resume") == 0)
        *dir = "resume.d";
    else
        return err_set(e, ERR_INVALID, "hook is \"pause\" or \"resume\"");
    *env = json_pack("{s:s, s:s, s:s}", "CAY_HOOK", hook, "CAY_TIER", tier, "CAY_REASON", reason);
    return *env ? ERR_OK : err_set(e, ERR_EXHAUSTED, "memory is out");
}

static void hooks_read(struct http_exchange *x, char *text, size_t len)
{
    struct agent *a = http_exchange_get(x);
    json_t *body = NULL, *env = NULL;
    const char *dir = NULL;
    struct err e;

    if (json_parse(text, len, true, &body, &e) != ERR_OK ||
        init_set_limits(a, body, &e) != ERR_OK || read_request(body, &dir, &env, &e) != ERR_OK) {
        http_respond_error(x, 400, "%s", e.text);
    } else {
        if (a->hooks)
            stop(a->hooks, "it was ended: the sandbox is paused, or resumed, once more");
        begin(x, a, dir, env);
    }
    json_decref(env);
    json_decref(body);
}

void hooks_post(struct http_exchange *x, struct agent *a UNUSED)
{
    http_body_collect(x, BODY_MAX, hooks_read);
}
