/* The documents that are read of container images: documents that are right and wrong, layouts
 * and docker archives whose parts are cut, longer, or not what their digest says. The images are
 * made here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/ids.h"
#include "base/io.h"
#include "image/image.h"
#include "image/layer_names.h"
#include "image/tar_index.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define TYPE_MANIFEST "application/vnd.oci.image.manifest.v1+json"
#define TYPE_INDEX    "application/vnd.oci.image.index.v1+json"
#define TYPE_LAYER    "application/vnd.oci.image.layer.v1.tar"

#define LAYER "not a tar: nothing looks into it here"
#define HEX64 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static char dir[64];

static int set_up(void **state)
{
    snprintf(dir, sizeof(dir), "/tmp/cay-test-XXXXXX");
    return mkdtemp(dir) && chdir(dir) == 0 ? 0 : -1;
}

static int tear_down(void **state)
{
    char command[128];

    snprintf(command, sizeof(command), "rm -rf %s", dir);
    return chdir("/") == 0 && system(command) == 0 ? 0 : -1;
}

static void digest_of(const char *text, size_t len, char out[static IMAGE_DIGEST_SIZE])
{
    unsigned char bytes[32];
    unsigned n;

    assert_int_equal(EVP_Digest(text, len, bytes, &n, EVP_sha256(), NULL), 1);
    memcpy(out, "sha256:", 7);
    ids_hex(bytes, 32, out + 7);
}

static void put(const char *path, const char *text, size_t len)
{
    CLEANUP_CLOSE int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(io_write_full(fd, text, len), 0);
}

static void put_blob(const char *text, char digest[static IMAGE_DIGEST_SIZE])
{
    char path[128];

    digest_of(text, strlen(text), digest);
    snprintf(path, sizeof(path), "blobs/sha256/%.64s", digest + 7);
    put(path, text, strlen(text));
}

struct made {
    char layer[IMAGE_DIGEST_SIZE], config[IMAGE_DIGEST_SIZE], manifest[IMAGE_DIGEST_SIZE];
};

static void config_text(const char *arch, const char *diff_id, char out[static 1024])
{
    snprintf(out, 1024,
             "{\"architecture\":\"%s\",\"os\":\"linux\",\"rootfs\":{\"type\":\"layers\","
             "\"diff_ids\":[\"%s\"]},\"config\":{\"User\":\"1000\",\"WorkingDir\":\"/srv\","
             "\"Env\":[\"A=b=c\",\"bad\"],\"Entrypoint\":[\"/run\"],\"Cmd\":[\"x y\"],"
             "\"ExposedPorts\":{\"80/tcp\":{}}}}",
             arch, diff_id);
}

/* An image of one layer for that architecture, with the tag "v1". */
static struct made make_layout(const char *arch)
{
    struct made m;
    char text[1024];

    assert_int_equal(mkdir("blobs", 0700) | mkdir("blobs/sha256", 0700), 0);
    put_blob(LAYER, m.layer);
    config_text(arch, m.layer, text);
    put_blob(text, m.config);
    size_t config_len = strlen(text);
    snprintf(text, sizeof(text),
             "{\"schemaVersion\":2,\"config\":{\"digest\":\"%s\",\"size\":%zu},\"layers\":["
             "{\"mediaType\":\"" TYPE_LAYER "\",\"digest\":\"%s\",\"size\":%zu}]}",
             m.config, config_len, m.layer, strlen(LAYER));
    put_blob(text, m.manifest);
    size_t manifest_len = strlen(text);
    snprintf(text, sizeof(text),
             "{\"schemaVersion\":2,\"manifests\":[{\"mediaType\":\"" TYPE_MANIFEST
             "\",\"digest\":\"%s\",\"size\":%zu,\"annotations\":"
             "{\"org.opencontainers.image.ref.name\":\"v1\"}}]}",
             m.manifest, manifest_len);
    put("index.json", text, strlen(text));
    return m;
}

static void expect_refusal(const char *source, enum err_code code, const char *said)
{
    struct image i;
    struct err e;

    assert_int_equal(image_open(source, &i, &e), code);
    if (!strstr(e.text, said))
        fail_msg("%s: found \"%s\", not \"%s\"", source, e.text, said);
    image_free(&i);
}

static void copy_layer(struct image *i, enum err_code code, const char *said)
{
    CLEANUP_CLOSE int fd = open("copy", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    char text[128] = "";
    struct err e;

    assert_int_equal(image_copy_layer(i, 0, fd, &e), code);
    if (code == ERR_OK) {
        assert_int_equal(pread(fd, text, sizeof(text) - 1, 0), strlen(LAYER));
        assert_string_equal(text, LAYER);
    } else if (!strstr(e.text, said)) {
        fail_msg("found \"%s\", not \"%s\"", e.text, said);
    }
}

/* -- layouts ----------------------------------------------------------------------------------- */

static void a_layout_is_read(void **state)
{
    struct made m = make_layout("amd64");

    for (int tagged = 0; tagged < 2; tagged++) {
        struct image i;
        struct err e;

        assert_int_equal(image_open(tagged ? "oci:.:v1" : "oci:.", &i, &e), ERR_OK);
        assert_string_equal(i.digest, m.manifest);
        assert_int_equal(i.manifest.count, 1);
        assert_string_equal(i.config.user, "1000");
        assert_string_equal(i.config.cwd, "/srv");
        assert_string_equal(json_string_value(json_object_get(i.config.env, "A")), "b=c");
        assert_int_equal(i.config.env_left_out, 1);
        assert_string_equal(json_string_value(json_array_get(i.config.ports, 0)), "80/tcp");
        copy_layer(&i, ERR_OK, NULL);
        image_free(&i);
    }
    expect_refusal("oci:.:v2", ERR_NOT_FOUND, "it has: v1 (any/any)");
    expect_refusal("oci:nowhere", ERR_NOT_FOUND, "opening nowhere");
    expect_refusal("docker://debian", ERR_INVALID, "is none of oci:DIR");
}

/* As `skopeo copy` leaves an image of a registry: the manifest, and beside it what it names. */
static void a_directory_is_read(void **state)
{
    struct made m = make_layout("amd64");
    char command[512];
    struct image i;
    struct err e;

    snprintf(command, sizeof(command),
             "cp -r blobs/sha256 kept:1; mv kept:1/%s kept:1/manifest.json", m.manifest + 7);
    assert_int_equal(system(command), 0);
    assert_int_equal(image_open("dir:kept:1", &i, &e), ERR_OK);
    assert_string_equal(i.digest, m.manifest);
    copy_layer(&i, ERR_OK, NULL);
    snprintf(command, sizeof(command), "kept:1/%s", m.layer + 7);
    put(command, "Not" LAYER, strlen(LAYER));
    copy_layer(&i, ERR_INVALID, "does not have this digest");
    image_free(&i);
    snprintf(command, sizeof(command), "kept:1/%s", m.config + 7);
    put(command, "{}", 2);
    expect_refusal("dir:kept:1", ERR_INVALID, m.config + 7);
    put("kept:1/manifest.json", "{\"schemaVersion\":1}", 19);
    expect_refusal("dir:kept:1", ERR_INVALID, "not one of an image of version 2");
    expect_refusal("dir:kept", ERR_NOT_FOUND, "opening kept");
}

static void another_architecture_is_refused(void **state)
{
    make_layout("arm64");
    expect_refusal("oci:.", ERR_INVALID, "the image is for linux/arm64; this server runs");
}

static void blob_path(const char *digest, char out[static 128])
{
    snprintf(out, 128, "blobs/sha256/%.64s", digest + 7);
}

static void what_has_another_digest_is_refused(void **state)
{
    struct made m = make_layout("amd64");
    struct image i;
    struct err e;
    char path[128];

    assert_int_equal(image_open("oci:.", &i, &e), ERR_OK);
    blob_path(m.layer, path);
    put(path, "Not" LAYER, strlen(LAYER)); /* as long, and other */
    copy_layer(&i, ERR_INVALID, "does not have this digest");
    put(path, LAYER, strlen(LAYER) - 1);
    copy_layer(&i, ERR_INVALID, "the manifest says");
    assert_int_equal(unlink(path) | symlink("/etc/passwd", path), 0);
    copy_layer(&i, ERR_INVALID, "opening blobs/sha256/");
    image_free(&i);
    blob_path(m.config, path);
    put(path, "{}", 2);
    expect_refusal("oci:.", ERR_INVALID, m.config + 7);
    blob_path(m.manifest, path);
    assert_int_equal(unlink(path), 0);
    expect_refusal("oci:.", ERR_NOT_FOUND, m.manifest + 7);
}

/* -- documents --------------------------------------------------------------------------------- */

static void manifests_that_are_refused(void **state)
{
#define CONFIG "\"config\":{\"digest\":\"sha256:" HEX64 "\",\"size\":2}"
#define ONE(type, digest, size)                                                                    \
    "{\"schemaVersion\":2," CONFIG ",\"layers\":[{\"mediaType\":\"" type "\",\"digest\":\"" digest \
    "\",\"size\":" size "}]}"
    static const struct {
        const char *text, *said;
    } cases[] = {
        {"", "not JSON"},
        {"{\"schemaVersion\":2,\"schemaVersion\":2}", "not JSON"},
        {"{\"schemaVersion\":1," CONFIG ",\"layers\":[{}]}", "of version 2"},
        {"{\"schemaVersion\":2," CONFIG ",\"layers\":[]}", "has 0 layers"},
        {ONE("text/plain", "sha256:" HEX64, "1"), "which is not known"},
        {ONE(TYPE_LAYER, "sha512:" HEX64, "1"), "not a SHA-256 digest"},
        {ONE(TYPE_LAYER, "sha256:../../../../etc/passwd", "1"), "not a SHA-256 digest"},
        {ONE(TYPE_LAYER, "sha256:" HEX64 "0", "1"), "not a SHA-256 digest"},
        {ONE(TYPE_LAYER, "sha256:" HEX64, "-1"), "has no size"},
        {ONE(TYPE_LAYER, "sha256:" HEX64, "1.5"), "has no size"},
        {ONE(TYPE_LAYER, "sha256:" HEX64, "9223372036854775807"), "allowed are"},
        {"{\"schemaVersion\":2,\"config\":[],\"layers\":[{}]}", "not a SHA-256 digest"},
    };
    struct image_manifest m;
    struct err e;

    for (size_t k = 0; k < ARRAY_SIZE(cases); k++) {
        assert_int_not_equal(image_manifest_parse(cases[k].text, strlen(cases[k].text), &m, &e),
                             ERR_OK);
        if (!strstr(e.text, cases[k].said))
            fail_msg("%zu: found \"%s\"", k, e.text);
    }
    const char *good = ONE(TYPE_LAYER "+zstd", "sha256:" HEX64, "1"); /* the same is right */
    assert_int_equal(image_manifest_parse(good, strlen(good), &m, &e), ERR_OK);
}

static void an_index_gives_the_image_of_this_platform(void **state)
{
#define ENTRY(type, arch)                                    \
    "{\"mediaType\":\"" type "\",\"digest\":\"sha256:" HEX64 \
    "\",\"size\":7,\"platform\":{\"os\":\"linux\",\"architecture\":\"" arch "\"}}"
#define INDEX(entries) "{\"schemaVersion\":2,\"manifests\":[" entries "]}"
    const char *both = INDEX(ENTRY(TYPE_MANIFEST, "arm64") "," ENTRY(TYPE_INDEX, "amd64") "," ENTRY(
        TYPE_MANIFEST, "unknown"));
    const char *other = INDEX(ENTRY(TYPE_MANIFEST, "arm64"));
    const char *twice = INDEX(ENTRY(TYPE_MANIFEST, "amd64") "," ENTRY(TYPE_MANIFEST, "amd64"));
    struct image_blob found;
    bool is_index = false;
    struct err e;

    assert_int_equal(image_index_parse(both, strlen(both), NULL, &found, &is_index, &e), ERR_OK);
    assert_true(is_index);
    assert_int_equal(found.size, 7);
    assert_int_equal(image_index_parse(other, strlen(other), NULL, &found, &is_index, &e),
                     ERR_NOT_FOUND);
    assert_non_null(strstr(e.text, "linux/arm64"));
    assert_int_equal(image_index_parse(twice, strlen(twice), NULL, &found, &is_index, &e),
                     ERR_INVALID);
    assert_non_null(strstr(e.hint, "tag"));
}

/* -- docker archives --------------------------------------------------------------------------- */

static void put_header(int fd, const char *name, char type, size_t size)
{
    char block[TAR_INDEX_BLOCK] = {0};
    unsigned sum = 0;

    snprintf(block, 100, "%s", name);
    snprintf(block + 124, 12, "%011o", (unsigned)size);
    memset(block + 148, ' ', 8);
    block[156] = type;
    memcpy(block + 257, "ustar\00000", 8);
    for (size_t i = 0; i < sizeof(block); i++)
        sum += (unsigned char)block[i];
    snprintf(block + 148, 8, "%06o", sum);
    assert_int_equal(io_write_full(fd, block, sizeof(block)), 0);
}

static void put_member(int fd, const char *name, char type, const char *text)
{
    static const char zeros[TAR_INDEX_BLOCK];
    size_t len = strlen(text);

    put_header(fd, name, type, len);
    assert_int_equal(io_write_full(fd, text, len), 0);
    assert_int_equal(
        io_write_full(fd, zeros, (TAR_INDEX_BLOCK - len % TAR_INDEX_BLOCK) % TAR_INDEX_BLOCK), 0);
}

/* The layer's name stands in a pax header. */
static void make_archive(const char *layer, const char *config_name)
{
    CLEANUP_CLOSE int fd = open("image.tar", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    char digest[IMAGE_DIGEST_SIZE], id[IMAGE_DIGEST_SIZE], config[1024], text[512];

    digest_of(LAYER, strlen(LAYER), digest);
    config_text("amd64", digest, config);
    digest_of(config, strlen(config), id);
    put_member(fd, "elsewhere", 'x', "22 path=one/layer.tar\n");
    put_member(fd, "ignored", '0', layer);
    snprintf(text, sizeof(text), "%s.json", config_name ? config_name : id + 7);
    put_member(fd, text, '0', config);
    snprintf(text, sizeof(text),
             "[{\"Config\":\"%s.json\",\"RepoTags\":[\"a/b:1\"],\"Layers\":[\"one/layer.tar\"]}]",
             config_name ? config_name : id + 7);
    put_member(fd, "manifest.json", '0', text);
    assert_int_equal(ftruncate(fd, lseek(fd, 0, SEEK_CUR) + 1024), 0);
}

static void a_docker_archive_is_read(void **state)
{
    struct image i;
    struct err e;

    make_archive(LAYER, NULL);
    assert_int_equal(image_open("docker-archive:image.tar:a/b:1", &i, &e), ERR_OK);
    copy_layer(&i, ERR_OK, NULL);
    image_free(&i);
    expect_refusal("docker-archive:image.tar:a/b:2", ERR_NOT_FOUND, "no image with the tag a/b:2");
    make_archive("Not a tar: nothing looks into it here", NULL);
    assert_int_equal(image_open("docker-archive:image.tar", &i, &e), ERR_OK);
    copy_layer(&i, ERR_INVALID, "does not have this digest");
    image_free(&i);
    make_archive(LAYER, HEX64);
    expect_refusal("docker-archive:image.tar", ERR_INVALID, "does not have the digest in its name");
    assert_int_equal(truncate("image.tar", 3000), 0);
    expect_refusal("docker-archive:image.tar", ERR_INVALID, "is cut");
    put("image.tar", "\x1f\x8b compressed", 13);
    expect_refusal("docker-archive:image.tar", ERR_INVALID, "is no tar archive");
}

static void pax_records_that_lie_are_refused(void **state)
{
    static const char *const bad[] = {"99 path=x\n",
                                      "5 a=b",
                                      "0 a=b\n",
                                      "9 path=x\n\n",
                                      "x",
                                      "12 size=abc\n",
                                      "99999999999999999999 a=b\n",
                                      "3 \n"};
    struct tar_index_member m = {.size = 0};

    assert_int_equal(tar_index_pax("10 path=x\n11 size=70\n", 21, &m), 0);
    assert_string_equal(m.name, "x");
    assert_int_equal(m.size, 70);
    for (size_t k = 0; k < ARRAY_SIZE(bad); k++)
        assert_true(tar_index_pax(bad[k], strlen(bad[k]), &m) < 0);
}

/* Layers of bytes bytes each, the first `same` of them one and the same. */
static enum err_code parse_many(size_t count, size_t same, uint64_t bytes, struct err *e)
{
    static char text[IMAGE_LAYERS_MAX * 256];
    struct image_manifest m;
    size_t used = (size_t)snprintf(text, sizeof(text),
                                   "{\"schemaVersion\":2," CONFIG ",\"layers\":[");

    for (size_t i = 0; i < count; i++)
        used += (size_t)snprintf(text + used, sizeof(text) - used,
                                 "%s{\"mediaType\":\"" TYPE_LAYER
                                 "\",\"digest\":\"sha256:%.61s%03zx\",\"size\":%llu}",
                                 i ? "," : "", HEX64, i < same ? 0 : i, (unsigned long long)bytes);
    used += (size_t)snprintf(text + used, sizeof(text) - used, "]}");
    return image_manifest_parse(text, used, &m, e);
}

static void layers_that_are_named_again_are_bounded(void **state)
{
    const uint64_t mib = 1ull << 20;
    struct err e;

    assert_int_equal(parse_many(128, 128, 32, &e), ERR_OK); /* Docker's empty one */
    assert_int_equal(parse_many(2, 2, 1024 * mib, &e), ERR_OK);
    assert_int_equal(parse_many(128, 0, 512 * mib, &e), ERR_OK);
    assert_int_equal(parse_many(128, 128, 9 * mib, &e), ERR_TOO_LARGE);
    assert_non_null(strstr(e.text, "names more than once"));
    assert_int_equal(parse_many(128, 0, 513 * mib, &e), ERR_TOO_LARGE);
    assert_non_null(strstr(e.text, "its layers are said to have 68853694464 bytes"));
}

/* Line 0 is the tenant's, line i that of the lowest i layers. */
static bool same_line(const char *a, const char *b, size_t i)
{
    return memcmp(a + i * 65, b + i * 65, 65) == 0;
}

static void names_of_layers_tell_all_below(void **state)
{
    static struct image_manifest m[3] = {{.count = 2}, {.count = 2}, {.count = 2}};
    static const char *const digits[3] = {"12", "13", "21"};
    char first[IMAGE_LAYER_NAMES_SIZE], other[IMAGE_LAYER_NAMES_SIZE];

    for (size_t i = 0; i < 3; i++)
        for (size_t k = 0; k < 2; k++)
            snprintf(m[i].layers[k].digest, IMAGE_DIGEST_SIZE, "sha256:%.63s%c", HEX64,
                     digits[i][k]);
    assert_int_equal(image_layer_names("a", &m[0], first), 0);
    assert_int_equal(strlen(first), 3 * 65);
    assert_int_equal(strspn(first, "0123456789abcdef"), 64);
    assert_int_equal(image_layer_names("a", &m[1], other), 0); /* the lowest is the same */
    assert_true(same_line(first, other, 0) && same_line(first, other, 1));
    assert_false(same_line(first, other, 2));
    assert_int_equal(image_layer_names("a", &m[2], other), 0); /* the other way round */
    assert_false(same_line(first, other, 1) || same_line(first, other, 2));
    assert_int_equal(image_layer_names("b", &m[0], other), 0); /* another tenant */
    assert_false(same_line(first, other, 0));
    assert_true(same_line(first, other, 1) && same_line(first, other, 2));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_layout_is_read, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_directory_is_read, set_up, tear_down),
        cmocka_unit_test_setup_teardown(another_architecture_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_has_another_digest_is_refused, set_up, tear_down),
        cmocka_unit_test(manifests_that_are_refused),
        cmocka_unit_test(an_index_gives_the_image_of_this_platform),
        cmocka_unit_test_setup_teardown(a_docker_archive_is_read, set_up, tear_down),
        cmocka_unit_test(pax_records_that_lie_are_refused),
        cmocka_unit_test(layers_that_are_named_again_are_bounded),
        cmocka_unit_test(names_of_layers_tell_all_below),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
