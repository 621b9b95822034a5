// Blocks of glibc's malloc, by their chunks.
#include "internal.h"

#ifdef PLIMSOLL_LINUX

#include <sys/uio.h>
#include <unistd.h>

// glibc: flags in the lowest bits of a chunk's size (malloc/malloc.c), heaps of arenas (malloc/arena.c).
enum {
    PREVIOUS_IN_USE = 1,
    IS_MAPPED = 2,
    NOT_MAIN_ARENA = 4,
    FLAGS = 7,
    HEADER = 16,
    LEAST_CHUNK = 32,
    MOST_FAST = 128,
    HEAP = 64 << 20,
    ARENA = 2200,
};

/// A free chunk need not carry the mark of its arena.
static bool is_chunk(uint64_t size, uint64_t flags) {
    return (size & FLAGS & ~(uint64_t)PREVIOUS_IN_USE & ~flags) == 0 && (size & ~(uint64_t)FLAGS) % 16 == 0
        && (size & ~(uint64_t)FLAGS) >= LEAST_CHUNK && size < 1ull << 40;
}

/// Returns true if malloc has the block in a list of free ones although the neighbour says in use: the cache of a
/// thread, or a fast bin. Both keep the address of the next block, mixed with their own.
static bool is_cached(plimsoll_census *heap, uint64_t block, uint64_t size, const unsigned char *head) {
    if (!heap->cache_key) return false;
    if (word(head, 8) == heap->cache_key) return true;
    if (size > MOST_FAST) return false;
    uint64_t next = word(head, 0) ^ block >> 12;
    if (next == 0) return true;
    unsigned char header[HEADER];
    return next % 16 == 0 && next >> 26 == block >> 26 && heap_is_present(heap, next)
        && heap_read(heap, next, header, sizeof header) && (word(header, 8) & ~(uint64_t)FLAGS) == size;
}

/// Returns the next place that three chunks in a row make likely, or `end`. Another thread has changed the heap since
/// the last window was read.
static uint64_t lost(plimsoll_census *heap, uint64_t from, uint64_t end, uint64_t flags) {
    uint64_t found = end;
    for (uint64_t place = from + 16; found == end && place + HEADER < end; place += 16) {
        uint64_t at = place;
        int chunks = 0;
        while (chunks < 3 && at + HEADER < end) {
            // Looks ahead without moving the window.
            unsigned char header[HEADER];
            bool is_near = at >= heap->window.begin && at + HEADER <= heap->window.end;
            if (chunks == 0 || is_near) memcpy(header, heap_peek(heap, at, HEADER), HEADER);
            else if (!heap_read(heap, at, header, HEADER)) break;
            if (!is_chunk(word(header, 8), flags)) break;
            at += word(header, 8) & ~(uint64_t)FLAGS;
            chunks++;
        }
        if (chunks == 3) found = place;
    }
    heap->totals.lost_bytes += found - from;
    return found;
}

/// Visits the chunks from `begin` to the top of a heap, which ends at `end`.
static void walk_heap(plimsoll_census *heap, uint64_t begin, uint64_t end, uint64_t flags, visitor *visit) {
    for (uint64_t chunk = begin; chunk + LEAST_CHUNK <= end;) {
        // Valid until the next look beyond the window: none before `visit`, which gets it last.
        const unsigned char *head = heap_peek(heap, chunk, HEADER + HEAD);
        uint64_t size = word(head, 8);
        if (!is_chunk(size, flags)) {
            // Two headers without blocks end a heap that has no room.
            if (end - chunk <= 2 * LEAST_CHUNK) break;
            chunk = lost(heap, chunk, end, flags);
            continue;
        }
        size &= ~(uint64_t)FLAGS;
        uint64_t after = chunk + size, next;
        bool ends_heap = after > end - HEADER;
        if (!ends_heap) {
            if (after + HEADER <= heap->window.end) next = word(heap_peek(heap, after, HEADER), 8);
            // A heap that has shrunk since the mappings were read ends earlier.
            else ends_heap = !heap_is_present(heap, after) || !heap_read(heap, after + 8, &next, sizeof next);
        }
        if (ends_heap) {
            // The top is free, and ends with a page. A heap that has grown meanwhile ends later.
            if (after % PAGE == 0) {
                heap->totals.free_bytes += least(size, end - chunk);
                break;
            }
            chunk = lost(heap, chunk, end, flags);
            continue;
        }
        if (!(next & PREVIOUS_IN_USE) || is_cached(heap, chunk + HEADER, size, head + HEADER)) {
            heap->totals.free_bytes += size;
        } else {
            visit(heap, chunk + HEADER, size - 8, head + HEADER);
        }
        chunk = after;
    }
}

enum { PROBES = 256 };

/// The first bytes of pages, read together.
struct probes {
    uint64_t begin, end;
    unsigned char heads[PROBES][HEADER];
};

/// Returns the first bytes of `page`. Reads on to other pages, but not beyond `end`, the end of the region: a read of
/// several pages stops at the first that cannot be read.
static const unsigned char *probe(plimsoll_census *heap, struct probes *probes, uint64_t page, uint64_t end) {
    if (page < probes->begin || page >= probes->end) {
        struct iovec to[PROBES], from[PROBES];
        uint64_t present[PROBES];
        size_t count = 0;
        probes->begin = page;
        probes->end = least(page + PROBES * PAGE, end);
        size_t pages = (size_t)(probes->end - page) / PAGE;
        memset(probes->heads, 0, sizeof probes->heads);
        ssize_t got = heap->pagemap < 0 ? -1 : pread(heap->pagemap, present, pages * sizeof *present,
            (off_t)(page / PAGE * sizeof *present));
        for (size_t index = 0; index < pages; index++) {
            if (got >= 0 && ((size_t)got / sizeof *present <= index || !(present[index] >> 63))) continue;
            if (heap->memory >= 0) {
                heap_read(heap, page + index * PAGE, probes->heads[index], HEADER);
                continue;
            }
            to[count] = (struct iovec){probes->heads[index], HEADER};
            from[count++] = (struct iovec){(void *)(page + index * PAGE), HEADER};
        }
        // Heads behind an unreadable page stay zero and are not taken for blocks.
        if (count) (void)process_vm_readv(heap->pid, to, count, from, count, 0);
    }
    return probes->heads[(page - probes->begin) / PAGE];
}

/// Returns the length of the arena's heap at `place`, a multiple of 64 MiB, and its first chunk; 0 if there is none.
static uint64_t arena_heap(plimsoll_census *heap, uint64_t place, uint64_t *first) {
    uint64_t info[3];
    if (!heap_is_present(heap, place) || !heap_read(heap, place, info, sizeof info)) return 0;
    uint64_t arena = info[0], previous = info[1], size = info[2], header = arena % HEAP;
    if ((header != 32 && header != 48) || size % PAGE || size == 0 || size > HEAP || previous % HEAP) return 0;
    if (!previous != (arena / HEAP == place / HEAP)) return 0;
    *first = (place + header + (previous ? 0 : ARENA) + 15) / 16 * 16;
    return size;
}

/// Visits what an anonymous region has of malloc: the heaps of arenas, and chunks that are mappings of their own.
static void walk_region(plimsoll_census *heap, struct probes *probes, struct region region, visitor *visit) {
    for (uint64_t page = region.begin; page < region.end;) {
        uint64_t first, length = page % HEAP == 0 ? arena_heap(heap, page, &first) : 0;
        if (length) {
            walk_heap(heap, first, least(page + length, region.end), NOT_MAIN_ARENA, visit);
            page += length;
            continue;
        }
        const unsigned char *header = probe(heap, probes, page, region.end);
        uint64_t size = word(header, 8) & ~(uint64_t)FLAGS;
        bool is_mapped = word(header, 0) == 0 && (word(header, 8) & FLAGS) == IS_MAPPED && size >= PAGE
            && size % PAGE == 0 && size <= region.end - page;
        if (is_mapped) {
            unsigned char head[HEAD];
            // Not through the window, which would read a megabyte of the block.
            if (heap_read(heap, page + HEADER, head, HEAD)) visit(heap, page + HEADER, size - HEADER, head);
        }
        page += is_mapped ? size : PAGE;
    }
}

void heap_walk_chunks(plimsoll_census *heap, visitor *visit) {
    struct probes probes = {0};
    for (size_t index = 0; index < heap->region_count; index++) {
        struct region region = heap->regions[index];
        if (!region.is_anonymous || !region.is_readable || !region.is_writable) continue;
        if (!region.is_brk) {
            walk_region(heap, &probes, region, visit);
            continue;
        }
        // The kernel may list the heap in parts.
        while (index + 1 < heap->region_count && heap->regions[index + 1].is_brk) region.end = heap->regions[++index].end;
        walk_heap(heap, region.begin, region.end, 0, visit);
    }
}

bool heap_find_chunk(plimsoll_census *heap, uint64_t address, uint64_t *size) {
    uint64_t header[2], next;
    const struct region *region = heap_region(heap, address);
    if (address % 16 || address < region->begin + HEADER) return false;
    if (!heap_read(heap, address - HEADER, header, sizeof header)) return false;
    *size = header[1] & ~(uint64_t)FLAGS;
    if ((header[1] & FLAGS) == IS_MAPPED && address % PAGE == HEADER && header[0] == 0) {
        // Any page may begin with these two words, also without a size.
        if (*size < PAGE || *size % PAGE || *size > region->end - (address - HEADER)) return false;
        *size -= HEADER;
        return true;
    }
    if (!is_chunk(header[1], NOT_MAIN_ARENA) || *size > region->end - address) return false;
    if (!heap_read(heap, address + *size - 8, &next, sizeof next) || !(next & PREVIOUS_IN_USE)) return false;
    *size -= 8;
    return is_chunk(next, NOT_MAIN_ARENA);
}

/// Votes by majority (Boyer and Moore, 1981) for the word behind what looks like the end of a list of free blocks, or
/// like the address of the next one, mixed with the block's own address.
static void vote(plimsoll_census *heap, uint64_t address, uint64_t size, const unsigned char *head) {
    uint64_t next = word(head, 0) ^ address >> 12, mark = word(head, 8);
    heap->totals.unnamed_bytes += size;
    // The mark is random: few addresses and numbers are that large.
    if (mark >> ADDRESS_BITS == 0 || next % 16) return;
    const struct region *region = next ? heap_region(heap, next) : NULL;
    if (next && !(region && region->is_anonymous)) return;
    if (heap->key_votes == 0) heap->key_candidate = mark;
    heap->key_votes += heap->key_candidate == mark ? 1 : (uint64_t)-1;
}

bool heap_learn_chunks(plimsoll_census *heap) {
    heap->cache_key = heap->key_votes = 0;
    memset(&heap->totals, 0, sizeof heap->totals);
    heap_forget_windows(heap);
    heap_walk_chunks(heap, vote);
    if (heap->key_votes) heap->cache_key = heap->key_candidate;
    // Under another malloc few words look like chunks.
    return heap->totals.unnamed_bytes / 10 > heap->totals.lost_bytes;
}

#endif
