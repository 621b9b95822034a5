// Blocks without a name, and the named objects that point to them.
#include "internal.h"

#ifdef PLIMSOLL_LINUX

#include <sys/mman.h>

static size_t slot_of(uint64_t address) { return (size_t)(address / 16 * 0x9e3779b97f4a7c15u >> 47) % RAW_SLOTS; }

static void insert(plimsoll_census *heap, struct raw *table, struct raw raw) {
    size_t slot = slot_of(raw.address);
    while (table[slot].address && table[slot].address != raw.address) slot = (slot + 1) % RAW_SLOTS;
    // Two walks of one place, after the walk lost its way, may see a block twice.
    if (!table[slot].address) heap->raw_count++;
    table[slot] = raw;
    heap->raw_filter[raw_bit(raw.address) / 64] |= 1ull << raw_bit(raw.address) % 64;
}

/// Returns true if the block is in the sample. A block of `raw_threshold` bytes or more always is, a smaller one with a
/// probability in proportion to its size (threshold sampling: Duffield, Lund and Thorup, 2005). The hash decides, so a
/// block that leaves the sample at a threshold stays out at a higher one.
static bool is_sampled(const plimsoll_census *heap, uint64_t address, uint64_t bytes) {
    // Not the hash of the table, whose slots would be filled unevenly.
    uint64_t part = address / 16 * 0xff51afd7ed558ccdu >> 48;
    return bytes >= heap->raw_threshold || part * heap->raw_threshold < bytes << 16;
}

/// Halves the sample, so that the table has room.
static void raise_threshold(plimsoll_census *heap) {
    heap->raw_threshold *= 2;
    heap->raw_count = 0;
    memset(heap->raw_filter, 0, RAW_FILTER_BITS / 8);
    for (size_t slot = 0; slot < RAW_SLOTS; slot++) {
        struct raw raw = heap->raws[slot];
        if (raw.address && is_sampled(heap, raw.address, raw.units * 8ull)) insert(heap, heap->spare_raws, raw);
    }
    struct raw *full = heap->raws;
    heap->raws = heap->spare_raws;
    heap->spare_raws = full;
    // Zeros again, and no memory.
    madvise(full, RAW_SLOTS * sizeof *full, MADV_DONTNEED);
}

void heap_add_raw(plimsoll_census *heap, uint64_t address, uint64_t bytes) {
    heap->totals.unnamed_blocks++;
    heap->totals.unnamed_bytes += bytes;
    while (heap->raw_count >= MAX_RAW) raise_threshold(heap);
    if (!is_sampled(heap, address, bytes)) return;
    uint64_t units = bytes / 8;
    insert(heap, heap->raws, (struct raw){address, units > UINT32_MAX ? UINT32_MAX : (uint32_t)units, 0});
    if (address < heap->raw_begin) heap->raw_begin = address;
    if (address > heap->raw_end) heap->raw_end = address;
}

void heap_own(plimsoll_census *heap, uint64_t address, const struct plimsoll_census_type *type) {
    for (size_t slot = slot_of(address); heap->raws[slot].address; slot = (slot + 1) % RAW_SLOTS)
        if (heap->raws[slot].address == address) {
            // The memory of a task has words of functions that have returned: any other owner is more likely.
            uint32_t owner = heap->raws[slot].owner;
            if (!owner || heap->types[owner - 1].kind == PLIMSOLL_CENSUS_TASK)
                heap->raws[slot].owner = (uint32_t)(type - heap->types) + 1;
            return;
        }
}

/// Gives the blocks without a name to which `size` bytes point to the type.
static void own(plimsoll_census *heap, const unsigned char *bytes, size_t size, const void *type) {
    for (size_t at = 0; at + 8 <= size; at += 8) {
        uint64_t address = heap_untagged(word(bytes, at));
        if (heap_may_have_raw(heap, address)) heap_own(heap, address, type);
    }
}

void heap_settle(plimsoll_census *heap) {
    enum { HEADER = 16 };
    for (size_t index = 0; index < heap->note_count && heap->raw_count; index++) {
        struct note note = heap->notes[index];
        uint64_t end = note.address + note.units * 8ull;
        heap_each_part(heap, note.address + HEADER, end, own, &heap->types[note.type]);
    }
    heap->note_count = 0;
}

uint64_t heap_unowned(const plimsoll_census *heap) {
    uint64_t bytes = 0;
    for (size_t slot = 0; slot < RAW_SLOTS; slot++) {
        struct raw raw = heap->raws[slot];
        // One that is in the sample for its size stands for others.
        if (raw.address && !raw.owner) bytes += raw.units * 8ull < heap->raw_threshold ? heap->raw_threshold : raw.units * 8ull;
    }
    return bytes;
}

void heap_sum_raws(plimsoll_census *heap) {
    // Numbers of blocks are in parts, until all are added.
    enum { PARTS = 1 << 12 };
    uint64_t unnamed = heap->totals.unnamed_blocks * PARTS;
    for (size_t slot = 0; slot < RAW_SLOTS; slot++) {
        struct raw raw = heap->raws[slot];
        if (!raw.address || !raw.owner) continue;
        uint64_t bytes = raw.units * 8ull, parts = PARTS;
        // Stands for those that are not in the sample.
        if (bytes < heap->raw_threshold) {
            parts = heap->raw_threshold * PARTS / bytes;
            bytes = heap->raw_threshold;
        }
        // A sum of estimates can exceed the truth, which is known for all owners together.
        bytes = least(bytes, heap->totals.unnamed_bytes);
        parts = least(parts, unnamed);
        heap->types[raw.owner - 1].owned_blocks += parts;
        heap->types[raw.owner - 1].owned_bytes += bytes;
        heap->totals.owned_bytes += bytes;
        heap->totals.unnamed_bytes -= bytes;
        unnamed -= parts;
    }
    for (size_t type = 0; type < heap->type_count; type++) heap->types[type].owned_blocks /= PARTS;
    heap->totals.owned_blocks = heap->totals.unnamed_blocks - unnamed / PARTS;
    heap->totals.unnamed_blocks = unnamed / PARTS;
}

#endif
