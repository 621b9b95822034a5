// Importing this module links libjemalloc.so. The declaration below replaces jemalloc's header, so that targets
// importing this module compile without libjemalloc-dev. A program to be linked with them needs that package.
int mallctl(const char *name, void *old, unsigned long *old_size, void *new, unsigned long new_size);
