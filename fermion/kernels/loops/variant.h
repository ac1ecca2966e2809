/* Values of Parquet's Variant Binary Encoding, read and written: the layout alone, no JSON, no Arrow.

   Bytes come from anywhere: no function here reads outside of what it is given, and none allocates
   by a count that the bytes declare. A key dictionary and a value are:

     metadata  header u8 (bits 0-3 version 1, bit 4 keys are sorted and distinct, bits 6-7 width - 1),
               count, count + 1 offsets, each of `width` bytes, then the bytes of the keys
     value     header u8 (bits 0-1 kind, bits 2-7 by the kind), then
       0 primitive   the header's bits are the type, below; a fixed size, or a length u32 and bytes
       1 string      the header's bits are its length, below 64
       2 object      bits 0-1 offset width - 1, bits 2-3 id width - 1, bit 4 count is u32 and not u8;
                     count, ids in the order of their keys, count + 1 offsets, values in any order
       3 array       bits 0-1 offset width - 1, bit 2 count is u32; count, count + 1 offsets, values
*/

#ifndef FERMION_VARIANT_H
#define FERMION_VARIANT_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Values nest at most this deep, as do JSON texts in the readers that most engines use. */
#define FERMION_VARIANT_DEPTH 1000

enum fermion_variant_kind {
    VARIANT_PRIMITIVE = 0, VARIANT_SHORT_STRING = 1, VARIANT_OBJECT = 2, VARIANT_ARRAY = 3
};

/* Persisted, never to change. */
enum fermion_variant_type {
    VARIANT_NULL = 0, VARIANT_TRUE = 1, VARIANT_FALSE = 2, VARIANT_INT8 = 3, VARIANT_INT16 = 4,
    VARIANT_INT32 = 5, VARIANT_INT64 = 6, VARIANT_DOUBLE = 7, VARIANT_DECIMAL4 = 8,
    VARIANT_DECIMAL8 = 9, VARIANT_DECIMAL16 = 10, VARIANT_DATE = 11, VARIANT_TIMESTAMP = 12,
    VARIANT_TIMESTAMP_NTZ = 13, VARIANT_FLOAT = 14, VARIANT_BINARY = 15, VARIANT_STRING = 16,
    VARIANT_TIME_NTZ = 17, VARIANT_TIMESTAMP_NANOS = 18, VARIANT_TIMESTAMP_NTZ_NANOS = 19,
    VARIANT_UUID = 20, VARIANT_TYPES = 21
};

/* What is wrong; the reader of the message adds row and column. */
enum fermion_variant_error {
    VARIANT_OK = 0, VARIANT_SHORT = -1, VARIANT_VERSION = -2, VARIANT_KEYS = -3, VARIANT_UTF8 = -4,
    VARIANT_UNKNOWN = -5, VARIANT_OFFSETS = -6, VARIANT_IDS = -7, VARIANT_DEEP = -8,
    VARIANT_TRAILING = -9, VARIANT_SCALE = -10, VARIANT_MEMORY = -11
};

static inline const char *fermion_variant_message(int error)
{
    static const char *const messages[] = {
        "no error", "the bytes end too early", "the metadata is not of version 1",
        "the offsets of the keys are out of order, or keys are not sorted as the metadata says",
        "text is not UTF-8", "a value is of an unknown type",
        "an offset points outside of its object or array, or values overlap",
        "the keys of an object are unknown, out of order or twice there",
        "values nest deeper than 1000 levels", "bytes follow the value",
        "a decimal's scale or precision is above 38", "no memory",
    };
    return error > 0 || error < VARIANT_MEMORY ? "unknown error" : messages[-error];
}

static inline uint32_t fermion_variant_uint(const uint8_t *data, int width)
{
    uint32_t value = data[0];
    if (width > 1) value |= (uint32_t)data[1] << 8;
    if (width > 2) value |= (uint32_t)data[2] << 16;
    if (width > 3) value |= (uint32_t)data[3] << 24;
    return value;
}

static inline void fermion_variant_put_uint(uint8_t *data, uint32_t value, int width)
{
    int i;
    for (i = 0; i < width; i++) data[i] = (uint8_t)(value >> (8 * i));
}

static inline int fermion_variant_width(uint32_t value)
{
    return value < (1u << 8) ? 1 : value < (1u << 16) ? 2 : value < (1u << 24) ? 3 : 4;
}

/* Whether ``size`` bytes are UTF-8: no overlong forms, no surrogates, at most U+10FFFF. */
static inline int fermion_variant_is_utf8(const uint8_t *text, int64_t size)
{
    int64_t at = 0, more, i;
    uint64_t word;
    while (at < size) {
        uint8_t c = text[at];
        if (c < 0x80) {
            while (at + 8 <= size) {
                memcpy(&word, text + at, 8);
                if (word & 0x8080808080808080ULL) break;
                at += 8;
            }
            while (at < size && text[at] < 0x80) at++;
            continue;
        }
        more = c >= 0xC2 && c < 0xE0 ? 1 : (c & 0xF0) == 0xE0 ? 2 : c >= 0xF0 && c < 0xF5 ? 3 : 0;
        if (!more || size - at <= more) return 0;
        for (i = 1; i <= more; i++)
            if ((text[at + i] & 0xC0) != 0x80) return 0;
        if ((c == 0xE0 && text[at + 1] < 0xA0) || (c == 0xED && text[at + 1] >= 0xA0) ||
            (c == 0xF0 && text[at + 1] < 0x90) || (c == 0xF4 && text[at + 1] >= 0x90))
            return 0;
        at += more + 1;
    }
    return 1;
}

/* As memcmp, a shorter text before those that begin with it: the order of keys. */
static inline int fermion_variant_compare(const uint8_t *a, int64_t a_size, const uint8_t *b, int64_t b_size)
{
    int order = memcmp(a, b, (size_t)(a_size < b_size ? a_size : b_size));
    return order ? order : (a_size > b_size) - (a_size < b_size);
}

/* -- Reading ------------------------------------------------------------------------------------- */

typedef struct {
    const uint8_t *offsets, *bytes;
    int64_t bytes_size;
    uint32_t count;
    int width, is_sorted;
} fermion_variant_keys;

/* The bytes of a key; the dictionary has passed `fermion_variant_read_keys`. */
static inline const uint8_t *fermion_variant_key(const fermion_variant_keys *keys, uint32_t id, int64_t *size)
{
    int64_t first = fermion_variant_uint(keys->offsets + (int64_t)id * keys->width, keys->width);
    *size = fermion_variant_uint(keys->offsets + ((int64_t)id + 1) * keys->width, keys->width) - first;
    return keys->bytes + first;
}

/* Find the dictionary of a value's metadata. With ``check`` every key is looked at: UTF-8, and sorted
   where the header says so; offsets are checked always. */
static inline int fermion_variant_read_keys(const uint8_t *data, int64_t size, fermion_variant_keys *keys, int check)
{
    int64_t room, key_size, last_size = 0;
    uint32_t i, last = 0, stop;
    const uint8_t *key, *last_key = NULL;
    if (size < 1) return VARIANT_SHORT;
    if ((data[0] & 15) != 1) return VARIANT_VERSION;
    keys->is_sorted = (data[0] >> 4) & 1;
    keys->width = (data[0] >> 6) + 1;
    if (size < 1 + keys->width) return VARIANT_SHORT;
    keys->count = fermion_variant_uint(data + 1, keys->width);
    room = size - 1 - keys->width;
    if (room / keys->width < (int64_t)keys->count + 1) return VARIANT_SHORT;
    keys->offsets = data + 1 + keys->width;
    keys->bytes = keys->offsets + ((int64_t)keys->count + 1) * keys->width;
    keys->bytes_size = size - (keys->bytes - data);
    if (fermion_variant_uint(keys->offsets, keys->width) != 0) return VARIANT_KEYS;
    for (i = 1; i <= keys->count; i++) {
        stop = fermion_variant_uint(keys->offsets + (int64_t)i * keys->width, keys->width);
        if (stop < last) return VARIANT_KEYS;
        last = stop;
    }
    if (last > keys->bytes_size) return VARIANT_SHORT;
    if (!check) return VARIANT_OK;
    if (last != keys->bytes_size) return VARIANT_TRAILING;
    for (i = 0; i < keys->count; i++) {
        key = fermion_variant_key(keys, i, &key_size);
        if (!fermion_variant_is_utf8(key, key_size)) return VARIANT_UTF8;
        if (keys->is_sorted && last_key &&
            fermion_variant_compare(last_key, last_size, key, key_size) >= 0)
            return VARIANT_KEYS;
        last_key = key, last_size = key_size;
    }
    return VARIANT_OK;
}

/* An object or array, or a scalar with its bytes. */
typedef struct {
    int kind, type;            /* type: of scalars, a short string is VARIANT_STRING; else -1 */
    uint32_t count;            /* of objects and arrays */
    int id_width, offset_width;
    const uint8_t *ids, *offsets, *values; /* of a scalar: values are its bytes, without a length */
    int64_t size;              /* of all values of an object or array; of a scalar's bytes */
    int64_t total;             /* bytes of the whole value with its header */
} fermion_variant_node;

/* Bytes of a primitive of each type; -1: a length u32 comes first. */
static const int8_t fermion_variant_sizes[VARIANT_TYPES] = {
    0, 0, 0, 1, 2, 4, 8, 8, 5, 9, 17, 4, 8, 8, 4, -1, -1, 8, 8, 8, 16
};

/* Read the header of the value at ``data``, of which at most ``limit`` bytes may be read; the
   fields of an object or array are not checked but lie within ``limit``. Constant time. */
static inline int fermion_variant_read(const uint8_t *data, int64_t limit, fermion_variant_node *node)
{
    int bits, is_large;
    int64_t at, need;
    if (limit < 1) return VARIANT_SHORT;
    bits = data[0] >> 2;
    node->kind = data[0] & 3;
    node->type = -1;
    node->count = 0;
    if (node->kind == VARIANT_PRIMITIVE) {
        if (bits >= VARIANT_TYPES) return VARIANT_UNKNOWN;
        node->type = bits;
        node->size = fermion_variant_sizes[bits];
        at = 1;
        if (node->size < 0) {
            if (limit < 5) return VARIANT_SHORT;
            node->size = fermion_variant_uint(data + 1, 4);
            at = 5;
        }
    } else if (node->kind == VARIANT_SHORT_STRING) {
        node->type = VARIANT_STRING;
        node->size = bits;
        at = 1;
    } else {
        node->offset_width = (bits & 3) + 1;
        node->id_width = node->kind == VARIANT_OBJECT ? ((bits >> 2) & 3) + 1 : 0;
        is_large = node->kind == VARIANT_OBJECT ? (bits >> 4) & 1 : (bits >> 2) & 1;
        at = is_large ? 5 : 2;
        if (limit < at) return VARIANT_SHORT;
        node->count = fermion_variant_uint(data + 1, is_large ? 4 : 1);
        need = (int64_t)node->count * (node->id_width + node->offset_width) + node->offset_width;
        if (limit - at < need) return VARIANT_SHORT;
        node->ids = data + at;
        node->offsets = node->ids + (int64_t)node->count * node->id_width;
        at += need;
        node->size = fermion_variant_uint(data + at - node->offset_width, node->offset_width);
    }
    if (limit - at < node->size) return VARIANT_SHORT;
    node->values = data + at;
    node->total = at + node->size;
    return VARIANT_OK;
}

/* Read the value at ``place`` of an object or array. */
static inline int fermion_variant_item(const fermion_variant_node *node, uint32_t place, const uint8_t **data,
                                       fermion_variant_node *out)
{
    int64_t offset = fermion_variant_uint(node->offsets + (int64_t)place * node->offset_width, node->offset_width);
    if (offset >= node->size) return VARIANT_OFFSETS;
    *data = node->values + offset;
    return fermion_variant_read(*data, node->size - offset, out);
}

static inline uint32_t fermion_variant_id(const fermion_variant_node *object, uint32_t place)
{
    return fermion_variant_uint(object->ids + (int64_t)place * object->id_width, object->id_width);
}

/* The place of the field with this key in an object, or -1; at damaged ids VARIANT_IDS. */
static inline int64_t fermion_variant_find(const fermion_variant_keys *keys, const fermion_variant_node *object,
                                           const uint8_t *key, int64_t key_size)
{
    int64_t low = 0, high = (int64_t)object->count, middle, size;
    int order;
    while (low < high) {
        const uint8_t *other;
        uint32_t id;
        middle = (low + high) >> 1;
        id = fermion_variant_id(object, (uint32_t)middle);
        if (id >= keys->count) return VARIANT_IDS;
        other = fermion_variant_key(keys, id, &size);
        order = fermion_variant_compare(other, size, key, key_size);
        if (order == 0) return middle;
        if (order < 0) low = middle + 1;
        else high = middle;
    }
    return -1;
}

/* Whether a decimal's 16 bytes of two's complement have at most 38 digits. */
static inline int fermion_variant_fits_38(const uint8_t *bytes)
{
    uint64_t low, high;
    memcpy(&low, bytes, 8);
    memcpy(&high, bytes + 8, 8);
    if (high >> 63) {
        low = ~low + 1;
        high = ~high + (low == 0);
    }
    /* 10 ** 38 - 1 */
    return high < 0x4B3B4CA85A86C47AULL || (high == 0x4B3B4CA85A86C47AULL && low <= 0x098A223FFFFFFFFFULL);
}

/* Check a whole value: every byte belongs to one value, objects have distinct keys in order, text is
   UTF-8, and it nests at most FERMION_VARIANT_DEPTH deep. Each byte is looked at once: fields lie
   one behind the other in some order, and their sizes add up to that of their object, so that
   overlapping fields are refused before the time that they would take. */
static int fermion_variant_check(const fermion_variant_keys *keys, const uint8_t *data, int64_t size, int depth)
{
    fermion_variant_node node, item;
    const uint8_t *at, *key, *last_key = NULL;
    int64_t used = 0, key_size, last_size = 0;
    uint32_t i, id;
    int error = fermion_variant_read(data, size, &node);
    if (error) return error;
    if (node.total != size) return VARIANT_TRAILING;
    if (node.type == VARIANT_STRING)
        return fermion_variant_is_utf8(node.values, node.size) ? VARIANT_OK : VARIANT_UTF8;
    if (node.type >= VARIANT_DECIMAL4 && node.type <= VARIANT_DECIMAL16)
        return node.values[0] > 38 || (node.type == VARIANT_DECIMAL16 && !fermion_variant_fits_38(node.values + 1))
            ? VARIANT_SCALE : VARIANT_OK;
    if (node.type >= 0) return VARIANT_OK;
    if (depth >= FERMION_VARIANT_DEPTH) return VARIANT_DEEP;
    for (i = 0; i < node.count; i++) {
        if (node.kind == VARIANT_OBJECT) {
            id = fermion_variant_id(&node, i);
            if (id >= keys->count) return VARIANT_IDS;
            key = fermion_variant_key(keys, id, &key_size);
            if (last_key && fermion_variant_compare(last_key, last_size, key, key_size) >= 0) return VARIANT_IDS;
            last_key = key, last_size = key_size;
        } else if (fermion_variant_uint(node.offsets + (int64_t)i * node.offset_width, node.offset_width) != used) {
            return VARIANT_OFFSETS;
        }
        if ((error = fermion_variant_item(&node, i, &at, &item))) return error;
        used += item.total;
        if (used > node.size) return VARIANT_OFFSETS;
        if ((error = fermion_variant_check(keys, at, item.total, depth + 1))) return error;
    }
    return used == node.size ? VARIANT_OK : VARIANT_OFFSETS;
}

/* -- Writing ------------------------------------------------------------------------------------- */

/* Bytes that grow; once no memory is left `failed` stays set, and nothing more is written. */
typedef struct {
    uint8_t *data;
    int64_t size, room;
    int failed;
} fermion_variant_out;

/* Room for ``more`` bytes at the end, which count as written; NULL: no memory. */
static inline uint8_t *fermion_variant_grow(fermion_variant_out *out, int64_t more)
{
    if (out->failed) return NULL;
    if (out->room - out->size < more) {
        int64_t room = out->size + more + (out->size >> 1) + 256;
        uint8_t *data = (uint8_t *)realloc(out->data, (size_t)room);
        if (!data) {
            out->failed = 1;
            return NULL;
        }
        out->data = data, out->room = room;
    }
    out->size += more;
    return out->data + out->size - more;
}

static inline void fermion_variant_put(fermion_variant_out *out, const void *data, int64_t size)
{
    uint8_t *to = fermion_variant_grow(out, size);
    if (to && size) memcpy(to, data, (size_t)size);
}

/* A primitive of a fixed size: its bytes are the first of ``data``, little-endian. */
static inline void fermion_variant_put_primitive(fermion_variant_out *out, int type, const void *data)
{
    uint8_t *to = fermion_variant_grow(out, 1 + fermion_variant_sizes[type]);
    if (!to) return;
    to[0] = (uint8_t)(type << 2);
    if (fermion_variant_sizes[type]) memcpy(to + 1, data, (size_t)fermion_variant_sizes[type]);
}

/* A whole number, of the smallest type that holds it. */
static inline void fermion_variant_put_int(fermion_variant_out *out, int64_t value)
{
    fermion_variant_put_primitive(out, value == (int8_t)value ? VARIANT_INT8 : value == (int16_t)value ? VARIANT_INT16
                                       : value == (int32_t)value ? VARIANT_INT32 : VARIANT_INT64, &value);
}

/* A string (VARIANT_STRING) or binary (VARIANT_BINARY). */
static inline void fermion_variant_put_bytes(fermion_variant_out *out, int type, const void *data, int64_t size)
{
    uint8_t *to;
    if (type == VARIANT_STRING && size < 64) {
        if ((to = fermion_variant_grow(out, 1))) to[0] = (uint8_t)(VARIANT_SHORT_STRING | size << 2);
    } else if ((to = fermion_variant_grow(out, 5))) {
        to[0] = (uint8_t)(type << 2);
        fermion_variant_put_uint(to + 1, (uint32_t)size, 4);
    }
    fermion_variant_put(out, data, size);
}

/* Put the header of an object (``ids`` in the order of their keys) or array (``ids`` NULL) before the
   values that lie in ``out`` from ``start`` on; offsets are relative to ``start``. */
static inline void fermion_variant_close(fermion_variant_out *out, int64_t start, uint32_t count, const uint32_t *ids,
                                         const uint32_t *offsets)
{
    uint32_t i, id_max = 0, size = (uint32_t)(out->size - start);
    int width = fermion_variant_width(size), id_width, large = count > 255;
    int64_t header;
    uint8_t *to;
    for (i = 0; ids && i < count; i++)
        if (ids[i] > id_max) id_max = ids[i];
    id_width = ids ? fermion_variant_width(id_max) : 0;
    header = (large ? 5 : 2) + (int64_t)count * (id_width + width) + width;
    if (!fermion_variant_grow(out, header)) return;
    to = out->data + start;
    memmove(to + header, to, size);
    *to++ = (uint8_t)(ids ? VARIANT_OBJECT | (width - 1) << 2 | (id_width - 1) << 4 | large << 6
                          : VARIANT_ARRAY | (width - 1) << 2 | large << 4);
    fermion_variant_put_uint(to, count, large ? 4 : 1);
    to += large ? 4 : 1;
    for (i = 0; ids && i < count; i++, to += id_width) fermion_variant_put_uint(to, ids[i], id_width);
    for (i = 0; i < count; i++, to += width) fermion_variant_put_uint(to, offsets[i], width);
    fermion_variant_put_uint(to, size, width);
}

/* Metadata of ``count`` keys, sorted and distinct, whose bytes are ``keys[i]``. */
static inline void fermion_variant_put_keys(fermion_variant_out *out, uint32_t count, const uint8_t *const *keys,
                                            const uint32_t *sizes)
{
    uint32_t i, total = 0;
    int width;
    uint8_t *to;
    for (i = 0; i < count; i++) total += sizes[i];
    width = fermion_variant_width(total > count ? total : count);
    if (!(to = fermion_variant_grow(out, 1 + (int64_t)width * ((int64_t)count + 2) + total))) return;
    *to++ = (uint8_t)(1 | 1 << 4 | (width - 1) << 6);
    fermion_variant_put_uint(to, count, width);
    to += width;
    for (i = 0, total = 0; i < count; total += sizes[i++], to += width) fermion_variant_put_uint(to, total, width);
    fermion_variant_put_uint(to, total, width);
    to += width;
    for (i = 0; i < count; to += sizes[i++]) memcpy(to, keys[i], sizes[i]);
}

#endif
