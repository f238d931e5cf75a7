#include "cli/oci_archive.h"

#include "base/clock.h"
#include "base/ids.h"
#include "base/io.h"
#include "base/util.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BLOCK      512u
#define PIECE_SIZE (256u << 10)
#define BLOBS      "blobs/sha256/"
#define TYPE_OF    "application/vnd.oci.image."
#define TAG        "latest"

/* -- tar --------------------------------------------------------------------------------------- */

/* POSIX pax(1), ustar. A size beyond 8 GiB is in the form of GNU tar, which all readers know. */
struct header {
    char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], sum[8], type, link[100];
    char magic[6], version[2], user[32], group[32], major[8], minor[8], prefix[155], rest[12];
};

_Static_assert(sizeof(struct header) == BLOCK, "a header is a block");

static void put_size(struct header *h, uint64_t size)
{
    if (size < 1ull << 33) {
        (void)snprintf(h->size, sizeof(h->size), "%011llo", (unsigned long long)size);
        return;
    }
    h->size[0] = (char)0x80;
    for (size_t i = sizeof(h->size) - 1; i > 3; i--, size >>= 8)
        h->size[i] = (char)(size & 0xff);
}

static struct header make_header(const char *name, char type, uint64_t size)
{
    struct header h = {.mtime = "00000000000", .type = type, .magic = "ustar"};
    unsigned sum = 0;

    (void)snprintf(h.name, sizeof(h.name), "%s", name);
    (void)snprintf(h.mode, sizeof(h.mode), "%07o", type == '5' ? 0755u : 0644u);
    (void)snprintf(h.uid, sizeof(h.uid), "%07o", 0u);
    (void)snprintf(h.gid, sizeof(h.gid), "%07o", 0u);
    put_size(&h, size);
    memset(h.version, '0', sizeof(h.version));
    memset(h.sum, ' ', sizeof(h.sum));
    for (size_t i = 0; i < sizeof(h); i++)
        sum += ((const unsigned char *)&h)[i];
    (void)snprintf(h.sum, sizeof(h.sum), "%06o", sum & 0777777);
    return h;
}

static enum err_code put(const struct oci_archive *a, const void *bytes, size_t n, struct err *e)
{
    int r = io_write_full(a->fd, bytes, n);

    return r < 0 ? err_set_sys(e, err_code_from_errno(r), r, "writing the archive") : ERR_OK;
}

static enum err_code pad(const struct oci_archive *a, uint64_t size, struct err *e)
{
    static const char zeros[BLOCK];

    return put(a, zeros, (BLOCK - (size_t)(size % BLOCK)) % BLOCK, e);
}

static enum err_code put_member(const struct oci_archive *a, const char *name, char type,
                                const char *text, struct err *e)
{
    const struct header h = make_header(name, type, strlen(text));

    if (put(a, &h, sizeof(h), e) != ERR_OK || put(a, text, strlen(text), e) != ERR_OK)
        return e->code;
    return pad(a, strlen(text), e);
}

/* -- digests ----------------------------------------------------------------------------------- */

static void blob_name(const struct image_blob *b, char out[static sizeof(BLOBS) + 64])
{
    (void)snprintf(out, sizeof(BLOBS) + 64, BLOBS "%.64s", b->digest + strlen("sha256:"));
}

static void end_digest(EVP_MD_CTX *ctx, struct image_blob *b)
{
    unsigned char sum[32] = {0};

    if (EVP_DigestFinal_ex(ctx, sum, NULL) != 1)
        abort(); /* fails only in a broken library */
    memcpy(b->digest, "sha256:", 7);
    ids_hex(sum, sizeof(sum), b->digest + 7);
}

static void ctx_free(EVP_MD_CTX **ctx)
{
    EVP_MD_CTX_free(*ctx);
}

static enum err_code digest_layer(struct oci_archive *a, struct err *e)
{
    CLEANUP(ctx_free) EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    CLEANUP_FREE char *piece = malloc(PIECE_SIZE);

    if (!ctx || !piece || EVP_DigestInit_ex(ctx, EVP_sha256(), NULL) != 1)
        return err_set(e, ERR_EXHAUSTED, "memory is out");
    for (uint64_t done = 0; done < a->layer.size;) {
        ssize_t n = pread(a->fd, piece, (size_t)MIN(a->layer.size - done, PIECE_SIZE),
                          a->layer_at + (off_t)done);

        if (n <= 0 || EVP_DigestUpdate(ctx, piece, (size_t)n) != 1)
            return err_set_sys(e, ERR_INTERNAL, n < 0 ? errno : EIO, "reading the archive again");
        done += (uint64_t)n;
    }
    end_digest(ctx, &a->layer);
    return ERR_OK;
}

/* json as a blob; takes the reference. */
static enum err_code put_json_blob(const struct oci_archive *a, json_t *json, struct image_blob *b,
                                   struct err *e)
{
    CLEANUP(ctx_free) EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    CLEANUP_FREE char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
    char name[sizeof(BLOBS) + 64];

    json_decref(json);
    if (!ctx || !text || EVP_DigestInit_ex(ctx, EVP_sha256(), NULL) != 1 ||
        EVP_DigestUpdate(ctx, text, strlen(text)) != 1)
        return err_set(e, ERR_EXHAUSTED, "memory is out");
    b->size = strlen(text);
    end_digest(ctx, b);
    blob_name(b, name);
    return put_member(a, name, '0', text, e);
}

static enum err_code put_json(const struct oci_archive *a, const char *name, json_t *json,
                              struct err *e)
{
    CLEANUP_FREE char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;

    json_decref(json);
    return text ? put_member(a, name, '0', text, e) : err_set(e, ERR_EXHAUSTED, "memory is out");
}

/* -- the layer --------------------------------------------------------------------------------- */

enum err_code oci_archive_begin(struct oci_archive *a, int fd, struct err *e)
{
    static const struct header later;

    *a = (struct oci_archive){.fd = fd};
    if (put_member(a, "oci-layout", '0', "{\"imageLayoutVersion\":\"1.0.0\"}", e) != ERR_OK ||
        put_member(a, "blobs/", '5', "", e) != ERR_OK || put_member(a, BLOBS, '5', "", e) != ERR_OK)
        return e->code;
    if (put(a, &later, sizeof(later), e) != ERR_OK)
        return e->code;
    a->layer_at = lseek(fd, 0, SEEK_CUR);
    return a->layer_at < 0 ? err_set_sys(e, ERR_INVALID, errno, "the archive has to be a file")
                           : ERR_OK;
}

enum err_code oci_archive_end_layer(struct oci_archive *a, uint64_t size, struct err *e)
{
    char name[sizeof(BLOBS) + 64];
    struct header h;

    if (lseek(a->fd, 0, SEEK_CUR) != a->layer_at + (off_t)size)
        return err_set(e, ERR_NO_SPACE, "the files could not be written whole");
    a->layer.size = size;
    if (digest_layer(a, e) != ERR_OK)
        return e->code;
    blob_name(&a->layer, name);
    h = make_header(name, '0', size);
    if (pwrite(a->fd, &h, sizeof(h), a->layer_at - (off_t)sizeof(h)) != (ssize_t)sizeof(h))
        return err_set_sys(e, ERR_INTERNAL, errno, "writing the archive");
    return pad(a, size, e);
}

/* -- what is said of it ------------------------------------------------------------------------ */

static json_t *descriptor(const struct image_blob *b, const char *type)
{
    return json_pack("{s:o, s:s, s:I}", "mediaType", json_sprintf(TYPE_OF "%s", type), "digest",
                     b->digest, "size", (json_int_t)b->size);
}

static json_t *configuration(const struct oci_archive *a, json_t *config, const char *by)
{
    char now[CLOCK_RFC3339_SIZE];

    clock_format_rfc3339(clock_real_ms(), now);
    return json_pack("{s:s, s:s, s:s, s:O, s:{s:s, s:[s]}, s:[{s:s, s:s}]}", "created", now,
                     "architecture", "amd64", "os", "linux", "config", config, "rootfs", "type",
                     "layers", "diff_ids", a->layer.digest, "history", "created", now, "created_by",
                     by);
}

static json_t *index_json(const struct oci_archive *a)
{
    json_t *one = descriptor(&a->manifest, "manifest.v1+json");

    if (one)
        json_object_set_new(one, "annotations",
                            json_pack("{s:s}", "org.opencontainers.image.ref.name", TAG));
    return json_pack("{s:i, s:s, s:[o]}", "schemaVersion", 2, "mediaType", TYPE_OF "index.v1+json",
                     "manifests", one);
}

enum err_code oci_archive_end(struct oci_archive *a, json_t *config, const char *by, struct err *e)
{
    static const char end[2 * BLOCK];
    char config_name[sizeof(BLOBS) + 64], layer_name[sizeof(BLOBS) + 64];
    struct image_blob blob = {.size = 0};

    if (put_json_blob(a, configuration(a, config, by), &blob, e) != ERR_OK ||
        put_json_blob(a,
                      json_pack("{s:i, s:s, s:o, s:[o]}", "schemaVersion", 2, "mediaType",
                                TYPE_OF "manifest.v1+json", "config",
                                descriptor(&blob, "config.v1+json"), "layers",
                                descriptor(&a->layer, "layer.v1.tar")),
                      &a->manifest, e) != ERR_OK ||
        put_json(a, "index.json", index_json(a), e) != ERR_OK)
        return e->code;
    blob_name(&blob, config_name);
    blob_name(&a->layer, layer_name);
    if (put_json(a, "manifest.json",
                 json_pack("[{s:s, s:n, s:[s]}]", "Config", config_name, "RepoTags", "Layers",
                           layer_name),
                 e) != ERR_OK)
        return e->code;
    return put(a, end, sizeof(end), e);
}
