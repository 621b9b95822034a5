// Importing this module links libjemalloc.so. Its own header is not needed for that, so that targets which import this one compile where
// libjemalloc-dev is absent; a program that is to be linked with them needs it.
int mallctl(const char *name, void *old, unsigned long *old_size, void *new, unsigned long new_size);
