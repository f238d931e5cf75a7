/* In the place of a program that the file REAL is: stops itself, where the file STOP is there, so
 * that a tracer can come, and becomes that program (crash_programs.py). With SCRIPT it gives CRIU
 * that file instead of the action script it was told of; the file, compiled without REAL, becomes
 * that script. */

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define REPLACED "CAY_TEST_SCRIPT"

#ifdef SCRIPT
static void replace_script(char **argv)
{
    for (; *argv; argv++)
        if (strcmp(*argv, "--action-script") == 0 && argv[1]) {
            setenv(REPLACED, argv[1], 1);
            argv[1] = SCRIPT;
        }
}
#endif

int main(int argc, char **argv)
{
    (void)argc;
    if (access(STOP, F_OK) == 0)
        raise(SIGSTOP);
#ifdef SCRIPT
    replace_script(argv);
#endif
#ifdef REAL
    execv(REAL, argv);
#else
    argv[0] = getenv(REPLACED);
    if (argv[0])
        execv(argv[0], argv);
#endif
    return 127;
}
