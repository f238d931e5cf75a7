/* lockstorm PROCESSES LOCKS_EACH RANGES_OF_A_FILE DIR: locks ranges of files of its own as fast as so many processes can, until each
 * has so many, and then waits to be killed, ten seconds at most. Exits with the number of processes that were. */

#include "base/util.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROCESSES_MAX 64
#define PATIENCE_S    10

static void storm(const char *dir, int number, long locks, long ranges)
{
    char name[128];
    int fd = -1;

    alarm(60);
    for (long i = 0; i < locks; i++) {
        if (i % ranges == 0) {
            snprintf(name, sizeof(name), "%s/storm-%d-%ld", dir, number, i / ranges);
            fd = open(name, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
        }
        struct flock l = {.l_type = F_WRLCK, .l_start = 2 * (ranges - i % ranges), .l_len = 1};
        if (fd < 0 || fcntl(fd, F_SETLK, &l) < 0)
            break;
    }
    sleep(PATIENCE_S);
}

int main(int argc, char **argv)
{
    int n = argc == 5 ? MIN(atoi(argv[1]), PROCESSES_MAX) : 0, killed = 0, status;
    long locks = argc == 5 ? atol(argv[2]) : 0, ranges = argc == 5 ? MAX(atol(argv[3]), 1) : 1;

    if (n <= 0) {
        fprintf(stderr, "usage: lockstorm PROCESSES LOCKS_EACH RANGES_OF_A_FILE DIR\n");
        return 255;
    }
    for (int i = 0; i < n; i++)
        if (fork() == 0) {
            storm(argv[4], i, locks, ranges);
            _exit(0);
        }
    while (wait(&status) > 0)
        killed += WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    return killed;
}
