// Objects under any malloc, by the headers that they begin with.
#include "internal.h"

#ifdef PLIMSOLL_LINUX

/// The bytes of an object, as far as its own fields tell.
static uint64_t size_of(const struct plimsoll_census_type *type, const unsigned char *head) {
    enum { LEAST = 32 };
    uint64_t capacity;
    switch ((enum plimsoll_census_shape)type->shape) {
    case PLIMSOLL_CENSUS_PLAIN: return type->instance_size ? type->instance_size : LEAST;
    case PLIMSOLL_CENSUS_ARRAY: return 32 + least(word(head, 24) / 2, 1ull << 36) * type->stride;
    case PLIMSOLL_CENSUS_STRING: return 32 + (word(head, 16) & 0xffffffffffff);
    case PLIMSOLL_CENSUS_DICTIONARY:
    case PLIMSOLL_CENSUS_SET:
        // A bit for each bucket, then keys, then values.
        capacity = 1ull << (head[32] & 31);
        return (type->shape == PLIMSOLL_CENSUS_SET ? 56 : 64) + (capacity + 63) / 64 * 8
            + capacity * ((uint64_t)type->stride + type->value_stride);
    }
    return 0;
}

void heap_scan(plimsoll_census *heap, visitor *visit) {
    for (size_t index = 0; index < heap->region_count; index++) {
        struct region region = heap->regions[index];
        if (!region.is_anonymous || !region.is_readable || !region.is_writable) continue;
        for (uint64_t place = region.begin; place + HEAD <= region.end;) {
            const unsigned char *head = heap_peek(heap, place, HEAD);
            if (heap->window.is_empty) {
                // Most of a stack was never touched.
                place = heap->window.end;
                continue;
            }
            const struct plimsoll_census_type *type = heap_type_of(heap, head, 0);
            uint64_t size = type ? size_of(type, head) : 0;
            if (!type || size > region.end - place) {
                place += 16;
                continue;
            }
            visit(heap, place, size, head);
            place += (size + 15) / 16 * 16;
        }
    }
}

#endif
