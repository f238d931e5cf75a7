#pragma once
/* Where traces go: the address of an OTLP collector, as the operator's configuration has it. Pure.
 *
 * http://ADDRESS[:PORT][/PATH]: ADDRESS in digits (IPv6 in brackets) or localhost, which is
 * 127.0.0.1; without PORT it is OTLP's own, without PATH /v1/traces. */

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

#define OTLP_URL_PORT     4318u
#define OTLP_URL_PATH_MAX 256u

struct otlp_url {
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } to;
    socklen_t to_len;
    char authority[INET6_ADDRSTRLEN + 16]; /* for Host */
    char path[OTLP_URL_PATH_MAX + 1];
};

/* NULL, or its fault (*out is untouched then), as the end of a sentence. */
const char *otlp_url_parse(const char *text, struct otlp_url *out);
