// The census: memory for it, the walk and a second one where owners are far, the results.
#include "internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#ifdef PLIMSOLL_LINUX

#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/// Part of the bytes in use that may stay without an owner although one might be found.
enum { FEW = 256 };

static size_t rounded(size_t size) { return (size + PAGE - 1) / PAGE * PAGE; }

static void *part(plimsoll_census *heap, size_t *used, size_t size) {
    void *place = (char *)heap + *used;
    *used += rounded(size);
    return place;
}

static void detach(plimsoll_census *heap) {
    if (heap->memory >= 0) close(heap->memory);
    if (heap->pagemap >= 0) close(heap->pagemap);
    heap->memory = heap->pagemap = -1;
}

/// Returns 0 if a byte of the process can be read, or the errno.
static int try_read(plimsoll_census *heap) {
    char byte;
    for (size_t index = 0; index < heap->region_count; index++) {
        if (!heap->regions[index].is_readable || !heap->regions[index].is_file) continue;
        errno = 0;
        return heap_read(heap, heap->regions[index].begin, &byte, 1) ? 0 : errno ? errno : EIO;
    }
    // A process that is just becoming another program has no file mapped.
    return EAGAIN;
}

bool plimsoll_census_is_readable(plimsoll_census *heap) { return try_read(heap) == 0; }

/// Opens the memory of the process. Returns 0 or an errno.
static int attach(plimsoll_census *heap) {
    detach(heap);
    if (!heap->is_other) heap->pid = getpid();
    int failure = heap_read_regions(heap);
    if (failure) return failure;
    heap->pagemap = heap_open_file(heap, "pagemap");
    failure = try_read(heap);
    if (failure == 0) return 0;
    // A container's rules may forbid process_vm_readv.
    heap->memory = heap_open_file(heap, "mem");
    return heap->memory < 0 ? errno : try_read(heap);
}

/// Opens the files again where needed: a forked child has those of the parent.
static int attach_again(plimsoll_census *heap) {
    if (heap->is_other) return 0;
    // Other code has closed all files of the process. The numbers may belong to other files by now.
    if (!heap_is_present(heap, (uint64_t)heap)) heap->memory = heap->pagemap = -1;
    else if (heap->pid == getpid()) return 0;
    return attach(heap);
}

plimsoll_census *plimsoll_census_open(int process, int *failure) {
    *failure = ENOTSUP;
    if (sysconf(_SC_PAGESIZE) != PAGE || HAS_SANITIZER) return NULL;
    size_t size = rounded(sizeof(plimsoll_census)) + rounded(WINDOW) + rounded(PIECE) + rounded(MAX_REGIONS * sizeof(struct region))
        + rounded(MAPS_TEXT) + rounded(MAX_TYPES * sizeof(struct plimsoll_census_type))
        + rounded(TYPE_SLOTS * sizeof(uint16_t)) + 2 * rounded(RAW_SLOTS * sizeof(struct raw)) + RAW_FILTER_BITS / 8 + rounded(MAX_NOTES * sizeof(struct note));
    plimsoll_census *heap = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    *failure = errno;
    if (heap == MAP_FAILED) return NULL;
    size_t used = rounded(sizeof *heap);
    heap->mapped = size;
    heap->window = (struct window){.size = WINDOW, .bytes = part(heap, &used, WINDOW)};
    heap->piece = (struct window){.size = PIECE, .bytes = part(heap, &used, PIECE)};
    heap->regions = part(heap, &used, MAX_REGIONS * sizeof(struct region));
    heap->maps_text = part(heap, &used, MAPS_TEXT);
    heap->types = part(heap, &used, MAX_TYPES * sizeof(struct plimsoll_census_type));
    heap->type_slots = part(heap, &used, TYPE_SLOTS * sizeof(uint16_t));
    heap->raws = part(heap, &used, RAW_SLOTS * sizeof(struct raw));
    heap->spare_raws = part(heap, &used, RAW_SLOTS * sizeof(struct raw));
    heap->raw_filter = part(heap, &used, RAW_FILTER_BITS / 8);
    heap->notes = part(heap, &used, MAX_NOTES * sizeof(struct note));
    heap->memory = heap->pagemap = -1;
    heap->is_other = process != 0 && process != getpid();
    heap->pid = process;
    *failure = attach(heap);
    if (*failure == 0) return heap;
    plimsoll_census_close(heap);
    return NULL;
}

void plimsoll_census_close(plimsoll_census *heap) {
    detach(heap);
    munmap(heap, heap->mapped);
}

bool plimsoll_census_has_chunks(plimsoll_census *heap) {
    // A block may have 16 bytes more than a chunk for it needs.
    enum { SIZE = 1000, CHUNK = 1008, CACHED = 40, ROUNDS = 8 };
    uint64_t size = 0;
    if (attach_again(heap)) return false;
    if (heap->is_other) return heap_learn_chunks(heap);
    char *block = malloc(SIZE);
    bool has_header = block && heap_read(heap, (uint64_t)block - 8, &size, sizeof size)
        && ((size & ~7ull) == CHUNK || (size & ~7ull) == CHUNK + 16);
    free(block);
    if (!has_header || heap->cache_key) return has_header;
    // glibc marks blocks in a thread's cache with a random key, the same for all. The cache has room for two if two were
    // taken from there just before, and may be full if malloc has filled the cache meanwhile.
    for (int round = 0; round < ROUNDS && !heap->cache_key; round++) {
        char *blocks[2] = {malloc(CACHED), malloc(CACHED)};
        uint64_t keys[2] = {0, 0};
        for (int index = 0; index < 2; index++) {
            uint64_t address = (uint64_t)blocks[index];
            free(blocks[index]);
            if (address) (void)heap_read(heap, address + 8, &keys[index], sizeof *keys);
        }
        if (keys[0] == keys[1]) heap->cache_key = keys[0];
    }
    return heap->cache_key != 0;
}

/// Notes a named block, to look at its pointers later: most blocks without a name lie near their owner, and are then
/// known.
static void note(plimsoll_census *heap, uint64_t address, uint64_t size, const unsigned char *head,
    const struct plimsoll_census_type *type) {
    if (!heap_may_have_pointers(type)) return;
    if (heap->note_count == MAX_NOTES) heap_settle(heap);
    // The rest may have words of what was there before.
    uint64_t units = heap_used(type, head, size) / 8;
    heap->notes[heap->note_count++] = (struct note){
        address, units > UINT32_MAX ? UINT32_MAX : (uint32_t)units, (uint16_t)(type - heap->types)};
}

static void count(plimsoll_census *heap, uint64_t address, uint64_t size, const unsigned char *head) {
    struct plimsoll_census_type *type = heap_type_of(heap, head, size);
    if (!type) {
        heap_add_raw(heap, address, size);
        return;
    }
    heap_add(type, head, size);
    heap->totals.named_blocks++;
    heap->totals.named_bytes += size;
    if (heap->notes_owners) note(heap, address, size, head, type);
}

/// Looks for pointers to blocks without a name.
static void look_for_raws(plimsoll_census *heap, uint64_t address, uint64_t size, const unsigned char *head) {
    const struct plimsoll_census_type *type = heap_type_of(heap, head, size);
    if (type) note(heap, address, size, head, type);
}

static uint64_t processor_time(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void walk(plimsoll_census *heap, enum plimsoll_census_way way, visitor *visit) {
    heap_forget_windows(heap);
    if (way == PLIMSOLL_CENSUS_CHUNKS) heap_walk_chunks(heap, visit);
    else if (way == PLIMSOLL_CENSUS_PAGES) heap_walk_tree(heap, visit);
    else heap_scan(heap, visit);
    heap_settle(heap);
}

static void clear(plimsoll_census *heap) {
    heap->type_count = heap->raw_count = heap->note_count = 0;
    memset(heap->type_slots, 0, TYPE_SLOTS * sizeof(uint16_t));
    memset(heap->rejected, 0, sizeof heap->rejected);
    // Zeros again, and no memory between two censuses.
    madvise(heap->raws, RAW_SLOTS * sizeof(struct raw), MADV_DONTNEED);
    memset(heap->raw_filter, 0, RAW_FILTER_BITS / 8);
    heap->raw_threshold = 16;
    heap->raw_begin = UINT64_MAX;
    heap->raw_end = 0;
    memset(&heap->totals, 0, sizeof heap->totals);
}

int plimsoll_census_take(plimsoll_census *heap, enum plimsoll_census_way way) {
    uint64_t begin = processor_time();
    clear(heap);
    int failure = plimsoll_census_refresh(heap);
    if (failure) return failure;
    heap->filled_bytes = 0;
    // jemalloc keeps blocks of different sizes far apart, so that few owners are near.
    heap->notes_owners = way == PLIMSOLL_CENSUS_CHUNKS;
    walk(heap, way, count);
    if (way == PLIMSOLL_CENSUS_SCAN) {
        uint64_t seen = heap->filled_bytes, named = heap->totals.named_bytes;
        heap->totals.unnamed_bytes = seen > named ? seen - named : 0;
    } else {
        struct plimsoll_census_totals totals = heap->totals;
        // Owners far before their blocks are found by another walk, which costs as much.
        if (heap_unowned(heap) > (totals.named_bytes + totals.unnamed_bytes) / FEW) walk(heap, way, look_for_raws);
        heap->totals = totals;
        heap_sum_raws(heap);
    }
    madvise(heap->raws, RAW_SLOTS * sizeof(struct raw), MADV_DONTNEED);
    madvise(heap->window.bytes, WINDOW, MADV_DONTNEED);
    heap->totals.mappings = heap->region_count;
    heap->totals.read_bytes = heap->filled_bytes;
    heap->totals.processor_nanoseconds = processor_time() - begin;
    return 0;
}

int plimsoll_census_refresh(plimsoll_census *heap) {
    int failure = attach_again(heap);
    heap_forget_tree(heap);
    return failure ? failure : heap_read_regions(heap);
}

bool plimsoll_census_find_block(plimsoll_census *heap, uint64_t value, struct plimsoll_census_block *block) {
    enum { MOST_UNNAMED = 4096 };
    uint64_t address = heap_untagged(value), size;
    unsigned char head[HEAD];
    const struct region *region = heap_region(heap, address);
    if (!region || !region->is_anonymous || !region->is_writable) return false;
    bool is_found = heap->tree.root ? heap_find_in_tree(heap, address, &size) : heap_find_chunk(heap, address, &size);
    if (!is_found || !heap_read(heap, address, head, sizeof head)) return false;
    const struct plimsoll_census_type *type = heap_type_of(heap, head, size);
    uint64_t used = size > MOST_UNNAMED ? 0 : size;
    if (type) used = heap_may_have_pointers(type) ? heap_used(type, head, size) : 0;
    *block = (struct plimsoll_census_block){address, size, used};
    return true;
}

const struct plimsoll_census_type *plimsoll_census_types(const plimsoll_census *heap, size_t *count) {
    *count = heap->type_count;
    return heap->types;
}

struct plimsoll_census_totals plimsoll_census_totals(const plimsoll_census *heap) { return heap->totals; }

#else

plimsoll_census *plimsoll_census_open(int process, int *failure) { return (void)process, *failure = ENOTSUP, NULL; }
void plimsoll_census_close(plimsoll_census *heap) { (void)heap; }
bool plimsoll_census_has_chunks(plimsoll_census *heap) { return (void)heap, false; }
bool plimsoll_census_has_tree(plimsoll_census *heap) { return (void)heap, false; }
int plimsoll_census_take(plimsoll_census *heap, enum plimsoll_census_way way) { return (void)heap, (void)way, ENOTSUP; }
int plimsoll_census_watch(int process, void (*before_end)(void *), void *context, int *status) {
    return (void)process, (void)before_end, (void)context, (void)status, ENOTSUP;
}
const struct plimsoll_census_type *plimsoll_census_types(const plimsoll_census *heap, size_t *count) {
    return (void)heap, *count = 0, NULL;
}
struct plimsoll_census_totals plimsoll_census_totals(const plimsoll_census *heap) {
    return (void)heap, (struct plimsoll_census_totals){0};
}
int plimsoll_census_refresh(plimsoll_census *heap) { return (void)heap, ENOTSUP; }
bool plimsoll_census_find_block(plimsoll_census *heap, uint64_t value, struct plimsoll_census_block *block) {
    return (void)heap, (void)value, (void)block, false;
}
bool plimsoll_census_read(plimsoll_census *heap, uint64_t address, void *into, size_t size) {
    return (void)heap, (void)address, (void)into, (void)size, false;
}
bool plimsoll_census_is_readable(plimsoll_census *heap) { return (void)heap, false; }
bool plimsoll_census_image(plimsoll_census *heap, uint64_t address, char *path, size_t size, uint64_t *offset) {
    return (void)heap, (void)address, (void)path, (void)size, (void)offset, false;
}

#endif

void plimsoll_census_explain(int failure, char *text, size_t size) {
    if (failure == ENOTSUP) snprintf(text, size, "Linux, pages of 4 KiB and no sanitizer are needed");
    else if (failure == EOVERFLOW) snprintf(text, size, "the process has more than 49,152 mappings");
    else snprintf(text, size, "%s", strerror(failure));
}
