#pragma once
/* cay-keep: starts the daemons, keeps the HTTP listener, starts them again. Conventions that the
 * others rely on:
 *
 *   cay-keep [options] [-- arguments for cayd]
 *     --listen-address=ADDR   127.0.0.1   (numeric IPv4 or IPv6; localhost: 127.0.0.1 and ::1, the
 *                             latter where the machine has IPv6)
 *     --listen-port=PORT      3000
 *     --state-dir=DIR         /var/lib/cay
 *     --run-dir=DIR           /run/cay
 *     --program-dir=DIR       where cayd, cay-privd, cay-job and cay-init are; default: where
 *                             cay-keep itself is
 *     --cayd=PATH --privd=PATH --job=PATH --agent=PATH    one of them from elsewhere
 *     --log-file=PATH         appended to, becomes standard error of all; default: keep's own
 *     --user=NAME             cay: whom cayd runs as
 *     --privd-arg=ARG         handed to cay-privd, may be repeated (--slots-ready=8 ...)
 *     --cayd-arg=ARG          handed to cayd, may be repeated; the same as after "--"
 *     --ready-timeout-ms=N    60000: how long --daemon waits
 *     --priority=N            0 to 20 (10): the daemons run at nice -N
 *     --egress-processes=N    0: processes of cay-egress, without which nothing leaves a sandbox
 *     --egress-user=NAME      cay-egress: whom they run as; not cayd's user
 *     --egress=PATH --egress-arg=ARG   as for the others
 *     --egress-key-file=PATH  opened as root at each start of cay-egress, and not read here:
 *                             cay-egress gets it as descriptor 5
 *     --tls-cert=PATH --tls-key=PATH   files that are opened as root at each start of cayd, and not
 *                             read here: cayd gets them as descriptors 5 and 6
 *     --daemon                goes to the background when all daemons are ready
 *
 *   Directories (made when absent): DIR(state) root 0711, state/cayd owned by the user 0700 (cayd's
 *   --state-dir), state/privd root 0700 (privd's), state/egress owned by cay-egress's user 0700;
 *   DIR(run) root 0755.
 *   Files: run/keep.pid (decimal and a newline, locked with flock while keep lives; readable by
 *     all), run/privd.sock, run/egress-I.sock (privd's channels), run/egress-I.ctl (cayd's to
 *     process I of cay-egress: made by keep, mode 0600, cayd's user's).
 *
 *   cayd is started as: cayd --listen-fd=3 [--listen-fd=7] --ready-fd=4 --privd=RUN/privd.sock
 *     --state-dir=STATE/cayd [--egress-dir=RUN --egress-processes=N] [--tls-cert-fd=5
 *     --tls-key-fd=6] [cayd arguments] with uid and gid of the user, no supplementary groups, no
 *     capabilities (bounding set empty), no_new_privs, umask 077, standard input /dev/null,
 *     descriptor 3 = the listener (a listening, non-blocking TCP socket that keep made and keeps),
 *     7 = the second one where there are two, the environment reduced to PATH and LANG.
 *   cay-privd is started as: cay-privd --ready-fd=4 --state-dir=STATE/privd --run-dir=RUN
 *     --agent=PATH --job=PATH --peer-uid=UID [--egress-uid=UID --egress-processes=N] [privd
 *     arguments]
 *   cay-egress is started as: cay-egress --listen-fd=3 --ready-fd=4 --privd=RUN/egress-I.sock
 *     --state-dir=STATE/egress --peer-uid=UID --shard=I/N [--seal-key-fd=5] [egress arguments], as
 *     cayd is but with its own user; descriptor 3 is the listener of run/egress-I.ctl.
 *   Readiness: each writes one byte KEEP_READY into its --ready-fd when it serves, then closes it;
 *     or KEEP_FAILED and one sentence without newline, and exits.
 *
 *   Signals to keep: SIGTERM or SIGINT: cayd is stopped (SIGTERM), then privd (SIGTERM: ends every
 *     sandbox, leaves nothing behind) and cay-egress, then keep exits 0. SIGHUP: opens the log file
 *     again, then cay-privd, cay-egress, then cayd are replaced by the binaries that are on disk
 *     now, the TLS files opened again (nothing is replaced if `cayd --check` refuses them);
 *     sandboxes live on (cay-privd gets SIGUSR1: exit, leave everything).
 *   Exit status: 0 stopped when asked (or, with --daemon, started); 1 failed, reason on standard
 *     error; 2 wrong options; 3 it runs already.
 *   When keep dies the daemons die with it (PR_SET_PDEATHSIG) and sandboxes live on: the next
 *   keep's privd finds them again. */

#define KEEP_EGRESS_CONTROL "%s/egress-%d.ctl" /* run directory, number of the process */

/* --listen-address for both loopback addresses. */
#define KEEP_LISTEN_LOCALHOST "localhost"

#define KEEP_LISTEN_FD    3
#define KEEP_READY_FD     4
#define KEEP_FILES_FD     5 /* the first of a daemon's files */
#define KEEP_SECOND_FD    7 /* a second listener: after the files */
#define KEEP_TLS_CERT_FD  KEEP_FILES_FD
#define KEEP_TLS_KEY_FD   (KEEP_FILES_FD + 1)
#define KEEP_SEAL_KEY_FD  KEEP_FILES_FD
#define KEEP_READY        'R'
#define KEEP_FAILED       'F'
#define KEEP_EXIT_FAILED  1
#define KEEP_EXIT_OPTIONS 2
#define KEEP_EXIT_RUNNING 3
#define KEEP_REASON_MAX   256 /* bytes of the sentence after KEEP_FAILED */

/* A daemon's side. Tells cay-keep KEEP_READY (why is ""), or KEEP_FAILED and why, and closes
 * *ready_fd; nothing where that is -1: no process waits, or it was told already. */
void keep_notify(int *ready_fd, char what, const char *why);

/* The number of a descriptor that cay-keep handed over, as its option names it. -EBADF: it is no
 * number, a standard stream, or not open. */
int keep_parse_fd(const char *text);
