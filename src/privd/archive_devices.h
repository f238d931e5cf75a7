#pragma once
/* Loop devices of sandboxes whose files lie on an archive: each has one for as long as it lives.
 * They are shared out by the accounts that the peer names (base/share.h), so that a tenant with
 * many archives leaves others theirs. Sandboxes of an earlier privd count still, as its records
 * say whose they are. */

#include "privd/create_request.h"

/* May a sandbox of that account begin with what is kept by that number? It may where that is no
 * archive. */
bool archive_devices_left(const struct privd *p, uint32_t kept, uint32_t account);

/* Whether that archive is in the bucket (bucket.h), so that no create may begin with it: why. */
bool archive_is_away(const struct privd *p, uint32_t kept, char why[static PRIVSEP_WHY_SIZE]);
