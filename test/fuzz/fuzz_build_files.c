/* Archives that clients send for builds, four bytes for a call: the operation, whose, which hash,
 * and a byte more. Only an address that was given, unchanged, takes one; an archive that is there
 * was sent whole by that tenant; no name in the directory is of a client's making. */
#include "core/build_files.h"
#include "core/core_internal.h"
#include "fuzz.h"

#include <dirent.h>
#include <unistd.h>

#define TENANTS 3
#define HASHES  8
#define CALLS   400

static char base[] = "/tmp/cay-fuzz-XXXXXX", folder[sizeof(base) + 8];
static struct core core;
static uv_loop_t loop;
static bool sent[TENANTS][HASHES];
static struct {
    uint64_t number;
    unsigned tenant, hash;
} open_ones[TENANTS * CORE_BUILD_UPLOADS];
static size_t open_n;

static void empty(void)
{
    DIR *dir = opendir(folder);
    struct dirent *one;

    while (dir && (one = readdir(dir))) {
        size_t n = strlen(one->d_name);

        if (one->d_name[0] == '.')
            continue;
        FUZZ_CHECK((n == 96 || n == 16) && strspn(one->d_name, "0123456789abcdef") == n);
        FUZZ_CHECK(unlinkat(dirfd(dir), one->d_name, 0) == 0);
    }
    if (dir)
        closedir(dir);
}

static void clean_up(void)
{
    empty();
    timers_free(&core.timers);
    uv_close((uv_handle_t *)&core.timers.uv, NULL);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    (void)uv_loop_close(&loop);
    (void)!rmdir(folder);
    (void)!rmdir(base);
}

static void begin_world(void)
{
    struct err e = {.code = ERR_OK};

    if (!folder[0]) {
        FUZZ_CHECK(mkdtemp(base));
        (void)snprintf(folder, sizeof(folder), "%s/builds", base);
        core.config.state_dir = base;
        /* Never run: the sweep by the hour is not tried here. */
        FUZZ_CHECK(uv_loop_init(&loop) == 0);
        timers_init(&core.timers, &loop);
        atexit(clean_up);
    }
    memset(sent, 0, sizeof(sent));
    open_n = 0;
    FUZZ_CHECK(build_files_init(&core, &e) == ERR_OK);
}

static const char *tenant_of(unsigned n)
{
    static const char *const names[TENANTS] = {"default", "a", "b"};

    return names[n];
}

static void hash_of(unsigned n, char out[static CORE_BUILD_HASH_MAX + 1])
{
    (void)snprintf(out, CORE_BUILD_HASH_MAX + 1, "%064x", n);
}

/* at: of the address, a byte that is changed, by `change`; 0: none. */
static void begin(unsigned tenant, unsigned hash, size_t at, uint8_t change)
{
    char token[CORE_BUILD_UPLOAD_TOKEN] = "", text[CORE_BUILD_HASH_MAX + 1];
    struct core_build_upload u = {.fd = -1};
    struct err e = {.code = ERR_OK};
    enum err_code code;

    hash_of(hash, text);
    core_build_upload_token(&core, tenant_of(tenant), text, token);
    at %= strlen(token) + 1;
    token[at] = (char)(token[at] ^ change);
    code = core_build_upload_begin(&core, text, token, &u, &e);
    FUZZ_CHECK(!change || code == ERR_DENIED);
    if (code != ERR_OK) {
        FUZZ_CHECK(e.text[0] && u.fd == -1);
        return;
    }
    close(u.fd);
    FUZZ_CHECK(open_n < sizeof(open_ones) / sizeof(open_ones[0]));
    open_ones[open_n].number = u.number;
    open_ones[open_n].tenant = tenant;
    open_ones[open_n++].hash = hash;
}

/* Given by the client as they are. */
static void begin_with(const char *hash, const char *token)
{
    struct core_build_upload u = {.fd = -1};
    struct err e = {.code = ERR_OK};

    FUZZ_CHECK(core_build_upload_begin(&core, hash, token, &u, &e) != ERR_OK && e.text[0]);
}

static void end(size_t which, bool whole, uint8_t size)
{
    struct err e = {.code = ERR_OK};
    uint64_t bytes = (uint64_t)size * (CORE_BUILD_FILE_MAX / 255);

    if (open_n == 0) {
        FUZZ_CHECK(core_build_upload_end(&core, which, bytes, whole, &e) == ERR_TIMEOUT);
        return;
    }
    which %= open_n;
    FUZZ_CHECK(core_build_upload_end(&core, open_ones[which].number, bytes, whole, &e) == ERR_OK);
    if (whole)
        sent[open_ones[which].tenant][open_ones[which].hash] = true;
    open_ones[which] = open_ones[--open_n];
}

static void look(unsigned tenant, unsigned hash)
{
    char text[CORE_BUILD_HASH_MAX + 1];
    bool present = false;
    struct err e = {.code = ERR_OK};
    int fd;

    hash_of(hash, text);
    FUZZ_CHECK(core_build_file_present(&core, tenant_of(tenant), text, &present, &e) == ERR_OK);
    FUZZ_CHECK(!present || sent[tenant][hash]);
    fd = build_file_open(&core, tenant_of(tenant), text);
    FUZZ_CHECK((fd >= 0) == present);
    if (fd >= 0)
        close(fd);
}

static void call(const uint8_t *op, const char *text)
{
    unsigned tenant = op[1] % TENANTS, hash = op[2] % HASHES;

    switch (op[0] % 6) {
    case 0: begin(tenant, hash, 0, 0); break;
    case 1: begin(tenant, hash, op[2], op[3]); break;
    case 2: begin_with(text, text + op[3] % (strlen(text) + 1)); break;
    case 3: end(op[1], true, op[3]); break;
    case 4: end(op[1], false, op[3]); break;
    default: look(tenant, hash);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);

    FUZZ_CHECK(text);
    memcpy(text, data, size);
    text[size] = '\0';
    begin_world();
    for (size_t at = 0, n = 0; at + 4 <= size && n < CALLS; at += 4, n++)
        call(data + at, text + at);
    build_files_free(&core);
    empty();
    free(text);
    return 0;
}
