// Declares nothing: a program linked with this module sets jemalloc up before main (start.c).
