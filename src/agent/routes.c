/* The table of everything that cay-init serves on its port. The server calls routes_dispatch with
 * each request's head: the key is checked first, then path and method are looked up (404, 405), and
 * the handler takes the exchange over. Handlers are declared in the headers of their folders; the
 * file holds no state. */

#include "agent/common/agent.h"
#include "agent/files/volume_files.h"
#include "agent/hooks.h"
#include "agent/prepare.h"

#include "base/ids.h"

#include <string.h>

static const struct route {
    const char *method, *path;
    agent_handler handler;
} routes[] = {
    {"GET", "/health", health_get},
    {"GET", "/metrics", metrics_get},
    {"GET", "/envs", envs_get},
    {"POST", "/init", init_post},
    {"POST", "/cay/envs", envs_change},
    {"GET", "/cay/logs", logs_get},
    {"GET", "/cay/oom", process_oom_get},
    {"POST", "/cay/hooks", hooks_post},
    {"POST", "/cay/prepare", prepare_post},
    {"POST", "/cay/go-on", prepare_go_on},

    {"GET", "/files", files_get},
    {"HEAD", "/files", files_get},
    {"POST", "/files", files_post},
    {"POST", "/files/compose", files_compose},

    {"POST", "/process.Process/Start", process_start},
    {"POST", "/process.Process/Connect", process_connect},
    {"POST", "/process.Process/List", process_list},
    {"POST", "/process.Process/Update", process_update},
    {"POST", "/process.Process/SendInput", process_send_input},
    {"POST", "/process.Process/StreamInput", process_stream_input},
    {"POST", "/process.Process/CloseStdin", process_close_stdin},
    {"POST", "/process.Process/SendSignal", process_send_signal},

    {"POST", "/filesystem.Filesystem/Stat", fs_stat},
    {"POST", "/filesystem.Filesystem/ListDir", fs_list_dir},
    {"POST", "/filesystem.Filesystem/MakeDir", fs_make_dir},
    {"POST", "/filesystem.Filesystem/Move", fs_move},
    {"POST", "/filesystem.Filesystem/Remove", fs_remove},
    {"POST", "/filesystem.Filesystem/WatchDir", watch_dir},
    {"POST", "/filesystem.Filesystem/CreateWatcher", watch_create},
    {"POST", "/filesystem.Filesystem/GetWatcherEvents", watch_get_events},
    {"POST", "/filesystem.Filesystem/RemoveWatcher", watch_remove},
};

/* Programs of the sandbox can connect to the port too: only cayd has the key. */
static bool has_key(const struct http_exchange *x, const struct agent *a)
{
    const char *hex = http_head_get(http_exchange_head(x), AGENT_KEY_HEADER);
    uint8_t key[sizeof(a->key)];

    if (a->keyless)
        return true;
    return hex && ids_unhex(hex, key, sizeof(key)) == 0 &&
           ids_equal_secret(key, a->key, sizeof(key));
}

static bool of_preparation(const char *path)
{
    return strcmp(path, "/cay/prepare") == 0 || strcmp(path, "/cay/go-on") == 0;
}

void routes_dispatch(struct http_exchange *x, void *ctx)
{
    const struct http_head *h = http_exchange_head(x);
    struct agent *a = ctx;
    bool path_known = false;

    if (!has_key(x, a)) {
        http_respond_error(x, 401, "this port answers only to the sandbox's host");
        return;
    }
    if (a->prepared && !of_preparation(h->path)) {
        http_exchange_close_after(x);
        http_respond_error(x, 503, "the sandbox is about to be paused");
        return;
    }
    if (a->serves_volume && strcmp(h->path, "/health") != 0) {
        http_exchange_set(x, a, NULL);
        volume_files_dispatch(x, a);
        return;
    }
    for (size_t i = 0; i < ARRAY_SIZE(routes); i++) {
        if (strcmp(h->path, routes[i].path) != 0)
            continue;
        path_known = true;
        if (strcmp(h->method, routes[i].method) == 0) {
            http_exchange_set(x, a, NULL);
            routes[i].handler(x, a);
            return;
        }
    }
    if (path_known)
        http_respond_error(x, 405, "%s is not a method of %s", h->method, h->path);
    else
        http_respond_error(x, 404, "there is no %s here", h->path);
}
