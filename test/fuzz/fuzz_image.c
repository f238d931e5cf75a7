/* The documents of a container image, and the headers of a docker archive: the first byte says
 * which reader gets the rest. A document that a reader accepts keeps the bounds of its header. */
#include "fuzz.h"
#include "image/manifest.h"
#include "image/tar_index.h"

static void check_blob(const struct image_blob *b)
{
    FUZZ_CHECK(image_digest_is_valid(b->digest) && b->size <= IMAGE_BLOB_MAX);
}

static void read_index(const char *text, size_t len, const char *tag)
{
    struct image_blob b;
    bool is_index;
    struct err e;

    if (image_index_parse(text, len, tag, &b, &is_index, &e) == ERR_OK)
        check_blob(&b);
    else
        FUZZ_CHECK(e.text[0]);
}

static void read_manifest(const char *text, size_t len)
{
    struct image_manifest m;
    struct err e;

    if (image_manifest_parse(text, len, &m, &e) != ERR_OK)
        return;
    FUZZ_CHECK(m.count >= 1 && m.count <= IMAGE_LAYERS_MAX);
    check_blob(&m.config);
    for (size_t i = 0; i < m.count; i++)
        check_blob(&m.layers[i]);
}

static void read_config(const char *text, size_t len)
{
    struct image_config c;
    struct err e;

    if (image_config_parse(text, len, &c, &e) == ERR_OK) {
        FUZZ_CHECK(c.count <= IMAGE_LAYERS_MAX && c.user && json_is_object(c.env));
        FUZZ_CHECK(json_is_array(c.cmd) && json_is_array(c.entrypoint) && json_is_array(c.ports));
        FUZZ_CHECK(!c.cwd[0] || c.cwd[0] == '/');
        for (size_t i = 0; i < c.count; i++)
            FUZZ_CHECK(image_digest_is_valid(c.diff_ids[i]));
    }
    image_config_free(&c);
}

static void read_docker(const char *text, size_t len)
{
    static struct image_docker_manifest m;
    struct err e;

    if (image_docker_parse(text, len, NULL, &m, &e) != ERR_OK)
        return;
    FUZZ_CHECK(m.count >= 1 && m.count <= IMAGE_LAYERS_MAX && m.config[0]);
    for (size_t i = 0; i < m.count; i++)
        FUZZ_CHECK(m.layers[i][0] && strlen(m.layers[i]) < IMAGE_PATH_MAX);
}

static void read_tar(const uint8_t *bytes, size_t len)
{
    struct tar_index_member m = {.size = 0};
    uint8_t block[TAR_INDEX_BLOCK] = {0};
    unsigned sum = 0;

    if (tar_index_pax((const char *)bytes, len, &m) == 0)
        FUZZ_CHECK(memchr(m.name, '\0', sizeof(m.name)));
    memcpy(block, bytes, len < sizeof(block) ? len : sizeof(block));
    memset(block + 148, ' ', 8); /* with the right sum, so that what is behind it is reached */
    for (size_t i = 0; i < sizeof(block); i++)
        sum += block[i];
    snprintf((char *)block + 148, 8, "%06o", sum);
    if (tar_index_header(block, &m) == 0)
        FUZZ_CHECK(memchr(m.name, '\0', sizeof(m.name)) && m.size <= INT64_MAX / 2);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data + 1;

    if (size == 0)
        return 0;
    switch (data[0] % 6) {
    case 0: read_index(text, size - 1, NULL); break;
    case 1: read_index(text, size - 1, "v1"); break;
    case 2: read_manifest(text, size - 1); break;
    case 3: read_config(text, size - 1); break;
    case 4: read_docker(text, size - 1); break;
    default: read_tar(data + 1, size - 1);
    }
    return 0;
}
