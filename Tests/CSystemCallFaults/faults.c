#define _GNU_SOURCE
#include "CSystemCallFaults.h"

#include <sys/prctl.h>

bool become_subreaper(void) { return prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0; }

// A sanitizer has its own functions in front of these.
#if defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif

#ifdef SANITIZED

bool faults_work(void) { return false; }
void faults_begin(long nth, int number, bool sticky) { (void)nth, (void)number, (void)sticky; }
bool faults_end(void) { return false; }
void faults_join(void) {}
void faults_leave(void) {}
void faults_arm(enum fault_call call, long nth, long times, int number) { (void)call, (void)nth, (void)times, (void)number; }
long faults_count(enum fault_call call) { return (void)call, 0; }
void faults_disarm(void) {}

#else

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

// Zero for no failure. A forked child of this thread has copies, and its calls continue to fail.
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

// The system call function of the C library, as this program has another function with that name.
static long real(long number, long a, long b, long c, long d, long e, long f) {
    // Relaxed: all threads that find no function look up the same one.
    static _Atomic(long (*)(long, ...)) found;
    long (*call)(long, ...) = atomic_load_explicit(&found, memory_order_relaxed);
    if (!call) {
        call = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
        atomic_store_explicit(&found, call, memory_order_relaxed);
    }
    return call(number, a, b, c, d, e, f);
}

// True on the thread that has joined. Any thread may arm the failures. The values of `armed` are written before
// `is_armed`, which publishes the rest (release, acquire).
static _Thread_local bool has_joined;
static struct {
    _Atomic bool is_armed;
    _Atomic long nth, times, count;
    _Atomic int number;
} armed[FAULT_KINDS];

void faults_join(void) { has_joined = true; }
void faults_leave(void) { has_joined = false; }

void faults_arm(enum fault_call call, long nth, long times, int number) {
    atomic_store_explicit(&armed[call].is_armed, false, memory_order_release);
    armed[call].nth = nth;
    armed[call].times = times;
    armed[call].count = 0;
    armed[call].number = number;
    atomic_store_explicit(&armed[call].is_armed, true, memory_order_release);
}

long faults_count(enum fault_call call) { return armed[call].count; }

void faults_disarm(void) {
    for (int call = 0; call < FAULT_KINDS; call++) atomic_store_explicit(&armed[call].is_armed, false, memory_order_release);
}

// Returns 1 if this call is to fail, with errno set, and -1 if the call is to be cut short.
int faults_meet(enum fault_call call) {
    if (!has_joined || !atomic_load_explicit(&armed[call].is_armed, memory_order_acquire)) return 0;
    long before = atomic_fetch_add(&armed[call].count, 1) + 1 - armed[call].nth;
    if (before < 0 || before >= armed[call].times) return 0;
    if (armed[call].number == 0) return -1;
    errno = armed[call].number;
    return 1;
}

static mode_t mode_of(int flags, va_list arguments) { return flags & (O_CREAT | O_TMPFILE) ? (mode_t)va_arg(arguments, int) : 0; }

int openat(int directory, const char *path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = mode_of(flags, arguments);
    va_end(arguments);
    if (fails() || faults_meet(FAULT_OPENAT) > 0) return -1;
    return (int)real(SYS_openat, directory, (long)path, flags, mode, 0, 0);
}

int open(const char *path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = mode_of(flags, arguments);
    va_end(arguments);
    if (fails() || faults_meet(FAULT_OPEN) > 0) return -1;
    return (int)real(SYS_openat, AT_FDCWD, (long)path, flags, mode, 0, 0);
}

ssize_t read(int file, void *buffer, size_t size) {
    int met = faults_meet(FAULT_READ);
    if (fails() || met > 0) return -1;
    return real(SYS_read, file, (long)buffer, met < 0 && size > 1 ? 1 : (long)size, 0, 0, 0);
}

ssize_t write(int file, const void *buffer, size_t size) {
    return fails() || faults_meet(FAULT_WRITE) > 0 ? -1 : real(SYS_write, file, (long)buffer, (long)size, 0, 0, 0);
}

int mkdir(const char *path, mode_t mode) {
    return fails() || faults_meet(FAULT_MKDIR) > 0 ? -1 : (int)real(SYS_mkdirat, AT_FDCWD, (long)path, mode, 0, 0, 0);
}

int pipe2(int ends[2], int flags) { return fails() || faults_meet(FAULT_PIPE2) > 0 ? -1 : (int)real(SYS_pipe2, (long)ends, flags, 0, 0, 0, 0); }

int waitid(idtype_t type, id_t id, siginfo_t *info, int options) {
    return faults_meet(FAULT_WAITID) > 0 ? -1 : (int)real(SYS_waitid, (long)type, (long)id, (long)info, options, 0, 0);
}

long syscall(long number, ...) {
    va_list list;
    va_start(list, number);
    long a = va_arg(list, long), b = va_arg(list, long), c = va_arg(list, long);
    long d = va_arg(list, long), e = va_arg(list, long), f = va_arg(list, long);
    va_end(list);
    if (number == SYS_clone3 && faults_meet(FAULT_CLONE3) > 0) return -1;
    if (number == SYS_clone && faults_meet(FAULT_CLONE) > 0) return -1;
    if (number == SYS_pidfd_open && faults_meet(FAULT_PIDFD_OPEN) > 0) return -1;
    if (number == SYS_pidfd_send_signal && faults_meet(FAULT_PIDFD_SIGNAL) > 0) return -1;
    return real(number, a, b, c, d, e, f);
}

#endif
