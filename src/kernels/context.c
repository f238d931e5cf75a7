/* The set of contexts and what they wait for: executions in a queue of each, clients that wait for
 * a start, the kernel under it and its end. context.h has the states. A kernel's messages go to the
 * current execution, by the id of its request; an end of the kernel ends the current execution
 * first, and then begins another kernel or breaks the context down. */
#include "kernels/context.h"

#include "base/ids.h"
#include "base/log.h"
#include "kernels/env_code.h"
#include "kernels/identity.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum state { ASLEEP, STARTING, READY, BROKEN };

struct context {
    struct contexts *all;
    struct context *next;
    char id[CONTEXT_ID_SIZE], language[SPEC_NAME_MAX], cwd[PATH_MAX];
    bool is_default;
    enum state state;
    struct spec spec;
    struct kernel *kernel; /* NULL in ASLEEP and BROKEN */
    struct execution *current, *first, **last;
    size_t waiting;
    struct context_waiter *waiters;
    json_t *renewed; /* variables that the kernel is to be told before it runs more; or NULL */
    unsigned starts, interrupts;
    uv_timer_t timer; /* of current: interrupts again, or the other half of its end */
    char why[192];    /* in BROKEN */
};

struct contexts {
    struct contexts_config config;
    struct context *first;
    size_t count;
};

int contexts_new(const struct contexts_config *config, struct contexts **out)
{
    *out = calloc(1, sizeof(**out));
    if (!*out)
        return -ENOMEM;
    (*out)->config = *config;
    return 0;
}

/* -- executions -------------------------------------------------------------------------------- */

static void run_next(struct context *c);

static void on_interrupt_again(uv_timer_t *t)
{
    struct context *c = t->data;

    if (!c->current || !c->kernel || ++c->interrupts >= CONTEXT_INTERRUPTS)
        uv_timer_stop(t);
    else
        kernel_interrupt(c->kernel);
}

static void interrupt(struct context *c)
{
    if (!c->kernel)
        return;
    c->interrupts = 0;
    kernel_interrupt(c->kernel);
    uv_timer_start(&c->timer, on_interrupt_again, CONTEXT_INTERRUPT_MS, CONTEXT_INTERRUPT_MS);
}

static struct execution *take_first(struct context *c)
{
    struct execution *ex = c->first;

    c->first = ex->next;
    if (!c->first)
        c->last = &c->first;
    c->waiting--;
    return ex;
}

static bool take_out(struct context *c, const struct execution *ex)
{
    for (struct execution **at = &c->first; *at; at = &(*at)->next) {
        if (*at != ex)
            continue;
        *at = ex->next;
        if (c->last == &ex->next)
            c->last = at;
        c->waiting--;
        return true;
    }
    return false;
}

static void on_gone(void *arg, struct execution *ex)
{
    struct context *c = arg;

    if (ex == c->current)
        interrupt(c);
    else if (take_out(c, ex))
        execution_end(ex);
}

/* Variables are set, and put back afterwards, by requests of their own: the kernel takes them in
 * order, and they are in no history. */
static void send_env(struct context *c, const json_t *vars)
{
    char id[WIRE_ID_LEN + 1];
    CLEANUP_FREE char *code = vars ? env_code(c->language, vars) : NULL;

    ids_random_text(id, WIRE_ID_LEN);
    if (code && kernel_execute(c->kernel, id, code, true) < 0)
        log_warn("variables of an execution could not be set");
}

/* The sandbox may be another one than when kernels were started. */
static void renew(struct contexts *all)
{
    json_t *vars = identity_renew(IDENTITY_DIR);

    for (struct context *c = vars ? all->first : NULL; c; c = c->next) {
        if (!c->renewed)
            c->renewed = json_object();
        if (c->renewed)
            (void)json_object_update(c->renewed, vars);
    }
    json_decref(vars);
}

static void forget_renewed(struct context *c)
{
    json_decref(c->renewed);
    c->renewed = NULL;
}

static void finish_current(struct context *c)
{
    struct execution *ex = TAKE_PTR(c->current);

    uv_timer_stop(&c->timer);
    if (ex->env && c->kernel && c->state == READY) {
        renew(c->all);
        json_t *restored = env_restored(ex->env);

        send_env(c, restored);
        json_decref(restored);
    }
    execution_end(ex);
}

/* The reply has come and no "idle", or the reverse: one of them was lost. Or the time for late
 * results is over. */
static void on_half(uv_timer_t *t)
{
    struct context *c = t->data;

    if (!c->current)
        return;
    finish_current(c);
    run_next(c);
}

static void run_next(struct context *c)
{
    while (c->first && !c->current && c->state == READY) {
        struct execution *ex = take_first(c);

        c->current = ex;
        renew(c->all);
        send_env(c, c->renewed);
        forget_renewed(c);
        send_env(c, ex->env);
        if (kernel_execute(c->kernel, ex->id, ex->code, false) == 0)
            return;
        execution_error(ex, "KernelError", "the kernel does not take the request");
        finish_current(c);
    }
}

static void end_all(struct context *c, const char *name, const char *value)
{
    struct execution *ex;

    if ((ex = TAKE_PTR(c->current)) != NULL) {
        uv_timer_stop(&c->timer);
        execution_error(ex, name, value);
        execution_end(ex);
    }
    while (c->first) {
        ex = take_first(c);
        execution_error(ex, name, value);
        execution_end(ex);
    }
}

/* -- the kernel -------------------------------------------------------------------------------- */

static void notify_waiters(struct context *c, const char *why)
{
    struct context_waiter *w = TAKE_PTR(c->waiters);

    while (w) {
        struct context_waiter *next = w->next;

        w->fn(w, c, why);
        w = next;
    }
}

static void on_ready(void *arg)
{
    struct context *c = arg;

    c->state = READY;
    c->starts = 0;
    notify_waiters(c, NULL);
    run_next(c);
}

static void on_message(void *arg, const struct wire_message *m)
{
    struct context *c = arg;
    bool over;

    if (!c->current || strcmp(m->parent_id, c->current->id) != 0)
        return;
    over = execution_on_message(c->current, m);
    if (over && c->spec.settle_ms > 0 && !c->current->resulted && !c->current->errored) {
        uv_timer_start(&c->timer, on_half, c->spec.settle_ms, 0);
    } else if (over) {
        finish_current(c);
        run_next(c);
    } else if (c->current->idle || c->current->replied) {
        uv_timer_start(&c->timer, on_half, CONTEXT_REPLY_MS, 0);
    }
}

static enum err_code begin_kernel(struct context *c, struct err *e);

static void break_down(struct context *c, const char *why)
{
    c->state = BROKEN;
    snprintf(c->why, sizeof(c->why), "%s", why);
    log_warn("context %s (%s) has no kernel: %s", c->id, c->language, why);
    notify_waiters(c, c->why);
    end_all(c, "ContextUnavailable", c->why);
}

static void on_ended(void *arg, const char *why)
{
    struct context *c = arg;
    struct execution *ex = TAKE_PTR(c->current);
    struct err e;

    c->kernel = NULL;
    c->state = STARTING;
    if (ex) {
        uv_timer_stop(&c->timer);
        execution_error(ex, "ContextRestarting", "Context was restarted");
        execution_end(ex);
    }
    log_warn("context %s (%s): %s", c->id, c->language, why);
    if (c->starts >= CONTEXT_STARTS)
        break_down(c, why);
    else if (begin_kernel(c, &e) != ERR_OK)
        break_down(c, e.text);
}

static enum err_code begin_kernel(struct context *c, struct err *e)
{
    static const struct kernel_events events = {on_ready, on_message, on_ended};
    const struct contexts_config *config = &c->all->config;
    struct kernel_start start = {config->loop, config->zmq, config->dir, c->cwd, &c->spec};

    c->starts++;
    c->state = STARTING;
    renew(c->all);
    forget_renewed(c); /* the kernel has them from its start */
    return kernel_new(&start, &events, c, &c->kernel, e);
}

/* -- contexts ---------------------------------------------------------------------------------- */

static void new_uuid(char out[CONTEXT_ID_SIZE])
{
    unsigned char b[16];
    char hex[33];

    ids_random_bytes(b, sizeof(b));
    b[6] = (b[6] & 0x0f) | 0x40; /* RFC 9562, version 4 */
    b[8] = (b[8] & 0x3f) | 0x80;
    ids_hex(b, sizeof(b), hex);
    snprintf(out, CONTEXT_ID_SIZE, "%.8s-%.4s-%.4s-%.4s-%.12s", hex, hex + 8, hex + 12, hex + 16,
             hex + 20);
}

static void on_timer_closed(uv_handle_t *h)
{
    struct context *c = h->data;

    spec_free(&c->spec);
    forget_renewed(c);
    free(c);
}

static struct context *make(struct contexts *all, const char *language, const char *cwd)
{
    struct context *c = calloc(1, sizeof(*c)), **at = &all->first;

    if (!c)
        return NULL;
    c->all = all;
    c->last = &c->first;
    new_uuid(c->id);
    snprintf(c->language, sizeof(c->language), "%s", language);
    snprintf(c->cwd, sizeof(c->cwd), "%s", cwd);
    uv_timer_init(all->config.loop, &c->timer);
    c->timer.data = c;
    while (*at) /* in order of creation */
        at = &(*at)->next;
    *at = c;
    all->count++;
    return c;
}

enum err_code contexts_make(struct contexts *all, const char *language, const char *cwd,
                            struct context_waiter *waiter, struct context **out, struct err *e)
{
    struct context *c;
    struct stat st;
    enum err_code code;

    if (all->count >= CONTEXTS_MAX)
        return err_set(e, ERR_EXHAUSTED, "there are %u contexts, the most", CONTEXTS_MAX);
    if (cwd[0] != '/' || strlen(cwd) >= PATH_MAX || stat(cwd, &st) < 0 || !S_ISDIR(st.st_mode))
        return err_set(e, ERR_INVALID, "%.200s is not a directory that can be entered", cwd);
    c = make(all, language, cwd);
    if (!c)
        return err_set(e, ERR_INTERNAL, "no memory for a context");
    code = spec_load(all->config.dirs, language, &c->spec, e);
    if (code == ERR_OK)
        code = begin_kernel(c, e);
    if (code != ERR_OK) {
        context_remove(c);
        return code;
    }
    if (waiter) {
        waiter->next = NULL;
        c->waiters = waiter;
    }
    *out = c;
    return ERR_OK;
}

enum err_code contexts_default(struct contexts *all, const char *language,
                               struct context_waiter *waiter, struct context **out, struct err *e)
{
    enum err_code code;

    for (*out = all->first; *out; *out = (*out)->next)
        if ((*out)->is_default && strcmp((*out)->language, language) == 0)
            return ERR_OK;
    code = contexts_make(all, language, all->config.home, waiter, out, e);
    if (code == ERR_OK)
        (*out)->is_default = true;
    return code;
}

enum err_code contexts_reserve(struct contexts *all, const char *language, struct err *e)
{
    struct context *c = make(all, language, all->config.home);
    enum err_code code = c ? spec_load(all->config.dirs, language, &c->spec, e)
                           : err_set(e, ERR_INTERNAL, "no memory for a context");

    if (code == ERR_OK)
        c->is_default = true;
    else if (c)
        context_remove(c);
    return code;
}

struct context *contexts_find(struct contexts *all, const char *id)
{
    struct context *c = all->first;

    while (c && strcmp(c->id, id) != 0)
        c = c->next;
    return c;
}

struct context *contexts_next(const struct contexts *all, const struct context *after)
{
    return after ? after->next : all->first;
}

bool contexts_python_starts(const struct contexts *all)
{
    for (const struct context *c = all->first; c; c = c->next)
        if (c->is_default && strcmp(c->language, "python") == 0)
            return c->state == STARTING;
    return false;
}

const char *contexts_home(const struct contexts *all)
{
    return all->config.home;
}

const char *context_language(const struct context *c)
{
    return c->language;
}

json_t *context_describe(const struct context *c)
{
    return json_pack("{s:s, s:s, s:s}", "id", c->id, "language", c->language, "cwd", c->cwd);
}

static void wake(struct context *c)
{
    struct err e;

    if (c->state == ASLEEP && begin_kernel(c, &e) != ERR_OK)
        break_down(c, e.text);
}

void context_execute(struct context *c, struct http_exchange *x, char *code, json_t *env)
{
    struct execution *ex;

    if (c->waiting >= CONTEXT_QUEUE_MAX) {
        free(code);
        json_decref(env);
        http_respond_error(x, 429, "%u executions wait for this context, the most: try again later",
                           CONTEXT_QUEUE_MAX);
        return;
    }
    ex = execution_new(x, code, env, on_gone, c);
    if (!ex)
        return;
    wake(c);
    if (c->state == BROKEN) {
        execution_error(ex, "ContextUnavailable", c->why);
        execution_end(ex);
        return;
    }
    *c->last = ex;
    c->last = &ex->next;
    c->waiting++;
    run_next(c);
}

void context_restart(struct context *c, struct context_waiter *waiter)
{
    struct err e;

    end_all(c, "WebSocketError", "The connections was lost, rerun the code to get the results");
    kernel_stop(TAKE_PTR(c->kernel));
    waiter->next = c->waiters;
    c->waiters = waiter;
    c->starts = 0;
    if (begin_kernel(c, &e) != ERR_OK)
        break_down(c, e.text);
}

void context_remove(struct context *c)
{
    for (struct context **at = &c->all->first; *at; at = &(*at)->next) {
        if (*at == c) {
            *at = c->next;
            break;
        }
    }
    c->all->count--;
    end_all(c, "UnexpectedEndOfExecution", "the context was deleted");
    notify_waiters(c, "the context was deleted");
    kernel_stop(c->kernel);
    uv_close((uv_handle_t *)&c->timer, on_timer_closed);
}

void contexts_forget_waiter(struct contexts *all, struct context_waiter *w)
{
    for (struct context *c = all->first; c; c = c->next)
        for (struct context_waiter **at = &c->waiters; *at; at = &(*at)->next)
            if (*at == w) {
                *at = w->next;
                return;
            }
}
