/* In the place of a program that the file REAL is: stops itself, where the file STOP is there, so
 * that a tracer can come, and becomes that program (crash_programs.py). */

#include <signal.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    (void)argc;
    if (access(STOP, F_OK) == 0)
        raise(SIGSTOP);
    execv(REAL, argv);
    return 127;
}
