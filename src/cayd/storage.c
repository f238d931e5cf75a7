#include "cayd/storage.h"

#include "base/clock.h"
#include "cayd/storage_read.h"
#include "cayd/upload.h"
#include "http/message.h"

#include <stdio.h>
#include <string.h>

#define LOOKUP_MS 15000
#define XML       "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
#define XMLNS     " xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\""
#define ETAG      "\"cay\"" /* clients give it back, and look no further */
#define TEXT_SIZE 1024

static const struct http_header xml_type = {"Content-Type", "application/xml"};

/* -- answers ----------------------------------------------------------------------------------- */

static void respond_xml(struct http_exchange *x, int status, const char *text)
{
    http_respond(x, status, &xml_type, 1, text, strlen(text));
}

static const char *code_of(int status)
{
    switch (status) {
    case 400: return "InvalidRequest";
    case 403: return "AccessDenied";
    case 404: return "NoSuchKey";
    case 405: return "MethodNotAllowed";
    case 409: return "InvalidPart";
    case 413: return "EntityTooLarge";
    case 429:
    case 503: return "SlowDown";
    case 501: return "NotImplemented";
    default: return "InternalError";
    }
}

/* why is the server's own text; what of XML may be in it goes. */
static void answer_bad(struct http_exchange *x, int status, const char *why)
{
    char text[TEXT_SIZE], plain[TEXT_SIZE / 2];

    (void)snprintf(plain, sizeof(plain), "%s", why);
    for (char *c = plain; *c; c++)
        if (strchr("<>&", *c) || (unsigned char)*c < ' ')
            *c = ' ';
    (void)snprintf(text, sizeof(text), XML "<Error><Code>%s</Code><Message>%s</Message></Error>",
                   code_of(status), plain);
    respond_xml(x, status, text);
}

static void answer_good(struct http_exchange *x)
{
    const struct http_header etag = {"ETag", ETAG};

    http_respond(x, 200, &etag, 1, NULL, 0);
}

static const struct upload_answers answers = {.good = answer_good, .bad = answer_bad};

/* A list of one archive, or of none. */
static void answer_list(struct http_exchange *x, const struct core_storage_call *s, bool is_there)
{
    char text[TEXT_SIZE], contents[TEXT_SIZE / 2] = "", at[CLOCK_RFC3339_SIZE];

    clock_format_rfc3339(s->used_real_ms, at);
    if (is_there)
        (void)snprintf(contents, sizeof(contents),
                       "<Contents><Key>%s/%s" STORAGE_OBJECT "</Key><LastModified>%s</LastModified>"
                       "<ETag>&quot;cay&quot;</ETag><Size>%llu</Size></Contents>",
                       s->tenant, s->digits, at, (unsigned long long)s->bytes);
    (void)snprintf(text, sizeof(text),
                   XML "<ListBucketResult" XMLNS "><Name>" DAYTONA_STORAGE_BUCKET
                       "</Name><KeyCount>%d</KeyCount><MaxKeys>1</MaxKeys><IsTruncated>false"
                       "</IsTruncated>%s</ListBucketResult>",
                   is_there, contents);
    respond_xml(x, 200, text);
}

/* The length of what a GET would answer, without it. */
static void answer_head(struct http_exchange *x, const struct core_storage_call *s)
{
    const struct http_header headers[] = {{"ETag", ETAG}, {"Content-Type", "application/x-tar"}};

    http_respond(x, 200, headers, ARRAY_SIZE(headers), NULL, s->bytes);
}

static void answer_upload(struct http_exchange *x, const struct core_storage_call *s)
{
    const char *name = s->op == STORAGE_BEGIN ? "InitiateMultipartUploadResult"
                                              : "CompleteMultipartUploadResult";
    char text[TEXT_SIZE];

    (void)snprintf(text, sizeof(text),
                   XML "<%s" XMLNS "><Bucket>" DAYTONA_STORAGE_BUCKET
                       "</Bucket><Key>%s/%s" STORAGE_OBJECT
                       "</Key><UploadId>%s</UploadId><ETag>&quot;cay&quot;</ETag></%s>",
                   name, s->tenant, s->digits, s->upload, name);
    respond_xml(x, 200, text);
}

static void answered(struct control_request *a, void *reader)
{
    struct connloop *l = reader;
    struct http_exchange *x = pending_take(l->api_pending, a->ticket, NULL);
    const struct core_storage_call *s = a->upload->storage;
    const struct err *why = &a->upload->why;

    if (s->op == STORAGE_PUT || s->op == STORAGE_PART)
        upload_receive(l, x, a, s->token, &answers);
    else if (!x)
        ;
    else if (s->op == STORAGE_STAT && strcmp(http_exchange_head(x)->method, "GET") == 0 &&
             (why->code == ERR_OK || why->code == ERR_NOT_FOUND))
        answer_list(x, s, why->code == ERR_OK);
    else if (why->code != ERR_OK)
        answer_bad(x, api_status_of(why->code), why->text);
    else if (s->op == STORAGE_STAT)
        answer_head(x, s);
    else if (s->op == STORAGE_ABORT)
        http_respond(x, 204, NULL, 0, NULL, 0);
    else
        answer_upload(x, s);
    control_request_free(a);
}

/* -- requests ---------------------------------------------------------------------------------- */

bool storage_handle(struct connloop *l, struct http_exchange *x)
{
    const struct http_head *h = http_exchange_head(x);
    struct core_storage_call s;
    struct control_request *a;
    const char *why = "";
    int status;

    if (strncmp(h->path, DAYTONA_STORAGE_PATH "/", sizeof(DAYTONA_STORAGE_PATH)) != 0)
        return false;
    status = storage_read(h, &s, &why);
    if (status == 0 && s.op == STORAGE_PUT && h->framing == HTTP_BODY_LENGTH &&
        h->content_length > CORE_BUILD_FILE_MAX) {
        status = 413;
        why = "the archive is larger than a build's may be";
    }
    if (status != 0) {
        answer_bad(x, status, why);
        return true;
    }
    a = control_request_storage(l->config.control, &s, &l->inbox, answered);
    if (!connloop_request(l, x, a, LOOKUP_MS))
        answer_bad(x, 503, "the server is too busy; try again");
    return true;
}
