/* Units of src/core: keys, templates, sockets, metrics, logs, status, listings. */
#include "base/arena.h"
#include "base/clock.h"
#include "core/key.h"
#include "core/list.h"
#include "core_world.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* -- keys and tokens --------------------------------------------------------------------------- */

static void keys_tell_tenants(void **state)
{
    struct world *w = *state;
    struct core_identity who = {.role = CORE_ROLE_NONE};
    char key[CORE_TOKEN_SIZE];
    struct err e;

    assert_int_equal(world_key(w, "team-1", "ci", key, &e), ERR_OK);
    assert_int_equal(strlen(key), 44);
    assert_int_equal(core_authenticate(w->core, key, &who, &e), ERR_OK);
    assert_string_equal(who.tenant, "team-1");
    assert_int_equal(who.role, CORE_ROLE_OWNER);
    key[43] = key[43] == '0' ? '1' : '0';
    assert_int_equal(core_authenticate(w->core, key, &who, &e), ERR_UNAUTHENTICATED);
    assert_non_null(strstr(e.text, "not known"));
    assert_int_equal(core_authenticate(w->core, "key_XYZ", &who, &e), ERR_UNAUTHENTICATED);
    assert_non_null(strstr(e.text, "malformed"));
    assert_int_equal(core_authenticate(w->core, NULL, &who, &e), ERR_UNAUTHENTICATED);
    assert_int_equal(core_authenticate(w->core, "", &who, &e), ERR_UNAUTHENTICATED);
    assert_non_null(strstr(e.text, "no API key"));
    assert_int_equal(world_key(w, "-x", "", key, &e), ERR_INVALID);
    assert_int_equal(world_key(w, "Team", "", key, &e), ERR_INVALID);
    assert_int_equal(world_key(w, "", "", key, &e), ERR_INVALID);
    assert_int_equal(world_query(w, "SELECT count(*) FROM api_keys WHERE length(hash) != 32"), 0);
}

struct seen_keys {
    size_t n;
    struct core_key first, last;
};

static enum err_code see_key(void *arg, const struct core_key *k, struct err *e)
{
    struct seen_keys *seen = arg;

    if (seen->n++ == 0)
        seen->first = *k;
    seen->last = *k;
    return ERR_OK;
}

static void a_revoked_key_opens_nothing(void **state)
{
    struct world *w = *state;
    char a[CORE_TOKEN_SIZE], b[CORE_TOKEN_SIZE], id[CORE_KEY_ID_SIZE];
    struct core_identity who;
    struct seen_keys seen = {0};
    struct err e;

    assert_int_equal(world_key(w, "team-1", "old", a, &e), ERR_OK);
    assert_int_equal(world_key(w, "team-2", "other", b, &e), ERR_OK);
    assert_int_equal(core_key_each(w->core, "team-1", see_key, &seen, &e), ERR_OK);
    core_key_id(a, id);
    assert_int_equal(seen.n, 1);
    assert_string_equal(seen.first.id, id);
    assert_string_equal(seen.first.label, "old");
    assert_string_equal(seen.first.tenant, "team-1");
    assert_int_equal(core_key_each(w->core, NULL, see_key, &seen, &e), ERR_OK);
    assert_int_equal(seen.n, 1 + 3); /* of all: the world's own, too */

    assert_int_equal(world_revoke(w, "team-2", id, &e), ERR_NOT_FOUND);
    assert_int_equal(world_revoke(w, "team-1", "0f", &e), ERR_INVALID);
    assert_int_equal(world_revoke(w, "team-1", "000000000000000x", &e), ERR_INVALID);
    assert_int_equal(core_authenticate(w->core, a, &who, &e), ERR_OK);
    assert_int_equal(world_revoke(w, "team-1", id, &e), ERR_OK);
    assert_int_equal(core_authenticate(w->core, a, &who, &e), ERR_UNAUTHENTICATED);
    assert_int_equal(core_authenticate(w->core, b, &who, &e), ERR_OK);
    assert_int_equal(world_revoke(w, NULL, id, &e), ERR_NOT_FOUND);
    core_key_id(b, id);
    assert_int_equal(world_revoke(w, NULL, id, &e), ERR_OK);
    assert_int_equal(core_authenticate(w->core, b, &who, &e), ERR_UNAUTHENTICATED);
}

static void keys_have_roles(void **state)
{
    struct world *w = *state;
    struct core_identity reader = {"team-1", CORE_ROLE_READ_ONLY}, who = {.role = CORE_ROLE_NONE},
                         owner = {CORE_OPERATOR_TENANT, CORE_ROLE_OWNER};
    char key[CORE_TOKEN_SIZE], id[CORE_KEY_ID_SIZE];
    struct err e;

    assert_int_equal(core_key_create(w->core, &reader, "", key, &e), ERR_OK);
    assert_int_equal(core_authenticate(w->core, key, &who, &e), ERR_OK);
    assert_int_equal(who.role, CORE_ROLE_READ_ONLY);
    reader.role = CORE_ROLE_OPERATOR;
    assert_int_equal(core_key_create(w->core, &reader, "", key, &e), ERR_INVALID);
    reader.role = CORE_ROLE_NONE;
    assert_int_equal(core_key_create(w->core, &reader, "", key, &e), ERR_INVALID);
    reader.role = CORE_ROLE_COUNT;
    assert_int_equal(core_key_create(w->core, &reader, "", key, &e), ERR_INVALID);

    /* An owner's key of the operator's tenant does not lock the operator out. */
    assert_int_equal(world_key(w, CORE_OPERATOR_TENANT, "", key, &e), ERR_OK);
    core_key_id(key, id);
    assert_int_equal(core_key_revoke(w->core, &owner, id, &e), ERR_NOT_FOUND);
    assert_int_equal(core_authenticate(w->core, key, &who, &e), ERR_OK);
    assert_int_equal(who.role, CORE_ROLE_OPERATOR);
    assert_int_equal(core_key_create(w->core, &owner, "", key, &e), ERR_OK);
    core_key_id(key, id);
    assert_int_equal(core_key_revoke(w->core, &owner, id, &e), ERR_OK);
    assert_int_equal(core_authenticate(w->core, key, &who, &e), ERR_UNAUTHENTICATED);
}

static void a_tenant_has_only_so_many_keys(void **state)
{
    struct world *w = *state;
    char key[CORE_TOKEN_SIZE], id[CORE_KEY_ID_SIZE];
    struct err e;

    for (size_t i = 0; i < CORE_KEYS_MAX; i++)
        assert_int_equal(world_key(w, "team-1", "", key, &e), ERR_OK);
    core_key_id(key, id);
    assert_int_equal(world_key(w, "team-1", "", key, &e), ERR_EXHAUSTED);
    assert_non_null(strstr(e.hint, "revoke"));
    assert_int_equal(world_key(w, "team-2", "", key, &e), ERR_OK);
    assert_int_equal(world_revoke(w, "team-1", id, &e), ERR_OK);
    assert_int_equal(world_key(w, "team-1", "", key, &e), ERR_OK);
}

static void tokens_outlive_a_restart_and_differ(void **state)
{
    struct world *w = *state;
    char a[CORE_TOKEN_SIZE + 1], b[CORE_TOKEN_SIZE + 1], path[100];
    struct stat st;

    core_sandbox_token(w->core, "iaaaaaaaaaaaaaaaaaaaa", a);
    core_sandbox_token(w->core, "iaaaaaaaaaaaaaaaaaaab", b);
    assert_int_equal(strlen(a), 64);
    assert_string_not_equal(a, b);
    world_stop_core(w);
    world_start_core(w);
    core_sandbox_token(w->core, "iaaaaaaaaaaaaaaaaaaaa", b);
    assert_string_equal(a, b);
    snprintf(path, sizeof(path), "%s/server.key", w->dir);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
}

/* -- templates --------------------------------------------------------------------------------- */

struct progress {
    unsigned calls, percent;
    char text[64];
    struct answer end;
};

static void on_progress(void *arg, unsigned percent, const char *text)
{
    struct progress *p = arg;

    p->calls++;
    p->percent = percent;
    snprintf(p->text, sizeof(p->text), "%s", text);
}

static void on_build_end(void *arg, const struct sandbox *s, const struct err *why)
{
    world_on_answer(&((struct progress *)arg)->end, s, why);
}

static void base_gives_host_until_it_is_built(void **state)
{
    struct world *w = *state;
    struct sandbox_request r = world_request();
    struct progress p = {0};
    struct answer again = {0}, removed = {0};
    char id[IDS_SANDBOX_SIZE];

    r.template_name = "base:latest";
    world_create(w, &r, id);
    assert_string_equal(core_sandbox_find(w->core, NULL, id)->template_id, "host");
    assert_string_equal(core_sandbox_find(w->core, NULL, id)->template_requested, "base");
    assert_false(core_template_find(w->core, "base")->ready);
    assert_non_null(strstr(core_template_find(w->core, "base")->note, "cay template build base"));

    fake_set(w->fake, FAKE_HOLD_JOBS, 1);
    core_template_build(w->core, "base", on_progress, on_build_end, &p);
    core_template_build(w->core, "base", NULL, world_on_answer, &again);
    world_run_until(w, &again.calls, 1);
    assert_int_equal(again.why.code, ERR_CONFLICT);
    assert_true(core_template_find(w->core, "base")->building);
    world_run_until_true(w, world_has_job);
    fake_progress(w->fake, 40, "unpacking");
    world_run_until(w, &p.calls, 1);
    assert_int_equal(p.percent, 40);
    assert_string_equal(p.text, "unpacking");
    fake_set(w->fake, FAKE_HOLD_JOBS, 0);
    world_run_until(w, &p.end.calls, 1);
    assert_true(p.end.good);
    assert_true(core_template_find(w->core, "base")->ready);

    world_create(w, &r, id);
    assert_string_equal(core_sandbox_find(w->core, NULL, id)->template_id, "base");
    core_template_remove(w->core, "base", world_on_answer, &removed);
    world_run_until(w, &removed.calls, 1);
    assert_int_equal(removed.why.code, ERR_CONFLICT);
    assert_null(core_template_find(w->core, "base:v7"));
    assert_null(core_template_find(w->core, "bas"));
}

/* A job that is killed in the middle has taken it away, or has not: the list tells. */
static void a_removal_that_fails_leaves_what_is_there(void **state)
{
    struct world *w = *state;

    for (int is_there = 1; is_there >= 0; is_there--) {
        struct answer a = {0}, b = {0};

        fake_set(w->fake, FAKE_BASE_READY, 1);
        core_template_build(w->core, "base", NULL, world_on_answer, &b);
        world_run_until(w, &b.calls, 1);
        assert_true(core_template_find(w->core, "base")->ready);
        fake_set(w->fake, FAKE_BASE_READY, is_there);
        fake_set(w->fake, FAKE_FAIL_JOBS, 1);
        core_template_remove(w->core, "base", world_on_answer, &a);
        world_run_until(w, &a.calls, 1);
        assert_false(a.good);
        world_run_for(w, 50);
        assert_int_equal(core_template_find(w->core, "base")->ready, is_there);
    }
}

static void a_build_that_fails_says_why(void **state)
{
    struct world *w = *state;
    struct answer a = {0};

    fake_set(w->fake, FAKE_FAIL_JOBS, 1);
    core_template_build(w->core, "base", NULL, world_on_answer, &a);
    world_run_until(w, &a.calls, 1);
    assert_false(a.good);
    assert_false(core_template_find(w->core, "base")->building);
    assert_non_null(strstr(core_template_find(w->core, "base")->note, "last build failed"));
}

/* -- sockets, metrics, logs, status ------------------------------------------------------------ */

struct sockets {
    unsigned calls;
    size_t n;
    struct err why;
};

static void on_sockets(void *arg, int *fds, size_t n, const struct err *why)
{
    struct sockets *s = arg;

    s->calls++;
    s->n = n;
    s->why = why ? *why : (struct err){0};
    for (size_t i = 0; i < n; i++)
        assert_int_equal(close(fds[i]), 0);
}

static void sockets_come_in_batches_and_an_idle_sandbox_holds_none(void **state)
{
    struct world *w = *state;
    char id[IDS_SANDBOX_SIZE];
    struct sockets s = {0};
    size_t before;
    unsigned asked;

    world_create_default(w, id);
    world_run_for(w, 1100);
    before = world_open_descriptors();
    asked = fake_counts(w->fake).connects;
    for (unsigned i = 1; i <= 10; i++) {
        core_sandbox_sockets(w->core, id, 1, on_sockets, &s);
        assert_int_equal(s.calls, i - 1);
        world_run_until(w, &s.calls, i);
        assert_int_equal(s.n, 1);
    }
    assert_in_range(fake_counts(w->fake).connects - asked, 1, 4);
    world_run_for(w, 1200);
    assert_int_equal(world_open_descriptors(), before);
    core_sandbox_sockets(w->core, id, 17, on_sockets, &s);
    world_run_until(w, &s.calls, 11);
    assert_int_equal(s.why.code, ERR_INVALID);
    core_sandbox_sockets(w->core, "inobody", 1, on_sockets, &s);
    world_run_until(w, &s.calls, 12);
    assert_int_equal(s.why.code, ERR_NOT_FOUND);
}

/* As while a snapshot is taken of it: a client of the sandbox is not to see that. */
static void a_sandbox_that_stands_still_for_a_moment_is_asked_again(void **state)
{
    struct world *w = *state;
    char id[IDS_SANDBOX_SIZE];
    struct sockets s = {0}, late = {0}, ended = {0};
    unsigned asked;

    world_create_default(w, id);
    world_run_for(w, 1100);
    asked = fake_counts(w->fake).connects;
    fake_set(w->fake, FAKE_CONNECT_ERRNO, EBUSY);
    core_sandbox_sockets(w->core, id, 1, on_sockets, &s);
    core_sandbox_sockets(w->core, id, 1, on_sockets, &late);
    world_run_for(w, 100);
    assert_int_equal(s.calls, 0);
    assert_true(fake_counts(w->fake).connects > asked + 2);
    fake_set(w->fake, FAKE_CONNECT_ERRNO, 0);
    world_run_until(w, &s.calls, 1);
    assert_int_equal(s.n, 1);
    world_run_until(w, &late.calls, 1);
    assert_int_equal(late.n, 1);

    world_run_for(w, 1100);
    fake_set(w->fake, FAKE_CONNECT_ERRNO, EBUSY); /* for longer than a snapshot takes */
    core_sandbox_sockets(w->core, id, 1, on_sockets, &s);
    world_run_until(w, &s.calls, 2);
    assert_int_equal(s.why.code, ERR_EXHAUSTED);
    core_sandbox_sockets(w->core, id, 1, on_sockets, &ended);
    world_run_for(w, 50);
    assert_int_equal(ended.calls, 0);
    world_stop_core(w);
    assert_int_equal(ended.calls, 1);
    assert_int_equal(ended.why.code, ERR_CANCELED);
    fake_set(w->fake, FAKE_CONNECT_ERRNO, 0);
    world_start_core(w);
}

struct samples {
    unsigned calls;
    size_t n;
    struct sandbox_metric last;
    struct err why;
};

static void on_samples(void *arg, const struct sandbox_metric *items, size_t n,
                       const struct err *why)
{
    struct samples *s = arg;

    s->calls++;
    s->n = n;
    s->why = why ? *why : (struct err){0};
    if (n)
        s->last = items[n - 1];
}

static void metrics_are_fresh_and_bounded_by_the_window(void **state)
{
    struct world *w = *state;
    char id[IDS_SANDBOX_SIZE];
    struct samples s = {0};
    unsigned stats;

    world_create_default(w, id);
    core_sandbox_metrics(w->core, "default", id, 0, 0, on_samples, &s);
    core_sandbox_metrics(w->core, "default", id, 0, 0, on_samples, &s);
    assert_int_equal(s.calls, 0);
    world_run_until(w, &s.calls, 2);
    assert_int_equal(s.n, 1);
    assert_int_equal(s.last.cpu_count, 2);
    assert_true(s.last.memory_used_bytes == 1u << 20);
    stats = fake_counts(w->fake).stats;
    core_sandbox_metrics(w->core, "default", id, 1, 2, on_samples, &s);
    world_run_until(w, &s.calls, 3);
    assert_int_equal(s.n, 0);
    assert_int_equal(s.why.code, ERR_OK);
    assert_int_equal(fake_counts(w->fake).stats, stats);
    core_sandbox_metrics(w->core, "other", id, 0, 0, on_samples, &s);
    world_run_until(w, &s.calls, 4);
    assert_int_equal(s.why.code, ERR_NOT_FOUND);
}

/* In its first moment, what it used before its start would make many processors of two. */
static void a_first_sample_has_no_more_than_its_processors(void **state)
{
    struct world *w = *state;
    char id[IDS_SANDBOX_SIZE];
    struct samples s = {0};

    world_create_default(w, id);
    fake_set(w->fake, FAKE_CPU_MS, 3600000);
    core_sandbox_metrics(w->core, "default", id, 0, 0, on_samples, &s);
    world_run_until(w, &s.calls, 1);
    assert_int_equal(s.n, 1);
    assert_int_equal(s.last.cpu_count, 2);
    assert_true(s.last.cpu_used_pct > 199 && s.last.cpu_used_pct <= 200);
}

struct lines {
    unsigned calls;
    size_t n;
    char text[1024];
};

static void on_lines(void *arg, const struct sandbox_log *items, size_t n, const struct err *why)
{
    struct lines *l = arg;

    l->calls++;
    l->n = n;
    l->text[0] = '\0';
    for (size_t i = 0; i < n; i++) {
        assert_true(i == 0 || items[i].at_real_ms >= items[i - 1].at_real_ms);
        strncat(l->text, items[i].message, sizeof(l->text) - strlen(l->text) - 1);
        strncat(l->text, "|", sizeof(l->text) - strlen(l->text) - 1);
    }
}

static void logs_are_merged_and_survive_a_silent_agent(void **state)
{
    struct world *w = *state;
    char id[IDS_SANDBOX_SIZE];
    struct lines l = {0};

    world_create_default(w, id);
    core_sandbox_logs(w->core, "default", id, on_lines, &l);
    world_run_until(w, &l.calls, 1);
    assert_int_equal(l.n, 2);
    assert_ptr_equal(strstr(l.text, "process 7 started"), l.text);
    assert_non_null(strstr(l.text, "sandbox started from template host"));
    core_sandbox_logs(w->core, "other", id, on_lines, &l);
    world_run_until(w, &l.calls, 2);
    assert_int_equal(l.n, 0);
    fake_down(w->fake);
    world_run_for(w, 1100);
    core_sandbox_logs(w->core, "default", id, on_lines, &l);
    world_run_until(w, &l.calls, 3);
    assert_int_equal(l.n, 2);
    assert_non_null(strstr(l.text, "could not be read"));
}

static void on_status(void *arg, const struct core_status *s)
{
    *(struct core_status *)arg = *s;
}

static bool has_status;

static void on_status_flag(void *arg, const struct core_status *s)
{
    has_status = true;
    on_status(arg, s);
}

static bool status_arrived(struct world *w)
{
    return has_status;
}

static void status_tells_with_and_without_privd(void **state)
{
    struct world *w = *state;
    struct core_status s = {0};

    has_status = false;
    core_status(w->core, on_status_flag, &s);
    world_run_until_true(w, status_arrived);
    assert_true(s.privd_up && s.ready);
    assert_string_equal(s.disk_backend, "memory");
    assert_int_equal(s.n_pool, 2);
    assert_string_equal(s.pool[0].template, "host");
    assert_true(s.pool[0].ready == 3 && s.pool[0].target == 4 && s.pool[0].claims == 5 &&
                s.pool[0].misses == 6 && s.pool[0].refills == 7);
    assert_null(s.pool[1].template);
    fake_down(w->fake);
    world_run_until_true(w, world_is_not_ready);
    has_status = false;
    core_status(w->core, on_status_flag, &s);
    assert_false(has_status);
    world_run_until_true(w, status_arrived);
    assert_false(s.privd_up);
    assert_int_equal(s.n_pool, 0);
}

/* -- listings ---------------------------------------------------------------------------------- */

static size_t list_all(struct world *w, struct sandbox_filter f, char (*out)[IDS_SANDBOX_SIZE],
                       size_t max)
{
    char cursor[IDS_SANDBOX_SIZE];
    struct sandbox_page page;
    size_t n = 0;
    struct err e;

    do {
        CLEANUP_ARENA struct arena a;

        arena_init(&a, 1u << 20);
        assert_int_equal(core_sandbox_list(w->core, &f, &a, &page, &e), ERR_OK);
        assert_in_range(page.count, 0, f.limit);
        for (size_t i = 0; i < page.count; i++) {
            assert_in_range(n, 0, max - 1);
            memcpy(out[n++], page.items[i]->id, IDS_SANDBOX_SIZE);
        }
        if (page.count) {
            f.cursor_ms = page.items[page.count - 1]->started_real_ms;
            memcpy(cursor, page.items[page.count - 1]->id, sizeof(cursor));
            f.cursor_id = cursor;
        }
    } while (page.more);
    return n;
}

static void listings_are_ordered_filtered_and_paged(void **state)
{
    struct world *w = *state;
    struct sandbox_request r = world_request();
    struct sandbox_filter f = {.tenant = "default", .limit = 3};
    char up[32][IDS_SANDBOX_SIZE], down[32][IDS_SANDBOX_SIZE], id[IDS_SANDBOX_SIZE];
    struct sandbox_page page;
    CLEANUP_ARENA struct arena a;
    struct err e;
    size_t n;

    for (int i = 0; i < 10; i++) {
        r.metadata = json_pack("{s:s, s:i}", "odd", i % 2 ? "yes" : "no", "n", i);
        world_create(w, &r, id);
        json_decref(r.metadata);
    }
    r.metadata = NULL;
    r.tenant = "other";
    world_create(w, &r, id);

    f.ascending = true;
    n = list_all(w, f, up, 32);
    f.ascending = false;
    assert_int_equal(n, 10);
    assert_int_equal(list_all(w, f, down, 32), 10);
    for (size_t i = 0; i < n; i++) {
        assert_string_equal(up[i], down[n - 1 - i]);
        assert_true(i == 0 || core_sandbox_find(w->core, NULL, up[i - 1])->started_real_ms <=
                                  core_sandbox_find(w->core, NULL, up[i])->started_real_ms);
    }
    f.metadata = json_pack("{s:s}", "odd", "yes");
    assert_int_equal(list_all(w, f, down, 32), 5);
    json_decref((json_t *)f.metadata);
    f.metadata = json_pack("{s:s}", "none", "yes");
    assert_int_equal(list_all(w, f, down, 32), 0);
    json_decref((json_t *)f.metadata);
    f.metadata = NULL;
    f.paused = true;
    assert_int_equal(list_all(w, f, down, 32), 0);
    f.paused = false;
    f.template_name = "base";
    assert_int_equal(list_all(w, f, down, 32), 0);
    f.template_name = "nonsense";
    assert_int_equal(list_all(w, f, down, 32), 0);
    f.template_name = "host";
    f.started_after_ms = core_sandbox_find(w->core, NULL, up[9])->started_real_ms;
    assert_in_range(list_all(w, f, down, 32), 1, 9);

    arena_init(&a, 1u << 20);
    f = (struct sandbox_filter){.tenant = "default", .limit = 3};
    assert_int_equal(core_sandbox_list(w->core, &f, &a, &page, &e), ERR_OK);
    assert_true(page.more);
    assert_int_equal(page.total_running, 10);
    f.limit = 10;
    assert_int_equal(core_sandbox_list(w->core, &f, &a, &page, &e), ERR_OK);
    assert_false(page.more);
    f.limit = 1001;
    assert_int_equal(core_sandbox_list(w->core, &f, &a, &page, &e), ERR_INVALID);
}

static enum err_code set_network(struct world *w, const char *tenant, const char *id,
                                 struct network *network, bool internet, json_t *policy)
{
    const struct core_network n = {
        .network = network, .policy = policy, .allow_internet = internet};
    struct answer a = {0};

    core_sandbox_set_network(w->core, tenant, id, &n, world_on_answer, &a);
    assert_int_equal(a.calls, 0);
    world_run_until(w, &a.calls, 1);
    return a.why.code;
}

static void the_network_is_written_through(void **state)
{
    struct world *w = *state;
    const struct network_fields fields = {.shown = json_pack("{s:[s]}", "denyOut", "0.0.0.0/0")};
    struct network *network = network_new(&fields);
    json_t *policy = json_pack("{s:s}", "default", "public");
    json_t *wrong = json_pack("{s:s}", "default", "everything");
    char id[IDS_SANDBOX_SIZE];

    world_create_default(w, id);
    assert_int_equal(set_network(w, "default", id, network, true, NULL), ERR_OK);
    network_unref(network);
    json_decref(fields.shown);
    world_stop_core(w);
    world_start_core(w);
    assert_non_null(
        json_object_get(network_shown(core_sandbox_find(w->core, NULL, id)->network), "denyOut"));
    assert_true(core_sandbox_find(w->core, NULL, id)->allow_internet);
    assert_int_equal(set_network(w, "default", id, NULL, false, policy), ERR_OK);
    assert_null(core_sandbox_find(w->core, NULL, id)->network);
    assert_int_equal(set_network(w, "other", id, NULL, false, NULL), ERR_NOT_FOUND);
    assert_int_equal(set_network(w, "default", id, NULL, false, wrong), ERR_INVALID);
    world_stop_core(w);
    world_start_core(w);
    assert_true(json_equal(core_sandbox_find(w->core, NULL, id)->policy, policy));
    json_decref(policy);
    json_decref(wrong);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD(keys_tell_tenants),
        WORLD(a_revoked_key_opens_nothing),
        WORLD(keys_have_roles),
        WORLD(a_tenant_has_only_so_many_keys),
        WORLD(tokens_outlive_a_restart_and_differ),
        WORLD(base_gives_host_until_it_is_built),
        WORLD(a_removal_that_fails_leaves_what_is_there),
        WORLD(a_build_that_fails_says_why),
        WORLD(sockets_come_in_batches_and_an_idle_sandbox_holds_none),
        WORLD(a_sandbox_that_stands_still_for_a_moment_is_asked_again),
        WORLD(a_first_sample_has_no_more_than_its_processors),
        WORLD(metrics_are_fresh_and_bounded_by_the_window),
        WORLD(logs_are_merged_and_survive_a_silent_agent),
        WORLD(status_tells_with_and_without_privd),
        WORLD(listings_are_ordered_filtered_and_paged),
        WORLD(the_network_is_written_through),
    };

    return cmocka_run_group_tests_name("core_reads", tests, NULL, NULL);
}
