// A census of a heap: blocks of malloc, named by the Swift metadata at their start. The heap may be that of the calling
// process or of another.
//
// Every byte of the heap is read through the kernel, which answers EFAULT where a direct load would crash, so a census
// needs no stop of the process's threads. Layouts are those of Swift 5.9 to 6.3 (include/swift/ABI/Metadata.h and
// stdlib/public/SwiftShims/swift/shims/RefCount.h), of glibc 2.34 to 2.42 (malloc/malloc.c, malloc/arena.c) and of
// jemalloc 5.3. The caller checks them with objects of its own before it believes a census.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/// Sorts of heap objects, by the kind in their metadata.
enum plimsoll_census_kind {
    PLIMSOLL_CENSUS_CLASS = 1,
    /// The context of a closure, or the box of a captured variable.
    PLIMSOLL_CENSUS_CAPTURE,
    /// The box of a captured variable of a generic type.
    PLIMSOLL_CENSUS_BOX,
    PLIMSOLL_CENSUS_ERROR,
    PLIMSOLL_CENSUS_TASK,
    /// A C++ object with a virtual table.
    PLIMSOLL_CENSUS_CPP,
};

/// Storage of the standard library whose elements are counted.
enum plimsoll_census_shape {
    PLIMSOLL_CENSUS_PLAIN,
    PLIMSOLL_CENSUS_ARRAY,
    /// Elements are bytes.
    PLIMSOLL_CENSUS_STRING,
    PLIMSOLL_CENSUS_DICTIONARY,
    PLIMSOLL_CENSUS_SET,
};

/// Ways to find blocks.
enum plimsoll_census_way {
    /// Walks the chunks of glibc's arenas: every block, its size, and whether the block is free.
    PLIMSOLL_CENSUS_CHUNKS,
    /// Follows the tree of jemalloc's pages: every block, its size, and whether the block is free, except that blocks
    /// which threads keep for their next call count as in use.
    PLIMSOLL_CENSUS_PAGES,
    /// Looks for object headers at steps of 16 bytes, under any allocator. Blocks without a header are not seen.
    PLIMSOLL_CENSUS_SCAN,
};

/// All objects with one metadata pointer.
struct plimsoll_census_type {
    /// Address of the Swift metadata, or of the virtual table of C++.
    uint64_t metadata;
    uint64_t count, bytes;
    /// Elements in use, and room for elements, summed over all objects.
    uint64_t used, capacity;
    /// Blocks without a name to which an object of this type points, each counted for one owner. An estimate if the
    /// heap has more than 98,000 such blocks: smaller ones are then sampled.
    uint64_t owned_blocks, owned_bytes;
    /// Bytes of the stored properties, the header included; 0 if unknown.
    uint32_t instance_size;
    /// Bytes from one element to the next: elements, keys; values.
    uint32_t stride, value_stride;
    uint8_t kind, shape;
    /// True if elements may follow the stored properties in the same block.
    bool has_tail;
};

struct plimsoll_census_totals {
    /// Blocks in use: named by their own header; without a name, owned by a named one; without either.
    uint64_t named_blocks, named_bytes, owned_blocks, owned_bytes, unnamed_blocks, unnamed_bytes;
    /// Chunks that malloc keeps free.
    uint64_t free_bytes;
    /// Bytes that could not be read, or were skipped because the walk lost its way.
    uint64_t lost_bytes;
    /// Mappings of the process, and bytes of them that were read, those that were read twice counted twice.
    uint64_t mappings, read_bytes;
    uint64_t processor_nanoseconds;
};

typedef struct plimsoll_census plimsoll_census;

/// Maps the memory of a census, at most 8 MiB, of which as much is used as the heap needs. `process` is the PID of the
/// process to read; 0 stands for the calling one. Returns NULL and the errno if there is no memory, or if the kernel
/// does not let the caller read the memory of that process (ptrace(2), PTRACE_MODE_ATTACH_REALCREDS).
plimsoll_census *plimsoll_census_open(int process, int *failure);
void plimsoll_census_close(plimsoll_census *heap);

/// Returns true if blocks of malloc have the headers of glibc's chunks. Learns the mark of the blocks that threads keep
/// free: in the calling process from blocks that it frees, in another from the blocks that it has freed.
bool plimsoll_census_has_chunks(plimsoll_census *heap);

/// Returns true if the process has a tree of jemalloc's pages that knows blocks made for a test, or, in another process,
/// pages of large mappings. The tree is looked for once.
bool plimsoll_census_has_tree(plimsoll_census *heap);

/// Counts all blocks. Returns 0 or an errno. Allocates nothing, takes no lock. Not for two threads at a time.
int plimsoll_census_take(plimsoll_census *heap, enum plimsoll_census_way way);

/// Waits until the child `process` has stopped itself by SIGSTOP, lets it go on, and waits for its end. Just before the
/// end calls `before_end` on the calling thread, while all memory of the child is still there. Writes the status as
/// wait(2) has it, or -1 if it is unknown. Returns 0, or the errno if the kernel does not let the caller trace the child
/// (ptrace(2)).
///
/// A child that SIGKILL ends may end without that call. Only the calling thread may wait for the child.
int plimsoll_census_watch(int process, void (*before_end)(void *context), void *context, int *status);

/// Results of the last census, valid until the next.
const struct plimsoll_census_type *plimsoll_census_types(const plimsoll_census *heap, size_t *count);
struct plimsoll_census_totals plimsoll_census_totals(const plimsoll_census *heap);

/// Reads `size` bytes at `address`. Returns false if any of them is not readable.
bool plimsoll_census_read(plimsoll_census *heap, uint64_t address, void *into, size_t size);

/// A block of malloc that is in use.
struct plimsoll_census_block {
    uint64_t address, size;
    /// Bytes from the start that may have pointers: 0 for texts and bytes, and for blocks above 4 KiB without a name,
    /// which are buffers more often than tables of pointers.
    uint64_t used;
};

/// Reads the mappings of the process again, for the next calls of the function below. Returns 0 or an errno.
int plimsoll_census_refresh(plimsoll_census *heap);

/// Returns true if `value` is a pointer to a block of malloc: by jemalloc's tree if there is one, otherwise by a chunk's
/// header and by the next one's. Tags that Swift keeps in a pointer's spare bits are left out. A block that is free may
/// be taken for one in use.
bool plimsoll_census_find_block(plimsoll_census *heap, uint64_t value, struct plimsoll_census_block *block);

/// Returns false if the process has ended.
bool plimsoll_census_is_readable(plimsoll_census *heap);

/// Returns true, and the path and offset of the image, if `address` lies in a mapped file.
bool plimsoll_census_image(plimsoll_census *heap, uint64_t address, char *path, size_t size, uint64_t *offset);

/// Writes the text of an errno.
void plimsoll_census_explain(int failure, char *text, size_t size);
