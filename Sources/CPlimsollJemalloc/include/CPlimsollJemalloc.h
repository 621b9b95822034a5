// Nothing to call: a program linked with this sets jemalloc up before its main (start.c).
