#include "base/bucket_credentials.h"

#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#define FILE_MAX 8192

/* They stand in a line of curl's own configuration, within quotes, and before a colon. */
static bool is_value(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (text[i] <= ' ' || text[i] > '~' || strchr("\"\\:", text[i]))
            return false;
    return n > 0;
}

static int take(char *out, size_t size, const char *value, size_t n)
{
    if (n >= size || !is_value(value, n))
        return -EINVAL;
    memcpy(out, value, n);
    out[n] = '\0';
    return 0;
}

/* A line, without its end. */
static int take_line(const char *line, size_t n, struct bucket_credentials *out)
{
    size_t name = 0, value;

    while (name < n && !strchr(" \t=", line[name]))
        name++;
    for (value = name; value < n && strchr(" \t=", line[value]);)
        value++;
    while (n > value && strchr(" \t\r", line[n - 1]))
        n--;
    if (name == 17 && memcmp(line, "aws_access_key_id", name) == 0)
        return take(out->key_id, sizeof(out->key_id), line + value, n - value);
    if (name == 21 && memcmp(line, "aws_secret_access_key", name) == 0)
        return take(out->secret, sizeof(out->secret), line + value, n - value);
    if (name == 17 && memcmp(line, "aws_session_token", name) == 0)
        return take(out->token, sizeof(out->token), line + value, n - value);
    return 0;
}

static int take_text(const char *text, struct bucket_credentials *out)
{
    for (size_t n; *text; text += n + (text[n] == '\n')) {
        n = strcspn(text, "\n");
        if (take_line(text, n, out) < 0)
            return -EINVAL;
    }
    return out->key_id[0] && out->secret[0] ? 0 : -EINVAL;
}

/* With a right to read it any user of the host could read every tenant's archives. */
static const char *refuse_file(int fd)
{
    struct stat st;

    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return "it is no file";
    if (st.st_uid != 0)
        return "it is not root's: chown it to root";
    return st.st_mode & 077 ? "others than root have rights on it: chmod it to 600" : NULL;
}

int bucket_credentials_read(const char *path, struct bucket_credentials *out, const char **why)
{
    CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    char text[FILE_MAX];
    size_t have = 0;

    *out = (struct bucket_credentials){.key_id = ""};
    *why = fd < 0 ? strerror(errno) : refuse_file(fd);
    if (*why)
        return -EACCES;
    for (ssize_t n = 1; n != 0 && have < sizeof(text) - 1; have += (size_t)n) {
        n = io_read_some(fd, text + have, sizeof(text) - 1 - have);
        if (n < 0) {
            *why = strerror((int)-n);
            return (int)n;
        }
    }
    text[have] = '\0';
    int rc = take_text(text, out);
    explicit_bzero(text, sizeof(text));
    *why = "aws_access_key_id and aws_secret_access_key are needed in it, each as NAME = VALUE, "
           "without quotes";
    return rc;
}
