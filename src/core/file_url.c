#include "core/file_url.h"

#include "core/core_internal.h"
#include "core/sandbox.h"
#include "core/store_sandbox.h"
#include "http/digest.h"

#include <stdio.h>
#include <string.h>

/* The token makes other things too (core/ingress.h): the text in front keeps them apart. */
void file_url_key(const char *agent_token, uint32_t number, char out[static FILE_URL_KEY_SIZE])
{
    unsigned char key[DIGEST_SHA256_SIZE];
    char text[32];

    _Static_assert(CORE_TOKEN_SIZE == 2 * DIGEST_SHA256_SIZE, "a key is as long as a token");
    snprintf(text, sizeof(text), "files:%u", number);
    digest_hmac_sha256(agent_token, strlen(agent_token), text, strlen(text), key);
    ids_hex(key, sizeof(key), out);
}

/* In the store before it holds, and there to stay: a URL that was refused once is not to work
 * again. */
static enum err_code replace_key(struct core *c, struct sandbox_obj *o, struct err *e)
{
    struct sandbox changed = o->s;
    enum err_code code;

    if (changed.file_url_number == UINT32_MAX)
        return err_set(e, ERR_EXHAUSTED, "the key of sandbox %s was replaced too often", o->s.id);
    changed.file_url_number++;
    code = store_sandbox_update_synced(c->store, &changed, e);
    if (code == ERR_OK)
        o->s.file_url_number = changed.file_url_number;
    return code;
}

enum err_code core_sandbox_file_url_key(struct core *c, const char *tenant, const char *id,
                                        bool replace, char out[static FILE_URL_KEY_SIZE],
                                        struct err *e)
{
    char token[CORE_TOKEN_SIZE + 1];
    struct sandbox_obj *o = NULL;
    enum err_code code = sandbox_visible(c, tenant, id, &o, e);

    if (code == ERR_OK && replace)
        code = replace_key(c, o, e);
    if (code != ERR_OK)
        return code;
    core_sandbox_token(c, o->s.id, token);
    file_url_key(token, o->s.file_url_number, out);
    return ERR_OK;
}
