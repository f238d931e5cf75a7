#pragma once
/* The calls that the bench makes, over one connection that is kept, as an SDK would keep it. Blocking;
 * one struct calls per thread. A failure ends the program with a sentence: a bench that went on
 * would measure something else. */

#include "base/buf.h"

#include <curl/curl.h>

struct calls {
    const char *url, *key; /* the caller's */
    CURL *curl;
    struct curl_slist *headers; /* with the key */
    struct buf body;            /* of the last answer */
    char next_token[256];       /* X-Next-Token of the last answer, "" if none */
};

struct made {
    char id[64];
    char token[128]; /* envdAccessToken */
};

void calls_open(struct calls *c, const char *url, const char *key);
void calls_close(struct calls *c);

/* Until the server has answered: the sandbox is ready. */
void calls_create(struct calls *c, struct made *out);
/* A sandbox that lives, by its id. */
void calls_find(struct calls *c, const char *id, struct made *out);
/* Until nothing of it is left. */
void calls_kill(struct calls *c, const char *id);
/* Runs /bin/true in it until the stream's end. */
void calls_exec_true(struct calls *c, const struct made *made);
/* A GET with the key; the answer is in c->body. */
void calls_get(struct calls *c, const char *path);
/* Connects, so that what follows does not. */
void calls_connect(struct calls *c);
