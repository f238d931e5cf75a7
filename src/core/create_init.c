/* The body of /init, by which an agent learns whose sandbox it is. Called by create.c before privd
 * has made it, where the tenant's certificate is there already, and by those who tell an agent
 * something anew. */

#include "base/clock.h"
#include "core/core_internal.h"
#include "core/create.h"
#include "core/sandbox.h"
#include "core/tenant_ca.h"
#include "core/volume.h"
#include "http/json.h"

#include <string.h>

#define DEFAULT_USER    "user"
#define DEFAULT_WORKDIR "/home/user"

/* The caller's variables, then ours, which the caller cannot replace. */
static int add_identity(json_t *env, const struct core_names *names, const struct sandbox *s)
{
    return json_object_set_new(env, names->in_sandbox, json_string("true")) |
           json_object_set_new(env, names->sandbox_id, json_string(s->id)) |
           json_object_set_new(env, names->template_id, json_string(s->template_requested));
}

json_t *create_limits(const struct privsep_limits *l)
{
    return json_pack("{s:I, s:I, s:I}", "memoryBytes", (json_int_t)l->memory_bytes, "diskBytes",
                     (json_int_t)l->disk_bytes, "cpuMilli", (json_int_t)l->cpu_milli);
}

json_t *create_init_body(const struct sandbox_obj *o, json_t *env, uint64_t output_bytes)
{
    const struct sandbox *s = &o->s;
    const char *pem = tenant_ca_pem(o->tenant);
    char now[CLOCK_RFC3339_SIZE];
    json_t *body;

    clock_format_rfc3339(clock_real_ms(), now);
    body = json_pack("{s:O, s:s, s:s, s:s, s:I, s:b, s:o}", "envVars", env, "defaultUser",
                     DEFAULT_USER, "defaultWorkdir", DEFAULT_WORKDIR, "timestamp", now,
                     "startWaitMs", (json_int_t)o->core->config.agent_timeout_ms * 4 / 5,
                     "startMustRun", !sandbox_life(o)->files, "limits", create_limits(&s->limits));
    if (body &&
        (json_object_set_new(json_object_get(body, "limits"), "outputBytesPerSecond",
                             json_integer((json_int_t)output_bytes)) < 0 ||
         (o->no_start_command && json_object_set_new(body, "startCommand", json_false()) < 0) ||
         (pem && json_object_set_new(body, "caBundle", json_string(pem)) < 0))) {
        json_decref(body);
        return NULL;
    }
    return body;
}

/* Whether nothing ran on its files yet, so that volumes may take the place of what its template has
 * there. */
static bool has_new_files(const struct sandbox_obj *o)
{
    return sandbox_life(o)->awaits_create && !sandbox_life(o)->files && !o->copies_memory;
}

/* Malloc'd; NULL: memory is out. */
static char *make_users_body(struct sandbox_obj *o)
{
    const struct sandbox *s = &o->s;
    json_t *links = s->volumes ? volumes_links(s->volumes) : NULL;
    json_t *body = add_identity(s->env, o->core->config.names, s) < 0
                       ? NULL
                       : create_init_body(o, s->env, o->core->config.output_bytes);
    bool whole = body &&
                 (!s->volumes ||
                  (json_object_set(body, "volumes", links) == 0 &&
                   json_object_set_new(body, "newFiles", json_boolean(has_new_files(o))) == 0));
    char *text = whole ? json_text(body, JSON_COMPACT) : NULL;

    json_decref(links);
    o->s.has_tenant_ca = tenant_ca_pem(o->tenant) != NULL;
    json_decref(body);
    return text;
}

char *create_make_init(struct sandbox_obj *o)
{
    if (!o->s.serves_volume)
        return make_users_body(o);
    o->s.has_tenant_ca = true; /* nothing in it asks for one */
    return strdup("{\"serveVolume\": true}");
}
