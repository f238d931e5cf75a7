#pragma once
/* Daytona's network settings: three fields of a sandbox, set when it is made and changed while it
 * runs. Pure; nothing blocks. JSON that is given out is the caller's.
 *
 *   networkBlockAll    true: nothing leaves
 *   networkAllowList   "208.80.154.232/32,192.168.1.0/24": these IPv4 ranges and nothing else
 *   domainAllowList    "example.com,*.example.org": these names and nothing else; the second is
 *                      example.org itself too
 *
 * At most one of them says something; with none the whole internet is open. Blanks around commas
 * and empty entries do not count. In an update what is absent stays, but for what another one
 * replaces, and "" clears a list.
 *
 * Sources: daytona.io/docs "Network Limits", as of August 2026 (mutual exclusion, limits, what an
 * update clears, "*." and the base domain); openapi-specs/api.json of github.com/daytona/clients at
 * d94a128 (UpdateSandboxNetworkSettings, CreateSandbox); the API of github.com/daytonaio/daytona at
 * b5a5d9e78 (v0.190.0: which texts are valid entries, the refusals' words). Two things are not said
 * there: what becomes of one list when the other is set later (here: it is replaced), and of a
 * block (it is lifted, as for networkAllowList). */

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>

#define DAYTONA_NETWORKS_MAX   10u  /* ranges of a networkAllowList */
#define DAYTONA_DOMAINS_MAX    100u /* names of a domainAllowList */
#define DAYTONA_LIST_MAX_BYTES 32768u

/* Under this name the settings are kept within a sandbox's network object, as long as they are what
 * was set last, with the secrets that are mounted (daytona_mount.h). Never shown as a part of
 * that. */
#define DAYTONA_NETWORK_KEY "daytona"

/* The settings in the body of a create: an object with at most one of the fields, as given.
 * ERR_INVALID with Daytona's words. */
enum err_code daytona_network_read(const json_t *body, json_t **settings, struct err *e);

/* The settings after an update. before: those of now, or NULL when something else set the network
 * last; then *settings is NULL too if the body only clears lists: nothing is to be changed. */
enum err_code daytona_network_update(const json_t *before, const json_t *body, json_t **settings,
                                     struct err *e);

/* Checked settings as a policy. NULL: memory is out. */
json_t *daytona_network_policy(const json_t *settings);

/* The settings in a network object (may be NULL), or NULL; borrowed. */
const json_t *daytona_network_of(const json_t *network);

/* The fields into what clients see. Lists only when they are what was set; networkBlockAll also
 * when the policy (NULL: nothing leaves) of another origin allows nothing. */
void daytona_network_show(const json_t *network, const json_t *policy, json_t *out);
