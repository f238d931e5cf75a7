#pragma once
/* The reader of requests to the object storage (storage.h). Pure. */

#include "api/daytona.h"
#include "core/build_storage.h"
#include "http/message.h"

#define STORAGE_OBJECT "/context.tar" /* behind TENANT/MD5 */

/* 0, or the status of a refusal with *why. */
int storage_read(const struct http_head *h, struct core_storage_call *out, const char **why);
