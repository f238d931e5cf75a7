#pragma once
/* Daytona's secrets as clients see them: daytona_secret_list.c, for daytona_secret.c. */

#include "api/api.h"
#include "core/credential.h"

/* Of a credential's metadata, and what clients call it. */
#define DAYTONA_DESCRIPTION_KEY "description"

/* A secret as clients see it, without its value: a new object. NULL: memory is out. */
json_t *daytona_secret_json(const struct core_credential *k);

/* GET /api/secret, GET /api/secret/paginated */
void daytona_secret_list(struct api_call *call);
void daytona_secret_paginated(struct api_call *call);
