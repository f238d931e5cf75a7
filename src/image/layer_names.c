#include "image/layer_names.h"

#include "base/ids.h"
#include "base/util.h"

#include <errno.h>
#include <openssl/evp.h>
#include <string.h>

#define HEX 64u

/* SHA-256 of two texts, in hex. */
static bool sum(const char *a, const char *b, char out[static HEX + 1])
{
    unsigned char bytes[EVP_MAX_MD_SIZE];
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    unsigned n = 0;
    bool ok = ctx && EVP_DigestInit_ex(ctx, EVP_sha256(), NULL) == 1 &&
              EVP_DigestUpdate(ctx, a, strlen(a)) == 1 &&
              EVP_DigestUpdate(ctx, b, strlen(b)) == 1 && EVP_DigestFinal_ex(ctx, bytes, &n) == 1 &&
              n == HEX / 2;

    EVP_MD_CTX_free(ctx);
    if (ok)
        ids_hex(bytes, n, out);
    return ok;
}

int image_layer_names(const char *tenant, const struct image_manifest *m,
                      char out[static IMAGE_LAYER_NAMES_SIZE])
{
    char name[HEX + 1], below[HEX + 1] = "";

    if (!sum("tenant ", tenant, name))
        return -ENOMEM;
    for (size_t i = 0; i <= m->count; i++) {
        memcpy(out + i * (HEX + 1), name, HEX);
        out[i * (HEX + 1) + HEX] = '\n';
        if (i == m->count)
            break;
        if (!sum(below, m->layers[i].digest, name))
            return -ENOMEM;
        memcpy(below, name, sizeof(below));
    }
    out[(m->count + 1) * (HEX + 1)] = '\0';
    return 0;
}
