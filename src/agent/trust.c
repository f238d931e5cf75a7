#include "agent/trust.h"

#include "base/io.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#define CERTS_DIR "/etc/ssl/certs"
#define OWN_NAME  "cay-egress.pem"
#define ALL_NAME  "ca-certificates.crt"

/* Programs that bring a bundle of their own, or add to it. */
static const struct {
    const char *variable;
    bool adds; /* beside its own authorities; else in their place */
} variables[] = {
    {"NODE_EXTRA_CA_CERTS", true}, {"SSL_CERT_FILE", false},  {"REQUESTS_CA_BUNDLE", false},
    {"CURL_CA_BUNDLE", false},     {"GIT_SSL_CAINFO", false},
};

static int open_certs(void)
{
    int fd;

    if ((mkdir("/etc/ssl", 0755) < 0 && errno != EEXIST) ||
        (mkdir(CERTS_DIR, 0755) < 0 && errno != EEXIST))
        return -errno;
    fd = open(CERTS_DIR, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

/* Does the file end with it already, as in a copy of a sandbox? */
static bool ends_with(int fd, off_t size, const char *pem, size_t n)
{
    char tail[TRUST_PEM_MAX];

    return n <= sizeof(tail) && size >= (off_t)n &&
           pread(fd, tail, n, size - (off_t)n) == (ssize_t)n && memcmp(tail, pem, n) == 0;
}

/* Only what is a file in its own right: a link leads to a tool's own place, which it would write anew. */
static int add_to_bundle(int dir, const char *pem, size_t n)
{
    CLEANUP_CLOSE int fd = openat(dir, ALL_NAME, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;

    if (fd < 0)
        return -errno;
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return -EINVAL;
    if (ends_with(fd, st.st_size, pem, n))
        return 0;
    util_close(&fd);
    fd = openat(dir, ALL_NAME, O_WRONLY | O_APPEND | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? -errno : io_write_full(fd, pem, n);
}

static json_t *make_defaults(bool in_bundle)
{
    json_t *o = json_object();
    const char *own = CERTS_DIR "/" OWN_NAME;

    for (size_t i = 0; i < ARRAY_SIZE(variables); i++)
        if (variables[i].adds || in_bundle)
            json_object_set_new(o, variables[i].variable,
                                json_string(variables[i].adds ? own : CERTS_DIR "/" ALL_NAME));
    return o;
}

/* What is still to be written. */
struct trust {
    uv_idle_t idle;
    char pem[];
};

static void write_files(const char *pem)
{
    CLEANUP_CLOSE int dir = open_certs();
    size_t n = strlen(pem);
    int rc = dir < 0 ? dir : io_replace_file_at(dir, OWN_NAME, pem, n, 0644);

    if (rc < 0) {
        log_warn("the authority of the way out is not in " CERTS_DIR ": %s", strerror(-rc));
        return;
    }
    rc = add_to_bundle(dir, pem, n);
    if (rc < 0 && rc != -ENOENT)
        log_warn("the authority of the way out is not in " ALL_NAME ": %s", strerror(-rc));
}

static void on_closed(uv_handle_t *h)
{
    free(CONTAINER_OF((uv_idle_t *)h, struct trust, idle));
}

/* Before the loop looks for requests again: whoever waits for the create does not wait for this, and no
 * program is started before it. */
static void on_idle(uv_idle_t *idle)
{
    write_files(CONTAINER_OF(idle, struct trust, idle)->pem);
    uv_close((uv_handle_t *)idle, on_closed);
}

void trust_install(struct agent *a, const char *pem)
{
    size_t n = strlen(pem);
    struct trust *t;
    struct stat st;

    if (a->id[0] == '\0' || n == 0 || n > TRUST_PEM_MAX) /* development: this is the host's /etc */
        return;
    t = a->room ? NULL : malloc(sizeof(*t) + n + 1);
    if (!a->room && (!t || uv_idle_init(a->loop, &t->idle) < 0)) {
        free(t);
        return;
    }
    if (t) {
        memcpy(t->pem, pem, n + 1);
        uv_idle_start(&t->idle, on_idle);
    }
    json_decref(a->defaults);
    a->defaults = make_defaults(lstat(CERTS_DIR "/" ALL_NAME, &st) == 0 && S_ISREG(st.st_mode));
}
