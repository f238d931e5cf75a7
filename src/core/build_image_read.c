/* Requests ranges of a file from the sandbox's agent, one at a time; each is written and hashed
 * before the next is requested. A folder of skopeo's form "dir" has a blob under the hex digits of
 * its digest. */
#include "core/build_image_read.h"

#include "base/clock.h"
#include "core/agent_file_call.h"
#include "core/build_command.h"
#include "core/core_internal.h"
#include "core/image_spool.h"
#include "core/template_tenant.h"
#include "http/digest.h"
#include "http/json.h"
#include "image/layer_names.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

#define HEX_AT 7 /* in a digest: after "sha256:" */

void build_image_read_free(struct core *c, struct build_image_read *m)
{
    util_close(&m->fd);
    EVP_MD_CTX_free(m->sum);
    m->sum = NULL;
    image_config_free(&m->config);
    if (m->spooled)
        image_spool_remove(c, m->number);
    m->spooled = false;
}

static void fail(struct build_image_read *m, const struct err *e)
{
    build_run_fail(m->r, "%.200s: %s%s%s", m->source, e->text, e->hint[0] ? "; " : "", e->hint);
    m->done(m->r);
}

/* -- asking ------------------------------------------------------------------------------------ */

static void request(struct build_image_read *m, const char *name, const char *range, size_t most,
                    core_agent_cb done)
{
    char target[256];
    const struct core_agent_file_call call = {
        .method = "GET", .target = target, .range = range, .max_response = most};

    (void)snprintf(target, sizeof(target), "/files?path=" BUILD_IMAGE_FOLDER "/%s&username=root",
                   name);
    core_agent_file_call(m->r->core, m->r->o->b.tenant, m->r->sandbox, &call, done, m);
}

/* true: the build goes on, and body has the answer. */
static bool is_answer(struct build_image_read *m, const struct err *why, int status)
{
    struct err e;

    if (m->r->core->stopping)
        return false;
    if (!why && status / 100 == 2)
        return true;
    if (why)
        err_set(&e, why->code, "reading it: %s", why->text);
    else
        err_set(&e, ERR_UNAVAILABLE, "reading it: the sandbox's agent answered %d", status);
    fail(m, &e);
    return false;
}

static bool is_digest_of(const char *digest, const char *body, size_t len)
{
    unsigned char sum[DIGEST_SHA256_SIZE];
    char hex[2 * DIGEST_SHA256_SIZE + 1];

    digest_sha256(body, len, sum);
    ids_hex(sum, sizeof(sum), hex);
    return strcmp(hex, digest + HEX_AT) == 0;
}

/* -- 3: notes ---------------------------------------------------------------------------------- */

static enum err_code put_json(const struct build_image_read *m, const char *name, json_t *value,
                              struct err *e)
{
    CLEANUP_FREE char *text = json_text(value, JSON_INDENT(1));

    json_decref(value);
    return image_spool_note(m->r->core, m->number, name, text, e);
}

static void put_notes(struct build_image_read *m)
{
    const struct core *c = m->r->core;
    char layers[IMAGE_LAYER_NAMES_SIZE];
    struct err e;

    if (image_layer_names(m->r->o->b.tenant, &m->manifest, layers) < 0) {
        err_set(&e, ERR_EXHAUSTED, "memory is out");
        fail(m, &e);
        return;
    }
    if (image_spool_note(c, m->number, "layers", layers, &e) != ERR_OK ||
        put_json(m, "start.json", json_pack("{s:O}", "env", m->config.env), &e) != ERR_OK ||
        put_json(m, "image.json", image_config_note(&m->config, m->source, m->digest), &e) !=
            ERR_OK ||
        (m->config.cwd[0] && image_spool_note(c, m->number, "cwd", m->config.cwd, &e) != ERR_OK))
        fail(m, &e);
    else
        m->done(m->r);
}

/* -- 2: layers --------------------------------------------------------------------------------- */

static void next_piece(struct build_image_read *m);

static enum err_code begin_layer(struct build_image_read *m, struct err *e)
{
    const struct image_blob *b = &m->manifest.layers[m->layer];

    m->at = 0;
    if (!m->sum)
        m->sum = EVP_MD_CTX_new();
    if (!m->sum || EVP_DigestInit_ex(m->sum, EVP_sha256(), NULL) != 1)
        return err_set(e, ERR_EXHAUSTED, "memory is out");
    m->fd = image_spool_open(m->r->core, m->number, m->layer, b->size, e);
    return m->fd < 0 ? e->code : ERR_OK;
}

static enum err_code end_layer(struct build_image_read *m, struct err *e)
{
    unsigned char sum[DIGEST_SHA256_SIZE];
    char hex[2 * DIGEST_SHA256_SIZE + 1];

    util_close(&m->fd);
    if (EVP_DigestFinal_ex(m->sum, sum, NULL) != 1)
        return err_set(e, ERR_EXHAUSTED, "memory is out");
    ids_hex(sum, sizeof(sum), hex);
    m->layer++;
    return strcmp(hex, m->manifest.layers[m->layer - 1].digest + HEX_AT) == 0
               ? ERR_OK
               : err_set(e, ERR_INVALID, "layer %zu has not the digest that the manifest says",
                         m->layer);
}

static enum err_code take_piece(struct build_image_read *m, const char *body, size_t len,
                                struct err *e)
{
    uint64_t left = m->manifest.layers[m->layer].size - m->at;

    if (!body || len == 0 || len > left)
        return err_set(e, ERR_INVALID, "layer %zu has not the length that the manifest says",
                       m->layer + 1);
    if (clock_mono_ms() > m->r->until_ms)
        return err_set(e, ERR_TIMEOUT, "the time of the build is over");
    if (image_spool_write(m->fd, body, len, m->layer, e) != ERR_OK)
        return e->code;
    if (EVP_DigestUpdate(m->sum, body, len) != 1)
        return err_set(e, ERR_EXHAUSTED, "memory is out");
    m->at += len;
    return ERR_OK;
}

static void on_piece(void *arg, const struct err *why, int status, const char *body, size_t len)
{
    struct build_image_read *m = arg;
    struct err e;

    if (!is_answer(m, why, status))
        return;
    if (take_piece(m, body, len, &e) != ERR_OK)
        fail(m, &e);
    else
        next_piece(m);
}

static void next_piece(struct build_image_read *m)
{
    const struct image_blob *b = &m->manifest.layers[m->layer];
    char range[CORE_AGENT_RANGE_SIZE];
    struct err e = {.code = ERR_OK};

    if (m->fd >= 0 && m->at == b->size && end_layer(m, &e) == ERR_OK)
        b++;
    if (e.code == ERR_OK && m->layer == m->manifest.count) {
        put_notes(m);
        return;
    }
    if (e.code != ERR_OK || (m->fd < 0 && begin_layer(m, &e) != ERR_OK)) {
        fail(m, &e);
        return;
    }
    (void)snprintf(range, sizeof(range), "bytes=%llu-%llu", (unsigned long long)m->at,
                   (unsigned long long)MIN(m->at + BUILD_IMAGE_PIECE_BYTES, b->size) - 1);
    request(m, b->digest + HEX_AT, range, BUILD_IMAGE_PIECE_BYTES, on_piece);
}

/* -- 1: manifest and configuration ------------------------------------------------------------- */

static enum err_code make_template(struct build_image_read *m, struct err *e)
{
    const struct template_info *t;
    struct core *c = m->r->core;

    if (quota_check_template_bytes(m->r->o->tenant, 1, e) != ERR_OK ||
        template_tenant_new(c, m->r->o->b.tenant, m->source, m->digest, &t, e) != ERR_OK)
        return e->code;
    (void)snprintf(m->id, sizeof(m->id), "%s", t->id);
    m->number = t->number;
    m->spooled = true;
    return image_spool_make(c, m->number, e);
}

static enum err_code check_layers(const struct build_image_read *m, struct err *e)
{
    for (size_t i = 0; i < m->manifest.count; i++)
        if (m->manifest.layers[i].size == 0 || m->manifest.layers[i].size > IMAGE_BLOB_MAX)
            return err_set(e, ERR_INVALID, "layer %zu cannot have %llu bytes", i + 1,
                           (unsigned long long)m->manifest.layers[i].size);
    return m->manifest.count > 0 ? ERR_OK : err_set(e, ERR_INVALID, "it has no layers");
}

static void on_config(void *arg, const struct err *why, int status, const char *body, size_t len)
{
    struct build_image_read *m = arg;
    struct err e;

    if (!is_answer(m, why, status))
        return;
    if (!body || !is_digest_of(m->manifest.config.digest, body, len))
        err_set(&e, ERR_INVALID, "its configuration has not the digest that the manifest says");
    else if (image_config_parse(body, len, &m->config, &e) == ERR_OK &&
             check_layers(m, &e) == ERR_OK && make_template(m, &e) == ERR_OK)
        e.code = ERR_OK;
    if (e.code != ERR_OK)
        fail(m, &e);
    else
        next_piece(m);
}

static void on_manifest(void *arg, const struct err *why, int status, const char *body, size_t len)
{
    struct build_image_read *m = arg;
    struct err e;

    if (!is_answer(m, why, status))
        return;
    if (image_manifest_parse(body ? body : "", body ? len : 0, &m->manifest, &e) != ERR_OK)
        fail(m, &e);
    else
        request(m, m->manifest.config.digest + HEX_AT, NULL, IMAGE_TEXT_MAX, on_config);
}

void build_image_read_begin(struct build_run *r, struct build_image_read *m,
                            void (*done)(struct build_run *r))
{
    m->r = r;
    m->done = done;
    request(m, "manifest.json", NULL, IMAGE_TEXT_MAX, on_manifest);
}
