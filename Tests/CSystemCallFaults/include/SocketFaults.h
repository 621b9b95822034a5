// Calls on sockets that fail when a test wants it: accept4(2), bind(2), listen(2), chmod(2), lchown(2), getsockopt(2), setsockopt(2), epoll_ctl(2),
// epoll_wait(2), sendmsg(2), send(2) and recvmsg(2), as this program and its libraries call them on the calling thread.
#ifndef SOCKETFAULTS_H
#define SOCKETFAULTS_H

#include <stdbool.h>

/// The `nth` of these calls from now on fails with that errno, and with `sticky` all after it, until `socket_faults_end`. With 0, recvmsg(2) takes one byte
/// instead.
void socket_faults_begin(long nth, int number, bool sticky);

/// No more fail. Whether any has.
bool socket_faults_end(void);

#endif
