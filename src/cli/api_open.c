/* Which server, with which key, trusting what: found in this order: options, environment, the file
 * that `cay up` leaves. */

#include "cli/api.h"

#include "base/io.h"
#include "contract/keep.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

/* `cay up` leaves a file with four lines for commands on the same machine: the address, the path of
 * the operator's key, the address that clients elsewhere use, and where the local CA is
 * (empty: there is none). */
#define CONNECT_TEXT 2048

struct connect_file {
    char text[CONNECT_TEXT];
    const char *url, *key_path, *public_url, *tls_dir;
};

static bool read_connect_file(const struct cli *c, struct connect_file *out)
{
    char path[512], *rest = out->text;

    snprintf(path, sizeof(path), "%s/connect", c->settings.state_run);
    if (io_read_text_at(AT_FDCWD, path, out->text, sizeof(out->text)) < 0)
        return false;
    out->url = strsep(&rest, "\n");
    out->key_path = strsep(&rest, "\n");
    out->public_url = rest ? strsep(&rest, "\n") : out->url;
    out->tls_dir = rest ? strsep(&rest, "\n") : NULL;
    if (out->tls_dir && !out->tls_dir[0])
        out->tls_dir = NULL;
    return out->key_path != NULL;
}

char *api_find_url(const struct cli *c)
{
    const char *given = cli_value(c, "url");
    struct connect_file local = {.url = NULL};
    char *out;
    bool v6;

    given = given ? given : getenv("CAY_URL");
    given = given ? given : getenv("E2B_API_URL");
    if (!given && read_connect_file(c, &local))
        given = local.url;
    if (given) {
        out = strdup(given);
        while (out && strlen(out) > 0 && out[strlen(out) - 1] == '/')
            out[strlen(out) - 1] = '\0';
        return out;
    }
    if (settings_needs_tls(&c->settings))
        return asprintf(&out, "https://%s", c->settings.server_domain) < 0 ? NULL : out;
    given = c->settings.listen_address;
    v6 = strchr(given, ':') != NULL;
    if (strcmp(given, KEEP_LISTEN_LOCALHOST) == 0)
        given = "127.0.0.1";
    if (asprintf(&out, "http://%s%s%s:%lld", v6 ? "[" : "", given, v6 ? "]" : "",
                 (long long)c->settings.listen_port) < 0)
        return NULL;
    return out;
}

char *api_find_key(const struct cli *c, struct err *e)
{
    const char *given = cli_value(c, "api-key");
    struct connect_file local = {.url = NULL};
    char path[CONNECT_TEXT], key[256];
    ssize_t len;

    given = given ? given : getenv("E2B_API_KEY");
    if (given)
        return strdup(given);
    if (read_connect_file(c, &local))
        snprintf(path, sizeof(path), "%s", local.key_path);
    else
        snprintf(path, sizeof(path), "%s/cayd/api-key", c->settings.state_dir);
    len = io_read_text_at(AT_FDCWD, path, key, sizeof(key));
    if (len > 0)
        return strdup(key);
    err_set(e, ERR_UNAUTHENTICATED,
            "no API key: neither --api-key nor E2B_API_KEY is set, and %s %s", path,
            len == -ENOENT ? "is not there" : "cannot be read");
    err_hint(e, len == -ENOENT
                    ? "Start a server with `cay up`, or ask its operator for a key."
                    : "Run this as root, or ask the operator for a key (`cay key create`).");
    return NULL;
}

const char *api_find_ca_file(const struct cli *c)
{
    const char *given = cli_value(c, "ca-file");

    given = given ? given : getenv("CAY_CA_FILE");
    return given ? given : getenv("SSL_CERT_FILE");
}

/* Takes the reference to url and key, NULL or not. */
static enum err_code open_with(struct api *a, const struct cli *c, char *url, char *key,
                               struct err *e)
{
    struct connect_file local = {.url = NULL};
    bool is_local = url && read_connect_file(c, &local) && strcmp(local.url, url) == 0;

    const char *named = cli_value(c, "ca-file") ? cli_value(c, "ca-file") : getenv("CAY_CA_FILE");

    *a = (struct api){.url = url, .key = key};
    a->public_url = url ? strdup(is_local ? local.public_url : url) : NULL;
    a->multi = curl_multi_init();
    if (is_local && local.tls_dir && (a->tls_dir = strdup(local.tls_dir)) && !named)
        (void)!asprintf(&a->ca_file, "%s/ca.pem", local.tls_dir);
    else if (api_find_ca_file(c))
        a->ca_file = strdup(api_find_ca_file(c));
    if (a->url && a->key && a->public_url && a->multi)
        return ERR_OK;
    api_close(a);
    return err_set(e, ERR_EXHAUSTED, "out of memory");
}

enum err_code api_open(struct api *a, const struct cli *c, struct err *e)
{
    char *key = api_find_key(c, e);

    return key ? open_with(a, c, api_find_url(c), key, e) : e->code;
}

enum err_code api_open_local(struct api *a, const struct cli *c, struct err *e)
{
    struct connect_file local = {.url = NULL};
    char key[256];

    if (!read_connect_file(c, &local))
        return err_set(e, ERR_NOT_FOUND, "%s/connect cannot be read", c->settings.state_run);
    if (io_read_text_at(AT_FDCWD, local.key_path, key, sizeof(key)) <= 0)
        return err_set(e, ERR_NOT_FOUND, "the operator's key, %s, cannot be read", local.key_path);
    return open_with(a, c, strdup(local.url), strdup(key), e);
}

void api_close(struct api *a)
{
    if (a->multi)
        curl_multi_cleanup(a->multi);
    free(a->url);
    free(a->public_url);
    free(a->tls_dir);
    free(a->ca_file);
    if (a->key)
        explicit_bzero(a->key, strlen(a->key));
    free(a->key);
    memset(a, 0, sizeof(*a));
}
