/* cayd: the HTTP side of cay. A single thread owns all state (control.h), the others parse and
 * relay (connloop.h). main() reads options, starts them, and ends them when told. */
#include "base/heap.h"
#include "base/log.h"
#include "base/settings.h"
#include "cayd/confine.h"
#include "cayd/connloop.h"
#include "cayd/control.h"
#include "cayd/loop_end.h"
#include "contract/keep.h"
#include "http/json.h"
#include "http/tls.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>

#define LOOPS_MAX          64
#define STOP_GRACE_MS      2000
#define SERVE_ANYWAY_MS    5000 /* answer 503 rather than nothing when privd is away */
#define RESERVED_FILES     256  /* descriptors that are not connections */
#define FILES_MIN          (RESERVED_FILES + 64)
#define FILES_A_CONNECTION 2 /* the client's and the sandbox's */

struct options {
    int listen_fds[CONNLOOP_LISTENERS_MAX];
    size_t n_listen;
    int ready_fd, tls_cert_fd, tls_key_fd;
    const char *privd, *egress_dir;
    bool check;
};

struct daemon {
    uv_loop_t loop;
    struct settings settings;
    struct options options;
    struct control *control;
    struct tls *tls; /* NULL: plain HTTP only */
    struct connloop *loops[LOOPS_MAX];
    size_t loop_count;
    struct mailbox mailbox;                    /* where loops say that they have ended */
    struct mailbox_message endings[LOOPS_MAX]; /* one for each loop: its end needs no memory */
    atomic_size_t endings_used;
    size_t ended;
    uv_signal_t sigterm, sigint;
    uv_timer_t serve_anyway;
    bool serving, stopping;
};

static const struct option long_options[] = {
    {"listen-fd", required_argument, NULL, 'l'},
    {"ready-fd", required_argument, NULL, 'r'},
    {"tls-cert-fd", required_argument, NULL, 't'},
    {"tls-key-fd", required_argument, NULL, 'k'},
    {"privd", required_argument, NULL, 'p'},
    {"egress-dir", required_argument, NULL, 'e'},
    {"config", required_argument, NULL, 'c'},
    {"check", no_argument, NULL, 'C'},
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, 'v'},
    {0},
};

static void print_help(void)
{
    printf(
        "cayd: the HTTP side of cay; started by cay-keep.\n\n"
        "  --listen-fd=N   descriptor of a listening socket; twice for two\n"
        "  --ready-fd=N    descriptor to write one byte to when it serves\n"
        "  --tls-cert-fd=N, --tls-key-fd=N\n"
        "                  descriptors of certificate chain and key, in PEM: the port speaks TLS\n"
        "  --egress-dir=DIR where the control sockets of cay-egress are; without it nothing "
        "leaves\n"
        "                  a sandbox\n"
        "  --privd=PATH    cay-privd's socket (/run/cay/privd.sock)\n"
        "  --check         only say whether options, certificate and key are good\n"
        "  --config=FILE   settings; without it only options count\n\n");
    config_print_help(settings_keys, stdout);
}

static int parse_fd(const char *text)
{
    int fd = keep_parse_fd(text);

    if (fd < 0) {
        log_error("\"%s\" is not an open descriptor", text);
        exit(KEEP_EXIT_OPTIONS);
    }
    return fd;
}

static void add_listener(struct options *o, const char *text)
{
    if (o->n_listen == ARRAY_SIZE(o->listen_fds)) {
        log_error("--listen-fd: %zu listeners at most", ARRAY_SIZE(o->listen_fds));
        exit(KEEP_EXIT_OPTIONS);
    }
    o->listen_fds[o->n_listen++] = parse_fd(text);
}

/* Ends the program for --help, --version and wrong options. */
static void parse_options(int argc, char **argv, struct options *o)
{
    int c;

    *o = (struct options){
        .ready_fd = -1, .tls_cert_fd = -1, .tls_key_fd = -1, .privd = "/run/cay/privd.sock"};
    opterr = 0;
    while ((c = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
        switch (c) {
        case 'l': add_listener(o, optarg); break;
        case 'r': o->ready_fd = parse_fd(optarg); break;
        case 't': o->tls_cert_fd = parse_fd(optarg); break;
        case 'k': o->tls_key_fd = parse_fd(optarg); break;
        case 'p': o->privd = optarg; break;
        case 'e': o->egress_dir = optarg; break;
        case 'c': break; /* read by settings_load_daemon */
        case 'C': o->check = true; break;
        case 'h': print_help(); exit(0);
        case 'v': printf("cayd %s\n", CAY_VERSION); exit(0);
        default:
            log_error("unknown option or missing value: %s; see cayd --help", argv[optind - 1]);
            exit(KEEP_EXIT_OPTIONS);
        }
    }
    if (optind < argc) {
        log_error("unexpected argument: %s; see cayd --help", argv[optind]);
        exit(KEEP_EXIT_OPTIONS);
    }
    if (o->n_listen == 0) {
        log_error("--listen-fd is missing: cayd is started by cay-keep");
        exit(KEEP_EXIT_OPTIONS);
    }
}

/* The settings' options go out of argv before getopt sees the rest. */
static void read_settings(struct daemon *d, int *argc, char **argv)
{
    struct err e;

    if (settings_load_daemon(&d->settings, argc, argv, &e) != ERR_OK) {
        log_error("%s", e.text);
        exit(KEEP_EXIT_OPTIONS);
    }
}

NORETURN static void fail(struct daemon *d, const char *text)
{
    log_error("%s", text);
    keep_notify(&d->options.ready_fd, KEEP_FAILED, text);
    exit(KEEP_EXIT_FAILED);
}

NORETURN static void fail_err(struct daemon *d, const struct err *e)
{
    char text[sizeof(e->text) + sizeof(e->hint) + 2];

    snprintf(text, sizeof(text), "%s%s%s", e->text, e->hint[0] ? "; " : "", e->hint);
    fail(d, text);
}

/* As many descriptors as are allowed without asking for more; how many connections they carry. */
static size_t raise_files(struct daemon *d)
{
    struct rlimit limit;
    char text[128];

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return 128;
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) < 0 || getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return 128;
    if (limit.rlim_cur < FILES_MIN) {
        snprintf(text, sizeof(text),
                 "only %llu open files are allowed (RLIMIT_NOFILE); %d are needed",
                 (unsigned long long)limit.rlim_cur, FILES_MIN);
        fail(d, text);
    }
    return (size_t)(limit.rlim_cur - RESERVED_FILES) / FILES_A_CONNECTION;
}

/* A sandbox cannot be given more open files than this machine gives any process. */
static void bound_open_files(struct settings *s)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || (rlim_t)s->sandbox_open_files <= limit.rlim_max)
        return;
    log_warn("sandboxes get %llu open files, not %lld: more are not allowed here (RLIMIT_NOFILE)",
             (unsigned long long)limit.rlim_max, (long long)s->sandbox_open_files);
    s->sandbox_open_files = (int64_t)limit.rlim_max;
}

static void on_paused(void *arg, const char *id)
{
    struct daemon *d = arg;

    for (size_t i = 0; i < d->loop_count; i++)
        connloop_paused(d->loops[i], id);
}

static void on_key_revoked(void *arg, const char *key_id)
{
    struct daemon *d = arg;

    for (size_t i = 0; i < d->loop_count; i++)
        connloop_key_revoked(d->loops[i], key_id);
}

/* -- the end ----------------------------------------------------------------------------------- */

static void stop(struct daemon *d)
{
    if (d->stopping)
        return;
    d->stopping = true;
    log_info("stopping");
    for (size_t i = 0; i < d->loop_count; i++)
        connloop_stop(d->loops[i], STOP_GRACE_MS);
}

static void on_signal(uv_signal_t *s, int number)
{
    stop(s->data);
}

static void all_ended(struct daemon *d)
{
    control_stop(d->control);
    mailbox_close(&d->mailbox);
    uv_close((uv_handle_t *)&d->sigterm, NULL);
    uv_close((uv_handle_t *)&d->sigint, NULL);
    uv_close((uv_handle_t *)&d->serve_anyway, NULL);
}

static void open_ended(struct mailbox_message *l, void *reader)
{
    struct daemon *d = reader;

    if (++d->ended == d->loop_count)
        all_ended(d);
}

static void discard_ended(struct mailbox_message *l)
{
}

/* On the ended loop's thread. */
static void loop_ended(void *arg)
{
    struct daemon *d = arg;
    struct mailbox_message *l = &d->endings[atomic_fetch_add(&d->endings_used, 1)];

    l->open = open_ended;
    l->discard = discard_ended;
    mailbox_answer(&d->mailbox, l);
}

/* -- the start --------------------------------------------------------------------------------- */

static void serve(struct daemon *d)
{
    if (d->serving)
        return;
    d->serving = true;
    uv_timer_stop(&d->serve_anyway);
    for (size_t i = 0; i < d->loop_count; i++)
        connloop_serve(d->loops[i]);
}

static void on_ready(void *arg)
{
    struct daemon *d = arg;

    serve(d);
    keep_notify(&d->options.ready_fd, KEEP_READY, "");
    log_info("serving with %zu connection loop%s", d->loop_count, d->loop_count == 1 ? "" : "s");
}

static void on_serve_anyway(uv_timer_t *t)
{
    log_warn("cay-privd does not answer yet; serving errors until it does");
    serve(t->data);
}

static void start_loops(struct daemon *d)
{
    int64_t wanted = d->settings.server_threads;
    size_t cores = uv_available_parallelism();
    size_t connections = MIN(raise_files(d), (size_t)d->settings.server_max_connections);
    struct connloop_config config = {.control = d->control,
                                     .n_listen = d->options.n_listen,
                                     .layer = tls_layer(d->tls, settings_needs_tls(&d->settings)),
                                     .agent_timeout_ms = d->settings.sandbox_answer_timeout_ms,
                                     .ended = loop_ended,
                                     .ended_arg = d};
    char text[128];

    memcpy(config.listen_fds, d->options.listen_fds, sizeof(config.listen_fds));
    d->loop_count = wanted > 0 ? (size_t)wanted : cores > 1 ? cores - 1 : 1;
    d->loop_count = MIN(d->loop_count, (size_t)LOOPS_MAX);
    config.max_connections = MAX(connections / d->loop_count, (size_t)16);
    for (size_t i = 0; i < d->loop_count; i++) {
        int rc;

        config.number = (unsigned)i;
        rc = connloop_start(&config, &d->loops[i]);
        if (rc < 0) {
            snprintf(text, sizeof(text), "cannot start a connection loop: %s", strerror(-rc));
            fail(d, text);
        }
    }
}

/* Before the filter and any thread: no client has sent a byte yet. The key stays in this process's
 * memory, its file does not stay open. */
static void load_tls(struct daemon *d)
{
    struct options *o = &d->options;
    struct err e;

    if (o->tls_cert_fd < 0 || o->tls_key_fd < 0) {
        if (settings_has_tls(&d->settings))
            fail(d, "TLS: the settings name a certificate, but --tls-cert-fd and --tls-key-fd are "
                    "missing");
        if (strcmp(d->settings.listen_tls, "only") == 0)
            fail(d, "TLS: [listen] tls = only needs tls_cert and tls_key");
        return;
    }
    if (strcmp(d->settings.listen_tls, "off") != 0 &&
        tls_load(o->tls_cert_fd, o->tls_key_fd, d->settings.server_domain, &d->tls, &e) != ERR_OK)
        fail_err(d, &e);
    util_close(&o->tls_cert_fd);
    util_close(&o->tls_key_fd);
}

static void set_up(struct daemon *d)
{
    struct err e;

    if (uv_loop_init(&d->loop) < 0 || mailbox_init(&d->mailbox, &d->loop, LOOPS_MAX, d) < 0)
        fail(d, "cannot make the control loop");
    bound_open_files(&d->settings);
    if (control_new(&d->loop, &d->settings, d->options.privd, d->options.egress_dir, d->tls != NULL,
                    on_ready, d, &d->control, &e) != ERR_OK)
        fail_err(d, &e);
    start_loops(d);
    control_on_paused(d->control, on_paused, d);
    control_on_key_revoked(d->control, on_key_revoked, d);
    uv_signal_init(&d->loop, &d->sigterm);
    uv_signal_init(&d->loop, &d->sigint);
    uv_timer_init(&d->loop, &d->serve_anyway);
    d->sigterm.data = d->sigint.data = d->serve_anyway.data = d;
    uv_signal_start(&d->sigterm, on_signal, SIGTERM);
    uv_signal_start(&d->sigint, on_signal, SIGINT);
    uv_timer_start(&d->serve_anyway, on_serve_anyway, SERVE_ANYWAY_MS, 0);
}

static void tear_down(struct daemon *d)
{
    for (size_t i = 0; i < d->loop_count; i++)
        connloop_join(d->loops[i]);
    control_free(d->control);
    mailbox_free(&d->mailbox);
    loop_end(&d->loop, "control loop");
    tls_free(d->tls);
    settings_free(&d->settings);
}

int main(int argc, char **argv)
{
    static struct daemon d;

    log_init("cayd", LOG_INFO);
    signal(SIGPIPE, SIG_IGN);
    heap_bound_kept();
    json_wipe_frees(); /* environments and credentials pass through */
    read_settings(&d, &argc, argv);
    parse_options(argc, argv, &d.options);
    load_tls(&d);
    if (d.options.check)
        return 0;
    if (confine_self() < 0)
        fail(&d, "cannot install the system call filter");
    set_up(&d);
    uv_run(&d.loop, UV_RUN_DEFAULT);
    tear_down(&d);
    log_info("stopped");
    return 0;
}
