#pragma once
/* Requests of the peer: checked by the table (permit.h), then given to the file that does them. */

#include "contract/proto.h"

#include <stdbool.h>

void request_handle(void *privd, const struct privsep_msg *m);
void request_peer(void *privd, bool there);
