#include "http/mime.h"

#include <stdbool.h>
#include <string.h>
#include <strings.h>

#include "base/util.h"

static const struct {
    const char *suffix, *type;
} by_suffix[] = {
    {"aac", "audio/aac"},
    {"avif", "image/avif"},
    {"bmp", "image/bmp"},
    {"bz2", "application/x-bzip2"},
    {"c", "text/x-c; charset=utf-8"},
    {"conf", "text/plain; charset=utf-8"},
    {"css", "text/css; charset=utf-8"},
    {"csv", "text/csv; charset=utf-8"},
    {"doc", "application/msword"},
    {"docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"},
    {"flac", "audio/flac"},
    {"gif", "image/gif"},
    {"gz", "application/gzip"},
    {"h", "text/x-c; charset=utf-8"},
    {"htm", "text/html; charset=utf-8"},
    {"html", "text/html; charset=utf-8"},
    {"ico", "image/vnd.microsoft.icon"},
    {"ini", "text/plain; charset=utf-8"},
    {"jpeg", "image/jpeg"},
    {"jpg", "image/jpeg"},
    {"js", "text/javascript; charset=utf-8"},
    {"json", "application/json"},
    {"log", "text/plain; charset=utf-8"},
    {"md", "text/markdown; charset=utf-8"},
    {"mjs", "text/javascript; charset=utf-8"},
    {"mp3", "audio/mpeg"},
    {"mp4", "video/mp4"},
    {"ogg", "audio/ogg"},
    {"parquet", "application/vnd.apache.parquet"},
    {"pdf", "application/pdf"},
    {"png", "image/png"},
    {"pptx", "application/vnd.openxmlformats-officedocument.presentationml.presentation"},
    {"py", "text/x-python; charset=utf-8"},
    {"sh", "text/x-sh; charset=utf-8"},
    {"svg", "image/svg+xml"},
    {"tar", "application/x-tar"},
    {"tif", "image/tiff"},
    {"tiff", "image/tiff"},
    {"toml", "application/toml"},
    {"ts", "text/x-typescript; charset=utf-8"},
    {"txt", "text/plain; charset=utf-8"},
    {"wasm", "application/wasm"},
    {"wav", "audio/wav"},
    {"webm", "video/webm"},
    {"webp", "image/webp"},
    {"woff", "font/woff"},
    {"woff2", "font/woff2"},
    {"xls", "application/vnd.ms-excel"},
    {"xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"},
    {"xml", "text/xml; charset=utf-8"},
    {"xz", "application/x-xz"},
    {"yaml", "application/yaml"},
    {"yml", "application/yaml"},
    {"zip", "application/zip"},
    {"zst", "application/zstd"},
};

static const struct {
    const char *bytes;
    size_t n;
    const char *type;
} by_signature[] = {
    {"\x89PNG\r\n\x1a\n", 8, "image/png"},
    {"\xff\xd8\xff", 3, "image/jpeg"},
    {"GIF87a", 6, "image/gif"},
    {"GIF89a", 6, "image/gif"},
    {"%PDF-", 5, "application/pdf"},
    {"PK\x03\x04", 4, "application/zip"},
    {"\x1f\x8b\x08", 3, "application/gzip"},
    {"\x28\xb5\x2f\xfd", 4, "application/zstd"},
    {"BZh", 3, "application/x-bzip2"},
    {"\xfd\x37\x7aXZ", 5, "application/x-xz"},
    {"\0asm", 4, "application/wasm"},
};

const char *mime_by_name(const char *name)
{
    const char *slash = strrchr(name, '/');
    const char *dot = strrchr(slash ? slash + 1 : name, '.');

    if (!dot)
        return NULL;
    for (size_t i = 0; i < ARRAY_SIZE(by_suffix); i++)
        if (strcasecmp(by_suffix[i].suffix, dot + 1) == 0)
            return by_suffix[i].type;
    return NULL;
}

/* Text: UTF-8 (a character cut at the end is fine) without controls but white space and escape. */
static bool is_text(const unsigned char *p, size_t n)
{
    for (size_t i = 0; i < n;) {
        unsigned char c = p[i++];
        size_t more = c < 0x80 ? 0 : c >= 0xc2 && c < 0xe0 ? 1 : c >= 0xe0 && c < 0xf0 ? 2 : 3;

        if (c == 0x7f || (c < 0x20 && (c == 0 || !strchr("\t\n\r\f\b\x1b", c))) ||
            (more == 3 && c > 0xf4) || (c >= 0x80 && c < 0xc2))
            return false;
        for (; more > 0 && i < n; more--)
            if ((p[i++] & 0xc0) != 0x80)
                return false;
    }
    return true;
}

const char *mime_by_contents(const void *bytes, size_t n)
{
    for (size_t i = 0; i < ARRAY_SIZE(by_signature); i++)
        if (n >= by_signature[i].n && memcmp(bytes, by_signature[i].bytes, by_signature[i].n) == 0)
            return by_signature[i].type;
    return is_text(bytes, n) ? "text/plain; charset=utf-8" : "application/octet-stream";
}
