// System calls that fail when a test wants it, as this program and its libraries call them: any of open(2), openat(2), read(2), write(2), mkdir(2)
// and pipe2(2) on the calling thread, or those of some kinds on another thread.
#ifndef CSYSTEMCALLFAULTS_H
#define CSYSTEMCALLFAULTS_H

#include "SocketFaults.h"

#include <stdbool.h>

/// Whether calls can be made to fail here: not in a program with a sanitizer, which has such calls of its own.
bool faults_work(void);

/// The `nth` call from now on fails with that errno, and with `sticky` all after it, until `faults_end`.
void faults_begin(long nth, int number, bool sticky);

/// No more fail. Whether any has.
bool faults_end(void);

/// From now on processes whose parents have ended become this one's children (PR_SET_CHILD_SUBREAPER).
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

/// From now on the calling thread is the one whose calls `faults_arm` makes fail.
void faults_join(void);

/// The calling thread, which tests share, has no more such calls.
void faults_leave(void);

/// The `nth` such call of that thread from now on, and those after it until so many have, fail with that errno; with 0, what reads is given no more than one
/// byte. Of each kind it is armed on its own.
void faults_arm(enum fault_call call, long nth, long times, int number);

/// How many such calls there were since `faults_arm`.
long faults_count(enum fault_call call);

/// No more fail, of any kind.
void faults_disarm(void);

/// Counts a call for the wrappers of this target: 1 if the call is to fail, with errno set, -1 if a read is to be cut short, else 0.
int faults_meet(enum fault_call call);

#endif
