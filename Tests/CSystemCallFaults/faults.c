#define _GNU_SOURCE
#include "CSystemCallFaults.h"

#include <sys/prctl.h>

bool become_subreaper(void) { return prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0; }

// A sanitizer has calls of its own in front of these.
#if defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif

#ifdef SANITIZED

bool faults_work(void) { return false; }
void faults_begin(long nth, int number, bool sticky) { (void)nth, (void)number, (void)sticky; }
bool faults_end(void) { return false; }

#else

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

// Zero for none. A process that this thread starts has copies, and fails on.
static _Thread_local long failing, calls;
static _Thread_local int failure;
static _Thread_local bool is_sticky;

bool faults_work(void) { return true; }

void faults_begin(long nth, int number, bool sticky) { calls = 0, failure = number, is_sticky = sticky, failing = nth; }

bool faults_end(void) {
    bool reached = failing > 0 && calls >= failing;
    failing = 0;
    return reached;
}

static bool fails(void) {
    if (failing == 0) return false;
    calls++;
    if (calls != failing && !(is_sticky && calls > failing)) return false;
    errno = failure;
    return true;
}

static mode_t mode_of(int flags, va_list arguments) { return flags & (O_CREAT | O_TMPFILE) ? (mode_t)va_arg(arguments, int) : 0; }

int openat(int directory, const char *path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = mode_of(flags, arguments);
    va_end(arguments);
    return fails() ? -1 : (int)syscall(SYS_openat, directory, path, flags, mode);
}

int open(const char *path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = mode_of(flags, arguments);
    va_end(arguments);
    return fails() ? -1 : (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

ssize_t read(int file, void *buffer, size_t size) { return fails() ? -1 : syscall(SYS_read, file, buffer, size); }
ssize_t write(int file, const void *buffer, size_t size) { return fails() ? -1 : syscall(SYS_write, file, buffer, size); }
int mkdir(const char *path, mode_t mode) { return fails() ? -1 : (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode); }
int pipe2(int ends[2], int flags) { return fails() ? -1 : (int)syscall(SYS_pipe2, ends, flags); }

#endif
