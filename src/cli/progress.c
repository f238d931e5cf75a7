/* The line on standard error that shows how far a transfer is, drawn anew at most ten times a
 * second; nothing without a terminal, with --json or --quiet. */

#include "base/clock.h"
#include "cli/commands.h"
#include "cli/terminal.h"

#define SHOW_EVERY_US 100000
#define BAR_WIDTH     30

void progress_begin(struct progress *p, const struct cli *c, const char *name, uint64_t total_bytes)
{
    *p = (struct progress){.name = name, .total_bytes = total_bytes, .begun_us = clock_mono_us()};
    p->on = isatty(STDERR_FILENO) && !c->json && !cli_flag(c, "quiet");
}

static void show(const struct progress *p, uint64_t done)
{
    char bar[BAR_WIDTH + 1], amount[32], rate[32];
    uint64_t us = MAX(clock_mono_us() - p->begun_us, 1u);
    unsigned filled = 0;

    if (p->total_bytes)
        filled = (unsigned)(MIN(done, p->total_bytes) * BAR_WIDTH / p->total_bytes);
    for (unsigned i = 0; i < BAR_WIDTH; i++)
        bar[i] = i < filled ? '#' : '-';
    bar[BAR_WIDTH] = '\0';
    table_bytes(done, amount, sizeof(amount));
    table_bytes((uint64_t)((double)done * 1e6 / (double)us), rate, sizeof(rate));
    terminal_control(stderr, "\r");
    if (p->total_bytes)
        fprintf(stderr, "%.40s [%s] %3u%% %s %s/s", p->name, bar,
                (unsigned)(MIN(done, p->total_bytes) * 100 / p->total_bytes), amount, rate);
    else
        fprintf(stderr, "%.40s %s %s/s", p->name, amount, rate);
    terminal_control(stderr, "\033[K");
}

void progress_step(struct progress *p, uint64_t done_bytes)
{
    uint64_t now = clock_mono_us();

    if (!p->on || now - p->shown_us < SHOW_EVERY_US)
        return;
    p->shown_us = now;
    show(p, done_bytes);
}

void progress_end(struct progress *p, uint64_t done_bytes)
{
    if (!p->on)
        return;
    show(p, done_bytes);
    fputc('\n', stderr);
}
