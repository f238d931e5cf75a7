/* The whole cost of a program: `spawn COUNT PROGRAM ARGUMENT...` starts it, waits for its end, and
 * prints the microseconds of each time, one per line. Its output goes to standard error. Exit status 1
 * as soon as it ends with another status than 0. */
#include "base/clock.h"

#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

extern char **environ;

static int one(char **argv, const posix_spawn_file_actions_t *actions)
{
    uint64_t start = clock_mono_us();
    int status = 0, r;
    pid_t pid;

    r = posix_spawnp(&pid, argv[0], actions, NULL, argv, environ);
    if (r != 0) {
        fprintf(stderr, "%s: %s\n", argv[0], strerror(r));
        return -1;
    }
    if (waitpid(pid, &status, 0) != pid || status != 0)
        return -1;
    printf("%llu\n", (unsigned long long)(clock_mono_us() - start));
    return 0;
}

int main(int argc, char **argv)
{
    posix_spawn_file_actions_t actions;

    if (argc < 3 || posix_spawn_file_actions_init(&actions) != 0 ||
        posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", 0, 0) != 0 ||
        posix_spawn_file_actions_adddup2(&actions, 2, 1) != 0)
        return 2;
    for (int i = 0; i < atoi(argv[1]); i++)
        if (one(argv + 2, &actions) < 0)
            return 1;
    return 0;
}
