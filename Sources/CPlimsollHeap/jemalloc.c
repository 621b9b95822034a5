// Blocks of jemalloc, by the tree in which it keeps a word for each page of its memory.
//
// The layout is that of jemalloc 5.3 (include/jemalloc/internal/rtree.h, edata.h, sc.h, bitmap.h): a radix tree of two
// levels, whose root lies among the library's zeroed data. The word of a page leads to the record of its extent, which
// is a slab of small blocks, one large block, or free. `arenas.lookup` of mallctl(3) answers the same question, but
// ends the process for an address in a GiB where jemalloc never had memory.
#include "internal.h"

#ifdef PLIMSOLL_LINUX

#include <stdlib.h>

enum {
    // A record: flags, address, size; then, for a slab, a bit for each block that is free.
    RECORD = 128,
    FREE_BITS = 64,
    SLAB_SHIFT = 12,
    STATE_SHIFT = 17,
    STATE = 7,
    RETAINED = 3,
    CLASS_SHIFT = 20,
    CLASSES = 232,
    // With pages of 64 KiB.
    MOST_BLOCKS = 1 << 13,
    // Of the zeroed data of a program or library.
    MOST_DATA = 64 << 20,
    MOST_SIZE_BITS = 40,
    PROBED_PAGES = 1 << 14,
    MOST_PROBES = 32,
    ENOUGH = 8,
};

/// A run of pages.
struct extent {
    uint64_t record, address, size;
    /// Bytes of each block.
    uint64_t block;
    bool is_active, is_retained, is_slab;
};

/// Returns the size of the blocks of a class: 8, multiples of 16 up to 128, then four sizes for each power of two.
static uint64_t class_size(uint64_t index) {
    if (index <= 8) return index ? index * 16 : 8;
    return (128ull << (index - 9) / 4) / 4 * (5 + (index - 9) % 4);
}

static unsigned leaf_bits(const struct page_tree *tree) { return (ADDRESS_BITS - tree->page_bits) / 2; }
static unsigned span_bits(const struct page_tree *tree) { return tree->page_bits + leaf_bits(tree); }
static uint64_t page_of(const struct page_tree *tree, uint64_t address) {
    return address >> tree->page_bits << tree->page_bits;
}

/// Returns what is at `address`, up to the end of its page; NULL if nothing can be read there.
static const unsigned char *kept(plimsoll_census *heap, struct kept_page *page, uint64_t address) {
    uint64_t begin = address / PAGE * PAGE;
    if (page->address != begin) {
        page->address = begin;
        // A page that was never touched would be mapped by a read.
        if (!heap_is_present(heap, begin) || !heap_read(heap, begin, page->bytes, PAGE)) page->address = 0;
    }
    return page->address ? page->bytes + address % PAGE : NULL;
}

/// Returns the leaf with the words of the pages around `address`; 0 if jemalloc never had any of them.
static uint64_t leaf_of(plimsoll_census *heap, uint64_t address) {
    struct page_tree *tree = &heap->tree;
    uint64_t span = address >> span_bits(tree);
    if (tree->span != span || !tree->leaf) {
        tree->span = span;
        if (!heap_read(heap, tree->root + span * 8, &tree->leaf, sizeof tree->leaf)) tree->leaf = 0;
        // Memory that is no tree has words with any bits. No word of a leaf may reach beyond a page.
        tree->leaf &= ~(uint64_t)7;
    }
    return tree->leaf;
}

/// Returns the word of the page of `address`: a class of sizes, the address of a record, and flags.
static uint64_t word_of(plimsoll_census *heap, uint64_t address) {
    struct page_tree *tree = &heap->tree;
    uint64_t leaf = leaf_of(heap, address), number = address >> tree->page_bits & ((1ull << leaf_bits(tree)) - 1);
    const unsigned char *bytes = leaf ? kept(heap, &tree->leaves, leaf + number * 8) : NULL;
    return bytes ? word(bytes, 0) : 0;
}

/// Returns true if `bits`, the word of the page of `address`, leads to the record of an extent with that page.
static bool read_extent(plimsoll_census *heap, uint64_t bits, uint64_t address, struct extent *extent) {
    struct page_tree *tree = &heap->tree;
    // Users' addresses have zeros above bit 47.
    uint64_t record = bits & ((1ull << ADDRESS_BITS) - 1) & ~(uint64_t)(RECORD - 1);
    const unsigned char *bytes = record ? kept(heap, &tree->records, record) : NULL;
    if (!bytes) return false;
    uint64_t flags = word(bytes, 0), state = flags >> STATE_SHIFT & STATE, index = flags >> CLASS_SHIFT & 0xff;
    *extent = (struct extent){
        .record = record,
        .address = word(bytes, 8),
        .size = page_of(tree, word(bytes, 16)),
        .is_active = state == 0,
        .is_retained = state == RETAINED,
        .is_slab = flags >> SLAB_SHIFT & 1,
    };
    uint64_t begin = page_of(tree, extent->address);
    if (extent->size >> MOST_SIZE_BITS || address < begin || address - begin >= extent->size) return false;
    if (!extent->is_active) return true;
    const struct region *region = heap_region(heap, begin);
    if (!region || extent->size > region->end - begin) return false;
    // Both places name the class, unless the extent changes just now.
    if (index >= CLASSES || index != bits >> ADDRESS_BITS) return false;
    extent->block = class_size(index);
    return extent->block <= extent->size && (!extent->is_slab || extent->size / extent->block <= MOST_BLOCKS);
}

/// Reads the bits of a slab's blocks. Returns false if that cannot be.
static bool read_free_bits(plimsoll_census *heap, struct extent extent, uint64_t *bits) {
    size_t size = (extent.size / extent.block + 63) / 64 * 8;
    const unsigned char *bytes = kept(heap, &heap->tree.records, extent.record);
    if (!bytes || extent.record % PAGE + FREE_BITS + size > PAGE)
        return heap_read(heap, extent.record + FREE_BITS, bits, size);
    memcpy(bits, bytes + FREE_BITS, size);
    return true;
}

static bool is_free(const uint64_t *bits, uint64_t block) { return bits[block / 64] >> block % 64 & 1; }

static void visit_slab(plimsoll_census *heap, struct extent extent, visitor *visit) {
    uint64_t bits[MOST_BLOCKS / 64];
    if (!read_free_bits(heap, extent, bits)) return;
    for (uint64_t block = 0; block < extent.size / extent.block; block++) {
        uint64_t address = extent.address + block * extent.block;
        if (is_free(bits, block)) heap->totals.free_bytes += extent.block;
        else visit(heap, address, extent.block, heap_peek(heap, address, HEAD));
    }
}

static void visit_large(plimsoll_census *heap, struct extent extent, visitor *visit) {
    unsigned char head[HEAD] = {0};
    // Not through the window, which would read a megabyte of the block. One that was never touched stays so.
    if (heap_is_present(heap, extent.address)) (void)heap_read(heap, extent.address, head, HEAD);
    visit(heap, extent.address, extent.block, head);
}

void heap_walk_tree(plimsoll_census *heap, visitor *visit) {
    struct page_tree *tree = &heap->tree;
    heap_forget_tree(heap);
    for (size_t index = 0; index < heap->region_count; index++) {
        struct region region = heap->regions[index];
        if (!region.is_anonymous || !region.is_writable) continue;
        for (uint64_t page = page_of(tree, region.begin); page < region.end;) {
            if (!leaf_of(heap, page)) {
                page = ((page >> span_bits(tree)) + 1) << span_bits(tree);
                continue;
            }
            uint64_t bits = word_of(heap, page);
            struct extent extent;
            // The last page of an extent has a word, too.
            if (!bits || !read_extent(heap, bits, page, &extent) || page_of(tree, extent.address) != page) {
                page += 1ull << tree->page_bits;
                continue;
            }
            if (extent.is_slab && extent.is_active) visit_slab(heap, extent, visit);
            else if (extent.is_active) visit_large(heap, extent, visit);
            else if (!extent.is_retained) heap->totals.free_bytes += least(extent.size, region.end - page);
            page += extent.size;
        }
    }
}

bool heap_find_in_tree(plimsoll_census *heap, uint64_t address, uint64_t *size) {
    struct extent extent;
    uint64_t word = word_of(heap, address), bits[MOST_BLOCKS / 64];
    if (!word || !read_extent(heap, word, address, &extent) || !extent.is_active) return false;
    *size = extent.block;
    if (!extent.is_slab) return extent.address == address;
    uint64_t offset = address - extent.address, block = offset / extent.block;
    return offset % extent.block == 0 && block < extent.size / extent.block && read_free_bits(heap, extent, bits)
        && !is_free(bits, block);
}

void heap_forget_tree(plimsoll_census *heap) {
    heap->tree.leaf = heap->tree.leaves.address = heap->tree.records.address = 0;
}

/// Pages that are likely to be jemalloc's.
struct probe {
    uint64_t begin, pages;
};

/// Returns true if the tree has words for the pages, and if these lead to records of the pages.
static bool knows(plimsoll_census *heap, struct probe probe) {
    uint64_t right = 0, wrong = 0;
    struct extent extent;
    heap->tree.leaf = 0;
    // Another thread may be changing an extent. What is no tree has words that lead nowhere.
    for (uint64_t page = 0; page < probe.pages && right < ENOUGH && wrong < ENOUGH; page++) {
        uint64_t address = probe.begin + (page << heap->tree.page_bits), bits = word_of(heap, address);
        if (!bits) continue;
        if (read_extent(heap, bits, address, &extent)) right++;
        else wrong++;
    }
    return right > wrong * 4;
}

/// Returns true if the word at `place`, within data from `begin` to `end`, is the root's pointer to a leaf.
static bool is_root(plimsoll_census *heap, uint64_t place, uint64_t begin, uint64_t end, struct probe probe) {
    // Builds for arm64 often take the largest page that a kernel may have.
    static const unsigned page_bits[] = {12, 14, 16};
    for (size_t index = 0; index < sizeof page_bits / sizeof *page_bits; index++) {
        heap->tree.page_bits = page_bits[index];
        uint64_t before = (probe.begin >> span_bits(&heap->tree)) * 8, root = place - before;
        uint64_t size = 8ull << (ADDRESS_BITS - span_bits(&heap->tree));
        if (before > place - begin || root + size > end) continue;
        heap->tree.root = root;
        if (knows(heap, probe)) return true;
    }
    return false;
}

/// Looks for the root in the zeroed data of the program and its libraries. Returns false if there is none.
static bool find_root(plimsoll_census *heap, const struct probe *probes, size_t count) {
    heap_forget_windows(heap);
    for (size_t index = 1; index < heap->region_count; index++) {
        struct region data = heap->regions[index], file = heap->regions[index - 1];
        if (!data.is_anonymous || !data.is_writable || data.is_brk || !file.is_file || file.end != data.begin) continue;
        for (uint64_t place = data.begin; place + 8 <= least(data.end, data.begin + MOST_DATA); place += 8) {
            uint64_t leaf = word(heap_peek(heap, place, 8), 0);
            if (heap->window.is_empty) {
                place = heap->window.end - 8;
                continue;
            }
            if (!leaf || leaf % 64) continue;
            const struct region *region = heap_region(heap, leaf);
            if (!region || !region->is_anonymous || !region->is_writable) continue;
            // The root may begin among the file's data.
            for (size_t probe = 0; probe < count; probe++)
                if (is_root(heap, place, file.begin, data.end, probes[probe])) return true;
        }
    }
    return false;
}

/// Looks for the tree by blocks of the calling process, which it must know.
static bool find_own_tree(plimsoll_census *heap) {
    static const size_t sizes[] = {24, 200, 5000, 40000};
    enum { COUNT = sizeof sizes / sizeof *sizes };
    void *blocks[COUNT];
    for (int index = 0; index < COUNT; index++) blocks[index] = malloc(sizes[index]);
    // Some of the blocks may lie in new mappings.
    bool is_found = blocks[0] && heap_read_regions(heap) == 0
        && find_root(heap, &(struct probe){(uint64_t)blocks[0], 1}, 1);
    for (int index = 0; index < COUNT; index++) {
        uint64_t size = 0;
        is_found = is_found && heap_find_in_tree(heap, (uint64_t)blocks[index], &size) && size >= sizes[index]
            && size <= sizes[index] * 5 / 4 + 16;
    }
    for (int index = 0; index < COUNT; index++) free(blocks[index]);
    return is_found;
}

/// Returns true if jemalloc's blocks may lie in the region.
static bool is_probed(const struct region *region) {
    return region->is_anonymous && region->is_writable && !region->is_brk && region->end - region->begin >= 1 << 20;
}

static bool find_tree_of_other(plimsoll_census *heap) {
    struct probe probes[MOST_PROBES];
    size_t count = 0, low = 0, high = heap->region_count;
    // By turns from both ends. The kernel puts the stacks of later threads, of which there may be many, at one end.
    while (low < high && count < MOST_PROBES) {
        struct region region = heap->regions[count % 2 ? low++ : --high];
        if (!is_probed(&region)) continue;
        probes[count++] = (struct probe){region.begin, least((region.end - region.begin) / PAGE, PROBED_PAGES)};
    }
    return find_root(heap, probes, count);
}

bool plimsoll_census_has_tree(plimsoll_census *heap) {
    if (plimsoll_census_refresh(heap)) return false;
    if (heap->tree.is_searched) return heap->tree.root != 0;
    heap->tree.is_searched = true;
    heap_forget_tree(heap);
    if (!(heap->is_other ? find_tree_of_other(heap) : find_own_tree(heap))) heap->tree.root = 0;
    return heap->tree.root != 0;
}

#endif
