#pragma once
/* The client of a cay server: E2B's control plane, /cay/v1, and the agents behind the same port.
 *
 * struct api is one connection pool (a curl multi handle) with an address and a key. Calls block
 * until they are answered. Agent calls carry the routing headers of a sandbox and its access token.
 * Answers are bounded: API_MAX_ANSWER bytes of JSON. */

#include "base/buf.h"
#include "base/ids.h"
#include "cli/cli.h"

#include <curl/curl.h>

#define API_MAX_ANSWER (64u << 20)
#define API_AGENT_PORT "49983"

struct api {
    char *url, *key;
    /* the address for clients: url, or the one with TLS of the server on this machine */
    char *public_url;
    char *tls_dir; /* local CA of the server on this machine (server_ca.h), or NULL */
    char *ca_file; /* NULL: the system's */
    CURLM *multi;
    uint64_t answer_ms; /* for an answer of the control plane that takes its time; 0: the usual */
};

/* Finds address and key: options, environment, the running server's own files. Release with
 * api_close. ERR_UNAUTHENTICATED with a hint when there is no key. */
enum err_code api_open(struct api *a, const struct cli *c, struct err *e);
void api_close(struct api *a);

/* The server that `cay up` has just started on this machine, whatever the environment names. */
enum err_code api_open_local(struct api *a, const struct cli *c, struct err *e);

/* Which CAs are believed beside the system's own: --ca-file, CAY_CA_FILE, SSL_CERT_FILE; or
 * NULL. */
const char *api_find_ca_file(const struct cli *c);

/* The address alone; malloc'd. The key alone; malloc'd, or NULL and why. */
char *api_find_url(const struct cli *c);
char *api_find_key(const struct cli *c, struct err *e);

/* A call of the control plane. body is borrowed and may be NULL. out (may be NULL) gets a new
 * reference, NULL for an empty answer. Statuses from 400 on are errors with the server's text. */
enum err_code api_call(struct api *a, const char *method, const char *path, const json_t *body,
                       json_t **out, struct err *e);

/* The same with a header of the answer, malloc'd into *header or NULL. */
enum err_code api_call_header(struct api *a, const char *method, const char *path,
                              const json_t *body, json_t **out, const char *name, char **header,
                              struct err *e);

#define API_LIST_PAGES_MAX 1000

/* Appends what GET path lists to the array all, page by page (100 each, X-Next-Token), at most
 * pages_max of them: a server that never ends its list is not followed for ever. */
enum err_code api_list_all(struct api *a, const char *path, int pages_max, json_t *all,
                           struct err *e);

/* A sandbox as the agent calls address it. */
struct api_sandbox {
    char id[64];
    char token[256]; /* empty: none needed */
    char user[64];   /* empty: the template's own */
};

/* Looks the sandbox up for its token. An id may be given by its first characters when they are its
 * alone. */
enum err_code api_sandbox_open(struct api *a, const char *id, struct api_sandbox *out,
                               struct err *e);

/* The same for one whose commands, files or ports are wanted: a key that may only see is refused,
 * with what to do, before anything is sent to the sandbox. */
enum err_code api_sandbox_enter(struct api *a, const char *id, struct api_sandbox *out,
                                struct err *e);

/* A unary Connect call: method is "process.Process/List". */
enum err_code api_agent_call(struct api *a, const struct api_sandbox *s, const char *method,
                             const json_t *body, json_t **out, struct err *e);

/* Builds the easy handle of a call without running it: for streams and files; of an agent, or of
 * the control plane (with the key). The caller cleans it up with api_easy_free. headers may be
 * appended to until it runs. */
struct api_easy {
    CURL *curl;
    struct curl_slist *headers;
    char error[CURL_ERROR_SIZE];
};
enum err_code api_agent_easy(struct api *a, const struct api_sandbox *s, const char *path,
                             const char *content_type, struct api_easy *out, struct err *e);
enum err_code api_control_easy(struct api *a, const char *path, struct api_easy *out,
                               struct err *e);
int api_easy_header(struct api_easy *x, const char *fmt, ...) PRINTF(2, 3);
void api_easy_free(struct api_easy *x);

/* Adds the handle to the pool, runs it to its end and takes it out. */
CURLcode api_easy_run(struct api *a, struct api_easy *x);

/* Fills an error from a failed transfer or an error answer. text may be NULL. */
enum err_code api_curl_error(const struct api *a, const struct api_easy *x, CURLcode code,
                             struct err *e);
enum err_code api_status_error(long status, const char *body, struct err *e);
