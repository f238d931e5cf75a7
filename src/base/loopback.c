#include "base/loopback.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>

int loopback_connect(int fd, uint16_t port)
{
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

    if (connect(fd, (const struct sockaddr *)&to, sizeof(to)) == 0)
        return 0;
    return errno == EINPROGRESS ? 1 : -errno;
}
