#pragma once
/* The control loop: owns core, the API's handlers and the gateway's resolver, and answers what the
 * connection loops ask. Everything here but control_request_* runs on its own thread. */

#include "api/api.h"
#include "base/settings.h"
#include "cayd/mailbox.h"
#include "core/build_storage.h"
#include "gateway/resolve.h"

#define CONTROL_MAX_WAITING 16384 /* questions that are not answered yet */

/* An archive of a build, or a part of one, that is being received (cayd/upload.h): its begin, or
 * its end; or what else a client of the storage asks (cayd/storage.h). */
struct control_upload {
    char hash[CORE_BUILD_HASH_MAX + 1], token[CORE_BUILD_UPLOAD_TOKEN];
    struct core_storage_call *storage; /* NULL: none of the storage's */
    unsigned part;                     /* 0: it is received in one */
    bool ends, is_import; /* the latter: of a snapshot (snapshot_import.h) that will not be whole */
    uint64_t number, bytes, most_bytes;
    bool whole;
    const void *sender; /* the sender's own */
    int fd;             /* the request's until TAKE_FD; -1: none */
    struct err why;
};

/* A question and its answer: it goes to the control loop, is filled in, and goes back to the box
 * that it came with. The sender's ticket tells it what to do with it. */
struct control_request {
    struct mailbox_message message;
    struct mailbox *back;
    uint64_t ticket;
    void (*answered)(struct control_request *a,
                     void *reader); /* on the sender's loop; a is then the callee's */
    /* the API's */
    atomic_bool gone;              /* set by the sender's loop: no client waits for the answer */
    char *key;                     /* control_request_key's */
    char tenant[CORE_TENANT_SIZE]; /* its answer: "" for a key that is not known */
    struct api_request *request;   /* the API's from when it is sent */
    uint64_t upload_number;        /* of the request; 0: it ends no upload */
    struct api_response response;
    /* the gateway's */
    struct gateway_query query;
    struct gateway_answer answer;  /* its descriptor is the request's until TAKE_FD */
    struct control_upload *upload; /* an archive's; NULL: none */
    struct control *control;
};

struct control;

/* Opens the store, connects to privd. https: clients are told such addresses. ready is called once,
 * when requests can be served. */
enum err_code control_new(uv_loop_t *loop, const struct settings *s, const char *privd_path,
                          const char *egress_dir, bool https, void (*ready)(void *arg),
                          void *ready_arg, struct control **out, struct err *e);

/* fn on the control loop's thread, whenever a sandbox has been paused. */
void control_on_paused(struct control *c, void (*fn)(void *arg, const char *id), void *arg);

/* The same, whenever a key was revoked. */
void control_on_key_revoked(struct control *c, void (*fn)(void *arg, const char *key_id),
                            void *arg);

/* Ends core (which answers all that waits) and closes the mailbox; the loop must turn until it is
 * empty; then control_free. */
void control_stop(struct control *c);
void control_free(struct control *c);

/* A request for the API or the gateway; NULL when memory is out. The first takes the request over,
 * and the sender gives it its ticket. */
struct control_request *control_request_api(struct control *c, struct api_request *r,
                                            struct mailbox *back,
                                            void (*answered)(struct control_request *a,
                                                             void *reader));

/* Whose key is this? Copied. The answer is in the request's tenant. */
struct control_request *control_request_key(struct control *c, const char *key,
                                            struct mailbox *back,
                                            void (*answered)(struct control_request *a,
                                                             void *reader));
struct control_request *control_request_gateway(struct control *c, const struct gateway_query *q,
                                                struct mailbox *back, uint64_t ticket,
                                                void (*answered)(struct control_request *a,
                                                                 void *reader));

/* hash NULL: the end of one that has begun, to be filled in; else both are copied. The answer is
 * in the request's upload. */
struct control_request *control_request_upload(struct control *c, const char *hash,
                                               const char *token, struct mailbox *back,
                                               void (*answered)(struct control_request *a,
                                                                void *reader));

/* The call is copied. The answer is in the copy, its file's descriptor in the request's upload. */
struct control_request *control_request_storage(
    struct control *c, const struct core_storage_call *call, struct mailbox *back,
    void (*answered)(struct control_request *a, void *reader));

/* Sends it. 0, or -EAGAIN and the request is still the caller's. */
int control_send(struct control_request *a);
void control_request_free(struct control_request *a);
