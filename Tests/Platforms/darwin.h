// Declarations of macOS that other C libraries lack, for a check of the syntax without an SDK.
#ifndef PLIMSOLL_DARWIN_H
#define PLIMSOLL_DARWIN_H

#include <pthread.h>
#include <time.h>

int pthread_setname_np(const char *name);
int pthread_cond_timedwait_relative_np(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);

#endif
