/* cay-init's process service, whole, over some connections, with children that are none: what forks,
 * kills, waits and looks into /proc is replaced here, and the input's own chance decides what a child
 * does and when it ends. No process is made and none is signalled. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/common/procfs.h"
#include "agent/process/proc.h"
#include "agent/process/spawn.h"
#include "agent_driver.h"
#include "fuzz.h"

#define CHILDREN_MAX 32
#define FIRST_PID    100

static struct child {
    pid_t pid; /* 0: the place is free */
    int fds[3];
    int status_fd; /* -1: it has called exec, or could not */
    bool gone;     /* to be waited for */
    int status;
} children[CHILDREN_MAX];

static pid_t next_pid = FIRST_PID;

/* -- what is replaced ----------------------------------------------------------------------------- */

static struct child *find_child(pid_t pid)
{
    for (size_t i = 0; i < CHILDREN_MAX; i++)
        if (children[i].pid == pid && pid != 0)
            return &children[i];
    return NULL;
}

static void end_child(struct child *c, int status)
{
    if (c->gone)
        return;
    for (int i = 0; i < 3; i++)
        util_close(&c->fds[i]);
    if (c->status_fd >= 0)
        util_close(&c->status_fd);
    c->gone = true;
    c->status = status;
    raise(SIGCHLD); /* blocked; the agent reads it from its descriptor */
}

int spawn_begin(const struct agent_spawn *s UNUSED, const struct spawn_request *r,
                struct spawned *child)
{
    struct child *c = NULL;
    int fds[2];

    for (size_t i = 0; i < CHILDREN_MAX && !c; i++)
        if (children[i].pid == 0)
            c = &children[i];
    if (!c)
        return -EAGAIN;
    FUZZ_CHECK(r->user && r->cwd[0] == '/' && r->argv[0] && r->sh_argv[0] && r->candidates[0]);
    for (size_t i = 0; r->env[i]; i++)
        FUZZ_CHECK(strchr(r->env[i], '=') > r->env[i]);
    FUZZ_CHECK(pipe2(fds, O_CLOEXEC | O_NONBLOCK) == 0);
    *c = (struct child){.pid = next_pid++, .status_fd = fds[1]};
    for (int i = 0; i < 3; i++) {
        c->fds[i] = fcntl(r->fds[i], F_DUPFD_CLOEXEC, 0);
        FUZZ_CHECK(c->fds[i] >= 0 && fcntl(c->fds[i], F_SETFL, O_NONBLOCK) == 0);
    }
    *child = (struct spawned){c->pid, c->pid, r->command, fds[0]};
    return 0;
}

int spawn_result(int status_fd, struct spawn_failure *why)
{
    ssize_t n = read(status_fd, why, sizeof(*why));

    if (n < 0)
        return errno == EAGAIN ? 1 : -errno;
    return n == 0 ? 0 : -why->err;
}

int procfs_each(bool (*each)(const struct procfs_stat *s, void *arg) UNUSED, void *arg UNUSED)
{
    return 0;
}

uint64_t procfs_file_locks_limit(pid_t pid UNUSED)
{
    return 0;
}

uint64_t procfs_meminfo_bytes(const char *field UNUSED)
{
    return 0;
}

int kill(pid_t pid, int sig)
{
    struct child *c = find_child(pid < 0 ? -pid : pid);

    FUZZ_CHECK(pid != 0 && pid != -1 && pid != 1); /* all, or the sandbox itself */
    if (!c || c->gone) {
        errno = ESRCH;
        return -1;
    }
    end_child(c, sig & 0x7f);
    return 0;
}

int waitid(idtype_t which, id_t id, siginfo_t *info, int options)
{
    FUZZ_CHECK(which == P_ALL && id == 0 && options == (WEXITED | WNOHANG | WNOWAIT));
    for (size_t i = 0; i < CHILDREN_MAX; i++) {
        const struct child *c = &children[i];

        if (c->pid == 0 || !c->gone)
            continue;
        info->si_pid = c->pid;
        info->si_code = WIFSIGNALED(c->status) ? CLD_KILLED : CLD_EXITED;
        info->si_status = WIFSIGNALED(c->status) ? WTERMSIG(c->status) : WEXITSTATUS(c->status);
        break;
    }
    return 0;
}

/* Of one that waitid has told. */
pid_t waitpid(pid_t pid, int *status, int options)
{
    struct child *c = find_child(pid);

    FUZZ_CHECK(pid > 0 && c && c->gone && options == WNOHANG);
    *status = c->status;
    c->pid = 0;
    return pid;
}

/* -- what a child does ---------------------------------------------------------------------------- */

static void fail_exec(struct child *c, uint32_t chance)
{
    static const int errors[] = {ENOENT, EACCES, ENOTDIR, ENOMEM};
    struct spawn_failure why = {.step = (enum spawn_step)(chance % (SPAWN_EXEC + 1)),
                                .err = errors[chance / 8 % ARRAY_SIZE(errors)]};

    FUZZ_CHECK(write(c->status_fd, &why, sizeof(why)) == (ssize_t)sizeof(why));
    end_child(c, 127 << 8);
}

static void act(struct child *c, uint32_t chance)
{
    static char bytes[8192];
    size_t n = chance % 7 == 0 ? sizeof(bytes) : chance % 16 + 1;

    if (c->status_fd >= 0) {
        if (chance % 4 == 0)
            fail_exec(c, chance / 4);
        else
            util_close(&c->status_fd);
        return;
    }
    switch (chance / 16 % 8) {
    case 0: end_child(c, (int)(chance / 128 % 256) << 8); break;
    case 1: end_child(c, (int)(chance / 128 % 64) + 1); break;
    case 2: util_close(&c->fds[1]); break;
    case 3: (void)!read(c->fds[0], bytes, sizeof(bytes)); break;
    case 4: (void)!write(c->fds[2], bytes, n); break;
    default: (void)!write(c->fds[1], bytes, n);
    }
}

static void turn(uint32_t chance)
{
    struct child *c = &children[chance % 4]; /* most inputs have few */

    if (chance < UINT32_MAX / 2 && c->pid != 0 && !c->gone)
        act(c, chance / 4);
}

/* -- the agent ------------------------------------------------------------------------------------ */

static bool allowed(const char *method UNUSED, const char *path)
{
    return strncmp(path, "/process.Process/", 17) == 0 || strcmp(path, "/init") == 0 ||
           strcmp(path, "/cay/logs") == 0;
}

static void forget_ended(struct process_table *t)
{
    uv_timer_stop(&t->forget);
    while (t->ended) {
        struct proc_exit *x = t->ended;

        t->ended = x->next;
        free(x->tag);
        free(x);
    }
    t->ended_last = &t->ended;
    t->ended_count = 0;
}

/* Everything ends, and nothing may be left of it. */
static void put_back(struct agent *a)
{
    struct process_table *t = a->processes;

    for (size_t i = 0; i < CHILDREN_MAX; i++)
        if (children[i].pid != 0)
            end_child(&children[i], 0);
    for (int i = 0; i < 10000 && (t->first || t->subscriber_count); i++)
        uv_run(a->loop, UV_RUN_NOWAIT);
    for (int i = 0; i < 3; i++) /* closing handles */
        uv_run(a->loop, UV_RUN_NOWAIT);
    FUZZ_CHECK(!t->first && t->count == 0 && t->config_bytes == 0);
    FUZZ_CHECK(t->subscriber_count == 0 && t->input_bytes == 0);
    for (size_t i = 0; i < CHILDREN_MAX; i++)
        FUZZ_CHECK(children[i].pid == 0);
    forget_ended(t);
    next_pid = FIRST_PID;
    snprintf(a->default_user, sizeof(a->default_user), "root");
    a->default_workdir[0] = '\0';
    a->init_real_ms = 0;
    json_object_clear(a->env);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct agent_driver d = {allowed, turn};
    static struct agent *a;

    if (size == 0 || size > 20000)
        return 0;
    if (!a) {
        a = agent_driver_new(&d);
        put_back(a);
    }
    agent_driver_run(a, data, size);
    put_back(a);
    return 0;
}
