#include "mcp/file_call.h"

#include "http/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define STAT_BYTES_MAX 65536u
#define PUT_BYTES_MAX  65536u

void file_target(const char *path, char out[static FILE_TARGET_SIZE])
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-~";
    size_t n = (size_t)snprintf(out, FILE_TARGET_SIZE, "/files?path=");

    for (; *path && n + 4 < FILE_TARGET_SIZE; path++)
        if (strchr(plain, *path))
            out[n++] = *path;
        else
            n += (size_t)snprintf(out + n, 4, "%%%02X", (unsigned char)*path);
    out[n] = '\0';
}

void file_call(struct request *r, const struct core_agent_file_call *a, core_agent_cb done)
{
    struct core_agent_file_call mine = *a;

    mine.own_rights = true;
    core_agent_file_call(r->core, r->tenant, r->sandbox, &mine, done, r);
}

void file_get(struct request *r, const char *path, int64_t offset, size_t max, core_agent_cb done)
{
    char target[FILE_TARGET_SIZE], range[CORE_AGENT_RANGE_SIZE];
    const struct core_agent_file_call a = {
        .method = "GET", .target = target, .range = range, .max_response = max};

    file_target(path, target);
    (void)snprintf(range, sizeof(range), "bytes=%" PRId64 "-%" PRId64, offset,
                   offset + (int64_t)max - 1);
    file_call(r, &a, done);
}

void file_put(struct request *r, const char *path, char *bytes, size_t len, core_agent_cb done)
{
    char target[FILE_TARGET_SIZE];
    const struct core_agent_file_call a = {.method = "POST",
                                           .target = target,
                                           .type = "application/octet-stream",
                                           .body = bytes,
                                           .body_len = len,
                                           .max_response = PUT_BYTES_MAX};

    file_target(path, target);
    file_call(r, &a, done);
}

/* Takes the reference to body. */
static void call_json(struct request *r, const char *target, json_t *body, size_t max,
                      core_agent_cb done)
{
    const struct core_agent_file_call a = {.method = "POST",
                                           .target = target,
                                           .body = json_text(body, JSON_COMPACT),
                                           .max_response = max};

    json_decref(body);
    file_call(r, &a, done);
}

void file_stat(struct request *r, const char *path, core_agent_cb done)
{
    call_json(r, "/filesystem.Filesystem/Stat", json_pack("{s:s}", "path", path), STAT_BYTES_MAX,
              done);
}

void file_list(struct request *r, const char *path, int64_t depth, core_agent_cb done)
{
    call_json(r, "/filesystem.Filesystem/ListDir",
              json_pack("{s:s, s:I}", "path", path, "depth", (json_int_t)depth),
              CORE_AGENT_ANSWER_MAX, done);
}

/* A number of protobuf's JSON is a text when it has 64 bits. */
static int64_t number_of(const json_t *value)
{
    return json_is_string(value) ? strtoll(json_string_value(value), NULL, 10)
                                 : json_integer_value(value);
}

static bool is_type(const json_t *entry, const char *type)
{
    const char *text = json_string_value(json_object_get(entry, "type"));

    return text && strcmp(text, type) == 0;
}

bool file_read_stat(const char *body, size_t len, struct file_stat *out)
{
    json_t *o = body ? json_load_answer(body, len) : NULL;
    const json_t *entry = json_object_get(o, "entry");
    bool good = json_is_object(entry);

    *out = (struct file_stat){.is_directory = is_type(entry, "FILE_TYPE_DIRECTORY"),
                              .is_file = is_type(entry, "FILE_TYPE_FILE"),
                              .size = MAX(number_of(json_object_get(entry, "size")), 0)};
    json_decref(o);
    return good;
}

json_t *file_entry(const json_t *entry)
{
    const char *path = json_string_value(json_object_get(entry, "path"));
    const char *modified = json_string_value(json_object_get(entry, "modifiedTime"));

    return json_pack("{s:s, s:s, s:I, s:s}", "path", path ? path : "", "type",
                     json_object_get(entry, "symlinkTarget") ? "symlink"
                     : is_type(entry, "FILE_TYPE_DIRECTORY") ? "directory"
                     : is_type(entry, "FILE_TYPE_FILE")      ? "file"
                                                             : "other",
                     "size", (json_int_t)number_of(json_object_get(entry, "size")), "modified",
                     modified ? modified : "");
}
