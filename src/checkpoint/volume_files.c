#include "checkpoint/volume_files.h"

#include "checkpoint/criu_image.h"
#include "contract/agent_boot.h"
#include "sys/mnt.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* Fields, by their numbers in CRIU's definitions. */
#define FILE_REG 3
#define REG_NAME 6

struct names {
    int root_fd;
    struct checkpoint_why *why;
};

static bool find_bytes(const uint8_t *at, size_t n, uint32_t number, struct criu_image_field *out)
{
    while (criu_image_next_field(&at, &n, out) == 1)
        if (out->number == number && out->bytes)
            return true;
    return false;
}

/* A file that is not there, or that a link stands before, is CRIU's to refuse. */
static int check_name(const struct names *l, const char *name)
{
    CLEANUP_CLOSE int fd = mnt_open_beneath(l->root_fd, name, O_PATH | O_NOFOLLOW, 0);
    struct stat st;

    if (fd < 0 || (fstat(fd, &st) == 0 && (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode))))
        return 0;
    (void)checkpoint_fail(l->why, -ENXIO, "/%.128s, which a program has open, is no file any more",
                          name);
    for (char *c = l->why->text; *c; c++) /* names are the tenant's */
        if (!isprint((unsigned char)*c))
            *c = '?';
    return -ENXIO;
}

static int check_message(void *arg, const uint8_t *at, size_t n)
{
    static const char *const volumes = &(AGENT_VOLUMES_DIR "/")[1];
    const size_t head = strlen(volumes);
    struct criu_image_field reg, text;
    char name[4096];

    if (!find_bytes(at, n, FILE_REG, &reg) || !find_bytes(reg.bytes, reg.n, REG_NAME, &text))
        return 0;
    while (text.n > 0 && *text.bytes == '/') {
        text.bytes++;
        text.n--;
    }
    if (text.n >= sizeof(name) || text.n <= head || memcmp(text.bytes, volumes, head) != 0)
        return 0;
    memcpy(name, text.bytes, text.n);
    name[text.n] = '\0';
    return check_name(arg, name);
}

int volume_files_check(int dir_fd, const char *root, struct checkpoint_why *why)
{
    CLEANUP_CLOSE int root_fd = open(root, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    CLEANUP_CLOSE int volumes_fd = root_fd < 0 ? -errno
                                               : mnt_open_beneath(root_fd, &AGENT_VOLUMES_DIR[1],
                                                                  O_PATH | O_DIRECTORY, 0);
    struct names names = {root_fd, why};
    int rc;

    if (volumes_fd < 0) /* it has none */
        return volumes_fd == -ENOENT
                   ? 0
                   : checkpoint_fail(why, volumes_fd, "%s: %s", root, strerror(-volumes_fd));
    rc = criu_image_each(dir_fd, "files.img", CRIU_IMAGE_MAGIC_FILES, check_message, &names);
    return rc == 0 || rc == -ENXIO
               ? rc
               : checkpoint_fail(why, rc, "the image has no list of open files that is whole");
}
