/* Where packages of a build come from: the host's own apt sources, as far as they are of the
 * suite that is built. base.c calls sources_suite, then sources_collect into a directory of the
 * build's, and at the end sources_put, which writes Debian's public servers into the template:
 * the host's mirrors may carry names or credentials. Both forms of apt's files are read line by
 * line within fixed sizes; a line or stanza that is longer, or of another suite, is left out. */

#include "job/sources.h"

#include "base/io.h"
#include "job/tree.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>

#define LINE_MAX_BYTES   4096
#define STANZA_MAX_BYTES 16384
#define FALLBACK_SUITE   "bookworm"

void sources_suite(char *out, size_t size)
{
    FILE *f = fopen("/usr/lib/os-release", "re");
    char line[256], name[64] = "";
    bool debian = false;

    while (f && fgets(line, sizeof(line), f)) {
        line[strcspn(line, "\n")] = '\0';
        debian = debian || strcmp(line, "ID=debian") == 0;
        if (strncmp(line, "VERSION_CODENAME=", 17) == 0)
            snprintf(name, sizeof(name), "%.63s", line + 17);
    }
    if (f)
        fclose(f);
    snprintf(out, size, "%s", debian && name[0] ? name : FALLBACK_SUITE);
}

int sources_put(void)
{
    char text[512], suite[64];

    sources_suite(suite, sizeof(suite));
    snprintf(text, sizeof(text),
             "deb http://deb.debian.org/debian %s main\n"
             "deb http://deb.debian.org/debian %s-updates main\n"
             "deb http://deb.debian.org/debian-security %s-security main\n",
             suite, suite, suite);
    return tree_put_text("etc/apt/sources.list", 0644, text);
}

/* "bookworm", "bookworm-updates", "bookworm-security"; not "cloud-sdk-bookworm". */
static bool is_of_suite(const char *word, size_t n, const char *suite)
{
    size_t len = strlen(suite);

    return n >= len && strncmp(word, suite, len) == 0 && (n == len || word[len] == '-');
}

static bool has_word_of_suite(const char *text, const char *suite)
{
    while (*text && *text != '\n') {
        size_t n;

        text += strspn(text, " \t");
        n = strcspn(text, " \t\n");
        if (n > 0 && is_of_suite(text, n, suite))
            return true;
        text += n;
    }
    return false;
}

/* -- one-line form: deb [options] URI SUITE COMPONENTS ----------------------------------------- */

static bool keep_line(const char *line, const char *suite)
{
    const char *p = line + strspn(line, " \t");

    if (strncmp(p, "deb ", 4) != 0 && strncmp(p, "deb\t", 4) != 0)
        return false;
    p += 4;
    p += strspn(p, " \t");
    if (*p == '[') {
        p = strchr(p, ']');
        if (!p)
            return false;
        p++;
        p += strspn(p, " \t");
    }
    p += strcspn(p, " \t\n"); /* the URI */
    p += strspn(p, " \t");
    return is_of_suite(p, strcspn(p, " \t\n"), suite);
}

static int filter_list(FILE *in, FILE *out, const char *suite)
{
    char line[LINE_MAX_BYTES];
    int kept = 0;

    while (fgets(line, sizeof(line), in)) {
        if (keep_line(line, suite)) {
            fputs(line, out);
            kept++;
        }
    }
    return kept;
}

/* -- deb822: stanzas between empty lines ------------------------------------------------------- */

static bool keep_stanza(const char *stanza, const char *suite)
{
    bool wanted = false;

    for (const char *line = stanza; line && *line;
         line = strchr(line, '\n'), line += line != NULL) {
        if (strncasecmp(line, "Suites:", 7) == 0)
            wanted = has_word_of_suite(line + 7, suite);
        if (strncasecmp(line, "Enabled:", 8) == 0 &&
            strncasecmp(line + 8 + strspn(line + 8, " \t"), "no", 2) == 0)
            return false;
    }
    return wanted;
}

static int end_stanza(char *stanza, size_t *len, FILE *out, const char *suite)
{
    int kept = 0;

    stanza[*len] = '\0';
    if (*len > 0 && keep_stanza(stanza, suite)) {
        fputs(stanza, out);
        fputc('\n', out);
        kept = 1;
    }
    *len = 0;
    return kept;
}

static int filter_deb822(FILE *in, FILE *out, const char *suite)
{
    char line[LINE_MAX_BYTES], stanza[STANZA_MAX_BYTES];
    size_t len = 0;
    int kept = 0;

    while (fgets(line, sizeof(line), in)) {
        size_t n = strlen(line);

        if (line[strspn(line, " \t\n")] == '\0')
            kept += end_stanza(stanza, &len, out, suite);
        else if (line[0] != '#' && len + n < sizeof(stanza)) {
            memcpy(stanza + len, line, n);
            len += n;
        }
    }
    return kept + end_stanza(stanza, &len, out, suite);
}

/* -- files ------------------------------------------------------------------------------------- */

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);

    return n > m && strcmp(name + n - m, end) == 0;
}

static int filter_file(const char *from, const char *to, const char *suite)
{
    FILE *in = fopen(from, "re"), *out = in ? fopen(to, "we") : NULL;
    int kept = 0;

    if (in && out)
        kept = ends_with(from, ".sources") ? filter_deb822(in, out, suite)
                                           : filter_list(in, out, suite);
    if (in)
        fclose(in);
    if (out)
        fclose(out);
    if (out && kept == 0)
        (void)remove(to);
    return kept;
}

static void take_file(const char *from, const char *suite, const char *dir, int *n)
{
    char to[512];

    snprintf(to, sizeof(to), "%s/%d%s", dir, *n + 1,
             ends_with(from, ".sources") ? ".sources" : ".list");
    if (filter_file(from, to, suite) > 0)
        (*n)++;
}

struct collect {
    const char *suite, *apt_dir, *dir;
    int n;
};

static bool collect_name(void *arg, const char *name)
{
    struct collect *c = arg;
    char path[512];

    if (!ends_with(name, ".list") && !ends_with(name, ".sources"))
        return true;
    snprintf(path, sizeof(path), "%s/sources.list.d/%s", c->apt_dir, name);
    take_file(path, c->suite, c->dir, &c->n);
    return true;
}

int sources_collect(const char *suite, const char *apt_dir, const char *dir)
{
    struct collect c = {suite, apt_dir, dir, 0};
    char path[512];

    snprintf(path, sizeof(path), "%s/sources.list", apt_dir);
    take_file(path, suite, dir, &c.n);
    snprintf(path, sizeof(path), "%s/sources.list.d", apt_dir);
    (void)io_each_name_at(AT_FDCWD, path, collect_name, &c); /* it need not be there */
    return c.n;
}
