#pragma once
/* The functions of intercept.c that tls_intercept.c uses. */

#include "egress/credential/credential.h"
#include "egress/h2/h2.h"
#include "egress/http/held_answer.h"
#include "egress/tls/ca.h"
#include "egress/tls/tlshand.h"

struct intercept {
    struct tlshands *hands;
    struct h2s *h2s;
    struct ca *ca;
    struct sealer *sealer;
    struct share_pool *held_bodies; /* HELD_BODY_PLACES: http/held_body.h */
    struct held_answers *held_answers;
    SSL_CTX *towards_clients, *towards_servers;
    /* PEM of the CAs in [egress] ca_file, for sandboxes to trust too; or NULL */
    char *operators;
};
