/* cay-egress: the only way out of sandboxes. main() reads options, starts the parts, and ends them
 * when told; the rest is in egress.h's files. */
#include "base/err.h"
#include "base/log.h"
#include "base/share.h"
#include "base/util.h"
#include "contract/keep.h"
#include "contract/proto.h"
#include "egress/confine.h"
#include "egress/control/audit_query.h"
#include "egress/control/control.h"
#include "egress/flow/asks.h"
#include "egress/flow/audit.h"
#include "egress/flow/dial.h"
#include "egress/flow/egress.h"
#include "egress/flow/forward.h"
#include "egress/flow/hostaddr.h"
#include "egress/flow/intercept.h"
#include "egress/flow/registry.h"
#include "egress/flow/renew.h"
#include "egress/flow/resolve.h"
#include "egress/flow/sandbox.h"
#include "egress/flow/tunnel.h"
#include "egress/flow/upstream.h"
#include "egress/memory_trim.h"
#include "egress/options.h"
#include "egress/tls/turns.h"
#include "privsep/client.h"

#include <ares.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <uv.h>

#define FILES_RESERVED  512 /* that are not flows */
#define FILES_A_FLOW    3   /* the client's, the server's, and pipes while they are full */
#define FILES_A_SANDBOX 2

static struct egress egress;
static uv_loop_t loop;
static struct options options;
static struct privsep_client *privd;
static uv_signal_t sigterm, sigint;

NORETURN PRINTF(1, 2) static void fail(const char *fmt, ...)
{
    char text[KEEP_REASON_MAX];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    log_error("%s", text);
    keep_notify(&options.ready_fd, KEEP_FAILED, text);
    exit(KEEP_EXIT_FAILED);
}

/* -- privd ------------------------------------------------------------------------------------- */

static void on_up(void *arg, const struct privsep_msg *hello)
{
    registry_begin_sync(&egress);
}

static void on_down(void *arg)
{
    /* What is open goes on; privd tells what has ended when it is back. */
}

static void on_event(void *arg, const struct privsep_msg *m, int *fds, size_t n_fds)
{
    switch (m->op) {
    case PRIVSEP_EGRESS_OPEN:
        if (n_fds == PRIVSEP_EGRESS_FDS) {
            registry_open(&egress, m->slot, m->gen, m->u.egress.command, fds[0], fds[1]);
            return;
        }
        break;
    case PRIVSEP_EGRESS_KEEP: registry_keep(&egress, m->slot, m->gen, m->u.egress.command); break;
    case PRIVSEP_EGRESS_SYNC: registry_sync(&egress); break;
    case PRIVSEP_EGRESS_CLOSE: registry_close(&egress, m->slot, m->gen, m->u.egress.command); break;
    default: log_warn("privd sent an event that is not known: %u", m->op);
    }
    for (size_t i = 0; i < n_fds; i++)
        close(fds[i]);
}

/* -- start ------------------------------------------------------------------------------------- */

static uint32_t flows_that_fit(uint32_t sandboxes)
{
    struct rlimit r;
    uint64_t files;

    if (getrlimit(RLIMIT_NOFILE, &r) < 0)
        return 256;
    r.rlim_cur = r.rlim_max;
    (void)!setrlimit(RLIMIT_NOFILE, &r);
    files = MIN(r.rlim_max, (rlim_t)1 << 20);
    files -= MIN(files, (uint64_t)FILES_RESERVED + (uint64_t)sandboxes * FILES_A_SANDBOX);
    return (uint32_t)MIN(MAX(files / FILES_A_FLOW, (uint64_t)64), (uint64_t)EGRESS_FLOWS_MAX);
}

static void take_settings(void)
{
    const struct settings *s = &options.settings;
    struct err e;

    egress.config = (struct egress_config){
        .state_dir = s->state_dir,
        .shard = options.shard,
        .shards = options.shards,
        .peer_uid = options.peer_uid,
        .dns_servers = s->egress_dns_servers,
        .offline = s->egress_offline,
        .connections = (uint32_t)s->egress_connections,
        .connections_per_second = (uint32_t)s->egress_connections_per_second,
        .requests_per_second = (uint32_t)s->egress_requests_per_second,
        .connect_timeout_ms = (uint32_t)s->egress_connect_timeout_ms,
        .idle_timeout_ms = s->egress_idle_timeout_ms,
        .audit_size_bytes = s->egress_audit_size_bytes,
        .audit_files = (uint32_t)s->egress_audit_files,
        .flows_max = flows_that_fit((uint32_t)s->sandbox_max / options.shards + 1),
    };
    if (s->egress_upstream_proxy &&
        upstream_parse(s->egress_upstream_proxy, &egress.config.upstream, &e) != ERR_OK)
        fail("[egress] %s", e.text);
}

static void check(int rc, const char *what)
{
    if (rc < 0)
        fail("cannot start %s: %s", what, strerror(-rc));
}

/* Keys and secrets are in this memory: no process of the same user may look into it, and it is in
 * no core file. */
static void close_memory(void)
{
    const struct rlimit none = {0, 0};

    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 || setrlimit(RLIMIT_CORE, &none) < 0)
        fail("cannot keep others out of the memory: %s", strerror(errno));
}

static void start_interception(void)
{
    struct intercept_config c = {.ca_file = options.settings.egress_ca_file,
                                 .key_fd = options.seal_key_fd};
    struct err e;

    if (c.key_fd < 0 && options.settings.egress_key_file)
        fail("[egress] key_file is opened by cay-keep (its --egress-key-file), not by cay-egress");
    if (intercept_new(&egress, &c, &e) != ERR_OK)
        fail("[egress] %s", e.text);
    util_close(&c.key_fd);
}

/* Before the system call filter, which lets no directory be listed: its own directory, of its own
 * files. */
static void start_audit(void)
{
    struct err e;

    if (audit_open(&egress, &egress.audit, &e) != ERR_OK)
        fail("%s", e.text);
}

static void start_parts(void)
{
    const struct privsep_client_events events = {on_up, on_down, on_event, NULL};

    check(registry_new(&egress, &egress.registry), "the registry");
    check(dialer_new(&egress, &egress.dialer), "the dialer");
    egress.ask_places = share_pool_new(ASKS_MAX);
    check(egress.ask_places ? 0 : -ENOMEM, "the questions to owners");
    check(tunnels_new(&egress, &egress.tunnels), "the tunnels");
    check(forward_new(&egress, &egress.forward), "the HTTP proxy");
    check(renewals_new(&egress, &egress.renewals), "renewals");
    check(audit_queries_new(&egress, &egress.audit_queries), "queries of the log");
    check(control_new(&egress, options.listen_fd, &egress.control), "the control channel");
    check(privsep_client_new(&loop, options.privd, &events, &privd), "privd's channel");
}

/* All ends with the process; only what the log still holds has to reach the disk. */
static void on_signal(uv_signal_t *s, int number)
{
    registry_free(egress.registry); /* which is still asked while it ends them */
    audit_free(TAKE_PTR(egress.audit));
    log_info("stopped");
    exit(0);
}

int main(int argc, char **argv)
{
    log_init("cay-egress", LOG_INFO);
    signal(SIGPIPE, SIG_IGN);
    setenv("UV_THREADPOOL_SIZE", "3", 1); /* two queries of the log, and its fdatasync */
    options_parse(argc, argv, &options);
    close_memory();
    check(uv_loop_init(&loop), "the loop");
    check(ares_library_init(ARES_LIB_INIT_ALL) == 0 ? 0 : -ENOMEM, "c-ares");
    egress.loop = &loop;
    take_settings();
    check(hostaddr_start(&egress), "the watch on the host's addresses");
    check(resolver_new(&egress, egress.config.dns_servers, &egress.resolver), "the resolver");
    check(turns_new(&loop, &egress.turns), "the shares of time");
    start_interception();
    start_audit();
    check(confine_self(), "the system call filter");
    start_parts();
    uv_signal_init(&loop, &sigterm);
    uv_signal_init(&loop, &sigint);
    uv_signal_start(&sigterm, on_signal, SIGTERM);
    uv_signal_start(&sigint, on_signal, SIGINT);
    memory_trim();
    keep_notify(&options.ready_fd, KEEP_READY, "");
    log_info("serving shard %u of %u, at most %u connections", options.shard, options.shards,
             egress.config.flows_max);
    uv_run(&loop, UV_RUN_DEFAULT);
    return 0;
}
