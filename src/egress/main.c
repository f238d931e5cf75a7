/* cay-egress: the only way out of sandboxes. main() reads options, starts the parts, and ends them
 * when told; the rest is in egress.h's files. */
#include "base/err.h"
#include "base/log.h"
#include "base/otlp_url.h"
#include "base/share.h"
#include "base/util.h"
#include "contract/keep.h"
#include "contract/proto.h"
#include "egress/confine.h"
#include "egress/control/audit_query.h"
#include "egress/control/control.h"
#include "egress/control/document.h"
#include "egress/flow/asks.h"
#include "egress/flow/audit.h"
#include "egress/flow/delivery.h"
#include "egress/flow/dial.h"
#include "egress/flow/egress.h"
#include "egress/flow/forward.h"
#include "egress/flow/hostaddr.h"
#include "egress/flow/intercept.h"
#include "egress/flow/names_kept.h"
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

struct program {
    struct egress egress;
    uv_loop_t loop;
    struct options options;
    struct otlp_url collector;
    struct privsep_client *privd;
    uv_signal_t sigterm, sigint;
};

NORETURN PRINTF(2, 3) static void fail(struct program *p, const char *fmt, ...)
{
    char text[KEEP_REASON_MAX];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    log_error("%s", text);
    keep_notify(&p->options.ready_fd, KEEP_FAILED, text);
    exit(KEEP_EXIT_FAILED);
}

/* -- privd ------------------------------------------------------------------------------------- */

static void on_up(void *arg, const struct privsep_msg *hello)
{
    registry_begin_sync(arg);
}

static void on_down(void *arg)
{
    /* Open flows go on; privd tells which sandboxes have ended when it is back. */
}

static void on_event(void *arg, const struct privsep_msg *m, int *fds, size_t n_fds)
{
    struct egress *eg = arg;

    switch (m->op) {
    case PRIVSEP_EGRESS_OPEN:
        if (n_fds == PRIVSEP_EGRESS_FDS) {
            registry_open(eg, m->slot, m->gen, m->u.egress.command, fds[0], fds[1]);
            return;
        }
        break;
    case PRIVSEP_EGRESS_KEEP: registry_keep(eg, m->slot, m->gen, m->u.egress.command); break;
    case PRIVSEP_EGRESS_SYNC: registry_sync(eg); break;
    case PRIVSEP_EGRESS_CLOSE: registry_close(eg, m->slot, m->gen, m->u.egress.command); break;
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

static void take_settings(struct program *p)
{
    const struct settings *s = &p->options.settings;
    struct err e;

    p->egress.config = (struct egress_config){
        .state_dir = s->state_dir,
        .shard = p->options.shard,
        .shards = p->options.shards,
        .peer_uid = p->options.peer_uid,
        .dns_servers = s->egress_dns_servers,
        .offline = s->egress_offline,
        .connections = (uint32_t)s->egress_connections,
        .connections_per_second = (uint32_t)s->egress_connections_per_second,
        .requests_per_second = (uint32_t)s->egress_requests_per_second,
        .connect_timeout_ms = (uint32_t)s->egress_connect_timeout_ms,
        .idle_timeout_ms = s->egress_idle_timeout_ms,
        .audit_size_bytes = s->egress_audit_size_bytes,
        .audit_files = (uint32_t)s->egress_audit_files,
        .flows_max = flows_that_fit((uint32_t)s->sandbox_max / p->options.shards + 1),
    };
    if (s->egress_upstream_proxy &&
        upstream_parse(s->egress_upstream_proxy, &p->egress.config.upstream, &e) != ERR_OK)
        fail(p, "[egress] %s", e.text);
    if (s->traces_otlp_url && !otlp_url_parse(s->traces_otlp_url, &p->collector))
        p->egress.config.collector = &p->collector;
}

static void check(struct program *p, int rc, const char *what)
{
    if (rc < 0)
        fail(p, "cannot start %s: %s", what, strerror(-rc));
}

/* Keys and secrets are in this memory: no process of the same user may look into it, and it is in
 * no core file. */
static void close_memory(struct program *p)
{
    const struct rlimit none = {0, 0};

    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 || setrlimit(RLIMIT_CORE, &none) < 0)
        fail(p, "cannot keep others out of the memory: %s", strerror(errno));
}

static void start_interception(struct program *p)
{
    struct intercept_config c = {.ca_file = p->options.settings.egress_ca_file,
                                 .key_fd = p->options.seal_key_fd};
    struct err e;

    if (c.key_fd < 0 && p->options.settings.egress_key_file)
        fail(p,
             "[egress] key_file is opened by cay-keep (its --egress-key-file), not by cay-egress");
    if (intercept_new(&p->egress, &c, &e) != ERR_OK)
        fail(p, "[egress] %s", e.text);
    util_close(&c.key_fd);
}

/* Before the system call filter, which lets no directory be listed: its own directory, of its own
 * files. */
static void start_files(struct program *p)
{
    struct err e;

    check(p, names_kept_find(&p->egress), "the names of sandboxes");
    if (audit_open(&p->egress, &p->egress.audit, &e) != ERR_OK)
        fail(p, "%s", e.text);
}

static void start_parts(struct program *p)
{
    const struct privsep_client_events events = {on_up, on_down, on_event, &p->egress};

    check(p, registry_new(&p->egress, &p->egress.registry), "the registry");
    check(p, dialer_new(&p->egress, &p->egress.dialer), "the dialer");
    p->egress.ask_shares = share_pool_new(ASKS_MAX);
    check(p, p->egress.ask_shares ? 0 : -ENOMEM, "the questions to owners");
    check(p, tunnels_new(&p->egress, &p->egress.tunnels), "the tunnels");
    check(p, forward_new(&p->egress, &p->egress.forward), "the HTTP proxy");
    check(p, renewals_new(&p->egress, &p->egress.renewals), "renewals");
    check(p, deliveries_new(&p->egress, &p->egress.deliveries), "deliveries");
    check(p, audit_queries_new(&p->egress, &p->egress.audit_queries), "queries of the log");
    check(p, documents_new(&p->egress, &p->egress.documents), "documents");
    check(p, control_new(&p->egress, p->options.listen_fd, &p->egress.control),
          "the control channel");
    check(p, privsep_client_new(&p->loop, p->options.privd, &events, &p->privd), "privd's channel");
}

/* All ends with the process; only what the log still holds has to reach the disk. */
static void on_signal(uv_signal_t *s, int number)
{
    struct egress *eg = s->data;

    documents_stop(eg->documents);
    registry_free(eg->registry); /* which is still asked while it ends them */
    audit_free(TAKE_PTR(eg->audit));
    log_info("stopped");
    exit(0);
}

int main(int argc, char **argv)
{
    struct program p = {0};

    log_init("cay-egress", LOG_INFO);
    signal(SIGPIPE, SIG_IGN);
    /* Two queries of the log, its fdatasync, and a document of cayd's. */
    setenv("UV_THREADPOOL_SIZE", "4", 1);
    options_parse(argc, argv, &p.options);
    close_memory(&p);
    check(&p, uv_loop_init(&p.loop), "the loop");
    check(&p, ares_library_init(ARES_LIB_INIT_ALL) == 0 ? 0 : -ENOMEM, "c-ares");
    p.egress.loop = &p.loop;
    take_settings(&p);
    check(&p, hostaddr_start(&p.egress), "the watch on the host's addresses");
    check(&p, resolver_new(&p.egress, p.egress.config.dns_servers, &p.egress.resolver),
          "the resolver");
    check(&p, turns_new(&p.loop, &p.egress.turns), "the shares of time");
    start_interception(&p);
    start_files(&p);
    check(&p, confine_self(), "the system call filter");
    start_parts(&p);
    uv_signal_init(&p.loop, &p.sigterm);
    uv_signal_init(&p.loop, &p.sigint);
    p.sigterm.data = p.sigint.data = &p.egress;
    uv_signal_start(&p.sigterm, on_signal, SIGTERM);
    uv_signal_start(&p.sigint, on_signal, SIGINT);
    memory_trim();
    keep_notify(&p.options.ready_fd, KEEP_READY, "");
    log_info("serving shard %u of %u, at most %u connections", p.options.shard, p.options.shards,
             p.egress.config.flows_max);
    uv_run(&p.loop, UV_RUN_DEFAULT);
    return 0;
}
