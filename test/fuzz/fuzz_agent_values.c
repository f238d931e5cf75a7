/* Values that cay-init reads by itself: the tenant's passwd and group files, paths, metadata
 * headers, names of files. The first byte says which; texts are separated by NUL. */
#include "agent/common/path.h"
#include "agent/common/user.h"
#include "agent/files/files_meta.h"
#include "agent/fs/fs_entry.h"
#include "agent/fs/fs_json.h"
#include "base/utf8.h"
#include "fuzz.h"
#include "http/json.h"

static const char *next(char **at, const char *end)
{
    char *text = *at;

    *at += strlen(text) + 1;
    if (*at > end)
        *at = (char *)end;
    return text;
}

static void users(char *at, const char *end)
{
    const char *name = next(&at, end), *passwd = next(&at, end), *group = next(&at, end);
    static struct user u;

    if (user_find_in(passwd, group, name, &u) < 0)
        return;
    FUZZ_CHECK(strcmp(u.name, name) == 0 || strtoul(name, NULL, 10) == u.uid);
    FUZZ_CHECK(u.name[0] && !strpbrk(u.name, ":\n"));
    FUZZ_CHECK(u.uid != UINT32_MAX && u.gid != UINT32_MAX);
    FUZZ_CHECK(u.home[0] && u.shell[0] && !strpbrk(u.shell, "\n") && !strpbrk(u.home, ":\n"));
    FUZZ_CHECK(u.group_count >= 1 && u.group_count <= USER_GROUPS_MAX && u.groups[0] == u.gid);
    for (size_t i = 0; i < u.group_count; i++)
        FUZZ_CHECK(u.groups[i] != UINT32_MAX);
}

static void check_clean(const char *path)
{
    char again[AGENT_PATH_SIZE], dir[AGENT_PATH_SIZE];
    size_t n = strlen(path);

    FUZZ_CHECK(path[0] == '/' && n < AGENT_PATH_SIZE && !strstr(path, "//"));
    FUZZ_CHECK(!strstr(path, "/./") && !strstr(path, "/../"));
    FUZZ_CHECK(n == 1 || path[n - 1] != '/');
    FUZZ_CHECK(path_clean(path, again) == 0 && strcmp(path, again) == 0);
    path_dir(path, dir);
    if (n > 1) {
        FUZZ_CHECK(path_join(dir, path_base(path), again) == 0);
        FUZZ_CHECK(strcmp(path, again) == 0);
    }
}

static void paths(char *at, const char *end)
{
    const char *path = next(&at, end), *home = next(&at, end), *dir = next(&at, end);
    static struct user u = {.name = "user"};
    char out[AGENT_PATH_SIZE];
    struct err e;

    if (strlen(home) < sizeof(u.home))
        snprintf(u.home, sizeof(u.home), "%s", home);
    if (path_clean(path, out) == 0)
        check_clean(out);
    if (path_resolve(path, &u, dir[0] ? dir : NULL, out, &e) == ERR_OK)
        check_clean(out);
    else
        FUZZ_CHECK(e.code == ERR_INVALID && e.text[0]);
}

static void check_meta(const struct files_meta *m)
{
    size_t total = 0;

    for (size_t i = 0; i < m->count; i++) {
        const char *name = m->pairs[i].name;

        FUZZ_CHECK(strncmp(name, FS_ENTRY_METADATA_PREFIX, strlen(FS_ENTRY_METADATA_PREFIX)) == 0);
        for (const char *p = name; *p; p++)
            FUZZ_CHECK(*p >= 0x20 && *p < 0x7f && !(*p >= 'A' && *p <= 'Z'));
        for (size_t k = 0; k < i; k++)
            FUZZ_CHECK(strcmp(m->pairs[k].name, name) != 0);
        total += strlen(name) + strlen(m->pairs[i].value);
    }
    FUZZ_CHECK(total <= FILES_META_MAX);
}

static void metadata(char *at, const char *end)
{
    static struct http_head h;
    static struct files_meta m;
    struct err e;

    memset(&h, 0, sizeof(h));
    while (at < end && h.header_count < HTTP_MAX_HEADERS) {
        struct http_header *header = &h.headers[h.header_count++];

        header->name = next(&at, end);
        header->value = next(&at, end);
    }
    if (files_meta_read(&h, &m, &e) == ERR_OK)
        check_meta(&m);
    else
        FUZZ_CHECK(e.code == ERR_INVALID && e.text[0]);
    files_meta_free(&m);
}

static void file_name(const char *bytes, size_t n)
{
    struct buf out CLEANUP_BUF;
    json_t *value = NULL;
    struct err e;

    buf_init(&out, 1u << 20);
    FUZZ_CHECK(buf_append_str(&out, "{") == 0 && fs_json_field(&out, "a", bytes) == 0);
    FUZZ_CHECK(buf_append_str(&out, ",\"b\":") == 0);
    FUZZ_CHECK(fs_json_string(&out, bytes, strlen(bytes)) == 0 && buf_append(&out, "}", 1) == 0);
    FUZZ_CHECK(json_parse(out.data, out.len, false, &value, &e) == ERR_OK);
    if (utf8_is_valid(bytes, strlen(bytes)))
        FUZZ_CHECK(strcmp(json_string_value(json_object_get(value, "a")), bytes) == 0);
    json_decref(value);
    buf_clear(&out);
    FUZZ_CHECK(fs_json_string(&out, bytes, n) == 0); /* NUL too */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text;

    if (size == 0 || size > 100000)
        return 0;
    text = malloc(size);
    FUZZ_CHECK(text);
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    switch (data[0] % 4) {
    case 0: users(text, text + size - 1); break;
    case 1: paths(text, text + size - 1); break;
    case 2: metadata(text, text + size - 1); break;
    default: file_name(text, size - 1);
    }
    free(text);
    return 0;
}
