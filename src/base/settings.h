#pragma once
/* The settings of a cay server: one table, read by `cay up` (which starts cay-keep with them) and
 * by cayd and cay-egress, and printed as the example file, the help text and the man page
 * cay.conf(5).
 *
 * `cay up` reads the file and hands cayd the values that differ from the defaults as options
 * (--sandbox-memory=1G), because cayd's user need not be able to read the file. */

#include "base/config.h"
#include "base/host_dir.h"

#define SETTINGS_PATH      "/etc/cay/cay.conf"
#define SETTINGS_UID_RANGE INT64_C(65536) /* of one sandbox */

struct settings {
    /* [listen] */
    char *listen_address;
    int64_t listen_port;
    char *listen_tls_cert, *listen_tls_key; /* both NULL: none is named */
    char *listen_tls;
    bool listen_plain_outside;
    /* [state] */
    char *state_dir, *state_run, *state_log, *state_disk_backend;
    uint64_t state_disk_size_bytes;
    int64_t state_template_inodes;
    /* [sandbox] */
    uint64_t sandbox_memory_bytes, sandbox_disk_bytes;
    uint64_t sandbox_output_bytes;
    int64_t sandbox_cpu_milli, sandbox_pids, sandbox_open_files;
    uint64_t sandbox_default_ttl_ms, sandbox_max_ttl_ms, sandbox_agent_timeout_ms,
        sandbox_answer_timeout_ms;
    int64_t sandbox_first_uid, sandbox_max, sandbox_slots_max, sandbox_slots_ready;
    /* [pause] */
    uint64_t pause_archive_after_ms; /* 0: never */
    uint64_t pause_to_disk_after_ms; /* 0: never */
    int64_t pause_to_disk_below;     /* percent; 0: never */
    /* [archive] */
    struct {
        char *name, *endpoint, *region, *credentials, *ca_file; /* base/bucket.h has the rules */
    } archive;
    /* [snapshots] */
    char *snapshots_exchange_key; /* NULL: the server's own key */
    /* [server] */
    char *server_domain; /* cay.localhost:PORT where the file names none */
    char *server_user, *server_log_level;
    int64_t server_threads, server_max_connections, server_priority;
    /* [mcp] */
    uint64_t mcp_pause_ms, mcp_keep_ms;
    /* [host] */
    char *host_dirs[HOST_DIRS_MAX]; /* host_dir_parse reads each; NULL: there is none */
    /* [images] */
    char *images_registries, *images_hosts, *images_addresses; /* image/reference.h; NULL: none */
    /* [egress] */
    char *egress_user, *egress_dns_servers, *egress_upstream_proxy, *egress_key_file,
        *egress_ca_file, *egress_ceiling;
    bool egress_offline;
    int64_t egress_processes, egress_connections, egress_connections_per_second,
        egress_requests_per_second, egress_audit_files;
    uint64_t egress_connect_timeout_ms, egress_idle_timeout_ms, egress_audit_size_bytes;
    /* [traces] */
    char *traces_otlp_url; /* otlp_url_parse reads it; NULL: there are no traces */
};

/* Ends with an entry whose section is NULL. */
extern const struct config_key settings_keys[];

/* Defaults, then path (NULL: SETTINGS_PATH, which may be absent), then options from argv, as
 * config_load_args does it; afterwards what belongs together is checked, and server_domain and the
 * others are filled in. Release with settings_free, also after an error. */
enum err_code settings_load(struct settings *s, const char *path, int *argc, char **argv,
                            struct err *e);
void settings_free(struct settings *s);

/* The same for a daemon: from the file that --config names in argv (without it only options count),
 * and the level of the log from now on is set. Options that are no settings stay in argv, --config
 * too. */
enum err_code settings_load_daemon(struct settings *s, int *argc, char **argv, struct err *e);

/* For who starts a server: is the address one that may be listened on as it is set, and the domain
 * one that names can stand below? The error says what is wrong, why, and what to do instead. Not
 * part of settings_load, so that a server that runs with such settings can be asked and ended. */
enum err_code settings_check_start(const struct settings *s, struct err *e);

/* Does the port speak TLS, with the certificate that the settings name? Does it speak nothing
 * else? */
bool settings_has_tls(const struct settings *s);
bool settings_needs_tls(const struct settings *s);

/* Writes the value of a key in the file's syntax; false when it is the default (or absent). */
bool settings_differs(const struct settings *s, const struct config_key *key, char *out,
                      size_t size);
