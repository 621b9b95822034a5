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
static void fill(plimsoll_census *heap, struct window *window, uint64_t address) {
    uint64_t begin = address / PAGE * PAGE;
    size_t pages = window->size / PAGE;
    ssize_t got = heap->pagemap < 0 ? 0 : pread(heap->pagemap, heap->pages, pages * sizeof(uint64_t),
        (off_t)(begin / PAGE * sizeof(uint64_t)));
    size_t known = got > 0 ? (size_t)got / sizeof(uint64_t) : 0;
    window->begin = begin;
    window->end = begin + window->size;
    window->is_empty = true;
    for (size_t page = 0; page < pages;) {
        bool is_present = heap->pagemap < 0 || (page < known && heap->pages[page] >> PRESENT & 1);
        size_t last = page + 1;
        while (last < pages && (heap->pagemap < 0 || (last < known && heap->pages[last] >> PRESENT & 1)) == is_present)
            last++;
        unsigned char *into = window->bytes + page * PAGE;
        size_t size = (last - page) * PAGE, done = 0;
        if (is_present && heap_read(heap, begin + page * PAGE, into, size)) {
            done = size;
        } else {
            memset(into, 0, size);
            // Regions may end and begin within the run: what can be read is read page by page.
            for (size_t at = 0; is_present && at < size; at += PAGE)
                if (heap_read(heap, begin + page * PAGE + at, into + at, PAGE)) done += PAGE;
        }
        heap->filled_bytes += done;
        window->is_empty = window->is_empty && done == 0;
        page = last;
    }
}

static bool has(const struct window *window, uint64_t address, size_t size) {
    return address >= window->begin && address + size <= window->end;
}

const unsigned char *heap_peek(plimsoll_census *heap, uint64_t address, size_t size) {
    if (!has(&heap->window, address, size)) {
        heap_settle(heap);
        fill(heap, &heap->window, address);
    }
    return heap->window.bytes + (address - heap->window.begin);
}

void heap_each_part(plimsoll_census *heap, uint64_t begin, uint64_t end,
    void (*take)(plimsoll_census *, const unsigned char *, size_t, const void *), const void *context) {
    while (begin + 8 <= end) {
        struct window *window = has(&heap->window, begin, 8) ? &heap->window : &heap->piece;
        if (!has(window, begin, 8)) fill(heap, window, begin);
        size_t size = (end < window->end ? end : window->end) - begin;
        take(heap, window->bytes + (begin - window->begin), size, context);
        begin += size;
    }
}

void heap_forget_windows(plimsoll_census *heap) {
    heap->window.begin = heap->window.end = heap->piece.begin = heap->piece.end = 0;
}

#endif
