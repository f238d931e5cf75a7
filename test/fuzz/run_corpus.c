/* Runs a fuzz target over the files of its corpus, as a plain test: run_corpus DIRECTORY. Every file
 * also runs cut short at each of its bytes (small files) and with each byte changed, which costs
 * little and is deterministic. */
#include <dirent.h>
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

static int run_file(const char *dir, const char *name)
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
    if (size <= MAX_VARIED)
        run_varied(data, size);
    return 0;
}

int main(int argc, char **argv)
{
    struct dirent *entry;
    int files = 0;
    DIR *d = argc > 1 ? opendir(argv[1]) : NULL;

    if (!d) {
        fprintf(stderr, "no corpus at %s\n", argc > 1 ? argv[1] : "(nothing)");
        return 1;
    }
    while ((entry = readdir(d)))
        if (entry->d_name[0] != '.' && run_file(argv[1], entry->d_name) == 0)
            files++;
    closedir(d);
    printf("%d files\n", files);
    return files > 0 ? 0 : 1;
}
