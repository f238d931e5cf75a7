/* The routes that exist, and those that are answered with a sentence. */
#include "toolbox/routes.h"

#include "toolbox/env.h"
#include "toolbox/files.h"
#include "toolbox/git.h"
#include "toolbox/interpreter.h"
#include "toolbox/port.h"
#include "toolbox/process.h"
#include "toolbox/pty.h"
#include "toolbox/reply.h"
#include "toolbox/session.h"
#include "toolbox/system.h"

static const struct toolbox_route process_routes[] = {
    {"POST", "/process/execute", toolbox_execute},
    {"POST", "/process/code-run", toolbox_code_run},
    {"POST", "/process/session", session_create},
    {"GET", "/process/session", session_list},
    {"GET", "/process/session/{}", session_get},
    {"DELETE", "/process/session/{}", session_delete},
    {"POST", "/process/session/{}/exec", session_exec},
    {"GET", "/process/session/{}/command/{}", session_command},
    {"GET", "/process/session/{}/command/{}/logs", session_logs, TOOLBOX_NO_BODY},
    {"POST", "/process/session/{}/command/{}/input", session_input},
    {"POST", "/process/pty", pty_create},
    {"GET", "/process/pty", pty_list},
    {"GET", "/process/pty/create-connect", pty_create_connect, TOOLBOX_NO_BODY | TOOLBOX_TERMINAL},
    {"GET", "/process/pty/{}", pty_get},
    {"DELETE", "/process/pty/{}", pty_delete},
    {"POST", "/process/pty/{}/resize", pty_resize},
    {"GET", "/process/pty/{}/connect", pty_connect, TOOLBOX_NO_BODY | TOOLBOX_TERMINAL},
    {"POST", "/process/interpreter/context", interpreter_create},
    {"GET", "/process/interpreter/context", interpreter_list},
    {"DELETE", "/process/interpreter/context/{}", interpreter_delete},
    {"GET", "/process/interpreter/execute", interpreter_execute, TOOLBOX_NO_BODY},
    {0},
};

static const struct toolbox_route file_routes[] = {
    {"GET", "/files", toolbox_files_list},
    {"DELETE", "/files", toolbox_files_delete},
    {"GET", "/files/info", toolbox_files_info},
    {"POST", "/files/folder", toolbox_files_folder, TOOLBOX_NO_BODY},
    {"POST", "/files/move", toolbox_files_move, TOOLBOX_NO_BODY},
    {"POST", "/files/permissions", toolbox_files_permissions, TOOLBOX_NO_BODY},
    {"GET", "/files/download", toolbox_files_download, TOOLBOX_SIGNED},
    {"POST", "/files/bulk-download", toolbox_files_bulk_download},
    {"POST", "/files/upload", toolbox_files_upload, TOOLBOX_NO_BODY},
    {"POST", "/files/upload-v2", toolbox_files_upload_v2, TOOLBOX_NO_BODY | TOOLBOX_SIGNED},
    {"POST", "/files/bulk-upload", toolbox_files_bulk_upload, TOOLBOX_NO_BODY},
    {"GET", "/files/find", toolbox_files_find},
    {"GET", "/files/search", toolbox_files_search},
    {"POST", "/files/replace", toolbox_files_replace},
    {"GET", "/work-dir", toolbox_home},
    {"GET", "/project-dir", toolbox_home},
    {"GET", "/user-home-dir", toolbox_home},
    {"POST", "/env", toolbox_env},
    {"GET", "/system/metrics", toolbox_system_metrics},
    {0},
};

static const struct toolbox_route git_routes[] = {
    {"POST", "/git/clone", git_clone},
    {"GET", "/git/status", git_status},
    {"POST", "/git/add", git_add},
    {"POST", "/git/commit", git_commit},
    {"GET", "/git/branches", git_branches},
    {"POST", "/git/branches", git_branch_create},
    {"DELETE", "/git/branches", git_branch_delete},
    {"POST", "/git/checkout", git_checkout},
    {"POST", "/git/pull", git_pull},
    {"POST", "/git/push", git_push},
    {"GET", "/git/history", git_history},
    {"POST", "/git/init", git_init},
    {"POST", "/git/reset", git_reset},
    {"POST", "/git/restore", git_restore},
    {"GET", "/git/remotes", git_remotes},
    {"POST", "/git/remotes", git_remote_add},
    {"GET", "/git/config", git_config_get},
    {"POST", "/git/config", git_config_set},
    {"POST", "/git/config/user", git_config_user},
    {"POST", "/git/credentials", git_credentials_store},
    {"GET", "/port", port_list},
    {"GET", "/port/{}/in-use", port_in_use},
    {0},
};

#define NO_BODY TOOLBOX_NO_BODY

/* Routes that do not exist here: after all others. */
static const struct toolbox_route missing[] = {
    {"*", "/git/*", toolbox_unsupported, NO_BODY, "this call of git (run git by process/execute)"},
    {"*", "/lsp/*", toolbox_unsupported, NO_BODY,
     "language servers (run one by process/execute, and reach it by its port)"},
    {"*", "/computeruse/*", toolbox_unsupported, NO_BODY, "a desktop: there is no display"},
    {"*", "/proxy/*", toolbox_unsupported, NO_BODY,
     "ports below the toolbox (ask for the port's preview-url)"},
    {0},
};

const struct toolbox_route *const toolbox_tables[] = {process_routes, file_routes, git_routes,
                                                      missing, NULL};
