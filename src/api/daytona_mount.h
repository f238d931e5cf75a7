#pragma once
/* "secrets" of a sandbox in Daytona's API: variables that have a secret's placeholder, and the
 * injections of its policy, by which cay-egress puts the value in its place on requests to the
 * secret's hosts. The mounted secrets are kept with Daytona's network settings (daytona_network.h),
 * as {"VARIABLE": "NAME"}, so that a change of these makes the same injections again. */

#include "api/api.h"

#define DAYTONA_PLACEHOLDER      "cay-secret:" /* and the name: egress/credential/placeholder.h */
#define DAYTONA_SECRETS_MAX      64u /* of a sandbox: no more than a policy's injections */
#define DAYTONA_SECRET_HOSTS_MAX 64u
#define DAYTONA_DESCRIPTION_MAX  1024u
#define DAYTONA_MOUNTED_KEY      "secrets" /* of the settings */

/* Is a credential with this binding one that this dialect has words for? */
bool daytona_is_secret(const json_t *bind);

/* [{"VARIABLE": "NAME"}] under "secrets" of a body as one object, the caller's; NULL where there
 * are none. ERR_INVALID. */
enum err_code daytona_mounted_read(const json_t *body, json_t **out, struct err *e);

/* A new object: env (may be NULL) and the placeholders of mounted. ERR_INVALID where both have a
 * variable. */
enum err_code daytona_mounted_env(const json_t *env, const json_t *mounted, json_t **out,
                                  struct err *e);

/* The injections of mounted (may be NULL) into policy. ERR_INVALID: there is no such secret, or it
 * has no hosts; where `lenient`, it is left out: a request that needs it is refused on its way. */
enum err_code daytona_mounted_inject(struct api_call *call, const json_t *mounted, bool lenient,
                                     json_t *policy, struct err *e);
