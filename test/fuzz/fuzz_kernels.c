/* A hostile kernel's messages to cay-kernels. The frames of a message are split at 0xff bytes;
 * the program's key is known to it, so that its messages are also signed right (the first byte
 * says whether) and the code behind the signature is reached: the parts of the message, and the
 * lines that a result becomes. */
#include "base/ids.h"
#include "fuzz.h"
#include "kernels/result.h"
#include "kernels/wire.h"

#include <errno.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>

static const char key[] = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

static size_t split(const uint8_t *data, size_t size, struct wire_frame *frames)
{
    size_t n = 0;

    for (const uint8_t *end = data + size; data < end && n < WIRE_FRAMES_MAX; n++) {
        const uint8_t *stop = memchr(data, 0xff, (size_t)(end - data));

        frames[n] = (struct wire_frame){data, (size_t)((stop ? stop : end) - data)};
        data = stop ? stop + 1 : end;
    }
    return n;
}

/* By another way than wire.c's. */
static void sign(const struct wire_frame *parts, char out[WIRE_SIGNATURE_LEN + 1])
{
    unsigned char digest[WIRE_SIGNATURE_LEN / 2];
    size_t len = 0, at = 0;
    unsigned digest_len;
    uint8_t *all;

    for (int i = 0; i < 4; i++)
        len += parts[i].len;
    all = malloc(len + 1);
    FUZZ_CHECK(all);
    for (int i = 0; i < 4; at += parts[i++].len)
        memcpy(all + at, parts[i].data, parts[i].len);
    FUZZ_CHECK(HMAC(EVP_sha256(), key, (int)strlen(key), all, len, digest, &digest_len) &&
               digest_len == sizeof(digest));
    ids_hex(digest, sizeof(digest), out);
    free(all);
}

static void look_at(const struct wire_message *m)
{
    json_t *line = result_line(json_object_get(m->content, "data"), true);

    FUZZ_CHECK(m->type && m->type[0] && m->parent_id && m->date);
    FUZZ_CHECK(json_is_object(m->header) && json_is_object(m->parent) &&
               json_is_object(m->content));
    FUZZ_CHECK(line && json_is_object(json_object_get(line, "extra")));
    json_decref(line);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char delimiter[] = "<IDS|MSG>";
    struct wire_frame frames[WIRE_FRAMES_MAX];
    char signature[WIRE_SIGNATURE_LEN + 1];
    bool right = size > 0 && data[0] % 2 == 1;
    struct wire_message m;
    size_t n = size > 0 ? split(data + 1, size - 1, frames) : 0;
    int ret;

    if (right && n >= 6) {
        frames[0] = (struct wire_frame){delimiter, strlen(delimiter)};
        sign(&frames[2], signature);
        frames[1] = (struct wire_frame){signature, WIRE_SIGNATURE_LEN};
    }
    ret = wire_parse(key, frames, n, &m);
    FUZZ_CHECK(ret == 0 || ret == -EBADMSG || ret == -EACCES);
    FUZZ_CHECK(!(right && n >= 6) || ret != -EACCES);
    FUZZ_CHECK(right || ret != 0); /* not guessed, and not in the corpus */
    if (ret == 0) {
        look_at(&m);
        wire_free(&m);
    }
    return 0;
}
