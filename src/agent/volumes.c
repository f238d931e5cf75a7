#include "agent/volumes.h"

#include "agent/common/user.h"
#include "agent/fs/fs_open.h"
#include "agent/volume_place.h"
#include "base/util.h"
#include "contract/agent_boot.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TARGET_SIZE (sizeof(AGENT_VOLUMES_DIR) + 24)

/* A link to a volume, perhaps of an earlier boot with another place, or an empty directory: that
 * may go. */
static bool move_aside(int dir_fd, const char *name)
{
    char target[TARGET_SIZE + 1] = "";
    ssize_t n = readlinkat(dir_fd, name, target, sizeof(target) - 1);

    if (n > 0)
        return strncmp(target, AGENT_VOLUMES_DIR "/", sizeof(AGENT_VOLUMES_DIR)) == 0 &&
               unlinkat(dir_fd, name, 0) == 0;
    return unlinkat(dir_fd, name, AT_REMOVEDIR) == 0;
}

static int link_one(const char *path, unsigned number, bool is_new)
{
    const struct user root = {.name = "root"};
    const char *name = strrchr(path, '/') + 1;
    char target[TARGET_SIZE];
    int rc = fs_make_parents(path, &root);
    CLEANUP_CLOSE int dir = rc < 0 ? rc : fs_open_parent(path);

    if (dir < 0)
        return dir;
    CLEANUP_FS_CRED struct fs_cred saved UNUSED = fs_as_user(&root); /* the link is root's */
    (void)snprintf(target, sizeof(target), AGENT_VOLUMES_DIR "/%u", number);
    if (symlinkat(target, dir, name) == 0)
        return 0;
    if (errno != EEXIST)
        return -errno;
    if (!move_aside(dir, name)) {
        rc = errno == ENOTEMPTY && is_new ? volume_place_clear(path, target)
                                          : (errno == ENOENT ? -EEXIST : -errno);
        if (rc < 0)
            return rc;
    }
    return symlinkat(target, dir, name) < 0 ? -errno : 0;
}

enum err_code volumes_link(const json_t *links, bool is_new, struct err *e)
{
    const json_t *one;
    size_t i;

    json_array_foreach ((json_t *)links, i, one) {
        const char *path = json_string_value(json_object_get(one, "path"));
        json_int_t number = json_integer_value(json_object_get(one, "place"));
        int rc = path && path[0] == '/' && path[1] ? link_one(path, (unsigned)number, is_new)
                                                   : -EINVAL;

        if (rc == -EEXIST || rc == -ENOTEMPTY || rc == -ENOTDIR)
            return err_set(e, ERR_CONFLICT,
                           "a volume or host directory cannot be at %.200s: something else is "
                           "there, and it is no empty directory, nor one whose files can make way "
                           "(at most %u files and %u MiB, outside of /etc and /usr)",
                           path, VOLUME_PLACE_ENTRIES_MAX, VOLUME_PLACE_BYTES_MAX >> 20);
        if (rc < 0)
            return err_set_sys(e, err_code_from_errno(rc), rc,
                               "a volume or host directory cannot be at %.200s", path ? path : "");
    }
    return ERR_OK;
}
