#define _GNU_SOURCE
#include "CPlimsollProcess.h"

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

// As in CPlimsollMemory's kernel.h: PLIMSOLL_INERT compiles on Linux what other systems get.
#if defined(__linux__) && !defined(PLIMSOLL_INERT)
#define PLIMSOLL_LINUX 1
#include <sys/prctl.h>
#endif

struct start {
    void (*body)(void *);
    void *context;
    char name[16];
};

static void *thread_main(void *argument) {
    struct start start = *(struct start *)argument;
    free(argument);
#ifdef __APPLE__
    pthread_setname_np(start.name);
#else
    pthread_setname_np(pthread_self(), start.name);
#endif
    start.body(start.context);
    return NULL;
}

int plimsoll_thread_start(const char *name, void (*body)(void *), void *context) {
    struct start *start = calloc(1, sizeof *start);
    if (!start) return ENOMEM;
    start->body = body;
    start->context = context;
    for (size_t i = 0; i < sizeof start->name - 1 && name[i]; i++) start->name[i] = name[i];

    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_t thread;
    int result = pthread_create(&thread, &attributes, thread_main, start);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    if (result) free(start);
    return result;
}

uintptr_t plimsoll_thread_id(void) { return (uintptr_t)pthread_self(); }

struct plimsoll_parker {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool token;
};

plimsoll_parker *plimsoll_parker_make(void) {
    plimsoll_parker *parker = calloc(1, sizeof *parker);
    if (!parker) abort();
    pthread_mutex_init(&parker->mutex, NULL);
#ifdef __APPLE__
    pthread_cond_init(&parker->changed, NULL);
#else
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&parker->changed, &attributes);
    pthread_condattr_destroy(&attributes);
#endif
    return parker;
}

void plimsoll_parker_free(plimsoll_parker *parker) {
    pthread_cond_destroy(&parker->changed);
    pthread_mutex_destroy(&parker->mutex);
    free(parker);
}

/// Waits until `until` on the monotonic clock. Returns 0 or an errno.
static int wait_until(plimsoll_parker *parker, const struct timespec *until) {
#ifdef __APPLE__
    // Conditions of macOS take the time of day or a length of time.
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    struct timespec rest = {.tv_sec = until->tv_sec - now.tv_sec, .tv_nsec = until->tv_nsec - now.tv_nsec};
    if (rest.tv_nsec < 0) {
        rest.tv_sec -= 1;
        rest.tv_nsec += 1000000000;
    }
    if (rest.tv_sec < 0) return ETIMEDOUT;
    return pthread_cond_timedwait_relative_np(&parker->changed, &parker->mutex, &rest);
#else
    return pthread_cond_timedwait(&parker->changed, &parker->mutex, until);
#endif
}

bool plimsoll_park(plimsoll_parker *parker, int64_t nanoseconds) {
    struct timespec until;
    if (nanoseconds >= 0) {
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += nanoseconds / 1000000000;
        until.tv_nsec += nanoseconds % 1000000000;
        if (until.tv_nsec >= 1000000000) {
            until.tv_sec += 1;
            until.tv_nsec -= 1000000000;
        }
    }
    pthread_mutex_lock(&parker->mutex);
    int result = 0;
    while (!parker->token && result == 0)
        result = nanoseconds < 0 ? pthread_cond_wait(&parker->changed, &parker->mutex) : wait_until(parker, &until);
    bool unparked = parker->token;
    parker->token = false;
    pthread_mutex_unlock(&parker->mutex);
    return unparked;
}

void plimsoll_unpark(plimsoll_parker *parker) {
    pthread_mutex_lock(&parker->mutex);
    parker->token = true;
    pthread_cond_signal(&parker->changed);
    pthread_mutex_unlock(&parker->mutex);
}

int64_t plimsoll_wall_clock(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

void plimsoll_exit(int status, const char *line, size_t length) {
    // A signal would interrupt the line or end the process with another status.
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    while (length > 0) {
        // A pipe may be full while nobody reads. A piece of this length does not block once there is room.
        struct pollfd output = {.fd = STDERR_FILENO, .events = POLLOUT};
        if (poll(&output, 1, 100) <= 0 || output.revents != POLLOUT) break;
        ssize_t written = write(STDERR_FILENO, line, length < PIPE_BUF ? length : PIPE_BUF);
        if (written <= 0) break;
        line += written;
        length -= (size_t)written;
    }
    _exit(status);
}

#ifdef PLIMSOLL_LINUX
int plimsoll_set_dumpable(bool dumpable) { return prctl(PR_SET_DUMPABLE, dumpable ? 1 : 0, 0, 0, 0) ? errno : 0; }
bool plimsoll_is_dumpable(void) { return prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) == 1; }
#else
int plimsoll_set_dumpable(bool dumpable) { return (void)dumpable, ENOTSUP; }
bool plimsoll_is_dumpable(void) { return true; }
#endif
bool plimsoll_is_address(const char *text, bool is_version_6) {
    unsigned char address[16];
    return inet_pton(is_version_6 ? AF_INET6 : AF_INET, text, address) == 1;
}

int32_t plimsoll_process_id(void) { return getpid(); }
const char *plimsoll_environment(const char *name) { return getenv(name); }

void plimsoll_yield(void) { (void)sched_yield(); }

int plimsoll_processor_count(void) {
#ifdef PLIMSOLL_LINUX
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) return CPU_COUNT(&set);
#endif
    long count = sysconf(_SC_NPROCESSORS_ONLN);
    return count > 0 ? (int)count : 1;
}
