#include "checkpoint/words.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MOUNTINFO_LINE 1024

int words_add(struct words *w, const char *format, ...)
{
    va_list args;

    if (w->n == WORDS_MAX)
        return -E2BIG;
    va_start(args, format);
    int n = vsnprintf(w->text[w->n], WORD_SIZE, format, args);
    va_end(args);
    if (n < 0 || n >= WORD_SIZE)
        return -ENAMETOOLONG;
    w->argv[w->n] = w->text[w->n];
    w->argv[++w->n] = NULL;
    return 0;
}

int words_add_all(struct words *w, const char *const *words, size_t n)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = words_add(w, "%s", words[i]);
    return rc;
}

/* "36 35 0:22 /root /at opts - type source": without spaces in a path, as the kernel escapes
 * them. */
bool words_mount(const char *line, const char *root, char path[static WORD_PATH])
{
    char type[32], at[WORD_PATH + 16];
    const char *rest = strstr(line, " - ");
    size_t n = strlen(root);

    if (!rest || sscanf(line, "%*d %*d %*s %*s %79s", at) != 1 ||
        sscanf(rest, " - %31s", type) != 1 || strncmp(at, root, n) != 0 || at[n] != '/' ||
        at[n + 1] == '\0' || strlen(at + n) >= WORD_PATH)
        return false;
    memcpy(path, at + n, strlen(at + n) + 1);
    return strcmp(type, "devpts") != 0 && strcmp(type, "proc") != 0;
}

int words_add_mounts(struct words *w, const char *mountinfo, const char *root)
{
    char line[MOUNTINFO_LINE], path[WORD_PATH];
    int rc = 0;

    FILE *in = fopen(mountinfo, "re");
    if (!in)
        return -errno;
    while (rc == 0 && fgets(line, sizeof(line), in)) {
        if (!words_mount(line, root, path))
            continue;
        rc = words_add(w, "--external");
        if (rc == 0)
            rc = words_add(w, "mnt[%s]:%s%s", path, root, path);
    }
    fclose(in);
    return rc;
}
