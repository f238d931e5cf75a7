#include "keep/command.h"

#include "base/log.h"
#include "base/util.h"
#include "contract/keep.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* How many texts and arguments there are follows from the code below: an array that is too short is
 * its mistake. */
NORETURN static void too_many(const char *of_what)
{
    log_error("a command has more %s than command.h has places for", of_what);
    abort();
}

PRINTF(2, 3) static char *text(struct commands *c, const char *fmt, ...)
{
    char *out;
    va_list ap;

    if (c->n_texts == ARRAY_SIZE(c->texts))
        too_many("texts");
    out = c->texts[c->n_texts++];
    va_start(ap, fmt);
    (void)vsnprintf(out, COMMAND_TEXT_SIZE, fmt, ap);
    va_end(ap);
    return out;
}

static void add(struct command *c, char *argument)
{
    if (c->n + 1 == ARRAY_SIZE(c->argv)) /* the last stays NULL */
        too_many("arguments");
    c->argv[c->n++] = argument;
}

static void add_args(struct command *c, const char *const *args, size_t n)
{
    for (size_t i = 0; i < n; i++)
        add(c, (char *)(uintptr_t)args[i]);
}

static char *program(struct commands *c, const struct options *o, const char *given,
                     const char *name)
{
    return given ? text(c, "%s", given) : text(c, "%s/%s", o->program_dir, name);
}

static void make_privd(struct commands *c, const struct options *o, const struct prepared *p)
{
    struct command *out = &c->privd;

    add(out, program(c, o, o->privd, "cay-privd"));
    add(out, text(c, "--ready-fd=%d", KEEP_READY_FD));
    add(out, text(c, "--state-dir=%s/privd", o->state_dir));
    add(out, text(c, "--run-dir=%s", o->run_dir));
    add(out, text(c, "--agent=%s", program(c, o, o->agent, "cay-init")));
    add(out, text(c, "--job=%s", program(c, o, o->job, "cay-job")));
    add(out, text(c, "--peer-uid=%u", p->uid));
    if (o->egress_processes > 0) {
        add(out, text(c, "--egress-uid=%u", p->egress_uid));
        add(out, text(c, "--egress-processes=%d", (int)o->egress_processes));
    }
    add_args(out, o->privd_args, o->n_privd_args);
}

static void make_cayd(struct commands *c, const struct options *o, const struct prepared *p)
{
    struct command *out = &c->cayd;

    add(out, program(c, o, o->cayd, "cayd"));
    add(out, text(c, "--listen-fd=%d", KEEP_LISTEN_FD));
    if (p->listen_second_fd >= 0)
        add(out, text(c, "--listen-fd=%d", KEEP_SECOND_FD));
    add(out, text(c, "--ready-fd=%d", KEEP_READY_FD));
    add(out, text(c, "--privd=%s/privd.sock", o->run_dir));
    add(out, text(c, "--state-dir=%s/cayd", o->state_dir));
    if (o->egress_processes > 0) {
        add(out, text(c, "--egress-dir=%s", o->run_dir));
        add(out, text(c, "--egress-processes=%d", (int)o->egress_processes));
    }
    if (o->tls_cert) {
        add(out, text(c, "--tls-cert-fd=%d", KEEP_TLS_CERT_FD));
        add(out, text(c, "--tls-key-fd=%d", KEEP_TLS_KEY_FD));
    }
    add_args(out, o->cayd_args, o->n_cayd_args);
}

static void make_egress(struct commands *c, const struct options *o, const struct prepared *p,
                        int i)
{
    struct command *out = &c->egress[i];

    add(out, program(c, o, o->egress, "cay-egress"));
    add(out, text(c, "--listen-fd=%d", KEEP_LISTEN_FD));
    add(out, text(c, "--ready-fd=%d", KEEP_READY_FD));
    add(out, text(c, "--privd=%s/egress-%d.sock", o->run_dir, i));
    add(out, text(c, "--state-dir=%s/egress", o->state_dir));
    add(out, text(c, "--peer-uid=%u", p->uid));
    add(out, text(c, "--shard=%d/%d", i, (int)o->egress_processes));
    if (o->egress_key_file)
        add(out, text(c, "--seal-key-fd=%d", KEEP_SEAL_KEY_FD));
    add_args(out, o->egress_args, o->n_egress_args);
}

void command_make_all(const struct options *o, const struct prepared *p, struct commands *out)
{
    *out = (struct commands){.n_texts = 0};
    make_privd(out, o, p);
    make_cayd(out, o, p);
    for (int i = 0; i < o->egress_processes; i++)
        make_egress(out, o, p, i);
}
