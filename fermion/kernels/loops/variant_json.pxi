# JSON text ⇄ Variant values, and single values of paths.

cdef extern from "variant_json.h":
    ctypedef struct fv_array:
        int64_t count

    ctypedef struct fv_object:
        int64_t count

    ctypedef struct fj_parser:
        const uint8_t* text
        const uint8_t* at
        int problem

    int fv_append(fv_buffer*, const void*, int64_t) noexcept nogil
    int fv_name(const fv_names*, int64_t, fv_bytes*) noexcept nogil
    int fv_compare(fv_bytes, fv_bytes) noexcept nogil
    int fv_read_object(fv_bytes, fv_object*) noexcept nogil
    int fv_field(const fv_object*, int64_t, uint32_t*, fv_bytes*) noexcept nogil
    int fv_read_array(fv_bytes, fv_array*) noexcept nogil
    int fv_element(const fv_array*, int64_t, fv_bytes*) noexcept nogil
    int fj_parse(fj_parser*, fv_bytes, fv_buffer*, fv_buffer*) noexcept nogil
    void fj_free(fj_parser*) noexcept nogil
    ctypedef int (*fj_other)(void*, int, fv_bytes, fv_buffer*) noexcept
    int fj_show(fv_buffer*, const fv_names*, fv_bytes, int, fj_other, void*) noexcept


_PROBLEMS = (
    "", "the text ends early", "a character that does not belong there", "a number that is none",
    "a control character in a string", "an escape that is none",
    "a number beyond those of 64-bit floats", "nested too deep", "an object has a name twice",
    "text after the value", "a value of more than 4 GiB",
)


def variant_from_json(texts, ends, const uint8_t[::1] bits, meta_ends, value_ends):
    """Metadata and values of texts; where one is no JSON its row, byte and what is wrong."""
    cdef const uint8_t[::1] data = _input(texts)
    cdef const int64_t[::1] end_of = _input(ends)
    cdef int64_t[::1] metas = _output(meta_ends), values = _output(value_ends)
    cdef int64_t row, count = end_of.shape[0] - 1
    cdef int problem = 0
    cdef fv_buffer meta, value
    cdef fv_bytes text
    cdef fj_parser parser
    _check_ends(end_of, count, data.shape[0], "ends")
    _same_length(metas.shape[0], count + 1, "meta_ends")
    _same_length(values.shape[0], count + 1, "value_ends")
    cdef const uint8_t* valid = _bits_or_null(bits, count)
    memset(&parser, 0, sizeof(parser))
    memset(&meta, 0, sizeof(meta))
    memset(&value, 0, sizeof(value))
    metas[0] = values[0] = 0
    with nogil:
        for row in range(count):
            if _is_set(valid, row):
                text.size = end_of[row + 1] - end_of[row]
                text.data = &data[end_of[row]] if text.size else NULL
                problem = fj_parse(&parser, text, &meta, &value)
                if problem:
                    break
            metas[row + 1], values[row + 1] = meta.size, value.size
    fj_free(&parser)
    found = _array_of(&meta, np.uint8), _array_of(&value, np.uint8)
    free(meta.data)
    free(value.data)
    if problem == FV_MEMORY:
        raise MemoryError("no memory for values of Variant")
    if problem:
        return row, parser.at - parser.text, _PROBLEMS[parser.problem]
    return found


cdef int _other_text(void* self, int kind, fv_bytes body, fv_buffer* out) noexcept:
    """A text that a function of Python gives; it keeps its errors."""
    try:
        text = (<object>self)(kind, (<const char*>body.data)[: body.size])
    except BaseException:
        return -1
    return fv_append(out, <const char*>text, len(text))


def variant_to_json(metas, meta_ends, values, value_ends, other, ends):
    """Texts of values, end to end."""
    cdef _Variants source = _Variants(metas, meta_ends, values, value_ends)
    cdef int64_t[::1] text_ends = _output(ends)
    cdef int64_t row
    cdef int problem = 0
    cdef fv_buffer out
    cdef fv_names names
    cdef fv_bytes value
    _same_length(text_ends.shape[0], source.count + 1, "ends")
    memset(&out, 0, sizeof(out))
    text_ends[0] = 0
    for row in range(source.count):
        value = source.value(row)
        if value.size:
            problem = fv_read_names(source.meta(row), &names)
            if not problem and fv_size(value.data, value.size) != value.size:
                problem = -1
            if not problem:
                problem = fj_show(&out, &names, value, 0, _other_text, <void*>other)
            if problem:
                break
        text_ends[row + 1] = out.size
    found = _array_of(&out, np.uint8)
    free(out.data)
    if problem == FV_MEMORY:
        raise MemoryError("no memory for texts of Variant")
    if problem:
        raise ValueError(f"row {row}: bytes that are no Variant value")
    return found


cdef int _step(const fv_names* names, fv_bytes* value, object step) except -2:
    """Go from a value to one of its fields or items: 1; 0: there is none; -1: damaged bytes."""
    cdef fv_bytes wanted, name, field
    cdef fv_object fields
    cdef fv_array items
    cdef uint32_t number
    cdef int64_t at
    if isinstance(step, bytes):
        if value.data[0] & 3 != 2:
            return 0
        wanted.data, wanted.size = <const uint8_t*><const char*>step, len(step)
        if fv_read_object(value[0], &fields):
            return -1
        for at in range(fields.count):
            if fv_field(&fields, at, &number, &field):
                return -1
            if fv_name(names, number, &name):
                return -1
            if not fv_compare(name, wanted):
                value[0] = field
                return 1
        return 0
    if value.data[0] & 3 != 3:
        return 0
    if fv_read_array(value[0], &items):
        return -1
    if step >= items.count:
        return 0
    return -1 if fv_element(&items, step, value) else 1


def variant_find(metas, meta_ends, values, value_ends, path, kinds, starts, sizes):
    """The value at a path of each row: its type, and where its bytes are."""
    cdef _Variants source = _Variants(metas, meta_ends, values, value_ends)
    cdef uint8_t[::1] kind_of = _output(kinds)
    cdef int64_t[::1] start_of = _output(starts), size_of = _output(sizes)
    cdef int64_t row
    cdef int found
    cdef fv_bytes value
    cdef fv_names names
    _same_length(kind_of.shape[0], source.count, "kinds")
    _same_length(start_of.shape[0], source.count, "starts")
    _same_length(size_of.shape[0], source.count, "sizes")
    for row in range(source.count):
        kind_of[row], start_of[row], size_of[row] = 0xFF, 0, 0
        value = source.value(row)
        if not value.size:
            continue
        found = 1
        if fv_read_names(source.meta(row), &names):
            found = -1
        elif fv_size(value.data, value.size) != value.size:
            found = -1
        for step in path:
            if found <= 0:
                break
            found = _step(&names, &value, step)
        if found < 0:
            raise ValueError(f"row {row}: bytes that are no Variant value")
        if found:
            kind_of[row] = value.data[0]
            start_of[row], size_of[row] = value.data - &source.values[0], value.size
