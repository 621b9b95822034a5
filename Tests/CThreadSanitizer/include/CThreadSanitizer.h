// No function to call: when a program is linked, the functions of mutex.c replace some of libswiftSynchronization's.
