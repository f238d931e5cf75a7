/* Wiring: opens the store, speaks to privd, brings the two together when privd answers. Owns struct
 * core and its order: rows of the store are adopted, privd's channel comes up, LIST is compared
 * with them (lifecycle.c decides by the table of life.h), TEMPLATES follow, and only then the core
 * is ready; a second LIST looks for what privd was still making. When the channel breaks, all of it
 * begins again with LIST. Called by cayd's main; everything runs on the control loop. */

#include "core/core.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/share.h"
#include "core/archive_file.h"
#include "core/auto_destroy.h"
#include "core/build.h"
#include "core/build_files.h"
#include "core/build_image.h"
#include "core/build_log_follow.h"
#include "core/build_of_create.h"
#include "core/call.h"
#include "core/core_internal.h"
#include "core/create.h"
#include "core/create_error.h"
#include "core/create_later.h"
#include "core/deferred.h"
#include "core/egress.h"
#include "core/egress_event_reader.h"
#include "core/egress_policy.h"
#include "core/egress_query.h"
#include "core/events.h"
#include "core/exec.h"
#include "core/image_spool.h"
#include "core/keep.h"
#include "core/lifecycle.h"
#include "core/pause.h"
#include "core/pause_waiters.h"
#include "core/pipe_writer.h"
#include "core/published.h"
#include "core/registry.h"
#include "core/renewal.h"
#include "core/reserve.h"
#include "core/resize.h"
#include "core/sandbox.h"
#include "core/sandbox_make.h"
#include "core/snapshot.h"
#include "core/state_follow.h"
#include "core/store.h"
#include "core/store_build.h"
#include "core/store_sandbox.h"
#include "core/store_snapshot.h"
#include "core/store_volume.h"
#include "core/template.h"
#include "core/template_memory.h"
#include "core/tenant.h"
#include "core/tenant_ca.h"
#include "core/tier.h"
#include "core/timers.h"
#include "core/to_disk.h"
#include "core/token.h"
#include "core/transfer.h"
#include "core/volume.h"
#include "core/volume_content.h"
#include "core/webhook.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define LISTED_MAX         65536u
#define RELIST_AFTER_MS    1000u
#define PRIVD_TIMEOUT_MS   45000u /* privd's own limits for a start sum up to 35 s */
#define TENANT_CA_RETRY_MS 10000u /* creates do not wait for it each time */

static void send_list(struct core *c);

/* -- reconciling ------------------------------------------------------------------------------- */

/* Matches a sandbox of privd's list. */
static void match(struct core *c, const struct privsep_msg *m)
{
    char id[PRIVSEP_ID_SIZE + 1] = "";
    struct sandbox_obj *o;

    memcpy(id, m->u.item.id, PRIVSEP_ID_SIZE);
    o = sandbox_get(c, NULL, id);
    if (!o) {
        call_kill_stray(c, id, m->slot, m->gen);
        return;
    }
    lifecycle_on_listed(o, m->slot, m->gen, m->u.item.frozen != 0);
    o = sandbox_get(c, NULL, id);
    if (o)
        resize_on_listed(o, m->u.item.limits.memory_bytes, m->u.item.limits.disk_bytes,
                         m->u.item.limits.cpu_milli);
}

/* Those that privd does not have. Backwards: ending one moves only what comes after it. */
static void end_missing(struct core *c)
{
    for (size_t i = c->registry.n; i > 0; i--) {
        struct sandbox_obj *o = i <= c->registry.n ? c->registry.order[i - 1] : NULL;

        if (o && !o->listed)
            lifecycle_on_missing(o);
    }
}

/* An answer has to come within the deadline. */
static void set_list_pending(struct core *c, bool on)
{
    c->list_pending = on && c->privd_up;
    if (c->list_pending)
        timers_set(&c->timers, &c->relist, clock_mono_ms() + c->config.privd_timeout_ms);
    else
        timers_cancel(&c->timers, &c->relist);
}

static void on_ready_templates(struct core *c, int status)
{
    if (!call_is_channel_error(status))
        set_list_pending(c, false);
    if (status == 0) {
        /* A sandbox that privd was still making for an earlier cayd was not in its list yet. */
        c->sweeping = true;
        timers_set(&c->timers, &c->relist, clock_mono_ms() + c->config.privd_timeout_ms);
        c->ready = c->privd_up;
        egress_ready(c);
        archive_file_arm(c);
        to_disk_arm(c);
        tenant_ca_install(c);
        builds_ready(c);
        template_memory_ready(c);
        build_of_create_arm(c);
        timers_set(&c->timers, &c->images_due, clock_mono_ms());
        log_info("ready: %zu sandboxes live", c->registry.n);
    } else if (!call_is_channel_error(status)) {
        log_error("privd does not list its templates: %s", strerror(-status));
        timers_set(&c->timers, &c->relist, clock_mono_ms() + RELIST_AFTER_MS);
    }
}

/* rc: of what was asked. */
static void list_or_relist(struct core *c, int rc)
{
    if (rc != -ENOMEM)
        return;
    set_list_pending(c, false);
    timers_set(&c->timers, &c->relist, clock_mono_ms() + RELIST_AFTER_MS);
}

static void on_kepts(struct core *c, int status)
{
    if (call_is_channel_error(status))
        return; /* on_up comes again */
    if (status < 0) {
        log_error("privd does not list what it keeps: %s", strerror(-status));
        list_or_relist(c, -ENOMEM);
        return;
    }
    keep_settle_listed(c);
    if (c->sweeping) {
        keep_drop_strays(c);
        return;
    }
    end_missing(c);
    snapshots_reconcile(c);
    volumes_request(c);
    keep_drop_strays(c);
    templates_forget(c);
    set_list_pending(c, true);
    list_or_relist(c, templates_request(c, on_ready_templates));
}

static void on_listed(struct core *c, const char *id, int status, const struct privsep_msg *m,
                      int *fds, size_t n_fds, void *arg)
{
    c->listing = false;
    if (call_is_channel_error(status))
        return; /* on_up comes again */
    set_list_pending(c, false);
    if (status < 0) {
        log_error("privd does not list its sandboxes: %s", strerror(-status));
        timers_set(&c->timers, &c->relist, clock_mono_ms() + RELIST_AFTER_MS);
        return;
    }
    for (size_t i = 0; i < c->registry.n; i++)
        c->registry.order[i]->listed = false;
    for (size_t i = 0; i < c->listed_n; i++)
        match(c, &c->listed[i]);
    free(TAKE_PTR(c->listed));
    c->listed_n = c->listed_cap = 0;
    set_list_pending(c, !c->sweeping);
    list_or_relist(c, keep_send_kepts(c, on_kepts));
}

/* A sandbox that was restored from its memory, which is gone by that: for an earlier peer, so that
 * no answer tells of it. It may not be any more as KEPTS has told before. */
static void on_item_alone(struct core *c, const struct privsep_msg *m)
{
    match(c, m);
    list_or_relist(c, keep_request_settle(c));
}

static void on_item(struct core *c, const struct privsep_msg *m)
{
    size_t cap = c->listed_cap ? c->listed_cap * 2 : 64;
    struct privsep_msg *grown;

    if (!c->listing) {
        on_item_alone(c, m);
        return;
    }
    if (c->listed_n == c->listed_cap) {
        grown = cap <= LISTED_MAX ? reallocarray(c->listed, cap, sizeof(*grown)) : NULL;
        if (!grown) {
            log_error("privd lists more sandboxes than can be kept");
            return;
        }
        c->listed = grown;
        c->listed_cap = cap;
    }
    c->listed[c->listed_n++] = *m;
}

static void send_list(struct core *c)
{
    struct privsep_msg m = {.op = PRIVSEP_LIST};

    c->listed_n = 0;
    set_list_pending(c, true);
    c->listing = true;
    if (call_privd(c, "", &m, on_listed, NULL) == -ENOMEM) {
        set_list_pending(c, false);
        c->listing = false;
        timers_set(&c->timers, &c->relist, clock_mono_ms() + RELIST_AFTER_MS);
    }
}

static void on_relist(struct timer *t)
{
    struct core *c = CONTAINER_OF(t, struct core, relist);

    if (c->list_pending) {
        log_error("privd does not answer: its channel begins anew");
        c->list_pending = false;
        privsep_client_restart(c->privd);
    } else if (c->privd_up) {
        send_list(c);
    }
}

/* -- privd's channel --------------------------------------------------------------------------- */

static void on_up(void *arg, const struct privsep_msg *hello)
{
    struct core *c = arg;

    c->privd_up = true;
    c->kepts.can = hello->u.hello.keeps != 0;
    c->sweeping = false;
    send_list(c);
}

static void on_down(void *arg)
{
    struct core *c = arg;

    c->privd_up = c->ready = c->list_pending = c->listing = false;
    timers_cancel(&c->timers, &c->relist);
}

static void on_event(void *arg, const struct privsep_msg *m, int *fds, size_t n_fds)
{
    struct core *c = arg;

    switch (m->op) {
    case PRIVSEP_ITEM: on_item(c, m); break;
    case PRIVSEP_TEMPLATE: templates_on_event(c, m); break;
    case PRIVSEP_ENDED: lifecycle_on_ended(c, m); break;
    case PRIVSEP_KEPT: keep_on_kept_event(c, m); break;
    case PRIVSEP_VOLUME: volumes_on_event(c, m); break;
    case PRIVSEP_PROGRESS: templates_on_progress(c, m); break;
    default: log_warn("privd sent an event that is not known: %u", m->op);
    }
    for (size_t i = 0; i < n_fds; i++) /* none of those events brings any */
        close(fds[i]);
}

void core_on_paused(struct core *c, void (*fn)(void *arg, const char *id), void *arg)
{
    c->on_paused = fn;
    c->on_paused_arg = arg;
}

/* -- making and ending ------------------------------------------------------------------------- */

static enum err_code adopt(void *arg, const struct sandbox *s, struct err *e)
{
    return lifecycle_adopt(arg, s, e);
}

/* A process of cay-egress has begun a life. */
static void on_egress_begun(struct core *c)
{
    tenant_ca_renew(c);
    webhooks_resume(c);
}

static bool copy_config(struct core *c, const struct core_config *config)
{
    c->config = *config;
    if (!c->config.privd_timeout_ms)
        c->config.privd_timeout_ms = PRIVD_TIMEOUT_MS;
    if (!c->config.tenant_ca_retry_ms)
        c->config.tenant_ca_retry_ms = TENANT_CA_RETRY_MS;
    c->config.state_dir = strdup(config->state_dir);
    c->config.domain = strdup(config->domain ? config->domain : "");
    c->config.egress_dir = config->egress_dir ? strdup(config->egress_dir) : NULL;
    c->config.egress_ceiling = config->egress_ceiling ? strdup(config->egress_ceiling) : NULL;
    c->config.image_registries = config->image_registries ? strdup(config->image_registries) : NULL;
    c->config.image_hosts = config->image_hosts ? strdup(config->image_hosts) : NULL;
    c->config.image_addresses = config->image_addresses ? strdup(config->image_addresses) : NULL;
    return c->config.state_dir && c->config.domain &&
           !c->config.image_registries == !config->image_registries &&
           !c->config.image_hosts == !config->image_hosts &&
           !c->config.image_addresses == !config->image_addresses &&
           !c->config.egress_dir == !config->egress_dir &&
           !c->config.egress_ceiling == !config->egress_ceiling;
}

static enum err_code open_all(struct core *c, const char *privd_path, struct err *e)
{
    const struct privsep_client_events events = {on_up, on_down, on_event, c};
    const struct egress_uses uses = {egress_policy_body, on_egress_begun, egress_event_reader_take};
    enum err_code code;
    int rc;

    if (build_image_check_config(c, e) != ERR_OK)
        return e->code;
    image_spool_init(c);
    if (!reserve_fill(&c->reserve) || events_init(c) < 0 || renewals_init(c) < 0)
        return err_set(e, ERR_EXHAUSTED, "memory is out");
    if ((code = templates_init(c, e)) != ERR_OK || (code = token_load_key(c, e)) != ERR_OK ||
        (code = store_open(c->config.state_dir, &c->store, e)) != ERR_OK ||
        (code = template_images_load(c, e)) != ERR_OK ||
        (code = templates_load_limits(c, e)) != ERR_OK || (code = published_init(c, e)) != ERR_OK ||
        (code = store_sandbox_each(c->store, adopt, c, e)) != ERR_OK ||
        (code = store_snapshot_each(c->store, snapshots_adopt, c, e)) != ERR_OK ||
        (code = build_files_init(c, e)) != ERR_OK ||
        (code = store_build_each(c->store, builds_adopt, c, e)) != ERR_OK ||
        (code = store_volume_each(c->store, volumes_adopt, c, e)) != ERR_OK ||
        (code = webhooks_init(c, e)) != ERR_OK || (code = traces_init(c, e)) != ERR_OK)
        return code;
    rc = egress_init(c, &uses);
    if (rc < 0)
        return err_set_sys(e, err_code_from_errno(rc), rc, "the channel to cay-egress");
    rc = privsep_client_new(c->loop, privd_path, &events, &c->privd);
    if (rc < 0)
        return err_set_sys(e, err_code_from_errno(rc), rc, "the channel to cay-privd, %s",
                           privd_path);
    return ERR_OK;
}

/* The last handle of all is closed. */
static void release(struct core *c)
{
    tenant_ca_free(c);
    egress_free(c);
    events_free(c);
    reserve_free(&c->reserve);
    renewals_free(c);
    share_pool_free(c->execs);
    share_pool_free(c->resizes);
    share_pool_free(c->streams);
    share_pool_free(c->audits);
    share_pool_free(c->state_shares);
    tenants_free(&c->tenants);
    free((char *)c->config.egress_dir);
    free((char *)c->config.egress_ceiling);
    free((char *)c->config.image_registries);
    free((char *)c->config.image_hosts);
    free((char *)c->config.image_addresses);
    free(c);
}

enum err_code core_new(uv_loop_t *loop, const struct core_config *config, const char *privd_path,
                       struct core **out, struct err *e)
{
    struct core *c = calloc(1, sizeof(*c));
    enum err_code code;

    if (!c)
        return err_set(e, ERR_EXHAUSTED, "memory is out");
    c->loop = loop;
    c->started_real_ms = clock_real_ms();
    lifecycle_check_clock(c);
    c->release = release;
    c->tiers = tier_functions_table;
    c->events_of_sandboxes.on_end_timer = lifecycle_on_timer;
    c->events_of_sandboxes.on_destroy_timer = auto_destroy_on_timer;
    c->events_of_sandboxes.on_server_gone = volume_content_ended;
    c->relist.fire = on_relist;
    c->usage_due.fire = usage_on_timer;
    c->tenant_ca_retry.fire = tenant_ca_on_timer;
    c->images_due.fire = build_image_on_due;
    c->images_unused.fire = build_of_create_on_due;
    timers_init(&c->timers, loop);
    deferred_init(c);
    c->execs = share_pool_new(CORE_EXECS_MAX);
    c->resizes = share_pool_new(PRIVSEP_RESIZES_MAX);
    c->streams = share_pool_new(CORE_STREAMS_MAX);
    c->audits = share_pool_new(CORE_AUDITS_MAX);
    c->state_shares = share_pool_new(STATE_FOLLOW_MAX);
    code = copy_config(c, config) && c->execs && c->resizes && c->streams && c->audits &&
                   c->state_shares
               ? open_all(c, privd_path, e)
               : err_set(e, ERR_EXHAUSTED, "memory is out");
    if (code != ERR_OK) {
        core_free(c);
        return code;
    }
    *out = c;
    return ERR_OK;
}

static void on_timer_closed(uv_handle_t *h)
{
    core_handle_closed(CONTAINER_OF((uv_timer_t *)h, struct core, timers.uv));
}

static void on_idle_closed(uv_handle_t *h)
{
    core_handle_closed(h->data);
}

/* Every waiting caller gets an answer. The store is not touched: the next start finishes the calls
 * under way. */
static void answer_everybody(struct core *c)
{
    struct err why;

    err_set(&why, ERR_CANCELED, "the server is stopping");
    call_cancel_all(c);
    if (c->privd)
        privsep_client_free(c->privd);
    c->privd = NULL;
    for (size_t i = 0; i < c->registry.n; i++) {
        create_fail(c->registry.order[i], &why);
        lifecycle_kill_failed(c->registry.order[i], &why);
        pause_fail(c->registry.order[i], &why);
        egress_forget(c->registry.order[i]);
    }
    template_memory_stop(c, &why);
    transfers_free(c, &why);
    snapshots_free(c, &why);
    volumes_free(c, &why);
    deferred_run_all(c);
    build_log_follow_stop(c);
    create_later_free(c);
    builds_free(c);
    build_files_free(c);
}

void core_free(struct core *c)
{
    if (!c)
        return;
    c->stopping = true;
    lifecycle_check_clock(c); /* the next one reads only what is stored */
    c->privd_up = c->ready = false;
    answer_everybody(c);
    while (c->registry.n)
        sandbox_free(c->registry.order[c->registry.n - 1]);
    registry_free(&c->registry);
    usage_stop(c);
    webhooks_free(c);
    traces_free(c);
    timers_free(&c->timers);
    if (c->templates)
        templates_free(c);
    published_free(c);
    store_close(c->store);
    free(c->listed);
    free((char *)c->config.state_dir);
    free((char *)c->config.domain);
    explicit_bzero(c->server_key, sizeof(c->server_key));
    events_stop(c);
    state_follow_stop(c);
    c->handles = 2 + egress_stop(c) + pipe_writers_stop(c) + c->audit_handles;
    uv_close((uv_handle_t *)&c->timers.uv, on_timer_closed);
    uv_close((uv_handle_t *)&c->idle, on_idle_closed);
}
