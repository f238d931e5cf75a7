/* Each document is parsed whole, then read value by value into a struct of fixed size; an error
 * names the part. A choice (from an index, manifest.json) that finds nothing names the entries that
 * are there. */
#include "image/manifest.h"

#include "base/env_name.h"
#include "base/util.h"

#include <stdio.h>
#include <string.h>

#define OS   "linux"
#define ARCH "amd64"

#define REF_NAME       "org.opencontainers.image.ref.name"
#define CONTAINERD_REF "io.containerd.image.name"

/* -- values ------------------------------------------------------------------------------------ */

static json_t *parse(const char *what, const char *text, size_t len, struct err *e)
{
    json_error_t at;
    json_t *root;

    if (len > IMAGE_TEXT_MAX) {
        err_set(e, ERR_TOO_LARGE, "%s has over %u MiB", what, IMAGE_TEXT_MAX >> 20);
        return NULL;
    }
    root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &at);
    if (!root)
        err_set(e, ERR_INVALID, "%s is not JSON: line %d: %s", what, at.line, at.text);
    return root;
}

bool image_digest_is_valid(const char *text)
{
    return strncmp(text, "sha256:", 7) == 0 && strlen(text) == IMAGE_DIGEST_SIZE - 1 &&
           strspn(text + 7, "0123456789abcdef") == 64;
}

static const char *text_of(const json_t *object, const char *name)
{
    return json_string_value(json_object_get(object, name));
}

static enum err_code read_digest(const char *text, const char *what, char *out, struct err *e)
{
    if (!text || !image_digest_is_valid(text))
        return err_set(e, ERR_INVALID, "%s: \"%.80s\" is not a SHA-256 digest", what,
                       text ? text : "");
    memcpy(out, text, IMAGE_DIGEST_SIZE);
    return ERR_OK;
}

static enum err_code read_blob(const json_t *object, const char *what, uint64_t max,
                               struct image_blob *out, struct err *e)
{
    const json_t *size = json_object_get(object, "size");

    if (read_digest(text_of(object, "digest"), what, out->digest, e) != ERR_OK)
        return e->code;
    if (!json_is_integer(size) || json_integer_value(size) < 0)
        return err_set(e, ERR_INVALID, "%s %s has no size", what, out->digest);
    out->size = (uint64_t)json_integer_value(size);
    if (out->size > max)
        return err_set(e, ERR_TOO_LARGE, "%s %s is said to have %llu bytes, allowed are %llu", what,
                       out->digest, (unsigned long long)out->size, (unsigned long long)max);
    return ERR_OK;
}

/* A list of texts without NULs (jansson refuses those); absent or null: empty. A new reference. */
static json_t *read_texts(const json_t *object, const char *name, struct err *e)
{
    json_t *all = json_object_get(object, name), *item;
    size_t i;

    if (!all || json_is_null(all))
        return json_array();
    if (!json_is_array(all) || json_array_size(all) > IMAGE_ENTRIES_MAX)
        err_set(e, ERR_INVALID, "the configuration's %s is not a list of at most %u texts", name,
                IMAGE_ENTRIES_MAX);
    else {
        json_array_foreach (all, i, item)
            if (!json_is_string(item)) {
                err_set(e, ERR_INVALID, "the configuration's %s has something other than texts",
                        name);
                return NULL;
            }
        return json_incref(all);
    }
    return NULL;
}

/* -- index ------------------------------------------------------------------------------------- */

/* Attestations and the like have a platform of their own, "unknown". */
static bool is_for_us(const json_t *entry)
{
    const json_t *platform = json_object_get(entry, "platform");
    const char *os = text_of(platform, "os"), *arch = text_of(platform, "architecture");

    return (!os || strcmp(os, OS) == 0) && (!arch || strcmp(arch, ARCH) == 0);
}

static bool has_tag(const json_t *entry, const char *tag)
{
    const json_t *notes = json_object_get(entry, "annotations");
    const char *name = text_of(notes, REF_NAME), *full = text_of(notes, CONTAINERD_REF);

    return !tag || (name && strcmp(name, tag) == 0) || (full && strcmp(full, tag) == 0);
}

enum kind { KIND_OTHER, KIND_MANIFEST, KIND_INDEX };

static enum kind kind_of(const json_t *entry)
{
    static const struct {
        const char *type;
        enum kind kind;
    } known[] = {
        {"application/vnd.oci.image.manifest.v1+json", KIND_MANIFEST},
        {"application/vnd.docker.distribution.manifest.v2+json", KIND_MANIFEST},
        {"application/vnd.oci.image.index.v1+json", KIND_INDEX},
        {"application/vnd.docker.distribution.manifest.list.v2+json", KIND_INDEX},
    };
    const char *type = text_of(entry, "mediaType");

    for (size_t i = 0; type && i < ARRAY_SIZE(known); i++)
        if (strcmp(type, known[i].type) == 0)
            return known[i].kind;
    return KIND_OTHER;
}

/* The platforms or names that there are instead, for the error. */
static void describe(const json_t *all, char *out, size_t size)
{
    size_t i, used = 0;
    json_t *entry;

    out[0] = '\0';
    json_array_foreach (all, i, entry) {
        const json_t *platform = json_object_get(entry, "platform");
        const char *name = text_of(json_object_get(entry, "annotations"), REF_NAME);
        const char *os = text_of(platform, "os"), *arch = text_of(platform, "architecture");

        if (used < size)
            used += (size_t)snprintf(out + used, size - used, "%s%.40s (%.20s/%.20s)",
                                     i ? ", " : "", name ? name : "no tag", os ? os : "any",
                                     arch ? arch : "any");
    }
}

static enum err_code pick(const json_t *all, const char *tag, struct image_blob *out,
                          bool *is_index, struct err *e)
{
    const json_t *found = NULL, *entry;
    char there[160];
    size_t i;

    for (i = 0; i < json_array_size(all); i++) {
        entry = json_array_get(all, i);
        if (kind_of(entry) == KIND_OTHER || !is_for_us(entry) || !has_tag(entry, tag))
            continue;
        if (found) {
            describe(all, there, sizeof(there));
            err_set(e, ERR_INVALID, "the index has several images: %s", there);
            err_hint(e, "name one by its tag: SOURCE:TAG");
            return ERR_INVALID;
        }
        found = entry;
    }
    if (!found) {
        describe(all, there, sizeof(there));
        return err_set(e, ERR_NOT_FOUND,
                       "the index has no image for " OS "/" ARCH "%s%.80s; it has: %s",
                       tag ? " with the tag " : "", tag ? tag : "", there[0] ? there : "nothing");
    }
    *is_index = kind_of(found) == KIND_INDEX;
    return read_blob(found, "manifest", IMAGE_TEXT_MAX, out, e);
}

enum err_code image_index_parse(const char *text, size_t len, const char *tag,
                                struct image_blob *out, bool *is_index, struct err *e)
{
    json_t *root = parse("the index", text, len, e);
    const json_t *all = json_object_get(root, "manifests");

    if (!root)
        return e->code;
    *e = (struct err){.code = ERR_OK};
    if (json_integer_value(json_object_get(root, "schemaVersion")) != 2 || !json_is_array(all) ||
        json_array_size(all) > IMAGE_ENTRIES_MAX)
        err_set(e, ERR_INVALID, "the index is not one of version 2 with at most %u images",
                IMAGE_ENTRIES_MAX);
    else
        pick(all, tag, out, is_index, e);
    json_decref(root);
    return e->code;
}

/* -- manifest ---------------------------------------------------------------------------------- */

static bool is_layer_type(const char *type)
{
    static const char *const known[] = {
        "application/vnd.oci.image.layer.v1.tar",
        "application/vnd.oci.image.layer.v1.tar+gzip",
        "application/vnd.oci.image.layer.v1.tar+zstd",
        "application/vnd.docker.image.rootfs.diff.tar",
        "application/vnd.docker.image.rootfs.diff.tar.gzip",
        "application/vnd.docker.image.rootfs.diff.tar.zstd",
    };

    for (size_t i = 0; type && i < ARRAY_SIZE(known); i++)
        if (strcmp(type, known[i]) == 0)
            return true;
    return false;
}

static enum err_code read_layers(const json_t *all, struct image_manifest *out, struct err *e)
{
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *entry = json_array_get(all, i);
        const char *type = text_of(entry, "mediaType");

        if (!is_layer_type(type))
            return err_set(e, ERR_INVALID, "layer %zu is of the type \"%.80s\", which is not known",
                           i, type ? type : "");
        if (read_blob(entry, "layer", IMAGE_BLOB_MAX, &out->layers[i], e) != ERR_OK)
            return e->code;
        out->count = i + 1;
    }
    return ERR_OK;
}

static bool is_again(const struct image_manifest *m, size_t at)
{
    for (size_t i = 0; i < at; i++)
        if (strcmp(m->layers[i].digest, m->layers[at].digest) == 0)
            return true;
    return false;
}

enum err_code image_layers_check(const struct image_manifest *m, struct err *e)
{
    uint64_t all = 0, again = 0; /* 128 sizes of at most 64 GiB */

    for (size_t i = 0; i < m->count; i++) {
        all += m->layers[i].size;
        again += is_again(m, i) ? m->layers[i].size : 0;
    }
    if (all > IMAGE_BLOB_MAX)
        return err_set(e, ERR_TOO_LARGE, "its layers are said to have %llu bytes, allowed are %llu",
                       (unsigned long long)all, (unsigned long long)IMAGE_BLOB_MAX);
    if (again > IMAGE_AGAIN_MAX)
        return err_set(e, ERR_TOO_LARGE,
                       "layers that it names more than once have %llu bytes beside the first of "
                       "each, allowed are %llu",
                       (unsigned long long)again, (unsigned long long)IMAGE_AGAIN_MAX);
    return ERR_OK;
}

enum err_code image_manifest_parse(const char *text, size_t len, struct image_manifest *out,
                                   struct err *e)
{
    json_t *root = parse("the manifest", text, len, e);
    const json_t *layers = json_object_get(root, "layers");

    *out = (struct image_manifest){.count = 0};
    if (!root)
        return e->code;
    *e = (struct err){.code = ERR_OK};
    if (json_integer_value(json_object_get(root, "schemaVersion")) != 2 || !json_is_array(layers))
        err_set(e, ERR_INVALID, "the manifest is not one of an image of version 2");
    else if (json_array_size(layers) == 0 || json_array_size(layers) > IMAGE_LAYERS_MAX)
        err_set(e, ERR_TOO_LARGE, "the image has %zu layers, allowed are 1 to %u",
                json_array_size(layers), IMAGE_LAYERS_MAX);
    else if (read_blob(json_object_get(root, "config"), "configuration", IMAGE_TEXT_MAX,
                       &out->config, e) == ERR_OK &&
             read_layers(layers, out, e) == ERR_OK)
        image_layers_check(out, e);
    json_decref(root);
    return e->code;
}

/* -- configuration ----------------------------------------------------------------------------- */

static enum err_code read_diff_ids(const json_t *root, struct image_config *out, struct err *e)
{
    const json_t *fs = json_object_get(root, "rootfs"), *all = json_object_get(fs, "diff_ids");
    const char *type = text_of(fs, "type");

    if (!type || strcmp(type, "layers") != 0 || !json_is_array(all) ||
        json_array_size(all) > IMAGE_LAYERS_MAX)
        return err_set(e, ERR_INVALID, "the configuration has no rootfs of at most %u layers",
                       IMAGE_LAYERS_MAX);
    for (size_t i = 0; i < json_array_size(all); i++)
        if (read_digest(json_string_value(json_array_get(all, i)), "diff_id", out->diff_ids[i],
                        e) != ERR_OK)
            return e->code;
    out->count = json_array_size(all);
    return ERR_OK;
}

static enum err_code read_env(const json_t *config, struct image_config *out, struct err *e)
{
    json_t *all = read_texts(config, "Env", e), *item;
    size_t i;

    out->env = json_object();
    if (!all || !out->env) {
        json_decref(all);
        return all ? err_set(e, ERR_EXHAUSTED, "memory is out") : e->code;
    }
    json_array_foreach (all, i, item) {
        const char *text = json_string_value(item), *end = strchr(text, '=');
        CLEANUP_FREE char *name = strndup(text, end ? (size_t)(end - text) : 0);

        if (name && env_name_is_valid(name))
            json_object_set_new(out->env, name, json_string(end + 1));
        else
            out->env_left_out++;
    }
    json_decref(all);
    return ERR_OK;
}

static enum err_code read_ports(const json_t *config, struct image_config *out, struct err *e)
{
    json_t *ports = json_object_get(config, "ExposedPorts");
    const char *name;
    json_t *value;

    out->ports = json_array();
    if (!ports || json_is_null(ports))
        return ERR_OK;
    if (!json_is_object(ports) || json_object_size(ports) > IMAGE_ENTRIES_MAX)
        return err_set(e, ERR_INVALID, "the configuration's ExposedPorts is not an object");
    json_object_foreach (ports, name, value)
        json_array_append_new(out->ports, json_string(name));
    return ERR_OK;
}

static enum err_code read_run(const json_t *config, struct image_config *out, struct err *e)
{
    const char *user = text_of(config, "User"), *cwd = text_of(config, "WorkingDir");

    out->user = strdup(user ? user : "");
    out->cwd = strdup(cwd ? cwd : "");
    if (!out->user || !out->cwd)
        return err_set(e, ERR_EXHAUSTED, "memory is out");
    if (out->cwd[0] && out->cwd[0] != '/')
        return err_set(e, ERR_INVALID, "the configuration's WorkingDir \"%.80s\" begins with no /",
                       out->cwd);
    out->entrypoint = read_texts(config, "Entrypoint", e);
    out->cmd = out->entrypoint ? read_texts(config, "Cmd", e) : NULL;
    if (!out->cmd)
        return e->code;
    return read_env(config, out, e) == ERR_OK ? read_ports(config, out, e) : e->code;
}

static enum err_code read_platform(const json_t *root, struct err *e)
{
    const char *os = text_of(root, "os"), *arch = text_of(root, "architecture");

    if (os && arch && strcmp(os, OS) == 0 && strcmp(arch, ARCH) == 0)
        return ERR_OK;
    return err_set(e, ERR_INVALID, "the image is for %.40s/%.40s; this server runs " OS "/" ARCH,
                   os ? os : "no system", arch ? arch : "no architecture");
}

enum err_code image_config_parse(const char *text, size_t len, struct image_config *out,
                                 struct err *e)
{
    json_t *root = parse("the configuration", text, len, e);

    *out = (struct image_config){.count = 0};
    if (!root)
        return e->code;
    *e = (struct err){.code = ERR_OK};
    if (read_platform(root, e) == ERR_OK && read_diff_ids(root, out, e) == ERR_OK)
        read_run(json_object_get(root, "config"), out, e);
    json_decref(root);
    return e->code;
}

void image_config_free(struct image_config *c)
{
    free(c->user);
    free(c->cwd);
    json_decref(c->env);
    json_decref(c->entrypoint);
    json_decref(c->cmd);
    json_decref(c->ports);
    *c = (struct image_config){.count = 0};
}

json_t *image_config_note(const struct image_config *c, const char *source, const char *digest)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:O, s:O, s:O}", "source", source, "digest", digest,
                     "user", c->user, "cwd", c->cwd, "entrypoint", c->entrypoint, "cmd", c->cmd,
                     "ports", c->ports);
}

/* -- docker archives --------------------------------------------------------------------------- */

static bool docker_has_tag(const json_t *entry, const char *tag)
{
    const json_t *tags = json_object_get(entry, "RepoTags");

    for (size_t i = 0; tag && i < json_array_size(tags); i++) {
        const char *one = json_string_value(json_array_get(tags, i));

        if (one && strcmp(one, tag) == 0)
            return true;
    }
    return !tag;
}

static enum err_code read_path(const json_t *value, const char *what, char *out, struct err *e)
{
    const char *text = json_string_value(value);

    if (!text || !text[0] || strlen(text) >= IMAGE_PATH_MAX)
        return err_set(e, ERR_INVALID, "manifest.json names no %s", what);
    snprintf(out, IMAGE_PATH_MAX, "%s", text);
    return ERR_OK;
}

static enum err_code read_docker_image(const json_t *entry, struct image_docker_manifest *out,
                                       struct err *e)
{
    const json_t *layers = json_object_get(entry, "Layers");

    if (json_array_size(layers) == 0 || json_array_size(layers) > IMAGE_LAYERS_MAX)
        return err_set(e, ERR_TOO_LARGE, "the image has %zu layers, allowed are 1 to %u",
                       json_array_size(layers), IMAGE_LAYERS_MAX);
    for (size_t i = 0; i < json_array_size(layers); i++)
        if (read_path(json_array_get(layers, i), "layer", out->layers[i], e) != ERR_OK)
            return e->code;
    out->count = json_array_size(layers);
    return read_path(json_object_get(entry, "Config"), "configuration", out->config, e);
}

enum err_code image_docker_parse(const char *text, size_t len, const char *tag,
                                 struct image_docker_manifest *out, struct err *e)
{
    json_t *root = parse("manifest.json", text, len, e);
    const json_t *found = NULL;
    size_t hits = 0;

    *out = (struct image_docker_manifest){.count = 0};
    if (!root)
        return e->code;
    *e = (struct err){.code = ERR_OK};
    for (size_t i = 0; i < json_array_size(root) && i < IMAGE_ENTRIES_MAX; i++) {
        if (!docker_has_tag(json_array_get(root, i), tag))
            continue;
        found = json_array_get(root, i);
        hits++;
    }
    if (hits == 0)
        err_set(e, ERR_NOT_FOUND, "manifest.json has no image%s%.80s", tag ? " with the tag " : "",
                tag ? tag : "");
    else if (hits > 1)
        err_set(e, ERR_INVALID, "manifest.json has several images: name one by its tag");
    else
        read_docker_image(found, out, e);
    json_decref(root);
    return e->code;
}
