/* The CA of the way out, made known to the programs of a sandbox. trust_install is called for each
 * /init (init.c): the variables that every program begins with are there when it returns; the files
 * are written when the loop has nothing else to do, after the answer and before a program is
 * started. Of each file a former CA's part goes first, then the new one is added. */

#include "agent/trust.h"

#include "agent/java_store.h"
#include "agent/pem_list.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#define CERTS_DIR       "/etc/ssl/certs"
#define OWN_NAME        "cay-egress.pem"
#define ALL_NAME        "ca-certificates.crt"
#define JAVA_NAME       "cacerts"                 /* in java, where the store of Debian's JDKs is */
#define JAVA_MAX        ((size_t)4 * 1024 * 1024) /* of all of them */
#define ENVIRONMENT     "/etc/environment"
#define ENVIRONMENT_MAX 4096

/* Programs that bring a bundle of their own, or add to it. */
static const struct {
    const char *variable;
    bool adds; /* beside its own CAs; else in their place */
} variables[] = {
    {"NODE_EXTRA_CA_CERTS", true},
    {"DENO_CERT", true},
    {"SSL_CERT_FILE", false}, /* OpenSSL, Go, rustls with the system's CAs */
    {"REQUESTS_CA_BUNDLE", false},
    {"CURL_CA_BUNDLE", false},
    {"GIT_SSL_CAINFO", false},
    {"PIP_CERT", false},
    {"AWS_CA_BUNDLE", false},
    {"CARGO_HTTP_CAINFO", false},
    {"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", false},
};

/* Into bytes, which are malloc'd, with a NUL behind them. Their number, or -errno. A file that was
 * kept over a boot may be a FIFO, whose opening must not wait. */
static ssize_t read_store(int dir, const char *name, char **bytes)
{
    CLEANUP_CLOSE int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat st;
    ssize_t n;

    if (fd < 0)
        return -errno;
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || (size_t)st.st_size > JAVA_MAX)
        return -EINVAL;
    *bytes = malloc((size_t)st.st_size + 1);
    if (!*bytes)
        return -ENOMEM;
    n = pread(fd, *bytes, (size_t)st.st_size, 0);
    if (n < 0)
        return -errno;
    (*bytes)[n] = '\0';
    return n;
}

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

/* Only what is a file in its own right: a link leads to a tool's own place, which it would write
 * anew. */
static int add_to_bundle(int dir, const char *pem, size_t n)
{
    /* A file that was kept over a boot may be a FIFO, whose opening must not wait. */
    CLEANUP_CLOSE int fd = openat(dir, ALL_NAME, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
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

/* Where Java is installed. A Java that is installed later makes its store of this directory's
 * contents. */
static int add_to_java(int certs, const char *pem, const char *former)
{
    CLEANUP_CLOSE int dir = openat(certs, "java", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    CLEANUP_FREE char *store = NULL;
    CLEANUP_BUF struct buf less, more;
    ssize_t n = dir < 0 ? -errno : read_store(dir, JAVA_NAME, &store);
    int rc, removed;

    buf_init(&less, JAVA_MAX);
    buf_init(&more, JAVA_MAX + TRUST_PEM_MAX);
    if (n < 0)
        return (int)n;
    removed = former ? java_store_remove(store, (size_t)n, former, &less) : 0;
    rc = removed > 0 ? java_store_add(less.data, less.len, pem, (uint64_t)clock_real_ms(), &more)
                     : java_store_add(store, (size_t)n, pem, (uint64_t)clock_real_ms(), &more);
    if (rc > 0)
        rc = io_replace_file_at(dir, JAVA_NAME, more.data, more.len, 0644);
    else if (rc == 0 && removed > 0)
        rc = io_replace_file_at(dir, JAVA_NAME, less.data, less.len, 0644);
    return rc < 0 ? rc : MIN(removed, 0);
}

/* -- of who was here before -------------------------------------------------------------------- */

/* A template that another tenant published was made in a sandbox of that one's, and has its
 * authority: the file of before, malloc'd. NULL: there was none, or the same. */
static char *former_of(int dir, const char *pem)
{
    CLEANUP_FREE char *own = NULL;
    ssize_t n = read_store(dir, OWN_NAME, &own);

    return n > 0 && n <= TRUST_PEM_MAX && strcmp(own, pem) != 0 ? TAKE_PTR(own) : NULL;
}

static int remove_from_bundle(int dir, const char *former)
{
    CLEANUP_FREE char *bundle = NULL;
    CLEANUP_BUF struct buf less;
    ssize_t n = read_store(dir, ALL_NAME, &bundle);
    int rc;

    buf_init(&less, JAVA_MAX);
    if (n < 0)
        return (int)n;
    rc = pem_list_without(bundle, former, &less);
    return rc > 0 ? io_replace_file_at(dir, ALL_NAME, less.data, less.len, 0644) : rc;
}

/* For what is not started by the agent: cron, su and whatever else asks PAM. Only what is not said
 * there. */
static int add_to_environment(const json_t *defaults)
{
    CLEANUP_CLOSE int fd = open(ENVIRONMENT, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
    char text[ENVIRONMENT_MAX];
    ssize_t n = fd < 0 ? -1 : pread(fd, text, sizeof(text) - 1, 0);
    const char *name;
    json_t *value;
    int rc = 0;

    if (n < 0)
        return -errno;
    if (n == (ssize_t)sizeof(text) - 1) /* the sandbox's own, and long */
        return -EFBIG;
    text[n] = '\0';
    if (lseek(fd, 0, SEEK_END) < 0)
        return -errno;
    if (n > 0 && text[n - 1] != '\n')
        rc = io_write_full(fd, "\n", 1);
    json_object_foreach ((json_t *)defaults, name, value) {
        char line[256];
        int len = snprintf(line, sizeof(line), "%s=%s\n", name, json_string_value(value));

        if (rc == 0 && !strstr(text, name))
            rc = io_write_full(fd, line, (size_t)len);
    }
    return rc;
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

/* A certificate that is still to be written. */
struct trust {
    uv_idle_t idle;
    json_t *defaults;
    char pem[];
};

static void write_files(const char *pem, const json_t *defaults)
{
    CLEANUP_CLOSE int dir = open_certs();
    CLEANUP_FREE char *former = dir < 0 ? NULL : former_of(dir, pem);
    size_t n = strlen(pem);
    int rc = former ? remove_from_bundle(dir, former) : 0;

    if (rc < 0 && rc != -ENOENT)
        log_warn("the authority of the template's publisher is in " ALL_NAME " still: %s",
                 strerror(-rc));
    rc = dir < 0 ? dir : io_replace_file_at(dir, OWN_NAME, pem, n, 0644);
    if (rc < 0) {
        log_warn("the authority of the way out is not in " CERTS_DIR ": %s", strerror(-rc));
        return;
    }
    rc = add_to_bundle(dir, pem, n);
    if (rc < 0 && rc != -ENOENT)
        log_warn("the authority of the way out is not in " ALL_NAME ": %s", strerror(-rc));
    rc = add_to_java(dir, pem, former);
    if (rc < 0 && rc != -ENOENT)
        log_warn("the authority of the way out is not in Java's store: %s", strerror(-rc));
    rc = add_to_environment(defaults);
    if (rc < 0)
        log_warn("the authority of the way out is not in " ENVIRONMENT ": %s", strerror(-rc));
}

static void on_closed(uv_handle_t *h)
{
    struct trust *t = CONTAINER_OF((uv_idle_t *)h, struct trust, idle);

    json_decref(t->defaults);
    free(t);
}

/* Before the loop looks for requests again: the caller of the create does not wait for this, and no
 * program is started before it. */
static void on_idle(uv_idle_t *idle)
{
    const struct trust *t = CONTAINER_OF(idle, struct trust, idle);

    write_files(t->pem, t->defaults);
    uv_close((uv_handle_t *)idle, on_closed);
}

void trust_install(struct agent *a, const char *pem)
{
    size_t n = strlen(pem);
    struct trust *t;
    struct stat st;

    if (a->id[0] == '\0' || n == 0 || n > TRUST_PEM_MAX) /* development: this is the host's /etc */
        return;
    t = a->command_sandbox ? NULL : malloc(sizeof(*t) + n + 1);
    if (!a->command_sandbox && (!t || uv_idle_init(a->loop, &t->idle) < 0)) {
        free(t);
        return;
    }
    json_decref(a->defaults);
    a->defaults = make_defaults(lstat(CERTS_DIR "/" ALL_NAME, &st) == 0 && S_ISREG(st.st_mode));
    if (t) {
        memcpy(t->pem, pem, n + 1);
        t->defaults = json_incref(a->defaults);
        uv_idle_start(&t->idle, on_idle);
    }
}
