// System calls that fail when a test wants it: open(2), openat(2), read(2), write(2), mkdir(2) and pipe2(2), as this program and
// its libraries call them on the calling thread.
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

#endif
