/* The smallest server on src/http, for load generators: http_hello PORT. */
#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "http/server.h"

static void hello(struct http_exchange *x, void *ctx)
{
    static const struct http_header type = {"Content-Type", "text/plain"};

    http_respond(x, 200, &type, 1, "hello\n", 6);
}

static int listen_on(int port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(fd, 4096) < 0)
        return -1;
    return fd;
}

int main(int argc, char **argv)
{
    struct http_server_config config;
    struct http_server *server;
    int fd = listen_on(argc > 1 ? atoi(argv[1]) : 8080);

    signal(SIGPIPE, SIG_IGN);
    http_server_config_default(&config);
    config.max_connections = 20000;
    if (fd < 0 || http_server_new(uv_default_loop(), &config, hello, NULL, &server) < 0 ||
        http_server_listen(server, fd) < 0) {
        perror("http_hello");
        return 1;
    }
    return uv_run(uv_default_loop(), UV_RUN_DEFAULT);
}
