#include "contract/exchange.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

const char *const exchange_dir_names[EXCHANGE_DIRS] = {"root", "root/etc", "usr"};

bool exchange_is_text(const char *field, size_t size)
{
    size_t n = strnlen(field, size);

    if (n == size || (n > 0 && (field[0] == ' ' || field[n - 1] == ' ')))
        return false;
    for (size_t i = 0; i < size; i++)
        if (i < n ? field[i] < ' ' || field[i] > '~' : field[i] != '\0')
            return false;
    return true;
}

static bool are_dirs(const struct exchange_dir *d)
{
    for (size_t i = 0; i < EXCHANGE_DIRS; i++)
        if (d[i].mode > 07777 || d[i].uid > UINT16_MAX || d[i].gid > UINT16_MAX || d[i].pad != 0 ||
            d[i].changed_s < 0 || d[i].changed_s > UINT32_MAX)
            return false;
    return true;
}

static bool is_zero(const uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (bytes[i])
            return false;
    return true;
}

int exchange_parse(const void *bytes, struct exchange_header *out)
{
    struct exchange_header h;

    memcpy(&h, bytes, sizeof(h));
    if (h.magic != EXCHANGE_MAGIC)
        return -EBADMSG;
    if (h.version != EXCHANGE_VERSION)
        return -EPROTO;
    if (h.bytes == 0 || h.bytes > EXCHANGE_BYTES_MAX || h.level >= PRIVSEP_LEVEL_COUNT ||
        !exchange_is_text(h.template_name, sizeof(h.template_name)) || !h.template_name[0] ||
        !exchange_is_text(h.template_digest, sizeof(h.template_digest)) ||
        !exchange_is_text(h.system, sizeof(h.system)) || h.made_real_ms < 0 || !are_dirs(h.dirs) ||
        !is_zero(h.zero, sizeof(h.zero)))
        return -EBADMSG;
    *out = h;
    return 0;
}

int exchange_read(int fd, struct exchange_header *out)
{
    uint8_t bytes[EXCHANGE_HEADER_BYTES];
    uint64_t all;
    int rc = archive_length(fd, &all);

    if (rc < 0)
        return rc;
    if (all <= sizeof(bytes))
        return -EBADMSG;
    ssize_t n = pread(fd, bytes, sizeof(bytes), (off_t)(all - sizeof(bytes)));
    if (n != (ssize_t)sizeof(bytes))
        return n < 0 ? -errno : -EBADMSG;
    rc = exchange_parse(bytes, out);
    return rc == 0 && out->bytes + sizeof(bytes) != all ? -EBADMSG : rc;
}
