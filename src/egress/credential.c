#include "egress/credential.h"

#include "base/base64.h"
#include "base/ids.h"
#include "base/io.h"
#include "base/log.h"
#include "http/gate.h"
#include "http/json.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <string.h>
#include <strings.h>

#define KEY_NAME      "seal.key"
#define VERSION       1
#define NONCE_BYTES   12
#define TAG_BYTES     16
#define RECORD_EXTRA  (1 + NONCE_BYTES + TAG_BYTES)
#define PLAIN_MAX     (CREDENTIAL_SEALED_MAX / 4 * 3 - RECORD_EXTRA - 3)
#define BIND_TEXT_MAX 1024
#define TENANT_MAX    64

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

/* -- AES-256-GCM ------------------------------------------------------------------------------- */

/* out: version, nonce, n bytes, tag. The nonce is random: 96 bits, and far fewer than 2^32 records. */
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

/* What is authenticated beside the value: one text for one meaning. */
static char *make_aad(const char *tenant, const char *name, json_t *bind)
{
    json_t *o = json_pack("{s:s, s:s, s:O}", "tenant", tenant, "name", name, "bind", bind);
    char *text = o ? json_dumps(o, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENSURE_ASCII) : NULL;

    json_decref(o);
    return text;
}

/* -- what is bound ----------------------------------------------------------------------------- */

bool credential_is_name(const char *name, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)name[i]) && !strchr("-_.", name[i]))
            return false;
    return n > 0 && n <= POLICY_CREDENTIAL_MAX && isalnum((unsigned char)name[0]) &&
           name[n - 1] != '.';
}

void credential_wipe(char *text)
{
    if (text)
        explicit_bzero(text, strlen(text));
    free(text);
}

static const char *const kind_names[] = {[CREDENTIAL_BEARER] = "bearer",
                                         [CREDENTIAL_BASIC] = "basic",
                                         [CREDENTIAL_HEADER] = "header",
                                         [CREDENTIAL_HEADERS] = "headers",
                                         [CREDENTIAL_QUERY] = "query",
                                         [CREDENTIAL_SIGV4] = "aws-sigv4",
                                         [CREDENTIAL_PLACEHOLDER] = "placeholder"};

static enum err_code read_kind(const json_t *bind, enum credential_kind *out, struct err *e)
{
    const char *text = json_string_value(json_object_get(bind, "kind"));

    for (size_t i = 0; text && i < ARRAY_SIZE(kind_names); i++)
        if (strcmp(text, kind_names[i]) == 0) {
            *out = (enum credential_kind)i;
            return ERR_OK;
        }
    return err_set(e, ERR_INVALID,
                   "bind.kind: must be one of bearer, basic, header, headers, query, aws-sigv4, "
                   "placeholder");
}

/* A header that the proxy writes itself, or that decides where a message ends or goes. */
static bool is_free_header(const char *name)
{
    static const char *const taken[] = {"host",           "content-length",   "transfer-encoding",
                                        "connection",     "upgrade",          "te",
                                        "trailer",        "expect",           "proxy-authorization",
                                        "keep-alive",     "cookie2",          "proxy-connection",
                                        "http2-settings", "content-encoding", "accept-encoding"};

    for (size_t i = 0; i < ARRAY_SIZE(taken); i++)
        if (strcasecmp(name, taken[i]) == 0)
            return false;
    for (size_t i = 0; name[i]; i++)
        if (!gate_is_token((unsigned char)name[i]))
            return false;
    return name[0] && strlen(name) <= 64;
}

/* Printable ASCII: nothing that a header, a JSON text or a query could not hold. */
static bool is_plain_text(const char *s, size_t min, size_t max)
{
    size_t n = strlen(s);

    for (size_t i = 0; i < n; i++)
        if (s[i] < 0x20 || s[i] > 0x7e)
            return false;
    return n >= min && n <= max && (n == 0 || (s[0] != ' ' && s[n - 1] != ' '));
}

static bool is_query_name(const char *s)
{
    size_t n = strlen(s);

    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)s[i]) && !strchr("-_.~", s[i]))
            return false;
    return n > 0 && n < CREDENTIAL_PARAMETER_SIZE;
}

static bool is_aws_word(const char *s)
{
    size_t n = strlen(s);

    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)s[i]) && s[i] != '-')
            return false;
    return n > 0 && n <= 64;
}

static bool is_prefix(const char *s)
{
    size_t n = strlen(s);

    for (size_t i = 0; i < n; i++)
        if (s[i] < 0x20 || s[i] > 0x7e)
            return false;
    return n > 0 && n <= 64 && s[0] != ' ';
}

/* The texts of a bind: of which kind, whether it must be there, what it may be. */
static const struct bind_text {
    const char *key;
    enum credential_kind kind;
    bool required;
    bool (*good)(const char *s);
    size_t offset;
    const char *rule;
} bind_texts[] = {
    {"header", CREDENTIAL_HEADER, true, is_free_header, offsetof(struct credential, header),
     "a header's name that is not the proxy's own"},
    {"prefix", CREDENTIAL_HEADER, false, is_prefix, offsetof(struct credential, prefix),
     "1 to 64 printable characters, the first no blank"},
    {"parameter", CREDENTIAL_QUERY, true, is_query_name, offsetof(struct credential, parameter),
     "1 to 64 letters, digits, '-', '_', '.' or '~'"},
    {"region", CREDENTIAL_SIGV4, false, is_aws_word, offsetof(struct credential, region),
     "1 to 64 letters, digits or '-'"},
    {"service", CREDENTIAL_SIGV4, false, is_aws_word, offsetof(struct credential, service),
     "1 to 64 letters, digits or '-'"},
};

static const struct bind_text *find_bind_text(const char *key)
{
    for (size_t i = 0; i < ARRAY_SIZE(bind_texts); i++)
        if (strcmp(bind_texts[i].key, key) == 0)
            return &bind_texts[i];
    return NULL;
}

static enum err_code read_bind_text(struct credential *c, const struct bind_text *t,
                                    const json_t *value, struct err *e)
{
    const char *text = json_string_value(value);
    char *copy;

    if (c->kind != t->kind)
        return err_set(e, ERR_INVALID, "bind.%s: belongs to kind %s", t->key, kind_names[t->kind]);
    if (!text || !t->good(text))
        return err_set(e, ERR_INVALID, "bind.%s: must be %s", t->key, t->rule);
    copy = strdup(text);
    if (!copy)
        return err_set(e, ERR_EXHAUSTED, "out of memory");
    *(char **)(void *)((char *)c + t->offset) = TAKE_PTR(copy);
    return ERR_OK;
}

/* The place of an error in the rule, as one in bind: ".domains[0]: ...". */
static const char *place_of(const char *text)
{
    static const char rule[] = "rules[0]";
    const char *at = strstr(text, rule);

    return at ? at + sizeof(rule) - 1 : text;
}

/* What a rule of a policy has too is read, and later compared, by the same code. */
static enum err_code read_places(struct credential *c, json_t *bind, struct err *e)
{
    static const char *const keys[] = {"domains", "ports", "methods", "paths"};
    json_t *rule = json_pack("{s:s}", "action", "allow");
    json_t *policy = json_pack("{s:[o]}", "rules", rule);
    struct err inner = {0};
    enum err_code code;

    for (size_t i = 0; policy && i < ARRAY_SIZE(keys); i++)
        if (json_object_get(bind, keys[i]))
            json_object_set(rule, keys[i], json_object_get(bind, keys[i]));
    if (!policy)
        return err_set(e, ERR_EXHAUSTED, "out of memory");
    if (json_array_size(json_object_get(bind, "domains")) == 0)
        code = err_set(e, ERR_INVALID, "bind.domains: must name the hosts that may see the value");
    else if ((code = policy_new(policy, &c->bound, &inner)) != ERR_OK)
        err_set(e, code, "bind%s", place_of(inner.text));
    json_decref(policy);
    return code;
}

static bool is_place(const char *key)
{
    return strcmp(key, "domains") == 0 || strcmp(key, "ports") == 0 ||
           strcmp(key, "methods") == 0 || strcmp(key, "paths") == 0;
}

static enum err_code read_bind(struct credential *c, json_t *bind, struct err *e)
{
    const json_t *insecure = json_object_get(bind, "insecure");
    const char *key;
    json_t *value;

    if (!json_is_object(bind))
        return err_set(e, ERR_INVALID, "bind: must be an object");
    if (read_kind(bind, &c->kind, e) != ERR_OK)
        return e->code;
    json_object_foreach (bind, key, value) {
        const struct bind_text *t = find_bind_text(key);

        if (t && read_bind_text(c, t, value, e) != ERR_OK)
            return e->code;
        if (!t && !is_place(key) && strcmp(key, "kind") != 0 && strcmp(key, "insecure") != 0)
            return err_set(e, ERR_INVALID, "bind: there is no \"%.40s\"", key);
    }
    for (size_t i = 0; i < ARRAY_SIZE(bind_texts); i++)
        if (bind_texts[i].required && bind_texts[i].kind == c->kind &&
            !json_object_get(bind, bind_texts[i].key))
            return err_set(e, ERR_INVALID, "bind.%s: is needed with kind %s", bind_texts[i].key,
                           kind_names[c->kind]);
    if (insecure && !json_is_boolean(insecure))
        return err_set(e, ERR_INVALID, "bind.insecure: must be true or false");
    c->insecure = json_is_true(insecure);
    return read_places(c, bind, e);
}

/* -- values ------------------------------------------------------------------------------------ */

static enum err_code out_of_memory(struct err *e)
{
    return err_set(e, ERR_EXHAUSTED, "out of memory");
}

static enum err_code take_text(const json_t *json, const char *what, size_t min, char **out,
                               struct err *e)
{
    const char *text = json_string_value(json);

    if (!text || strlen(text) != json_string_length(json) ||
        !is_plain_text(text, min, CREDENTIAL_VALUE_MAX))
        return err_set(e, ERR_INVALID,
                       "%s: must be %zu to %u printable ASCII characters without blanks around "
                       "them",
                       what, min, CREDENTIAL_VALUE_MAX);
    *out = strdup(text);
    return *out ? ERR_OK : out_of_memory(e);
}

/* RFC 7617: no colon in the user's name, no control characters; any UTF-8 besides. */
static enum err_code take_basic(const json_t *json, char **out, struct err *e)
{
    const char *text = json_string_value(json);
    size_t n = text ? strlen(text) : 0;
    bool good = text && n == json_string_length(json) && n >= CREDENTIAL_VALUE_MIN &&
                n <= CREDENTIAL_VALUE_MAX && strchr(text, ':') && strchr(text, ':') != text;

    for (size_t i = 0; i < n; i++)
        good &= (unsigned char)text[i] >= 0x20 && text[i] != 0x7f;
    if (!good)
        return err_set(e, ERR_INVALID, "value: must be \"user:password\", %u to %u bytes",
                       CREDENTIAL_VALUE_MIN, CREDENTIAL_VALUE_MAX);
    *out = strdup(text);
    return *out ? ERR_OK : out_of_memory(e);
}

static enum err_code take_headers(struct credential *c, const json_t *json, struct err *e)
{
    size_t n = json_object_size(json);
    const char *key;
    json_t *value;

    if (n == 0 || n > CREDENTIAL_HEADERS_MAX)
        return err_set(e, ERR_INVALID, "value: must be an object of 1 to %u headers",
                       CREDENTIAL_HEADERS_MAX);
    json_object_foreach ((json_t *)json, key, value) {
        struct credential_header *h = &c->headers[c->header_count];

        if (!is_free_header(key))
            return err_set(e, ERR_INVALID, "value: \"%.64s\" cannot be set as a header", key);
        if (take_text(value, "value: a header's", 0, &h->value, e) != ERR_OK)
            return e->code;
        c->header_count++;
        h->name = strdup(key);
        if (!h->name)
            return out_of_memory(e);
    }
    return ERR_OK;
}

static enum err_code take_sigv4(struct credential *c, const json_t *json, struct err *e)
{
    const char *key;
    json_t *value;

    if (!json_is_object(json))
        return err_set(e, ERR_INVALID,
                       "value: must be {\"access_key_id\", \"secret_access_key\"} and perhaps "
                       "\"session_token\"");
    json_object_foreach ((json_t *)json, key, value)
        if (strcmp(key, "access_key_id") != 0 && strcmp(key, "secret_access_key") != 0 &&
            strcmp(key, "session_token") != 0)
            return err_set(e, ERR_INVALID, "value: there is no \"%.40s\"", key);
    if (take_text(json_object_get(json, "access_key_id"), "value.access_key_id", 8,
                  &c->access_key_id, e) != ERR_OK)
        return e->code;
    if (!is_aws_word(c->access_key_id))
        return err_set(e, ERR_INVALID, "value.access_key_id: must be letters and digits");
    if (take_text(json_object_get(json, "secret_access_key"), "value.secret_access_key", 8,
                  &c->secret_access_key, e) != ERR_OK)
        return e->code;
    value = json_object_get(json, "session_token");
    return value ? take_text(value, "value.session_token", 8, &c->session_token, e) : ERR_OK;
}

static enum err_code take_value(struct credential *c, const json_t *json, struct err *e)
{
    switch (c->kind) {
    case CREDENTIAL_BASIC: return take_basic(json, &c->value, e);
    case CREDENTIAL_HEADERS: return take_headers(c, json, e);
    case CREDENTIAL_SIGV4: return take_sigv4(c, json, e);
    default: return take_text(json, "value", CREDENTIAL_VALUE_MIN, &c->value, e);
    }
}

static void clear(struct credential *c)
{
    policy_free(c->bound);
    free(c->header);
    free(c->prefix);
    free(c->parameter);
    free(c->region);
    free(c->service);
    credential_wipe(c->value);
    for (size_t i = 0; i < CREDENTIAL_HEADERS_MAX; i++) {
        free(c->headers[i].name);
        credential_wipe(c->headers[i].value);
    }
    free(c->access_key_id);
    credential_wipe(c->secret_access_key);
    credential_wipe(c->session_token);
}

/* -- sealing ----------------------------------------------------------------------------------- */

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

enum err_code credential_seal(const struct sealer *s, const json_t *request, char **out,
                              struct err *e)
{
    json_t *bind = json_object_get(request, "bind"), *value = json_object_get(request, "value");
    struct credential c = {.bound = NULL};
    char *aad = NULL, *plain = NULL;
    enum err_code code = check_request(request, e);

    if (code == ERR_OK)
        code = read_bind(&c, bind, e);
    if (code == ERR_OK)
        code = take_value(&c, value, e);
    clear(&c);
    if (code != ERR_OK)
        return code;
    aad = make_aad(json_string_value(json_object_get(request, "tenant")),
                   json_string_value(json_object_get(request, "name")), bind);
    plain = json_dumps(value, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY);
    code = aad && plain ? seal_text(s, aad, plain, out, e) : out_of_memory(e);
    free(aad);
    credential_wipe(plain);
    return code;
}

/* -- opening ----------------------------------------------------------------------------------- */

static enum err_code take_plain(struct credential *c, const unsigned char *plain, size_t n,
                                struct err *e)
{
    json_t *value = json_loadb((const char *)plain, n, JSON_DECODE_ANY, NULL);
    enum err_code code;

    if (!value)
        return err_set(e, ERR_INTERNAL, "the sealed value cannot be read");
    code = take_value(c, value, e);
    json_decref(value);
    return code;
}

static enum err_code open_record(const struct sealer *s, const char *aad, const json_t *sealed,
                                 struct credential *c, struct err *e)
{
    const char *text = json_string_value(sealed);
    size_t len = json_string_length(sealed);
    CLEANUP_FREE uint8_t *record = malloc(base64_decoded_max(len) + 1);
    unsigned char *plain;
    ssize_t n;
    enum err_code code;

    if (!text || len > CREDENTIAL_SEALED_MAX)
        /* cppcheck-suppress memleak ; CLEANUP_FREE frees it */
        return err_set(e, ERR_INVALID, "sealed: must be a text of at most %u bytes",
                       CREDENTIAL_SEALED_MAX);
    plain = record ? calloc(1, base64_decoded_max(len) + 1) : NULL;
    if (!plain)
        /* cppcheck-suppress memleak ; CLEANUP_FREE frees it */
        return out_of_memory(e);
    n = base64_decode(text, len, record);
    if (n < RECORD_EXTRA)
        code = err_set(e, ERR_INVALID, "sealed: is no sealed record");
    else if (gcm_open(s, aad, record, (size_t)n, plain) < 0)
        code = err_set(e, ERR_DENIED,
                       "sealed: was not made here for this tenant, name and bind, or was changed");
    else
        code = take_plain(c, plain, (size_t)n - RECORD_EXTRA, e);
    if (n > 0)
        explicit_bzero(plain, (size_t)n);
    free(plain);
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
    if (read_bind(c, bind, e) != ERR_OK)
        return e->code;
    aad = make_aad(tenant, c->name, bind);
    if (!aad)
        return out_of_memory(e);
    return open_record(s, aad, json_object_get(json, "sealed"), c, e);
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
    for (size_t i = 0; i < c->count; i++)
        clear(&c->list[i]);
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

bool credential_allows(const struct credential *c, const char *host, uint16_t port,
                       const char *method, const char *path)
{
    return policy_request(c->bound, host, NULL, port, method, path).action == POLICY_ALLOW;
}

bool credential_knows(const struct credential *c, const char *host, uint16_t port)
{
    return policy_name(c->bound, host, port).action != POLICY_DENY;
}
