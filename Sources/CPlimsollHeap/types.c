// Types of heap objects, recognized by the metadata pointer at their start.
#include "internal.h"

#ifdef PLIMSOLL_LINUX

// Kinds of metadata (include/swift/ABI/MetadataKind.def). A class has 0 where there is no Objective-C.
enum {
    KIND_CLASS = 0,
    KIND_CAPTURE = 0x400,
    KIND_BOX = 0x500,
    KIND_ERROR = 0x501,
    KIND_TASK = 0x502,
};
// Kinds of context descriptors (include/swift/ABI/MetadataValues.h).
enum { CONTEXT_KIND = 0x1f, CONTEXT_MODULE = 0, CONTEXT_CLASS = 16, IS_GENERIC = 0x80 };
enum { NAME = 256, MAX_DEPTH = 32, MAX_INSTANCE = 1 << 24 };

static size_t hash(uint64_t metadata) { return (size_t)(metadata / 8 * 0x9e3779b97f4a7c15u >> 40); }

static bool is_in_file(plimsoll_census *heap, uint64_t address) {
    const struct region *region = heap_region(heap, address);
    return region && region->is_file && region->is_readable;
}

static bool is_code(plimsoll_census *heap, uint64_t address) {
    const struct region *region = heap_region(heap, address);
    return region && region->is_executable;
}

static bool read_name(plimsoll_census *heap, uint64_t address, char name[NAME]) {
    if (!is_in_file(heap, address)) return false;
    const struct region *region = heap_region(heap, address);
    size_t size = region->end - address < NAME ? region->end - address : NAME;
    if (!heap_read(heap, address, name, size) || !memchr(name, 0, size)) return false;
    for (const char *at = name; *at; at++)
        if (*at > 0 && *at <= ' ') return false;
    return *name != 0;
}

/// Follows a relative pointer (include/swift/Basic/RelativePointer.h). The lowest bit of an indirectable one says that
/// the target is the pointer.
static uint64_t relative(plimsoll_census *heap, uint64_t field, bool is_indirectable) {
    int32_t offset;
    if (!heap_read(heap, field, &offset, sizeof offset) || offset == 0) return 0;
    uint64_t target = field + (uint64_t)(int64_t)(is_indirectable ? offset & ~1 : offset);
    if (!is_indirectable || !(offset & 1)) return target;
    return heap_read(heap, target, &target, sizeof target) ? target : 0;
}

/// Returns true if the context belongs to the standard library.
static bool is_of_standard_library(plimsoll_census *heap, uint64_t descriptor) {
    for (int depth = 0; depth < MAX_DEPTH && is_in_file(heap, descriptor); depth++) {
        uint32_t flags;
        if (!heap_read(heap, descriptor, &flags, sizeof flags)) return false;
        if ((flags & CONTEXT_KIND) == CONTEXT_MODULE) {
            char name[NAME];
            return read_name(heap, relative(heap, descriptor + 8, false), name) && strcmp(name, "Swift") == 0;
        }
        descriptor = relative(heap, descriptor + 4, true);
    }
    return false;
}

/// Returns the bytes from one value of a type to the next, from its value witness table: eight functions, size, stride.
static uint32_t stride_of(plimsoll_census *heap, uint64_t metadata) {
    uint64_t table, stride;
    if (!heap_read(heap, metadata - 8, &table, sizeof table) || !heap_read(heap, table + 72, &stride, sizeof stride))
        return 0;
    return stride > 0 && stride < MAX_INSTANCE ? (uint32_t)stride : 0;
}

static void describe_storage(plimsoll_census *heap, struct plimsoll_census_type *type, uint64_t descriptor, const char *name) {
    static const struct {
        const char *name;
        enum plimsoll_census_shape shape;
    } storages[] = {
        {"_ContiguousArrayStorage", PLIMSOLL_CENSUS_ARRAY}, {"__StringStorage", PLIMSOLL_CENSUS_STRING},
        {"_DictionaryStorage", PLIMSOLL_CENSUS_DICTIONARY}, {"_SetStorage", PLIMSOLL_CENSUS_SET},
    };
    for (size_t index = 0; index < sizeof storages / sizeof *storages; index++)
        if (strcmp(name, storages[index].name) == 0) type->shape = (uint8_t)storages[index].shape;
    if (type->shape == PLIMSOLL_CENSUS_PLAIN) return;
    if (type->shape == PLIMSOLL_CENSUS_STRING) {
        type->stride = 1;
        return;
    }
    // Generic arguments are the first of the class's own members, which end the metadata.
    uint32_t sizes[2];
    uint64_t arguments[2] = {0, 0};
    if (!heap_read(heap, descriptor + 28, sizes, sizeof sizes) || sizes[1] > sizes[0] || sizes[0] > 4096) return;
    uint64_t place = type->metadata + (uint64_t)(sizes[0] - sizes[1]) * 8;
    size_t count = type->shape == PLIMSOLL_CENSUS_DICTIONARY ? 2 : 1;
    if (!heap_read(heap, place, arguments, count * sizeof *arguments)) return;
    type->stride = stride_of(heap, arguments[0]);
    if (count == 2) type->value_stride = stride_of(heap, arguments[1]);
}

/// Class metadata: the superclass at 8, flags at 16, the sizes of an instance and of the metadata at 24 and 32, the
/// descriptor at 40.
static bool describe_class(plimsoll_census *heap, struct plimsoll_census_type *type, const unsigned char *metadata) {
    uint64_t super = word(metadata, 8), descriptor = word(metadata, 40);
    uint32_t instance = half_word(metadata, 24), alignment = half_word(metadata, 28);
    if (super % 8 || (super && !heap_region(heap, super)) || half_word(metadata, 16) > 0xff) return false;
    if (instance < 16 || instance > MAX_INSTANCE || alignment > 0xfff || (alignment & (alignment + 1))) return false;
    char name[NAME];
    for (int depth = 0; depth < MAX_DEPTH; depth++) {
        uint32_t flags;
        if (!is_in_file(heap, descriptor) || !heap_read(heap, descriptor, &flags, sizeof flags)) return false;
        if ((flags & CONTEXT_KIND) != CONTEXT_CLASS) return false;
        if (!read_name(heap, relative(heap, descriptor + 8, false), name)) return false;
        // Only the standard library's classes, ManagedBuffer among them, allocate elements behind an instance.
        bool is_standard = is_of_standard_library(heap, descriptor);
        if (depth == 0) {
            type->kind = PLIMSOLL_CENSUS_CLASS;
            type->instance_size = instance;
            if (is_standard) describe_storage(heap, type, descriptor, name);
        }
        if (is_standard) type->has_tail = true;
        if (is_standard || !super) return true;
        unsigned char next[48];
        if (!heap_read(heap, super, next, sizeof next) || word(next, 0) != KIND_CLASS) return false;
        super = word(next, 8);
        descriptor = word(next, 40);
    }
    return false;
}

/// A virtual table of C++ (Itanium C++ ABI 2.5): offset to the top and typeinfo before the first function.
static bool describe_cpp(plimsoll_census *heap, struct plimsoll_census_type *type, const unsigned char *around) {
    uint64_t info[2];
    char name[NAME];
    if (word(around, 0) != 0 || !is_in_file(heap, type->metadata) || !is_code(heap, word(around, 16))) return false;
    if (!is_in_file(heap, word(around, 8)) || !heap_read(heap, word(around, 8), info, sizeof info)) return false;
    if (!is_in_file(heap, info[0]) || !read_name(heap, info[1], name)) return false;
    if (!strchr("NSZ*", *name) && !(*name >= '0' && *name <= '9')) return false;
    type->kind = PLIMSOLL_CENSUS_CPP;
    return true;
}

static bool describe(plimsoll_census *heap, struct plimsoll_census_type *type) {
    // From 16 bytes before the metadata: what destroys an object, and the value witnesses.
    unsigned char around[64];
    if (!heap_region(heap, type->metadata) || !heap_read(heap, type->metadata - 16, around, sizeof around)) return false;
    const unsigned char *metadata = around + 16;
    uint64_t destroy = word(around, 0);
    switch (word(metadata, 0)) {
    case KIND_CLASS: return describe_class(heap, type, metadata);
    case KIND_CAPTURE:
    case KIND_BOX:
        if (half_word(metadata, 8) < 16 || half_word(metadata, 8) > 0xffff) return false;
        if (!is_code(heap, destroy)) return false;
        if (word(metadata, 16) && !heap_region(heap, word(metadata, 16))) return false;
        type->kind = word(metadata, 0) == KIND_BOX ? PLIMSOLL_CENSUS_BOX : PLIMSOLL_CENSUS_CAPTURE;
        return type->kind == PLIMSOLL_CENSUS_BOX || is_in_file(heap, type->metadata);
    case KIND_ERROR:
    case KIND_TASK:
        if (!is_in_file(heap, type->metadata) || !is_code(heap, destroy)) return false;
        type->kind = word(metadata, 0) == KIND_TASK ? PLIMSOLL_CENSUS_TASK : PLIMSOLL_CENSUS_ERROR;
        return true;
    default: return describe_cpp(heap, type, around);
    }
}

static struct plimsoll_census_type *lookup(plimsoll_census *heap, uint64_t metadata) {
    size_t slot = hash(metadata) % TYPE_SLOTS;
    for (; heap->type_slots[slot]; slot = (slot + 1) % TYPE_SLOTS)
        if (heap->types[heap->type_slots[slot] - 1].metadata == metadata) return &heap->types[heap->type_slots[slot] - 1];
    uint64_t *rejected = &heap->rejected[hash(metadata) % REJECTED_SLOTS];
    if (*rejected == metadata || heap->type_count == MAX_TYPES) return NULL;
    struct plimsoll_census_type type = {.metadata = metadata};
    if (!describe(heap, &type)) {
        *rejected = metadata;
        return NULL;
    }
    heap->types[heap->type_count] = type;
    heap->type_slots[slot] = (uint16_t)(heap->type_count + 1);
    return &heap->types[heap->type_count++];
}

/// Reference counts in one word: unowned references from bit 1, a mark of deinitialization, strong references from bit
/// 33; or the address of a side table, divided by 8, below two marks.
static bool is_reference_count(uint64_t bits) {
    enum { MANY = 1 << 24 };
    if (bits >> 62 == 3) {
        uint64_t side_table = (bits & ~(3ull << 62)) << 3;
        return side_table && side_table >> ADDRESS_BITS == 0;
    }
    uint64_t unowned = bits >> 1 & 0x7fffffff, strong = bits >> 33;
    bool is_deinitializing = bits >> 32 & 1;
    return bits & 1 && !is_deinitializing && unowned > 0 && unowned < MANY && strong < MANY;
}

/// Returns true if malloc returns a block of `room` bytes for an instance.
static bool fits(const plimsoll_census *heap, const struct plimsoll_census_type *type, uint64_t room) {
    if (room == 0 || type->instance_size == 0) return true;
    // A remainder below the least chunk, 32 bytes, stays with the block. jemalloc has four sizes for each power of two.
    uint64_t least = type->instance_size, most = (least + 8 + 15) / 16 * 16 - 8 + 16;
    if (most < 40) most = 40;
    if (heap->tree.root && most < least / 4 * 5 + 16) most = least / 4 * 5 + 16;
    return room >= least && (type->has_tail || room <= most);
}

struct plimsoll_census_type *heap_type_of(plimsoll_census *heap, const unsigned char *head, uint64_t room) {
    uint64_t metadata = word(head, 0);
    if (metadata % 8 || metadata < PAGE || metadata >> ADDRESS_BITS) return NULL;
    bool is_counted = is_reference_count(word(head, 8));
    // Under a scan only a reference count tells an object from a word that looks like one.
    if (!is_counted && room == 0) return NULL;
    // A virtual table of C++ lies in a program or library. Other words cost no further look.
    if (!is_counted && !is_in_file(heap, metadata)) return NULL;
    struct plimsoll_census_type *type = lookup(heap, metadata);
    if (!type || (!is_counted && type->kind != PLIMSOLL_CENSUS_CPP)) return NULL;
    return fits(heap, type, room) ? type : NULL;
}

bool heap_may_have_pointers(const struct plimsoll_census_type *type) {
    if (type->shape == PLIMSOLL_CENSUS_STRING) return false;
    // Elements smaller than a pointer are none.
    return type->shape != PLIMSOLL_CENSUS_ARRAY || type->stride >= sizeof(void *);
}

uint64_t heap_used(const struct plimsoll_census_type *type, const unsigned char *head, uint64_t size) {
    enum { HEADER = 32 };
    uint64_t used = size;
    if (type->shape == PLIMSOLL_CENSUS_ARRAY && type->stride && word(head, 16) < size / type->stride)
        used = HEADER + word(head, 16) * type->stride;
    else if (type->instance_size && !type->has_tail)
        used = type->instance_size;
    return used < size ? used : size;
}

void heap_add(struct plimsoll_census_type *type, const unsigned char *head, uint64_t bytes) {
    type->count++;
    type->bytes += bytes;
    uint64_t used = word(head, 16), capacity = word(head, 24);
    switch ((enum plimsoll_census_shape)type->shape) {
    case PLIMSOLL_CENSUS_PLAIN: return;
    // The lowest bit of the capacity is a flag.
    case PLIMSOLL_CENSUS_ARRAY: capacity /= 2; break;
    // The other way around, with flags in the upper 16 bits.
    case PLIMSOLL_CENSUS_STRING:
        used = word(head, 24) & 0xffffffffffff;
        capacity = word(head, 16) & 0xffffffffffff;
        break;
    case PLIMSOLL_CENSUS_DICTIONARY:
    case PLIMSOLL_CENSUS_SET: break;
    }
    // Counts that were read while another thread wrote, or that a hostile process made up, may have any value.
    uint64_t stride = (uint64_t)type->stride + type->value_stride;
    if (used > capacity || capacity > bytes / (stride ? stride : 1)) return;
    type->used += used;
    type->capacity += capacity;
}

#endif
