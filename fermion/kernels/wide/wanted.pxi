# What a filter asks for other than a range of numbers: values of a set, or strings in a range.

cdef enum:
    WANTED_NUMBERS = 1
    WANTED_TEXTS = 2
    WANTED_TEXT_RANGE = 3

cdef uint64_t WANTED_FACTOR = 0x9E3779B97F4A7C15  # odd, 2**64 over the golden ratio


cdef struct WantedValues:
    # A hash table with open addressing: ``places`` has the number of a value plus 1, 0 where none
    # is. ``bits`` are 32 or more a value, of which each sets one: where that of another value is
    # not set, the table need not be looked at. Of numbers the bits of their width alone; all of
    # them lie from ``least`` on, at most ``span`` more, modulo their width.
    int kind
    int64_t count
    int64_t places_mask
    int shift
    uint32_t* places
    uint8_t* bits
    int bits_shift
    uint64_t* numbers
    uint64_t least
    uint64_t span
    const int64_t* offsets
    const uint8_t* text
    int64_t shortest
    int64_t longest
    # Strings from ``low`` on, and below ``high`` where there is one.
    const uint8_t* low
    int64_t low_size
    const uint8_t* high
    int64_t high_size


cdef inline uint64_t _hash_text(const uint8_t* text, int64_t size) noexcept nogil:
    """Of all bytes."""
    cdef uint64_t found = <uint64_t>size * WANTED_FACTOR, word
    while size >= 8:
        memcpy(&word, text, 8)
        found = (found ^ word) * WANTED_FACTOR
        found ^= found >> 32
        text += 8
        size -= 8
    word = 0
    memcpy(&word, text, size)
    found = (found ^ word) * WANTED_FACTOR
    return (found ^ found >> 32) * WANTED_FACTOR


cdef inline uint64_t _mix_ends(const uint8_t* text, int64_t size) noexcept nogil:
    """Of the first and the last 8 bytes, and the size."""
    cdef uint64_t first = 0, last = 0
    if size >= 8:
        memcpy(&first, text, 8)
        memcpy(&last, text + size - 8, 8)
    else:
        memcpy(&first, text, size)
    first = (first ^ <uint64_t>size) * WANTED_FACTOR
    last = (last ^ first >> 29) * WANTED_FACTOR
    return (last ^ last >> 32) * WANTED_FACTOR


cdef inline bint _is_bit_set(const WantedValues* wanted, uint64_t mixed) noexcept nogil:
    cdef uint64_t place = mixed >> wanted.bits_shift
    return wanted.bits[place >> 3] >> (place & 7) & 1


cdef inline bint _is_number_wanted(const WantedValues* wanted, uint64_t number) noexcept nogil:
    cdef int64_t place = (number * WANTED_FACTOR) >> wanted.shift
    while wanted.places[place]:
        if wanted.numbers[wanted.places[place] - 1] == number:
            return True
        place = (place + 1) & wanted.places_mask
    return False


cdef inline bint _is_wanted_text(
    const WantedValues* wanted, uint32_t number, const uint8_t* text, int64_t size
) noexcept nogil:
    cdef int64_t start = wanted.offsets[number]
    return wanted.offsets[number + 1] - start == size and (
        memcmp(wanted.text + start, text, size) == 0
    )


cdef inline bint _is_text_wanted(
    const WantedValues* wanted, const uint8_t* text, int64_t size
) noexcept nogil:
    cdef int64_t place
    if wanted.count == 1:
        return _is_wanted_text(wanted, 0, text, size)
    if size < wanted.shortest or size > wanted.longest or not _is_bit_set(
        wanted, _mix_ends(text, size)
    ):
        return False
    place = _hash_text(text, size) >> wanted.shift
    while wanted.places[place]:
        if _is_wanted_text(wanted, wanted.places[place] - 1, text, size):
            return True
        place = (place + 1) & wanted.places_mask
    return False


cdef inline uint64_t _first_bytes(const uint8_t* text, int64_t size) noexcept nogil:
    """The first 8 bytes as a number that sorts as they do, 0 for those behind the end."""
    cdef uint64_t word = 0
    cdef int i
    if size >= 8:
        for i in range(8):
            word = word << 8 | text[i]
        return word
    for i in range(<int>size):
        word |= <uint64_t>text[i] << (56 - 8 * i)
    return word


cdef inline bint _is_before(
    const uint8_t* text, int64_t size, const uint8_t* other, int64_t other_size
) noexcept nogil:
    cdef int order = memcmp(text, other, min(size, other_size))
    return order < 0 or order == 0 and size < other_size


cdef void _test_members(
    const word_type* values, int64_t count, const WantedValues* wanted, uint8_t* out
) noexcept nogil:
    """Whether each number is one of a set: first all by their bits, then the few that are left."""
    cdef word_type least = <word_type>wanted.least, span = <word_type>wanted.span
    cdef int64_t i
    for i in range(count):
        out[i] = (<word_type>(values[i] - least) <= span) & _is_bit_set(
            wanted, <uint64_t>values[i] * WANTED_FACTOR
        )
    for i in range(count):
        if out[i]:
            out[i] = _is_number_wanted(wanted, values[i])


cdef void _test_text_set(
    const int64_t* offsets, const uint8_t* text, int64_t count, const WantedValues* wanted,
    uint8_t* out,
) noexcept nogil:
    cdef int64_t i
    for i in range(count):
        out[i] = _is_text_wanted(
            wanted, text + (offsets[i] - offsets[0]), offsets[i + 1] - offsets[i]
        )


cdef void _test_text_range(
    const int64_t* offsets, const uint8_t* text, int64_t count, const WantedValues* wanted,
    uint8_t* out,
) noexcept nogil:
    """The first 8 bytes decide nearly always."""
    cdef uint64_t low = _first_bytes(wanted.low, wanted.low_size), first
    cdef uint64_t high = ~<uint64_t>0
    cdef const uint8_t* start
    cdef int64_t i, size
    if wanted.high is not NULL:
        high = _first_bytes(wanted.high, wanted.high_size)
    for i in range(count):
        start, size = text + (offsets[i] - offsets[0]), offsets[i + 1] - offsets[i]
        first = _first_bytes(start, size)
        if first < low or first > high:
            out[i] = 0
        elif first > low and first < high:
            out[i] = 1
        else:
            out[i] = not _is_before(start, size, wanted.low, wanted.low_size) and (
                wanted.high is NULL or _is_before(start, size, wanted.high, wanted.high_size)
            )


cdef void _test_texts(
    const int64_t* offsets, const uint8_t* text, int64_t count, const WantedValues* wanted,
    uint8_t* out,
) noexcept nogil:
    """Whether each string is wanted; ``text`` has them from the first offset on."""
    if wanted.kind == WANTED_TEXTS:
        _test_text_set(offsets, text, count, wanted, out)
    else:
        _test_text_range(offsets, text, count, wanted, out)


cdef class Wanted:
    """Values that a filter asks for; made once, and read by any number of threads."""

    cdef WantedValues values
    cdef object held

    def __dealloc__(self):
        free(self.values.places)
        free(self.values.bits)
        free(self.values.numbers)

    def __reduce__(self):
        raise TypeError("values that a filter asks for are not pickled")

    cdef int reserve(self, int64_t count) except -1:
        """An empty hash table, at most half of which is used, and 16 bits for each place."""
        cdef int64_t room = 4
        self.values.shift, self.values.bits_shift = 62, 58
        if count >= <int64_t>0xFFFFFFFF:
            raise ValueError(f"{count} values")
        while room < 2 * count:
            room *= 2
            self.values.shift -= 1
            self.values.bits_shift -= 1
        self.values.count, self.values.places_mask = count, room - 1
        self.values.places = <uint32_t*>calloc(room, 4)
        self.values.bits = <uint8_t*>calloc(2 * room, 1)
        if self.values.places is NULL or self.values.bits is NULL:
            raise MemoryError(f"no memory for {count} values")
        return 0

    cdef void put(self, uint64_t mixed, uint64_t bit, uint32_t number) noexcept:
        """A value by its hash, and by the one that sets its bit."""
        cdef int64_t place = bit >> self.values.bits_shift
        self.values.bits[place >> 3] |= <uint8_t>(1 << (place & 7))
        place = mixed >> self.values.shift
        while self.values.places[place]:
            place = (place + 1) & self.values.places_mask
        self.values.places[place] = number + 1


def wanted_numbers(values, int64_t width):
    """Whole numbers of a set, each once, ascending."""
    cdef cnp.ndarray given = _input(values)
    cdef Wanted made = Wanted.__new__(Wanted)
    cdef int64_t count = given.shape[0], i
    cdef uint64_t mask = ~<uint64_t>0, mixed
    cdef const uint64_t* numbers = <const uint64_t*>cnp.PyArray_DATA(given)
    if width not in (1, 2, 4, 8) or count < 1 or given.dtype.kind not in "iu":
        raise ValueError(f"{count} values of {width} bytes: expected whole numbers, 1 or more")
    if given.dtype.itemsize != 8 or bool((given[1:] <= given[: count - 1]).any()):
        raise ValueError("values: expected 64-bit numbers that ascend")
    mask >>= 64 - 8 * width
    made.reserve(count)
    made.values.kind = WANTED_NUMBERS
    made.values.numbers = <uint64_t*>malloc(8 * count)
    if made.values.numbers is NULL:
        raise MemoryError(f"no memory for {count} values")
    for i in range(count):
        made.values.numbers[i] = numbers[i] & mask
        mixed = made.values.numbers[i] * WANTED_FACTOR
        made.put(mixed, mixed, <uint32_t>i)
    made.values.least, made.values.span = numbers[0] & mask, (numbers[count - 1] - numbers[0]) & mask
    return made


def wanted_texts(list values):
    """Strings of a set, as bytes."""
    cdef Wanted made = Wanted.__new__(Wanted)
    cdef int64_t count = len(values), i, size
    cdef const int64_t[::1] offsets
    cdef const uint8_t* text_start
    for i in range(count):
        if not isinstance(values[i], bytes):
            raise ValueError(f"value {i}: expected bytes, found {values[i]!r}")
    if count < 1:
        raise ValueError("no values")
    ends = np.cumsum([0, *map(len, values)], dtype=np.int64)
    text = b"".join(values)
    made.reserve(count)
    made.held, offsets = (ends, text), ends
    made.values.kind = WANTED_TEXTS
    made.values.offsets, made.values.text = &offsets[0], <const uint8_t*>PyBytes_AS_STRING(text)
    made.values.shortest = INT64_MAX
    for i in range(count):
        size = offsets[i + 1] - offsets[i]
        made.values.shortest = min(made.values.shortest, size)
        made.values.longest = max(made.values.longest, size)
        text_start = made.values.text + offsets[i]
        made.put(_hash_text(text_start, size), _mix_ends(text_start, size), <uint32_t>i)
    return made


def wanted_text_range(bytes low, high):
    """Strings from ``low`` on, in the order of their bytes, and below ``high`` (None: all)."""
    cdef Wanted made = Wanted.__new__(Wanted)
    if high is not None and not isinstance(high, bytes):
        raise ValueError(f"high: expected bytes or None, found {high!r}")
    made.held = low, high
    made.values.kind = WANTED_TEXT_RANGE
    made.values.low, made.values.low_size = <const uint8_t*>PyBytes_AS_STRING(low), len(low)
    if high is not None:
        made.values.high, made.values.high_size = <const uint8_t*>PyBytes_AS_STRING(high), len(high)
    return made
