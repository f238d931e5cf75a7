/* Whether clients on this machine that know only the domain find the server: names below it, TLS,
 * trust; and whether the variables of this shell that SDKs read are this server's. */
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

#define DOMAIN_SIZE 256

/* The server that runs on this machine, or what the settings say of one. */
struct here {
    bool runs, answers;
    char domain[DOMAIN_SIZE]; /* HOST:PORT */
};

/* A server that was started with other options than this command's is found by its run
 * directory. */
static struct here find_server(const struct cli *c)
{
    struct here here = {.runs = server_pid(&c->settings) > 0};
    json_t *status = NULL;
    const char *domain = c->settings.server_domain;
    struct err ignored;
    struct api a;

    if (here.runs && api_open_local(&a, c, &ignored) == ERR_OK) {
        here.answers = api_call(&a, "GET", "/cay/v1/status", NULL, &status, &ignored) == ERR_OK;
        api_close(&a);
    }
    if (here.answers && *cli_text(status, "domain"))
        domain = cli_text(status, "domain");
    snprintf(here.domain, sizeof(here.domain), "%s", domain);
    json_decref(status);
    return here;
}

static void host_of(const struct here *here, char out[DOMAIN_SIZE])
{
    snprintf(out, DOMAIN_SIZE, "%.*s", (int)strcspn(here->domain, ":"), here->domain);
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

static void check_names(const struct here *here, struct doctor_result *r)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    char host[DOMAIN_SIZE], name[300];
    bool local = true;
    int why;

    host_of(here, host);
    snprintf(name, sizeof(name), "3000-sandbox.%s", host);
    why = getaddrinfo(name, NULL, &hints, &found);
    for (const struct addrinfo *a = found; a; a = a->ai_next)
        local = local && is_loopback(a);
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
    } else if (!local && is_below_localhost(host)) {
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

/* A request to the address that SDKs make, with the CAs in ca_file (NULL: the system's). */
static CURLcode fetch(const struct here *here, const char *ca_file, char why[CURL_ERROR_SIZE])
{
    CURL *curl = curl_easy_init();
    char url[320];
    CURLcode r;

    why[0] = '\0';
    if (!curl)
        return CURLE_FAILED_INIT;
    snprintf(url, sizeof(url), "https://api.%s/health", here->domain);
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

static void check_tls(const struct here *here, const struct server_ca_files *files, bool own,
                      struct doctor_result *r)
{
    char why[CURL_ERROR_SIZE], day[32] = "?";
    time_t end = 0;
    struct tm tm;

    if (fetch(here, own ? files->ca : NULL, why) != CURLE_OK) {
        doctor_say(r, DOCTOR_LIMITED, "https://api.%.60s does not answer: %.80s", here->domain,
                   why);
        return;
    }
    if (!own || server_ca_end(files, &end) < 0) {
        doctor_say(r, DOCTOR_OK, "https://api.%.100s answers", here->domain);
        return;
    }
    if (gmtime_r(&end, &tm))
        strftime(day, sizeof(day), "%Y-%m-%d", &tm);
    if (end < time(NULL) + SERVER_CA_RENEW * DAY_S)
        doctor_say(r, DOCTOR_LIMITED, "the certificate ends on %s: `cay up` makes its successor",
                   day);
    else
        doctor_say(r, DOCTOR_OK, "https://api.%.80s answers; its certificate ends on %s",
                   here->domain, day);
}

/* curl reads none of these variables by itself in a library; the SDKs' runtimes do. */
static void check_trust(const struct here *here, const struct server_ca_files *files, bool own,
                        struct doctor_result *r)
{
    const char *whole = getenv("SSL_CERT_FILE"), *node = getenv("NODE_EXTRA_CA_CERTS");
    char why[CURL_ERROR_SIZE];

    if (!own)
        doctor_say(r, DOCTOR_OK,
                   "the certificate is the operator's; clients need to know who signed it");
    else if (whole && node && fetch(here, whole, why) == CURLE_OK &&
             fetch(here, node, why) == CURLE_OK)
        doctor_say(r, DOCTOR_OK,
                   "programs of this shell trust it (SSL_CERT_FILE, NODE_EXTRA_CA_CERTS)");
    else
        doctor_say(
            r, DOCTOR_LIMITED,
            "programs of this shell do not trust it: eval \"$(cay env)\", or give them %.64s",
            files->ca);
}

/* -- what SDKs are told by this shell ---------------------------------------------------------- */

static void check_domain(const struct here *here, struct doctor_result *r)
{
    const char *given = getenv("E2B_DOMAIN");

    if (!given)
        doctor_say(r, DOCTOR_SKIPPED, "not set in this shell; SDKs need it: eval \"$(cay env)\"");
    else if (strcmp(given, here->domain) == 0)
        doctor_say(r, DOCTOR_OK, "is this server's");
    else
        doctor_say(r, DOCTOR_LIMITED,
                   "SDKs of this shell go to %.50s, this server is %.50s: eval \"$(cay env)\"",
                   given, here->domain);
}

static void check_key(const struct cli *c, const struct here *here, struct doctor_result *r)
{
    char *given = getenv("E2B_API_KEY");
    struct err e = {.code = ERR_OK};
    struct api a;

    if (!given) {
        doctor_say(r, DOCTOR_SKIPPED, "not set in this shell; SDKs need it: eval \"$(cay env)\"");
        return;
    }
    if (api_open_local(&a, c, &e) == ERR_OK) {
        explicit_bzero(a.key, strlen(a.key));
        free(a.key);
        a.key = strdup(given);
        if (a.key)
            (void)api_call(&a, "GET", "/cay/v1/status", NULL, NULL, &e);
        api_close(&a);
    }
    if (e.code == ERR_UNAUTHENTICATED)
        doctor_say(r, DOCTOR_LIMITED,
                   "this server does not know the key of this shell: eval \"$(cay env)\"");
    else if (e.code != ERR_OK)
        doctor_say(r, DOCTOR_SKIPPED, "the server was not asked: %.120s", e.text);
    else
        doctor_say(r, DOCTOR_OK, "this server knows it");
}

size_t doctor_names(const struct cli *c, struct doctor_result *out)
{
    static const char *const names[DOCTOR_NAMES] = {"names", "tls", "trust", "E2B_DOMAIN",
                                                    "E2B_API_KEY"};
    const struct settings *s = &c->settings;
    struct server_ca_files files = {.dir = ""};
    const struct here here = find_server(c);
    bool own = server_ca_is_wanted(s);

    memset(out, 0, DOCTOR_NAMES * sizeof(*out));
    for (size_t i = 0; i < DOCTOR_NAMES; i++) {
        out[i].name = names[i];
        doctor_say(&out[i], DOCTOR_SKIPPED, "looked at while a server runs");
    }
    check_names(&here, &out[0]);
    if (!here.runs)
        return DOCTOR_NAMES;
    server_ca_paths(s->state_dir, &files);
    if (strcmp(s->listen_tls, "off") == 0) {
        doctor_say(&out[1], DOCTOR_LIMITED, "TLS is off: `cay env` gives plain addresses");
        doctor_say(&out[2], DOCTOR_SKIPPED, "TLS is off");
    } else {
        check_tls(&here, &files, own, &out[1]);
        check_trust(&here, &files, own, &out[2]);
    }
    check_domain(&here, &out[3]);
    check_key(c, &here, &out[4]);
    return DOCTOR_NAMES;
}
