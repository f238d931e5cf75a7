/* Phases run in sequence, each with a callback that begins the next; a phase that failed ends in
 * i->done. Their order is in build_image.h. */
#include "core/build_image.h"

#include "base/clock.h"
#include "base/log.h"
#include "core/agent_file_call.h"
#include "core/build_command.h"
#include "core/core_internal.h"
#include "core/image_spool.h"
#include "core/template_tenant.h"
#include "http/json.h"
#include "policy/policy.h"

#include <stdio.h>
#include <string.h>

#define FETCHER     "host" /* the template with this machine's programs */
#define AUTH_FILE   "/dev/shm/cay-auth.json"
#define DIGEST_FILE BUILD_IMAGE_FOLDER ".digest"
#define DIGEST_MAX  4096u
#define TEXT_(n)    #n
#define TEXT(n)     TEXT_(n)

/* Of both scripts: where credentials are, and that messages come without time and level. Signatures
 * are not asked for: the image is for this tenant's sandboxes alone, which run what it likes. */
#define SCRIPT                                                                                    \
    "set -e -o pipefail; umask 077; export HOME=/root TMPDIR=/var/tmp; d=" BUILD_IMAGE_FOLDER     \
    "\na=(); [ ! -f " AUTH_FILE " ] || a=(--authfile=" AUTH_FILE ")\n"                            \
    "if ! command -v skopeo > /dev/null; then\n"                                                  \
    "echo 'skopeo, which fetches images, is not installed on this server' >&2; exit 1; fi\n"      \
    "s() { exec $t skopeo --insecure-policy --override-os=linux --override-arch=amd64 \"$@\" 2> " \
    ">(\n"                                                                                        \
    "sed 's/^time=\"[^\"]*\" level=[a-z]* msg=//' >&2); }\n"

/* $1 the image, $2 seconds, of both. */
static const char inspect_script[] = SCRIPT
    "t=\"timeout $2\"; r=0; (s inspect --raw \"${a[@]}\" -- \"$1\") > \"$d.raw\" || r=$?\n"
    "[ $r != 124 ] || echo \"the registry did not answer within $2 s\" >&2; [ $r = 0 ] || exit 1\n"
    "sha256sum < \"$d.raw\" > " DIGEST_FILE "; rm \"$d.raw\"";

/* $3: KiB that have to come in so many seconds. skopeo writes blobs into the folder as they come;
 * the watcher holds none of the command's pipes while it sleeps. */
static const char copy_script[] = SCRIPT
    "t=; (s copy --quiet --remove-signatures \"${a[@]}\" -- \"$1\" \"dir:$d\") & p=$!\n"
    "(had=0; while sleep \"$2\" < /dev/null > /dev/null 2>&1; do\n"
    "now=$(du -sk \"$d\" 2> /dev/null | cut -f1) || now=0\n"
    "if [ $((${now:-0} - had)) -lt \"$3\" ]; then\n"
    "echo \"the registry sent less than $3 KiB in $2 s\" >&2; kill $p; exit; fi\n"
    "had=$now; done) & w=$!\n"
    "r=0; wait $p || r=$?; kill $w 2> /dev/null || true; rm -f " AUTH_FILE "; exit $r";

/* -- the operator's lists ---------------------------------------------------------------------- */

/* As the policies of builds will have them. */
static enum err_code check_addresses(const struct core *c, struct err *e)
{
    static const struct image_reference any = {.host = "registry.example.com"};
    json_t *json = image_reference_policy(&any, NULL, c->config.image_addresses);
    struct policy *p = NULL;
    struct err why;
    enum err_code code = json ? policy_new(json, &p, &why)
                              : err_set(&why, ERR_EXHAUSTED, "memory is out");

    json_decref(json);
    policy_free(p);
    return code == ERR_OK ? ERR_OK
                          : err_set(e, ERR_INVALID, "[images] addresses: found \"%.100s\": %.200s",
                                    c->config.image_addresses, why.text);
}

enum err_code build_image_check_config(const struct core *c, struct err *e)
{
    const char *registries = image_registries_wrong(c->config.image_registries);
    const char *hosts = image_hosts_wrong(c->config.image_hosts);

    if (registries)
        return err_set(e, ERR_INVALID, "[images] registries: found \"%.100s\": %s",
                       c->config.image_registries, registries);
    if (hosts)
        return err_set(e, ERR_INVALID, "[images] hosts: found \"%.100s\": %s",
                       c->config.image_hosts, hosts);
    return check_addresses(c, e);
}

/* -- which are needed -------------------------------------------------------------------------- */

static bool is_used(const struct core *c, const char *id)
{
    for (const struct build_obj *o = c->builds; o; o = o->next)
        if (o->run && o->run->image && strcmp(o->run->image->read.id, id) == 0)
            return true;
    return false;
}

void build_image_on_due(struct timer *t)
{
    template_tenant_sweep(CONTAINER_OF(t, struct core, images_due), is_used);
}

static void unlink_image(struct build_image *i)
{
    for (struct build_image **at = &i->r->core->images; *at; at = &(*at)->next)
        if (*at == i) {
            *at = i->next;
            return;
        }
}

void build_image_free(struct build_run *r)
{
    struct build_image *i = r->image;

    if (!i)
        return;
    unlink_image(i);
    timers_cancel(&r->core->timers, &i->again);
    build_image_read_free(r->core, &i->read);
    free(TAKE_PTR(r->image));
    template_images_poke(r->core);
}

/* The build may be gone afterwards. */
static void over(struct build_image *i)
{
    unlink_image(i);
    i->done(i->r);
}

/* An image that is too big for the build stays until it is removed: it is of no use to another
 * build either. */
static void use(struct build_image *i)
{
    struct build_run *r = i->r;
    struct err e;

    if (quota_check_template_bytes(r->o->tenant, 0, &e) != ERR_OK)
        build_run_fail(r, "%.200s: %s; %s", i->read.source, e.text, e.hint);
    r->spec.from = i->read.id;
    over(i);
}

/* -- 4: the template --------------------------------------------------------------------------- */

static void on_progress(void *arg, unsigned percent, const char *text)
{
    struct build_image *i = arg;

    if (text && *text && !i->r->core->stopping)
        build_log_add(&i->r->o->log, "info", i->r->step, "%s", text);
}

/* Of the few jobs that cay-privd runs at a time some are for the operator and for removals. */
static bool has_job(const struct build_image *i)
{
    unsigned n = 0;

    for (const struct build_image *other = i->r->core->images; other; other = other->next)
        n += other->unpacking;
    return n < BUILD_IMAGE_JOBS_MAX;
}

/* How big it is cay-privd tells after it has said that it is there. */
static void weigh(struct timer *t)
{
    struct build_image *i = CONTAINER_OF(t, struct build_image, again);
    const struct template_info *info = core_template_by_id(i->r->core, i->read.id);

    if (info && info->size_bytes == 0 && i->weighed++ < BUILD_IMAGE_WEIGHED_MAX)
        timers_set(&i->r->core->timers, t, clock_mono_ms() + BUILD_IMAGE_AGAIN_MS);
    else
        use(i);
}

static void on_made(void *arg, const struct sandbox *s, const struct err *why);

static void unpack(struct timer *t)
{
    struct build_image *i = CONTAINER_OF(t, struct build_image, again);
    struct timers *all = &i->r->core->timers;

    if (has_job(i)) {
        i->unpacking = true;
        core_template_build(i->r->core, i->read.id, on_progress, on_made, i);
    } else {
        timers_set(all, t, clock_mono_ms() + BUILD_IMAGE_AGAIN_MS);
    }
}

static bool is_refused_for_now(const struct build_image *i, const struct err *why)
{
    return why && why->code == ERR_CONFLICT && clock_mono_ms() < i->r->until_ms;
}

static void on_made(void *arg, const struct sandbox *s, const struct err *why)
{
    struct build_image *i = arg;

    if (i->r->core->stopping)
        return;
    i->unpacking = false;
    if (is_refused_for_now(i, why)) { /* too many jobs */
        timers_set(&i->r->core->timers, &i->again, clock_mono_ms() + BUILD_IMAGE_AGAIN_MS);
        return;
    }
    image_spool_remove(i->r->core, i->read.number);
    i->read.spooled = false;
    if (why) {
        build_run_fail(i->r, "%.200s: %s", i->read.source, why->text);
        over(i);
    } else {
        i->again.fire = weigh;
        weigh(&i->again);
    }
}

static void on_fetcher_gone(void *arg, const struct sandbox *s, const struct err *why)
{
    struct build_image *i = arg;

    if (i->r->core->stopping)
        return;
    if (why && why->code != ERR_NOT_FOUND)
        log_warn("build %s: its sandbox %s: %s", i->r->o->b.id, i->r->sandbox, why->text);
    i->r->sandbox[0] = '\0';
    if (i->read.spooled) {
        i->again.fire = unpack;
        unpack(&i->again);
    } else {
        use(i);
    }
}

static void end_fetcher(struct build_image *i)
{
    core_sandbox_kill(i->r->core, i->r->o->b.tenant, i->r->sandbox, on_fetcher_gone, i);
}

/* -- 3: fetching ------------------------------------------------------------------------------- */

static void on_read(struct build_run *r)
{
    if (r->failed)
        over(r->image);
    else
        end_fetcher(r->image);
}

static void run_script(struct build_image *i, const char *script, core_exec_cb done)
{
    const struct build_command c = {.user = "root",
                                    .cwd = "/",
                                    .cmd = "/bin/bash",
                                    .args = json_pack("[s, s, s, s, s, s]", "-c", script, "bash",
                                                      i->read.source, TEXT(BUILD_IMAGE_STALL_S),
                                                      TEXT(BUILD_IMAGE_STALL_KIB)),
                                    .logged = true,
                                    .timeout_ms = BUILD_IMAGE_FETCH_MS};

    build_log_command(&i->r->o->log, i->r->step, true);
    build_command(i->r, &c, done);
}

static bool ran(struct build_image *i, const struct core_exec_result *x, const struct err *why)
{
    char what[IMAGE_SOURCE_SIZE + 16];

    if (i->r->core->stopping)
        return false;
    (void)snprintf(what, sizeof(what), "fetching %s", i->read.source);
    if (x && x->timed_out)
        build_run_fail(i->r, "%s: it was not there within %u s", what, BUILD_IMAGE_FETCH_MS / 1000);
    if (!build_command_failed(i->r, what, x, why))
        return true;
    over(i);
    return false;
}

static void on_copied(void *arg, const struct core_exec_result *x, const struct err *why)
{
    struct build_image *i = ((struct build_run *)arg)->image;

    if (ran(i, x, why))
        build_image_read_begin(i->r, &i->read, on_read);
}

static bool use_known(struct build_image *i)
{
    const struct template_info *t = template_tenant_find(i->r->core, i->r->o->b.tenant,
                                                         i->read.digest);

    if (!t)
        return false;
    (void)snprintf(i->read.id, sizeof(i->read.id), "%s", t->id);
    build_log_add(&i->r->o->log, "info", i->r->step, "CACHED %s", i->read.digest);
    return true;
}

/* -- 2: the digest ----------------------------------------------------------------------------- */

/* "HEX  -" */
static bool take_digest(struct build_image *i, const char *body, size_t len)
{
    char digest[IMAGE_DIGEST_SIZE];

    (void)snprintf(digest, sizeof(digest), "sha256:%.*s", (int)MIN(len, (size_t)64), body);
    if (!image_digest_is_valid(digest))
        return false;
    memcpy(i->read.digest, digest, sizeof(digest));
    return true;
}

static void on_digest(void *arg, const struct err *why, int status, const char *body, size_t len)
{
    struct build_image *i = arg;

    if (i->r->core->stopping)
        return;
    if (why || status / 100 != 2 || !body || !take_digest(i, body, len)) {
        build_run_fail(i->r, "%.200s: its digest cannot be read: %s", i->read.source,
                       why ? why->text : "the sandbox's agent does not have it");
        over(i);
    } else if (use_known(i)) {
        end_fetcher(i);
    } else {
        image_reference_source(&i->ref, i->read.digest, i->read.source);
        build_log_add(&i->r->o->log, "info", i->r->step, "%s", i->read.source);
        run_script(i, copy_script, on_copied);
    }
}

static void on_inspected(void *arg, const struct core_exec_result *x, const struct err *why)
{
    static const struct core_agent_file_call call = {.method = "GET",
                                                     .target = "/files?path=" DIGEST_FILE
                                                               "&username=root",
                                                     .max_response = DIGEST_MAX};
    struct build_image *i = ((struct build_run *)arg)->image;

    if (ran(i, x, why))
        core_agent_file_call(i->r->core, i->r->o->b.tenant, i->r->sandbox, &call, on_digest, i);
}

static void on_authorized(struct build_run *r)
{
    if (r->core->stopping)
        return;
    if (r->failed)
        over(r->image);
    else
        run_script(r->image, inspect_script, on_inspected);
}

static void on_fetcher(void *arg, const struct sandbox *s, const struct err *why)
{
    struct build_image *i = arg;
    CLEANUP_FREE char *auth = NULL;

    if (i->r->core->stopping)
        return;
    if (!s) {
        build_run_fail(i->r, "%s%s%s", why->text, why->hint[0] ? "; " : "", why->hint);
        over(i);
        return;
    }
    memcpy(i->r->sandbox, s->id, sizeof(i->r->sandbox));
    auth = build_spec_auth(&i->r->spec, i->ref.host);
    if (i->r->spec.username && !auth) { /* without it the registry would answer as to a stranger */
        build_run_fail(i->r, "memory is out");
        over(i);
    } else if (auth)
        build_write_file(i->r, AUTH_FILE, auth, on_authorized);
    else
        on_authorized(i->r);
}

static void make_fetcher(struct build_image *i)
{
    struct build_run *r = i->r;
    json_t *policy = image_reference_policy(&i->ref, r->core->config.image_hosts,
                                            r->core->config.image_addresses);
    json_t *metadata = json_pack("{s:s, s:s}", "cay.build", r->o->b.name, "cay.build.id",
                                 r->o->b.id);
    const struct sandbox_request request = {.tenant = r->o->b.tenant,
                                            .template_name = FETCHER,
                                            .secure = true,
                                            .allow_internet = true,
                                            .ttl_ms = r->ttl_ms,
                                            .metadata = metadata,
                                            .policy = policy};

    i->since_ms = clock_mono_ms();
    i->next = r->core->images;
    r->core->images = i;
    if (policy && metadata) {
        core_sandbox_create(r->core, &request, on_fetcher, i);
    } else { /* without a policy it would be let out everywhere */
        build_run_fail(r, "memory is out");
        over(i);
    }
    json_decref(metadata);
    json_decref(policy);
}

/* -- 1: may it be, and is there a place -------------------------------------------------------- */

static bool may_begin(const struct build_image *i)
{
    struct build_image_counts p = {0};
    uint64_t now = clock_mono_ms();

    for (const struct build_image *other = i->r->core->images; other; other = other->next) {
        if (now - other->since_ms < BUILD_IMAGE_SLOW_MS)
            p.fresh++;
        else
            p.slow++;
        p.own += strcmp(other->r->o->b.tenant, i->r->o->b.tenant) == 0;
    }
    return build_image_may_begin(&p);
}

static void on_again(struct timer *t)
{
    struct build_image *i = CONTAINER_OF(t, struct build_image, again);
    uint64_t now = clock_mono_ms();

    if (i->ref.digest[0] && use_known(i)) {
        use(i);
    } else if (may_begin(i)) {
        make_fetcher(i);
    } else if (now > i->r->until_ms) {
        build_run_fail(i->r, "the time of the build is over: other images were fetched");
        over(i);
    } else {
        timers_set(&i->r->core->timers, &i->again, now + BUILD_IMAGE_AGAIN_MS);
    }
}

static bool is_allowed(struct build_image *i)
{
    struct build_run *r = i->r;
    struct err e;

    if (image_reference_parse(r->spec.from, &i->ref, &e) != ERR_OK) {
        build_run_fail(r, "%s", e.text);
        return false;
    }
    if (image_reference_is_allowed(r->core->config.image_registries, &i->ref))
        return true;
    build_run_fail(r,
                   "there is no template '%.100s', and this server takes no images from %s/%s: its "
                   "operator allows registries by `registries` of [images] in the settings, or "
                   "makes a template of the image: `cay template import NAME SOURCE`",
                   r->spec.from, i->ref.host, i->ref.repository);
    return false;
}

static void begin(struct build_run *r)
{
    struct build_image *i = r->image;

    if (r->core->stopping)
        return;
    if (!i || !is_allowed(i)) {
        if (!i)
            build_run_fail(r, "memory is out");
        r->written(r);
        return;
    }
    image_reference_source(&i->ref, NULL, i->read.source);
    memcpy(i->read.digest, i->ref.digest, sizeof(i->read.digest));
    build_log_add(&r->o->log, "info", r->step, "FROM %.200s", r->spec.from);
    on_again(&i->again);
}

void build_image_begin(struct build_run *r, void (*done)(struct build_run *r))
{
    r->image = calloc(1, sizeof(*r->image));
    r->written = done; /* where there is no memory for more */
    if (r->image) {
        r->image->r = r;
        r->image->done = done;
        r->image->read.fd = -1;
        r->image->again.fire = on_again;
    }
    build_command_later(r, begin);
}
