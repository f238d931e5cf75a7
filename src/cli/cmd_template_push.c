/* template push NAME REGISTRY/REPOSITORY:TAG: the archive of `template export` goes into a file
 * without a name, which is gone with the command in every case, and skopeo sends it. skopeo
 * compresses the layer, and tells the digest of the image that the registry has. */
#include "base/io.h"
#include "cli/commands.h"
#include "cli/skopeo.h"
#include "cli/template_image.h"
#include "image/reference.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define REGISTRY   "docker://"
#define CHARACTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/:"
#define PUSH_DIR   "/var/tmp" /* as skopeo; TMPDIR names another */
#define SOURCE     "docker-archive:/proc/self/fd/3"
#define DIGESTS    "--digestfile=/proc/self/fd/4"

_Static_assert(SKOPEO_FILE_FD == 3 && SKOPEO_DIGEST_FD == 4, "they stand in the texts above");

struct push {
    struct cli *c;
    const char *dir;
    int file_fd, digest_fd;
    struct template_image image;
    char to[IMAGE_SOURCE_SIZE], digest[IMAGE_DIGEST_SIZE];
};

/* HOST[:PORT]/REPOSITORY[:TAG]: with a registry in any case, so that no image goes to Docker Hub
 * because its registry was forgotten. The rest is skopeo's to judge. */
static bool is_target(const char *text)
{
    size_t len = strlen(text), first = strcspn(text, "/");
    const char *port = memchr(text, ':', first);
    size_t digits = port ? strspn(port + 1, "0123456789") : 0;
    bool is_host = port ? digits > 0 && port + 1 + digits == text + first
                        : memchr(text, '.', first) != NULL;

    return len < IMAGE_SOURCE_SIZE - sizeof(REGISTRY) && strspn(text, CHARACTERS) == len &&
           text[first] == '/' && text[first + 1] && text[0] != '-' &&
           (is_host || (first == strlen("localhost") && memcmp(text, "localhost", first) == 0));
}

/* Before a sandbox is made. */
static enum err_code check_target(struct push *p, struct err *e)
{
    const char *text = p->c->operands[1];

    if (strncmp(text, REGISTRY, strlen(REGISTRY)) == 0)
        text += strlen(REGISTRY);
    if (!is_target(text)) {
        err_set(e, ERR_INVALID, "\"%.200s\" is no place for an image", p->c->operands[1]);
        err_hint(e, "it is REGISTRY/REPOSITORY:TAG, as registry.example.com:5000/team/tools:v1");
        return e->code;
    }
    (void)snprintf(p->to, sizeof(p->to), REGISTRY "%s", text);
    return ERR_OK;
}

static enum err_code open_files(struct push *p, struct err *e)
{
    const char *given = getenv("TMPDIR");

    p->dir = given && given[0] == '/' ? given : PUSH_DIR;
    p->file_fd = open(p->dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (p->file_fd < 0)
        return err_set_sys(e, err_code_from_errno(errno), errno,
                           "making a file for the image in %.100s (TMPDIR names another folder)",
                           p->dir);
    p->digest_fd = memfd_create("digest", MFD_CLOEXEC);
    return p->digest_fd < 0 ? err_set_sys(e, ERR_INTERNAL, errno, "making a file in memory")
                            : ERR_OK;
}

static void set_arguments(struct push *p, struct skopeo *s)
{
    skopeo_add(s, "skopeo");
    skopeo_add(s, "--insecure-policy"); /* about sources of images: this one is the template */
    skopeo_add(s, "copy");
    skopeo_add(s, "--quiet");
    skopeo_add(s, DIGESTS);
    skopeo_add_option(s, p->c, "authfile", "--dest-authfile");
    skopeo_add_option(s, p->c, "cert-dir", "--dest-cert-dir");
    if (cli_flag(p->c, "plain-http"))
        skopeo_add(s, "--dest-tls-verify=false");
    skopeo_add(s, "--");
    skopeo_add(s, SOURCE);
    skopeo_add(s, p->to);
}

static enum err_code read_digest(struct push *p, struct err *e)
{
    ssize_t n = pread(p->digest_fd, p->digest, sizeof(p->digest) - 1, 0);

    p->digest[n > 0 ? n : 0] = '\0';
    return image_digest_is_valid(p->digest)
               ? ERR_OK
               : err_set(e, ERR_INTERNAL, "skopeo does not tell the digest of what it sent");
}

static enum err_code run(struct push *p, struct err *e)
{
    struct skopeo s = {.verb = "send", .late = "take the whole image"};

    if (skopeo_check("sent", e) != ERR_OK || skopeo_read_timeout(&s, p->c, e) != ERR_OK ||
        check_target(p, e) != ERR_OK || open_files(p, e) != ERR_OK ||
        template_image_write(p->c, p->c->operands[1], p->file_fd, &p->image, e) != ERR_OK)
        return e->code;
    s.dir = p->dir;
    s.file_fd = p->file_fd;
    s.digest_fd = p->digest_fd;
    set_arguments(p, &s);
    cli_note(p->c, "cay: skopeo sends it to %s", p->to);
    return skopeo_run(&s, e) == ERR_OK ? read_digest(p, e) : e->code;
}

static void report(const struct push *p)
{
    char size[32];

    table_bytes(p->image.layer_bytes, size, sizeof(size));
    if (p->c->json)
        cli_print_json(json_pack("{s:s, s:s, s:I, s:s}", "template", p->c->operands[0], "image",
                                 p->to, "layerBytes", (json_int_t)p->image.layer_bytes, "digest",
                                 p->digest));
    else if (!cli_flag(p->c, "quiet"))
        printf("%s is %s: %s, %s\n", p->c->operands[0], p->to, size, p->digest);
}

int cmd_template_push(struct cli *c)
{
    struct push p = {.c = c, .file_fd = -1, .digest_fd = -1};
    struct err e = {.code = ERR_OK};
    enum err_code code = run(&p, &e);

    util_close(&p.file_fd);
    util_close(&p.digest_fd);
    if (code != ERR_OK)
        return cli_fail(c, &e);
    report(&p);
    return CLI_OK;
}
