/* The bytes that `cay exec` reads from a server: the envelopes of a process stream, whose contents come out of
 * a sandbox, and the texts of errors. The first byte seeds how the bytes are cut: the outcome must not depend
 * on it. */
#include "cli/session_internal.h"
#include "fuzz.h"

#include <fcntl.h>

/* Of main.c, asked for by api.c alone when it looks for a server. */
const char *cli_value(const struct cli *c UNUSED, const char *name UNUSED)
{
    return NULL;
}

struct outcome {
    int error, status;
    bool started, ended;
    uint32_t pid;
    uint64_t out_bytes;
};

static struct outcome run(const uint8_t *data, size_t size, uint32_t *seed, int null_fd)
{
    struct session_spec spec = {.in_fd = -1, .out_fd = null_fd, .err_fd = null_fd};
    struct err e = {0};
    struct session s = {.spec = &spec, .e = &e};
    struct outcome o = {0};

    buf_init(&s.in, SESSION_ENVELOPE_MAX + (1u << 20));
    for (size_t at = 0; at < size && o.error == 0;) {
        size_t n = seed ? fuzz_piece(seed, size - at) : size - at;

        FUZZ_CHECK(buf_append(&s.in, data + at, n) == 0);
        o.error = session_take_envelopes(&s);
        at += n;
    }
    buf_free(&s.in);
    FUZZ_CHECK(s.in_bytes == 0 && !s.broken_pipe);
    o.status = s.status;
    o.started = s.started;
    o.ended = s.ended;
    o.pid = s.pid;
    o.out_bytes = s.out_bytes;
    return o;
}

static void error_text(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    struct err e = {0};

    FUZZ_CHECK(text);
    memcpy(text, data, size);
    text[size] = '\0';
    FUZZ_CHECK(api_status_error(400 + (long)(size % 200), text, &e) != ERR_OK && e.text[0]);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int null_fd = -1;
    struct outcome whole, cut;
    uint32_t seed;

    if (null_fd < 0)
        null_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (size == 0 || size > 100000)
        return 0;
    seed = data[0];
    whole = run(data + 1, size - 1, NULL, null_fd);
    cut = run(data + 1, size - 1, &seed, null_fd);
    FUZZ_CHECK(whole.error == cut.error && whole.status == cut.status && whole.pid == cut.pid);
    FUZZ_CHECK(whole.started == cut.started && whole.ended == cut.ended);
    FUZZ_CHECK(whole.out_bytes == cut.out_bytes);
    error_text(data + 1, size - 1);
    return 0;
}
