#include "core/store_checkpoint.h"

#include "base/log.h"
#include "base/util.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <string.h>

#define STACK_BYTES (256u * 1024u)

struct store_checkpoint {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake, idle;
    bool requested, stop, busy;
    char *path;
};

static void checkpoint(sqlite3 *db)
{
    int rc = sqlite3_wal_checkpoint_v2(db, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);

    if (rc != SQLITE_OK && rc != SQLITE_BUSY)
        log_warn("store: moving the log into the file: %s", sqlite3_errmsg(db));
}

/* Waits to be asked. false: stop. */
static bool wait_for_work(struct store_checkpoint *cp)
{
    bool go_on;

    pthread_mutex_lock(&cp->lock);
    while (!cp->requested && !cp->stop)
        pthread_cond_wait(&cp->wake, &cp->lock);
    cp->requested = false;
    go_on = cp->busy = !cp->stop;
    pthread_mutex_unlock(&cp->lock);
    return go_on;
}

static void is_idle(struct store_checkpoint *cp)
{
    pthread_mutex_lock(&cp->lock);
    cp->busy = false;
    pthread_cond_signal(&cp->idle);
    pthread_mutex_unlock(&cp->lock);
}

static void *run(void *arg)
{
    struct store_checkpoint *cp = arg;
    sqlite3 *db = NULL;

    if (sqlite3_open_v2(cp->path, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL) !=
        SQLITE_OK)
        log_error("store: the checkpoint thread cannot open %s: %s", cp->path, sqlite3_errmsg(db));
    else
        sqlite3_exec(db, "PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = 0", NULL, NULL,
                     NULL);
    while (wait_for_work(cp)) {
        checkpoint(db);
        is_idle(cp);
    }
    sqlite3_close(db);
    return NULL;
}

/* The loop's signals are not this thread's. */
static int start_thread(struct store_checkpoint *cp)
{
    pthread_attr_t attr;
    sigset_t all, before;
    int rc;

    sigfillset(&all);
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&cp->thread, &attr, run, cp);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return -rc;
}

int store_checkpoint_start(const char *path, struct store_checkpoint **out)
{
    struct store_checkpoint *cp = calloc(1, sizeof(*cp));
    int rc = -ENOMEM;

    if (!cp)
        return -ENOMEM;
    pthread_mutex_init(&cp->lock, NULL);
    pthread_cond_init(&cp->wake, NULL);
    pthread_cond_init(&cp->idle, NULL);
    cp->path = strdup(path);
    if (cp->path)
        rc = start_thread(cp);
    if (rc < 0) {
        free(cp->path);
        free(cp);
        return rc;
    }
    *out = cp;
    return 0;
}

void store_checkpoint_request(struct store_checkpoint *cp)
{
    pthread_mutex_lock(&cp->lock);
    cp->requested = true;
    pthread_cond_signal(&cp->wake);
    pthread_mutex_unlock(&cp->lock);
}

void store_checkpoint_wait(struct store_checkpoint *cp)
{
    pthread_mutex_lock(&cp->lock);
    while (cp->busy)
        pthread_cond_wait(&cp->idle, &cp->lock);
    pthread_mutex_unlock(&cp->lock);
}

void store_checkpoint_stop(struct store_checkpoint *cp)
{
    if (!cp)
        return;
    pthread_mutex_lock(&cp->lock);
    cp->stop = true;
    pthread_cond_signal(&cp->wake);
    pthread_mutex_unlock(&cp->lock);
    pthread_join(cp->thread, NULL);
    pthread_cond_destroy(&cp->wake);
    pthread_cond_destroy(&cp->idle);
    pthread_mutex_destroy(&cp->lock);
    free(cp->path);
    free(cp);
}
