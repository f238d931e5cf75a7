#pragma once
/* Shared by the volumes' calls of E2B's and Daytona's API: both name a volume alone, of the default
 * size, and list all at once. */

#include "api/api.h"
#include "core/volume.h"

/* POST with a body {"name"}: made answers the call, arg is the call. */
void volume_call_create(struct api_call *call, core_volume_cb made);

/* Answers with an array of the tenant's volumes, each as json shows it (a new reference). */
void volume_call_list(struct api_call *call, json_t *(*json)(const struct volume *v));

/* DELETE with the id: removed, which volume_call_removed serves, answers the call, which is its
 * arg. */
void volume_call_remove(struct api_call *call, core_done_cb removed);

/* Answers a removal: with status, without a body, or as why says; missing answers where there is no
 * such volume. */
void volume_call_removed(struct api_call *call, const struct err *why, unsigned status,
                         void (*missing)(struct api_call *call));
