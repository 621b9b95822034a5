#define _GNU_SOURCE
#include "CSystemCallFaults.h"

#if defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif

#ifdef SANITIZED

void socket_faults_begin(long nth, int number, bool sticky) { (void)nth, (void)number, (void)sticky; }
bool socket_faults_end(void) { return false; }

#else

#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

// Zero for no failure.
static _Thread_local long failing, calls;
static _Thread_local int failure;
static _Thread_local bool is_sticky;

void socket_faults_begin(long nth, int number, bool sticky) { calls = 0, failure = number, is_sticky = sticky, failing = nth; }

bool socket_faults_end(void) {
    bool reached = failing > 0 && calls >= failing;
    failing = 0;
    return reached;
}

static bool is_due(void) {
    if (failing == 0) return false;
    calls++;
    return calls == failing || (is_sticky && calls > failing);
}

static bool fails(void) {
    if (failure == 0 || !is_due()) return false;
    errno = failure;
    return true;
}

// Returns true if either of the two fault mechanisms orders a failure of the call.
static bool fails_as(enum fault_call call) { return fails() || faults_meet(call) > 0; }

int accept4(int file, struct sockaddr *address, socklen_t *length, int flags) {
    return fails_as(FAULT_ACCEPT4) ? -1 : (int)syscall(SYS_accept4, file, address, length, flags);
}

int bind(int file, const struct sockaddr *address, socklen_t length) { return fails_as(FAULT_BIND) ? -1 : (int)syscall(SYS_bind, file, address, length); }
int listen(int file, int backlog) { return fails() ? -1 : (int)syscall(SYS_listen, file, backlog); }
int chmod(const char *path, mode_t mode) { return fails_as(FAULT_CHMOD) ? -1 : (int)syscall(SYS_fchmodat, AT_FDCWD, path, mode); }
int lchown(const char *path, uid_t user, gid_t group) {
    return fails() ? -1 : (int)syscall(SYS_fchownat, AT_FDCWD, path, user, group, AT_SYMLINK_NOFOLLOW);
}

int setsockopt(int file, int level, int name, const void *value, socklen_t length) {
    return fails() ? -1 : (int)syscall(SYS_setsockopt, file, level, name, value, length);
}

int getsockopt(int file, int level, int name, void *value, socklen_t *length) {
    return fails() ? -1 : (int)syscall(SYS_getsockopt, file, level, name, value, length);
}

int epoll_ctl(int epoll, int operation, int file, struct epoll_event *event) {
    return fails_as(FAULT_EPOLL_CTL) ? -1 : (int)syscall(SYS_epoll_ctl, epoll, operation, file, event);
}

int epoll_wait(int epoll, struct epoll_event *events, int capacity, int milliseconds) {
    return fails_as(FAULT_EPOLL_WAIT) ? -1 : (int)syscall(SYS_epoll_pwait, epoll, events, capacity, milliseconds, NULL, 8);
}

ssize_t sendmsg(int file, const struct msghdr *message, int flags) { return fails_as(FAULT_SENDMSG) ? -1 : syscall(SYS_sendmsg, file, message, flags); }
ssize_t send(int file, const void *bytes, size_t count, int flags) {
    return fails() ? -1 : syscall(SYS_sendto, file, bytes, count, flags, NULL, 0);
}

ssize_t recvmsg(int file, struct msghdr *message, int flags) {
    int met = faults_meet(FAULT_RECVMSG);
    if (fails() || met > 0) return -1;
    // A short read takes one byte of the received bytes.
    bool is_short = met < 0 || (failure == 0 && is_due());
    if (is_short && message->msg_iovlen > 0 && message->msg_iov[0].iov_len > 1) message->msg_iov[0].iov_len = 1;
    return syscall(SYS_recvmsg, file, message, flags);
}

#endif
