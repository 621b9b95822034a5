// System calls that fail on a test's order, as this program and its libraries call them: any of open(2), openat(2),
// read(2), write(2), mkdir(2) and pipe2(2) on the calling thread, or calls of some kinds on another thread.
#ifndef CSYSTEMCALLFAULTS_H
#define CSYSTEMCALLFAULTS_H

#include "SocketFaults.h"

#include <stdbool.h>

/// Returns true if calls can be made to fail here. That is false in a program with a sanitizer, which has such calls of
/// its own.
bool faults_work(void);

/// Makes the `nth` call from now on fail with errno `number`, and with `sticky` all later calls, until `faults_end`.
void faults_begin(long nth, int number, bool sticky);

/// Ends the failures. Returns true if a call has failed.
bool faults_end(void);

/// Makes this process the parent of orphans: of processes whose parents have ended (PR_SET_CHILD_SUBREAPER).
bool become_subreaper(void);

/// The calls that can fail on another thread.
enum fault_call {
    FAULT_ACCEPT4,
    FAULT_RECVMSG,
    FAULT_SENDMSG,
    FAULT_EPOLL_CTL,
    FAULT_EPOLL_WAIT,
    FAULT_CLONE3,
    FAULT_CLONE,
    FAULT_PIDFD_OPEN,
    FAULT_PIDFD_SIGNAL,
    FAULT_BIND,
    FAULT_CHMOD,
    FAULT_OPENAT,
    FAULT_OPEN,
    FAULT_READ,
    FAULT_WRITE,
    FAULT_MKDIR,
    FAULT_PIPE2,
    FAULT_WAITID,
    FAULT_KINDS
};

/// Makes `faults_arm` apply to the calls of the calling thread.
void faults_join(void);

/// Ends the failures on the calling thread, which tests share.
void faults_leave(void);

/// Makes the `nth` such call of that thread from now on fail with errno `number`, and `times - 1` calls after that.
/// With 0, a read gets one byte at most. Each kind is armed separately.
void faults_arm(enum fault_call call, long nth, long times, int number);

/// Returns the number of such calls since `faults_arm`.
long faults_count(enum fault_call call);

/// Ends the failures of all kinds.
void faults_disarm(void);

/// Counts a call for the wrappers of this target. Returns 1 if the call is to fail, with errno set, -1 if a read is to
/// be cut short, else 0.
int faults_meet(enum fault_call call);

#endif
