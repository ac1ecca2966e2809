/* JSON text (RFC 8259) ⇄ Variant values. */

#ifndef FERMION_VARIANT_JSON_H
#define FERMION_VARIANT_JSON_H

#include <Python.h>

#include "variant_paths.h"

typedef struct {
    const uint8_t *offsets, *values;
    int64_t count, values_size;
    int offset_width;
} fv_array;

static int fv_read_array(fv_bytes value, fv_array* out) {
    int head = value.data[0] >> 2, wide = head >> 2 & 1 ? 4 : 1;
    if (value.size < 1 + wide) return FV_WRONG;
    out->count = (int64_t)fv_load(value.data + 1, wide);
    out->offset_width = (head & 3) + 1;
    int64_t start = 1 + wide + (out->count + 1) * out->offset_width;
    if (start > value.size) return FV_WRONG;
    out->offsets = value.data + 1 + wide;
    out->values = value.data + start;
    out->values_size = value.size - start;
    return FV_OK;
}

static inline int fv_element(const fv_array* array, int64_t at, fv_bytes* value) {
    int64_t offset = (int64_t)fv_load(array->offsets + at * array->offset_width, array->offset_width);
    if (offset > array->values_size) return FV_WRONG;
    value->data = array->values + offset;
    value->size = fv_size(value->data, array->values_size - offset);
    return value->size < 0 ? FV_WRONG : FV_OK;
}

/* What is wrong with a text; numbers are an index into `fj_problems`. */
enum {
    FJ_END = 1, FJ_TOKEN, FJ_NUMBER, FJ_STRING, FJ_ESCAPE, FJ_RANGE, FJ_DEPTH, FJ_KEY, FJ_AFTER, FJ_SIZE
};

enum { FJ_NULL, FJ_FALSE, FJ_TRUE, FJ_INT, FJ_DOUBLE, FJ_DECIMAL, FJ_TEXT, FJ_ARRAY, FJ_OBJECT };

/* What a token of a text is: of a name, or as it stands in the text that is read, else in `texts`. */
enum { FJ_NAME = 1, FJ_SOURCE = 2 };

/* A value of a text. Fields of an object: a token of the name, then those of the value. */
typedef struct {
    uint64_t low, high; /* a number's bits; of a text its start and its bytes; items */
    int32_t kind, scale, name;
} fj_token;

/* A name of an object, and its token. */
typedef struct { fv_bytes name_text; int32_t name; } fj_named;

/* A field: where its value is among those of the object. */
typedef struct { int64_t start; int32_t name; } fj_field;

/* Names of texts so far, so that those of the next need not be sorted. */
enum { FJ_KNOWN_MAX = 1024, FJ_KNOWN_BYTES_MAX = 1 << 20 };
typedef struct {
    fv_buffer text;
    int64_t ends[FJ_KNOWN_MAX + 1];
    int32_t slots[2 * FJ_KNOWN_MAX], ranks[FJ_KNOWN_MAX], in_order[FJ_KNOWN_MAX], ids[FJ_KNOWN_MAX], count;
} fj_known;

typedef struct {
    const uint8_t *text, *at, *end;
    fv_buffer tokens, texts, names, fields;
    fj_known* known;
    int problem;
} fj_parser;

static inline int fj_wrong(fj_parser* parser, int problem) {
    parser->problem = problem;
    return FV_WRONG;
}

static inline void fj_space(fj_parser* parser) {
    const uint8_t* at = parser->at;
    while (at < parser->end && (*at == ' ' || *at == '\t' || *at == '\n' || *at == '\r')) at++;
    parser->at = at;
}

static int fj_token_of(fj_parser* parser, int kind, uint64_t low, uint64_t high, int scale) {
    fj_token token = {low, high, kind, scale, -1};
    return fv_append(&parser->tokens, &token, sizeof(token));
}

static int fj_hex(fj_parser* parser, uint32_t* out) {
    if (parser->end - parser->at < 4) return fj_wrong(parser, FJ_ESCAPE);
    uint32_t found = 0;
    for (int i = 0; i < 4; i++) {
        uint8_t digit = *parser->at++;
        if (digit >= '0' && digit <= '9') digit -= '0';
        else if ((digit | 32) >= 'a' && (digit | 32) <= 'f') digit = (digit | 32) - 'a' + 10;
        else return fj_wrong(parser, FJ_ESCAPE);
        found = found << 4 | digit;
    }
    *out = found;
    return FV_OK;
}

static int fj_escape(fj_parser* parser) {
    if (parser->at >= parser->end) return fj_wrong(parser, FJ_END);
    uint8_t bytes[4], kind = *parser->at++;
    const char *kinds = "\"\\/bfnrt", *found = kind ? strchr(kinds, kind) : NULL;
    if (found) return fv_append(&parser->texts, &"\"\\/\b\f\n\r\t"[found - kinds], 1);
    uint32_t code, low;
    if (kind != 'u') return fj_wrong(parser, FJ_ESCAPE);
    if (fj_hex(parser, &code)) return FV_WRONG;
    if (code >> 10 == 0xD800 >> 10) {
        if (parser->end - parser->at < 6 || parser->at[0] != '\\' || parser->at[1] != 'u')
            return fj_wrong(parser, FJ_ESCAPE);
        parser->at += 2;
        if (fj_hex(parser, &low)) return FV_WRONG;
        if (low >> 10 != 0xDC00 >> 10) return fj_wrong(parser, FJ_ESCAPE);
        code = 0x10000 + ((code & 0x3FF) << 10) + (low & 0x3FF);
    } else if (code >> 10 == 0xDC00 >> 10) {
        return fj_wrong(parser, FJ_ESCAPE);
    }
    int size = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (int i = size - 1; i > 0; i--) {
        bytes[i] = 0x80 | (code & 0x3F);
        code >>= 6;
    }
    bytes[0] = (uint8_t)(size == 1 ? code : (0xF00 >> size & 0xFF) | code);
    return fv_append(&parser->texts, bytes, size);
}

/* The first byte that JSON escapes: a quote, a backslash or a control character; or the end. */
static inline const uint8_t* fj_special(const uint8_t* at, const uint8_t* end) {
    const uint64_t ones = 0x0101010101010101u, tops = 0x8080808080808080u;
    for (; end - at >= 8; at += 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        uint64_t quote = word ^ ones * '"', slash = word ^ ones * '\\';
        uint64_t found = (((word - ones * 0x20) & ~word) | ((quote - ones) & ~quote) | ((slash - ones) & ~slash)) & tops;
        if (found) return at + (__builtin_ctzll(found) >> 3); /* a borrow marks no byte before the first */
    }
    while (at < end && *at != '"' && *at != '\\' && *at >= 0x20) at++;
    return at;
}

/* A text without its first quote, as a token. */
static int fj_text(fj_parser* parser, int flags) {
    const uint8_t* from = parser->at;
    int64_t start = parser->texts.size;
    int is_copied = 0;
    for (;; from = parser->at) {
        parser->at = fj_special(from, parser->end);
        if (parser->at >= parser->end) return fj_wrong(parser, FJ_END);
        uint8_t stop = *parser->at++;
        if (stop < 0x20) return fj_wrong(parser, FJ_STRING);
        int64_t size = parser->at - 1 - from;
        if (stop == '"' && !is_copied)
            return fj_token_of(parser, FJ_TEXT, (uint64_t)(from - parser->text), (uint64_t)size, flags | FJ_SOURCE);
        if (fv_append(&parser->texts, from, size)) return FV_MEMORY;
        if (stop == '"')
            return fj_token_of(parser, FJ_TEXT, (uint64_t)start, (uint64_t)(parser->texts.size - start), flags);
        is_copied = 1;
        int problem = fj_escape(parser);
        if (problem) return problem;
    }
}

static inline int64_t fj_digits(fj_parser* parser) {
    const uint8_t* from = parser->at;
    while (parser->at < parser->end && *parser->at >= '0' && *parser->at <= '9') parser->at++;
    return parser->at - from;
}

/* The nearest double to a number; powers of ten up to 22 are exact (Clinger, "How to Read Floating
   Point Numbers Accurately", PLDI 1990). */
static double fj_double(uint64_t number, int64_t scale, int is_exact, const char* text) {
    static const double POWERS[] = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12,
                                    1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    if (is_exact && scale <= 22)
        return text[0] == '-' ? -((double)number / POWERS[scale]) : (double)number / POWERS[scale];
    PyGILState_STATE state = PyGILState_Ensure();
    double found = PyOS_string_to_double(text, NULL, NULL);
    PyErr_Clear();
    PyGILState_Release(state);
    return found;
}

/* Whole numbers of 64 bits; others of up to 15 digits, or with an exponent, are doubles, as are those
   of more than 38 digits; all others are decimals. */
static int fj_number(fj_parser* parser) {
    const uint8_t* from = parser->at;
    int is_negative = *from == '-';
    parser->at += is_negative;
    const uint8_t* first = parser->at;
    int64_t whole = fj_digits(parser), scale = 0;
    if (!whole || (whole > 1 && *first == '0')) return fj_wrong(parser, FJ_NUMBER);
    if (parser->at < parser->end && *parser->at == '.') {
        parser->at++;
        if (!(scale = fj_digits(parser))) return fj_wrong(parser, FJ_NUMBER);
    }
    int has_exponent = parser->at < parser->end && (*parser->at | 32) == 'e';
    const uint8_t* stop = parser->at;
    if (has_exponent) {
        parser->at++;
        if (parser->at < parser->end && (*parser->at == '+' || *parser->at == '-')) parser->at++;
        if (!fj_digits(parser)) return fj_wrong(parser, FJ_NUMBER);
    }
    unsigned __int128 number = 0;
    int64_t digits = 0;
    for (const uint8_t* at = first; at < stop; at++) {
        if (*at == '.') continue;
        if (digits || *at != '0') digits++;
        if (digits <= 38) number = number * 10 + (*at - '0');
    }
    uint64_t limit = (uint64_t)INT64_MAX + is_negative;
    int is_zero_below = is_negative && !number;
    if (!has_exponent && !scale && digits <= 38 && number <= limit && !is_zero_below)
        return fj_token_of(parser, FJ_INT, is_negative ? -(uint64_t)number : (uint64_t)number, 0, 0);
    if (!has_exponent && digits > 15 && digits <= 38 && scale <= 38) {
        if (is_negative) number = -number;
        return fj_token_of(parser, FJ_DECIMAL, (uint64_t)number, (uint64_t)(number >> 64), (int)scale);
    }
    char short_text[64];
    int64_t size = parser->at - from;
    char* text = size < (int64_t)sizeof(short_text) ? short_text : (char*)malloc((size_t)size + 1);
    if (!text) return FV_MEMORY;
    memcpy(text, from, (size_t)size);
    text[size] = 0;
    int is_exact = !has_exponent && digits <= 15;
    double found = fj_double((uint64_t)number, scale, is_exact, text);
    if (text != short_text) free(text);
    uint64_t bits;
    memcpy(&bits, &found, 8);
    if (found - found != 0) return fj_wrong(parser, FJ_RANGE);
    return fj_token_of(parser, FJ_DOUBLE, bits, 0, 0);
}

static int fj_word(fj_parser* parser, const char* word, int kind) {
    int64_t size = (int64_t)strlen(word);
    if (parser->end - parser->at < size || memcmp(parser->at, word, (size_t)size))
        return fj_wrong(parser, FJ_TOKEN);
    parser->at += size;
    return fj_token_of(parser, kind, 0, 0, 0);
}

static int fj_value(fj_parser* parser, int depth);

static int fj_items(fj_parser* parser, int depth, int is_object) {
    int64_t place = parser->tokens.size;
    uint64_t count = 0;
    int problem = fj_token_of(parser, is_object ? FJ_OBJECT : FJ_ARRAY, 0, 0, 0);
    if (problem) return problem;
    if (depth >= FV_DEPTH_MAX) return fj_wrong(parser, FJ_DEPTH);
    const uint8_t close = is_object ? '}' : ']';
    parser->at++;
    fj_space(parser);
    if (parser->at < parser->end && *parser->at == close) {
        parser->at++;
        return FV_OK;
    }
    for (;;) {
        if (is_object) {
            fj_space(parser);
            if (parser->at >= parser->end) return fj_wrong(parser, FJ_END);
            if (*parser->at++ != '"') return fj_wrong(parser, FJ_TOKEN);
            if ((problem = fj_text(parser, FJ_NAME))) return problem;
            fj_space(parser);
            if (parser->at >= parser->end) return fj_wrong(parser, FJ_END);
            if (*parser->at++ != ':') return fj_wrong(parser, FJ_TOKEN);
        }
        if ((problem = fj_value(parser, depth + 1))) return problem;
        count++;
        fj_space(parser);
        if (parser->at >= parser->end) return fj_wrong(parser, FJ_END);
        uint8_t next = *parser->at++;
        if (next == close) break;
        if (next != ',') return fj_wrong(parser, FJ_TOKEN);
    }
    ((fj_token*)(parser->tokens.data + place))->low = count;
    return FV_OK;
}

static int fj_value(fj_parser* parser, int depth) {
    fj_space(parser);
    if (parser->at >= parser->end) return fj_wrong(parser, FJ_END);
    switch (*parser->at) {
    case '{': return fj_items(parser, depth, 1);
    case '[': return fj_items(parser, depth, 0);
    case '"':
        parser->at++;
        return fj_text(parser, 0);
    case 't': return fj_word(parser, "true", FJ_TRUE);
    case 'f': return fj_word(parser, "false", FJ_FALSE);
    case 'n': return fj_word(parser, "null", FJ_NULL);
    default:
        if (*parser->at == '-' || (*parser->at >= '0' && *parser->at <= '9')) return fj_number(parser);
        return fj_wrong(parser, FJ_TOKEN);
    }
}

static inline fv_bytes fj_name(const fj_parser* parser, const fj_token* token) {
    const uint8_t* from = token->scale & FJ_SOURCE ? parser->text : parser->texts.data;
    return (fv_bytes){token->high ? from + token->low : NULL, (int64_t)token->high};
}

static int fj_name_order(const void* a, const void* b) {
    return fv_compare(((const fj_named*)a)->name_text, ((const fj_named*)b)->name_text);
}

static inline fv_bytes fj_known_name(const fj_known* known, int32_t at) {
    return (fv_bytes){known->text.data + known->ends[at], known->ends[at + 1] - known->ends[at]};
}

/* The number of a name among those that are known; -1: no room for it; FV_MEMORY. */
static int32_t fj_number_of(fj_known* known, fv_bytes name) {
    const uint32_t mask = 2 * FJ_KNOWN_MAX - 1;
    uint32_t slot = fv_hash(0, name) & mask;
    for (; known->slots[slot] >= 0; slot = (slot + 1) & mask)
        if (!fv_compare(fj_known_name(known, known->slots[slot]), name)) return known->slots[slot];
    if (known->count == FJ_KNOWN_MAX || known->text.size + name.size > FJ_KNOWN_BYTES_MAX) return -1;
    if (fv_append(&known->text, name.data, name.size)) return FV_MEMORY;
    int32_t low = 0, high = known->count, at = known->count++;
    known->ends[at + 1] = known->text.size;
    known->slots[slot] = at;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (fv_compare(fj_known_name(known, known->in_order[middle]), name) < 0) low = middle + 1; else high = middle;
    }
    memmove(known->in_order + low + 1, known->in_order + low, (size_t)(at - low) * sizeof(int32_t));
    known->in_order[low] = at;
    for (; low <= at; low++) known->ranks[known->in_order[low]] = low;
    return at;
}

/* Number the names of all objects among those that are known; -1: they are too many. */
static int fj_number_names(fj_parser* parser) {
    fj_token* tokens = (fj_token*)parser->tokens.data;
    int64_t count = parser->tokens.size / (int64_t)sizeof(fj_token);
    for (int attempt = 0; attempt < 2; attempt++) {
        fj_known* known = parser->known;
        int64_t i = 0;
        if (!known && !(parser->known = known = (fj_known*)calloc(1, sizeof(fj_known)))) return FV_MEMORY;
        if (attempt || !known->text.data) {
            if (fv_reserve(&known->text, 1)) return FV_MEMORY;
            known->count = 0;
            known->text.size = 0;
            memset(known->slots, 0xFF, sizeof(known->slots));
        }
        for (; i < count; i++) {
            if (tokens[i].kind != FJ_TEXT || !(tokens[i].scale & FJ_NAME)) continue;
            int32_t number = fj_number_of(known, fj_name(parser, &tokens[i]));
            if (number == FV_MEMORY) return FV_MEMORY;
            if (number < 0) break;
            tokens[i].name = number;
        }
        if (i == count) return FV_OK;
    }
    return -1;
}

/* Number the names of all objects in their order, and append the metadata with them. */
static int fj_metadata(fj_parser* parser, fv_buffer* out) {
    fj_token* tokens = (fj_token*)parser->tokens.data;
    int64_t count = parser->tokens.size / (int64_t)sizeof(fj_token), distinct = 0, bytes = 0;
    int problem = fj_number_names(parser);
    if (problem == FV_MEMORY) return FV_MEMORY;
    fj_known* known = parser->known;
    parser->names.size = 0;
    uint64_t used[FJ_KNOWN_MAX / 64] = {0};
    for (int64_t i = 0; i < count; i++) {
        if (tokens[i].kind != FJ_TEXT || !(tokens[i].scale & FJ_NAME)) continue;
        if (!problem) {
            int32_t rank = known->ranks[tokens[i].name];
            used[rank >> 6] |= (uint64_t)1 << (rank & 63);
        } else {
            fj_named named = {fj_name(parser, &tokens[i]), (int32_t)i};
            if (fv_append(&parser->names, &named, sizeof(named))) return FV_MEMORY;
        }
    }
    if (problem) {
        fj_named* all = (fj_named*)parser->names.data;
        int64_t total = parser->names.size / (int64_t)sizeof(fj_named);
        qsort(all, (size_t)total, sizeof(fj_named), fj_name_order);
        for (int64_t i = 0; i < total; i++) {
            if (!i || fv_compare(all[distinct - 1].name_text, all[i].name_text)) {
                all[distinct].name_text = all[i].name_text;
                bytes += all[distinct++].name_text.size;
            }
            tokens[all[i].name].name = (int32_t)(distinct - 1);
        }
    } else {
        for (int32_t word = 0; word < FJ_KNOWN_MAX / 64; word++)
            for (uint64_t bits = used[word]; bits; bits &= bits - 1) {
                int32_t number = known->in_order[word * 64 + __builtin_ctzll(bits)];
                fj_named named = {fj_known_name(known, number), 0};
                if (fv_append(&parser->names, &named, sizeof(named))) return FV_MEMORY;
                bytes += named.name_text.size;
                known->ids[number] = (int32_t)distinct++;
            }
        for (int64_t i = 0; i < count; i++)
            if (tokens[i].kind == FJ_TEXT && tokens[i].scale & FJ_NAME) tokens[i].name = known->ids[tokens[i].name];
    }
    const fj_named* names = (const fj_named*)parser->names.data;
    if (bytes > UINT32_MAX || distinct > INT32_MAX) return fj_wrong(parser, FJ_SIZE);
    int width = fv_width((uint64_t)(bytes > distinct ? bytes : distinct));
    if (fv_reserve(out, 1 + width * (distinct + 2) + bytes)) return FV_MEMORY;
    uint8_t* at = out->data + out->size;
    *at++ = (uint8_t)(0x11 | (width - 1) << 6);
    fv_store(at, (uint64_t)distinct, width);
    at += width;
    uint8_t* text = at + width * (distinct + 1);
    const uint8_t* first = text;
    fv_store(at, 0, width);
    for (int64_t i = 0; i < distinct; i++) {
        fv_bytes name = names[i].name_text;
        if (name.size) memcpy(text, name.data, (size_t)name.size);
        text += name.size;
        fv_store(at += width, (uint64_t)(text - first), width);
    }
    out->size = text - out->data;
    return FV_OK;
}

static int fj_primitive(fv_buffer* out, int id, const void* body, int64_t size) {
    uint8_t head = (uint8_t)(id << 2);
    return fv_append(out, &head, 1) || fv_append(out, body, size) ? FV_MEMORY : FV_OK;
}

static int fj_scalar(fj_parser* parser, const fj_token* token, fv_buffer* out) {
    uint8_t body[17];
    switch (token->kind) {
    case FJ_NULL: return fj_primitive(out, 0, body, 0);
    case FJ_TRUE: return fj_primitive(out, 1, body, 0);
    case FJ_FALSE: return fj_primitive(out, 2, body, 0);
    case FJ_INT: {
        int64_t number = (int64_t)token->low;
        int power = number == (int8_t)number ? 0 : number == (int16_t)number ? 1 : number == (int32_t)number ? 2 : 3;
        fv_store(body, token->low, 1 << power);
        return fj_primitive(out, 3 + power, body, 1 << power);
    }
    case FJ_DOUBLE:
        fv_store(body, token->low, 8);
        return fj_primitive(out, 7, body, 8);
    case FJ_DECIMAL:
        body[0] = (uint8_t)token->scale;
        fv_store(body + 1, token->low, 8);
        fv_store(body + 9, token->high, 8);
        return fj_primitive(out, 10, body, 17);
    default: {
        fv_bytes text = fj_name(parser, token);
        if (text.size > UINT32_MAX) return fj_wrong(parser, FJ_SIZE);
        if (text.size > 63) {
            fv_store(body, (uint64_t)text.size, 4);
            if (fj_primitive(out, 16, body, 4)) return FV_MEMORY;
        } else {
            body[0] = (uint8_t)(text.size << 2 | 1);
            if (fv_append(out, body, 1)) return FV_MEMORY;
        }
        return fv_append(out, text.data, text.size);
    }
    }
}

static int fj_id_order(const void* a, const void* b) {
    int32_t left = ((const fj_field*)a)->name, right = ((const fj_field*)b)->name;
    return (left > right) - (left < right);
}

static void fj_sort_fields(fj_field* fields, int64_t count) {
    if (count > FV_FEW) {
        qsort(fields, (size_t)count, sizeof(fj_field), fj_id_order);
        return;
    }
    for (int64_t i = 1; i < count; i++) {
        fj_field field = fields[i];
        int64_t at = i;
        for (; at && fields[at - 1].name > field.name; at--) fields[at] = fields[at - 1];
        fields[at] = field;
    }
}

/* Append the value of a token, and of those that belong to it; ``*place`` is the next one then. */
static int fj_write(fj_parser* parser, int64_t* place, fv_buffer* out) {
    const fj_token* tokens = (const fj_token*)parser->tokens.data;
    const fj_token token = tokens[(*place)++];
    if (token.kind < FJ_ARRAY) return fj_scalar(parser, &token, out);
    int is_object = token.kind == FJ_OBJECT, problem;
    int64_t count = (int64_t)token.low, begin = out->size, own = parser->fields.size;
    for (int64_t i = 0; i < count; i++) {
        int32_t name = is_object ? tokens[(*place)++].name : 0;
        int64_t start = out->size;
        if ((problem = fj_write(parser, place, out))) return problem;
        fj_field field = {start - begin, name};
        if (fv_append(&parser->fields, &field, sizeof(field))) return FV_MEMORY;
    }
    fj_field* fields = (fj_field*)(parser->fields.data + own);
    uint64_t values = (uint64_t)(out->size - begin);
    if (values > UINT32_MAX || count > UINT32_MAX) return fj_wrong(parser, FJ_SIZE);
    int wide = count > 255, offset_width = fv_width(values), id_width = 0;
    if (is_object) {
        fj_sort_fields(fields, count);
        for (int64_t i = 1; i < count; i++)
            if (fields[i].name == fields[i - 1].name) return fj_wrong(parser, FJ_KEY);
        id_width = fv_width(count ? (uint64_t)fields[count - 1].name : 0);
    }
    int64_t head = 1 + (wide ? 4 : 1) + count * id_width + (count + 1) * offset_width;
    if (fv_reserve(out, head)) return FV_MEMORY;
    uint8_t* at = out->data + begin;
    memmove(at + head, at, (size_t)values);
    out->size += head;
    int flags = is_object ? (offset_width - 1) | (id_width - 1) << 2 | wide << 4 : (offset_width - 1) | wide << 2;
    *at++ = (uint8_t)(flags << 2 | (is_object ? 2 : 3));
    fv_store(at, (uint64_t)count, wide ? 4 : 1);
    at += wide ? 4 : 1;
    for (int64_t i = 0; i < count && is_object; i++, at += id_width) fv_store(at, (uint64_t)fields[i].name, id_width);
    for (int64_t i = 0; i < count; i++, at += offset_width) fv_store(at, (uint64_t)fields[i].start, offset_width);
    fv_store(at, values, offset_width);
    parser->fields.size = own;
    return FV_OK;
}

/* Append the metadata and the value of a text. FV_WRONG: see `problem` and `at`. */
static int fj_parse(fj_parser* parser, fv_bytes text, fv_buffer* meta, fv_buffer* value) {
    int64_t place = 0;
    int problem;
    parser->text = parser->at = text.data;
    parser->end = text.data + text.size;
    parser->tokens.size = parser->texts.size = parser->fields.size = 0;
    if ((problem = fj_value(parser, 0))) return problem;
    fj_space(parser);
    if (parser->at < parser->end) return fj_wrong(parser, FJ_AFTER);
    if ((problem = fj_metadata(parser, meta))) return problem;
    return fj_write(parser, &place, value);
}

static void fj_free(fj_parser* parser) {
    free(parser->tokens.data);
    free(parser->texts.data);
    free(parser->names.data);
    free(parser->fields.data);
    if (parser->known) free(parser->known->text.data);
    free(parser->known);
}

static int fj_quoted(fv_buffer* out, fv_bytes text) {
    static const char DIGITS[] = "0123456789abcdef";
    const uint8_t *from = text.data, *end = text.data + text.size;
    if (fj_special(from, end) == end) {
        if (fv_reserve(out, text.size + 2)) return FV_MEMORY;
        uint8_t* to = out->data + out->size;
        to[0] = '"';
        if (text.size) memcpy(to + 1, from, (size_t)text.size);
        to[1 + text.size] = '"';
        out->size += text.size + 2;
        return FV_OK;
    }
    if (fv_append(out, "\"", 1)) return FV_MEMORY;
    for (;;) {
        const uint8_t* at = fj_special(from, end);
        if (fv_append(out, from, at - from)) return FV_MEMORY;
        from = at + 1;
        if (at == end) break;
        const char *kinds = "\"\\\b\f\n\r\t", *found = *at ? strchr(kinds, *at) : NULL;
        char escape[6] = {'\\', found ? "\"\\bfnrt"[found - kinds] : 'u', '0', '0', DIGITS[*at >> 4 & 15], DIGITS[*at & 15]};
        if (fv_append(out, escape, found ? 2 : 6)) return FV_MEMORY;
    }
    return fv_append(out, "\"", 1);
}

/* Texts of values that JSON has no form for: a function of the type and the bytes. */
typedef int (*fj_other)(void* self, int id, fv_bytes body, fv_buffer* out);

/* Append a value as JSON. FV_WRONG: its bytes are damaged. */
static int fj_show(fv_buffer* out, const fv_names* names, fv_bytes value, int depth, fj_other other, void* self) {
    char digits[24];
    int64_t word, size;
    fv_bytes text, item;
    fv_object object;
    uint32_t id;
    int problem;
    if (value.size < 1 || depth > FV_DEPTH_MAX) return FV_WRONG;
    switch (value.data[0] & 3) {
    case 2: {
        if (fv_read_object(value, &object) || fv_append(out, "{", 1)) return FV_WRONG;
        int64_t left = object.values_size;
        for (int64_t i = 0; i < object.count; i++) {
            if (fv_field(&object, i, &id, &item) || fv_name(names, id, &text)) return FV_WRONG;
            if ((left -= item.size) < 0) return FV_WRONG; /* values that share bytes */
            if (i && fv_append(out, ",", 1)) return FV_MEMORY;
            if (fj_quoted(out, text) || fv_append(out, ":", 1)) return FV_MEMORY;
            if ((problem = fj_show(out, names, item, depth + 1, other, self))) return problem;
        }
        return fv_append(out, "}", 1);
    }
    case 3: {
        fv_array array;
        if (fv_read_array(value, &array) || fv_append(out, "[", 1)) return FV_WRONG;
        int64_t left = array.values_size;
        for (int64_t i = 0; i < array.count; i++) {
            if (fv_element(&array, i, &item) || (left -= item.size) < 0) return FV_WRONG;
            if (i && fv_append(out, ",", 1)) return FV_MEMORY;
            if ((problem = fj_show(out, names, item, depth + 1, other, self))) return problem;
        }
        return fv_append(out, "]", 1);
    }
    }
    switch (fv_kind(value, &word, &text)) {
    case FV_NULL: return fv_append(out, "null", 4);
    case FV_BOOL: return word ? fv_append(out, "true", 4) : fv_append(out, "false", 5);
    case FV_STRING: return fj_quoted(out, text);
    case FV_INT64:
        size = sizeof(digits);
        for (uint64_t rest = word < 0 ? -(uint64_t)word : (uint64_t)word; rest || size == sizeof(digits); rest /= 10)
            digits[--size] = (char)('0' + rest % 10);
        if (word < 0) digits[--size] = '-';
        return fv_append(out, digits + size, (int64_t)sizeof(digits) - size);
    default:
        return other(self, value.data[0] >> 2, (fv_bytes){value.data + 1, value.size - 1}, out);
    }
}

#endif
