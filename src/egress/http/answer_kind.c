#include "egress/http/answer_kind.h"

#include <string.h>
#include <strings.h>

#define PART_REASON                                                                              \
    "the server has answered with a part of the whole though it was not asked to: an answer in " \
    "pieces could not be searched for the credential"

#define TYPES_REASON                                                                   \
    "the server has given its answer several types (Content-Type): clients differ in " \
    "how they read it, and it could not be searched for the credential"

/* The next member of a list with its length, without white space around it; commas in a quoted text
 * part none. NULL behind the last. */
static const char *next_member(const char **rest, size_t *len)
{
    const char *start = *rest, *end;
    bool quoted = false;

    if (!start)
        return NULL;
    start += strspn(start, " \t");
    for (end = start; *end && (quoted || *end != ','); end++) {
        if (quoted && end[0] == '\\' && end[1])
            end++;
        else if (*end == '"')
            quoted = !quoted;
    }
    *rest = *end ? end + 1 : NULL;
    while (end > start && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    *len = (size_t)(end - start);
    return start;
}

static void add_codings(struct answer_kind *k, const char *value)
{
    const char *member;
    size_t n;

    while ((member = next_member(&value, &n))) {
        enum unzip_coding coding = unzip_coding_of(member, n);

        if (coding != UNZIP_NONE)
            k->coding = k->coding == UNZIP_NONE ? coding : UNZIP_OTHER;
    }
}

/* Members without a '/' are no types: they are what some servers write unquoted in a parameter. */
static void add_types(struct answer_kind *k, const char *value)
{
    const char *member;
    size_t n;

    while ((member = next_member(&value, &n))) {
        if (!memchr(member, '/', n))
            continue;
        if (!k->type) {
            k->type = member;
            k->type_len = n;
        } else if (n != k->type_len || strncasecmp(member, k->type, n) != 0) {
            k->has_types = true;
        }
    }
}

/* A range of bytes makes a part, whatever the status. "bytes *" (in a 416) tells that nothing of it
 * is sent, and other units count things that are whole: PostgREST has them in every answer. */
static bool is_range(const char *value)
{
    static const char unit[] = "bytes";
    const char *at = value + sizeof(unit) - 1;

    if (strncasecmp(value, unit, sizeof(unit) - 1) != 0)
        return false;
    return at[strspn(at, " \t=:")] != '*';
}

void answer_kind_header(struct answer_kind *k, const char *name, const char *value)
{
    if (strcasecmp(name, "content-encoding") == 0) {
        add_codings(k, value);
    } else if (strcasecmp(name, "grpc-encoding") == 0 ||
               strcasecmp(name, "connect-content-encoding") == 0) {
        if (unzip_coding_of(value, strlen(value)) != UNZIP_NONE)
            k->coding = UNZIP_OTHER;
    } else if (strcasecmp(name, "content-type") == 0) {
        add_types(k, value);
    } else if (strcasecmp(name, "content-range") == 0 && is_range(value)) {
        k->is_part = true;
    }
}

const char *answer_kind_refusal(const struct answer_kind *k, int status)
{
    static const char parts[] = "multipart/byteranges";

    if (status < 200)
        return NULL;
    if (k->has_types)
        return TYPES_REASON;
    if (k->is_part || status == 206 || status == 226 ||
        (k->type && strncasecmp(k->type, parts, sizeof(parts) - 1) == 0))
        return PART_REASON;
    return NULL;
}
