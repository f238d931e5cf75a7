/* A record's public half (bind) is read first, then its value by the kind that bind names; both
 * strictly: an unknown member is refused, since a bind that was misread would let a secret go where
 * its owner did not mean. An error has the field's name and never a value. Whatever was taken
 * before an error is wiped by credential_clear. */

#include "egress/credential/credential_read.h"

#include "egress/credential/override.h"
#include "http/gate.h"
#include "http/json.h"
#include "http/message.h"
#include "policy/https_url.h"

#include <ctype.h>
#include <string.h>

#define BIND_TEXT_MAX 1024

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

static const char *const kind_names[] = {
    [CREDENTIAL_BEARER] = "bearer", [CREDENTIAL_BASIC] = "basic",
    [CREDENTIAL_HEADER] = "header", [CREDENTIAL_HEADERS] = "headers",
    [CREDENTIAL_QUERY] = "query",   [CREDENTIAL_SIGV4] = "aws-sigv4",
    [CREDENTIAL_OAUTH2] = "oauth2", [CREDENTIAL_PLACEHOLDER] = "placeholder"};

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
                   "oauth2, placeholder");
}

/* Not a header that the proxy writes itself, or that decides where a message ends or goes, nor one
 * that names another method or path than rules have decided about, which may be an operator's; `_`
 * and `.` are '-' for CGI, WSGI and lighttpd. */
static bool is_free_header(const char *name)
{
    static const char *const taken[] = {"host",           "content-length",   "transfer-encoding",
                                        "connection",     "upgrade",          "te",
                                        "trailer",        "expect",           "proxy-authorization",
                                        "keep-alive",     "cookie2",          "proxy-connection",
                                        "http2-settings", "content-encoding", "accept-encoding"};

    for (size_t i = 0; i < ARRAY_SIZE(taken); i++)
        if (http_name_like(name, taken[i]))
            return false;
    if (override_is(name) || override_is_second(name))
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
     "a header's name that is not the proxy's own, and names no other method, path or host"},
    {"prefix", CREDENTIAL_HEADER, false, is_prefix, offsetof(struct credential, prefix),
     "1 to 64 printable characters, the first no blank"},
    {"parameter", CREDENTIAL_QUERY, true, is_query_name, offsetof(struct credential, parameter),
     "1 to 64 letters, digits, '-', '_', '.' or '~'"},
    {"region", CREDENTIAL_SIGV4, false, is_aws_word, offsetof(struct credential, region),
     "1 to 64 letters, digits or '-'"},
    {"service", CREDENTIAL_SIGV4, false, is_aws_word, offsetof(struct credential, service),
     "1 to 64 letters, digits or '-'"},
    {"token_host", CREDENTIAL_OAUTH2, true, https_url_is_host,
     offsetof(struct credential, oauth.token_host),
     "the host of value.token_url in lower case, with its port where that is not 443"},
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

/* -- where a placeholder may stand ------------------------------------------------------------- */

static const struct bind_flag {
    const char *key;
    size_t offset;
    bool of_all_kinds;
} bind_flags[] = {
    {"insecure", offsetof(struct credential, insecure), true},
    {"target", offsetof(struct credential, in_target), false},
    {"bodies", offsetof(struct credential, in_bodies), false},
    {"require", offsetof(struct credential, require), false},
    {"any_domain", offsetof(struct credential, any_domain), false},
};

static bool is_flag(const char *key)
{
    for (size_t i = 0; i < ARRAY_SIZE(bind_flags); i++)
        if (strcmp(bind_flags[i].key, key) == 0)
            return true;
    return false;
}

static enum err_code read_flags(struct credential *c, const json_t *bind, struct err *e)
{
    for (size_t i = 0; i < ARRAY_SIZE(bind_flags); i++) {
        const struct bind_flag *f = &bind_flags[i];
        const json_t *value = json_object_get(bind, f->key);

        if (!value)
            continue;
        if (!json_is_boolean(value))
            return err_set(e, ERR_INVALID, "bind.%s: must be true or false", f->key);
        if (!f->of_all_kinds && c->kind != CREDENTIAL_PLACEHOLDER)
            return err_set(e, ERR_INVALID, "bind.%s: belongs to kind placeholder", f->key);
        *(bool *)(void *)((char *)c + f->offset) = json_is_true(value);
    }
    return ERR_OK;
}

static enum err_code read_header_names(struct credential *c, const json_t *list, struct err *e)
{
    const json_t *item;
    size_t i;

    if (!list)
        return ERR_OK;
    if (c->kind != CREDENTIAL_PLACEHOLDER)
        return err_set(e, ERR_INVALID, "bind.headers: belongs to kind placeholder");
    if (json_array_size(list) == 0 || json_array_size(list) > CREDENTIAL_PLACEMENTS_MAX)
        return err_set(e, ERR_INVALID, "bind.headers: must be a list of 1 to %u headers' names",
                       CREDENTIAL_PLACEMENTS_MAX);
    json_array_foreach (list, i, item) {
        const char *name = json_string_value(item);

        if (name && strcmp(name, "*") == 0) {
            c->any_header = true;
            continue;
        }
        if (!name || !is_free_header(name))
            return err_set(e, ERR_INVALID,
                           "bind.headers[%zu]: must be a header's name that is not the proxy's "
                           "own, or \"*\" for any",
                           i);
        c->in_headers[c->in_header_count] = strdup(name);
        if (!c->in_headers[c->in_header_count++])
            return err_set(e, ERR_EXHAUSTED, "out of memory");
    }
    return ERR_OK;
}

static bool is_placement(const char *key)
{
    const char *known;

    for (size_t i = 0; (known = policy_binding_key(i)); i++)
        if (strcmp(known, key) == 0)
            return true;
    return false;
}

enum err_code credential_read_bind(struct credential *c, json_t *bind, struct err *e)
{
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
        if (!t && !is_placement(key) && !is_flag(key) && strcmp(key, "kind") != 0 &&
            strcmp(key, "headers") != 0)
            return err_set(e, ERR_INVALID, "bind: there is no \"%.40s\"", key);
    }
    for (size_t i = 0; i < ARRAY_SIZE(bind_texts); i++)
        if (bind_texts[i].required && bind_texts[i].kind == c->kind &&
            !json_object_get(bind, bind_texts[i].key))
            return err_set(e, ERR_INVALID, "bind.%s: is needed with kind %s", bind_texts[i].key,
                           kind_names[c->kind]);
    if (read_flags(c, bind, e) != ERR_OK ||
        read_header_names(c, json_object_get(bind, "headers"), e) != ERR_OK)
        return e->code;
    return policy_binding_new(bind, c->any_domain, &c->bound, e);
}

/* -- values ------------------------------------------------------------------------------------ */

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
    return *out ? ERR_OK : err_set(e, ERR_EXHAUSTED, "out of memory");
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
    return *out ? ERR_OK : err_set(e, ERR_EXHAUSTED, "out of memory");
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
            return err_set(e, ERR_INVALID,
                           "value: \"%.64s\" cannot be set as a header: it is the proxy's own, or "
                           "names another method, path or host",
                           key);
        if (take_text(value, "value: a header's", 0, &h->value, e) != ERR_OK)
            return e->code;
        c->header_count++;
        h->name = strdup(key);
        if (!h->name)
            return err_set(e, ERR_EXHAUSTED, "out of memory");
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

/* -- OAuth ------------------------------------------------------------------------------------- */

static const struct oauth_text {
    const char *key;
    size_t min;
    bool required;
    size_t offset;
} oauth_texts[] = {
    {"token_url", 1, true, offsetof(struct credential_oauth, token_url)},
    {"client_id", 1, true, offsetof(struct credential_oauth, client_id)},
    {"client_secret", 1, false, offsetof(struct credential_oauth, client_secret)},
    {"refresh_token", CREDENTIAL_VALUE_MIN, true, offsetof(struct credential_oauth, refresh_token)},
    {"scope", 1, false, offsetof(struct credential_oauth, scope)},
};

static const struct oauth_text *find_oauth_text(const char *key)
{
    for (size_t i = 0; i < ARRAY_SIZE(oauth_texts); i++)
        if (strcmp(oauth_texts[i].key, key) == 0)
            return &oauth_texts[i];
    return NULL;
}

static enum err_code take_oauth_text(struct credential_oauth *o, const struct oauth_text *t,
                                     const json_t *value, struct err *e)
{
    char what[64];

    snprintf(what, sizeof(what), "value.%s", t->key);
    return take_text(value, what, t->min, (char **)(void *)((char *)o + t->offset), e);
}

/* RFC 6749 section 2.3.1: a server takes Basic from a client with a secret; some take only the
 * body. */
static enum err_code take_client_auth(struct credential_oauth *o, const json_t *value,
                                      struct err *e)
{
    const char *text = json_string_value(value);

    if (value && (!text || (strcmp(text, "basic") != 0 && strcmp(text, "body") != 0)))
        return err_set(e, ERR_INVALID, "value.client_auth: must be \"basic\" or \"body\"");
    if (text && !o->client_secret)
        return err_set(e, ERR_INVALID, "value.client_auth: belongs to a client_secret");
    o->in_body = !o->client_secret || (text && strcmp(text, "body") == 0);
    return ERR_OK;
}

static enum err_code take_oauth(struct credential *c, const json_t *json, struct err *e)
{
    struct credential_oauth *o = &c->oauth;
    struct https_url url;
    const char *key;
    json_t *value;

    if (!json_is_object(json))
        return err_set(
            e, ERR_INVALID,
            "value: must be {\"token_url\", \"client_id\", \"refresh_token\"} and perhaps "
            "\"client_secret\", \"client_auth\", \"scope\"");
    json_object_foreach ((json_t *)json, key, value)
        if (!find_oauth_text(key) && strcmp(key, "client_auth") != 0)
            return err_set(e, ERR_INVALID, "value: there is no \"%.40s\"", key);
    for (size_t i = 0; i < ARRAY_SIZE(oauth_texts); i++) {
        value = json_object_get(json, oauth_texts[i].key);
        if ((value || oauth_texts[i].required) &&
            take_oauth_text(o, &oauth_texts[i], value, e) != ERR_OK)
            return e->code;
    }
    if (take_client_auth(o, json_object_get(json, "client_auth"), e) != ERR_OK)
        return e->code;
    if (!https_url_parse(o->token_url, &url))
        return err_set(
            e, ERR_INVALID,
            "value.token_url: must be https://HOST[:PORT]/PATH, without user or fragment");
    if (strcmp(url.authority, o->token_host) != 0)
        return err_set(
            e, ERR_INVALID,
            "value.token_url: its host is \"%.200s\", and bind.token_host says \"%.200s\"",
            url.authority, o->token_host);
    return ERR_OK;
}

enum err_code credential_read_value(struct credential *c, const json_t *json, struct err *e)
{
    switch (c->kind) {
    case CREDENTIAL_BASIC: return take_basic(json, &c->value, e);
    case CREDENTIAL_HEADERS: return take_headers(c, json, e);
    case CREDENTIAL_SIGV4: return take_sigv4(c, json, e);
    case CREDENTIAL_OAUTH2: return take_oauth(c, json, e);
    default: return take_text(json, "value", CREDENTIAL_VALUE_MIN, &c->value, e);
    }
}

void credential_clear(struct credential *c)
{
    policy_free(c->bound);
    for (size_t i = 0; i < c->in_header_count; i++)
        free(c->in_headers[i]);
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
    free(c->oauth.token_host);
    free(c->oauth.token_url);
    free(c->oauth.client_id);
    credential_wipe(c->oauth.client_secret);
    credential_wipe(c->oauth.refresh_token);
    free(c->oauth.scope);
    credential_wipe(c->oauth.previous);
    free(c->oauth.refused);
}
