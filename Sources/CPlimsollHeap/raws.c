// Blocks without a name, and the named objects that point to them.
#include "internal.h"

#ifdef PLIMSOLL_LINUX

#include <sys/mman.h>

static size_t slot_of(uint64_t address) { return (size_t)(address / 16 * 0x9e3779b97f4a7c15u >> 47) % RAW_SLOTS; }
static size_t bit_of(uint64_t address) { return (size_t)(address / 16 * 0x9e3779b97f4a7c15u >> 44) % RAW_FILTER_BITS; }

static void insert(plimsoll_census *heap, struct raw *table, struct raw raw) {
    size_t slot = slot_of(raw.address);
    while (table[slot].address && table[slot].address != raw.address) slot = (slot + 1) % RAW_SLOTS;
    // Two walks of one place, after the walk lost its way, may see a block twice.
    if (!table[slot].address) heap->raw_count++;
    table[slot] = raw;
    heap->raw_filter[bit_of(raw.address) / 64] |= 1ull << bit_of(raw.address) % 64;
}

/// Drops the smaller blocks, so that the table has room for the larger ones.
static void raise_least(plimsoll_census *heap) {
    heap->raw_least *= 2;
    heap->raw_count = 0;
    memset(heap->raw_filter, 0, RAW_FILTER_BITS / 8);
    for (size_t slot = 0; slot < RAW_SLOTS; slot++) {
        struct raw raw = heap->raws[slot];
        if (!raw.address) continue;
        if (raw.units * 8ull >= heap->raw_least) insert(heap, heap->spare_raws, raw); else heap->totals.untabled_blocks++;
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
    while (heap->raw_count >= MAX_RAW) raise_least(heap);
    if (bytes < heap->raw_least) {
        heap->totals.untabled_blocks++;
        return;
    }
    uint64_t units = bytes / 8;
    insert(heap, heap->raws, (struct raw){address, units > UINT32_MAX ? UINT32_MAX : (uint32_t)units, 0});
    if (address < heap->raw_begin) heap->raw_begin = address;
    if (address > heap->raw_end) heap->raw_end = address;
}

void heap_own(plimsoll_census *heap, uint64_t value, const struct plimsoll_census_type *type) {
    // Swift keeps tags in spare bits: the lowest three, and the upper byte.
    uint64_t address = value & 0x00fffffffffffff8;
    if (address < heap->raw_begin || address > heap->raw_end || address % 16) return;
    if (!(heap->raw_filter[bit_of(address) / 64] >> bit_of(address) % 64 & 1)) return;
    for (size_t slot = slot_of(address); heap->raws[slot].address; slot = (slot + 1) % RAW_SLOTS)
        if (heap->raws[slot].address == address) {
            if (!heap->raws[slot].owner) heap->raws[slot].owner = (uint32_t)(type - heap->types) + 1;
            return;
        }
}

void heap_sum_raws(plimsoll_census *heap) {
    for (size_t slot = 0; slot < RAW_SLOTS; slot++) {
        struct raw raw = heap->raws[slot];
        if (!raw.address || !raw.owner) continue;
        // Exactly the bytes that were added, or the difference below could fall under zero.
        uint64_t bytes = raw.units * 8ull;
        heap->types[raw.owner - 1].owned_blocks++;
        heap->types[raw.owner - 1].owned_bytes += bytes;
        heap->totals.owned_blocks++;
        heap->totals.owned_bytes += bytes;
    }
    heap->totals.unnamed_blocks -= heap->totals.owned_blocks;
    heap->totals.unnamed_bytes -= heap->totals.owned_bytes;
}

#endif
