#include "cayd/control.h"

#include "api/e2b.h"
#include "base/log.h"
#include "core/key.h"
#include "core/transfer.h"
#include "mcp/mcp.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define READY_POLL_MS 20

struct control {
    struct core *core;
    struct mcp *mcp;
    struct api *api;
    struct gateway_resolver *resolver;
    struct mailbox mailbox;
    uv_timer_t ready_timer;
    void (*ready)(void *arg);
    void *ready_arg;
};

/* -- asks -------------------------------------------------------------------------------------- */

void control_request_free(struct control_request *a)
{
    if (!a)
        return;
    if (a->key)
        explicit_bzero(a->key, strlen(a->key));
    free(a->key);
    api_request_free(a->request);
    api_response_free(&a->response);
    access_free(&a->query.access);
    util_close(&a->answer.fd);
    if (a->upload) {
        util_close(&a->upload->fd);
        free(a->upload->storage);
    }
    free(a->upload);
    free(a);
}

static void discard_message(struct mailbox_message *l)
{
    control_request_free(CONTAINER_OF(l, struct control_request, message));
}

static void open_answer(struct mailbox_message *l, void *reader)
{
    struct control_request *a = CONTAINER_OF(l, struct control_request, message);

    a->answered(a, reader);
}

static void send_back(struct control_request *a)
{
    a->message.open = open_answer;
    mailbox_answer(a->back, &a->message);
}

static void api_answered(void *arg, struct api_response *response)
{
    struct control_request *a = arg;

    a->response = *response;
    send_back(a);
}

static void open_api(struct mailbox_message *l, void *reader)
{
    struct control_request *a = CONTAINER_OF(l, struct control_request, message);
    struct control *c = reader;

    api_dispatch(c->api, TAKE_PTR(a->request), api_answered, a);
}

static void gateway_answered_here(void *arg, struct gateway_answer *answer)
{
    struct control_request *a = arg;

    a->answer = *answer;
    send_back(a);
}

static void open_gateway(struct mailbox_message *l, void *reader)
{
    struct control_request *a = CONTAINER_OF(l, struct control_request, message);
    struct control *c = reader;

    gateway_resolve(c->resolver, &a->query, gateway_answered_here, a);
}

static struct control_request *control_request_new(struct control *c, struct mailbox *back,
                                                   uint64_t ticket,
                                                   void (*answered)(struct control_request *,
                                                                    void *))
{
    struct control_request *a = calloc(1, sizeof(*a));

    if (!a)
        return NULL;
    a->control = c;
    a->back = back;
    a->ticket = ticket;
    a->answered = answered;
    a->answer.fd = -1;
    a->message.discard = discard_message;
    return a;
}

struct control_request *control_request_api(struct control *c, struct api_request *r,
                                            struct mailbox *back,
                                            void (*answered)(struct control_request *, void *))
{
    struct control_request *a = control_request_new(c, back, 0, answered);

    if (!a) {
        api_request_free(r);
        return NULL;
    }
    a->request = r;
    a->upload_number = r->upload_number;
    r->gone = &a->gone;
    a->message.open = open_api;
    return a;
}

static void open_key(struct mailbox_message *l, void *reader)
{
    struct control_request *a = CONTAINER_OF(l, struct control_request, message);
    struct control *c = reader;
    struct core_identity who = {.role = CORE_ROLE_NONE};
    struct err e;

    if (core_authenticate(c->core, a->key, &who, &e) == ERR_OK)
        memcpy(a->tenant, who.tenant, sizeof(a->tenant));
    else
        a->tenant[0] = '\0';
    send_back(a);
}

struct control_request *control_request_key(struct control *c, const char *key,
                                            struct mailbox *back,
                                            void (*answered)(struct control_request *, void *))
{
    struct control_request *a = control_request_new(c, back, 0, answered);

    if (a)
        a->key = strdup(key);
    if (!a || !a->key) {
        control_request_free(a);
        return NULL;
    }
    a->message.open = open_key;
    return a;
}

static void upload_begun(struct control_upload *u, const struct core_build_upload *begun)
{
    u->why.code = ERR_OK;
    u->fd = begun->fd;
    u->number = begun->number;
    u->most_bytes = begun->most_bytes;
}

static void open_upload(struct mailbox_message *l, void *reader)
{
    struct control_request *a = CONTAINER_OF(l, struct control_request, message);
    struct control *c = reader;
    struct control_upload *u = a->upload;
    struct core_build_upload begun = {.fd = -1};

    if (u->is_import)
        core_snapshot_import_drop(c->core, u->number);
    else if (u->ends && u->part)
        core_storage_part_end(c->core, u->number, u->part, u->bytes, u->whole, &u->why);
    else if (u->ends)
        core_build_upload_end(c->core, u->number, u->bytes, u->whole, &u->why);
    else if (core_build_upload_begin(c->core, u->hash, u->token, &begun, &u->why) == ERR_OK)
        upload_begun(u, &begun);
    send_back(a);
}

static void open_storage(struct mailbox_message *l, void *reader)
{
    struct control_request *a = CONTAINER_OF(l, struct control_request, message);
    struct control *c = reader;
    struct control_upload *u = a->upload;

    if (core_storage_call(c->core, u->storage, &u->why) == ERR_OK)
        upload_begun(u, &u->storage->file);
    send_back(a);
}

struct control_request *control_request_upload(struct control *c, const char *hash,
                                               const char *token, struct mailbox *back,
                                               void (*answered)(struct control_request *, void *))
{
    struct control_request *a = control_request_new(c, back, 0, answered);

    if (a)
        a->upload = calloc(1, sizeof(*a->upload));
    if (!a || !a->upload) {
        control_request_free(a);
        return NULL;
    }
    a->upload->fd = -1;
    a->upload->ends = !hash;
    if (hash) {
        (void)snprintf(a->upload->hash, sizeof(a->upload->hash), "%s",
                       strlen(hash) == CORE_BUILD_HASH_MAX ? hash : "");
        (void)snprintf(a->upload->token, sizeof(a->upload->token), "%s", token);
    }
    a->message.open = open_upload;
    return a;
}

struct control_request *control_request_storage(struct control *c,
                                                const struct core_storage_call *call,
                                                struct mailbox *back,
                                                void (*answered)(struct control_request *, void *))
{
    struct control_request *a = control_request_upload(c, NULL, NULL, back, answered);

    if (a)
        a->upload->storage = malloc(sizeof(*a->upload->storage));
    if (!a || !a->upload->storage) {
        control_request_free(a);
        return NULL;
    }
    *a->upload->storage = *call;
    a->upload->storage->file.fd = -1;
    a->upload->part = call->op == STORAGE_PART ? call->part : 0;
    a->message.open = open_storage;
    return a;
}

struct control_request *control_request_gateway(struct control *c, const struct gateway_query *q,
                                                struct mailbox *back, uint64_t ticket,
                                                void (*answered)(struct control_request *, void *))
{
    struct control_request *a = control_request_new(c, back, ticket, answered);

    if (!a)
        return NULL;
    a->query = *q;
    a->message.open = open_gateway;
    return a;
}

int control_send(struct control_request *a)
{
    return mailbox_post(&a->control->mailbox, &a->message);
}

/* -- start and end ----------------------------------------------------------------------------- */

static void on_ready_timer(uv_timer_t *t)
{
    struct control *c = t->data;

    if (!core_is_ready(c->core))
        return;
    uv_timer_stop(t);
    c->ready(c->ready_arg);
}

static enum err_code start_core(struct control *c, uv_loop_t *loop, const struct settings *s,
                                const char *privd_path, const char *egress_dir, bool https,
                                struct err *e)
{
    struct core_config core = {
        .names = &e2b_names,
        .state_dir = s->state_dir,
        .domain = s->server_domain,
        .limits = {.memory_bytes = s->sandbox_memory_bytes,
                   .disk_bytes = s->sandbox_disk_bytes,
                   .cpu_milli = (uint32_t)s->sandbox_cpu_milli,
                   .pids = (uint32_t)s->sandbox_pids,
                   .open_files = (uint32_t)s->sandbox_open_files},
        .max_ttl_ms = s->sandbox_max_ttl_ms,
        .default_ttl_ms = s->sandbox_default_ttl_ms,
        .archive_after_ms = s->pause_archive_after_ms,
        .archive_bucket = s->archive.name != NULL,
        .to_disk_after_ms = s->pause_to_disk_after_ms,
        .to_disk_below_pct = (unsigned)s->pause_to_disk_below,
        .output_bytes = s->sandbox_output_bytes,
        .agent_timeout_ms = s->sandbox_agent_timeout_ms,
        .max_sandboxes = (uint32_t)s->sandbox_max,
        .egress_dir = egress_dir,
        .egress_ceiling = s->egress_ceiling,
        .egress_processes = (unsigned)s->egress_processes,
        .traces = s->traces_otlp_url && egress_dir,
        .image_registries = s->images_registries,
        .image_hosts = s->images_hosts,
        .image_addresses = s->images_addresses,
    };
    for (size_t i = 0; i < HOST_DIRS_MAX; i++)
        if (s->host_dirs[i]) /* checked when the settings were read */
            (void)host_dir_parse(s->host_dirs[i], &core.host_dirs[i]);
    struct api_config api = {.domain = s->server_domain,
                             .state_dir = s->state_dir,
                             .https = https,
                             .max_ttl_ms = s->sandbox_max_ttl_ms,
                             .limits = core.limits};
    const struct mcp_config mcp = {.pause_ms = s->mcp_pause_ms, .keep_ms = s->mcp_keep_ms};
    enum err_code rc = core_new(loop, &core, privd_path, &c->core, e);

    if (rc != ERR_OK)
        return rc;
    c->resolver = gateway_resolver_new(c->core);
    if (!c->resolver)
        return err_set(e, ERR_EXHAUSTED, "no memory for the gateway");
    rc = mcp_new(c->core, loop, &mcp, &c->mcp, e);
    if (rc != ERR_OK)
        return rc;
    api.dialects = mcp_dialects(c->mcp);
    return api_new(c->core, &api, &c->api, e);
}

enum err_code control_new(uv_loop_t *loop, const struct settings *s, const char *privd_path,
                          const char *egress_dir, bool https, void (*ready)(void *arg),
                          void *ready_arg, struct control **out, struct err *e)
{
    struct control *c = calloc(1, sizeof(*c));
    int rc;

    if (!c)
        return err_set(e, ERR_EXHAUSTED, "no memory for the control loop");
    c->ready = ready;
    c->ready_arg = ready_arg;
    rc = mailbox_init(&c->mailbox, loop, CONTROL_MAX_WAITING, c);
    if (rc < 0) {
        free(c);
        return err_set_sys(e, ERR_INTERNAL, rc, "cannot make the control loop's mailbox");
    }
    uv_timer_init(loop, &c->ready_timer);
    c->ready_timer.data = c;
    *out = c;
    if (start_core(c, loop, s, privd_path, egress_dir, https, e) != ERR_OK)
        return e->code;
    uv_timer_start(&c->ready_timer, on_ready_timer, 0, READY_POLL_MS);
    return ERR_OK;
}

void control_on_paused(struct control *c, void (*fn)(void *arg, const char *id), void *arg)
{
    core_on_paused(c->core, fn, arg);
}

void control_on_key_revoked(struct control *c, void (*fn)(void *arg, const char *key_id), void *arg)
{
    core_on_key_revoked(c->core, fn, arg);
}

void control_stop(struct control *c)
{
    uv_close((uv_handle_t *)&c->ready_timer, NULL);
    mailbox_close(&c->mailbox);
    /* Answers all calls under way, so that the API and the resolver are needed until then. */
    mcp_stop(c->mcp);
    core_free(c->core);
    api_free(c->api);
    mcp_free(c->mcp);
    gateway_resolver_free(c->resolver);
}

void control_free(struct control *c)
{
    mailbox_free(&c->mailbox);
    free(c);
}
