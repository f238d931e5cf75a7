/* A sandbox's access token: HMAC-SHA256 of its id under the server's key. Nothing to store, the
 * same for its whole life and after a restart; only the key file must stay. */

#include "core/token.h"

#include "base/io.h"
#include "base/log.h"
#include "core/core.h"
#include "core/core_internal.h"
#include "http/digest.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#define KEY_FILE "server.key"
#define DOMAIN   "cay sandbox token 1:" /* the key may sign other things one day */

_Static_assert(CORE_TOKEN_SIZE == 2 * DIGEST_SHA256_SIZE, "hex of a SHA-256");

/* Made at the first start. The rename makes it whole or absent. */
static enum err_code make_key(int dir, uint8_t key[static CORE_SERVER_KEY_SIZE], struct err *e)
{
    int rc;

    ids_random_bytes(key, CORE_SERVER_KEY_SIZE);
    rc = io_replace_file_at(dir, KEY_FILE, key, CORE_SERVER_KEY_SIZE, 0600);
    if (rc < 0)
        return err_set_sys(e, err_code_from_errno(rc), rc, "writing the server's key file");
    log_info("made the server's key: %s", KEY_FILE);
    return ERR_OK;
}

static enum err_code read_key(int fd, uint8_t key[static CORE_SERVER_KEY_SIZE], struct err *e)
{
    struct stat st;
    int rc;

    if (fstat(fd, &st) < 0)
        return err_set_sys(e, ERR_INTERNAL, errno, "looking at the server's key file");
    if (!S_ISREG(st.st_mode) || st.st_size != CORE_SERVER_KEY_SIZE) {
        err_set(e, ERR_INVALID, "the server's key file %s does not hold %d bytes", KEY_FILE,
                CORE_SERVER_KEY_SIZE);
        err_hint(e, "restore it, or remove it: a new one makes all access tokens anew");
        return ERR_INVALID;
    }
    if (st.st_mode & 077)
        return err_set(e, ERR_DENIED, "the server's key file %s can be read by others (mode %03o)",
                       KEY_FILE, (unsigned)st.st_mode & 0777u);
    rc = io_read_full(fd, key, CORE_SERVER_KEY_SIZE);
    return rc < 0 ? err_set_sys(e, ERR_INTERNAL, rc, "reading the server's key file") : ERR_OK;
}

enum err_code token_load_key(struct core *c, struct err *e)
{
    CLEANUP_CLOSE int dir = open(c->config.state_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    CLEANUP_CLOSE int fd = -1;

    if (dir < 0)
        return err_set_sys(e, err_code_from_errno(errno), errno, "opening the state directory %s",
                           c->config.state_dir);
    fd = openat(dir, KEY_FILE, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 && errno == ENOENT)
        return make_key(dir, c->server_key, e);
    if (fd < 0)
        return err_set_sys(e, err_code_from_errno(errno), errno, "opening the server's key file");
    return read_key(fd, c->server_key, e);
}

void core_sandbox_token(struct core *c, const char *id, char out[static CORE_TOKEN_SIZE + 1])
{
    unsigned char mac[DIGEST_SHA256_SIZE];
    char text[sizeof(DOMAIN) + IDS_SANDBOX_SIZE];
    int n = snprintf(text, sizeof(text), "%s%.*s", DOMAIN, IDS_SANDBOX_LEN, id);

    digest_hmac_sha256(c->server_key, CORE_SERVER_KEY_SIZE, text, (size_t)n, mac);
    ids_hex(mac, sizeof(mac), out);
}
