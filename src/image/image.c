/* Opening an image and handing on its layers. A file of a layout is opened by the name that its
 * digest makes, below the directory that is held; no link is followed. */

#include "image/image.h"

#include "base/ids.h"
#include "base/io.h"
#include "image/tar_index.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define OCI        "oci:"
#define DOCKER     "docker-archive:"
#define DIRECTORY  "dir:"
#define PIECE_SIZE (256u << 10)

/* -- digests ----------------------------------------------------------------------------------- */

struct sum {
    EVP_MD_CTX *ctx;
};

static void sum_free(struct sum *s)
{
    EVP_MD_CTX_free(s->ctx);
}

static bool sum_begin(struct sum *s)
{
    s->ctx = EVP_MD_CTX_new();
    return s->ctx && EVP_DigestInit_ex(s->ctx, EVP_sha256(), NULL) == 1;
}

static void sum_end(struct sum *s, char out[static IMAGE_DIGEST_SIZE])
{
    unsigned char bytes[32] = {0};

    if (EVP_DigestFinal_ex(s->ctx, bytes, NULL) != 1)
        abort(); /* fails only in a broken library */
    memcpy(out, "sha256:", 7);
    ids_hex(bytes, sizeof(bytes), out + 7);
}

/* size bytes from offset on, to fd (-1: to out), compared with what was promised. */
static enum err_code copy(int in, off_t offset, const struct image_blob *b, int fd, char *out,
                          struct err *e)
{
    CLEANUP(sum_free) struct sum sum = {NULL};
    CLEANUP_FREE char *piece = malloc(PIECE_SIZE);
    char digest[IMAGE_DIGEST_SIZE];

    if (!piece || !sum_begin(&sum))
        return err_set(e, ERR_EXHAUSTED, "memory is out");
    for (uint64_t done = 0; done < b->size;) {
        size_t want = (size_t)MIN(b->size - done, PIECE_SIZE);
        ssize_t n = pread(in, piece, want, offset + (off_t)done);
        int r;

        if (n < 0)
            return err_set_sys(e, ERR_INTERNAL, errno, "reading %s", b->digest);
        if (n == 0)
            return err_set(e, ERR_INVALID, "%s is cut: %llu of %llu bytes are there", b->digest,
                           (unsigned long long)done, (unsigned long long)b->size);
        if (EVP_DigestUpdate(sum.ctx, piece, (size_t)n) != 1)
            return err_set(e, ERR_INTERNAL, "SHA-256 does not work");
        if (out)
            memcpy(out + done, piece, (size_t)n);
        r = out ? 0 : io_write_full(fd, piece, (size_t)n);
        if (r < 0)
            return err_set_sys(e, err_code_from_errno(r), r, "writing a copy of %s", b->digest);
        done += (uint64_t)n;
    }
    sum_end(&sum, digest);
    if (strcmp(digest, b->digest) != 0)
        return err_set(e, ERR_INVALID, "%s does not have this digest but %s", b->digest, digest);
    return ERR_OK;
}

/* -- files ------------------------------------------------------------------------------------- */

static int open_file(int dir_fd, const char *path, uint64_t *size, struct err *e)
{
    CLEANUP_CLOSE int fd = openat(dir_fd, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0) {
        err_set_sys(e, err_code_from_errno(errno), errno, "opening %s", path);
        return -1;
    }
    if (!S_ISREG(st.st_mode)) {
        err_set(e, ERR_INVALID, "%s is not a file", path);
        return -1;
    }
    *size = (uint64_t)st.st_size;
    return TAKE_FD(fd);
}

static int open_blob(const struct image *i, const struct image_blob *b, struct err *e)
{
    char path[128];
    uint64_t size;
    int fd;

    snprintf(path, sizeof(path), "%s%.64s", i->blobs, b->digest + 7);
    fd = open_file(i->dir_fd, path, &size, e);
    if (fd >= 0 && size != b->size) {
        err_set(e, ERR_INVALID, "%s has %llu bytes, the manifest says %llu", path,
                (unsigned long long)size, (unsigned long long)b->size);
        util_close(&fd);
    }
    return fd;
}

/* A document that has a digest. The caller frees *out. */
static enum err_code read_blob_text(const struct image *i, const struct image_blob *b, char **out,
                                    struct err *e)
{
    CLEANUP_CLOSE int fd = open_blob(i, b, e);
    CLEANUP_FREE char *text = fd >= 0 ? calloc(1, (size_t)b->size + 1) : NULL;

    if (fd < 0)
        return e->code;
    if (!text)
        return err_set(e, ERR_EXHAUSTED, "memory is out");
    if (copy(fd, 0, b, -1, text, e) == ERR_OK)
        *out = TAKE_PTR(text);
    return e->code;
}

/* A document that has none: the layout's index, manifest.json, a file of a docker archive. */
static enum err_code read_text(int fd, off_t offset, uint64_t size, const char *what, char **out,
                               struct err *e)
{
    CLEANUP_FREE char *text = size <= IMAGE_TEXT_MAX ? calloc(1, (size_t)size + 1) : NULL;

    if (size > IMAGE_TEXT_MAX)
        return err_set(e, ERR_TOO_LARGE, "%s has over %u MiB", what, IMAGE_TEXT_MAX >> 20);
    if (!text)
        return err_set(e, ERR_EXHAUSTED, "memory is out");
    if (pread(fd, text, (size_t)size, offset) != (ssize_t)size)
        return err_set(e, ERR_INVALID, "%s cannot be read whole", what);
    *out = TAKE_PTR(text);
    return ERR_OK;
}

/* -- a layout ---------------------------------------------------------------------------------- */

static enum err_code read_layout_index(struct image *i, const char *tag, struct image_blob *found,
                                       bool *is_index, struct err *e)
{
    CLEANUP_FREE char *text = NULL;
    CLEANUP_CLOSE int fd = -1;
    uint64_t size;

    fd = open_file(i->dir_fd, "index.json", &size, e);
    if (fd < 0 || read_text(fd, 0, size, "index.json", &text, e) != ERR_OK)
        return e->code;
    return image_index_parse(text, (size_t)size, tag, found, is_index, e);
}

static enum err_code read_config(struct image *i, const struct image_blob *b, struct err *e)
{
    CLEANUP_FREE char *text = NULL;

    if (read_blob_text(i, b, &text, e) != ERR_OK)
        return e->code;
    return image_config_parse(text, (size_t)b->size, &i->config, e);
}

static enum err_code read_layout(struct image *i, const char *tag, struct err *e)
{
    struct image_blob found;
    bool is_index = false;

    i->blobs = "blobs/sha256/";
    if (read_layout_index(i, tag, &found, &is_index, e) != ERR_OK)
        return e->code;
    for (int depth = 0;; depth++) {
        CLEANUP_FREE char *text = NULL;

        if (depth == 3)
            return err_set(e, ERR_INVALID, "indexes point to indexes more than twice");
        if (read_blob_text(i, &found, &text, e) != ERR_OK)
            return e->code;
        memcpy(i->digest, found.digest, sizeof(i->digest));
        if (!is_index) {
            if (image_manifest_parse(text, (size_t)found.size, &i->manifest, e) != ERR_OK)
                return e->code;
            return read_config(i, &i->manifest.config, e);
        }
        if (image_index_parse(text, (size_t)found.size, NULL, &found, &is_index, e) != ERR_OK)
            return e->code;
    }
}

/* -- a directory of skopeo's ------------------------------------------------------------------- */

static enum err_code digest_of(const char *text, uint64_t size, char out[static IMAGE_DIGEST_SIZE],
                               struct err *e)
{
    CLEANUP(sum_free) struct sum sum = {NULL};

    if (!sum_begin(&sum) || EVP_DigestUpdate(sum.ctx, text, (size_t)size) != 1)
        return err_set(e, ERR_EXHAUSTED, "memory is out");
    sum_end(&sum, out);
    return ERR_OK;
}

/* Nothing vouches for the manifest but skopeo, which compared it with the digest that it was asked
 * for, if any. */
static enum err_code read_directory(struct image *i, struct err *e)
{
    CLEANUP_FREE char *text = NULL;
    CLEANUP_CLOSE int fd = -1;
    uint64_t size;

    i->blobs = "";
    fd = open_file(i->dir_fd, "manifest.json", &size, e);
    if (fd < 0 || read_text(fd, 0, size, "manifest.json", &text, e) != ERR_OK ||
        digest_of(text, size, i->digest, e) != ERR_OK ||
        image_manifest_parse(text, (size_t)size, &i->manifest, e) != ERR_OK)
        return e->code;
    return read_config(i, &i->manifest.config, e);
}

/* -- a docker archive -------------------------------------------------------------------------- */

static enum err_code read_member(const struct image *i, const char *name, char **text,
                                 uint64_t *size, struct err *e)
{
    off_t offset;

    if (tar_index_find(i->file_fd, "the archive", name, &offset, size, e) != ERR_OK)
        return e->code;
    return read_text(i->file_fd, offset, *size, name, text, e);
}

/* Its digest is that of the image: docker's id. */
static enum err_code read_docker_config(struct image *i, const char *name, struct err *e)
{
    CLEANUP_FREE char *text = NULL;
    uint64_t size;

    if (read_member(i, name, &text, &size, e) != ERR_OK ||
        digest_of(text, size, i->digest, e) != ERR_OK)
        return e->code;
    /* the name holds the digest, as HEX.json or blobs/sha256/HEX; nothing else vouches for it */
    if (!strstr(name, i->digest + 7))
        return err_set(e, ERR_INVALID, "%.100s does not have the digest in its name but %s", name,
                       i->digest);
    return image_config_parse(text, (size_t)size, &i->config, e);
}

static enum err_code read_docker(struct image *i, const char *tag, struct err *e)
{
    CLEANUP_FREE struct image_docker_manifest *m = calloc(1, sizeof(*m));
    CLEANUP_FREE char *text = NULL;
    uint64_t size;

    if (!m)
        return err_set(e, ERR_EXHAUSTED, "memory is out");
    if (read_member(i, "manifest.json", &text, &size, e) != ERR_OK ||
        image_docker_parse(text, (size_t)size, tag, m, e) != ERR_OK ||
        read_docker_config(i, m->config, e) != ERR_OK)
        return e->code;
    if (m->count != i->config.count) /* before diff_ids are used by number */
        return err_set(e, ERR_INVALID, "manifest.json has %zu layers, the configuration %zu",
                       m->count, i->config.count);
    for (size_t k = 0; k < m->count; k++) {
        struct image_blob *b = &i->manifest.layers[k];

        memcpy(b->digest, i->config.diff_ids[k], sizeof(b->digest));
        if (tar_index_find(i->file_fd, "the archive", m->layers[k], &i->offset[k], &b->size, e) !=
            ERR_OK)
            return e->code;
    }
    i->manifest.count = m->count;
    return image_layers_check(&i->manifest, e);
}

/* -- the whole --------------------------------------------------------------------------------- */

static const struct kind {
    const char *prefix;
    bool is_dir, has_tag;
} kinds[] = {
    {OCI, true, true},
    {DOCKER, false, true},
    {DIRECTORY, true, false},
};

static const struct kind *kind_of(const char *source)
{
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
        if (strncmp(source, kinds[i].prefix, strlen(kinds[i].prefix)) == 0)
            return &kinds[i];
    return NULL;
}

bool image_is_source(const char *text)
{
    return kind_of(text) != NULL;
}

/* PATH or PATH:TAG; a path that is there as a whole has no tag. */
static enum err_code open_path(struct image *i, const struct kind *k, char *path, char **tag,
                               struct err *e)
{
    int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | (k->is_dir ? O_DIRECTORY : 0);
    char *colon = k->has_tag ? strchr(path, ':') : NULL;
    int fd = open(path, flags);

    if (fd < 0 && colon) {
        *colon = '\0';
        *tag = colon + 1;
        fd = open(path, flags);
    }
    if (fd < 0)
        return err_set_sys(e, err_code_from_errno(errno), errno, "opening %s", path);
    *(k->is_dir ? &i->dir_fd : &i->file_fd) = fd;
    if (*tag && (!**tag || strlen(*tag) > IMAGE_TAG_MAX))
        return err_set(e, ERR_INVALID, "a tag has 1 to %u characters", IMAGE_TAG_MAX);
    return ERR_OK;
}

static enum err_code read_image(struct image *i, const struct kind *k, const char *tag,
                                struct err *e)
{
    if (!k->is_dir)
        return read_docker(i, tag, e);
    return k->has_tag ? read_layout(i, tag, e) : read_directory(i, e);
}

enum err_code image_open(const char *source, struct image *out, struct err *e)
{
    const struct kind *k = kind_of(source);
    CLEANUP_FREE char *path = k ? strdup(source + strlen(k->prefix)) : NULL;
    char *tag = NULL;

    *out = (struct image){.dir_fd = -1, .file_fd = -1};
    *e = (struct err){.code = ERR_OK};
    if (!k)
        return err_set(e, ERR_INVALID,
                       "\"%.80s\" is none of " OCI "DIR, " DOCKER "FILE and " DIRECTORY "DIR",
                       source);
    if (!path)
        return err_set(e, ERR_EXHAUSTED, "memory is out");
    if (open_path(out, k, path, &tag, e) != ERR_OK || read_image(out, k, tag, e) != ERR_OK)
        return e->code;
    if (out->manifest.count != out->config.count)
        return err_set(e, ERR_INVALID, "the manifest has %zu layers, the configuration %zu",
                       out->manifest.count, out->config.count);
    return ERR_OK;
}

void image_free(struct image *i)
{
    image_config_free(&i->config);
    util_close(&i->dir_fd);
    util_close(&i->file_fd);
}

enum err_code image_copy_layer(const struct image *i, size_t at, int fd, struct err *e)
{
    const struct image_blob *b = &i->manifest.layers[at];
    CLEANUP_CLOSE int blob = -1;

    *e = (struct err){.code = ERR_OK};
    if (i->file_fd >= 0)
        return copy(i->file_fd, i->offset[at], b, fd, NULL, e);
    blob = open_blob(i, b, e);
    return blob < 0 ? e->code : copy(blob, 0, b, fd, NULL, e);
}
