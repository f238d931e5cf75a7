#include "base/signal_names.h"

#include "base/util.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *words, *name;
} table[] = {
    [SIGHUP] = {"hangup", "SIGHUP"},
    [SIGINT] = {"interrupt", "SIGINT"},
    [SIGQUIT] = {"quit", "SIGQUIT"},
    [SIGILL] = {"illegal instruction", "SIGILL"},
    [SIGTRAP] = {"trace/breakpoint trap", "SIGTRAP"},
    [SIGABRT] = {"aborted", "SIGABRT"},
    [SIGBUS] = {"bus error", "SIGBUS"},
    [SIGFPE] = {"floating point exception", "SIGFPE"},
    [SIGKILL] = {"killed", "SIGKILL"},
    [SIGUSR1] = {"user defined signal 1", "SIGUSR1"},
    [SIGSEGV] = {"segmentation fault", "SIGSEGV"},
    [SIGUSR2] = {"user defined signal 2", "SIGUSR2"},
    [SIGPIPE] = {"broken pipe", "SIGPIPE"},
    [SIGALRM] = {"alarm clock", "SIGALRM"},
    [SIGTERM] = {"terminated", "SIGTERM"},
};

const char *signal_names_words(int number)
{
    return number > 0 && (size_t)number < ARRAY_SIZE(table) ? table[number].words : NULL;
}

const char *signal_names_name(int number)
{
    return number > 0 && (size_t)number < ARRAY_SIZE(table) ? table[number].name : NULL;
}

int signal_names_number(const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(table); i++)
        if (table[i].name && strcmp(table[i].name, name) == 0)
            return (int)i;
    return 0;
}

const char *signal_names_split(const char *status, size_t *n)
{
    static const char prefix[] = "signal: ";

    if (strncmp(status, prefix, strlen(prefix)) != 0)
        return NULL;
    status += strlen(prefix);
    *n = strcspn(status, "(");
    *n -= *n > 0 && status[*n] == '(' && status[*n - 1] == ' ';
    return status;
}

int signal_names_from_words(const char *words, size_t n)
{
    char text[32];
    int number = 0, used = 0;

    for (size_t i = 0; i < ARRAY_SIZE(table); i++)
        if (table[i].words && strlen(table[i].words) == n && strncmp(table[i].words, words, n) == 0)
            return (int)i;
    snprintf(text, sizeof(text), "%.*s", (int)MIN(n, sizeof(text) - 1), words);
    if (sscanf(text, "signal %3d%n", &number, &used) != 1 || text[used])
        return 0;
    return number > 0 && number < NSIG ? number : 0;
}
