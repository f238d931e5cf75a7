/* The output of programs of a sandbox, and the bytes of clients of the stream of events, as the toolbox reads them.
 * The first byte says which reader. */
#include "base/buf.h"
#include "fuzz.h"
#include "toolbox/git.h"
#include "toolbox/port.h"
#include "toolbox/socketio.h"

#include <jansson.h>

#define PACKETS 0xf0 /* as first byte, and what is above it */

typedef int (*reader)(const char *text, size_t len, struct buf *b);

/* The result is JSON, whatever came. */
static void look(reader read, const char *text, size_t len)
{
    CLEANUP_BUF struct buf b = {0};

    buf_init(&b, 1u << 20);
    if (read(text, len, &b) == 0) {
        json_t *value = json_loadb(b.data, b.len, JSON_ALLOW_NUL, NULL);

        FUZZ_CHECK(value);
        json_decref(value);
    }
}

/* A key comes with what asks to be connected, and with nothing else. */
static void look_at_packet(const char *text, size_t len)
{
    char *token = NULL;
    enum socketio_packet packet = socketio_read(text, len, &token);

    FUZZ_CHECK(packet <= SOCKETIO_CONNECT_TO);
    FUZZ_CHECK((packet == SOCKETIO_CONNECT) == (token != NULL));
    FUZZ_CHECK(!token || strlen(token) < len);
    free(token);
}

static void look_at_settings(const char *text, size_t len)
{
    (void)git_read_refusal(text, true);
    (void)git_read_refusal(text, false);
    look(git_read_remotes, text, len);
    look(git_read_value, text, len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const reader readers[] = {git_read_status, git_read_branches, git_read_history};
    uint8_t seen[8192] = {0};
    char *text;

    if (size == 0)
        return 0;
    text = malloc(
        size); /* no more than is there, so that reading beyond it is seen; ends with NUL as outputs do */
    if (!text)
        return 0;
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    if (data[0] >= PACKETS)
        look_at_packet(text, size - 1);
    else if (data[0] % 5 < 3)
        look(readers[data[0] % 5], text, size - 1);
    else if (data[0] % 5 == 3)
        port_read(text, size - 1, seen);
    else
        look_at_settings(text, size - 1);
    free(text);
    return 0;
}
