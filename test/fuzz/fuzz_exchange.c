/* Headers and ends of files that clients import as snapshots (contract/exchange.h). The first byte says which: a header alone, or
 * the end of a file, of which the rest is a hole. Checked: a header that is taken keeps the bounds that its readers rely on, and the
 * file has just the length that it says. */
#include "contract/exchange.h"
#include "fuzz.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static void check_text(const char *field, size_t size)
{
    size_t n = strnlen(field, size);

    FUZZ_CHECK(n < size);
    for (size_t i = 0; i < n; i++)
        FUZZ_CHECK(field[i] >= ' ' && field[i] <= '~');
    for (size_t i = n; i < size; i++)
        FUZZ_CHECK(!field[i]);
}

static void check_header(const struct exchange_header *h)
{
    FUZZ_CHECK(h->bytes > 0 && h->bytes <= EXCHANGE_BYTES_MAX && h->level < PRIVSEP_LEVEL_COUNT);
    check_text(h->template_name, sizeof(h->template_name));
    check_text(h->template_digest, sizeof(h->template_digest));
    check_text(h->system, sizeof(h->system));
    FUZZ_CHECK(h->template_name[0] && h->made_real_ms >= 0);
    for (size_t i = 0; i < EXCHANGE_DIRS; i++)
        FUZZ_CHECK(h->dirs[i].mode <= 07777 && h->dirs[i].uid <= 65535 && h->dirs[i].gid <= 65535);
}

/* The end, behind a hole of as many bytes as the first two say. */
static void read_file(const uint8_t *data, size_t size)
{
    uint16_t hole;
    struct exchange_header h;
    struct stat st;
    int fd = memfd_create("fuzz", MFD_CLOEXEC);

    memcpy(&hole, data, sizeof(hole));
    if (fd < 0)
        return;
    if (pwrite(fd, data + sizeof(hole), size - sizeof(hole), hole) ==
            (ssize_t)(size - sizeof(hole)) &&
        fstat(fd, &st) == 0 && exchange_read(fd, &h) == 0) {
        check_header(&h);
        FUZZ_CHECK(h.bytes + EXCHANGE_HEADER_BYTES +
                       archive_pieces(h.bytes + EXCHANGE_HEADER_BYTES) * ARCHIVE_MAC_BYTES +
                       sizeof(struct archive_footer) ==
                   (uint64_t)st.st_size);
    }
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t bytes[EXCHANGE_HEADER_BYTES] = {0};
    struct exchange_header h;

    if (size < 3)
        return 0;
    if (data[0] & 1) {
        read_file(data + 1, size - 1);
        return 0;
    }
    memcpy(bytes, data + 1, size - 1 < sizeof(bytes) ? size - 1 : sizeof(bytes));
    if (exchange_parse(bytes, &h) == 0)
        check_header(&h);
    return 0;
}
