// The mappings of the process.
#include "internal.h"

#ifdef PLIMSOLL_LINUX

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/// Parses a line of /proc/PID/maps (proc_pid_maps(5)): begin-end, four flags, offset, device, inode, path.
static bool parse(const char *line, struct region *region, uint64_t *offset, const char **path) {
    char *rest;
    region->begin = strtoull(line, &rest, 16);
    if (*rest != '-') return false;
    region->end = strtoull(rest + 1, &rest, 16);
    if (*rest != ' ' || strnlen(rest, 6) < 6) return false;
    region->is_readable = rest[1] == 'r';
    region->is_writable = rest[2] == 'w';
    region->is_executable = rest[3] == 'x';
    bool is_private = rest[4] == 'p';
    *offset = strtoull(rest + 6, &rest, 16);
    strtoul(rest, &rest, 16);
    if (*rest == ':') strtoul(rest + 1, &rest, 16);
    uint64_t inode = strtoull(rest, &rest, 10);
    while (*rest == ' ') rest++;
    *path = rest;
    region->is_file = inode != 0 && *rest == '/' && strncmp(rest, "/memfd:", 7) && strncmp(rest, "/dev/", 5);
    region->is_brk = strcmp(rest, "[heap]") == 0;
    region->is_anonymous =
        region->is_brk || (inode == 0 && is_private && (*rest == 0 || strncmp(rest, "[anon:", 6) == 0));
    return true;
}

/// Calls `take` for each line until that returns false. Returns 0 or an errno.
static int each_line(plimsoll_census *heap, bool (*take)(plimsoll_census *, const char *line, void *), void *context) {
    int file = heap_open_file(heap, "maps");
    if (file < 0) return errno;
    size_t held = 0;
    int failure = 0;
    bool goes_on = true;
    while (goes_on) {
        ssize_t got = read(file, heap->maps_text + held, MAPS_TEXT - 1 - held);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) failure = errno;
        if (got <= 0) break;
        held += (size_t)got;
        char *line = heap->maps_text, *end = heap->maps_text + held, *newline;
        while (goes_on && (newline = memchr(line, '\n', (size_t)(end - line)))) {
            *newline = 0;
            goes_on = take(heap, line, context);
            line = newline + 1;
        }
        held = (size_t)(end - line);
        // A line longer than the buffer cannot be: paths have at most 4,096 bytes.
        memmove(heap->maps_text, line, held);
    }
    close(file);
    return failure;
}

static bool is_alike(const struct region *a, const struct region *b) {
    return a->is_readable == b->is_readable && a->is_writable == b->is_writable && a->is_executable == b->is_executable
        && a->is_file == b->is_file && a->is_brk == b->is_brk && a->is_anonymous == b->is_anonymous;
}

/// Keeps part of a mapping. Neighbours that differ in nothing but advice to the kernel become one.
static void keep_part(plimsoll_census *heap, struct region region, uint64_t begin, uint64_t end) {
    if (begin >= end) return;
    struct region *last = heap->region_count ? &heap->regions[heap->region_count - 1] : NULL;
    if (last && last->end == begin && is_alike(last, &region)) {
        last->end = end;
        return;
    }
    heap->has_all_regions = heap->region_count < MAX_REGIONS;
    if (!heap->has_all_regions) return;
    region.begin = begin;
    region.end = end;
    heap->regions[heap->region_count++] = region;
}

/// Keeps the mapping, without the census's own memory: the kernel lists neighbouring mappings as one.
static bool keep(plimsoll_census *heap, const char *line, void *context) {
    struct region region;
    uint64_t offset, own = (uint64_t)heap, own_end = own + heap->mapped;
    const char *path;
    (void)context;
    // A thread's stack has a guard page, of which there is nothing to read.
    if (!parse(line, &region, &offset, &path) || !region.is_readable) return true;
    if (heap->is_other) {
        keep_part(heap, region, region.begin, region.end);
    } else {
        keep_part(heap, region, region.begin, region.end < own ? region.end : own);
        keep_part(heap, region, region.begin > own_end ? region.begin : own_end, region.end);
    }
    return heap->has_all_regions;
}

int heap_read_regions(plimsoll_census *heap) {
    heap->region_count = heap->last_region = 0;
    heap->has_all_regions = true;
    int failure = each_line(heap, keep, NULL);
    if (failure == 0 && !heap->has_all_regions) failure = EOVERFLOW;
    // A process that has ended has no mappings, and no error either.
    return failure || heap->region_count ? failure : ESRCH;
}

const struct region *heap_region(plimsoll_census *heap, uint64_t address) {
    if (heap->region_count == 0) return NULL;
    const struct region *last = &heap->regions[heap->last_region];
    if (address >= last->begin && address < last->end) return last;
    size_t low = 0, high = heap->region_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (heap->regions[middle].end <= address) low = middle + 1; else high = middle;
    }
    if (low == heap->region_count || heap->regions[low].begin > address) return NULL;
    heap->last_region = low;
    return &heap->regions[low];
}

struct image_search {
    uint64_t address;
    char *path;
    size_t size;
    uint64_t *offset;
    bool is_found;
};

static bool find_image(plimsoll_census *heap, const char *line, void *context) {
    struct image_search *search = context;
    struct region region;
    uint64_t offset;
    const char *path;
    (void)heap;
    if (!parse(line, &region, &offset, &path) || search->address < region.begin || search->address >= region.end)
        return true;
    if (region.is_file) {
        snprintf(search->path, search->size, "%s", path);
        *search->offset = search->address - region.begin + offset;
        search->is_found = true;
    }
    return false;
}

bool plimsoll_census_image(plimsoll_census *heap, uint64_t address, char *path, size_t size, uint64_t *offset) {
    struct image_search search = {address, path, size, offset, false};
    return each_line(heap, find_image, &search) == 0 && search.is_found;
}

#endif
