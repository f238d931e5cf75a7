#include "kernels/identity.h"

#include "base/io.h"
#include "base/util.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#define VALUE_SIZE 256
#define ID         "E2B_SANDBOX_ID"

/* A variable of its own, or of the create; text that is no variable is left out. */
static void take(json_t *changed, const char *name, const char *value)
{
    const char *own = getenv(name);

    if (!value || (own && strcmp(own, value) == 0) || setenv(name, value, 1) < 0)
        return;
    (void)json_object_set_new(changed, name, json_string(value)); /* memory is out: as it was */
}

static void take_fact(json_t *changed, int dir_fd, const char *file, const char *name)
{
    char value[VALUE_SIZE];

    if (getenv(name) && io_read_text_at(dir_fd, file, value, sizeof(value)) > 0)
        take(changed, name, value);
}

static json_t *read_given(int dir_fd)
{
    CLEANUP_CLOSE int fd = openat(dir_fd, IDENTITY_GIVEN, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

    return fd < 0 ? NULL : json_loadfd(fd, 0, NULL);
}

/* Whether dir tells of another sandbox than this program's variables do. */
static bool is_another(int dir_fd)
{
    const char *own = getenv(ID);
    char value[VALUE_SIZE];

    return own && io_read_text_at(dir_fd, IDENTITY_FACTS "." ID, value, sizeof(value)) > 0 &&
           strcmp(own, value) != 0;
}

json_t *identity_renew(const char *dir)
{
    CLEANUP_CLOSE int dir_fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    json_t *changed = dir_fd >= 0 && is_another(dir_fd) ? json_object() : NULL;
    json_t *given = changed ? read_given(dir_fd) : NULL, *value;
    const char *name;

    if (!changed)
        return NULL;
    json_object_foreach (given, name, value)
        take(changed, name, json_string_value(value));
    take_fact(changed, dir_fd, IDENTITY_FACTS ".E2B_TEMPLATE_ID", "E2B_TEMPLATE_ID");
    take_fact(changed, dir_fd, IDENTITY_FACTS "." ID, ID);
    json_decref(given);
    return changed;
}
