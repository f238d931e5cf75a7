/* The steps of a query: the sandbox is found (by id, by name of host, or by searching whose token
 * made a signature); the right is checked (access.c) for its agent or its port; one that is paused
 * is resumed first where its owner allows that, and checked again afterwards; then a socket in its
 * network is fetched, unless the requester has one. done is called once, with the answer or the
 * refusal. Runs on the control loop alone. */

#include "gateway/resolve.h"

#include "base/arena.h"
#include "base/clock.h"
#include "core/ingress.h"
#include "core/key.h"
#include "core/life.h"
#include "core/list.h"
#include "core/role.h"
#include "core/signed_end.h"
#include "core/volume_content.h"

#include <stdio.h>
#include <string.h>

/* A signed URL without an id costs one hash per sandbox, and the client has shown no key yet: so
 * many searches and hashes a second are enough for downloads by browsers, and too few to keep the
 * loop busy. A search that was begun goes through all sandboxes. */
#define SEARCHES_PER_SECOND 50u
#define HASHES_PER_SECOND   50000u
#define SEARCH_PAGE         1000u
#define SEARCH_ARENA_BYTES  (64u * 1024u)

struct gateway_resolver {
    struct core *core;
    uint64_t window_ms; /* start of the second that is counted */
    unsigned searches, hashes;
};

/* A resolution that waits for its socket. */
struct pending {
    struct gateway_answer answer;
    gateway_resolved done;
    void *arg;
};

struct gateway_resolver *gateway_resolver_new(struct core *core)
{
    struct gateway_resolver *r = calloc(1, sizeof(*r));

    if (r)
        r->core = core;
    return r;
}

void gateway_resolver_free(struct gateway_resolver *r)
{
    free(r);
}

static void refuse(struct gateway_answer *a, int status, bool shaped, const char *message)
{
    a->status = status;
    a->shaped = shaped;
    snprintf(a->message, sizeof(a->message), "%s", message);
}

/* -- which sandbox ----------------------------------------------------------------------------- */

static bool may_search(struct gateway_resolver *r)
{
    uint64_t now_ms = clock_mono_ms();

    if (now_ms - r->window_ms >= 1000) {
        r->window_ms = now_ms;
        r->searches = r->hashes = 0;
    }
    return r->searches++ < SEARCHES_PER_SECOND && r->hashes < HASHES_PER_SECOND;
}

/* The next page of the search: true when there is one more. f goes on behind its last sandbox. */
static bool search_page(struct gateway_resolver *r, const struct gateway_query *q,
                        struct sandbox_filter *f, const struct sandbox **found)
{
    CLEANUP_ARENA struct arena arena;
    struct sandbox_page page = {0};
    char token[CORE_TOKEN_SIZE + 1];
    struct err e;

    arena_init(&arena, SEARCH_ARENA_BYTES);
    if (core_sandbox_list(r->core, f, &arena, &page, &e) != ERR_OK)
        return false;
    for (size_t i = 0; i < page.count && !*found; i++) {
        core_sandbox_token(r->core, page.items[i]->id, token);
        r->hashes++;
        if (access_signature_matches(&q->access, token))
            *found = page.items[i];
    }
    if (!page.more || page.count == 0)
        return false;
    f->cursor_ms = page.items[page.count - 1]->started_real_ms;
    f->cursor_id = page.items[page.count - 1]->id;
    return true;
}

/* The sandbox whose token made the signature; NULL with the answer filled in. */
static const struct sandbox *search(struct gateway_resolver *r, const struct gateway_query *q,
                                    struct gateway_answer *a)
{
    struct sandbox_filter f = {.limit = SEARCH_PAGE};
    const struct sandbox *found = NULL;

    if (!may_search(r)) {
        refuse(a, 429, false,
               "too many signed URLs without a sandbox's host name; use PORT-ID.DOMAIN");
        return NULL;
    }
    while (!found && search_page(r, q, &f, &found))
        ;
    if (!found)
        refuse(a, 401, false, "invalid signature");
    return found;
}

/* A sandbox of the key's tenant. That of another is answered as one that is not there. A
 * ROUTE_KEYED query opens the whole of a sandbox, as its token does, and is allowed to the roles
 * that may read the token. */
static const struct sandbox *find_keyed(struct gateway_resolver *r, const struct gateway_query *q,
                                        struct gateway_answer *a)
{
    struct core_identity who = {.role = CORE_ROLE_NONE};
    const struct sandbox *s;
    char message[ACCESS_MESSAGE_SIZE];
    struct err e;

    if (core_authenticate(r->core, q->access.key, &who, &e) != ERR_OK) {
        refuse(a, 401, false, e.text);
        return NULL;
    }
    if (!role_may(who.role, ROLE_WRITE)) {
        snprintf(message, sizeof(message), "a key of role %s does not open sandboxes",
                 core_role_name(who.role));
        refuse(a, 403, false, message);
        return NULL;
    }
    s = core_sandbox_find(r->core, who.tenant, q->name);
    if (!s)
        s = core_sandbox_find_named(r->core, who.tenant, q->name);
    if (!s) {
        snprintf(message, sizeof(message), "Sandbox with ID or name %s not found", q->name);
        refuse(a, 404, false, message);
    }
    return s;
}

/* The sandbox of the id, where its key has made the signature. An unknown sandbox is answered as a
 * wrong signature, after the same work: its token and key are made from the id alone. */
static const struct sandbox *find_file_url(struct gateway_resolver *r,
                                           const struct gateway_query *q, struct gateway_answer *a)
{
    const struct sandbox *s = core_sandbox_find(r->core, NULL, q->id);
    char token[CORE_TOKEN_SIZE + 1], key[FILE_URL_KEY_SIZE];
    char message[ACCESS_MESSAGE_SIZE] = "the sandbox of this URL is not there any more";

    core_sandbox_token(r->core, q->id, token);
    file_url_key(token, s ? s->file_url_number : 0, key);
    if (!access_check_file_url(&q->access, key, clock_real_ms() / 1000, message) || !s) {
        refuse(a, 401, false, message);
        return NULL;
    }
    return s;
}

static const struct sandbox *find(struct gateway_resolver *r, const struct gateway_query *q,
                                  struct gateway_answer *a)
{
    const struct sandbox *s;

    if (q->kind == ROUTE_SIGNED)
        return search(r, q, a);
    if (q->kind == ROUTE_KEYED)
        return find_keyed(r, q, a);
    if (q->kind == ROUTE_FILE_URL)
        return find_file_url(r, q, a);
    s = core_sandbox_find(r->core, NULL, q->id);
    if (!s) {
        refuse(a, 502, true, "The sandbox was not found");
        return NULL;
    }
    return s;
}

/* -- may it ------------------------------------------------------------------------------------ */

static bool admit_agent(struct gateway_resolver *r, const struct gateway_query *q,
                        const struct sandbox *s, struct gateway_answer *a)
{
    char token[CORE_TOKEN_SIZE + 1], message[ACCESS_MESSAGE_SIZE];

    /* The key or the URL's signature was looked at. */
    if (q->kind == ROUTE_KEYED || q->kind == ROUTE_FILE_URL)
        return true;
    a->anonymous = !s->secure || q->access.exempt;
    if (!s->secure)
        return true;
    core_sandbox_token(r->core, s->id, token);
    if (access_check_agent(&q->access, token, clock_real_ms() / 1000, message))
        return true;
    refuse(a, 401, false, message);
    return false;
}

/* Whether it was ended is asked only of one that is right: what is made up reads no table. */
static bool check_signed(struct gateway_resolver *r, const struct gateway_query *q,
                         const struct sandbox *s, const char *token,
                         char message[static ACCESS_MESSAGE_SIZE])
{
    if (!access_check_signed(&q->access, token, q->port, clock_real_ms() / 1000, message))
        return false;
    if (!core_signed_has_ended(r->core, s->id, q->access.signed_until))
        return true;
    snprintf(message, ACCESS_MESSAGE_SIZE,
             "the signed address was ended by its owner: ask for a new one");
    return false;
}

static bool admit_port(struct gateway_resolver *r, const struct gateway_query *q,
                       const struct sandbox *s, struct gateway_answer *a)
{
    char token[CORE_TOKEN_SIZE + 1], message[ACCESS_MESSAGE_SIZE];
    bool is_signed = q->access.signed_until[0] != '\0';
    bool is_public = ingress_is_public(s->network) && !is_signed;

    a->anonymous = is_public && !q->access.traffic[0];
    if (a->anonymous)
        return true;
    core_sandbox_token(r->core, s->id, token);
    if (is_public) {
        a->anonymous = !access_check_traffic(&q->access, token, message);
        return true;
    }
    if (is_signed ? check_signed(r, q, s, token, message)
                  : access_check_traffic(&q->access, token, message))
        return true;
    refuse(a, 403, true, message);
    return false;
}

/* -- one that is paused ------------------------------------------------------------------------ */

/* A request that waits for its sandbox to be resumed. q stays until done was called. */
struct resuming {
    struct gateway_resolver *resolver;
    const struct gateway_query *q;
    struct gateway_answer answer;
    gateway_resolved done;
    void *arg;
};

static void go_on(struct gateway_resolver *r, const struct gateway_query *q,
                  const struct sandbox *s, struct gateway_answer *a, gateway_resolved done,
                  void *arg);

/* /health is answered without a token, but resumes nothing without one: a client that looks whether
 * a sandbox is there is not to keep it running. */
static bool may_resume(struct gateway_resolver *r, const struct gateway_query *q,
                       const struct sandbox *s)
{
    char token[CORE_TOKEN_SIZE + 1], message[ACCESS_MESSAGE_SIZE];
    struct access access = q->access;

    if (life_of(s->state)->change == LIFE_CHANGE_RESUME)
        return true;
    if (!s->auto_resume || !core_sandbox_has_memory(s))
        return false;
    if (q->port != AGENT_PORT || !s->secure || !access.exempt)
        return true;
    core_sandbox_token(r->core, s->id, token);
    access.exempt = false;
    return access_check_agent(&access, token, clock_real_ms() / 1000, message);
}

static void on_resumed(void *arg, const struct sandbox *s, const struct err *why)
{
    struct resuming w = *(struct resuming *)arg;
    struct gateway_answer *a = &w.answer;

    free(arg);
    core_call_end(w.resolver->core);
    if (s && life_of(s->state)->reachable) {
        core_sandbox_used(w.resolver->core, s->id);
        go_on(w.resolver, w.q, s, a, w.done, w.arg);
        return;
    }
    if (why && why->code == ERR_NOT_FOUND)
        refuse(a, 502, true, "The sandbox was not found");
    else
        refuse(a, why && why->code == ERR_TIMEOUT ? 504 : 503, true,
               why ? why->text : "the sandbox was paused again; try again");
    w.done(w.arg, a);
}

static void resume(struct gateway_resolver *r, const struct gateway_query *q,
                   const struct sandbox *s, struct gateway_answer *a, gateway_resolved done,
                   void *arg)
{
    struct resuming *w = calloc(1, sizeof(*w));

    if (!w || !core_call_begin(r->core)) {
        free(w);
        refuse(a, 503, true, "no memory to resume the sandbox");
        done(arg, a);
        return;
    }
    *w = (struct resuming){r, q, *a, done, arg};
    core_sandbox_resume(r->core, NULL, s->id, 0, false, on_resumed, w);
}

/* In the words of Daytona's clients. The first 123 bytes must do: of a terminal's WebSocket some
 * show no more. */
static void refuse_keyed(const struct sandbox *s, struct gateway_answer *a)
{
    if (!core_sandbox_has_memory(s))
        refuse(a, 502, true,
               "the sandbox is stopped: its files are kept, and nothing runs in it; start it first "
               "(the SDK's start(), or `cay resume`)");
    else
        refuse(a, 502, true,
               "the sandbox is paused: its programs stand still; start it first (the SDK's "
               "start(), or `cay resume`)");
}

static void resume_first(struct gateway_resolver *r, const struct gateway_query *q,
                         const struct sandbox *s, struct gateway_answer *a, gateway_resolved done,
                         void *arg)
{
    if (may_resume(r, q, s)) {
        resume(r, q, s, a, done, arg);
        return;
    }
    /* Also while it is just being paused: 502 is what clients take for "does not run". */
    if (q->kind == ROUTE_KEYED || q->kind == ROUTE_FILE_URL)
        refuse_keyed(s, a);
    else if (!core_sandbox_has_memory(s))
        refuse(a, 502, true,
               "The sandbox is paused with its files alone; connect to it (`cay resume`, "
               "Daytona's start) to start it on them");
    else if (s->auto_resume)
        refuse(a, 502, true, "The sandbox is paused; a request with its token resumes it");
    else
        refuse(a, 502, true, "The sandbox is paused; connect to it (`cay resume`) to resume it");
    done(arg, a);
}

/* -- the socket -------------------------------------------------------------------------------- */

static void got_sockets(void *arg, int *fds, size_t n, const struct err *why)
{
    struct pending *p = arg;

    if (!why && n > 0) {
        p->answer.fd = TAKE_FD(fds[0]);
        for (size_t i = 1; i < n; i++)
            util_close(&fds[i]);
    } else if (why && why->code == ERR_NOT_FOUND) {
        refuse(&p->answer, 502, true, "The sandbox was not found");
    } else if (why && why->code == ERR_CONFLICT) {
        refuse(&p->answer, 502, true, why->text); /* it was paused meanwhile */
    } else {
        refuse(&p->answer, why && why->code == ERR_EXHAUSTED ? 429 : 503, true,
               why ? why->text : "no socket into the sandbox");
    }
    p->done(p->arg, &p->answer);
    free(p);
}

static void request_socket(struct gateway_resolver *r, struct gateway_answer *a,
                           gateway_resolved done, void *arg)
{
    struct pending *p = core_admits(r->core) ? calloc(1, sizeof(*p)) : NULL;

    if (!p) {
        refuse(a, 503, true, "no memory to reach the sandbox");
        done(arg, a);
        return;
    }
    p->answer = *a;
    p->done = done;
    p->arg = arg;
    core_sandbox_sockets(r->core, a->id, 1, got_sockets, p);
}

/* It runs, and the request may reach it. */
static void go_on(struct gateway_resolver *r, const struct gateway_query *q,
                  const struct sandbox *s, struct gateway_answer *a, gateway_resolved done,
                  void *arg)
{
    bool agent = q->port == AGENT_PORT;

    a->slot = s->slot;
    a->gen = s->gen;
    memcpy(a->agent_key, s->agent_key, sizeof(a->agent_key));
    if (!agent && !ingress_masked_host(s->network, q->port, a->host, sizeof(a->host)))
        a->host[0] = '\0';
    if (agent && q->idle_gen && q->idle_gen == s->gen)
        done(arg, a);
    else
        request_socket(r, a, done, arg);
}

/* -- a volume's contents ----------------------------------------------------------------------- */

/* A request that waits for what serves them. */
struct serving {
    struct gateway_resolver *resolver;
    struct gateway_answer answer;
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

static void on_served(void *arg, const struct sandbox *s, const struct err *why)
{
    struct serving w = *(struct serving *)arg;
    struct gateway_answer *a = &w.answer;

    free(arg);
    core_call_end(w.resolver->core);
    if (!s) {
        refuse(a, status_of(why), false, why->text);
        w.done(w.arg, a);
        return;
    }
    memcpy(a->id, s->id, sizeof(a->id));
    a->slot = s->slot;
    a->gen = s->gen;
    memcpy(a->agent_key, s->agent_key, sizeof(a->agent_key));
    (void)snprintf(a->tenant, sizeof(a->tenant), "%s", s->tenant);
    request_socket(w.resolver, a, w.done, w.arg);
}

/* A volume that is not there, is another's, or is being removed: one answer, after the same
 * work. */
static bool admit_volume(struct gateway_resolver *r, const struct gateway_query *q,
                         struct gateway_answer *a)
{
    char message[ACCESS_MESSAGE_SIZE];

    if (!q->access.has_token) {
        refuse(a, 401, false,
               "no token of the volume: send it as \"Authorization: Bearer TOKEN\"; POST and GET "
               "/volumes answer it");
        return false;
    }
    if (core_volume_is_token(r->core, q->id, q->access.token) && !q->internal_path)
        return true;
    (void)snprintf(message, sizeof(message),
                   "Volume \"%s\" doesn't exist or you don't have access to it", q->id);
    refuse(a, 404, false, message);
    return false;
}

static void resolve_volume(struct gateway_resolver *r, const struct gateway_query *q,
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
        refuse(a, 503, false, "no memory to reach the volume");
        done(arg, a);
        return;
    }
    *w = (struct serving){r, *a, done, arg};
    core_volume_serve(r->core, q->id, q->writes, on_served, w);
}

void gateway_resolve(struct gateway_resolver *r, const struct gateway_query *q,
                     gateway_resolved done, void *arg)
{
    struct gateway_answer a = {.port = q->port, .fd = -1};
    bool agent = q->port == AGENT_PORT;
    const struct sandbox *s;

    snprintf(a.id, sizeof(a.id), "%s", q->id);
    if (q->kind == ROUTE_VOLUME) {
        resolve_volume(r, q, &a, done, arg);
        return;
    }
    s = find(r, q, &a);
    if (s && agent && q->internal_path) {
        refuse(&a, 404, false, "there is no such path on the agent's port");
        s = NULL;
    }
    if (!s || !(agent ? admit_agent(r, q, s, &a) : admit_port(r, q, s, &a))) {
        done(arg, &a);
        return;
    }
    memcpy(a.id, s->id, sizeof(a.id));
    (void)snprintf(a.tenant, sizeof(a.tenant), "%s", s->tenant);
    /* Neither a refused request nor one that is answered without a token counts as use of the
     * sandbox. */
    if (life_of(s->state)->reachable && !(agent && q->access.exempt))
        core_sandbox_used(r->core, s->id);
    if (life_of(s->state)->wakes)
        resume_first(r, q, s, &a, done, arg);
    else
        go_on(r, q, s, &a, done, arg);
}
