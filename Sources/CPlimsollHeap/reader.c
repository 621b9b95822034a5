// Reads of a process's memory that fail where a load would crash.
#include "internal.h"

#ifdef PLIMSOLL_LINUX

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/uio.h>
#include <unistd.h>

int heap_open_file(const plimsoll_census *heap, const char *name) {
    char path[64];
    // In a namespace of processes the number of the calling process may mean another in /proc.
    if (heap->is_other) snprintf(path, sizeof path, "/proc/%d/%s", heap->pid, name);
    else snprintf(path, sizeof path, "/proc/self/%s", name);
    return open(path, O_RDONLY | O_CLOEXEC);
}

bool heap_read(plimsoll_census *heap, uint64_t address, void *into, size_t size) {
    if (heap->memory >= 0) return pread(heap->memory, into, size, (off_t)address) == (ssize_t)size;
    struct iovec to = {into, size}, from = {(void *)address, size};
    return process_vm_readv(heap->pid, &to, 1, &from, 1, 0) == (ssize_t)size;
}

bool plimsoll_census_read(plimsoll_census *heap, uint64_t address, void *into, size_t size) {
    return heap_read(heap, address, into, size);
}

enum { PRESENT = 63 };

bool heap_is_present(plimsoll_census *heap, uint64_t address) {
    uint64_t page;
    if (heap->pagemap < 0) return true;
    return pread(heap->pagemap, &page, sizeof page, (off_t)(address / PAGE * sizeof page)) == sizeof page
        && page >> PRESENT & 1;
}

/// Fills the window from the page of `address` on. A read would bring in pages that are swapped out, and map pages that
/// were never touched; both are left alone.
static void fill(plimsoll_census *heap, uint64_t address) {
    uint64_t begin = address / PAGE * PAGE;
    ssize_t got = heap->pagemap < 0 ? 0 : pread(heap->pagemap, heap->pages, WINDOW_PAGES * sizeof(uint64_t),
        (off_t)(begin / PAGE * sizeof(uint64_t)));
    size_t known = got > 0 ? (size_t)got / sizeof(uint64_t) : 0;
    heap->window_begin = begin;
    heap->window_end = begin + WINDOW;
    heap->is_window_empty = true;
    for (size_t page = 0; page < WINDOW_PAGES;) {
        bool is_present = heap->pagemap < 0 || (page < known && heap->pages[page] >> PRESENT & 1);
        size_t last = page + 1;
        while (last < WINDOW_PAGES
               && (heap->pagemap < 0 || (last < known && heap->pages[last] >> PRESENT & 1)) == is_present)
            last++;
        unsigned char *into = heap->window + page * PAGE;
        size_t size = (last - page) * PAGE, done = 0;
        // The region may end within the run: what can be read is read page by page.
        if (is_present && !heap_read(heap, begin + page * PAGE, into, size)) {
            while (done < size && heap_read(heap, begin + page * PAGE + done, into + done, PAGE)) done += PAGE;
        } else if (is_present) {
            done = size;
        }
        memset(into + done, 0, size - done);
        heap->filled_bytes += done;
        heap->is_window_empty = heap->is_window_empty && done == 0;
        page = last;
    }
}

const unsigned char *heap_peek(plimsoll_census *heap, uint64_t address, size_t size) {
    if (address < heap->window_begin || address + size > heap->window_end) fill(heap, address);
    return heap->window + (address - heap->window_begin);
}

#endif
