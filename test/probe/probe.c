/* The probe's table and main: `probe list`, `probe CASE`, `probe all`. See probe.h. */
#include "probe.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CASE_SECONDS 10

static const struct probe_case *const tables[] = {
    probe_kernel_cases,  probe_proc_cases,   probe_namespace_cases, probe_identity_cases,
    probe_network_cases, probe_calls_cases,  probe_filters_cases,   probe_init_cases,
    probe_files_cases,   probe_shared_cases, probe_pools_cases,
};

__attribute__((format(printf, 3, 0))) static void found(struct finding *f, enum verdict v,
                                                        const char *fmt, va_list ap)
{
    f->verdict = v;
    vsnprintf(f->why, sizeof(f->why), fmt, ap);
}

#define FOUND(name, v)                                 \
    void name(struct finding *f, const char *fmt, ...) \
    {                                                  \
        va_list ap;                                    \
                                                       \
        va_start(ap, fmt);                             \
        found(f, v, fmt, ap);                          \
        va_end(ap);                                    \
    }

FOUND(found_refused, REFUSED)
FOUND(found_open, OPEN)
FOUND(found_none, NOT_APPLICABLE)

void found_call(struct finding *f, const char *name, long result)
{
    if (result >= 0)
        found_open(f, "%s succeeded (%ld)", name, result);
    else
        found_refused(f, "%s: %s", name, strerror(errno));
}

void found_reached(struct finding *f, const char *name, long result)
{
    if (result < 0 && errno != EPERM && errno != EACCES && errno != ENOSYS)
        found_open(f, "%s looked at its arguments: %s", name, strerror(errno));
    else
        found_call(f, name, result);
}

pid_t probe_target(void)
{
    const char *text = getenv("CAY_PROBE_PID");
    int pid = text ? atoi(text) : 1;

    return pid > 1 ? pid : 1;
}

/* The initial pid namespace has a fixed inode number (PROC_PID_INIT_INO, linux/proc_ns.h). */
int probe_spared(struct finding *f)
{
    char link[64] = "";

    if (probe_target() != 1)
        return 0;
    if (readlink("/proc/self/ns/pid", link, sizeof(link) - 1) > 0 &&
        strcmp(link, "pid:[4026531836]") != 0 && getpid() != 1)
        return 0;
    found_none(f, "PID 1 here is the machine's own, or the probe itself: not tried");
    return 1;
}

static const struct probe_case *find_case(const char *name)
{
    for (size_t t = 0; t < ARRAY_SIZE(tables); t++)
        for (const struct probe_case *c = tables[t]; c->name; c++)
            if (strcmp(c->name, name) == 0)
                return c;
    return NULL;
}

static const char *verdict_name(enum verdict v)
{
    return v == REFUSED ? "refused" : v == OPEN ? "OPEN" : "not-applicable";
}

static void run_here(const struct probe_case *c, struct finding *f)
{
    f->verdict = OPEN;
    snprintf(f->why, sizeof(f->why), "the case ended without a verdict");
    c->run(f);
}

static void wait_for_case(pid_t pid, int fd, struct finding *f)
{
    ssize_t got = read(fd, f, sizeof(*f));
    int status = 0;

    waitpid(pid, &status, 0);
    if (got == (ssize_t)sizeof(*f))
        return;
    if (WIFSIGNALED(status))
        found_refused(f, "killed by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        found_open(f, "the case ended without a verdict, status %d", status);
}

/* In a child, since a refusal may be a deadly signal, and an open way may spoil the process. */
static int run_case(const struct probe_case *c)
{
    struct finding f = {0};
    int fds[2];
    pid_t pid;

    if (pipe(fds) < 0)
        return 2;
    pid = fork();
    if (pid < 0)
        return 2;
    if (pid == 0) {
        alarm(CASE_SECONDS);
        run_here(c, &f);
        _exit(write(fds[1], &f, sizeof(f)) == (ssize_t)sizeof(f) ? 0 : 2);
    }
    close(fds[1]);
    wait_for_case(pid, fds[0], &f);
    close(fds[0]);
    printf("%s\t%s\t%s\n", c->name, verdict_name(f.verdict), f.why);
    fflush(stdout);
    return (int)f.verdict;
}

static int for_all(int (*fn)(const struct probe_case *c))
{
    int worst = 0;

    for (size_t t = 0; t < ARRAY_SIZE(tables); t++)
        for (const struct probe_case *c = tables[t]; c->name; c++)
            if (fn(c) == OPEN)
                worst = 1;
    return worst;
}

static int print_case(const struct probe_case *c)
{
    printf("%s\t%s\t%s\n", c->name, c->open_on_host ? "host-control" : "-", c->about);
    return 0;
}

int main(int argc, char **argv)
{
    const struct probe_case *c;

    if (argc == 2 && strcmp(argv[1], "list") == 0)
        return for_all(print_case);
    if (argc == 2 && strcmp(argv[1], "all") == 0)
        return for_all(run_case);
    c = argc == 2 ? find_case(argv[1]) : NULL;
    if (!c) {
        fprintf(stderr, "usage: probe list | all | CASE (see `probe list`)\n");
        return 2;
    }
    return run_case(c);
}
