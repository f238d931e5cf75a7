/* Daytona's control plane whole: calls through the table of routes, the handlers, core and its store, with a privd and agents that
 * a thread plays (core_fake.h). The input is calls, one after the other: a digit for whose key it is (0 the tenant's owner, 1 a key that
 * may only read, 2 another tenant's, 3 none), METHOD and what stands behind /api/, with its query; then, behind a byte of PART,
 * the body, and PART again. An '@' in path or body is the id of a sandbox that is there at the first call. Checked: each call is
 * answered, with JSON; an error has the dialect's form and is none of the server's own (500); a
 * read-only key changes nothing, and the other tenant gets nothing of that sandbox. Things that an
 * input has made are gone before the next. */
#include "../unit/core_fake.h"
#include "api/daytona.h"
#include "api/e2b.h"
#include "base/arena.h"
#include "base/clock.h"
#include "core/key.h"
#include "core/list.h"
#include "core/snapshot.h"
#include "core/volume.h"
#include "fuzz.h"

#include <ftw.h>
#include <unistd.h>

#define PART       0xc1 /* in no UTF-8 */
#define CALLS_MAX  6
#define ANSWER_MS  20000u
#define TEXT_MAX   8192u
#define METHOD_MAX 8
#define MADE_MAX   64u

enum who { OWNER, READER, OTHER, NONE, WHO_COUNT };

static struct {
    bool begun;
    char dir[64];
    uv_loop_t loop;
    struct fake *fake;
    struct core *core;
    struct api *api;
    char keys[WHO_COUNT][CORE_TOKEN_SIZE];
    char box[IDS_SANDBOX_SIZE]; /* "": there is none */
} world;

struct answer {
    bool came;
    struct api_response response;
};

/* -- the world --------------------------------------------------------------------------------- */

static void wake_up(uv_timer_t *t UNUSED)
{
}

static bool is_ready(const void *arg UNUSED)
{
    return core_is_ready(world.core);
}

static bool has_come(const void *arg)
{
    return *(const bool *)arg;
}

static void run_until(bool (*done)(const void *arg), const void *arg)
{
    uint64_t end = clock_mono_ms() + ANSWER_MS;
    uv_timer_t t;

    uv_timer_init(&world.loop, &t);
    uv_timer_start(&t, wake_up, 5, 5);
    while (!done(arg) && clock_mono_ms() < end)
        uv_run(&world.loop, UV_RUN_ONCE);
    uv_close((uv_handle_t *)&t, NULL);
    uv_run(&world.loop, UV_RUN_NOWAIT);
    FUZZ_CHECK(done(arg));
}

static int remove_one(const char *path, const struct stat *st UNUSED, int type UNUSED,
                      struct FTW *ftw UNUSED)
{
    return remove(path);
}

static void remove_dir(void)
{
    nftw(world.dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static void make_key(enum who who, const char *tenant, enum core_role role)
{
    struct core_identity whose = {.role = role};
    struct err e;

    (void)snprintf(whose.tenant, sizeof(whose.tenant), "%s", tenant);
    FUZZ_CHECK(core_key_create(world.core, &whose, "fuzz", world.keys[who], &e) == ERR_OK);
}

static void begin(void)
{
    struct core_config core = {.names = &e2b_names,
                               .state_dir = world.dir,
                               .domain = "localhost:3000",
                               .limits = {.memory_bytes = 512u << 20,
                                          .disk_bytes = 1u << 30,
                                          .cpu_milli = 1500,
                                          .pids = 256,
                                          .open_files = 1024},
                               .max_ttl_ms = 86400000,
                               .default_ttl_ms = 300000,
                               .agent_timeout_ms = 3000,
                               .max_sandboxes = 100};
    struct api_config api = {.domain = "localhost:3000",
                             .state_dir = world.dir,
                             .max_ttl_ms = core.max_ttl_ms,
                             .limits = core.limits};
    struct err e;

    if (world.begun)
        return;
    world.begun = true;
    (void)snprintf(world.dir, sizeof(world.dir), "/tmp/cay-fuzz-XXXXXX");
    FUZZ_CHECK(mkdtemp(world.dir));
    atexit(remove_dir);
    FUZZ_CHECK(uv_loop_init(&world.loop) == 0);
    world.fake = fake_start(world.dir);
    core.agent_port = fake_agent_port(world.fake);
    FUZZ_CHECK(core_new(&world.loop, &core, fake_path(world.fake), &world.core, &e) == ERR_OK);
    run_until(is_ready, NULL);
    FUZZ_CHECK(api_new(world.core, &api, &world.api, &e) == ERR_OK);
    make_key(OWNER, "one", CORE_ROLE_OWNER);
    make_key(READER, "one", CORE_ROLE_READ_ONLY);
    make_key(OTHER, "two", CORE_ROLE_OWNER);
}

/* -- one call ---------------------------------------------------------------------------------- */

static void answered(void *arg, struct api_response *response)
{
    struct answer *a = arg;

    FUZZ_CHECK(!a->came);
    a->came = true;
    a->response = *response;
}

static struct answer dispatch(enum who who, const char *method, const char *path, const char *query,
                              const char *body, size_t len)
{
    struct api_request *r = api_request_new(method, path, query, "localhost:3000", world.keys[who],
                                            body, len);
    struct answer a = {.came = false};

    FUZZ_CHECK(r);
    api_dispatch(world.api, r, answered, &a);
    run_until(has_come, &a.came);
    return a;
}

static void check_error(const json_t *body, int status)
{
    FUZZ_CHECK(json_integer_value(json_object_get(body, "statusCode")) == status);
    FUZZ_CHECK(json_string_length(json_object_get(body, "message")) > 0);
    FUZZ_CHECK(json_is_string(json_object_get(body, "path")));
}

/* Text of an error, or any JSON of an answer; one without a body says so by its status alone. */
static void check_body(const struct api_response *r)
{
    json_t *body = r->body ? json_loadb(r->body, r->body_len, JSON_DECODE_ANY, NULL) : NULL;

    FUZZ_CHECK(r->status >= 200 && r->status < 600 && r->status != 500);
    FUZZ_CHECK(!r->body_len || body);
    if (r->status >= 400)
        check_error(body, r->status);
    json_decref(body);
}

/* Another tenant may give a sandbox of its own any name, that id too: what tells is the id. */
static bool shows_box(const struct api_response *r)
{
    char id[IDS_SANDBOX_SIZE + 8];

    (void)snprintf(id, sizeof(id), "\"id\":\"%s\"", world.box);
    return r->status < 400 && r->body && world.box[0] && strstr(r->body, id);
}

static void check_rights(enum who who, const char *method, const char *path,
                         const struct api_response *r)
{
    char params[API_PARAMS_MAX][API_PARAM_SIZE], allow[128];
    const struct api_route *row = api_route_find(&daytona_dialect, method, path, params, allow,
                                                 sizeof(allow));

    if (!row)
        FUZZ_CHECK(r->status == 404 || r->status == 405);
    else if (who == NONE && row->access != API_OPEN)
        FUZZ_CHECK(r->status == 401 || r->status == 400);
    else if (who == READER && row->access != API_READ)
        FUZZ_CHECK(r->status == 403 || r->status == 400);
    FUZZ_CHECK(who == OWNER || who == READER || !shows_box(r));
}

/* Bytes that a head may have (the gate refuses the others); '@' is the sandbox. */
static void put_text(char *out, size_t size, const char *at, size_t len, bool is_head)
{
    size_t n = 0;

    for (size_t i = 0; i < len && n + IDS_SANDBOX_SIZE < size; i++) {
        bool is_plain = at[i] > ' ' && at[i] < 0x7f && at[i] != '#';

        if (at[i] == '@')
            n += (size_t)snprintf(out + n, size - n, "%s", world.box);
        else
            out[n++] = is_head && !is_plain ? '_' : at[i];
    }
    out[n] = '\0';
}

static void call(const char *at, size_t len, const char *body, size_t body_len)
{
    static char path[TEXT_MAX], text[TEXT_MAX];
    enum who who = len ? (enum who)((unsigned char)at[0] % WHO_COUNT) : OWNER;
    const char *space = len > 1 ? memchr(at + 1, ' ', len - 1) : NULL, *query = "";
    char method[METHOD_MAX + 1] = "GET", *mark;
    struct answer a;

    if (!space || space - at - 1 > METHOD_MAX || space == at + 1)
        return;
    for (const char *p = at + 1; p < space; p++)
        method[p - at - 1] = *p >= 'A' && *p <= 'Z' ? *p : 'X';
    method[space - at - 1] = '\0';
    memcpy(path, DAYTONA_PREFIX, sizeof(DAYTONA_PREFIX));
    put_text(path + strlen(path), sizeof(path) - sizeof(DAYTONA_PREFIX), space + 1,
             len - (size_t)(space + 1 - at), true);
    mark = strchr(path, '?');
    if (mark) {
        *mark = '\0';
        query = mark + 1;
    }
    put_text(text, sizeof(text), body, body_len, false);
    a = dispatch(who, method, path, query, text, strlen(text));
    check_body(&a.response);
    check_rights(who, method, path, &a.response);
    api_response_free(&a.response);
}

/* -- before and after an input ----------------------------------------------------------------- */

static void make_box(void)
{
    static const char body[] = "{\"snapshot\":\"host\",\"name\":\"box\"}";
    struct answer a = dispatch(OWNER, "POST", "/api/sandbox", "", body, sizeof(body) - 1);
    json_t *made = json_loadb(a.response.body, a.response.body_len, 0, NULL);

    FUZZ_CHECK(a.response.status == 200 && made);
    (void)snprintf(world.box, sizeof(world.box), "%s",
                   json_string_value(json_object_get(made, "id")));
    json_decref(made);
    api_response_free(&a.response);
}

struct ids {
    size_t count;
    char ids[MADE_MAX][64];
};

static bool add(struct ids *k, const char *id)
{
    if (k->count < MADE_MAX)
        (void)snprintf(k->ids[k->count++], sizeof(k->ids[0]), "%s", id);
    return k->count < MADE_MAX;
}

static bool add_volume(void *arg, const struct volume *v)
{
    return add(arg, v->id);
}

static bool add_snapshot(void *arg, const struct snapshot *s)
{
    return add(arg, s->id);
}

static void add_sandboxes(struct ids *k, const char *tenant)
{
    struct sandbox_filter f = {.tenant = tenant, .limit = MADE_MAX};
    struct sandbox_page page = {.count = 0};
    CLEANUP_ARENA struct arena arena;
    struct err e;

    arena_init(&arena, 65536);
    FUZZ_CHECK(core_sandbox_list(world.core, &f, &arena, &page, &e) == ERR_OK);
    for (size_t i = 0; i < page.count; i++)
        if (strcmp(page.items[i]->id, world.box) != 0 ||
            strcmp(daytona_state(page.items[i]), "started") != 0)
            add(k, page.items[i]->id);
}

static void remove_all(enum who who, const char *prefix, const struct ids *k)
{
    char path[128];

    for (size_t i = 0; i < k->count; i++) {
        struct answer a;

        (void)snprintf(path, sizeof(path), "%s%s", prefix, k->ids[i]);
        a = dispatch(who, "DELETE", path, "", "", 0);
        api_response_free(&a.response);
        if (strcmp(k->ids[i], world.box) == 0)
            world.box[0] = '\0';
    }
}

static void clean(void)
{
    static const char *const tenants[] = {[OWNER] = "one", [OTHER] = "two"};
    static const enum who owners[] = {OWNER, OTHER};

    for (size_t i = 0; i < ARRAY_SIZE(owners); i++) {
        const char *tenant = tenants[owners[i]];
        struct ids sandboxes = {0}, volumes = {0}, snapshots = {0};

        add_sandboxes(&sandboxes, tenant);
        remove_all(owners[i], "/api/sandbox/", &sandboxes);
        core_volume_each(world.core, tenant, add_volume, &volumes);
        remove_all(owners[i], "/api/volumes/", &volumes);
        core_snapshot_each(world.core, tenant, NULL, NULL, add_snapshot, &snapshots);
        remove_all(owners[i], "/api/snapshots/", &snapshots);
    }
    if (world.box[0] && !core_sandbox_find(world.core, "one", world.box))
        world.box[0] = '\0';
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *at = (const char *)data, *end = at + size;

    if (size == 0 || size > TEXT_MAX)
        return 0;
    begin();
    if (!world.box[0])
        make_box();
    for (int i = 0; i < CALLS_MAX && at < end; i++) {
        const char *head = at, *body, *stop = memchr(at, PART, (size_t)(end - at));
        size_t head_len = (size_t)((stop ? stop : end) - head);

        body = stop ? stop + 1 : end;
        stop = memchr(body, PART, (size_t)(end - body));
        call(head, head_len, body, (size_t)((stop ? stop : end) - body));
        at = stop ? stop + 1 : end;
    }
    clean();
    return 0;
}
