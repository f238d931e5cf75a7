/* Heads of requests to the object storage that Daytona's SDKs send the files of images to. Checked: a
 * request that is taken names a tenant and an archive by characters that name nothing else, and each
 * operation has what core relies on; one that is refused has a status and a reason. */
#include "../../src/cayd/storage_read.h"
#include "fuzz.h"
#include "http/gate.h"

#include <string.h>

#define HEAD_MAX 4096u

static void check_taken(const struct core_storage_call *s)
{
    FUZZ_CHECK(s->tenant[0] && strlen(s->tenant) < sizeof(s->tenant) && !strpbrk(s->tenant, "/%"));
    FUZZ_CHECK(strspn(s->digits, "0123456789abcdef") == CORE_STORAGE_DIGITS &&
               !s->digits[CORE_STORAGE_DIGITS]);
    FUZZ_CHECK(strlen(s->token) < sizeof(s->token));
    if (s->op == STORAGE_PART || s->op == STORAGE_COMPLETE || s->op == STORAGE_ABORT)
        FUZZ_CHECK(strspn(s->upload, "0123456789abcdef") == CORE_STORAGE_UPLOAD_SIZE - 1);
    FUZZ_CHECK(s->file.fd == -1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data, *why = NULL;
    struct core_storage_call call;
    size_t scanned = 0;
    ssize_t n = size <= HEAD_MAX ? gate_head_end(text, size, &scanned) : 0;
    char *storage = n > 0 ? malloc(gate_storage_bytes((size_t)n)) : NULL;
    struct http_head head;
    int status;

    if (storage && gate_request(text, (size_t)n, storage, &head, &why) == 0) {
        why = NULL;
        status = storage_read(&head, &call, &why);
        if (status == 0)
            check_taken(&call);
        else
            FUZZ_CHECK(status >= 400 && status < 600 && why && *why);
    }
    free(storage);
    return 0;
}
