/* Paths of Variant values (Parquet's "Variant Binary Encoding"): found, taken out, put back. */

#ifndef FERMION_VARIANT_PATHS_H
#define FERMION_VARIANT_PATHS_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { FV_OK = 0, FV_WRONG = -1, FV_MEMORY = -2 };
/* Types of columns of paths; persisted, never to change. */
enum { FV_OTHER, FV_BOOL, FV_INT64, FV_DOUBLE, FV_STRING, FV_DATE, FV_TIME_UTC, FV_TIME, FV_KINDS };
enum { FV_NULL = FV_KINDS, FV_WHOLE }; /* whole: values of any type, as their bytes */
enum { FV_DEPTH_MAX = 64, FV_FEW = 64, FV_SHAPES = 64 };

typedef struct { const uint8_t* data; int64_t size; } fv_bytes;

typedef struct {
    const uint8_t *offsets, *text;
    int64_t count, text_size;
    int width, is_sorted;
} fv_names;

typedef struct {
    const uint8_t *ids, *offsets, *values;
    int64_t count, values_size;
    int id_width, offset_width;
} fv_object;

static inline uint64_t fv_load(const uint8_t* from, int width) {
    uint64_t found = 0;
    if (width == 1) return from[0];
    if (width == 2) return from[0] | (uint64_t)from[1] << 8;
    for (int i = 0; i < width; i++) found |= (uint64_t)from[i] << (8 * i);
    return found;
}

static inline void fv_store(uint8_t* to, uint64_t value, int width) {
    for (int i = 0; i < width; i++) to[i] = (uint8_t)(value >> (8 * i));
}

static inline int fv_width(uint64_t value) {
    return value < 1u << 8 ? 1 : value < 1u << 16 ? 2 : value < 1u << 24 ? 3 : 4;
}

static int fv_read_names(fv_bytes meta, fv_names* out) {
    if (meta.size < 1 || (meta.data[0] & 0xF) != 1) return FV_WRONG;
    out->is_sorted = meta.data[0] >> 4 & 1;
    out->width = (meta.data[0] >> 6) + 1;
    if (meta.size < 1 + out->width) return FV_WRONG;
    out->count = (int64_t)fv_load(meta.data + 1, out->width);
    int64_t start = 1 + out->width * (out->count + 2);
    if (start > meta.size) return FV_WRONG;
    out->offsets = meta.data + 1 + out->width;
    out->text = meta.data + start;
    out->text_size = meta.size - start;
    return FV_OK;
}

static inline int fv_name(const fv_names* names, int64_t id, fv_bytes* out) {
    if (id >= names->count) return FV_WRONG;
    const uint8_t* at = names->offsets + id * names->width;
    int64_t start = (int64_t)fv_load(at, names->width);
    int64_t stop = (int64_t)fv_load(at + names->width, names->width);
    if (start > stop || stop > names->text_size) return FV_WRONG;
    out->data = names->text + start;
    out->size = stop - start;
    return FV_OK;
}

static inline int fv_compare(fv_bytes a, fv_bytes b) {
    int64_t shared = a.size < b.size ? a.size : b.size;
    int found = shared ? memcmp(a.data, b.data, (size_t)shared) : 0;
    return found ? found : (a.size > b.size) - (a.size < b.size);
}

/* The id of a name; -1: it is not there, or names are damaged. */
static int64_t fv_find_name(const fv_names* names, fv_bytes wanted) {
    fv_bytes found;
    int64_t low = 0, high = names->count;
    while (names->is_sorted && low < high) {
        int64_t middle = low + (high - low) / 2;
        if (fv_name(names, middle, &found)) return -1;
        int order = fv_compare(found, wanted);
        if (!order) return middle;
        if (order < 0) low = middle + 1; else high = middle;
    }
    for (int64_t id = 0; !names->is_sorted && id < names->count; id++) {
        if (fv_name(names, id, &found)) return -1;
        if (!fv_compare(found, wanted)) return id;
    }
    return -1;
}

/* Bytes of a primitive by its id, without its header; texts have their length in front. */
static const int8_t FV_SIZES[] = {0, 0, 0, 1, 2, 4, 8, 8, 5, 9, 17, 4, 8, 8, 4, -1, -1, 8, 8, 8, 16};

static int fv_read_object(fv_bytes value, fv_object* out) {
    int head = value.data[0] >> 2, wide = head >> 4 & 1 ? 4 : 1;
    if (value.size < 1 + wide) return FV_WRONG;
    out->count = (int64_t)fv_load(value.data + 1, wide);
    out->offset_width = (head & 3) + 1;
    out->id_width = (head >> 2 & 3) + 1;
    out->ids = value.data + 1 + wide;
    int64_t start = 1 + wide + out->count * out->id_width + (out->count + 1) * out->offset_width;
    if (start > value.size) return FV_WRONG;
    out->offsets = out->ids + out->count * out->id_width;
    out->values = value.data + start;
    out->values_size = (int64_t)fv_load(out->offsets + out->count * out->offset_width, out->offset_width);
    return out->values_size > value.size - start ? FV_WRONG : FV_OK;
}

/* The bytes of the value that begins here; -1: there are not so many. */
static int64_t fv_size(const uint8_t* data, int64_t most) {
    int64_t size = -1;
    if (most < 1) return -1;
    int head = data[0] >> 2;
    switch (data[0] & 3) {
    case 0:
        if (head >= (int)sizeof(FV_SIZES)) return -1;
        size = 1 + FV_SIZES[head];
        if (FV_SIZES[head] < 0) {
            if (most < 5) return -1;
            size = 5 + (int64_t)fv_load(data + 1, 4);
        }
        break;
    case 1:
        size = 1 + head;
        break;
    case 2: {
        fv_object object;
        if (fv_read_object((fv_bytes){data, most}, &object)) return -1;
        size = object.values - data + object.values_size;
        break;
    }
    default: {
        int wide = head >> 2 & 1 ? 4 : 1, width = (head & 3) + 1;
        if (most < 1 + wide) return -1;
        int64_t last = 1 + wide + width * (int64_t)fv_load(data + 1, wide);
        if (last + width > most) return -1;
        size = last + width + (int64_t)fv_load(data + last, width);
    }
    }
    return size > most ? -1 : size;
}

static inline int fv_field(const fv_object* object, int64_t at, uint32_t* id, fv_bytes* value) {
    int64_t offset = (int64_t)fv_load(object->offsets + at * object->offset_width, object->offset_width);
    *id = (uint32_t)fv_load(object->ids + at * object->id_width, object->id_width);
    if (offset > object->values_size) return FV_WRONG;
    value->data = object->values + offset;
    value->size = fv_size(value->data, object->values_size - offset);
    return value->size < 0 ? FV_WRONG : FV_OK;
}

/* The type of column that a value fits, and the value: a number, or text. */
static int fv_kind(fv_bytes value, int64_t* word, fv_bytes* text) {
    const uint8_t* body = value.data + 1;
    int head = value.data[0] >> 2;
    *word = 0;
    if ((value.data[0] & 3) == 1) {
        *text = (fv_bytes){body, head};
        return FV_STRING;
    }
    if (value.data[0] & 3) return FV_OTHER;
    switch (head) {
    case 0: return FV_NULL;
    case 1: *word = 1; return FV_BOOL;
    case 2: return FV_BOOL;
    case 3: *word = (int8_t)body[0]; return FV_INT64;
    case 4: *word = (int16_t)fv_load(body, 2); return FV_INT64;
    case 5: *word = (int32_t)fv_load(body, 4); return FV_INT64;
    case 6: *word = (int64_t)fv_load(body, 8); return FV_INT64;
    case 7: *word = (int64_t)fv_load(body, 8); return FV_DOUBLE;
    case 11: *word = (int32_t)fv_load(body, 4); return FV_DATE;
    case 12: *word = (int64_t)fv_load(body, 8); return FV_TIME_UTC;
    case 13: *word = (int64_t)fv_load(body, 8); return FV_TIME;
    case 16: *text = (fv_bytes){body + 4, value.size - 5}; return FV_STRING;
    default: return FV_OTHER;
    }
}

typedef struct { uint8_t* data; int64_t size, room; } fv_buffer;

static int fv_grow(fv_buffer* buffer, int64_t more) {
    int64_t room = (buffer->size + more) * 2 + 256;
    uint8_t* data = (uint8_t*)realloc(buffer->data, (size_t)room);
    if (!data) return FV_MEMORY;
    buffer->data = data;
    buffer->room = room;
    return FV_OK;
}

static inline int fv_reserve(fv_buffer* buffer, int64_t more) {
    return buffer->size + more <= buffer->room ? FV_OK : fv_grow(buffer, more);
}

static inline int fv_append(fv_buffer* buffer, const void* data, int64_t size) {
    if (fv_reserve(buffer, size)) return FV_MEMORY;
    if (size) memcpy(buffer->data + buffer->size, data, (size_t)size);
    buffer->size += size;
    return FV_OK;
}

static int fv_number_order(const void* a, const void* b) {
    uint64_t one = *(const uint64_t*)a, other = *(const uint64_t*)b;
    return (one > other) - (one < other);
}

/* The values of an object or array lie from ``start`` to ``size`` without gaps; with their ranks in place
 * of offsets. 0: they do not, and nothing is changed. */
static int fv_rank(uint8_t* data, uint8_t* offsets, int64_t count, int width, int64_t start, int64_t size,
                   fv_buffer* work) {
    const int64_t base = work->size;
    if (fv_reserve(work, 8 * count)) return FV_MEMORY;
    uint64_t* order = (uint64_t*)(work->data + base);
    int64_t at = start;
    int is_sorted = 1;
    for (int64_t i = 0; i < count; i++) {
        order[i] = fv_load(offsets + i * width, width) << 32 | (uint64_t)i;
        is_sorted &= !i || order[i - 1] < order[i];
    }
    if (!is_sorted) qsort(order, (size_t)count, 8, fv_number_order);
    for (int64_t rank = 0; rank < count; rank++) {
        int64_t own = (int64_t)(order[rank] >> 32) == at - start ? fv_size(data + at, size - at) : -1;
        if (own < 0) return 0;
        at += own;
    }
    for (int64_t rank = 0; rank < count && at == size; rank++)
        fv_store(offsets + (uint32_t)order[rank] * (int64_t)width, (uint64_t)rank, width);
    return at == size;
}

/* Put ranks of values in place of their offsets in objects and arrays, down to FV_DEPTH_MAX levels, where
 * values lie without gaps; or (back) offsets in place of ranks. In place; returns the bytes of the value,
 * or FV_WRONG, FV_MEMORY. The last offset, behind all values, is 0 where the others are ranks. */
static int64_t fv_ranks(uint8_t* data, int64_t most, int back, int depth, fv_buffer* work) {
    int64_t size = fv_size(data, most);
    if (size < 0 || (data[0] & 3) < 2 || depth >= FV_DEPTH_MAX) return size;
    int head = data[0] >> 2, is_object = (data[0] & 3) == 2, width = (head & 3) + 1;
    int wide = head >> (is_object ? 4 : 2) & 1 ? 4 : 1;
    int64_t count = (int64_t)fv_load(data + 1, wide);
    uint8_t* offsets = data + 1 + wide + (is_object ? count * ((head >> 2 & 3) + 1) : 0);
    const int64_t start = offsets + (count + 1) * width - data, base = work->size;
    if (!count || back != (size == start)) return count && !back ? FV_WRONG : size;
    int found = back ? 1 : fv_rank(data, offsets, count, width, start, size, work);
    if (found < 1) return found ? found : size;
    int64_t at = start;
    if (back && fv_reserve(work, 8 * count)) return FV_MEMORY;
    work->size += back ? 8 * count : 0;
    for (int64_t rank = 0; rank < count; rank++) {
        if (back) ((int64_t*)(work->data + base))[rank] = at - start;
        int64_t room = (back ? most : size) - at;
        int is_nested = room > 0 && (data[at] & 3) > 1;
        int64_t own = is_nested ? fv_ranks(data + at, room, back, depth + 1, work) : fv_size(data + at, room);
        if (own < 0) return own;
        at += own;
    }
    int64_t* places = (int64_t*)(work->data + base);
    for (int64_t i = 0; back && i < count; i++) {
        uint64_t rank = fv_load(offsets + i * width, width);
        if (rank >= (uint64_t)count || places[rank] < 0) return FV_WRONG;
        fv_store(offsets + i * width, (uint64_t)places[rank], width);
        places[rank] = -1;
    }
    fv_store(offsets + count * width, back ? (uint64_t)(at - start) : 0, width);
    work->size = base;
    return (at - start) >> (8 * width) ? FV_WRONG : at;
}

/* A tree of names. Node 0 is the value itself; parents come before their children. */
typedef struct {
    int32_t* parents;
    int64_t* ends; /* of names: that of node i is from ends[i] to ends[i + 1] */
    uint8_t* text;
    int64_t count, room, text_room;
    const int32_t* columns; /* of each node, -1: none */
    const uint8_t* kinds;   /* of each column */
    uint8_t* inner;         /* whether a node has children */
    int32_t* slots;
    uint32_t mask;
} fv_tree;

static inline fv_bytes fv_tree_name(const fv_tree* tree, int64_t node) {
    return (fv_bytes){tree->text + tree->ends[node], tree->ends[node + 1] - tree->ends[node]};
}

static inline uint32_t fv_hash(int32_t parent, fv_bytes name) {
    uint64_t hash = (uint64_t)(uint32_t)parent * 0x9E3779B97F4A7C15u ^ (uint64_t)name.size;
    int64_t at = 0;
    for (; at + 8 <= name.size; at += 8) {
        uint64_t word;
        memcpy(&word, name.data + at, 8);
        hash = (hash ^ word) * 0xD6E8FEB86659FD93u;
        hash ^= hash >> 32;
    }
    hash = (hash ^ fv_load(name.data + at, (int)(name.size - at))) * 0xD6E8FEB86659FD93u;
    hash = (hash ^ hash >> 32) * 0xD6E8FEB86659FD93u;
    return (uint32_t)(hash >> 32);
}

/* The slot of a child: of the child, or the free one where it belongs. */
static inline uint32_t fv_slot(const fv_tree* tree, int32_t parent, fv_bytes name) {
    uint32_t slot = fv_hash(parent, name) & tree->mask;
    for (;; slot = (slot + 1) & tree->mask) {
        int32_t node = tree->slots[slot];
        if (node < 0) return slot;
        if (tree->parents[node] == parent && !fv_compare(fv_tree_name(tree, node), name)) return slot;
    }
}

static inline int32_t fv_child(const fv_tree* tree, int32_t parent, fv_bytes name) {
    return tree->inner[parent] ? tree->slots[fv_slot(tree, parent, name)] : -1;
}

static void fv_tree_free(fv_tree* tree) {
    free(tree->slots);
    free(tree->inner);
}

/* Make a tree of nodes that are there; room: how many it may get. */
static int fv_tree_init(fv_tree* tree) {
    uint32_t size = 16;
    while (size < 2 * (uint64_t)tree->room + 2) size *= 2;
    tree->mask = size - 1;
    tree->slots = (int32_t*)malloc(size * sizeof(int32_t));
    tree->inner = (uint8_t*)calloc((size_t)tree->room + 1, 1);
    if (!tree->slots || !tree->inner) return FV_MEMORY;
    memset(tree->slots, 0xFF, size * sizeof(int32_t));
    for (int64_t node = 1; node < tree->count; node++) {
        tree->inner[tree->parents[node]] = 1;
        tree->slots[fv_slot(tree, tree->parents[node], fv_tree_name(tree, node))] = (int32_t)node;
    }
    return FV_OK;
}

/* Count the types at each path of a value; new paths are added while there is room. */
static int fv_discover(fv_tree* tree, const fv_names* names, int32_t node, fv_bytes value,
                       uint32_t* counts, int depth, int64_t* budget) {
    fv_object object;
    if ((value.data[0] & 3) != 2 || depth >= FV_DEPTH_MAX) return FV_OK;
    if (fv_read_object(value, &object) || (*budget -= object.count) < 0) return FV_WRONG;
    uint32_t last = 0;
    for (int64_t at = 0; at < object.count; at++) {
        fv_bytes name, field, text;
        uint32_t id;
        int64_t word;
        if (fv_field(&object, at, &id, &field) || fv_name(names, id, &name)) return FV_WRONG;
        if (at && id == last) return FV_WRONG;
        last = id;
        uint32_t slot = fv_slot(tree, node, name);
        int32_t child = tree->slots[slot];
        if (child < 0) {
            int64_t end = tree->ends[tree->count];
            if (tree->count >= tree->room || end + name.size > tree->text_room) continue;
            child = (int32_t)tree->count++;
            tree->parents[child] = node;
            if (name.size) memcpy(tree->text + end, name.data, (size_t)name.size);
            tree->ends[child + 1] = end + name.size;
            tree->slots[slot] = child;
        }
        int kind = fv_kind(field, &word, &text);
        if (kind < FV_KINDS) counts[(int64_t)child * FV_KINDS + kind]++;
        int wrong = fv_discover(tree, names, child, field, counts, depth + 1, budget);
        if (wrong) return wrong;
    }
    return FV_OK;
}

/* A field of an object that is written: bytes, or a value of a column (node >= 0). */
typedef struct { fv_bytes name, value; uint32_t id; int32_t node; } fv_item;

/* Metadata of a row before, and whether its names are in order, each once. */
typedef struct { fv_bytes meta; int is_in_order; } fv_shape;

typedef struct {
    fv_tree* tree;
    fv_names names;
    fv_buffer out, items; /* the rest of all rows, or whole values; fields of the objects above */
    int64_t most;         /* bytes of the other values that may still be copied */
    int64_t budget;       /* fields that may still be looked at: no more than a value has bytes */
    int64_t row;
    /* Split: entries found so far, and what is known of columns. */
    fv_buffer codes, rows, words, ends, text;
    int64_t* last_row;
    uint8_t* incomplete;
    fv_shape shapes[FV_SHAPES]; /* by the hash of the metadata */
    uint32_t shapes_mask;
    int is_in_order;
    /* Assemble: the entries of this row, by node; ids of the names of nodes, by shape, of this row's; -1:
     * not looked up. */
    int32_t *first, *next, *known_ids, *ids;
    int64_t nodes;
    uint8_t* widths; /* of offsets, of the last object of each node */
    int64_t *word_of, *touched;
    const int64_t* text_ends;
    const uint8_t* texts;
    int64_t used;     /* entries looked up so far */
    fv_buffer sorted; /* the names of this row, where many of names in no order are looked up */
} fv_context;

/* Write an object whose values follow ``start`` and ``room`` for its head already. */
static int fv_close_object(fv_context* context, int64_t start, int64_t room, int64_t base, int64_t ends_base) {
    fv_item* items = (fv_item*)context->items.data + base;
    int64_t count = context->items.size / (int64_t)sizeof(fv_item) - base;
    int64_t size = context->out.size - start - room;
    uint32_t largest = 0;
    for (int64_t i = 0; i < count; i++) largest = items[i].id > largest ? items[i].id : largest;
    int id_width = fv_width(largest), width = fv_width((uint64_t)size), wide = count > 255 ? 4 : 1;
    int64_t head = 1 + wide + count * id_width + (count + 1) * width;
    if (size >= (int64_t)1 << 32) return FV_WRONG;
    if (fv_reserve(&context->out, head)) return FV_MEMORY;
    uint8_t* to = context->out.data + start;
    if (head != room) memmove(to + head, to + room, (size_t)size);
    context->out.size += head - room;
    to[0] = (uint8_t)(2 | ((width - 1) | (id_width - 1) << 2 | (count > 255) << 4) << 2);
    fv_store(to + 1, (uint64_t)count, wide);
    uint8_t *ids = to + 1 + wide, *offsets = ids + count * id_width;
    const int64_t* ends = (const int64_t*)context->ends.data + ends_base;
    for (int64_t i = 0; i < count; i++) {
        fv_store(ids + i * id_width, items[i].id, id_width);
        fv_store(offsets + i * width, (uint64_t)ends[i], width);
    }
    fv_store(offsets + count * width, (uint64_t)size, width);
    return FV_OK;
}

static int fv_push(fv_context* context, fv_item item) {
    return fv_append(&context->items, &item, sizeof(item));
}

/* Copy bytes of another value, each of which is there once. */
static int fv_copy(fv_context* context, fv_bytes value) {
    context->most -= value.size;
    return context->most < 0 ? FV_WRONG : fv_append(&context->out, value.data, value.size);
}

/* Begin with a row of this metadata: its names, and what is known of them if others had the same. */
static int fv_begin(fv_context* context, fv_bytes meta) {
    uint32_t slot = fv_hash(0, meta) & context->shapes_mask;
    fv_shape* shape = &context->shapes[slot];
    fv_names* names = &context->names;
    if (fv_read_names(meta, names)) return FV_WRONG;
    context->ids = context->nodes ? context->known_ids + slot * context->nodes : NULL;
    if (!shape->meta.data || fv_compare(shape->meta, meta)) {
        fv_bytes last = {NULL, 0}, next;
        shape->meta = meta;
        shape->is_in_order = names->is_sorted;
        for (int64_t id = 0; id < names->count && shape->is_in_order; id++, last = next)
            shape->is_in_order = !fv_name(names, id, &next) && (!id || fv_compare(last, next) < 0);
        for (int64_t node = 0; node < context->nodes; node++) context->ids[node] = -1;
    }
    context->is_in_order = shape->is_in_order;
    return FV_OK;
}

/* Append a value without what goes to columns; ``*changed``: whether something did. */
static int fv_split(fv_context* context, int32_t node, fv_bytes value, int* changed) {
    fv_tree* tree = context->tree;
    fv_object object;
    fv_bytes last = {NULL, 0};
    int64_t start = context->out.size, base = context->items.size, ends_base = context->ends.size, most = context->most;
    int wrong = FV_OK, own = 0;
    if (fv_read_object(value, &object) || (context->budget -= object.count) < 0) return FV_WRONG;
    for (int64_t at = 0; at < object.count; at++) {
        fv_bytes name, field, text = {NULL, 0};
        uint32_t id;
        int64_t word;
        if (fv_field(&object, at, &id, &field) || fv_name(&context->names, id, &name)) return FV_WRONG;
        if (at && !fv_compare(last, name)) return FV_WRONG;
        last = name;
        int32_t child = fv_child(tree, node, name);
        int32_t column = child < 0 ? -1 : tree->columns[child];
        if (column >= 0) {
            int kind = fv_kind(field, &word, &text);
            if (context->last_row[column] == context->row) return FV_WRONG; /* a name twice */
            context->last_row[column] = context->row;
            if (tree->kinds[column] == FV_WHOLE) {
                kind = FV_WHOLE;
                text = field;
            }
            if (kind == tree->kinds[column]) {
                uint32_t code = (uint32_t)column;
                if (context->names.is_sorted && !context->is_in_order && fv_find_name(&context->names, name) < 0)
                    return FV_WRONG; /* names out of order */
                if (text.data) {
                    word = context->text.size + text.size;
                    if (fv_append(&context->text, text.data, text.size)) return FV_MEMORY;
                }
                if (fv_append(&context->codes, &code, 4) || fv_append(&context->rows, &context->row, 8) ||
                    fv_append(&context->words, &word, 8))
                    return FV_MEMORY;
                own = 1;
                continue;
            }
            if (kind != FV_NULL) context->incomplete[column] = 1;
        }
        int64_t offset = context->out.size - start;
        if (fv_push(context, (fv_item){name, field, id, -1}) || fv_append(&context->ends, &offset, 8)) return FV_MEMORY;
        if (child >= 0 && tree->inner[child] && (field.data[0] & 3) == 2)
            wrong = fv_split(context, child, field, &own);
        else
            wrong = fv_copy(context, field);
        if (wrong) return wrong;
    }
    if (own) {
        wrong = fv_close_object(context, start, 0, base / (int64_t)sizeof(fv_item), ends_base / 8);
    } else {
        context->out.size = start;
        context->most = most;
        wrong = fv_copy(context, value);
    }
    context->items.size = base;
    context->ends.size = ends_base;
    *changed |= own;
    return wrong;
}

static int fv_append_primitive(fv_context* context, int id, uint64_t word, int width) {
    uint8_t bytes[9] = {(uint8_t)(id << 2)};
    fv_store(bytes + 1, word, width);
    return fv_append(&context->out, bytes, 1 + width);
}

static int fv_append_word(fv_context* context, int kind, int64_t word) {
    uint64_t bits = (uint64_t)word;
    switch (kind) {
    case FV_BOOL: return fv_append_primitive(context, word ? 1 : 2, 0, 0);
    case FV_INT64:
        if (word == (int8_t)word) return fv_append_primitive(context, 3, bits, 1);
        if (word == (int16_t)word) return fv_append_primitive(context, 4, bits, 2);
        if (word == (int32_t)word) return fv_append_primitive(context, 5, bits, 4);
        return fv_append_primitive(context, 6, bits, 8);
    case FV_DOUBLE: return fv_append_primitive(context, 7, bits, 8);
    case FV_DATE: return fv_append_primitive(context, 11, bits, 4);
    case FV_TIME_UTC: return fv_append_primitive(context, 12, bits, 8);
    case FV_TIME: return fv_append_primitive(context, 13, bits, 8);
    default: {
        int64_t start = context->text_ends[word], size = context->text_ends[word + 1] - start;
        uint8_t head = (uint8_t)(size << 2 | 1);
        int wrong = size < 64 ? fv_append(&context->out, &head, 1)
                              : fv_append_primitive(context, 16, (uint64_t)size, 4);
        return wrong ? wrong : fv_append(&context->out, context->texts + start, size);
    }
    }
}

static int fv_item_order(const void* a, const void* b) {
    return fv_compare(((const fv_item*)a)->name, ((const fv_item*)b)->name);
}

static int fv_name_order(const void* a, const void* b) {
    const fv_item *one = a, *other = b;
    int found = fv_compare(one->name, other->name);
    return found ? found : (one->id > other->id) - (one->id < other->id);
}

/* The least id of the name of the next entry; FV_WRONG: there is none. Of names in no order the first
 * are looked at one by one, then they are sorted. */
static int64_t fv_next_id(fv_context* context, fv_bytes wanted) {
    const fv_names* names = &context->names;
    if (names->is_sorted || context->used < 8) return fv_find_name(names, wanted);
    if (context->used == 8) {
        context->sorted.size = 0;
        for (int64_t id = 0; id < names->count; id++) {
            fv_item item = {.id = (uint32_t)id};
            if (fv_name(names, id, &item.name)) return FV_WRONG;
            if (fv_append(&context->sorted, &item, sizeof(item))) return FV_MEMORY;
        }
        qsort(context->sorted.data, (size_t)names->count, sizeof(fv_item), fv_name_order);
    }
    const fv_item* items = (const fv_item*)context->sorted.data;
    int64_t low = 0, high = names->count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (fv_compare(items[middle].name, wanted) < 0) low = middle + 1; else high = middle;
    }
    return low < names->count && !fv_compare(items[low].name, wanted) ? (int64_t)items[low].id : FV_WRONG;
}

/* Sort some fields by their ids, whose order is that of names where these are sorted. */
static void fv_sort_by_id(fv_item* items, int64_t count) {
    uint64_t keys[FV_FEW];
    fv_item sorted[FV_FEW];
    for (int64_t i = 0; i < count; i++) {
        uint64_t key = (uint64_t)items[i].id << 32 | (uint64_t)i;
        int64_t at = i;
        for (; at && keys[at - 1] > key; at--) keys[at] = keys[at - 1];
        keys[at] = key;
    }
    for (int64_t i = 0; i < count; i++) sorted[i] = items[(uint32_t)keys[i]];
    memcpy(items, sorted, (size_t)count * sizeof(fv_item));
}

static int fv_are_ascending(const fv_item* items, int64_t count) {
    for (int64_t i = 1; i < count; i++)
        if (fv_compare(items[i - 1].name, items[i].name) >= 0) return 0;
    return 1;
}

/* Append a value with the entries of its row that belong below it. */
static int fv_assemble(fv_context* context, int32_t node, fv_bytes value) {
    fv_tree* tree = context->tree;
    fv_object object;
    int64_t start = context->out.size, base = context->items.size, ends_base = context->ends.size;
    int wrong = FV_OK;
    if (fv_read_object(value, &object) || (context->budget -= object.count) < 0) return FV_WRONG;
    for (int64_t at = 0; at < object.count; at++) {
        fv_item item = {.node = -1};
        if (fv_field(&object, at, &item.id, &item.value) || fv_name(&context->names, item.id, &item.name))
            return FV_WRONG;
        if (fv_push(context, item)) return FV_MEMORY;
    }
    for (int32_t child = context->first[node]; child >= 0; child = context->next[child]) {
        fv_item item = {.node = child, .name = fv_tree_name(tree, child)};
        int64_t id = context->names.is_sorted ? context->ids[child] : -1;
        if (id < 0) {
            id = fv_next_id(context, item.name);
            if (id < 0) return (int)id;
            context->ids[child] = (int32_t)id;
        }
        item.id = (uint32_t)id;
        if (fv_push(context, item)) return FV_MEMORY;
        context->used++;
    }
    int64_t first = base / (int64_t)sizeof(fv_item), count = context->items.size / (int64_t)sizeof(fv_item) - first;
    fv_item* items = (fv_item*)context->items.data + first;
    if (context->is_in_order && count <= FV_FEW) {
        fv_sort_by_id(items, count);
        for (int64_t i = 1; i < count; i++)
            if (items[i - 1].id == items[i].id) return FV_WRONG;
    } else if (!fv_are_ascending(items, count)) {
        qsort(items, (size_t)count, sizeof(fv_item), fv_item_order);
        if (!fv_are_ascending(items, count)) return FV_WRONG; /* a name twice */
    }
    /* Room for the head: values are moved where it is another one than before. */
    uint32_t largest = 0;
    for (int64_t i = 0; i < count; i++) largest = items[i].id > largest ? items[i].id : largest;
    int64_t room = 1 + (count > 255 ? 4 : 1) + count * fv_width(largest) + (count + 1) * context->widths[node];
    if (fv_reserve(&context->out, room)) return FV_MEMORY;
    context->out.size += room;
    for (int64_t i = 0; i < count; i++) {
        fv_item item = ((fv_item*)context->items.data)[first + i];
        int64_t offset = context->out.size - start - room;
        if (fv_append(&context->ends, &offset, 8)) return FV_MEMORY;
        if (item.node >= 0) {
            wrong = fv_append_word(context, tree->kinds[tree->columns[item.node]], context->word_of[item.node]);
        } else {
            int32_t child = (item.value.data[0] & 3) == 2 ? fv_child(tree, node, item.name) : -1;
            if (child >= 0 && context->touched[child] == context->row)
                wrong = fv_assemble(context, child, item.value);
            else
                wrong = fv_copy(context, item.value);
        }
        if (wrong) return wrong;
    }
    context->widths[node] = (uint8_t)fv_width((uint64_t)(context->out.size - start - room));
    wrong = fv_close_object(context, start, room, first, ends_base / 8);
    context->items.size = base;
    context->ends.size = ends_base;
    return wrong;
}

/* Hang an entry below its parent, and mark the nodes above. */
static void fv_hang(fv_context* context, int32_t node, int64_t word) {
    int32_t parent = context->tree->parents[node];
    context->word_of[node] = word;
    for (int32_t at = parent; context->touched[at] != context->row; at = context->tree->parents[at]) {
        context->touched[at] = context->row;
        context->first[at] = -1;
        if (!at) break;
    }
    context->next[node] = context->first[parent];
    context->first[parent] = node;
}

#endif
