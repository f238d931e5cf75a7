#pragma once
/* The local CA: a server whose operator names no certificate gets one made here, by `cay up`
 * as root, signed by a CA of this machine alone. No daemon has its key: cay-keep and cayd
 * see the server's certificate and key only, as they see an operator's.
 *
 * Files in <state>/tls (0755, root's):
 *   ca.pem      the CA; what Node is told to trust beside its own roots
 *   ca.key      its key, 0600
 *   cert.pem    the server's certificate
 *   key.pem     its key, 0600
 *   bundle.pem  the system's roots and ca.pem, for programs that read one file instead of the
 *   system's
 *
 * The CA is limited to the names and addresses of this server by critical name constraints
 * (RFC 5280 section 4.2.1.10): a copy of its key impersonates no other host to a client that trusts
 * it. */

#include "base/err.h"
#include "base/settings.h"

#include <time.h>

#define SERVER_CA_DAYS      3650 /* ca.pem */
#define SERVER_CA_LEAF_DAYS 397  /* cert.pem */
#define SERVER_CA_RENEW     30   /* days before its end in which cert.pem is made anew */

#define SERVER_CA_PATH 512

struct server_ca_files {
    char dir[SERVER_CA_PATH], ca[SERVER_CA_PATH + 16], cert[SERVER_CA_PATH + 16],
        key[SERVER_CA_PATH + 16], bundle[SERVER_CA_PATH + 16];
};

/* Whether the server's certificate is to come from here: the operator names none, and TLS is not
 * off. */
bool server_ca_is_wanted(const struct settings *s);

/* The paths below a state directory. They need not exist. */
void server_ca_paths(const char *state_dir, struct server_ca_files *out);

/* Makes what is missing, ends soon, or does not fit the settings' names; *changed says whether
 * cert.pem is new. renew_only, for a server that runs: makes only a successor of a certificate that
 * fits and ends soon. Takes a lock, so that two calls do not mix. Needs root. */
enum err_code server_ca_ensure(const struct settings *s, bool renew_only,
                               struct server_ca_files *out, bool *changed, struct err *e);

/* When cert.pem ends. 0, or -errno (-EINVAL: it is no certificate). */
int server_ca_end(const struct server_ca_files *files, time_t *out);
