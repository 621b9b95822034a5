// Parts of a census, for the files of this target.
#pragma once

#define _GNU_SOURCE
#include "CPlimsollHeap.h"
#include "kernel.h"

#include <string.h>
#include <sys/types.h>

#ifdef PLIMSOLL_LINUX

enum {
    PAGE = 4096,
    WINDOW = 1 << 20,
    PIECE = 1 << 16,
    WINDOW_PAGES = WINDOW / PAGE,
    /// Of the 65,530 mappings that a process may have (vm.max_map_count), a part is like its neighbour.
    MAX_REGIONS = 49152,
    MAPS_TEXT = 1 << 16,
    TYPE_SLOTS = 16384,
    MAX_TYPES = TYPE_SLOTS * 3 / 4,
    REJECTED_SLOTS = 8192,
    RAW_SLOTS = 1 << 17,
    MAX_RAW = RAW_SLOTS * 3 / 4,
    RAW_FILTER_BITS = 1 << 20,
    MAX_NOTES = 8192,
    /// Bytes at the start of a block that tell its type and its elements.
    HEAD = 64,
    /// Bits of an address. x86-64 gives a process 47 of them; on arm64 programs lie above the first 47.
    ADDRESS_BITS = 48,
};

// A sanitizer has a malloc of its own, and terabytes of shadow memory.
#ifndef __has_feature
#define __has_feature(name) 0
#endif
#define HAS_SANITIZER \
    (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer))

/// A mapping of the process, from /proc/PID/maps.
struct region {
    uint64_t begin, end;
    bool is_readable, is_writable, is_executable;
    /// Backed by a file other than a device.
    bool is_file;
    /// The region that malloc grows by brk.
    bool is_brk;
    /// Private anonymous memory, where malloc may have blocks.
    bool is_anonymous;
};

/// A block without a name, of which the owner is looked for.
struct raw {
    uint64_t address;
    /// Size in units of 8 bytes, of which each size is a multiple.
    uint32_t units;
    /// Number of the owning type, plus one; 0 for none.
    uint32_t owner;
};

/// A named block that may point to blocks without a name.
struct note {
    uint64_t address;
    /// Size in units of 8 bytes.
    uint32_t units;
    uint16_t type;
};

/// A copy of part of the process's memory.
struct window {
    uint64_t begin, end;
    /// True if no page of the window is in memory.
    bool is_empty;
    size_t size;
    unsigned char *bytes;
};

/// A page of the process's memory that is read often.
struct kept_page {
    uint64_t address;
    unsigned char bytes[PAGE];
};

/// The tree of jemalloc's pages.
struct page_tree {
    bool is_searched;
    /// Address of the root; 0 if there is no tree.
    uint64_t root;
    /// Logarithm of the size of a page.
    unsigned page_bits;
    /// The leaf that was used last, and the addresses it stands for.
    uint64_t span, leaf;
    struct kept_page leaves, records;
};

struct plimsoll_census {
    // Reading.
    pid_t pid;
    /// True if `pid` is another process than the calling one.
    bool is_other;
    int memory, pagemap;
    /// The window of a walk, and a smaller one for the rest of blocks that begin there.
    struct window window, piece;
    /// Bytes in memory that went through the windows.
    uint64_t filled_bytes;
    uint64_t pages[WINDOW_PAGES + 1];

    // Mappings.
    size_t region_count, last_region;
    bool has_all_regions;
    struct region *regions;
    char *maps_text;

    // Marks of free blocks.
    uint64_t cache_key;
    /// A mark that is not sure yet, and the votes for it.
    uint64_t key_candidate, key_votes;

    struct page_tree tree;

    // Types.
    size_t type_count;
    struct plimsoll_census_type *types;
    /// Number of a type, plus one, by hash of the metadata pointer.
    uint16_t *type_slots;
    uint64_t rejected[REJECTED_SLOTS];

    // Blocks without a name.
    size_t raw_count;
    /// Size from which every block is in the table. Smaller ones are sampled.
    uint64_t raw_threshold;
    uint64_t raw_begin, raw_end;
    struct raw *raws, *spare_raws;
    uint64_t *raw_filter;

    // Named blocks within the window, whose pointers are looked at before the window moves.
    bool notes_owners;
    size_t note_count;
    struct note *notes;

    struct plimsoll_census_totals totals;
    size_t mapped;
};

/// Opens a file of the process's directory in /proc. Returns the descriptor, or -1 and the errno.
int heap_open_file(const plimsoll_census *heap, const char *name);
/// Reads memory of the process through the kernel.
bool heap_read(plimsoll_census *heap, uint64_t address, void *into, size_t size);
/// Returns `size` bytes at `address`, less than a window. The pointer is valid until the next call. Pages that are
/// swapped out or were never touched read as zeros, and stay as they are.
const unsigned char *heap_peek(plimsoll_census *heap, uint64_t address, size_t size);
/// Calls `take` for the parts of the memory from `begin` to `end`: from the window, as far as that reaches.
void heap_each_part(plimsoll_census *heap, uint64_t begin, uint64_t end,
    void (*take)(plimsoll_census *heap, const unsigned char *bytes, size_t size, const void *context), const void *context);
/// Forgets what the windows hold.
void heap_forget_windows(plimsoll_census *heap);
/// Returns true if the page of `address` is in memory.
bool heap_is_present(plimsoll_census *heap, uint64_t address);
static inline uint64_t word(const unsigned char *bytes, size_t offset) {
    uint64_t value;
    memcpy(&value, bytes + offset, sizeof value);
    return value;
}
static inline uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }
static inline uint32_t half_word(const unsigned char *bytes, size_t offset) {
    uint32_t value;
    memcpy(&value, bytes + offset, sizeof value);
    return value;
}

int heap_read_regions(plimsoll_census *heap);
/// Returns the region of `address`, or NULL.
const struct region *heap_region(plimsoll_census *heap, uint64_t address);

/// Returns the type of a block that begins with `head`, `HEAD` bytes of which are readable; NULL if the block has none.
/// `room` is the size of the block; 0 if unknown.
struct plimsoll_census_type *heap_type_of(plimsoll_census *heap, const unsigned char *head, uint64_t room);
/// Returns false if objects of the type hold nothing but bytes.
bool heap_may_have_pointers(const struct plimsoll_census_type *type);
/// Returns the bytes of a block of `size` bytes that the object uses: without the room for more elements of an array, and
/// without the remainder of a chunk that was larger than needed.
uint64_t heap_used(const struct plimsoll_census_type *type, const unsigned char *head, uint64_t size);
/// Adds an object to the type's sums.
void heap_add(struct plimsoll_census_type *type, const unsigned char *head, uint64_t bytes);

void heap_add_raw(plimsoll_census *heap, uint64_t address, uint64_t bytes);
static inline size_t raw_bit(uint64_t address) {
    return (size_t)(address / 16 * 0x9e3779b97f4a7c15u >> 44) % RAW_FILTER_BITS;
}
/// Returns true if there may be a block without a name at `address`.
static inline bool heap_may_have_raw(const plimsoll_census *heap, uint64_t address) {
    // Rotated, so that one comparison leaves out what is out of range and what is no multiple of 16.
    uint64_t offset = address - heap->raw_begin;
    return (offset >> 4 | offset << 60) <= (heap->raw_end - heap->raw_begin) / 16
        && heap->raw_filter[raw_bit(address) / 64] >> raw_bit(address) % 64 & 1;
}
/// Returns the pointer in `value` without the tags that Swift keeps in spare bits: the lowest three, the upper byte.
static inline uint64_t heap_untagged(uint64_t value) { return value & 0x00fffffffffffff8; }
/// Gives the block at `address`, if there is one without an owner, to `type`.
void heap_own(plimsoll_census *heap, uint64_t address, const struct plimsoll_census_type *type);
/// Gives the blocks without a name to which the noted blocks point to these blocks' types, and forgets the notes.
void heap_settle(plimsoll_census *heap);
/// Returns the bytes of the blocks without an owner.
uint64_t heap_unowned(const plimsoll_census *heap);
void heap_sum_raws(plimsoll_census *heap);

/// Called for every block in use: its address and size, and `HEAD` bytes of it.
typedef void visitor(plimsoll_census *heap, uint64_t address, uint64_t size, const unsigned char *head);
/// Visits every block of glibc's malloc.
void heap_walk_chunks(plimsoll_census *heap, visitor *visit);
/// Returns true if `address` is that of a chunk's block in use, and its size.
bool heap_find_chunk(plimsoll_census *heap, uint64_t address, uint64_t *size);
/// Learns the mark of free blocks of another process. Returns true if the process has chunks of glibc's malloc.
bool heap_learn_chunks(plimsoll_census *heap);
/// Visits every block of jemalloc.
void heap_walk_tree(plimsoll_census *heap, visitor *visit);
/// Returns true if `address` is that of a block of jemalloc in use, and its size.
bool heap_find_in_tree(plimsoll_census *heap, uint64_t address, uint64_t *size);
/// Reads anew, from now on, what jemalloc notes about its pages.
void heap_forget_tree(plimsoll_census *heap);
/// Visits whatever looks like an object, under any allocator.
void heap_scan(plimsoll_census *heap, visitor *visit);

#endif
