/* States of the reader: before the first boundary, behind a boundary, in a part's head, in its
 * contents, after the last boundary. multipart_feed takes whatever has come and goes on exactly
 * there; a delimiter that may have begun at the end of what came is held back (at most its own
 * length) and becomes contents if it was none. Callbacks come in order: part, data any number
 * of times, end of the part. An error is final. */

#include "http/multipart.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <strings.h>

#include "http/gate.h"

#define MAX_BOUNDARY  70u
#define MAX_PART_HEAD 8192u

enum state {
    PREAMBLE, /* before the first boundary */
    DATA,     /* contents of a part */
    AFTER,    /* right behind a boundary */
    DASH,     /* behind a boundary and one '-' */
    PADDING,  /* white space behind a boundary */
    BOUNDARY_LF,
    HEAD,
    EPILOGUE, /* the closing boundary was seen; the rest is ignored */
    FAILED
};

struct multipart {
    struct multipart_callbacks cb;
    void *arg;
    size_t parts_left;
    enum state state;
    bool in_part;
    /* CR LF "--" boundary. CR is in it only at its start, so that after a mismatch a new match can
     * begin only at the byte that did not fit: the scan is linear without any table. */
    char delimiter[4 + MAX_BOUNDARY];
    size_t delimiter_len;
    size_t matched; /* bytes of the delimiter seen at the end of the last feed */
    struct buf head;
};

/* -- parameters of a header value -------------------------------------------------------------- */

/* Reads a `; name=value` at *p, unquoted into out. 1 found, 0 at the end, -EINVAL. */
static int next_param(const char **p, const char **name, size_t *name_len, char *out, size_t size)
{
    const char *s = *p + strspn(*p, "; \t");
    size_t len = 0;

    if (*s == '\0')
        return 0;
    *name = s;
    while (gate_is_token((unsigned char)*s))
        s++;
    *name_len = (size_t)(s - *name);
    if (*name_len == 0 || *s++ != '=')
        return -EINVAL;
    if (*s == '"') {
        for (s++; *s != '"'; s++) {
            /* Only what must be escaped is: others send the names of Windows' paths as they are. */
            if (*s == '\\' && (s[1] == '"' || s[1] == '\\'))
                s++;
            if (*s == '\0' || len + 1 >= size)
                return -EINVAL;
            out[len++] = *s;
        }
        s++;
    } else {
        for (; gate_is_token((unsigned char)*s); s++) {
            if (len + 1 >= size)
                return -EINVAL;
            out[len++] = *s;
        }
        if (len == 0)
            return -EINVAL;
    }
    out[len] = '\0';
    if (*s != '\0' && *s != ';' && *s != ' ' && *s != '\t')
        return -EINVAL;
    *p = s;
    return 1;
}

/* Undoes, in place, browsers' escapes in quoted names (HTML, multipart/form-data encoding). */
static void unescape_html(char *s)
{
    char *to = s;

    while (*s) {
        bool quote = strncasecmp(s, "%22", 3) == 0, cr = strncasecmp(s, "%0d", 3) == 0;
        bool lf = strncasecmp(s, "%0a", 3) == 0;

        if (quote || cr || lf) {
            *to++ = quote ? '"' : cr ? '\r' : '\n';
            s += 3;
        } else {
            *to++ = *s++;
        }
    }
    *to = '\0';
}

/* UTF-8''percent-encoded (RFC 8187). In place; false when it is something else. */
static bool decode_extended(char *s)
{
    char *lang, *text;

    if (strncasecmp(s, "utf-8'", 6) != 0)
        return false;
    lang = s + 6;
    text = strchr(lang, '\'');
    if (!text)
        return false;
    text++;
    return http_percent_decode(text, strlen(text), false, s, strlen(text) + 1) >= 0;
}

static bool name_is(const char *name, size_t n, const char *want)
{
    return strlen(want) == n && strncasecmp(name, want, n) == 0;
}

/* -- a part's head ----------------------------------------------------------------------------- */

struct fields {
    char name[1024], filename[MAX_PART_HEAD + 1], type[256], value[MAX_PART_HEAD + 1];
    bool has_filename, extended;
};

static int on_disposition(struct fields *f, const char *value)
{
    const char *p = value + strcspn(value, "; \t"), *name;
    size_t n;
    int r;

    if (!name_is(value, (size_t)(p - value), "form-data"))
        return -EINVAL;
    while ((r = next_param(&p, &name, &n, f->value, sizeof(f->value))) == 1) {
        if (name_is(name, n, "name")) {
            unescape_html(f->value);
            if (strlen(f->value) >= sizeof(f->name))
                return -EMSGSIZE;
            strncpy(f->name, f->value, sizeof(f->name) - 1);
        } else if (name_is(name, n, "filename") && !f->extended) {
            unescape_html(f->value);
            memcpy(f->filename, f->value, strlen(f->value) + 1);
            f->has_filename = true;
        } else if (name_is(name, n, "filename*")) {
            if (!decode_extended(f->value))
                return -EINVAL;
            memcpy(f->filename, f->value, strlen(f->value) + 1);
            f->has_filename = f->extended = true;
        }
    }
    return r;
}

static int on_line(struct fields *f, char *line, char *end)
{
    char *colon = memchr(line, ':', (size_t)(end - line));
    const char *value;

    if (!colon || colon == line)
        return -EINVAL;
    for (const char *p = line; p < colon; p++)
        if (!gate_is_token((unsigned char)*p))
            return -EINVAL;
    for (const char *p = colon + 1; p < end; p++)
        if (!gate_is_value((unsigned char)*p))
            return -EINVAL;
    while (end > colon + 1 && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    *colon = *end = '\0';
    value = colon + 1 + strspn(colon + 1, " \t");
    if (strcasecmp(line, "content-disposition") == 0)
        return on_disposition(f, value);
    if (strcasecmp(line, "content-type") == 0 && strlen(value) < sizeof(f->type))
        memcpy(f->type, value, strlen(value) + 1);
    return 0;
}

static int all_lines(struct fields *f, char *p, char *end)
{
    int r = 0;

    while (p < end && r == 0) {
        char *lf = memchr(p, '\n', (size_t)(end - p));

        if (!lf || lf == p || lf[-1] != '\r')
            return -EINVAL;
        r = on_line(f, p, lf - 1);
        p = lf + 1;
    }
    return r;
}

/* The whole head is there, with its empty line. */
static int on_head(struct multipart *m)
{
    struct fields *f = calloc(1, sizeof(*f));
    struct multipart_part part;
    int r;

    if (!f)
        return -ENOMEM;
    r = all_lines(f, m->head.data, m->head.data + m->head.len - 2);
    if (r == 0 && m->parts_left-- == 0)
        r = -EMSGSIZE;
    if (r == 0) {
        part = (struct multipart_part){f->name, f->has_filename ? f->filename : NULL, f->type};
        m->in_part = true;
        m->state = DATA;
        buf_clear(&m->head);
        r = m->cb.on_part(m->arg, &part);
    }
    free(f);
    return r;
}

/* Takes head bytes up to its empty line; how many, or -errno. */
static ssize_t feed_head(struct multipart *m, const char *p, size_t n)
{
    for (size_t used = 0; used < n;) {
        const char *lf = memchr(p + used, '\n', n - used);
        size_t take = lf ? (size_t)(lf - p) + 1 - used : n - used;
        int r = buf_append(&m->head, p + used, take);

        if (r < 0)
            return r;
        used += take;
        if (lf &&
            (m->head.len == 2 || (m->head.len >= 4 && m->head.data[m->head.len - 3] == '\n')) &&
            m->head.data[m->head.len - 2] == '\r') {
            r = on_head(m);
            return r < 0 ? r : (ssize_t)used;
        }
    }
    return (ssize_t)n;
}

/* -- contents ---------------------------------------------------------------------------------- */

static int emit(struct multipart *m, const char *p, size_t n)
{
    return n > 0 && m->state == DATA ? m->cb.on_data(m->arg, p, n) : 0;
}

static int on_boundary(struct multipart *m)
{
    bool in_part = m->in_part;

    m->matched = 0;
    m->in_part = false;
    m->state = AFTER;
    return in_part ? m->cb.on_part_end(m->arg) : 0;
}

/* Goes on with a delimiter that started at the end of the last feed. Bytes used, or -errno. */
static ssize_t feed_matched(struct multipart *m, const char *p, size_t n)
{
    size_t i = 0, before = m->matched;
    int r;

    while (i < n && m->matched < m->delimiter_len && p[i] == m->delimiter[m->matched]) {
        i++;
        m->matched++;
    }
    if (m->matched == m->delimiter_len) {
        r = on_boundary(m);
        return r < 0 ? r : (ssize_t)i;
    }
    if (i == n)
        return (ssize_t)n;
    m->matched = 0;
    r = emit(m, m->delimiter, before); /* bytes that were held back are contents after all */
    if (r == 0)
        r = emit(m, p, i);
    return r < 0 ? r : (ssize_t)i;
}

/* Contents up to a delimiter or the end of the input. Bytes used, or -errno. */
static ssize_t feed_data(struct multipart *m, const char *p, size_t n)
{
    size_t at = 0, k;
    int r;

    for (;;) {
        const char *cr = memchr(p + at, '\r', n - at);

        if (!cr)
            break;
        at = (size_t)(cr - p);
        for (k = 1; at + k < n && k < m->delimiter_len && p[at + k] == m->delimiter[k]; k++)
            ;
        if (k == m->delimiter_len || at + k == n) {
            r = emit(m, p, at);
            m->matched = k;
            if (r == 0 && k == m->delimiter_len)
                r = on_boundary(m);
            return r < 0 ? r : (ssize_t)(at + k);
        }
        at += k;
    }
    r = emit(m, p, n);
    return r < 0 ? r : (ssize_t)n;
}

/* Takes a byte behind a boundary. */
static int after_boundary(struct multipart *m, char c)
{
    switch (m->state) {
    case AFTER:
        m->state = c == '-' ? DASH : c == '\r' ? BOUNDARY_LF : PADDING;
        return c == '-' || c == '\r' || c == ' ' || c == '\t' ? 0 : -EINVAL;
    case DASH: m->state = EPILOGUE; return c == '-' ? 0 : -EINVAL;
    case PADDING:
        if (c == '\r')
            m->state = BOUNDARY_LF;
        return c == '\r' || c == ' ' || c == '\t' ? 0 : -EINVAL;
    default: m->state = HEAD; return c == '\n' ? 0 : -EINVAL;
    }
}

static ssize_t feed_some(struct multipart *m, const char *p, size_t n)
{
    int r;

    switch (m->state) {
    case PREAMBLE:
    case DATA: return m->matched > 0 ? feed_matched(m, p, n) : feed_data(m, p, n);
    case HEAD: return feed_head(m, p, n);
    case EPILOGUE: return (ssize_t)n;
    default: r = after_boundary(m, *p); return r < 0 ? r : 1;
    }
}

int multipart_feed(struct multipart *m, const char *data, size_t len)
{
    assert(m->state != FAILED);
    while (len > 0) {
        ssize_t used = feed_some(m, data, len);

        if (used < 0) {
            m->state = FAILED;
            return (int)used;
        }
        data += used;
        len -= (size_t)used;
    }
    return 0;
}

/* -- life -------------------------------------------------------------------------------------- */

static bool is_boundary(const char *s)
{
    static const char allowed[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "'()+_,-./:=? ";
    size_t n = strlen(s);

    return n > 0 && n <= MAX_BOUNDARY && strspn(s, allowed) == n && s[n - 1] != ' ';
}

static int find_boundary(const char *content_type, char *out, size_t size)
{
    const char *p = content_type + strcspn(content_type, "; \t"), *name;
    char value[MAX_PART_HEAD];
    bool found = false;
    size_t n;
    int r;

    if (!name_is(content_type, (size_t)(p - content_type), "multipart/form-data"))
        return -EINVAL;
    while ((r = next_param(&p, &name, &n, value, sizeof(value))) == 1) {
        if (!name_is(name, n, "boundary"))
            continue;
        if (found || !is_boundary(value))
            return -EINVAL;
        found = true;
        memcpy(out, value, MIN(strlen(value) + 1, size));
    }
    return r < 0 || !found ? -EINVAL : 0;
}

int multipart_new(const char *content_type, size_t max_parts, const struct multipart_callbacks *cb,
                  void *arg, struct multipart **out)
{
    char boundary[MAX_BOUNDARY + 1];
    struct multipart *m;

    if (find_boundary(content_type, boundary, sizeof(boundary)) < 0)
        return -EINVAL;
    m = calloc(1, sizeof(*m));
    if (!m)
        return -ENOMEM;
    m->cb = *cb;
    m->arg = arg;
    m->parts_left = max_parts;
    memcpy(m->delimiter, "\r\n--", 4);
    memcpy(m->delimiter + 4, boundary, strlen(boundary));
    m->delimiter_len = 4 + strlen(boundary);
    m->matched = 2; /* the message's start counts as a line's start */
    buf_init(&m->head, MAX_PART_HEAD);
    *out = m;
    return 0;
}

bool multipart_complete(const struct multipart *m)
{
    return m->state == EPILOGUE;
}

void multipart_free(struct multipart *m)
{
    if (!m)
        return;
    buf_free(&m->head);
    free(m);
}
