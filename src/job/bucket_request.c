/* curl has the request in arguments, which tell nothing, and the rest (address, keys) in a
 * configuration on its standard input: arguments are for all users of the host to read. It
 * says a line for the status, and others for a person; what the server says goes to a file of its
 * own, so that a server can put no line among those. Its time and bytes are bounded here, as a
 * server may answer without an end. */

#include "job/bucket_request.h"

#include "base/bucket_credentials.h"
#include "base/clock.h"
#include "base/io.h"
#include "contract/archive.h"
#include "contract/bucket.h"
#include "job/archive_walls.h"

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
/* Of a request with its tries. A job of 15 minutes hashes an archive beside it. */
#define BUCKET_TIME_MS      (780 * 1000u)
#define BUCKET_SHORT_MS     (60 * 1000u) /* without an archive */
#define BUCKET_ANSWER_BYTES (64u * 1024) /* of one without an object */
#define CODE_WITHIN         4096         /* of an answer's beginning */

/* curl's exit statuses */
#define TOO_SLOW        28
#define NOT_TRUSTED     60
#define BAD_AUTHORITIES 77

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

static bool is_get(const struct bucket_request *r)
{
    return r->method == BUCKET_GET || r->method == BUCKET_GET_END;
}

/* An answer that is no object must not be taken for one. */
static int write_of_method(int fd, const struct bucket_request *r)
{
    if (r->method == BUCKET_PUT && dprintf(fd, "upload-file = \"/layer/" ARCHIVE_FILE "\"\n") < 0)
        return -EIO;
    if (r->method == BUCKET_DELETE && dprintf(fd, "request = \"DELETE\"\n") < 0)
        return -EIO;
    if (is_get(r) && dprintf(fd, "fail-with-body\nmax-filesize = %llu\n",
                             (unsigned long long)MAX(r->bytes, BUCKET_ANSWER_BYTES)) < 0)
        return -EIO;
    if (r->method == BUCKET_GET_END &&
        dprintf(fd, "range = \"-%llu\"\n", (unsigned long long)r->bytes) < 0)
        return -EIO;
    return 0;
}

/* A descriptor at its beginning. Checked values alone stand in it (base/bucket.h). */
static int write_config(const struct bucket_request *r, const struct bucket_credentials *c,
                        uint64_t left_ms)
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
    if (write_of_method(fd, r) < 0 ||
        dprintf(fd, "max-time = %llu\n", (unsigned long long)left_ms / 1000 + 1) < 0)
        return -EIO;
    if (lseek(fd, 0, SEEK_SET) < 0)
        return -errno;
    return TAKE_FD(fd);
}

static int make_config(const struct bucket_request *r, uint64_t left_ms, struct bucket_why *why)
{
    const char *path = setting(BUCKET_ENV_CREDENTIALS), *wrong;
    struct bucket_credentials c;
    int rc = bucket_credentials_read(path, &c, &wrong);

    if (rc < 0)
        snprintf(why->text, sizeof(why->text), "%.160s: %s", path, wrong);
    else
        rc = write_config(r, &c, left_ms);
    explicit_bzero(&c, sizeof(c));
    return rc;
}

/* -- what it says ------------------------------------------------------------------------------ */

struct said {
    int http;  /* 0: there was no answer */
    bool last; /* another try would not help */
    unsigned long long sent;
    char code[64], curl[200];
};

static void on_line(void *arg, const char *line)
{
    static const char mine[] = "curl: ";
    struct said *s = arg;

    if (strncmp(line, mine, strlen(mine)) == 0)
        snprintf(s->curl, sizeof(s->curl), "%s", line);
    else
        (void)sscanf(line, "status %3d %20llu", &s->http, &s->sent);
}

/* S3's word for what was wrong: letters and digits, as it goes into a line of what the job says. */
static void read_code(int answer_fd, struct said *s)
{
    static const char begin[] = "<Code>", of[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRST"
                                                 "UVWXYZ0123456789";
    char text[CODE_WITHIN + 1];
    ssize_t n = pread(answer_fd, text, CODE_WITHIN, 0);

    text[MAX(n, 0)] = '\0';
    const char *code = strstr(text, begin);
    if (code)
        snprintf(s->code, sizeof(s->code), " %.*s", (int)strspn(code + strlen(begin), of),
                 code + strlen(begin));
}

static int evaluate(const struct bucket_request *r, const struct said *s, int status,
                    struct bucket_why *why)
{
    const char *bucket = setting(BUCKET_ENV_NAME);

    bool is_good = status == 0 && s->http >= 200 && s->http < 300;

    why->text[0] = '\0';
    if (is_good && r->method == BUCKET_PUT && s->sent < r->bytes) {
        snprintf(why->text, sizeof(why->text), "bucket %s has answered %d before it had all of it",
                 bucket, s->http);
        return -EIO;
    }
    if (is_good)
        return 0;
    if ((status == 63 || status == 128 + SIGXFSZ) && s->http < 300) {
        snprintf(why->text, sizeof(why->text), "%s",
                 is_get(r) ? "the object is longer than what was stored"
                           : "what the bucket answers is longer than an answer is");
        return is_get(r) ? -EFBIG : -EPROTO;
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
        snprintf(why->text, sizeof(why->text), "bucket %s %s: %s", bucket,
                 status == NOT_TRUSTED || status == BAD_AUTHORITIES ? "is not trusted"
                                                                    : "does not answer",
                 s->curl[0] ? s->curl : "curl was ended");
    return s->http == 401 || s->http == 403 ? -EACCES : -EIO;
}

/* A slow one is not asked again: others wait for the place. */
static bool may_help(const struct said *s, int rc)
{
    return rc == -EIO && !s->last &&
           (s->http == 0 || s->http == 429 || s->http >= 500 ||
            (s->http >= 200 && s->http < 300)); /* the last: cut in the middle */
}

/* -- running ----------------------------------------------------------------------------------- */

static int try(const struct bucket_request *r, uint64_t left_ms, int answer_fd, struct said *s,
               struct bucket_why *why)
{
    static const char *const argv[] = {CURL,
                                       "-q",
                                       "--silent",
                                       "--show-error",
                                       "--globoff",
                                       "--http1.1",
                                       "--proto",
                                       "=https,http",
                                       "--connect-timeout",
                                       "10",
                                       "--speed-limit",
                                       "1024",
                                       "--speed-time",
                                       "30",
                                       "--write-out",
                                       "%{stderr}\nstatus %{http_code} %{size_upload}\n",
                                       "--config",
                                       "-",
                                       NULL};
    const char *given = getenv(BUCKET_ENV_CA_FILE), *ca_file = given ? given : SYSTEM_CA;
    struct archive_walls walls = {.layer_fd = r->method == BUCKET_PUT ? r->layer_fd : -1,
                                  .out_fd = -1,
                                  .data_fd = answer_fd,
                                  .names = true,
                                  .bytes_max = is_get(r) ? r->bytes : BUCKET_ANSWER_BYTES};
    CLEANUP_CLOSE int config = make_config(r, left_ms, why);

    *s = (struct said){.http = 0};
    if (config < 0)
        return config;
    walls.in_fd = config;
    if (is_https() && access(ca_file, R_OK) < 0) {
        snprintf(why->text, sizeof(why->text), "the authorities in %.160s cannot be read: %s",
                 ca_file, strerror(errno));
        return -EACCES;
    }
    if (is_https())
        walls.authorities = ca_file;
    int status = run_program_within((char *const *)argv, archive_walls_enter, &walls, on_line, s);
    s->last = status == TOO_SLOW || status == NOT_TRUSTED || status == BAD_AUTHORITIES;
    if (s->http >= 300)
        read_code(answer_fd, s);
    return status < 0 ? status : evaluate(r, s, status, why);
}

static int again(int answer_fd)
{
    return ftruncate(answer_fd, 0) < 0 || lseek(answer_fd, 0, SEEK_SET) < 0 ? -errno : 0;
}

static int try_some_times(const struct bucket_request *r, int answer_fd, struct bucket_why *why)
{
    uint64_t time_ms = r->method == BUCKET_PUT || r->method == BUCKET_GET ? BUCKET_TIME_MS
                                                                          : BUCKET_SHORT_MS;
    uint64_t until_ms = clock_mono_ms() + time_ms, now_ms;
    struct said said;
    int rc = -EIO;

    for (unsigned i = 0; i < BUCKET_ATTEMPTS && (now_ms = clock_mono_ms()) < until_ms; i++) {
        why->text[0] = '\0';
        rc = again(answer_fd);
        if (rc == 0)
            rc = try(r, until_ms - now_ms, answer_fd, &said, why);
        if (rc < 0 && !why->text[0])
            snprintf(why->text, sizeof(why->text), "no request to the bucket: %s", strerror(-rc));
        if (rc == 0 || !may_help(&said, rc))
            break;
        if (i + 1 < BUCKET_ATTEMPTS)
            sleep(1 + 2 * i);
    }
    return rc;
}

int bucket_request(const struct bucket_request *r, struct bucket_why *why)
{
    CLEANUP_CLOSE int own = is_get(r) ? -1 : memfd_create("cay-bucket", MFD_CLOEXEC);

    if (!setting(BUCKET_ENV_NAME)[0]) {
        snprintf(why->text, sizeof(why->text), "this server has no bucket ([archive] bucket)");
        return -EOPNOTSUPP;
    }
    if (!is_get(r) && own < 0) {
        snprintf(why->text, sizeof(why->text), "no request to the bucket: %s", strerror(errno));
        return -EIO;
    }
    return try_some_times(r, is_get(r) ? r->to_fd : own, why);
}

static void on_hash(void *arg, const char *line)
{
    char *out = arg;

    if (strspn(line, "0123456789abcdef") == BUCKET_HASH_CHARS && line[BUCKET_HASH_CHARS] == ' ')
        snprintf(out, BUCKET_HASH_CHARS + 1, "%s", line);
}

int bucket_hash(int fd, char out[static BUCKET_HASH_CHARS + 1])
{
    const struct archive_walls walls = {.layer_fd = -1, .out_fd = -1, .in_fd = fd, .data_fd = -1};
    static const char *const argv[] = {SHA256SUM, NULL};

    out[0] = '\0';
    if (lseek(fd, 0, SEEK_SET) < 0)
        return -errno;
    int status = run_program_within((char *const *)argv, archive_walls_enter, &walls, on_hash, out);
    return status == 0 && out[0] ? 0 : -EIO;
}
