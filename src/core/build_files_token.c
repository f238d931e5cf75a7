/* Names of archives of builds, and the addresses that they are sent to: whose one is, until when,
 * and the MAC of both with the archive's hash. */

#include "base/clock.h"
#include "core/build_files_internal.h"
#include "core/core_internal.h"
#include "http/digest.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MAC_LEN (2 * DIGEST_SHA256_SIZE)

bool build_files_is_hex(const char *text, size_t len)
{
    return strlen(text) == len && strspn(text, "0123456789abcdef") == len;
}

void build_files_owner(const char *tenant, char out[static CORE_BUILD_OWNER_LEN + 1])
{
    unsigned char sum[DIGEST_SHA256_SIZE];

    digest_sha256(tenant, strlen(tenant), sum);
    ids_hex(sum, CORE_BUILD_OWNER_LEN / 2, out);
}

void build_files_name(const char *owner, const char *hash, char out[static BUILD_FILES_NAME_SIZE])
{
    (void)snprintf(out, BUILD_FILES_NAME_SIZE, "%.*s%.*s", CORE_BUILD_OWNER_LEN, owner,
                   (int)CORE_BUILD_HASH_MAX, hash);
}

/* -- tokens ------------------------------------------------------------------------------------ */

static void make_mac(const struct core *c, const char *owner, const char *hash, int64_t until_ms,
                     char out[static MAC_LEN + 1])
{
    unsigned char mac[DIGEST_SHA256_SIZE];
    char text[BUILD_FILES_NAME_SIZE + 48];
    int n = snprintf(text, sizeof(text), "build file:%.*s:%.*s:%" PRId64, CORE_BUILD_OWNER_LEN,
                     owner, (int)CORE_BUILD_HASH_MAX, hash, until_ms);

    digest_hmac_sha256(c->server_key, CORE_SERVER_KEY_SIZE, text, (size_t)n, mac);
    ids_hex(mac, sizeof(mac), out);
}

void core_build_upload_token(struct core *c, const char *tenant, const char *hash,
                             char out[static CORE_BUILD_UPLOAD_TOKEN])
{
    int64_t until_ms = clock_real_ms() + CORE_BUILD_UPLOAD_MS;
    char owner[CORE_BUILD_OWNER_LEN + 1], mac[MAC_LEN + 1];

    build_files_owner(tenant, owner);
    make_mac(c, owner, hash, until_ms, mac);
    (void)snprintf(out, CORE_BUILD_UPLOAD_TOKEN, "%s.%s.%" PRId64, owner, mac, until_ms);
}

enum err_code build_files_read_token(const struct core *c, const char *hash, const char *token,
                                     char owner[static CORE_BUILD_OWNER_LEN + 1], struct err *e)
{
    char mac[MAC_LEN + 1];
    const char *given = token + CORE_BUILD_OWNER_LEN + 1, *until;
    int64_t until_ms;

    if (strlen(token) > CORE_BUILD_OWNER_LEN + MAC_LEN + 2 &&
        strlen(token) < CORE_BUILD_UPLOAD_TOKEN) {
        (void)snprintf(owner, CORE_BUILD_OWNER_LEN + 1, "%.*s", CORE_BUILD_OWNER_LEN, token);
        until = given + MAC_LEN + 1;
        until_ms = strtoll(until, NULL, 10);
        make_mac(c, owner, hash, until_ms, mac);
        if (token[CORE_BUILD_OWNER_LEN] == '.' && given[MAC_LEN] == '.' &&
            build_files_is_hex(owner, CORE_BUILD_OWNER_LEN) &&
            strspn(until, "0123456789") == strlen(until) && ids_equal_secret(mac, given, MAC_LEN) &&
            clock_real_ms() <= until_ms)
            return ERR_OK;
    }
    return err_set(e, ERR_DENIED,
                   "this is no address to send files to, or its time is over: ask for a new one");
}
