/* curl has the request in arguments, which tell nothing, and the rest (address, keys) in a
 * configuration on its standard input: arguments are for all users of the host to read. It
 * says a line for the status, and others for a person. */

#include "job/bucket_request.h"

#include "base/io.h"
#include "contract/archive.h"
#include "contract/bucket.h"
#include "job/archive_walls.h"
#include "job/bucket_credentials.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define CURL            "/usr/bin/curl"
#define SHA256SUM       "/usr/bin/sha256sum"
#define SYSTEM_CA       "/etc/ssl/certs/ca-certificates.crt"
#define BUCKET_ATTEMPTS 3

/* SHA-256 of no bytes. */
static const char of_nothing[] = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/* -- what curl is told ------------------------------------------------------------------------- */

static const char *setting(const char *name)
{
    const char *value = getenv(name);

    return value ? value : "";
}

static bool is_https(void)
{
    return strncmp(setting(BUCKET_ENV_ENDPOINT), "https:", 6) == 0;
}

/* A descriptor at its beginning. Checked values alone stand in it (base/bucket.h). */
static int write_config(const struct bucket_request *r, const struct bucket_credentials *c)
{
    CLEANUP_CLOSE int fd = memfd_create("cay-bucket", MFD_CLOEXEC);

    if (fd < 0)
        return -errno;
    if (dprintf(fd, "url = \"%s/%s/" BUCKET_PREFIX "%s" BUCKET_SUFFIX "\"\n",
                setting(BUCKET_ENV_ENDPOINT), setting(BUCKET_ENV_NAME), r->key) < 0 ||
        dprintf(fd, "aws-sigv4 = \"aws:amz:%s:s3\"\nuser = \"%s:%s\"\n", setting(BUCKET_ENV_REGION),
                c->key_id, c->secret) < 0 ||
        dprintf(fd, "header = \"x-amz-content-sha256: %s\"\n",
                r->method == BUCKET_PUT ? r->sha256 : of_nothing) < 0)
        return -EIO;
    if (c->token[0] && dprintf(fd, "header = \"x-amz-security-token: %s\"\n", c->token) < 0)
        return -EIO;
    if (is_https() && dprintf(fd, "cacert = \"" ARCHIVE_WALLS_CA "\"\n") < 0)
        return -EIO;
    if (r->method == BUCKET_PUT && dprintf(fd, "upload-file = \"/layer/" ARCHIVE_FILE "\"\n") < 0)
        return -EIO;
    if (r->method == BUCKET_DELETE && dprintf(fd, "request = \"DELETE\"\n") < 0)
        return -EIO;
    /* An answer that is no object must not be taken for one. */
    if (r->method == BUCKET_GET &&
        dprintf(fd, "fail\nmax-filesize = %llu\n", (unsigned long long)r->bytes) < 0)
        return -EIO;
    if (lseek(fd, 0, SEEK_SET) < 0)
        return -errno;
    return TAKE_FD(fd);
}

static int make_config(const struct bucket_request *r, struct bucket_why *why)
{
    const char *path = setting(BUCKET_ENV_CREDENTIALS), *wrong;
    struct bucket_credentials c;
    int rc = bucket_credentials_read(path, &c, &wrong);

    if (rc < 0)
        snprintf(why->text, sizeof(why->text), "%.160s: %s", path, wrong);
    else
        rc = write_config(r, &c);
    explicit_bzero(&c, sizeof(c));
    return rc;
}

/* -- what it says ------------------------------------------------------------------------------ */

struct said {
    int http; /* 0: there was no answer */
    char code[64], curl[200];
};

static void on_line(void *arg, const char *line)
{
    static const char status[] = "status ", begin[] = "<Code>", mine[] = "curl: ";
    const char *code = strstr(line, begin);
    struct said *s = arg;

    if (strncmp(line, status, strlen(status)) == 0)
        s->http = atoi(line + strlen(status));
    else if (strncmp(line, mine, strlen(mine)) == 0)
        snprintf(s->curl, sizeof(s->curl), "%s", line);
    if (code)
        snprintf(s->code, sizeof(s->code), " %.*s", (int)strcspn(code + strlen(begin), "<"),
                 code + strlen(begin));
}

static int evaluate(const struct bucket_request *r, const struct said *s, int status,
                    struct bucket_why *why)
{
    const char *bucket = setting(BUCKET_ENV_NAME);

    why->text[0] = '\0';
    if (status == 0 && s->http >= 200 && s->http < 300)
        return 0;
    if (status == 63 || status == 128 + SIGXFSZ) {
        snprintf(why->text, sizeof(why->text), "the object is longer than what was stored");
        return -EFBIG;
    }
    if (status == 127) {
        snprintf(why->text, sizeof(why->text), "curl is not there (package curl)");
        return -EOPNOTSUPP;
    }
    if (s->http == 404) {
        snprintf(why->text, sizeof(why->text), "bucket %s has no such object (404%s)", bucket,
                 s->code);
        return r->method == BUCKET_DELETE && !strstr(s->code, "NoSuchBucket") ? 0 : -ENODATA;
    }
    snprintf(why->text, sizeof(why->text), "bucket %s has answered %d%s%s%s", bucket, s->http,
             s->code, s->curl[0] ? ": " : "", s->curl);
    if (s->http == 0)
        snprintf(why->text, sizeof(why->text), "bucket %s does not answer: %s", bucket,
                 s->curl[0] ? s->curl : "curl was ended");
    return s->http == 401 || s->http == 403 ? -EACCES : -EIO;
}

static bool may_help(const struct said *s, int rc)
{
    return rc == -EIO && (s->http == 0 || s->http == 429 || s->http >= 500 ||
                          (s->http >= 200 && s->http < 300)); /* the last: cut in the middle */
}

/* -- running ----------------------------------------------------------------------------------- */

static int try(const struct bucket_request *r, struct said *s, struct bucket_why *why)
{
    static const char *const argv[] = {CURL,
                                       "-q",
                                       "--silent",
                                       "--show-error",
                                       "--globoff",
                                       "--proto",
                                       "=https,http",
                                       "--connect-timeout",
                                       "10",
                                       "--speed-limit",
                                       "1024",
                                       "--speed-time",
                                       "30",
                                       "--write-out",
                                       "%{stderr}\nstatus %{http_code}\n",
                                       "--config",
                                       "-",
                                       NULL};
    const char *ca_file = getenv(BUCKET_ENV_CA_FILE);
    struct archive_walls walls = {.layer_fd = r->method == BUCKET_PUT ? r->layer_fd : -1,
                                  .out_fd = -1,
                                  .data_fd = r->method == BUCKET_GET ? r->to_fd : -1,
                                  .names = true,
                                  .bytes_max = r->method == BUCKET_GET ? r->bytes : 0};
    CLEANUP_CLOSE int config = make_config(r, why);

    *s = (struct said){.http = 0};
    if (config < 0)
        return config;
    walls.in_fd = config;
    if (is_https())
        walls.authorities = ca_file ? ca_file : SYSTEM_CA;
    int status = run_program_within((char *const *)argv, archive_walls_enter, &walls, on_line, s);
    return status < 0 ? status : evaluate(r, s, status, why);
}

static int again(const struct bucket_request *r)
{
    return r->method != BUCKET_GET                                          ? 0
           : ftruncate(r->to_fd, 0) < 0 || lseek(r->to_fd, 0, SEEK_SET) < 0 ? -errno
                                                                            : 0;
}

int bucket_request(const struct bucket_request *r, struct bucket_why *why)
{
    struct said said;
    int rc = -EIO;

    if (!setting(BUCKET_ENV_NAME)[0]) {
        snprintf(why->text, sizeof(why->text), "this server has no bucket ([archive] bucket)");
        return -EOPNOTSUPP;
    }
    for (unsigned i = 0; i < BUCKET_ATTEMPTS; i++) {
        why->text[0] = '\0';
        rc = i > 0 ? again(r) : 0;
        if (rc == 0)
            rc = try(r, &said, why);
        if (rc < 0 && !why->text[0])
            snprintf(why->text, sizeof(why->text), "no request to the bucket: %s", strerror(-rc));
        if (rc == 0 || !may_help(&said, rc))
            break;
        if (i + 1 < BUCKET_ATTEMPTS)
            sleep(1 + 2 * i);
    }
    return rc;
}

static void on_hash(void *arg, const char *line)
{
    char *out = arg;

    if (strspn(line, "0123456789abcdef") == BUCKET_HASH_CHARS && line[BUCKET_HASH_CHARS] == ' ')
        snprintf(out, BUCKET_HASH_CHARS + 1, "%s", line);
}

int bucket_hash(int layer_fd, const char *name, char out[static BUCKET_HASH_CHARS + 1])
{
    const struct archive_walls walls = {
        .layer_fd = layer_fd, .out_fd = -1, .in_fd = -1, .data_fd = -1};
    char path[64];
    const char *const argv[] = {SHA256SUM, path, NULL};

    out[0] = '\0';
    snprintf(path, sizeof(path), "/layer/%s", name);
    int status = run_program_within((char *const *)argv, archive_walls_enter, &walls, on_hash, out);
    return status == 0 && out[0] ? 0 : -EIO;
}
