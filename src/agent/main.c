/* cay-init: PID 1 of a sandbox. See agent.h for what it serves and agent_boot.h for how it starts.
 *
 * Development mode: cay-init --no-boot --listen=127.0.0.1:PORT. No boot block, no key, nothing is
 * bounded: for tests in a container of their own, never in a sandbox. */

#include "agent/boot.h"
#include "agent/common/logs.h"
#include "agent/generation.h"
#include "agent/go_on.h"
#include "agent/netlink.h"
#include "agent/process/proc.h"
#include "base/log.h"
#include "base/port.h"

#include <arpa/inet.h>
#include <errno.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>

/* libuv could ask for the user's home, and the C library's answer needs NSS, which a static program
 * cannot load. Nothing here asks: this keeps NSS out of the program. */
int getpwuid_r(uid_t uid UNUSED, struct passwd *pwd UNUSED, char *buf UNUSED, size_t len UNUSED,
               struct passwd **result)
{
    *result = NULL;
    return ENOENT;
}

struct options {
    bool no_boot;
    uint32_t address; /* host order */
    uint16_t port;
};

static int parse_listen(const char *text, struct options *o)
{
    char host[INET_ADDRSTRLEN];
    const char *colon = strrchr(text, ':');
    struct in_addr addr;

    if (!colon || (size_t)(colon - text) >= sizeof(host))
        return -1;
    snprintf(host, sizeof(host), "%.*s", (int)(colon - text), text);
    if (inet_pton(AF_INET, host, &addr) != 1)
        return -1;
    o->address = ntohl(addr.s_addr);
    o->port = port_from_text(colon + 1);
    return o->port ? 0 : -1;
}

static int parse_options(int argc, char **argv, struct options *o)
{
    bool listen = false;

    *o = (struct options){.address = INADDR_LOOPBACK, .port = AGENT_PORT};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--no-boot") == 0)
            o->no_boot = true;
        else if (strncmp(argv[i], "--listen=", 9) == 0 && parse_listen(argv[i] + 9, o) == 0)
            listen = true;
        else
            return -1;
    }
    return listen == o->no_boot ? 0 : -1;
}

/* Only in development mode: a service that cannot be ended is a nuisance there. */
static void on_end_signal(uv_poll_t *poll, int status UNUSED, int events UNUSED)
{
    uv_stop(poll->loop);
}

/* cay-privd has killed a program (privd/locks.h), or lets a frozen sandbox go on (privd/freeze.c).
 * Root of the sandbox may signal this process, too: cay-privd as a sender has no number in here,
 * and only the kernel writes SI_USER. */
static void on_privd_signal(uv_poll_t *poll, int status UNUSED, int events UNUSED)
{
    struct signalfd_siginfo info;
    int fd;

    if (uv_fileno((uv_handle_t *)poll, &fd) < 0 || read(fd, &info, sizeof(info)) < 0)
        return;
    if (info.ssi_code != SI_USER || info.ssi_pid != 0)
        return;
    if (info.ssi_signo == SIGUSR1) {
        generation_renew();
        return;
    }
    logs_add(poll->data, "warn", "file_locks_denied", 0,
             "a program was killed: with it the sandbox held too many locks on ranges of files");
}

/* All signals are blocked here (boot_prepare), so they wait until they are read. */
static void take_signals(struct agent *a, uv_poll_t *poll, const int *signals, size_t n,
                         uv_poll_cb cb)
{
    sigset_t set;
    int fd;

    sigemptyset(&set);
    for (size_t i = 0; i < n; i++)
        sigaddset(&set, signals[i]);
    fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    poll->data = a;
    if (fd >= 0 && uv_poll_init(a->loop, poll, fd) == 0)
        uv_poll_start(poll, UV_READABLE, cb);
}

static enum err_code serve(struct agent *a, const struct options *o, struct err *e)
{
    struct http_server_config config;
    int ret, fd;

    http_server_config_default(&config);
    config.max_connections = AGENT_CONNECTIONS_MAX;
    config.write_high_bytes = AGENT_WRITE_HIGH_BYTES;
    config.read_buffer_bytes = AGENT_READ_BYTES;
    config.arena_max_bytes = AGENT_ARENA_MAX_BYTES;
    config.idle_timeout_ms = 0; /* the host's gateway keeps connections, and decides for how long */
    a->loop = uv_default_loop();
    a->env = json_object();
    snprintf(a->default_user, sizeof(a->default_user), "user");
    if (!a->loop || !a->env || logs_new(a) < 0 || proc_table_new(a) < 0)
        return err_set(e, ERR_INTERNAL, "out of memory or descriptors at start");
    if ((ret = http_server_new(a->loop, &config, routes_dispatch, a, &a->server)) < 0)
        return err_set_sys(e, ERR_INTERNAL, ret, "making the server");
    if (!o->no_boot && (ret = netlink_serve(a)) < 0)
        return err_set_sys(e, ERR_INTERNAL, ret, "taking what the filter asks");
    if (!o->no_boot && (ret = go_on_listen(a)) < 0)
        return err_set_sys(e, ERR_INTERNAL, ret, "listening for what privd says");
    if ((fd = boot_listen(o->address, o->port)) < 0)
        return err_set_sys(e, ERR_INTERNAL, fd, "listening on port %u", o->port);
    if ((ret = http_server_listen(a->server, fd)) < 0)
        return err_set_sys(e, ERR_INTERNAL, ret, "listening on port %u", o->port);
    return ERR_OK;
}

/* The steps before the claim are done ahead in a member of the pool; the claim is waited for. */
static enum err_code start(struct agent *a, const struct options *o, struct err *e)
{
    static const int signals[] = {SIGUSR1, SIGUSR2};
    static uv_poll_t poll;

    if (boot_read(a, AGENT_BOOT_FD, e) != ERR_OK || boot_confine(a, e) != ERR_OK ||
        serve(a, o, e) != ERR_OK)
        return e->code;
    take_signals(a, &poll, signals, ARRAY_SIZE(signals), on_privd_signal);
    boot_get_ready(a);
    return boot_claim(a, AGENT_BOOT_FD, e);
}

static int run_in_development(struct agent *a, const struct options *o)
{
    static const int signals[] = {SIGTERM, SIGINT};
    static uv_poll_t poll;
    struct err e = {0};

    if (serve(a, o, &e) != ERR_OK) {
        log_error("%s", e.text);
        return 1;
    }
    take_signals(a, &poll, signals, ARRAY_SIZE(signals), on_end_signal);
    return uv_run(a->loop, UV_RUN_DEFAULT);
}

int main(int argc, char **argv)
{
    static struct agent agent;
    struct options o;
    struct err e = {0};

    boot_standard_descriptors();
    log_init("cay-init", LOG_WARN);
    if (parse_options(argc, argv, &o) < 0) {
        fprintf(stderr,
                "usage: cay-init, with a boot block on descriptor %d\n"
                "       cay-init --no-boot --listen=127.0.0.1:PORT (development)\n",
                AGENT_BOOT_FD);
        return 2;
    }
    boot_prepare();
    agent.keyless = o.no_boot;
    if (o.no_boot)
        return run_in_development(&agent, &o);
    if (start(&agent, &o, &e) != ERR_OK) {
        log_error("%s", e.text);
        boot_report(AGENT_BOOT_FD, &e);
        return 1;
    }
    boot_report(AGENT_BOOT_FD, NULL);
    return uv_run(agent.loop, UV_RUN_DEFAULT);
}
