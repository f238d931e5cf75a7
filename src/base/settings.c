/* The table of settings (names, types, bounds, defaults), and what one value cannot say of another:
 * settings_load reads the file and then the options, checks each value by its row and all together
 * by check(), so that a server which would contradict itself does not start. Called once, at the
 * start of `cay up`, cayd and cay-egress. */

#include "base/settings.h"

#include "base/bucket.h"
#include "base/limit_range.h"
#include "base/log.h"
#include "base/otlp_url.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MIB (INT64_C(1) << 20)
#define GIB (INT64_C(1) << 30)
#define TIB (INT64_C(1) << 40)

#define SECOND INT64_C(1000)
#define DAY    (86400 * SECOND)

#define FIELD(name) offsetof(struct settings, name)

#define NEXT_HOST_DIR(n)                                                                    \
    {                                                                                       \
        "host", "dir_" #n, CONFIG_STRING, FIELD(host_dirs[n - 1]), NULL, 0, 0, "DIRECTORY", \
            "Another one, likewise."                                                        \
    }

const struct config_key settings_keys[] = {
    {"listen", "address", CONFIG_STRING, FIELD(listen_address), "localhost", 0, 0, "ADDRESS",
     "Numeric IPv4 or IPv6 address to listen on, or localhost for 127.0.0.1 and ::1. Clients that "
     "reach it and have a key can run programs in sandboxes: other than a loopback address needs "
     "tls = only (or plain_outside)."},
    {"listen", "port", CONFIG_INT, FIELD(listen_port), "3000", 1, 65535, "PORT",
     "TCP port of the control plane and of all sandbox traffic."},
    {"listen", "tls_cert", CONFIG_STRING, FIELD(listen_tls_cert), NULL, 0, 0, "FILE",
     "Certificate chain in PEM, the server's own first, for DOMAIN and *.DOMAIN (see server "
     "domain). It is read again when cay-keep gets SIGHUP. When absent, `cay up` makes a "
     "certificate and a local authority that signs it (see docs/compatibility.md)."},
    {"listen", "tls_key", CONFIG_STRING, FIELD(listen_tls_key), NULL, 0, 0, "FILE",
     "Its private key in PEM, without passphrase. Root opens it; no other user needs to be able to "
     "read it."},
    {"listen", "tls", CONFIG_STRING, FIELD(listen_tls), "optional", 0, 0, "MODE",
     "optional speaks TLS and plain HTTP on the same port, only refuses plain HTTP, off speaks no "
     "TLS and uses no certificate. Other than a loopback address needs only."},
    {"listen", "plain_outside", CONFIG_BOOL, FIELD(listen_plain_outside), "false", 0, 0, "",
     "Plain HTTP at an address that other machines can reach, too: a machine on the way there "
     "reads and changes everything, keys included. For a network that is trusted, or where a proxy "
     "in "
     "front speaks TLS."},

    {"state", "dir", CONFIG_STRING, FIELD(state_dir), "/var/lib/cay", 0, 0, "DIR",
     "Where everything that survives a restart is kept: database, keys, templates, the disk of the "
     "sandboxes."},
    {"state", "run", CONFIG_STRING, FIELD(state_run), "/run/cay", 0, 0, "DIR",
     "Where the sockets and records of the running server are kept."},
    {"state", "log", CONFIG_STRING, FIELD(state_log), "/var/log/cay/cay.log", 0, 0, "FILE",
     "Where the daemons log to."},
    {"state", "disk_backend", CONFIG_STRING, FIELD(state_disk_backend), "auto", 0, 0, "NAME",
     "What the files of sandboxes are kept on: btrfs, memory, or auto for btrfs where it works."},
    {"state", "disk_size", CONFIG_BYTES, FIELD(state_disk_size_bytes), "32G", 256 * MIB, 64 * TIB,
     "BYTES",
     "Size of the sparse image that holds the files of sandboxes, where DIR is not on btrfs; space "
     "is taken only as it is used."},
    {"state", "template_inodes", CONFIG_INT, FIELD(state_template_inodes), "1048576", 0, 4194304,
     "N",
     "Where inode numbers of templates begin on btrfs, so that no file of a template has that of a "
     "file that a sandbox made, as long as it makes fewer. The first template that is built or "
     "imported on a state disk takes about 20 s longer for 1048576; older ones keep their "
     "numbers until they are made anew. 0: anywhere."},

    {"sandbox", "memory", CONFIG_BYTES, FIELD(sandbox_memory_bytes), "1G", LIMIT_MEMORY_MIN,
     LIMIT_MEMORY_MAX, "BYTES", "Memory of a sandbox, page cache of its files included."},
    {"sandbox", "cpu_milli", CONFIG_INT, FIELD(sandbox_cpu_milli), "2000", LIMIT_CPU_MIN,
     LIMIT_CPU_MAX, "N", "Processor time of a sandbox in thousandths of a core."},
    {"sandbox", "disk", CONFIG_BYTES, FIELD(sandbox_disk_bytes), "10G", LIMIT_DISK_MIN,
     LIMIT_DISK_MAX, "BYTES", "What a sandbox may write to its disk, on top of its template."},
    {"sandbox", "pids", CONFIG_INT, FIELD(sandbox_pids), "1024", LIMIT_PIDS_MIN, LIMIT_PIDS_MAX,
     "N", "Processes and threads of a sandbox."},
    {"sandbox", "open_files", CONFIG_INT, FIELD(sandbox_open_files), "4096", 64, 1048576, "N",
     "Open files of each process in a sandbox."},
    {"sandbox", "output", CONFIG_BYTES, FIELD(sandbox_output_bytes), "64M", MIB / 16, TIB, "BYTES",
     "What of the output of a sandbox's commands is carried in a second, with as much at once; "
     "programs that write more wait. Contents of files and of ports are not counted."},
    {"sandbox", "default_ttl", CONFIG_TIME_MS, FIELD(sandbox_default_ttl_ms), "5m", SECOND,
     3650 * DAY, "TIME", "How long a sandbox lives when its client says nothing."},
    {"sandbox", "max_ttl", CONFIG_TIME_MS, FIELD(sandbox_max_ttl_ms), "24h", SECOND, 3650 * DAY,
     "TIME", "How long a sandbox may live at most, counted from the last time it was set."},
    {"sandbox", "agent_timeout", CONFIG_TIME_MS, FIELD(sandbox_agent_timeout_ms), "10s", SECOND,
     600 * SECOND, "TIME", "How long a new sandbox may take to answer before it is given up."},
    {"sandbox", "answer_timeout", CONFIG_TIME_MS, FIELD(sandbox_answer_timeout_ms), "45s", SECOND,
     3600 * SECOND, "TIME",
     "How long the agent of a running sandbox may take to begin its answer to a call, before the "
     "client is told that it does not answer; 20 times that for calls that remove, move or join "
     "files."},
    {"sandbox", "max", CONFIG_INT, FIELD(sandbox_max), "1000", 1, 16384, "N",
     "Sandboxes at a time, over all keys."},
    {"sandbox", "slots_max", CONFIG_INT, FIELD(sandbox_slots_max), "1024", 1, 16384, "N",
     "User id ranges of 65,536 to take from the host for sandboxes, beginning at first_uid."},
    {"sandbox", "first_uid", CONFIG_INT, FIELD(sandbox_first_uid), "1006632960", SETTINGS_UID_RANGE,
     UINT32_MAX, "UID",
     "First of these ids, a multiple of 65,536. Two servers on one machine need ranges that do not "
     "meet, which a start checks, and none of them may be a user's of the machine or of "
     "/etc/subuid."},
    {"sandbox", "slots_ready", CONFIG_INT, FIELD(sandbox_slots_ready), "8", 0, 256, "N",
     "Sandboxes to keep started before they are asked for, of all templates together, in the "
     "shares in which they are asked for; fewer where memory is short. 0: none."},

    {"server", "domain", CONFIG_STRING, FIELD(server_domain), NULL, 0, 0, "DOMAIN",
     "Domain of the sandboxes' host names, PORT-ID.DOMAIN, with its port if that is not the "
     "protocol's own. When absent it is cay.localhost and the port that is listened on."},
    {"server", "user", CONFIG_STRING, FIELD(server_user), "cay", 0, 0, "NAME",
     "User that the HTTP side runs as; made by `cay up` when it is absent."},
    {"server", "threads", CONFIG_INT, FIELD(server_threads), "0", 0, 256, "N",
     "Threads that parse and relay; 0 takes one less than there are cores, at least one."},
    {"server", "max_connections", CONFIG_INT, FIELD(server_max_connections), "4096", 16, 1000000,
     "N",
     "Client connections at a time. A quarter is for requests whose tenant is not known yet; of "
     "the "
     "rest one tenant's requests, streams and terminals have at most half, one sandbox's a third."},
    {"server", "priority", CONFIG_INT, FIELD(server_priority), "10", 0, 20, "N",
     "How far before other programs of the host the daemons are scheduled, as a nice value below "
     "0, "
     "so that busy sandboxes delay requests less; 0 changes nothing. Programs in sandboxes do not "
     "have it."},
    {"server", "log_level", CONFIG_STRING, FIELD(server_log_level), "info", 0, 0, "LEVEL",
     "The least level that is logged: error, warn, info or debug."},

    {"pause", "archive_after", CONFIG_TIME_MS, FIELD(pause_archive_after_ms), "0", 0, 3650 * DAY,
     "TIME",
     "Files of a sandbox that are kept for so long become one compressed file; 0: none do."},
    {"pause", "to_disk_after", CONFIG_TIME_MS, FIELD(pause_to_disk_after_ms), "0", 0, 3650 * DAY,
     "TIME",
     "Memory of a sandbox that is frozen for so long goes to the disk, unless its create says "
     "another time; 0: none does."},
    {"pause", "to_disk_below", CONFIG_INT, FIELD(pause_to_disk_below), "0", 0, 90, "PERCENT",
     "While less of the host's memory is available, that of the sandbox that is frozen longest "
     "goes to the disk; 0: none does."},

    {"archive", "bucket", CONFIG_STRING, FIELD(archive.name), NULL, 0, 0, "NAME",
     "Bucket of an S3 server that archives of kept files go to, so that the state disk has their "
     "room again (docs/archive.md). When absent, they stay on the state disk."},
    {"archive", "endpoint", CONFIG_STRING, FIELD(archive.endpoint), NULL, 0, 0, "URL",
     "Where that server is: https://HOST or https://HOST:PORT; http:// to a loopback address "
     "alone. The bucket's name is the first part of the path there."},
    {"archive", "region", CONFIG_STRING, FIELD(archive.region), "us-east-1", 0, 0, "NAME",
     "Region of the bucket, which requests are signed with."},
    {"archive", "credentials", CONFIG_STRING, FIELD(archive.credentials), NULL, 0, 0, "FILE",
     "File for root alone to read, with aws_access_key_id, aws_secret_access_key and, where it is "
     "needed, aws_session_token, each as NAME = VALUE on a line. It is read for each request."},
    {"archive", "ca_file", CONFIG_STRING, FIELD(archive.ca_file), NULL, 0, 0, "FILE",
     "PEM file of certificate authorities to trust for that server, instead of the system's."},

    {"snapshots", "exchange_key", CONFIG_STRING, FIELD(snapshots_exchange_key), NULL, 0, 0, "FILE",
     "File for root alone to read, with 32 random bytes or 64 hex digits (openssl rand -hex 32): "
     "the key that exported snapshots are signed with. Servers that have the same import each "
     "other's (docs/snapshots.md). When absent, a server imports its own alone."},

    {"mcp", "pause", CONFIG_TIME_MS, FIELD(mcp_pause_ms), "10m", SECOND, 3650 * DAY, "TIME",
     "How long nothing is asked of a sandbox that was made by the Model Context Protocol before it "
     "is paused."},
    {"mcp", "keep", CONFIG_TIME_MS, FIELD(mcp_keep_ms), "24h", SECOND, 3650 * DAY, "TIME",
     "How long such a sandbox stays paused before it is removed, and an unused session is kept."},

    {"host", "dir_1", CONFIG_STRING, FIELD(host_dirs[0]), NULL, 0, 0, "DIRECTORY",
     "A directory of this host that sandboxes may have to read, as NAME:PATH, or as "
     "NAME:PATH:TENANT,TENANT for these tenants alone: what all users of the host may read of it, "
     "without what is mounted below it (docs/volumes.md). It is opened at the start of cay-privd."},
    NEXT_HOST_DIR(2),
    NEXT_HOST_DIR(3),
    NEXT_HOST_DIR(4),
    NEXT_HOST_DIR(5),
    NEXT_HOST_DIR(6),
    NEXT_HOST_DIR(7),
    NEXT_HOST_DIR(8),

    {"images", "registries", CONFIG_STRING, FIELD(images_registries), NULL, 0, 0, "LIST",
     "Registries that tenants may take images from for their own templates, separated by commas, "
     "as docker.io/library, ghcr.io, registry.example.com:5000/team: hosts, with the beginning of "
     "repositories' names or without (docs/templates.md). When absent, none."},
    {"images", "hosts", CONFIG_STRING, FIELD(images_hosts), NULL, 0, 0, "LIST",
     "Other hosts that these registries send their clients to for tokens and layers, separated by "
     "commas, as pkg-containers.githubusercontent.com. No other host is reached."},
    {"images", "addresses", CONFIG_STRING, FIELD(images_addresses), NULL, 0, 0, "LIST",
     "Private addresses or ranges that these registries and hosts may have, separated by commas, "
     "as "
     "10.1.0.0/16; [egress] ceiling has to be allow for them. When absent, none."},

    {"egress", "user", CONFIG_STRING, FIELD(egress_user), "cay-egress", 0, 0, "NAME",
     "User that the way out of sandboxes runs as; made by `cay up` when it is absent."},
    {"egress", "processes", CONFIG_INT, FIELD(egress_processes), "1", 1, 16, "N",
     "Processes that carry the traffic of sandboxes, each that of its share of them."},
    {"egress", "dns_servers", CONFIG_STRING, FIELD(egress_dns_servers), NULL, 0, 0, "LIST",
     "Addresses of the DNS servers to ask for names that sandboxes may reach, separated by commas, "
     "as 192.0.2.1,[2001:db8::1]:53. When absent, those of /etc/resolv.conf."},
    {"egress", "upstream_proxy", CONFIG_STRING, FIELD(egress_upstream_proxy), NULL, 0, 0, "URL",
     "Proxy that all traffic of sandboxes goes through: socks5://ADDRESS:PORT, told addresses that "
     "were checked here; socks5h:// or http://, told names, which it resolves itself."},
    {"egress", "ceiling", CONFIG_STRING, FIELD(egress_ceiling), "public", 0, 0, "NAME",
     "What no sandbox's policy goes beyond: deny, public (the internet without private and local "
     "addresses), or allow (those too; never the host itself, nor metadata services)."},
    {"egress", "offline", CONFIG_BOOL, FIELD(egress_offline), "false", 0, 0, "",
     "Nothing leaves any sandbox, whatever its policy says."},
    {"egress", "connections", CONFIG_INT, FIELD(egress_connections), "1024", 1, 16384, "N",
     "Connections that a sandbox may have open to the outside at a time."},
    {"egress", "connections_per_second", CONFIG_INT, FIELD(egress_connections_per_second), "500", 1,
     100000, "N", "Connections that a sandbox may begin in a second; more wait."},
    {"egress", "requests_per_second", CONFIG_INT, FIELD(egress_requests_per_second), "2000", 1,
     1000000, "N", "HTTP requests of a sandbox that are read and forwarded in a second."},
    {"egress", "connect_timeout", CONFIG_TIME_MS, FIELD(egress_connect_timeout_ms), "10s", SECOND,
     300 * SECOND, "TIME",
     "How long DNS may take to answer for a sandbox, and how long a connection may take after "
     "that."},
    {"egress", "idle_timeout", CONFIG_TIME_MS, FIELD(egress_idle_timeout_ms), "1h", 10 * SECOND,
     30 * DAY, "TIME", "How long a connection to the outside may be silent before it is ended."},
    {"egress", "audit_size", CONFIG_BYTES, FIELD(egress_audit_size_bytes), "64M", MIB, TIB, "BYTES",
     "Size of a file of the audit log before the next one is begun."},
    {"egress", "audit_files", CONFIG_INT, FIELD(egress_audit_files), "16", 1, 1000, "N",
     "Full files of the audit log that are kept, in bytes of all tenants together."},
    {"egress", "ca_file", CONFIG_STRING, FIELD(egress_ca_file), NULL, 0, 0, "FILE",
     "PEM file of certificate authorities to trust for servers that sandboxes speak to through "
     "interception, besides the system's; cay-egress's user must be able to read it. Sandboxes "
     "trust them, too: what a company's TLS proxy needs."},
    {"egress", "key_file", CONFIG_STRING, FIELD(egress_key_file), NULL, 0, 0, "FILE",
     "File with the 32 bytes that credentials are sealed with, for root alone to read. When "
     "absent, "
     "one is made in the state directory."},

    {"traces", "otlp_url", CONFIG_STRING, FIELD(traces_otlp_url), NULL, 0, 0, "URL",
     "Collector that traces of sandboxes' creates, pauses, resumes, snapshots and forks are sent "
     "to, by OTLP over HTTP with JSON (docs/traces.md): http://ADDRESS:PORT/PATH, with ADDRESS in "
     "digits or localhost; PORT is 4318 and PATH /v1/traces where they are absent. No sandbox "
     "reaches that address. When absent, there are no traces."},
    {NULL},
};

static enum err_code check_absolute(const char *key, const char *path, struct err *e)
{
    if (path && path[0] == '/')
        return ERR_OK;
    return err_set(e, ERR_INVALID, "[state] %s: found \"%.100s\", allowed is an absolute path", key,
                   path ? path : "");
}

bool settings_has_tls(const struct settings *s)
{
    return s->listen_tls_cert && strcmp(s->listen_tls, "off") != 0;
}

bool settings_needs_tls(const struct settings *s)
{
    return settings_has_tls(s) && strcmp(s->listen_tls, "only") == 0;
}

static enum err_code check_tls(const struct settings *s, struct err *e)
{
    const char *cert = s->listen_tls_cert, *key = s->listen_tls_key;

    if (strcmp(s->listen_tls, "optional") != 0 && strcmp(s->listen_tls, "only") != 0 &&
        strcmp(s->listen_tls, "off") != 0)
        return err_set(e, ERR_INVALID,
                       "[listen] tls: found \"%.32s\", allowed are optional, only and off",
                       s->listen_tls);
    if (!cert != !key)
        return err_set(e, ERR_INVALID,
                       "[listen] tls_cert and tls_key are needed together: %s is missing",
                       cert ? "tls_key" : "tls_cert");
    if (cert && (cert[0] != '/' || key[0] != '/'))
        return err_set(e, ERR_INVALID, "[listen] tls_cert and tls_key have to be absolute paths");
    return ERR_OK;
}

static enum err_code check_host_dirs(const struct settings *s, struct err *e)
{
    struct host_dir all[HOST_DIRS_MAX] = {{{0}}};

    for (size_t i = 0; i < HOST_DIRS_MAX; i++) {
        const char *wrong = s->host_dirs[i] ? host_dir_parse(s->host_dirs[i], &all[i]) : NULL;

        if (wrong)
            return err_set(e, ERR_INVALID, "[host] dir_%zu: found \"%.100s\": %s", i + 1,
                           s->host_dirs[i], wrong);
        for (size_t j = 0; all[i].name[0] && j < i; j++)
            if (strcmp(all[i].name, all[j].name) == 0)
                return err_set(e, ERR_INVALID, "[host] dir_%zu: dir_%zu has the name %s already",
                               i + 1, j + 1, all[i].name);
    }
    return ERR_OK;
}

static enum err_code check_traces(const struct settings *s, struct err *e)
{
    struct otlp_url ignored;
    const char *wrong = s->traces_otlp_url ? otlp_url_parse(s->traces_otlp_url, &ignored) : NULL;

    if (!wrong)
        return ERR_OK;
    return err_set(e, ERR_INVALID, "[traces] otlp_url: found \"%.100s\", %s", s->traces_otlp_url,
                   wrong);
}

static enum err_code check_bucket(const struct settings *s, struct err *e)
{
    const struct bucket b = {.name = s->archive.name,
                             .endpoint = s->archive.endpoint,
                             .region = s->archive.region,
                             .credentials = s->archive.credentials,
                             .ca_file = s->archive.ca_file};
    const char *key, *wrong = bucket_check(&b, &key);

    return wrong ? err_set(e, ERR_INVALID, "[archive] %s: %s", key, wrong) : ERR_OK;
}

static enum err_code check_exchange(const struct settings *s, struct err *e)
{
    const char *path = s->snapshots_exchange_key;

    return !path || path[0] == '/' ? ERR_OK
                                   : err_set(e, ERR_INVALID,
                                             "[snapshots] exchange_key: found \"%.100s\", allowed "
                                             "is an absolute path",
                                             path);
}

static enum err_code check(const struct settings *s, struct err *e)
{
    static const char *const backends[] = {"auto", "btrfs", "memory"};
    enum log_level level;
    bool known = false;

    if (check_absolute("dir", s->state_dir, e) || check_absolute("run", s->state_run, e) ||
        check_absolute("log", s->state_log, e))
        return e->code;
    for (size_t i = 0; i < ARRAY_SIZE(backends); i++)
        known |= strcmp(s->state_disk_backend, backends[i]) == 0;
    if (!known)
        return err_set(e, ERR_INVALID,
                       "[state] disk_backend: found \"%.32s\", allowed are auto, "
                       "btrfs and memory",
                       s->state_disk_backend);
    if (check_tls(s, e) != ERR_OK || check_host_dirs(s, e) != ERR_OK ||
        check_traces(s, e) != ERR_OK || check_bucket(s, e) != ERR_OK ||
        check_exchange(s, e) != ERR_OK)
        return e->code;
    if (strcmp(s->egress_ceiling, "deny") != 0 && strcmp(s->egress_ceiling, "public") != 0 &&
        strcmp(s->egress_ceiling, "allow") != 0)
        return err_set(e, ERR_INVALID,
                       "[egress] ceiling: found \"%.32s\", allowed are deny, public and allow",
                       s->egress_ceiling);
    if (log_level_from_name(s->server_log_level, &level) < 0)
        return err_set(e, ERR_INVALID,
                       "[server] log_level: found \"%.32s\", allowed are error, "
                       "warn, info and debug",
                       s->server_log_level);
    if (s->sandbox_default_ttl_ms > s->sandbox_max_ttl_ms)
        return err_set(e, ERR_INVALID, "[sandbox] default_ttl is more than max_ttl");
    return ERR_OK;
}

static enum err_code load(struct settings *s, const char *path, int *argc, char **argv,
                          struct err *e)
{
    enum err_code code = config_defaults(settings_keys, s, e);

    if (code != ERR_OK)
        return code;
    code = config_load_file(settings_keys, path ? path : SETTINGS_PATH, s, e);
    if (code != ERR_OK && (path || code != ERR_NOT_FOUND))
        return code;
    code = config_load_args(settings_keys, argc, argv, s, e);
    return code == ERR_OK ? check(s, e) : code;
}

enum err_code settings_load(struct settings *s, const char *path, int *argc, char **argv,
                            struct err *e)
{
    struct err scratch = {.code = ERR_OK};
    enum err_code code;

    e = e ? e : &scratch;
    memset(s, 0, sizeof(*s));
    code = load(s, path, argc, argv, e);
    if (code != ERR_OK || s->server_domain)
        return code;
    if (asprintf(&s->server_domain, "cay.localhost:%" PRId64, s->listen_port) < 0) {
        s->server_domain = NULL;
        return err_set(e, ERR_EXHAUSTED, "out of memory");
    }
    return ERR_OK;
}

enum err_code settings_load_daemon(struct settings *s, int *argc, char **argv, struct err *e)
{
    const char *path = "/dev/null";
    enum log_level level = LOG_INFO;
    enum err_code code;

    for (int i = 1; i < *argc; i++)
        if (strncmp(argv[i], "--config=", 9) == 0)
            path = argv[i] + 9;
        else if (strcmp(argv[i], "--config") == 0 && i + 1 < *argc)
            path = argv[i + 1];
    code = settings_load(s, path, argc, argv, e);
    if (code != ERR_OK)
        return code;
    log_level_from_name(s->server_log_level, &level);
    log_set_level(level);
    return ERR_OK;
}

void settings_free(struct settings *s)
{
    config_free(settings_keys, s);
}

static void format(const void *field, enum config_type type, char *out, size_t size)
{
    switch (type) {
    case CONFIG_STRING: {
        const char *text = *(char *const *)field;

        snprintf(out, size, "%s", text ? text : "");
        break;
    }
    case CONFIG_BOOL: snprintf(out, size, "%s", *(const bool *)field ? "true" : "false"); break;
    case CONFIG_INT: snprintf(out, size, "%" PRId64, *(const int64_t *)field); break;
    case CONFIG_BYTES: snprintf(out, size, "%" PRIu64, *(const uint64_t *)field); break;
    case CONFIG_TIME_MS: snprintf(out, size, "%" PRIu64 "ms", *(const uint64_t *)field); break;
    }
}

bool settings_differs(const struct settings *s, const struct config_key *key, char *out,
                      size_t size)
{
    struct settings initial;
    char before[512];
    bool differs;

    memset(&initial, 0, sizeof(initial));
    if (config_defaults(settings_keys, &initial, NULL) != ERR_OK)
        return false;
    format((const char *)&initial + key->offset, key->type, before, sizeof(before));
    format((const char *)s + key->offset, key->type, out, size);
    differs = strcmp(before, out) != 0;
    config_free(settings_keys, &initial);
    return differs;
}
