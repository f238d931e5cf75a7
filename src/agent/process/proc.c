/* A process lives from proc_start.c's fork until its end was told: reaped by SIGCHLD, its
 * outputs at their ends (proc_output.c), then finish: subscribers get the end event, those who
 * ask later the remembered status. A record is freed when its last uv handle is closed. The
 * order of "reaped" and "outputs closed" is free; proc_check_end looks at both. */

#include "agent/process/proc.h"

#include "agent/common/logs.h"
#include "agent/common/procfs.h"
#include "agent/process/proc_input.h"
#include "agent/process/proc_oom.h"
#include "agent/process/proc_output.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/signal_names.h"
#include "http/json.h"

#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

/* -- finding ----------------------------------------------------------------------------------- */

static bool names(pid_t pid, const char *tag, int64_t want_pid, const char *want_tag)
{
    return want_tag ? tag && strcmp(tag, want_tag) == 0 : pid == want_pid;
}

static enum connect_code not_selected(int64_t pid, const char *tag, struct err *e)
{
    if (tag)
        err_set(e, ERR_NOT_FOUND, "process with tag %s not found", tag);
    else
        err_set(e, ERR_NOT_FOUND, "process with pid %lld not found", (long long)pid);
    return CONNECT_NOT_FOUND;
}

enum connect_code proc_select(struct agent *a, const json_t *selector, struct proc **out,
                              const struct proc_exit **ended, struct err *e)
{
    const struct process_table *t = a->processes;
    const struct proc_exit *found = NULL;
    const char *tag = NULL;
    int64_t pid = -1;

    if (json_get_int(selector, "pid", NULL, JSON_OPTIONAL, 0, UINT32_MAX, &pid, e) != ERR_OK ||
        json_get_str(selector, "tag", NULL, JSON_OPTIONAL, 4096, &tag, e) != ERR_OK)
        return CONNECT_INVALID_ARGUMENT;
    if ((pid < 0) == (tag == NULL)) {
        err_set(e, ERR_INVALID, "process: give either pid or tag");
        return CONNECT_INVALID_ARGUMENT;
    }
    /* The newest comes first: a number that was used again names the new one. */
    for (struct proc *p = t->first; p; p = p->next) {
        if (!p->launch && names(p->pid, p->tag, pid, tag)) {
            *out = p;
            return CONNECT_OK;
        }
    }
    for (const struct proc_exit *x = ended ? t->ended : NULL; x; x = x->next)
        if (names(x->pid, x->tag, pid, tag))
            found = x;
    if (!found)
        return not_selected(pid, tag, e);
    *out = NULL;
    *ended = found;
    return CONNECT_OK;
}

/* -- how a process ended ----------------------------------------------------------------------- */

static void describe_signal(int status, char *out, size_t size)
{
    const char *core = WCOREDUMP(status) ? " (core dumped)" : "";
    int sig = WTERMSIG(status);
    const char *words = signal_names_words(sig);

    if (words)
        snprintf(out, size, "signal: %s%s", words, core);
    else
        snprintf(out, size, "signal: signal %d%s", sig, core);
}

void proc_describe_end(int status, char *out, size_t size)
{
    if (WIFEXITED(status))
        snprintf(out, size, "exit status %d", WEXITSTATUS(status));
    else
        describe_signal(status, out, size);
}

json_t *proc_end_event(const struct agent *a, const struct proc_end *ended)
{
    json_t *end = json_object();
    int status = ended->wait_status;
    char text[64], why[384];

    proc_describe_end(status, text, sizeof(text));
    if (WIFEXITED(status)) {
        if (WEXITSTATUS(status) != 0)
            json_object_set_new(end, "exitCode", json_integer(WEXITSTATUS(status)));
        json_object_set_new(end, "exited", json_true());
    } else {
        json_object_set_new(end, "exitCode", json_integer(-1));
    }
    json_object_set_new(end, "status", json_string(text));
    if (ended->oom) {
        proc_oom_text(a, WIFSIGNALED(status) ? ended : NULL, why, sizeof(why));
        json_object_set_new(end, "error", json_sprintf("%s: %s", text, why));
    } else if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        json_object_set_new(end, "error", json_string(text));
    }
    return json_pack("{s{so}}", "event", "end", end);
}

/* -- remembering ended ones -------------------------------------------------------------------- */

static void forget_first(struct process_table *t)
{
    struct proc_exit *x = t->ended;

    t->ended = x->next;
    if (!t->ended)
        t->ended_last = &t->ended;
    t->ended_count--;
    free(x->tag);
    free(x);
}

static void on_forget(uv_timer_t *timer);

static void arm_forget(struct process_table *t)
{
    uint64_t now = clock_mono_ms();

    if (t->ended)
        uv_timer_start(&t->forget, on_forget,
                       t->ended->until_ms > now ? t->ended->until_ms - now : 1, 0);
}

static void on_forget(uv_timer_t *timer)
{
    struct process_table *t = timer->data;

    while (t->ended && t->ended->until_ms <= clock_mono_ms())
        forget_first(t);
    arm_forget(t);
    if (!t->ended && !t->first)
        malloc_trim(0); /* idle from here on: give back what a busy time left behind */
}

static void remember(struct process_table *t, struct proc *p)
{
    struct proc_exit *x = calloc(1, sizeof(*x));

    if (!x)
        return;
    x->pid = p->pid;
    x->tag = TAKE_PTR(p->tag);
    x->wait_status = p->wait_status;
    x->oom = p->oom;
    memcpy(x->name, p->name, sizeof(x->name));
    x->until_ms = clock_mono_ms() + PROC_RETAIN_MS;
    if (t->ended_count == PROC_ENDED_MAX)
        forget_first(t);
    *t->ended_last = x;
    t->ended_last = &x->next;
    if (t->ended_count++ == 0)
        arm_forget(t);
}

/* -- the end ----------------------------------------------------------------------------------- */

void proc_handle_closed(struct proc *p)
{
    if (--p->handles > 0)
        return;
    json_decref(p->config);
    free(p->tag);
    free(p);
}

static void on_deadline_closed(uv_handle_t *h)
{
    proc_handle_closed(h->data);
}

static void leave_table(struct process_table *t, struct proc *p)
{
    struct proc **at = &t->first;

    while (*at != p)
        at = &(*at)->next;
    *at = p->next;
    t->config_bytes -= p->config_bytes;
    if (--t->count == 0) {
        free(t->scratch);
        t->scratch = NULL;
    }
}

static void let_go(struct proc *p)
{
    leave_table(p->agent->processes, p);
    uv_close((uv_handle_t *)&p->deadline, on_deadline_closed);
}

void proc_discard(struct proc *p)
{
    p->ended = true;
    proc_input_close(p, "it was not started");
    for (size_t i = 0; i < ARRAY_SIZE(p->out); i++)
        proc_output_close(&p->out[i]);
    let_go(p);
}

void proc_unwatch(struct proc_watcher *w)
{
    if (w->proc)
        w->proc->watcher = NULL;
    w->proc = NULL;
}

void proc_notify_watcher(struct proc *p, int start_error)
{
    struct proc_watcher *w = p->watcher;

    if (!w)
        return;
    proc_unwatch(w);
    w->ended(w, p->wait_status, start_error);
}

static void finish(struct proc *p)
{
    struct agent *a = p->agent;
    char text[64];

    p->ended = true;
    proc_describe_end(p->wait_status, text, sizeof(text));
    logs_add(a, "info", "process_end", p->pid, "Process with pid %d ended: %s%s", (int)p->pid, text,
             p->oom ? ": out of memory" : "");
    proc_input_close(p, "the process has ended");
    proc_report_end(p);
    proc_notify_watcher(p, 0);
    remember(a->processes, p);
    let_go(p);
}

/* The end event comes after the last output, so it waits until the outputs are closed: a background
 * child that holds one delays it. Not so when the process was killed through the API, and at a
 * terminal, whose session ended with its leader: then the output already there is all. */
void proc_check_end(struct proc *p)
{
    if (p->ended || p->launch || !p->reaped)
        return;
    if (p->stopping || p->terminal) {
        for (size_t i = 0; i < ARRAY_SIZE(p->out); i++) {
            proc_output_drain(&p->out[i]);
            proc_output_close(&p->out[i]);
        }
    }
    for (size_t i = 0; i < ARRAY_SIZE(p->out); i++)
        if (p->out[i].fd >= 0)
            return;
    finish(p);
}

bool proc_is_running(const struct agent *a, pid_t pid)
{
    for (const struct proc *p = a->processes->first; p; p = p->next)
        if (p->pid == pid && !p->reaped)
            return true;
    return false;
}

/* -- reaping ----------------------------------------------------------------------------------- */

/* NULL: an orphan. */
static struct proc *ended_one(const struct process_table *t, pid_t pid)
{
    struct proc *p = t->first;

    while (p && (p->pid != pid || p->reaped))
        p = p->next;
    return p;
}

static bool reap(struct process_table *t, const siginfo_t *child)
{
    struct proc *p = ended_one(t, child->si_pid);
    int status;

    if (p && child->si_code == CLD_KILLED && child->si_status == SIGKILL)
        proc_oom_name(p); /* which /proc forgets with the next call */
    if (waitpid(child->si_pid, &status, WNOHANG) != child->si_pid)
        return false;
    if (p) {
        p->reaped = true;
        p->wait_status = status;
        p->oom = proc_oom_ended(p);
        proc_check_end(p);
    }
    return true;
}

/* As PID 1 it gets every orphan of the sandbox too; those are reaped, and their status is not
 * used. */
static void on_sigchld(uv_poll_t *poll, int status UNUSED, int events UNUSED)
{
    struct process_table *t = poll->data;
    struct signalfd_siginfo info;
    siginfo_t child = {.si_pid = 0};

    while (read(t->sigchld_fd, &info, sizeof(info)) == (ssize_t)sizeof(info))
        ;
    while (waitid(P_ALL, 0, &child, WEXITED | WNOHANG | WNOWAIT) == 0 && child.si_pid > 0 &&
           reap(t, &child))
        child.si_pid = 0;
}

/* Commands of command sandboxes are seen from the sandbox and have a cay-init of their own to
 * number them: two begin far from each other, so that no command of one is killed with one of the
 * other (proc_signal.c). */
static uint64_t first_command(void)
{
    uint64_t first = 0;

    ids_random_bytes(&first, sizeof(first));
    return first >> 2; /* below RLIM_INFINITY, whatever is started */
}

int proc_table_new(struct agent *a)
{
    struct process_table *t = calloc(1, sizeof(*t));
    sigset_t set;

    if (!t)
        return -ENOMEM;
    t->agent = a;
    t->ended_last = &t->ended;
    t->commands = first_command();
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    t->sigchld_fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    if (t->sigchld_fd < 0 || uv_poll_init(a->loop, &t->sigchld, t->sigchld_fd) < 0) {
        free(t);
        return -EIO;
    }
    proc_output_init(t);
    uv_timer_init(a->loop, &t->forget);
    t->forget.data = t->sigchld.data = t;
    a->processes = t;
    return uv_poll_start(&t->sigchld, UV_READABLE, on_sigchld);
}
