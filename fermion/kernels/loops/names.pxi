# Column names, each stored as what differs from the name before.

from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8


cdef bint _read_varint(const uint8_t* data, int64_t size, int64_t* at, int64_t* value) noexcept nogil:
    """A varint of at most 6 bytes; False where the data ends in it, or it is longer."""
    cdef int shift = 0
    value[0] = 0
    while shift <= 35:
        if at[0] >= size:
            return False
        value[0] |= (<int64_t>(data[at[0]] & 0x7F)) << shift
        at[0] += 1
        if data[at[0] - 1] < 0x80:
            return True
        shift += 7
    return False


cdef bint _read_name(
    const uint8_t* data, int64_t size, int64_t* at, bytearray name, int64_t* length,
    int64_t* ordinal,
) except -1:
    """One entry: ``name`` holds the name before, of ``length`` bytes, and then this one."""
    cdef int64_t shared, rest, more = 0
    if at[0] >= size:
        return False
    shared, rest = data[at[0]] >> 4, data[at[0]] & 15
    at[0] += 1
    if shared == 15:
        if not _read_varint(data, size, at, &more):
            return False
        shared += more
    if rest == 15:
        if not _read_varint(data, size, at, &more):
            return False
        rest += more
    if rest >= size - at[0] or shared > length[0]:
        return False
    if shared + rest > len(name):
        name.extend(bytes(shared + rest))
    memcpy(<char*>name + shared, data + at[0], rest)
    length[0] = shared + rest
    at[0] += rest
    return _read_varint(data, size, at, ordinal)


cdef bint _read_name_of(
    const uint8_t[::1] data, const int64_t[::1] ends, int64_t group, int64_t* at, bytearray name,
    int64_t* length, int64_t* ordinal,
) except -1:
    """The entry at an offset of a group."""
    cdef int64_t start = ends[group], stop = ends[group + 1]
    if start < 0 or start >= stop or stop > data.shape[0]:
        return False
    return _read_name(&data[start], stop - start, at, name, length, ordinal)


cdef int _compare(bytearray name, int64_t length, bytes wanted) noexcept:
    """Below, at or above 0, as the first ``length`` bytes are before, equal to or behind a name."""
    cdef int64_t other = PyBytes_GET_SIZE(wanted)
    cdef int order = memcmp(
        PyByteArray_AS_STRING(name), PyBytes_AS_STRING(wanted), min(length, other)
    )
    return order if order else (length > other) - (length < other)


def find_name(const uint8_t[::1] data, bounds, int64_t interval, int64_t count, bytes wanted):
    """Ordinals of the columns of a name, in their order in the index; None where the entries that
    the search meets are not as they should be."""
    cdef const int64_t[::1] ends = _input(bounds)
    cdef int64_t low = 0, high = ends.shape[0] - 1, groups = high, group
    cdef int64_t at = 0, length = 0, ordinal = 0, entry, stop
    cdef int order = 0
    cdef bytearray name = bytearray(64)
    cdef list found = []
    if interval < 1 or count < 0 or groups < 0:
        raise ValueError(f"{count} names in groups of {interval} cannot be")
    while low < high:
        group = (low + high) // 2
        at = length = 0
        if not _read_name_of(data, ends, group, &at, name, &length, &ordinal) or ordinal >= count:
            return None
        if _compare(name, length, wanted) < 0:
            low = group + 1
        else:
            high = group
    for group in range(max(low - 1, 0), groups):
        at = length = 0
        entry, stop = group * interval, min((group + 1) * interval, count)
        if entry >= stop:
            return None
        for entry in range(entry, stop):
            if not _read_name_of(
                data, ends, group, &at, name, &length, &ordinal
            ) or ordinal >= count:
                return None
            order = _compare(name, length, wanted)
            if order == 0:
                found.append(ordinal)
        if order > 0:
            break
    return found


def read_names(const uint8_t[::1] data, bounds, int64_t interval, int64_t count):
    """All names of an index by ordinal; None where they are not as they should be."""
    cdef const int64_t[::1] ends = _input(bounds)
    cdef Py_ssize_t groups = ends.shape[0] - 1, group
    cdef int64_t at, length, ordinal = 0, entry = 0, stop
    cdef const uint8_t* start
    cdef bytearray name = bytearray(64)
    cdef list names
    if interval < 1 or count < 0:
        raise ValueError(f"{count} names in groups of {interval} cannot be")
    _check_offsets(ends, data.shape[0])
    if count > data.shape[0]:  # each takes a byte or more
        return None
    names = [None] * count
    for group in range(groups):
        at, length = 0, 0
        start = &data[0] + ends[group]
        stop = entry + min(interval, count - entry)
        while entry < stop:
            if not _read_name(
                start, ends[group + 1] - ends[group], &at, name, &length, &ordinal
            ) or ordinal >= count or names[ordinal] is not None:
                return None
            try:
                names[ordinal] = PyUnicode_DecodeUTF8(<char*>name, length, NULL)
            except UnicodeDecodeError:
                return None
            entry += 1
    return names if entry == count else None


cdef uint8_t* _put_varint(uint8_t* at, uint64_t value) noexcept nogil:
    while value >= 0x80:
        at[0] = <uint8_t>(value & 0x7F | 0x80)
        at += 1
        value >>= 7
    at[0] = <uint8_t>value
    return at + 1


def write_names(list names, ordinals, int64_t interval):
    """Names in byte order as entries of an index, and where each group of ``interval`` starts."""
    cdef const int64_t[::1] places = _input(ordinals)
    cdef Py_ssize_t count = len(names), i
    cdef int64_t shared, rest, length, before = 0, worst = 0
    cdef const char* name
    cdef const char* previous = NULL
    cdef uint8_t* start
    cdef uint8_t* at
    _same_length(places.shape[0], count, "ordinals")
    if interval < 1:
        raise ValueError(f"interval is {interval}, expected 1 or more")
    for i in range(count):
        if not isinstance(names[i], bytes) or places[i] < 0:
            raise ValueError(f"name {i}: expected bytes and an ordinal, found {names[i]!r}")
        worst += PyBytes_GET_SIZE(names[i]) + 31  # a byte, and three varints of at most 10
    restarts_array = np.zeros((count + interval - 1) // interval, np.uint32)
    cdef uint32_t[::1] restarts = restarts_array
    entries = bytearray(worst)
    start = at = <uint8_t*>PyByteArray_AS_STRING(entries)
    for i in range(count):
        name, length = PyBytes_AS_STRING(names[i]), PyBytes_GET_SIZE(names[i])
        shared = 0
        if i % interval == 0:
            restarts[i // interval] = <uint32_t>(at - start)
        else:
            while shared < min(before, length) and previous[shared] == name[shared]:
                shared += 1
        rest = length - shared
        at[0] = <uint8_t>(min(shared, 15) << 4 | min(rest, 15))
        at += 1
        if shared >= 15:
            at = _put_varint(at, shared - 15)
        if rest >= 15:
            at = _put_varint(at, rest - 15)
        memcpy(at, name + shared, rest)
        at = _put_varint(at + rest, places[i])
        previous, before = name, length
    del entries[at - start :]
    return entries, restarts_array
