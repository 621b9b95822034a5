// Ends a child process at a chosen system call.
#ifndef CSYSTEM_CALL_KILLER_H
#define CSYSTEM_CALL_KILLER_H

/// Starts `path`, lets it run until it stops itself (SIGSTOP), and kills it at the entry of the `nth` system call after that, counted from 1: that
/// one is not carried out.
///
/// Returns the number of that system call; -1 if the child ended before, with its wait status in `status`; -1000 - errno if it could not be traced.
long kill_at_system_call(const char *path, char *const arguments[], long nth, int *status);

#endif
