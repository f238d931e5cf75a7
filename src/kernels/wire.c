#include "kernels/wire.h"

#include "base/clock.h"
#include "base/ids.h"
#include "kernels/repair.h"

#include <errno.h>
#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <string.h>

#define DELIMITER "<IDS|MSG>"
#define PARTS     4 /* header, parent header, metadata, content */

static bool digest_parts(EVP_MAC_CTX *ctx, const char *key, const struct wire_frame *parts,
                         unsigned char *out, size_t size)
{
    static char sha256[] = "SHA256";
    OSSL_PARAM params[] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, sha256, 0),
                           OSSL_PARAM_construct_end()};
    size_t len = 0;

    if (EVP_MAC_init(ctx, (const unsigned char *)key, strlen(key), params) != 1)
        return false;
    for (size_t i = 0; i < PARTS; i++)
        if (EVP_MAC_update(ctx, parts[i].data, parts[i].len) != 1)
            return false;
    return EVP_MAC_final(ctx, out, &len, size) == 1 && len == size;
}

static int sign(const char *key, const struct wire_frame *parts, char out[WIRE_SIGNATURE_LEN + 1])
{
    unsigned char digest[WIRE_SIGNATURE_LEN / 2];
    EVP_MAC *mac = EVP_MAC_fetch(NULL, "HMAC", NULL);
    EVP_MAC_CTX *ctx = mac ? EVP_MAC_CTX_new(mac) : NULL;
    bool ok = ctx && digest_parts(ctx, key, parts, digest, sizeof(digest));

    EVP_MAC_CTX_free(ctx);
    EVP_MAC_free(mac);
    if (ok)
        ids_hex(digest, sizeof(digest), out);
    return ok ? 0 : -ENOMEM;
}

static bool is_delimiter(const struct wire_frame *f)
{
    return f->len == strlen(DELIMITER) && memcmp(f->data, DELIMITER, f->len) == 0;
}

/* Python writes integers of any size, which jansson has no type for: those become reals. */
static json_t *parse_text(const char *text, size_t len)
{
    json_t *value = json_loadb(text, len, JSON_ALLOW_NUL, NULL);

    return value ? value : json_loadb(text, len, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, NULL);
}

static json_t *parse_object(const struct wire_frame *f)
{
    json_t *value = f->len > WIRE_MESSAGE_MAX ? NULL : parse_text(f->data, f->len);

    if (!value && f->len > 0 && f->len <= WIRE_MESSAGE_MAX) {
        size_t len = 0;
        CLEANUP_FREE char *text = repair_json(f->data, f->len, &len);

        value = text ? parse_text(text, len) : NULL;
    }
    if (json_is_object(value))
        return value;
    json_decref(value);
    return NULL;
}

static json_t *parse_content(const struct wire_frame *f, const char **unread)
{
    json_t *value = parse_object(f);

    if (value)
        return value;
    *unread = f->len > WIRE_MESSAGE_MAX ? "it has over 48 MiB" : "it is no object of JSON";
    _Static_assert(WIRE_MESSAGE_MAX >> 20 == 48, "said above");
    return json_object();
}

static const char *text_of(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));

    return text ? text : "";
}

static int parse_parts(const struct wire_frame *parts, struct wire_message *m)
{
    m->header = parse_object(&parts[0]);
    m->parent = parse_object(&parts[1]);
    m->content = parse_content(&parts[3], &m->unread);
    m->type = text_of(m->header, "msg_type");
    m->date = text_of(m->header, "date");
    m->parent_id = text_of(m->parent, "msg_id");
    return m->header && m->parent && m->content && m->type[0] ? 0 : -EBADMSG;
}

int wire_parse(const char *key, const struct wire_frame *frames, size_t n, struct wire_message *out)
{
    char expected[WIRE_SIGNATURE_LEN + 1];
    struct wire_message m = {0};
    size_t at = 0;
    int ret;

    while (at < n && !is_delimiter(&frames[at]))
        at++;
    if (n - at < 2 + PARTS)
        return -EBADMSG;
    ret = sign(key, &frames[at + 2], expected);
    if (ret < 0)
        return ret;
    if (frames[at + 1].len != WIRE_SIGNATURE_LEN ||
        !ids_equal_secret(frames[at + 1].data, expected, WIRE_SIGNATURE_LEN))
        return -EACCES;
    ret = parse_parts(&frames[at + 2], &m);
    if (ret < 0)
        wire_free(&m);
    else
        *out = m;
    return ret;
}

void wire_free(struct wire_message *m)
{
    json_decref(m->header);
    json_decref(m->parent);
    json_decref(m->content);
    *m = (struct wire_message){0};
}

static char *make_header(const char *session, const char *id, const char *type)
{
    char date[CLOCK_RFC3339_SIZE], *text;
    json_t *header;

    clock_format_rfc3339(clock_real_ms(), date);
    header = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s}", "msg_id", id, "session", session,
                       "username", "cay", "date", date, "msg_type", type, "version", "5.3");
    text = header ? json_dumps(header, JSON_COMPACT) : NULL;
    json_decref(header);
    return text;
}

int wire_build(const char *key, const char *session, const char *id, const char *type,
               const json_t *content, struct wire_sent *out)
{
    static const char empty[] = "{}";
    int ret = -ENOMEM;

    *out = (struct wire_sent){0};
    out->header = make_header(session, id, type);
    out->content = json_dumps(content, JSON_COMPACT | JSON_ENSURE_ASCII);
    if (out->header && out->content) {
        struct wire_frame *f = out->frames;

        f[0] = (struct wire_frame){DELIMITER, strlen(DELIMITER)};
        f[2] = (struct wire_frame){out->header, strlen(out->header)};
        f[3] = f[4] = (struct wire_frame){empty, strlen(empty)};
        f[5] = (struct wire_frame){out->content, strlen(out->content)};
        ret = sign(key, &f[2], out->signature);
        f[1] = (struct wire_frame){out->signature, WIRE_SIGNATURE_LEN};
    }
    if (ret < 0)
        wire_sent_free(out);
    return ret;
}

void wire_sent_free(struct wire_sent *s)
{
    free(s->header);
    free(s->content);
    *s = (struct wire_sent){0};
}
