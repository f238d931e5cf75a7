#pragma once
/* E2B's control plane: its routes, and the pure parts of the translation (unit-tested on their
 * own). Source: github.com/e2b-dev/infra spec/openapi.yml and what the SDKs send. */

#include "api/api.h"

#define E2B_TIMEOUT_V1_MS   15000  /* POST /sandboxes without a timeout */
#define E2B_TIMEOUT_V2_MS   300000 /* POST /v2/sandboxes without one, and connect */
#define E2B_PAGE_MAX        100
#define E2B_PAGE_TOKEN_SIZE 128
#define E2B_INTERNET_KEY \
    "allow_internet_access"                 /* kept within the network object when it was given */
#define E2B_PUBLIC_KEY "allowPublicTraffic" /* of a network object, like the next */
#define E2B_MASK_KEY   "maskRequestHost"

#define E2B_RULE_NAME "e2b-rule-" /* begins the names of the credentials of a sandbox's own */

/* Names that its SDKs and the programs in sandboxes know: keys are "e2b_" and hex digits. */
extern const struct core_names e2b_names;

#define E2B_HIDDEN         "***" /* in place of a header's value */
#define E2B_RULE_NAME_SIZE 24

extern const struct api_route e2b_sandbox_routes[], e2b_template_routes[], e2b_secret_routes[],
    e2b_volume_routes[], e2b_other_routes[];

/* -- e2b_json.c: the shapes -------------------------------------------------------------------- */

/* New references; NULL only when memory is out. */
json_t *e2b_sandbox_json(struct api_call *call, const struct sandbox *s);
json_t *e2b_detail_json(struct api_call *call, const struct sandbox *s);
json_t *e2b_listed_json(struct api_call *call, const struct sandbox *s);

/* "running" or "paused": the states that clients know. */
const char *e2b_state_name(enum sandbox_state state);

/* 404 with the sandbox's id, as for every id that is not the caller's. */
void e2b_no_sandbox(struct api_call *call, const char *id);

/* Answers with why a call about the sandbox that the path names failed. */
void e2b_fail(struct api_call *call, const struct err *why);

/* Answers with out, which it takes over, or where why is not NULL with that. */
void e2b_reply(struct api_call *call, int status, json_t *out, const struct err *why);

/* A core_sandbox_cb for calls about one sandbox that answer nothing but success: arg is the
 * call. */
void e2b_sandbox_done(void *arg, const struct sandbox *s, const struct err *why);

/* -- e2b_page.c: cursors and the metadata filter (pure) ---------------------------------------- */

/* base64url of "<ms>__<id>__<asc|desc>". */
void e2b_page_token_make(int64_t started_ms, const char *id, bool ascending,
                         char out[static E2B_PAGE_TOKEN_SIZE]);

/* 0, or -EINVAL for anything that the other did not make for that order. */
int e2b_page_token_parse(const char *token, bool ascending, int64_t *started_ms,
                         char id[static IDS_SANDBOX_SIZE]);

/* The value of the metadata parameter after the query was decoded: unescaped as a whole, split on &
 * and =, then each key and value unescaped. A new object, or NULL with e. */
json_t *e2b_metadata_filter(const char *value, struct err *e);

/* -- e2b_network.c (pure) ---------------------------------------------------------------------- */

/* Checks a network object (create's, or update's when update). */
enum err_code e2b_network_check(const json_t *network, struct err *e);

/* The network object that core keeps: a copy with the E2B_INTERNET_KEY when it was given. *out may
 * become NULL: nothing was asked. */
enum err_code e2b_network_keep(const json_t *network, const json_t *body, json_t **out,
                               struct err *e);

/* The network object after an update: what governs egress is replaced by body's (absent is
 * cleared), what governs ingress stays. *out as above. */
enum err_code e2b_network_update(const json_t *before, const json_t *body, json_t **out,
                                 struct err *e);

/* The ingress part of a network object (may be NULL), for callers that set egress otherwise. */
enum err_code e2b_network_ingress(const json_t *before, json_t **out, struct err *e);

/* The headers that network's rules set, for core_credentials_seal: a new array. NULL: memory is
 * out. */
json_t *e2b_network_secrets(const json_t *network);

/* Values of those headers become E2B_HIDDEN. */
void e2b_network_hide(json_t *network);

/* A kept network object (NULL: none) as what core reads of it, beside the object itself, which
 * stays unchanged after this. *out: a new reference, or NULL for none. */
enum err_code e2b_network_setting(json_t *network, struct network **out, struct err *e);

/* A kept network object (may be NULL) as a policy, what is to be sealed for it, and a setting;
 * hides the values to be sealed in network. After a failure the outputs that were set are the
 * caller's too. */
enum err_code e2b_network_split(json_t *network, bool internet, struct network **setting,
                                json_t **policy, json_t **secrets, struct err *e);

/* The form for clients: without passwords and our own key. NULL reference for none. */
json_t *e2b_network_shown(const json_t *network);

/* -- e2b_policy.c (pure) ----------------------------------------------------------------------- */

/* Translates a checked network object (NULL: none) to a policy. NULL: memory is out. */
json_t *e2b_policy(const json_t *network, bool allow_internet);

/* The credential of the i-th domain of the rules. */
void e2b_rule_name(unsigned i, char out[static E2B_RULE_NAME_SIZE]);

/* -- e2b_create.c ------------------------------------------------------------------------------ */

/* "timeout" of a body, in s, as ms; initial_ms where there is none. */
enum err_code e2b_read_timeout(const json_t *body, int64_t initial_ms, int64_t *out_ms,
                               struct err *e);

/* ERR_INVALID for a longer life than this server allows. */
enum err_code e2b_check_max(struct api_call *call, int64_t ttl_ms, struct err *e);

/* -- handlers that other tables name ----------------------------------------------------------- */

void e2b_sandbox_create_v1(struct api_call *call);
void e2b_sandbox_create_v2(struct api_call *call);
void e2b_sandbox_list_v1(struct api_call *call);
void e2b_sandbox_list_v2(struct api_call *call);
void e2b_sandbox_metrics(struct api_call *call);
void e2b_sandboxes_metrics(struct api_call *call);
void e2b_sandbox_logs_v1(struct api_call *call);
void e2b_sandbox_logs_v2(struct api_call *call);
void e2b_sandbox_network(struct api_call *call);
void e2b_sandbox_fork(struct api_call *call);
void e2b_snapshot_create(struct api_call *call);
struct snapshot;
json_t *e2b_snapshot_json(const struct snapshot *s); /* a new reference */
void e2b_snapshot_list(struct api_call *call);
void e2b_sandbox_pause(struct api_call *call);
void e2b_sandbox_resume(struct api_call *call);
/* /cay/v1's, which refuse keys that they do not know. */
void e2b_sandbox_pause_cay(struct api_call *call);
void e2b_sandbox_resume_cay(struct api_call *call);
void e2b_sandbox_create_cay(struct api_call *call); /* /cay/v1: "policy" instead of "network" */
