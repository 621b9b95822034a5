// Nothing to call: the functions of mutex.c replace some of libswiftSynchronization's when a program is linked.
