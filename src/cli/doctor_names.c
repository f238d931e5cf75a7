/* Whether clients on this machine that know only the domain find the server: names below it, TLS,
 * trust. */
#include "cli/commands.h"
#include "cli/doctor.h"
#include "cli/server.h"
#include "cli/server_ca.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#define ANSWER_MS 5000L
#define DAY_S     86400

static void host_of(const struct settings *s, char out[256])
{
    snprintf(out, 256, "%.*s", (int)strcspn(s->server_domain, ":"), s->server_domain);
}

static bool is_below_localhost(const char *host)
{
    size_t len = strlen(host), end = strlen("localhost");

    return len >= end && strcmp(host + len - end, "localhost") == 0;
}

/* -- names ------------------------------------------------------------------------------------- */

static bool is_loopback(const struct addrinfo *a)
{
    if (a->ai_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)a->ai_addr)->sin_addr.s_addr) >> 24 == 127;
    return a->ai_family == AF_INET6 &&
           IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)a->ai_addr)->sin6_addr);
}

static void check_names(const struct settings *s, struct doctor_result *r)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    char host[256], name[300];
    bool here = true;
    int why;

    host_of(s, host);
    snprintf(name, sizeof(name), "3000-sandbox.%s", host);
    why = getaddrinfo(name, NULL, &hints, &found);
    for (const struct addrinfo *a = found; a; a = a->ai_next)
        here = here && is_loopback(a);
    if (why == 0)
        freeaddrinfo(found);
    if (why != 0 && is_below_localhost(host)) {
        doctor_say(
            r, DOCTOR_LIMITED,
            "names below %s are not found (%s): install libnss-myhostname, or use `cay env --urls`",
            host, gai_strerror(why));
        snprintf(r->package, sizeof(r->package), "libnss-myhostname");
    } else if (why != 0) {
        doctor_say(r, DOCTOR_LIMITED,
                   "names below %s are not found (%s): *.%s has to lead to this server", host,
                   gai_strerror(why), host);
    } else if (!here && is_below_localhost(host)) {
        doctor_say(r, DOCTOR_LIMITED,
                   "names below %s lead to another machine: look at the DNS servers", host);
    } else {
        doctor_say(r, DOCTOR_OK, "names below %s are found by programs that use glibc", host);
    }
}

/* -- TLS and trust ----------------------------------------------------------------------------- */

static size_t ignore(char *data, size_t size, size_t n, void *arg)
{
    return size * n;
}

/* One request by the address that SDKs make, with the authorities in ca_file (NULL: the
 * system's). */
static CURLcode ask(const struct settings *s, const char *ca_file, char why[CURL_ERROR_SIZE])
{
    CURL *curl = curl_easy_init();
    char url[320];
    CURLcode r;

    why[0] = '\0';
    if (!curl)
        return CURLE_FAILED_INIT;
    snprintf(url, sizeof(url), "https://api.%s/health", s->server_domain);
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, why);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, ignore);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, ANSWER_MS);
    if (ca_file)
        curl_easy_setopt(curl, CURLOPT_CAINFO, ca_file);
    r = curl_easy_perform(curl);
    curl_easy_cleanup(curl);
    if (!why[0])
        snprintf(why, CURL_ERROR_SIZE, "%s", curl_easy_strerror(r));
    return r;
}

static void check_tls(const struct settings *s, const struct server_ca_files *files, bool own,
                      struct doctor_result *r)
{
    char why[CURL_ERROR_SIZE], day[32] = "?";
    time_t end = 0;
    struct tm tm;

    if (ask(s, own ? files->ca : NULL, why) != CURLE_OK) {
        doctor_say(r, DOCTOR_LIMITED, "https://api.%.60s does not answer: %.80s", s->server_domain,
                   why);
        return;
    }
    if (!own || server_ca_end(files, &end) < 0) {
        doctor_say(r, DOCTOR_OK, "https://api.%.100s answers", s->server_domain);
        return;
    }
    if (gmtime_r(&end, &tm))
        strftime(day, sizeof(day), "%Y-%m-%d", &tm);
    if (end < time(NULL) + SERVER_CA_RENEW * DAY_S)
        doctor_say(r, DOCTOR_LIMITED, "the certificate ends on %s: `cay up` makes its successor",
                   day);
    else
        doctor_say(r, DOCTOR_OK, "https://api.%.80s answers; its certificate ends on %s",
                   s->server_domain, day);
}

/* curl reads none of these variables by itself in a library; the SDKs' runtimes do. */
static void check_trust(const struct settings *s, const struct server_ca_files *files, bool own,
                        struct doctor_result *r)
{
    const char *whole = getenv("SSL_CERT_FILE"), *node = getenv("NODE_EXTRA_CA_CERTS");
    char why[CURL_ERROR_SIZE];

    if (!own)
        doctor_say(r, DOCTOR_OK,
                   "the certificate is the operator's; clients need to know who signed it");
    else if (whole && node && ask(s, whole, why) == CURLE_OK && ask(s, node, why) == CURLE_OK)
        doctor_say(r, DOCTOR_OK,
                   "programs of this shell trust it (SSL_CERT_FILE, NODE_EXTRA_CA_CERTS)");
    else
        doctor_say(
            r, DOCTOR_LIMITED,
            "programs of this shell do not trust it: eval \"$(cay env)\", or give them %.64s",
            files->ca);
}

size_t doctor_names(const struct cli *c, struct doctor_result *out)
{
    const struct settings *s = &c->settings;
    struct server_ca_files files = {.dir = ""};
    bool own = server_ca_is_wanted(s);

    memset(out, 0, DOCTOR_NAMES * sizeof(*out));
    out[0].name = "names";
    out[1].name = "tls";
    out[2].name = "trust";
    check_names(s, &out[0]);
    server_ca_paths(s->state_dir, &files);
    if (strcmp(s->listen_tls, "off") == 0 || server_pid(s) <= 0) {
        const char *text = server_pid(s) > 0 ? "TLS is off: `cay env` gives plain addresses"
                                             : "looked at while a server runs";

        doctor_say(&out[1], server_pid(s) > 0 ? DOCTOR_LIMITED : DOCTOR_OK, "%s", text);
        doctor_say(&out[2], DOCTOR_OK, "%s", text);
        return DOCTOR_NAMES;
    }
    check_tls(s, &files, own, &out[1]);
    check_trust(s, &files, own, &out[2]);
    return DOCTOR_NAMES;
}
