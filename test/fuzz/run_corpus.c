/* Runs a fuzz target over the files of its corpus, as a plain test: run_corpus [--whole] DIRECTORY.
 * An input that people wrote, which has a name that says what it is, also runs cut short at each
 * of its bytes (small files) and with each byte changed: that costs little and is deterministic.
 * An input that the fuzzer found is named by its SHA-1 and runs as it is; with --whole everything
 * does. */
#include <dirent.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_FILE   (1u << 20)
#define MAX_VARIED 600u /* longer files run only whole */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* In memory of exactly that size, so that a sanitizer sees a read past its end. */
static void run_exact(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size ? size : 1);

    if (!copy)
        abort();
    memcpy(copy, data, size);
    LLVMFuzzerTestOneInput(copy, size);
    free(copy);
}

static void run_varied(uint8_t *data, size_t size)
{
    for (size_t n = 0; n < size; n++)
        run_exact(data, n);
    for (size_t i = 0; i < size; i++) {
        uint8_t kept = data[i];

        data[i] = (uint8_t)(kept ^ (1u << (i % 8)));
        run_exact(data, size);
        data[i] = '\n';
        run_exact(data, size);
        data[i] = kept;
    }
}

static bool was_written(const char *name)
{
    return strlen(name) != 40 || strspn(name, "0123456789abcdef") != 40;
}

static int run_file(const char *dir, const char *name, bool whole)
{
    static uint8_t data[MAX_FILE];
    char path[4096];
    size_t size;
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    f = fopen(path, "rb");
    if (!f)
        return -1;
    size = fread(data, 1, sizeof(data), f);
    fclose(f);
    run_exact(data, size);
    if (!whole && was_written(name) && size <= MAX_VARIED)
        run_varied(data, size);
    return 0;
}

int main(int argc, char **argv)
{
    bool whole = argc > 2 && strcmp(argv[1], "--whole") == 0;
    const char *dir = argc > 1 ? argv[argc - 1] : "";
    struct dirent *entry;
    int files = 0;
    DIR *d = opendir(dir);

    if (!d) {
        fprintf(stderr, "no corpus at '%s'\n", dir);
        return 1;
    }
    while ((entry = readdir(d)))
        if (entry->d_name[0] != '.' && run_file(dir, entry->d_name, whole) == 0)
            files++;
    closedir(d);
    printf("%d files\n", files);
    return files > 0 ? 0 : 1;
}
