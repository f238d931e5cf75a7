/* The sealing key is read or made at the start. Sealing takes a request's values and gives
 * records, and forgets the values. Opening is the reverse, when a policy comes that names them:
 * the opened values hang on the sandbox's rules until these are replaced, and are wiped then. Which
 * request may use one is asked of credential_fits alone. */

#include "egress/credential/credential.h"

#include "base/base64.h"
#include "base/ids.h"
#include "base/io.h"
#include "base/log.h"
#include "egress/credential/credential_read.h"
#include "egress/credential/response_secrets.h"
#include "http/json.h"
#include "http/message.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>
#include <strings.h>

#define KEY_NAME     "seal.key"
#define VERSION      1
#define NONCE_BYTES  12
#define TAG_BYTES    16
#define RECORD_EXTRA (1 + NONCE_BYTES + TAG_BYTES)
#define PLAIN_MAX    (CREDENTIAL_SEALED_MAX / 4 * 3 - RECORD_EXTRA - 3)
#define TENANT_MAX   64

struct sealer {
    unsigned char key[CREDENTIAL_KEY_BYTES];
};

/* -- the key ----------------------------------------------------------------------------------- */

/* Nothing but 32 bytes, and perhaps a newline after them, as editors leave one. */
static int read_key(int fd, unsigned char key[static CREDENTIAL_KEY_BYTES])
{
    unsigned char data[CREDENTIAL_KEY_BYTES + 2];
    ssize_t n = pread(fd, data, sizeof(data), 0);
    int rc = 0;

    if (n < 0)
        rc = -errno;
    else if (n != CREDENTIAL_KEY_BYTES &&
             (n != CREDENTIAL_KEY_BYTES + 1 || data[CREDENTIAL_KEY_BYTES] != '\n'))
        rc = -EINVAL;
    else
        memcpy(key, data, CREDENTIAL_KEY_BYTES);
    explicit_bzero(data, sizeof(data));
    return rc;
}

static int read_or_make_key(const char *state_dir, unsigned char key[static CREDENTIAL_KEY_BYTES])
{
    CLEANUP_CLOSE int dir = open(state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), fd = -1;
    unsigned char fresh[CREDENTIAL_KEY_BYTES];
    int rc = 0;

    if (dir < 0)
        return -errno;
    fd = openat(dir, KEY_NAME, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) {
        ids_random_bytes(fresh, sizeof(fresh));
        rc = io_create_file_at(dir, KEY_NAME, fresh, sizeof(fresh), 0600);
        explicit_bzero(fresh, sizeof(fresh));
        if (rc < 0 && rc != -EEXIST) /* another of these processes was first */
            return rc;
        fd = openat(dir, KEY_NAME, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    }
    return fd < 0 ? -errno : read_key(fd, key);
}

enum err_code sealer_new(const char *state_dir, int key_fd, struct sealer **out, struct err *e)
{
    struct sealer *s = calloc(1, sizeof(*s));
    int rc;

    if (!s)
        return err_set(e, ERR_EXHAUSTED, "out of memory");
    rc = key_fd >= 0 ? read_key(key_fd, s->key) : read_or_make_key(state_dir, s->key);
    if (rc == 0) {
        *out = s;
        return ERR_OK;
    }
    sealer_free(s);
    if (rc == -EINVAL)
        return err_set(e, ERR_INVALID,
                       "the key that credentials are sealed with is not %u bytes long",
                       CREDENTIAL_KEY_BYTES);
    return err_set_sys(e, ERR_INTERNAL, rc, "the key that credentials are sealed with");
}

void sealer_free(struct sealer *s)
{
    if (s)
        explicit_bzero(s, sizeof(*s));
    free(s);
}

int sealer_derive(const struct sealer *s, const char *purpose,
                  unsigned char out[static CREDENTIAL_KEY_BYTES])
{
    unsigned n = CREDENTIAL_KEY_BYTES;

    return HMAC(EVP_sha256(), s->key, sizeof(s->key), (const unsigned char *)purpose,
                strlen(purpose), out, &n)
               ? 0
               : -ENOMEM;
}

/* -- AES-256-GCM ------------------------------------------------------------------------------- */

/* out: version, nonce, n bytes, tag. The nonce is random: 96 bits, and far fewer than 2^32
 * records. */
static int gcm_seal(const struct sealer *s, const char *aad, const void *plain, size_t n,
                    unsigned char *out)
{
    EVP_CIPHER_CTX *c = EVP_CIPHER_CTX_new();
    unsigned char *nonce = out + 1, *text = nonce + NONCE_BYTES;
    int len;
    bool good;

    out[0] = VERSION;
    ids_random_bytes(nonce, NONCE_BYTES);
    good = c && EVP_EncryptInit_ex(c, EVP_aes_256_gcm(), NULL, s->key, nonce) == 1 &&
           EVP_EncryptUpdate(c, NULL, &len, (const unsigned char *)aad, (int)strlen(aad)) == 1 &&
           EVP_EncryptUpdate(c, text, &len, plain, (int)n) == 1 &&
           EVP_EncryptFinal_ex(c, text + len, &len) == 1 &&
           EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_GCM_GET_TAG, TAG_BYTES, text + n) == 1;
    EVP_CIPHER_CTX_free(c);
    return good ? 0 : -EIO;
}

/* The reverse; out has room for n - RECORD_EXTRA bytes. */
static int gcm_open(const struct sealer *s, const char *aad, const unsigned char *record, size_t n,
                    unsigned char *out)
{
    EVP_CIPHER_CTX *c;
    const unsigned char *nonce = record + 1, *text = nonce + NONCE_BYTES;
    size_t text_len = n - RECORD_EXTRA;
    unsigned char tag[TAG_BYTES];
    int len;
    bool good;

    if (record[0] != VERSION)
        return -EINVAL;
    memcpy(tag, text + text_len, sizeof(tag));
    c = EVP_CIPHER_CTX_new();
    good = c && EVP_DecryptInit_ex(c, EVP_aes_256_gcm(), NULL, s->key, nonce) == 1 &&
           EVP_DecryptUpdate(c, NULL, &len, (const unsigned char *)aad, (int)strlen(aad)) == 1 &&
           EVP_DecryptUpdate(c, out, &len, text, (int)text_len) == 1 &&
           EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_GCM_SET_TAG, TAG_BYTES, tag) == 1 &&
           EVP_DecryptFinal_ex(c, out + len, &len) == 1;
    EVP_CIPHER_CTX_free(c);
    if (!good)
        explicit_bzero(out, text_len);
    return good ? 0 : -EBADMSG;
}

char *credential_aad(const char *tenant, const char *name, const json_t *bind, const char *of)
{
    json_t *o;
    char *text;

    o = json_make("{s:s, s:s, s:O, s:s*}", "tenant", tenant, "name", name, "bind", bind, "of", of);
    text = json_text(o, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENSURE_ASCII);
    json_decref(o);
    return text;
}

/* -- sealing ----------------------------------------------------------------------------------- */

static enum err_code out_of_memory(struct err *e)
{
    return err_set(e, ERR_EXHAUSTED, "out of memory");
}

static enum err_code check_request(const json_t *r, struct err *e)
{
    const char *tenant = json_string_value(json_object_get(r, "tenant"));
    const json_t *name = json_object_get(r, "name");
    const char *key;
    json_t *value;

    if (!json_is_object(r))
        return err_set(e, ERR_INVALID, "must be {\"tenant\", \"name\", \"value\", \"bind\"}");
    json_object_foreach ((json_t *)r, key, value)
        if (strcmp(key, "tenant") != 0 && strcmp(key, "name") != 0 && strcmp(key, "value") != 0 &&
            strcmp(key, "bind") != 0)
            return err_set(e, ERR_INVALID, "there is no \"%.40s\"", key);
    if (!tenant || !*tenant || strlen(tenant) > TENANT_MAX)
        return err_set(e, ERR_INVALID, "tenant: missing, or longer than %d bytes", TENANT_MAX);
    if (!json_is_string(name) ||
        !credential_is_name(json_string_value(name), json_string_length(name)))
        return err_set(e, ERR_INVALID,
                       "name: must be 1 to %u letters, digits, '-', '_' or '.', the first a letter "
                       "or digit, the last no '.'",
                       POLICY_CREDENTIAL_MAX);
    return ERR_OK;
}

static enum err_code seal_text(const struct sealer *s, const char *aad, const char *plain,
                               char **out, struct err *e)
{
    size_t n = strlen(plain);
    CLEANUP_FREE uint8_t *record = malloc(n + RECORD_EXTRA);
    char *text;

    if (n > PLAIN_MAX)
        /* cppcheck-suppress memleak ; CLEANUP_FREE frees it */
        return err_set(e, ERR_TOO_LARGE, "value: too large");
    text = record ? malloc(base64_encoded_len(n + RECORD_EXTRA) + 1) : NULL;
    if (!text)
        /* cppcheck-suppress memleak ; CLEANUP_FREE frees it */
        return out_of_memory(e);
    if (gcm_seal(s, aad, plain, n, record) < 0) {
        free(text);
        return err_set(e, ERR_INTERNAL, "the value cannot be sealed");
    }
    base64_encode(record, n + RECORD_EXTRA, text);
    *out = text;
    return ERR_OK;
}

enum err_code credential_seal_json(const struct sealer *s, const char *aad, const json_t *value,
                                   char **out, struct err *e)
{
    char *plain;
    enum err_code code;

    json_memory_begin();
    plain = json_text(value, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY);
    code = aad && plain && !json_memory_was_out() ? seal_text(s, aad, plain, out, e)
                                                  : out_of_memory(e);

    credential_wipe(plain);
    return code;
}

enum err_code credential_seal(const struct sealer *s, const json_t *request, char **out,
                              struct err *e)
{
    json_t *bind = json_object_get(request, "bind"), *value = json_object_get(request, "value");
    struct credential c = {.bound = NULL};
    CLEANUP_FREE char *aad = NULL;
    enum err_code code = check_request(request, e);

    if (code == ERR_OK)
        code = credential_read_bind(&c, bind, e);
    if (code == ERR_OK)
        code = credential_read_value(&c, value, e);
    credential_clear(&c);
    if (code != ERR_OK)
        return code;
    aad = credential_aad(json_string_value(json_object_get(request, "tenant")),
                         json_string_value(json_object_get(request, "name")), bind, NULL);
    return credential_seal_json(s, aad, value, out, e);
}

/* -- opening ----------------------------------------------------------------------------------- */

enum err_code credential_open_json(const struct sealer *s, const char *aad, const json_t *sealed,
                                   json_t **out, struct err *e)
{
    const char *text = json_string_value(sealed);
    size_t len = json_string_length(sealed);
    CLEANUP_FREE uint8_t *record = malloc(base64_decoded_max(len) + 1);
    unsigned char *plain;
    ssize_t n;

    if (!text || len > CREDENTIAL_SEALED_MAX)
        /* cppcheck-suppress memleak ; CLEANUP_FREE frees it */
        return err_set(e, ERR_INVALID, "sealed: must be a text of at most %u bytes",
                       CREDENTIAL_SEALED_MAX);
    plain = record ? calloc(1, base64_decoded_max(len) + 1) : NULL;
    if (!plain)
        /* cppcheck-suppress memleak ; CLEANUP_FREE frees it */
        return out_of_memory(e);
    n = base64_decode(text, len, record);
    *out = NULL;
    e->code = ERR_OK;
    if (n < RECORD_EXTRA)
        err_set(e, ERR_INVALID, "sealed: is no sealed record");
    else if (gcm_open(s, aad, record, (size_t)n, plain) < 0)
        err_set(e, ERR_DENIED,
                "sealed: was not made here for this tenant, name and bind, or was changed");
    else if (!(*out = json_load((const char *)plain, (size_t)n - RECORD_EXTRA)))
        err_set(e, ERR_EXHAUSTED, "memory is out"); /* it was JSON when it was sealed */
    if (n > 0)
        explicit_bzero(plain, (size_t)n);
    free(plain);
    return e->code;
}

static enum err_code open_record(const struct sealer *s, const char *aad, const json_t *sealed,
                                 struct credential *c, struct err *e)
{
    json_t *value = NULL;
    enum err_code code = credential_open_json(s, aad, sealed, &value, e);

    if (code == ERR_OK)
        code = credential_read_value(c, value, e);
    json_decref(value);
    return code;
}

static enum err_code read_one(const struct sealer *s, const char *tenant, const json_t *json,
                              struct credential *c, struct err *e)
{
    json_t *name = json_object_get(json, "name"), *bind = json_object_get(json, "bind");
    CLEANUP_FREE char *aad = NULL;

    if (!json_is_string(name) ||
        !credential_is_name(json_string_value(name), json_string_length(name)))
        return err_set(e, ERR_INVALID, "name: missing, or not a credential's name");
    snprintf(c->name, sizeof(c->name), "%s", json_string_value(name));
    if (credential_read_bind(c, bind, e) != ERR_OK)
        return e->code;
    aad = credential_aad(tenant, c->name, bind, NULL);
    if (!aad)
        return out_of_memory(e);
    if (open_record(s, aad, json_object_get(json, "sealed"), c, e) != ERR_OK)
        return e->code;
    return c->kind == CREDENTIAL_OAUTH2 ? credential_read_token(s, tenant, json, c, e) : ERR_OK;
}

enum err_code credentials_new(const struct sealer *s, const char *tenant, const json_t *json,
                              struct credentials **out, struct err *e)
{
    size_t n = json_array_size(json), i;
    struct credentials *all;
    const json_t *item;

    if (!json_is_array(json) || n > CREDENTIALS_MAX)
        return err_set(e, ERR_INVALID, "credentials: must be a list of at most %u",
                       CREDENTIALS_MAX);
    all = calloc(1, sizeof(*all) + n * sizeof(all->list[0]));
    if (!all)
        return out_of_memory(e);
    all->refs = 1;
    all->searched = response_secrets_cache_new();
    if (!all->searched) {
        free(all);
        return out_of_memory(e);
    }
    json_array_foreach (json, i, item) {
        struct err inner = {0};

        all->count = i + 1;
        if (read_one(s, tenant, item, &all->list[i], &inner) == ERR_OK)
            continue;
        err_set(e, inner.code, "credentials[%zu].%s", i, inner.text);
        credentials_unref(all);
        return e->code;
    }
    *out = all;
    return ERR_OK;
}

struct credentials *credentials_ref(struct credentials *c)
{
    if (c)
        c->refs++;
    return c;
}

void credentials_unref(struct credentials *c)
{
    if (!c || --c->refs > 0)
        return;
    response_secrets_cache_free(c->searched);
    for (size_t i = 0; i < c->count; i++)
        credential_clear(&c->list[i]);
    explicit_bzero(c, sizeof(*c) + c->count * sizeof(c->list[0]));
    free(c);
}

/* -- questions --------------------------------------------------------------------------------- */

const struct credential *credentials_find(const struct credentials *c, const char *name, size_t n)
{
    for (size_t i = 0; c && i < c->count; i++)
        if (strlen(c->list[i].name) == n && memcmp(c->list[i].name, name, n) == 0)
            return &c->list[i];
    return NULL;
}

char *credentials_names(const struct credentials *c, uint64_t which)
{
    unsigned left = (unsigned)__builtin_popcountll(which);
    CLEANUP_BUF struct buf b;
    int rc = 0;

    buf_init(&b, CREDENTIALS_NAMES_MAX + POLICY_CREDENTIAL_MAX + 32);
    for (; rc == 0 && which && b.len <= CREDENTIALS_NAMES_MAX; which &= which - 1, left--)
        rc = buf_printf(&b, "%s%s", b.len > 0 ? ", " : "", c->list[__builtin_ctzll(which)].name);
    if (rc == 0 && left > 0)
        rc = buf_printf(&b, " and %u more", left);
    return rc == 0 ? buf_take(&b) : NULL;
}

enum policy_fit credential_fits(const struct credential *c, const char *host, uint16_t port,
                                struct policy_transport transport, const char *method,
                                const char *path)
{
    return policy_binding_fits(c->bound, c->insecure, host, port, transport, method, path);
}

bool credential_knows(const struct credential *c, const char *host, uint16_t port)
{
    return policy_name(c->bound, host, port).action != POLICY_DENY;
}

bool credential_is_key_header(const char *name)
{
    static const char *const names[] = {
        "authorization",  "x-api-key",
        "api-key",        "apikey",
        "x-goog-api-key", "x-auth-token",
        "x-auth-key",     "x-access-token",
        "private-token",  "ocp-apim-subscription-key",
        "job-token",      "x-vault-token",
        "x-gitlab-token", "x-shopify-access-token",
        "dpop",           "x-amz-security-token",
    };

    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (http_name_like(names[i], name))
            return true;
    return false;
}

bool credential_goes_in(const struct credential *c, const char *header)
{
    if (c->any_header)
        return true;
    for (size_t i = 0; i < c->in_header_count; i++)
        if (strcasecmp(c->in_headers[i], header) == 0)
            return true;
    return c->in_header_count == 0 && credential_is_key_header(header);
}
