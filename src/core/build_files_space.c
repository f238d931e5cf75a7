/* The space that the archives of builds leave free on the server's disk. Called by connection loops
 * too, so that it uses nothing of core's state. */

#include "core/build_files.h"

#include <errno.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

enum err_code core_build_upload_space(int fd, struct err *e)
{
    struct statvfs fs;

    if (fstatvfs(fd, &fs) < 0)
        return err_set_sys(e, ERR_INTERNAL, errno, "asking for the room of the server's disk");
    if (fs.f_blocks > 0 && fs.f_bavail < fs.f_blocks * CORE_BUILD_FILES_FREE / 100)
        return err_set(e, ERR_NO_SPACE,
                       "less than %u %% of the disk that the server keeps archives on are free",
                       CORE_BUILD_FILES_FREE);
    return ERR_OK;
}

bool core_build_upload_is_gone(int fd)
{
    struct stat st;

    return fstat(fd, &st) == 0 && st.st_nlink == 0;
}
