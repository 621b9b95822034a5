// Calls on sockets that fail on a test's order: accept4(2), bind(2), listen(2), chmod(2), lchown(2), getsockopt(2),
// setsockopt(2), epoll_ctl(2), epoll_wait(2), sendmsg(2), send(2) and recvmsg(2), as this program and its libraries
// call them on the calling thread.
#ifndef SOCKETFAULTS_H
#define SOCKETFAULTS_H

#include <stdbool.h>

/// Makes the `nth` of these calls from now on fail with errno `number`, and with `sticky` all later calls, until
/// `socket_faults_end`. With 0, recvmsg(2) takes one byte instead.
void socket_faults_begin(long nth, int number, bool sticky);

/// Ends the failures. Returns true if a call has failed.
bool socket_faults_end(void);

#endif
