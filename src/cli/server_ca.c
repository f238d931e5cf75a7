#include "cli/server_ca.h"

#include "base/buf.h"
#include "base/io.h"
#include "cli/server_ca_x509.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#define DIR_NAME      "tls"
#define CA_NAME       "ca.pem"
#define CA_KEY_NAME   "ca.key"
#define CERT_NAME     "cert.pem"
#define KEY_NAME      "key.pem"
#define BUNDLE_NAME   "bundle.pem"
#define PEM_MAX       16384
#define BUNDLE_MAX    (UINT64_C(4) << 20)
#define DAY_S         INT64_C(86400)
#define CA_MIN_DAYS   (SERVER_CA_LEAF_DAYS + 1) /* no certificate outlives what signed it */
#define NAMES_REFUSED "[server] domain: \"%.100s\" is not a host name with or without a port"

bool server_ca_is_wanted(const struct settings *s)
{
    return !s->listen_tls_cert && strcmp(s->listen_tls, "off") != 0;
}

void server_ca_paths(const char *state_dir, struct server_ca_files *out)
{
    snprintf(out->dir, sizeof(out->dir), "%.500s/" DIR_NAME, state_dir);
    snprintf(out->ca, sizeof(out->ca), "%s/" CA_NAME, out->dir);
    snprintf(out->cert, sizeof(out->cert), "%s/" CERT_NAME, out->dir);
    snprintf(out->key, sizeof(out->key), "%s/" KEY_NAME, out->dir);
    snprintf(out->bundle, sizeof(out->bundle), "%s/" BUNDLE_NAME, out->dir);
}

/* -- the directory ----------------------------------------------------------------------------- */

/* Held open from here on: the checked file is the one that is written to. Whether the directories
 * above can be changed by others is checked by cay-keep, which refuses to start then. */
static int open_own(int at, const char *path, mode_t mode)
{
    CLEANUP_CLOSE int fd = -1;
    struct stat st;

    if (mkdirat(at, path, mode) < 0 && errno != EEXIST)
        return -errno;
    fd = openat(at, path, O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    if (st.st_uid != 0 || st.st_mode & 022)
        return -EPERM;
    return fchmod(fd, mode) < 0 ? -errno : TAKE_FD(fd);
}

static enum err_code open_dir(const struct settings *s, int *out, struct err *e)
{
    CLEANUP_CLOSE int state = open_own(AT_FDCWD, s->state_dir, 0711);
    int fd = state < 0 ? state : open_own(state, DIR_NAME, 0755);

    if (fd == -EPERM)
        return err_set(e, ERR_DENIED,
                       "%s and " DIR_NAME
                       " in it have to be root's, and not writable for others: a "
                       "key is kept there",
                       s->state_dir);
    if (fd >= 0 && flock(fd, LOCK_EX) < 0) {
        close(fd);
        fd = -errno;
    }
    if (fd < 0)
        return err_set_sys(e, err_code_from_errno(fd), fd, "cannot make %s/" DIR_NAME,
                           s->state_dir);
    *out = fd;
    return ERR_OK;
}

/* -- files ------------------------------------------------------------------------------------- */

struct pem {
    char text[PEM_MAX];
};

static const char *read_pem(int dir, const char *name, struct pem *out)
{
    return io_read_text_at(dir, name, out->text, sizeof(out->text)) > 0 ? out->text : NULL;
}

static enum err_code write_pem(int dir, const char *name, const char *text, mode_t mode,
                               struct err *e)
{
    int r = io_replace_file_at(dir, name, text, strlen(text), mode);

    return r < 0 ? err_set_sys(e, err_code_from_errno(r), r, "cannot write %s", name) : ERR_OK;
}

/* The pair's key first: a certificate without its key is made anew the next time, see is_good. */
static enum err_code write_pair(int dir, const char *cert_name, const char *key_name,
                                const struct x509_pair *pair, struct err *e)
{
    CLEANUP_FREE char *cert = x509_pem(pair->cert);
    char *key = x509_key_pem(pair->key);
    enum err_code code = cert && key ? write_pem(dir, key_name, key, 0600, e)
                                     : err_set(e, ERR_EXHAUSTED, "out of memory");

    if (code == ERR_OK)
        code = write_pem(dir, cert_name, cert, 0644, e);
    x509_key_pem_free(key);
    return code;
}

static bool read_pair(int dir, const char *cert_name, const char *key_name, struct x509_pair *out)
{
    struct pem *cert = calloc(1, sizeof(*cert)), *key = calloc(1, sizeof(*key));
    bool good = cert && key && read_pem(dir, cert_name, cert) && read_pem(dir, key_name, key) &&
                x509_pair_read(cert->text, key->text, out);

    if (key)
        explicit_bzero(key, sizeof(*key));
    free(key);
    free(cert);
    return good;
}

/* -- the pair ---------------------------------------------------------------------------------- */

static bool lasts(const struct x509_pair *pair, int64_t days)
{
    return x509_end(pair->cert) > time(NULL) + days * DAY_S;
}

static enum err_code make_ca(int dir, const struct x509_names *names, struct x509_pair *out,
                             struct err *e)
{
    if (!x509_make_ca(names, SERVER_CA_DAYS, out))
        return err_set(e, ERR_INTERNAL, "the local authority could not be made: %s", x509_reason());
    return write_pair(dir, CA_NAME, CA_KEY_NAME, out, e);
}

/* A CA that does not allow these names, as after another domain was set, is replaced. */
static enum err_code issue(int dir, const struct x509_names *names, struct err *e)
{
    CLEANUP_X509_PAIR struct x509_pair ca = {.cert = NULL}, leaf = {.cert = NULL};
    enum err_code code = ERR_OK;

    if (!read_pair(dir, CA_NAME, CA_KEY_NAME, &ca) || !lasts(&ca, CA_MIN_DAYS) ||
        !x509_issue(&ca, names, SERVER_CA_LEAF_DAYS, &leaf) ||
        !x509_fits(ca.cert, leaf.cert, names)) {
        x509_pair_free(&ca);
        x509_pair_free(&leaf);
        code = make_ca(dir, names, &ca, e);
        if (code == ERR_OK && (!x509_issue(&ca, names, SERVER_CA_LEAF_DAYS, &leaf) ||
                               !x509_fits(ca.cert, leaf.cert, names)))
            code = err_set(e, ERR_INTERNAL, "the server's certificate could not be made: %s",
                           x509_reason());
    }
    return code == ERR_OK ? write_pair(dir, CERT_NAME, KEY_NAME, &leaf, e) : code;
}

static enum err_code ensure_pair(int dir, const struct x509_names *names, bool renew_only,
                                 bool *changed, struct err *e)
{
    CLEANUP_X509_PAIR struct x509_pair leaf = {.cert = NULL};
    struct pem *ca_text = calloc(1, sizeof(*ca_text));
    X509 *ca = ca_text && read_pem(dir, CA_NAME, ca_text) ? x509_read(ca_text->text) : NULL;
    bool fits = ca && read_pair(dir, CERT_NAME, KEY_NAME, &leaf) && x509_fits(ca, leaf.cert, names);

    X509_free(ca);
    free(ca_text);
    *changed = !(fits && lasts(&leaf, SERVER_CA_RENEW)) && !(renew_only && !fits);
    return *changed ? issue(dir, names, e) : ERR_OK;
}

/* -- the bundle -------------------------------------------------------------------------------- */

static bool append_file(struct buf *b, const char *path)
{
    CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
    char bytes[16384];
    ssize_t n = -1;

    while (fd >= 0 && (n = read(fd, bytes, sizeof(bytes))) > 0)
        if (buf_append(b, bytes, (size_t)n) < 0)
            return false;
    return n == 0 && b->len > 0 && (b->data[b->len - 1] == '\n' || buf_append(b, "\n", 1) == 0);
}

/* The system's roots by their usual places (Debian, Fedora, SUSE, Alpine), and what this shell
 * trusts besides: a company's own roots are in neither of them otherwise. */
static enum err_code write_bundle(int dir, const struct server_ca_files *files, struct err *e)
{
    static const char *const paths[] = {"/etc/ssl/certs/ca-certificates.crt",
                                        "/etc/pki/tls/certs/ca-bundle.crt",
                                        "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"};
    const char *more = getenv("SSL_CERT_FILE"), *system = NULL;
    CLEANUP_BUF struct buf all;
    int r;

    buf_init(&all, BUNDLE_MAX);
    for (size_t i = 0; i < ARRAY_SIZE(paths) && !system; i++)
        if (append_file(&all, paths[i]))
            system = paths[i];
    if (more && strcmp(more, files->bundle) != 0 && (!system || strcmp(more, system) != 0))
        (void)append_file(&all, more);
    if (!append_file(&all, files->ca))
        return err_set(e, ERR_INTERNAL, "%s cannot be read", files->ca);
    r = io_replace_file_at(dir, BUNDLE_NAME, all.data, all.len, 0644);
    return r < 0 ? err_set_sys(e, err_code_from_errno(r), r, "cannot write %s", files->bundle)
                 : ERR_OK;
}

/* -- the whole --------------------------------------------------------------------------------- */

enum err_code server_ca_ensure(const struct settings *s, bool renew_only,
                               struct server_ca_files *out, bool *changed, struct err *e)
{
    CLEANUP_CLOSE int dir = -1;
    struct x509_names names;
    enum err_code code;

    *changed = false;
    server_ca_paths(s->state_dir, out);
    if (!x509_names_of(s->server_domain, s->listen_address, &names))
        return err_set(e, ERR_INVALID, NAMES_REFUSED, s->server_domain);
    code = open_dir(s, &dir, e);
    if (code == ERR_OK)
        code = ensure_pair(dir, &names, renew_only, changed, e);
    if (code == ERR_OK && (!renew_only || *changed))
        code = write_bundle(dir, out, e);
    return code;
}

int server_ca_end(const struct server_ca_files *files, time_t *out)
{
    struct pem *text = calloc(1, sizeof(*text));
    X509 *cert = NULL;
    int r;

    if (!text)
        return -ENOMEM;
    r = (int)io_read_text_at(AT_FDCWD, files->cert, text->text, sizeof(text->text));
    if (r >= 0) {
        cert = x509_read(text->text);
        r = cert ? 0 : -EINVAL;
    }
    if (cert)
        *out = (time_t)x509_end(cert);
    X509_free(cert);
    free(text);
    return r;
}
