#pragma once
/* Signed addresses of ports (ingress.h) that their owner has ended before their time. They are
 * stored, so that one that was refused once is never let in again, until their time is over or
 * their sandbox is gone. */

#include "core/core.h"

#define CORE_SIGNED_ENDS_MAX 64u /* of one sandbox, whose time is not over */

/* signature: the text behind the sandbox's id in the address. ERR_NOT_FOUND: there is no such
 * sandbox of the tenant's, or it is not the signature of this port of it; ERR_EXHAUSTED beyond
 * CORE_SIGNED_ENDS_MAX. ERR_OK also for one that has ended. */
enum err_code core_signed_end(struct core *c, const char *tenant, const char *id, uint16_t port,
                              const char *signature, struct err *e);

/* signature: one that ingress_check_signed takes. True where the store cannot be read. */
bool core_signed_has_ended(struct core *c, const char *id, const char *signature);
