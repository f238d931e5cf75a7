#include "sys/memfd.h"

#include <errno.h>
#include <fcntl.h>

#define SEAL_TRIES 12 /* of up to 150 ms each */

int memfd_seal(int fd)
{
    int seals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
    int rc = -EBUSY;

    for (int i = 0; i < SEAL_TRIES && rc == -EBUSY; i++)
        rc = fcntl(fd, F_ADD_SEALS, seals) < 0 ? -errno : 0;
    return rc;
}
