/* cay-seal: seals the files of a memory image into one file, or opens it again.
 *
 *     cay-seal seal|open|sign|check|sign-exchange|check-exchange UID BYTES_MAX
 *
 * sign and check: the MACs of an archive (sign.h), for which the directory is only where it stands;
 * with -exchange, those of a file for other servers.
 * Descriptors: contract/seal_boot.h. Started as root by what holds the key. It reads the secret,
 * enters its walls as UID (the owner of the sandbox's user namespace, to whom the image's files
 * belong), and only then looks into the directory. BYTES_MAX: of the sealed file. On failure it
 * writes one line, "E <errno> <text>", ends with status 1, and leaves no file of the image. A
 * program of its own, so that nothing that keeps privileges links OpenSSL or has bytes of an
 * image in its memory. */

#include "base/io.h"
#include "base/util.h"
#include "seal/pack.h"
#include "seal/seal_walls.h"
#include "seal/sign.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <openssl/crypto.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static int fail(int rc, const char *text)
{
    printf("E %d %s\n", -rc, text);
    return 1;
}

static int parse_number(const char *text, uint64_t most, uint64_t *out)
{
    char *end;

    errno = 0;
    *out = strtoull(text, &end, 10);
    return text[0] >= '0' && text[0] <= '9' && *end == '\0' && errno == 0 && *out <= most ? 0
                                                                                          : -EINVAL;
}

static struct seal seal; /* large; and never copied */

static int seal_files(const struct seal_secret *secret, uint64_t bytes_max, struct pack_why *why)
{
    int rc = seal_write_begin(&seal, SEAL_BOOT_FILE_FD, secret, bytes_max);

    snprintf(why->text, sizeof(why->text), "beginning the sealed file: %s", strerror(-rc));
    if (rc == 0)
        rc = pack_write(&seal, SEAL_BOOT_DIR_FD, why);
    if (rc < 0)
        return rc;
    rc = seal_write_end(&seal);
    snprintf(why->text, sizeof(why->text), "ending the sealed file: %s", strerror(-rc));
    return rc;
}

static int open_files(const struct seal_secret *secret, uint64_t bytes_max UNUSED,
                      struct pack_why *why)
{
    int rc = seal_read_begin(&seal, SEAL_BOOT_FILE_FD, secret);
    const char *text = rc == -ESTALE    ? "the image is not of this sandbox, kernel and template"
                       : rc == -EPROTO  ? "the image is of another version of cay"
                       : rc == -EBADMSG ? "the image is damaged: its header"
                                        : strerror(-rc);

    snprintf(why->text, sizeof(why->text), "%s", text);
    return rc < 0 ? rc : pack_read(&seal, SEAL_BOOT_DIR_FD, why);
}

typedef int (*mac_work)(int fd, const struct seal_secret *secret, struct sign_why *why);

static int work_on_macs(mac_work work, const struct seal_secret *secret, struct pack_why *why)
{
    struct sign_why text = {""};
    int rc = work(SEAL_BOOT_FILE_FD, secret, &text);

    memcpy(why->text, text.text, sizeof(why->text));
    return rc;
}

/* Each has one of the two: work on the files and their image, or on the codes of a file of
 * pieces. */
static const struct work {
    const char *name;
    int (*on_files)(const struct seal_secret *secret, uint64_t bytes_max, struct pack_why *why);
    mac_work on_macs;
} works[] = {{.name = "seal", .on_files = seal_files},
             {.name = "open", .on_files = open_files},
             {.name = "sign", .on_macs = sign_write},
             {.name = "check", .on_macs = sign_check},
             {.name = "sign-exchange", .on_macs = sign_write_exchange},
             {.name = "check-exchange", .on_macs = sign_check_exchange}};

struct options {
    const struct work *work;
    uid_t uid;
    uint64_t bytes_max;
};

static int parse(int argc, char **argv, struct options *o)
{
    uint64_t uid;

    for (size_t i = 0; argc == 4 && i < ARRAY_SIZE(works); i++)
        if (strcmp(argv[1], works[i].name) == 0)
            o->work = &works[i];
    if (!o->work || parse_number(argv[2], UINT32_MAX - 1, &uid) < 0 || uid == 0 ||
        parse_number(argv[3], INT64_MAX, &o->bytes_max) < 0)
        return -EINVAL;
    o->uid = (uid_t)uid;
    return 0;
}

static int run(const struct options *o)
{
    struct seal_secret secret;
    struct pack_why why;
    const char *what = "";
    int rc = io_read_full(SEAL_BOOT_SECRET_FD, &secret, sizeof(secret));

    if (rc < 0)
        return fail(rc, "reading the secret");
    if (close_range(SEAL_BOOT_FILE_FD + 1, ~0U, 0) < 0 || close(SEAL_BOOT_SECRET_FD) < 0)
        return fail(-errno, "closing descriptors");
    if (OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG, NULL) != 1)
        return fail(-ENOMEM, "beginning with OpenSSL");
    rc = seal_walls_enter(SEAL_BOOT_DIR_FD, o->uid, o->bytes_max, &what);
    if (rc < 0)
        return fail(rc, what);
    rc = o->work->on_files ? o->work->on_files(&secret, o->bytes_max, &why)
                           : work_on_macs(o->work->on_macs, &secret, &why);
    seal_forget(&seal);
    OPENSSL_cleanse(&secret, sizeof(secret));
    return rc < 0 ? fail(rc, why.text) : 0;
}

int main(int argc, char **argv)
{
    struct options o = {.work = NULL};

    if (parse(argc, argv, &o) < 0) {
        fprintf(stderr,
                "usage: cay-seal seal|open|sign|check|sign-exchange|check-exchange UID BYTES_MAX   "
                "(started by cay-privd)\n");
        return 2;
    }
    signal(SIGXFSZ, SIG_IGN); /* a file that becomes too large is an error of write(2) */
    return run(&o);
}
