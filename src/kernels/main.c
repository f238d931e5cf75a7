/* cay-kernels: the code interpreter inside a sandbox, between clients on port 49999 and Jupyter
 * kernels. It runs one loop, in one thread beside ZeroMQ's, and listens at once: a request that
 * comes while a kernel starts waits for it. /health is 200 when the default context of Python is
 * ready, or is known not to come. SIGTERM and SIGINT end it, and its kernels with it.
 *
 *   cay-kernels [--listen=ADDRESS:PORT] [--kernels=DIR]... [--home=DIR] [--log=FILE]
 *
 * --log: what it and its kernels say goes there, from when it listens on; what stops it before is
 * said where it was started, for whom it is the start command.
 *
 * It has no rights but the sandbox's, and no secret: its clients come through the gateway, which
 * has checked them. */

#include "base/io.h"
#include "base/log.h"
#include "base/port.h"
#include "kernels/routes.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <zmq.h>

#define PORT      49999
#define BACKLOG   128
#define DIRS_MAX  8
#define HTTP_HIGH (1024u * 1024u)

struct program {
    uv_loop_t loop;
    struct http_server *server;
    struct contexts *contexts;
    uv_signal_t ends[2];
    const char *dirs[DIRS_MAX + 1], *home, *log;
    char dir[32];
    struct sockaddr_in address;
};

static int parse_address(const char *text, struct sockaddr_in *out)
{
    const char *colon = strrchr(text, ':');
    char host[INET_ADDRSTRLEN];

    if (!colon || (size_t)(colon - text) >= sizeof(host))
        return -EINVAL;
    snprintf(host, sizeof(host), "%.*s", (int)(colon - text), text);
    out->sin_port = htons(port_from_text(colon + 1));
    return inet_pton(AF_INET, host, &out->sin_addr) == 1 && out->sin_port ? 0 : -EINVAL;
}

static int parse_options(struct program *p, int argc, char **argv)
{
    size_t n = 0;

    p->address = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(PORT)};
    p->home = "/home/user";
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "--listen=", 9) == 0 && parse_address(argv[i] + 9, &p->address) == 0)
            continue;
        if (strncmp(argv[i], "--home=/", 8) == 0)
            p->home = argv[i] + 7;
        else if (strncmp(argv[i], "--log=/", 7) == 0)
            p->log = argv[i] + 6;
        else if (strncmp(argv[i], "--kernels=/", 11) == 0 && n < DIRS_MAX)
            p->dirs[n++] = argv[i] + 10;
        else
            return -EINVAL;
    }
    if (n == 0) {
        p->dirs[0] = "/usr/local/share/jupyter/kernels";
        p->dirs[1] = "/usr/share/jupyter/kernels";
    }
    return 0;
}

static int open_listener(const struct sockaddr_in *address)
{
    static const int on = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return -errno;
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
        bind(fd, (const struct sockaddr *)address, sizeof(*address)) < 0 ||
        listen(fd, BACKLOG) < 0) {
        int ret = -errno;

        close(fd);
        return ret;
    }
    return fd;
}

static int serve(struct program *p)
{
    int fd = open_listener(&p->address);

    return fd < 0 ? fd : http_server_listen(p->server, fd);
}

static int open_log(const char *path)
{
    CLEANUP_CLOSE int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0644);

    if (fd < 0)
        return -errno;
    return dup2(fd, STDOUT_FILENO) < 0 || dup2(fd, STDERR_FILENO) < 0 ? -errno : 0;
}

/* Python's kernel runs from the start, so that it is in a template's memory. That of JavaScript,
 * which takes three times as much, begins with its first use. Both contexts are there from the
 * start; where there is no kernel for one, its first use says why. */
static void make_contexts(struct program *p)
{
    struct context *c;
    struct err e;

    if (spec_exists(p->dirs, "python") &&
        contexts_default(p->contexts, "python", NULL, &c, &e) != ERR_OK)
        log_error("there is no python: %s", e.text);
    if (spec_exists(p->dirs, "javascript") &&
        contexts_reserve(p->contexts, "javascript", &e) != ERR_OK)
        log_error("there is no javascript: %s", e.text);
}

static int make_server(struct program *p)
{
    struct http_server_config config;

    http_server_config_default(&config);
    config.write_high_bytes = HTTP_HIGH;
    config.body_timeout_ms = 60000;
    config.write_timeout_ms = 0; /* a client that takes nothing is found by what is held for it */
    config.held_total_bytes = 2 * (size_t)EXECUTION_HELD_MAX;
    config.half_stream_timeout_ms = 0;
    return http_server_new(&p->loop, &config, routes_dispatch, p->contexts, &p->server);
}

/* Kernels lead sessions of their own: no signal that is meant for this program reaches them. */
static void on_end(uv_signal_t *s, int number)
{
    struct program *p = s->data;
    struct context *c;

    while ((c = contexts_next(p->contexts, NULL)))
        context_remove(c);
    uv_stop(s->loop);
}

static int take_signals(struct program *p)
{
    static const int numbers[] = {SIGTERM, SIGINT};
    int ret = 0;

    for (size_t i = 0; i < ARRAY_SIZE(numbers) && ret == 0; i++) {
        ret = uv_signal_init(&p->loop, &p->ends[i]);
        p->ends[i].data = p;
        if (ret == 0)
            ret = uv_signal_start(&p->ends[i], on_end, numbers[i]);
    }
    return ret;
}

static bool remove_file(void *arg, const char *name)
{
    int *dir = arg;

    (void)unlinkat(*dir, name, 0);
    return true;
}

/* Connection files have keys. */
static void remove_dir(const char *path)
{
    int dir = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (dir >= 0)
        (void)io_each_name_at(dir, ".", remove_file, &dir);
    util_close(&dir);
    (void)rmdir(path);
}

static int begin(struct program *p)
{
    struct contexts_config config = {.loop = &p->loop, .dirs = p->dirs, .home = p->home};
    int ret;

    snprintf(p->dir, sizeof(p->dir), "/tmp/cay-kernels-XXXXXX");
    if (!mkdtemp(p->dir))
        return -errno;
    config.dir = p->dir;
    config.zmq = zmq_ctx_new();
    if (!config.zmq)
        return -errno;
    ret = contexts_new(&config, &p->contexts);
    if (ret == 0)
        ret = make_server(p);
    if (ret == 0)
        ret = take_signals(p);
    if (ret == 0)
        ret = serve(p);
    if (ret == 0 && p->log)
        ret = open_log(p->log);
    if (ret < 0)
        return ret;
    make_contexts(p);
    return 0;
}

int main(int argc, char **argv)
{
    static struct program p;
    int ret;

    log_init("cay-kernels", LOG_WARN);
    signal(SIGPIPE, SIG_IGN);
    if (parse_options(&p, argc, argv) < 0) {
        fprintf(stderr,
                "usage: cay-kernels [--listen=ADDRESS:PORT] [--kernels=DIR]... [--home=DIR] "
                "[--log=FILE]\n");
        return 2;
    }
    ret = uv_loop_init(&p.loop);
    if (ret == 0)
        ret = begin(&p);
    if (ret < 0) {
        log_error("cannot start: %s", strerror(-ret));
        return 1;
    }
    (void)uv_run(&p.loop, UV_RUN_DEFAULT);
    remove_dir(p.dir);
    return 0;
}
