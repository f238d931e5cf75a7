/* A query about the contents of a volume: its token is checked, then the sandbox that serves them
 * is made or found, then a socket to it is fetched. */

#include "core/volume_content.h"
#include "gateway/gateway.h"
#include "gateway/resolve_internal.h"

#include <stdio.h>
#include <string.h>

/* A request that waits for what serves them, or for a socket to it. */
struct serving {
    struct gateway_resolver *resolver;
    struct gateway_answer answer; /* as it was before one was found */
    bool writes;
    char volume[IDS_SANDBOX_SIZE];
    unsigned repeats;
    gateway_resolved done;
    void *arg;
};

static int status_of(const struct err *why)
{
    switch (why->code) {
    case ERR_NOT_FOUND: return 404;
    case ERR_CONFLICT: return 409;
    case ERR_EXHAUSTED: return 429;
    case ERR_TIMEOUT: return 504;
    default: return 503;
    }
}

static void end(struct serving *w, struct gateway_answer *a)
{
    struct serving ended = *w;

    free(w);
    core_call_end(ended.resolver->core);
    ended.done(ended.arg, a);
}

static void on_served(void *arg, const struct sandbox *s, const struct err *why);

/* Of a sandbox that has made way meanwhile: another one serves them, or core says why not. */
static void on_socket(void *arg, struct gateway_answer *a)
{
    struct serving *w = arg;

    if ((a->status == 502 || a->status == 503) && w->repeats < GATEWAY_VOLUME_REPEATS) {
        w->repeats++;
        core_volume_serve(w->resolver->core, w->volume, w->writes, on_served, w);
        return;
    }
    if (a->status == 502)
        resolve_refuse(a, 503, false, "the volume's contents are not served any more; try again");
    a->shaped = false; /* no client knows that sandbox */
    end(w, a);
}

static void on_served(void *arg, const struct sandbox *s, const struct err *why)
{
    struct serving *w = arg;
    struct gateway_answer a = w->answer;

    if (!s) {
        resolve_refuse(&a, status_of(why), false, why->text);
        end(w, &a);
        return;
    }
    memcpy(a.id, s->id, sizeof(a.id));
    a.slot = s->slot;
    a.gen = s->gen;
    memcpy(a.agent_key, s->agent_key, sizeof(a.agent_key));
    (void)snprintf(a.tenant, sizeof(a.tenant), "%s", s->tenant);
    resolve_socket(w->resolver, &a, on_socket, w);
}

/* A volume that is not there, is another's, or is being removed: one answer, after the same
 * work. */
static bool admit_volume(struct gateway_resolver *r, const struct gateway_query *q,
                         struct gateway_answer *a)
{
    char message[ACCESS_MESSAGE_SIZE];

    if (!q->access.has_token) {
        resolve_refuse(
            a, 401, false,
            "no token of the volume: send it as \"Authorization: Bearer TOKEN\"; POST and GET "
            "/volumes answer it");
        return false;
    }
    if (core_volume_is_token(r->core, q->id, q->access.token) && !q->internal_path)
        return true;
    (void)snprintf(message, sizeof(message),
                   "Volume \"%s\" doesn't exist or you don't have access to it", q->id);
    resolve_refuse(a, 404, false, message);
    return false;
}

void resolve_volume(struct gateway_resolver *r, const struct gateway_query *q,
                    struct gateway_answer *a, gateway_resolved done, void *arg)
{
    struct serving *w;

    a->of_volume = true;
    if (!admit_volume(r, q, a)) {
        done(arg, a);
        return;
    }
    w = calloc(1, sizeof(*w));
    if (!w || !core_call_begin(r->core)) {
        free(w);
        resolve_refuse(a, 503, false, "no memory to reach the volume");
        done(arg, a);
        return;
    }
    *w = (struct serving){
        .resolver = r, .answer = *a, .writes = q->writes, .done = done, .arg = arg};
    memcpy(w->volume, q->id, sizeof(w->volume));
    core_volume_serve(r->core, q->id, q->writes, on_served, w);
}
