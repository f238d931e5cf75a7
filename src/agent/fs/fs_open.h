#pragma once
/* How cay-init touches the sandbox's files for a client: as whom, and through which calls.
 *
 * With upstream the file service acts as root and hands what it makes to the asking user by chown;
 * its clients rely on that (they read and write anywhere in the sandbox). cay-init does the same
 * with its capabilities over files, and that is safe: it sees only the sandbox's mount namespace,
 * the tenant's key opens every account in it anyway (sudo, Start as root), and what it opens is
 * never executed by it. Three things differ from plain root:
 *  - the file system ids of the calling thread are set to the asking user's (setfsuid), so that new
 *    files belong to the user from the first instant, and the kernel's rules for sticky directories
 *    (protected_symlinks and the like) judge by the user;
 *  - where the request asks for it (AGENT_ACCESS_HEADER), the capabilities over files are given up
 *    for as long, and the user's groups are taken on, so that the kernel decides as for a program
 *    of the user's;
 *  - magic links are never followed and cay-init's own /proc files are refused, so that a path
 * cannot make it hand out its memory, its descriptors or its key (it would pass every check on
 * itself). Nothing opened here can wait: O_NONBLOCK, and only regular files and directories are
 * kept. Each function may do disk I/O; call them on the file worker where the amount of it is not
 * small. */

#include "agent/common/agent.h"

#include <sys/stat.h>
#include <sys/types.h>

/* The credentials that fs_as_user replaced. */
struct fs_cred {
    bool changed, limited;
    uid_t fsuid;
    gid_t fsgid;
    uint32_t caps[6]; /* of capset(2), with limited */
};

#define CLEANUP_FS_CRED CLEANUP(fs_as_self)

/* From here on this thread acts on files as uid and gid, with its capabilities kept unless
 * u->own_rights. Where the ids may not be changed (a development run without privileges) nothing
 * changes. */
struct fs_cred fs_as_user(const struct user *u);
void fs_as_self(struct fs_cred *saved);

/* Opens path (absolute) with flags (O_CLOEXEC, O_NONBLOCK and O_NOCTTY are added). Descriptor, or
 * -errno: -ELOOP for magic links, -EACCES for cay-init's own /proc files. */
int fs_open(const char *path, int flags, mode_t mode) WARN_UNUSED;

/* fs_open for reading; only regular files: -EISDIR, or -EINVAL for devices, FIFOs and sockets. */
int fs_open_file(const char *path, struct stat *st) WARN_UNUSED;

/* Opens a regular file for writing, made with 0666 & ~umask when absent, and gives it to u. Not yet
 * truncated: the caller does that when it has something to write; *st is what was found. Errors as
 * above. */
int fs_open_for_write(const char *path, const struct user *u, struct stat *st) WARN_UNUSED;

/* fs_open_for_write of a program that runs, which refuses that (-ETXTBSY): its name is given to a
 * new file with its mode, and it runs on from the old one. On failure the name is the program's
 * still. */
int fs_open_for_replacement(const char *path, const struct user *u, struct stat *st) WARN_UNUSED;

/* Opens the directory that holds path's last element, O_PATH. */
int fs_open_parent(const char *path) WARN_UNUSED;

/* Makes path and what is missing above it, 0755, owned by u. -ENOTDIR when a file is in the way. */
int fs_make_dirs(const char *path, const struct user *u) WARN_UNUSED;

/* fs_make_dirs of the directory above path. */
int fs_make_parents(const char *path, const struct user *u) WARN_UNUSED;

/* Resolves every link of an existing path, lexically as filepath.EvalSymlinks does, into out.
 * -ENOENT, -ELOOP, -ENOTDIR, -ENAMETOOLONG, ... */
int fs_eval_links(const char *path, char out[static AGENT_PATH_SIZE]) WARN_UNUSED;

/* fs_eval_links of a directory: -ENOTDIR for anything else. */
int fs_eval_dir(const char *path, char out[static AGENT_PATH_SIZE]) WARN_UNUSED;
