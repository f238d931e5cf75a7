#include "runtime/disk_name.h"

#include "base/util.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

const char *const disk_layer_dirs[] = {"root", "root.work", "usr", "usr.work", NULL};

const char *disk_name_layer(char name[static DISK_NAME_SIZE], uint32_t slot, uint32_t gen)
{
    snprintf(name, DISK_NAME_SIZE, "%u.%u", slot, gen);
    return name;
}

const char *disk_name_number(char name[static DISK_NAME_SIZE], uint32_t n)
{
    snprintf(name, DISK_NAME_SIZE, "%u", n);
    return name;
}

bool disk_is_kept(const struct disk *d, uint32_t number)
{
    char name[DISK_NAME_SIZE];

    return faccessat(d->kept_fd, disk_name_number(name, number), F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

bool disk_has_image(const struct disk *d, uint32_t number)
{
    char path[DISK_NAME_SIZE + sizeof("/" DISK_IMAGE_NAME)];

    snprintf(path, sizeof(path), "%u/" DISK_IMAGE_NAME, number);
    return faccessat(d->kept_fd, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

bool disk_is_volume(const struct disk *d, uint32_t number)
{
    char name[DISK_NAME_SIZE];

    return faccessat(d->volumes_fd, disk_name_number(name, number), F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}
