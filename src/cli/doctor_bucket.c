/* Whether archives can go to the operator's bucket (docs/archive.md). cay-job speaks to it by curl
 * with these settings; here it is libcurl, so that each step's failure is known apart. The object
 * is removed again, whatever the server said to it. */
#include "base/bucket.h"
#include "base/bucket_credentials.h"
#include "base/ids.h"
#include "base/settings.h"
#include "cli/doctor.h"
#include "contract/bucket.h"

#include <curl/curl.h>
#include <limits.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CONNECT_MS  5000L
#define ANSWER_MS   10000L
#define KEPT_BYTES  4096      /* of an answer */
#define BYTES_MAX   (1 << 16) /* of an answer, which is cut there */
#define SKEW_S      300       /* S3 refuses requests at 900 */
#define OBJECT_SIZE 32
#define HASH_SIZE   65

enum { KEYS, SERVER, OBJECTS, CLOCK };

static const char *const names[DOCTOR_BUCKET] = {
    [KEYS] = "bucket keys",
    [SERVER] = "bucket server",
    [OBJECTS] = "bucket objects",
    [CLOCK] = "bucket clock",
};

struct probe {
    const struct settings *settings;
    struct bucket_credentials keys;
    char url[512], object[OBJECT_SIZE + 1];
    size_t sent;
};

struct answer {
    CURLcode result;
    char error[CURL_ERROR_SIZE];
    long status;
    time_t date; /* as the server tells it; -1: it does not */
    char bytes[KEPT_BYTES + 1];
    size_t n;
};

/* -- the file with the keys -------------------------------------------------------------------- */

/* cay-privd sees /usr, /etc and the directory of that file (but /), so not all that a link leads
 * to. */
static bool leads_away(const char *path)
{
    char real[PATH_MAX], dir[PATH_MAX], named[BUCKET_TEXT_MAX + 1];

    snprintf(named, sizeof(named), "%.*s", (int)(strrchr(path, '/') - path), path);
    if (!realpath(path, real) || strncmp(real, "/etc/", 5) == 0 || strncmp(real, "/usr/", 5) == 0)
        return false;
    if (!named[0] || !realpath(named, dir))
        return true;
    size_t n = strlen(dir);
    return strncmp(real, dir, n) != 0 || real[n] != '/';
}

static bool check_keys(struct probe *p, struct doctor_result *r)
{
    const char *path = p->settings->archive.credentials, *why;

    if (geteuid() != 0) {
        doctor_say(r, DOCTOR_SKIPPED, "only root reads %.120s", path);
        return false;
    }
    if (bucket_credentials_read(path, &p->keys, &why) < 0) {
        doctor_say(r, DOCTOR_LIMITED, "%.100s ([archive] credentials): %s", path, why);
        return false;
    }
    if (leads_away(path)) {
        doctor_say(
            r, DOCTOR_LIMITED,
            "cay-privd does not see where %.90s leads: [archive] credentials has to name the "
            "file itself, not a link, in a directory of its own",
            path);
        return false;
    }
    doctor_say(r, DOCTOR_OK, "%.120s is root's alone, and has them", path);
    return true;
}

/* -- a request --------------------------------------------------------------------------------- */

static size_t on_bytes(char *data, size_t size, size_t n, void *arg)
{
    struct answer *a = arg;
    size_t bytes = size * n, room = KEPT_BYTES - MIN(a->n, (size_t)KEPT_BYTES);

    memcpy(a->bytes + MIN(a->n, (size_t)KEPT_BYTES), data, MIN(bytes, room));
    a->n += bytes;
    return a->n > BYTES_MAX ? 0 : bytes;
}

static size_t on_header(char *data, size_t size, size_t n, void *arg)
{
    static const char head[] = "date:";
    struct answer *a = arg;
    size_t bytes = size * n;
    char value[64];

    if (bytes > strlen(head) && strncasecmp(data, head, strlen(head)) == 0) {
        snprintf(value, sizeof(value), "%.*s", (int)MIN(bytes - strlen(head), sizeof(value) - 1),
                 data + strlen(head));
        value[strcspn(value, "\r\n")] = '\0';
        a->date = curl_getdate(value, NULL);
    }
    return bytes;
}

static size_t give_object(char *out, size_t size, size_t n, void *arg)
{
    struct probe *p = arg;
    size_t bytes = MIN(size * n, OBJECT_SIZE - p->sent);

    memcpy(out, p->object + p->sent, bytes);
    p->sent += bytes;
    return bytes;
}

static void hash(const char *bytes, size_t n, char out[static HASH_SIZE])
{
    unsigned char md[EVP_MAX_MD_SIZE];
    unsigned len = 0;

    out[0] = '\0';
    if (EVP_Digest(bytes, n, md, &len, EVP_sha256(), NULL) != 1)
        return;
    for (size_t i = 0; i < len && i < HASH_SIZE / 2; i++)
        snprintf(out + 2 * i, 3, "%02x", md[i]);
}

static struct curl_slist *headers_of(const struct probe *p, bool with_object)
{
    char hex[HASH_SIZE], line[BUCKET_VALUE_SIZE + 64];
    struct curl_slist *all, *more;

    hash(p->object, with_object ? OBJECT_SIZE : 0, hex);
    snprintf(line, sizeof(line), "x-amz-content-sha256: %s", hex);
    all = curl_slist_append(NULL, line);
    if (all && p->keys.token[0]) {
        snprintf(line, sizeof(line), "x-amz-security-token: %s", p->keys.token);
        more = curl_slist_append(all, line);
        all = more ? more : all;
        explicit_bzero(line, sizeof(line));
    }
    return all;
}

static void set_options(CURL *curl, struct probe *p, const char *method, struct answer *a)
{
    char scheme[128], keys[sizeof(p->keys.key_id) + sizeof(p->keys.secret) + 2];

    snprintf(scheme, sizeof(scheme), "aws:amz:%s:s3", p->settings->archive.region);
    snprintf(keys, sizeof(keys), "%s:%s", p->keys.key_id, p->keys.secret);
    curl_easy_setopt(curl, CURLOPT_URL, p->url);
    curl_easy_setopt(curl, CURLOPT_AWS_SIGV4, scheme);
    curl_easy_setopt(curl, CURLOPT_USERPWD, keys);
    curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_MS);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, ANSWER_MS);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, a->error);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_bytes);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, a);
    curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(curl, CURLOPT_HEADERDATA, a);
    if (p->settings->archive.ca_file)
        curl_easy_setopt(curl, CURLOPT_CAINFO, p->settings->archive.ca_file);
    if (strcmp(method, "PUT") == 0) {
        p->sent = 0;
        curl_easy_setopt(curl, CURLOPT_UPLOAD, 1L);
        curl_easy_setopt(curl, CURLOPT_READFUNCTION, give_object);
        curl_easy_setopt(curl, CURLOPT_READDATA, p);
        curl_easy_setopt(curl, CURLOPT_INFILESIZE, (long)OBJECT_SIZE);
    } else {
        curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, method);
    }
    explicit_bzero(keys, sizeof(keys));
}

static void request(struct probe *p, const char *method, struct answer *a)
{
    CURL *curl = curl_easy_init();
    struct curl_slist *headers = headers_of(p, strcmp(method, "PUT") == 0);

    *a = (struct answer){.result = CURLE_FAILED_INIT, .date = -1};
    if (curl && headers) {
        set_options(curl, p, method, a);
        curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
        a->result = curl_easy_perform(curl);
        curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &a->status);
    }
    curl_slist_free_all(headers);
    curl_easy_cleanup(curl);
    a->bytes[MIN(a->n, (size_t)KEPT_BYTES)] = '\0';
    if (!a->error[0])
        snprintf(a->error, sizeof(a->error), "%s", curl_easy_strerror(a->result));
}

/* -- the server -------------------------------------------------------------------------------- */

static const char *what_to_do(CURLcode result)
{
    switch (result) {
    case CURLE_COULDNT_RESOLVE_HOST: return "look at [archive] endpoint and at this machine's DNS";
    case CURLE_COULDNT_CONNECT:
    case CURLE_OPERATION_TIMEDOUT:
        return "look at [archive] endpoint, at the server, and at firewalls";
    case CURLE_PEER_FAILED_VERIFICATION:
        return "[archive] endpoint has to be a name of its certificate, and ca_file to have its "
               "authority";
    case CURLE_SSL_CACERT_BADFILE:
        return "[archive] ca_file has to be a file of certificates in PEM";
    case CURLE_SSL_CONNECT_ERROR: return "it has to speak TLS 1.2 or newer";
    default: return "is it a server of S3?";
    }
}

static bool check_server(const struct probe *p, const struct answer *a, struct doctor_result *r)
{
    const char *endpoint = p->settings->archive.endpoint;

    if (access("/usr/bin/curl", X_OK) < 0) {
        doctor_say(r, DOCTOR_LIMITED, "/usr/bin/curl is not there, by which cay speaks to it");
        snprintf(r->package, sizeof(r->package), "curl");
        return false;
    }
    if (a->result != CURLE_OK) {
        doctor_say(r, DOCTOR_LIMITED, "%.70s: %.90s: %s", endpoint, a->error,
                   what_to_do(a->result));
        return false;
    }
    doctor_say(r, DOCTOR_OK, "%.150s answers", endpoint);
    return true;
}

/* -- an object --------------------------------------------------------------------------------- */

/* S3's word for what was wrong, or the status. */
static void read_code(const struct answer *a, char out[static 64])
{
    static const char begin[] = "<Code>";
    const char *code = strstr(a->bytes, begin);

    snprintf(out, 64, "%ld", a->status);
    if (code)
        snprintf(out, 64, "%ld %.*s", a->status, (int)MIN(strcspn(code + 6, "<"), 48u), code + 6);
    for (char *c = out; *c; c++)
        if (*c < ' ' || *c > '~')
            *c = '?';
}

static void say_refused(const struct probe *p, const char *method, const struct answer *a,
                        struct doctor_result *r)
{
    const char *right = strcmp(method, "PUT") == 0   ? "PutObject"
                        : strcmp(method, "GET") == 0 ? "GetObject"
                                                     : "DeleteObject";
    static const char *const keys[] = {"SignatureDoesNotMatch", "InvalidAccessKeyId",
                                       "InvalidToken", "ExpiredToken"};
    char code[64];

    read_code(a, code);
    for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
        if (strstr(code, keys[i])) {
            doctor_say(r, DOCTOR_LIMITED,
                       "%s: %s: the keys in %.100s are not, or no longer, the server's", method,
                       code, p->settings->archive.credentials);
            return;
        }
    if (strstr(code, "RequestTimeTooSkewed"))
        doctor_say(r, DOCTOR_LIMITED, "%s: %s: this machine's clock is wrong, or the server's",
                   method, code);
    else if (strstr(code, "NoSuchBucket"))
        doctor_say(r, DOCTOR_LIMITED, "%s: %s: make bucket %s, or look at [archive] bucket", method,
                   code, p->settings->archive.name);
    else if (a->status / 100 == 3 || strstr(code, "AuthorizationHeaderMalformed"))
        doctor_say(r, DOCTOR_LIMITED,
                   "%s: %s: the bucket is elsewhere: look at [archive] region and endpoint", method,
                   code);
    else if (a->status == 403 || a->status == 401)
        doctor_say(r, DOCTOR_LIMITED, "%s: %s: the key needs the right %s on " BUCKET_PREFIX "*",
                   method, code, right);
    else
        doctor_say(r, DOCTOR_LIMITED, "%s: the server answers %s: look at its log", method, code);
}

static bool is_done(const struct answer *a)
{
    return a->result == CURLE_OK && a->status >= 200 && a->status < 300;
}

static void say_failed(const struct probe *p, const char *method, const struct answer *a,
                       struct doctor_result *r)
{
    if (a->result == CURLE_OK)
        say_refused(p, method, a, r);
    else
        doctor_say(r, DOCTOR_LIMITED, "%s: %.120s: is it a server of S3?", method, a->error);
}

static void check_objects(struct probe *p, const struct answer *put, struct doctor_result *r)
{
    struct answer get, removed;

    if (is_done(put))
        request(p, "GET", &get);
    request(p, "DELETE", &removed);
    if (!is_done(put))
        say_failed(p, "PUT", put, r);
    else if (!is_done(&get))
        say_failed(p, "GET", &get, r);
    else if (get.n != OBJECT_SIZE || memcmp(get.bytes, p->object, OBJECT_SIZE) != 0)
        doctor_say(r, DOCTOR_LIMITED,
                   "GET: it is not what was put there: is %.100s a server of S3?",
                   p->settings->archive.endpoint);
    else if (!is_done(&removed))
        say_failed(p, "DELETE", &removed, r);
    else
        doctor_say(r, DOCTOR_OK, "one was put into bucket %s, read and removed",
                   p->settings->archive.name);
}

/* -- the clock --------------------------------------------------------------------------------- */

static void check_clock(const struct answer *a, struct doctor_result *r)
{
    long long ahead = (long long)time(NULL) - (long long)a->date;

    if (a->date < 0)
        doctor_say(r, DOCTOR_SKIPPED, "the server does not tell the time");
    else if (llabs(ahead) <= SKEW_S)
        doctor_say(r, DOCTOR_OK, "it differs from the server's by %lld s", llabs(ahead));
    else
        doctor_say(r, DOCTOR_LIMITED,
                   "this machine's is %lld s %s the server's, and S3 refuses requests at %d s: set "
                   "it by NTP (timedatectl set-ntp true)",
                   llabs(ahead), ahead > 0 ? "ahead of" : "behind", 900);
}

/* -- all --------------------------------------------------------------------------------------- */

size_t doctor_bucket(const struct settings *s, struct doctor_result *out)
{
    struct probe p = {.settings = s};
    struct answer put, removed;

    memset(out, 0, DOCTOR_BUCKET * sizeof(*out));
    if (!s->archive.name) {
        out[0].name = "bucket";
        doctor_say(&out[0], DOCTOR_SKIPPED, "archives stay on the state disk ([archive] bucket)");
        return 1;
    }
    for (size_t i = 0; i < DOCTOR_BUCKET; i++) {
        out[i].name = names[i];
        doctor_say(&out[i], DOCTOR_SKIPPED, "looked at where those before are as they have to be");
    }
    ids_random_text(p.object, OBJECT_SIZE);
    snprintf(p.url, sizeof(p.url), "%.255s/%.63s/" BUCKET_PREFIX "doctor-%s", s->archive.endpoint,
             s->archive.name, p.object);
    if (check_keys(&p, &out[KEYS])) {
        request(&p, "PUT", &put);
        if (check_server(&p, &put, &out[SERVER]))
            check_objects(&p, &put, &out[OBJECTS]);
        else if (p.sent > 0) /* it may be there all the same */
            request(&p, "DELETE", &removed);
        if (put.result == CURLE_OK)
            check_clock(&put, &out[CLOCK]);
    }
    explicit_bzero(&p.keys, sizeof(p.keys));
    return DOCTOR_BUCKET;
}
