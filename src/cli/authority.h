#pragma once
/* The local authority: a server whose operator names no certificate gets one made here, by `cay up` as
 * root, signed by an authority of this machine alone. No daemon has its key: cay-keep and cayd see the
 * server's certificate and key only, as they see an operator's.
 *
 * Files in <state>/tls (0755, root's):
 *   ca.pem      the authority; what Node is told to trust beside its own roots
 *   ca.key      its key, 0600
 *   cert.pem    the server's certificate
 *   key.pem     its key, 0600
 *   bundle.pem  the system's roots and ca.pem, for programs that read one file instead of the system's
 *
 * The authority is limited to the names and addresses of this server by critical name constraints (RFC
 * 5280 section 4.2.1.10): a copy of its key impersonates no other host to a client that trusts it. */

#include "base/err.h"
#include "base/settings.h"

#include <time.h>

#define AUTHORITY_DAYS      3650 /* ca.pem */
#define AUTHORITY_LEAF_DAYS 397  /* cert.pem */
#define AUTHORITY_RENEW     30   /* days before its end in which cert.pem is made anew */

#define AUTHORITY_PATH 512

struct authority_files {
    char dir[AUTHORITY_PATH], ca[AUTHORITY_PATH + 16], cert[AUTHORITY_PATH + 16],
        key[AUTHORITY_PATH + 16], bundle[AUTHORITY_PATH + 16];
};

/* Whether the server's certificate is to come from here: the operator names none, and TLS is not off. */
bool authority_is_wanted(const struct settings *s);

/* The paths below a state directory. They need not exist. */
void authority_paths(const char *state_dir, struct authority_files *out);

/* Makes what is missing, ends soon, or does not fit the settings' names; *changed says whether cert.pem is
 * new. renew_only, for a server that runs: makes only a successor of a certificate that fits and ends soon.
 * Takes a lock, so that two calls do not mix. Needs root. */
enum err_code authority_ensure(const struct settings *s, bool renew_only,
                               struct authority_files *out, bool *changed, struct err *e);

/* When cert.pem ends. 0, or -errno (-EINVAL: it is no certificate). */
int authority_end(const struct authority_files *files, time_t *out);
