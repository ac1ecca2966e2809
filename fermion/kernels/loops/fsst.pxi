# Symbols of up to 8 bytes, each written as one byte: trained on a sample, matched, put back.

cdef enum:
    SYMBOLS_MAX = 255
    SYMBOL_BYTES_MAX = 8
    ESCAPE = 255
    GENERATIONS = 7
    # The first generations see every fourth string only: what they find is refined anyway.
    COARSE_GENERATIONS = 3
    COARSE_STEP = 4
    USES_MIN = 4
    # What a symbol of one byte saves is an escape: it is worth more than its size says.
    SINGLE_WEIGHT = 8
    # Codes of symbols lie below this number, literal bytes from it on.
    LITERALS = 256
    IDS = 512
    # A size that no symbol has: it marks the codes without a symbol.
    UNKNOWN_SIZE = 16
    SAMPLE_BYTES_MAX = 1 << 24

cdef struct Symbol:
    uint64_t word  # the bytes, the first one lowest, zeros behind
    uint64_t mask
    int64_t gain
    int32_t size
    int32_t code

cdef struct SymbolTable:
    Symbol* ordered  # of two bytes and more, by their first two, the longest first
    uint8_t* first  # by two bytes: place in `ordered` of the first symbol with them, plus 1
    int32_t longer
    uint16_t single[256]  # by one byte: the code of its symbol, else LITERALS + byte


cdef int _by_prefix(const void* left, const void* right) noexcept nogil:
    cdef const Symbol* a = <const Symbol*>left
    cdef const Symbol* b = <const Symbol*>right
    cdef int x = a.word & 0xFFFF, y = b.word & 0xFFFF
    return x - y if x != y else b.size - a.size


cdef int _by_bytes(const void* left, const void* right) noexcept nogil:
    cdef const Symbol* a = <const Symbol*>left
    cdef const Symbol* b = <const Symbol*>right
    if a.size != b.size:
        return b.size - a.size
    return (a.word > b.word) - (a.word < b.word)


cdef int _by_gain(const void* left, const void* right) noexcept nogil:
    """The greatest gain first; of equal ones the longest, then the one of the smallest number."""
    cdef const Symbol* a = <const Symbol*>left
    cdef const Symbol* b = <const Symbol*>right
    if a.gain != b.gain:
        return (a.gain < b.gain) - (a.gain > b.gain)
    return _by_bytes(left, right)


cdef inline uint64_t _low_bytes(int32_t size) noexcept nogil:
    return ~(<uint64_t>0) >> (64 - 8 * size)


cdef void _fill_table(SymbolTable* table, const Symbol* symbols, int32_t count) noexcept nogil:
    """Make a table of up to 255 symbols; `ordered` and `first` have room for them."""
    cdef int32_t i
    cdef uint64_t prefix
    memset(table.first, 0, 65536)
    table.longer = 0
    for i in range(256):
        table.single[i] = LITERALS + i
    for i in range(count):
        if symbols[i].size == 1:
            table.single[symbols[i].word] = i
        else:
            table.ordered[table.longer] = symbols[i]
            table.ordered[table.longer].code = i
            table.longer += 1
    qsort(table.ordered, table.longer, sizeof(Symbol), _by_prefix)
    for i in range(table.longer - 1, -1, -1):
        prefix = table.ordered[i].word & 0xFFFF
        table.first[prefix] = i + 1


cdef inline int32_t _longest_match(
    const SymbolTable* table, const uint8_t* data, int64_t length, int64_t readable, int32_t* size
) noexcept nogil:
    """The code of the longest symbol that the ``length`` bytes begin with, or a literal."""
    cdef uint64_t word = _load_prefix(data, length, readable)
    cdef int32_t at = table.first[word & 0xFFFF]
    cdef const Symbol* symbol
    if at:
        for at in range(at - 1, table.longer):
            symbol = &table.ordered[at]
            if (symbol.word ^ word) & 0xFFFF:
                break
            if (word & symbol.mask) == symbol.word and symbol.size <= length:
                size[0] = symbol.size
                return symbol.code
    size[0] = 1
    return table.single[word & 0xFF]


cdef int _read_symbols(
    const uint8_t[::1] sizes, const uint8_t[::1] symbols, Symbol* out
) except -1:
    """Symbols as they are stored: their sizes, and their bytes one after the other."""
    cdef Py_ssize_t i, at = 0
    cdef int32_t size
    if sizes.shape[0] > SYMBOLS_MAX:
        raise ValueError(f"expected at most {SYMBOLS_MAX} symbols, got {sizes.shape[0]}")
    for i in range(sizes.shape[0]):
        size = sizes[i]
        if size < 1 or size > SYMBOL_BYTES_MAX:
            raise ValueError(f"symbol {i} has {size} bytes, expected 1 to {SYMBOL_BYTES_MAX}")
        if at + size > symbols.shape[0]:
            raise ValueError(f"symbol {i} ends after the {symbols.shape[0]} bytes of all symbols")
        out[i].word = 0
        memcpy(&out[i].word, &symbols[at], size)
        out[i].size = size
        out[i].mask = _low_bytes(size)
        at += size
    _same_length(symbols.shape[0], at, "symbols")
    return 0


cdef int32_t _count_uses(
    const SymbolTable* table, const uint8_t* data, int64_t readable, const int64_t* offsets,
    Py_ssize_t count, Py_ssize_t step, uint32_t* singles, uint32_t* pairs, int32_t* touched,
    int64_t* written,
) noexcept nogil:
    """Count what strings are made of, and which follows which; gives the number of pairs.

    ``written`` gets the bytes of the strings' codes.

    A longer symbol counts as its first byte too, so that shorter symbols may come back.
    """
    cdef Py_ssize_t i
    cdef int64_t at, stop
    cdef int32_t previous, found, size, kinds = 0, pair
    written[0] = 0
    i = 0
    while i < count:
        at, stop, previous = offsets[i], offsets[i + 1], -1
        while at < stop:
            found = _longest_match(table, data + at, stop - at, readable - at, &size)
            singles[found] += 1
            written[0] += 1 + (found >= LITERALS)
            if previous >= 0:
                pair = previous * IDS + found
                if pairs[pair] == 0:
                    touched[kinds] = pair
                    kinds += 1
                pairs[pair] += 1
            if size > 1:
                singles[LITERALS + data[at]] += 1
                if previous >= 0:
                    pair = previous * IDS + LITERALS + data[at]
                    if pairs[pair] == 0:
                        touched[kinds] = pair
                        kinds += 1
                    pairs[pair] += 1
            previous = found
            at += size
        i += step
    return kinds


cdef inline Symbol _symbol_of(const Symbol* symbols, int32_t id) noexcept nogil:
    cdef Symbol found
    if id < LITERALS:
        return symbols[id]
    found.word, found.mask, found.size, found.code, found.gain = id - LITERALS, 0xFF, 1, 0, 0
    return found


cdef int32_t _choose_symbols(Symbol* wanted, int32_t count, Symbol* symbols) noexcept nogil:
    """The 255 candidates that gain the most, equal ones taken together."""
    cdef int32_t i, kept = 0
    qsort(wanted, count, sizeof(Symbol), _by_bytes)
    for i in range(count):
        if kept and wanted[kept - 1].word == wanted[i].word and (
            wanted[kept - 1].size == wanted[i].size
        ):
            wanted[kept - 1].gain += wanted[i].gain
        else:
            wanted[kept] = wanted[i]
            kept += 1
    qsort(wanted, kept, sizeof(Symbol), _by_gain)
    kept = min(kept, <int32_t>SYMBOLS_MAX)
    memcpy(symbols, wanted, kept * sizeof(Symbol))
    return kept


cdef int32_t _next_generation(
    Symbol* symbols, const uint32_t* singles, uint32_t* pairs, const int32_t* touched,
    int32_t kinds, bint join, Symbol* wanted,
) noexcept nogil:
    """Symbols made of what was counted; clears the pairs' counts."""
    cdef int32_t i, found = 0
    cdef uint32_t uses
    cdef Symbol left, right
    for i in range(IDS):
        if singles[i] >= USES_MIN:
            left = _symbol_of(symbols, i)
            left.gain = <int64_t>singles[i] * (SINGLE_WEIGHT if left.size == 1 else left.size)
            wanted[found] = left
            found += 1
    for i in range(kinds):
        uses = pairs[touched[i]]
        pairs[touched[i]] = 0
        if not join or uses < USES_MIN:
            continue
        left = _symbol_of(symbols, touched[i] // IDS)
        if left.size == SYMBOL_BYTES_MAX:
            continue
        right = _symbol_of(symbols, touched[i] % IDS)
        left.word |= right.word << (8 * left.size)
        left.size = min(left.size + right.size, <int32_t>SYMBOL_BYTES_MAX)
        left.mask = _low_bytes(left.size)
        left.gain = <int64_t>uses * left.size
        wanted[found] = left
        found += 1
    return _choose_symbols(wanted, found, symbols)


def fsst_train(offsets, const uint8_t[::1] data):
    """Symbols that make these byte strings short."""
    cdef const int64_t[::1] ends = _input(offsets)
    cdef uint8_t nothing = 0
    cdef Py_ssize_t count = ends.shape[0] - 1
    _check_offsets(ends, data.shape[0])
    cdef int64_t total = ends[count] - ends[0]
    if total > SAMPLE_BYTES_MAX:
        raise ValueError(f"expected a sample of at most {SAMPLE_BYTES_MAX} bytes, got {total}")
    cdef const uint8_t* source = &data[0] if data.shape[0] else &nothing
    cdef Symbol symbols[SYMBOLS_MAX]
    cdef Symbol ordered[SYMBOLS_MAX]
    cdef uint32_t singles[IDS]
    cdef Symbol best[SYMBOLS_MAX]
    cdef int32_t kept = 0, best_kept = 0, kinds, generation, i
    cdef int64_t written, best_written = INT64_MAX
    cdef Py_ssize_t step
    cdef int64_t readable = data.shape[0]
    # Every match adds one pair at most, and another one where it is longer than a byte.
    first_array = np.empty(65536, np.uint8)
    pairs_array = np.zeros(IDS * IDS, np.uint32)
    touched_array = np.empty(max(total, 1), np.int32)
    wanted_array = np.empty((IDS + min(total, IDS * IDS)) * sizeof(Symbol), np.uint8)
    cdef uint32_t* pairs = <uint32_t*>cnp.PyArray_DATA(pairs_array)
    cdef int32_t* touched = <int32_t*>cnp.PyArray_DATA(touched_array)
    cdef Symbol* wanted = <Symbol*>cnp.PyArray_DATA(wanted_array)
    cdef SymbolTable table
    table.ordered, table.first = ordered, <uint8_t*>cnp.PyArray_DATA(first_array)
    with nogil:
        for generation in range(GENERATIONS + 1):
            _fill_table(&table, symbols, kept)
            memset(singles, 0, sizeof(singles))
            step = COARSE_STEP if generation < COARSE_GENERATIONS else 1
            kinds = _count_uses(
                &table, source, readable, &ends[0], count, step, singles, pairs, touched, &written
            )
            if step == 1 and written < best_written:
                memcpy(best, symbols, sizeof(best))
                best_kept, best_written = kept, written
            if generation < GENERATIONS:
                kept = _next_generation(
                    symbols, singles, pairs, touched, kinds, generation < GENERATIONS - 1, wanted
                )
    sizes = np.empty(best_kept, np.uint8)
    parts = bytearray()
    for i in range(best_kept):
        sizes[i] = best[i].size
        parts += (<uint64_t>best[i].word).to_bytes(8, "little")[: best[i].size]
    return sizes, np.frombuffer(parts, np.uint8)


def fsst_encode(
    offsets, const uint8_t[::1] data, const uint8_t[::1] sizes, const uint8_t[::1] symbols,
    uint8_t[::1] out, int64_t[::1] ends,
):
    """Byte strings as codes; ``out`` has room for two bytes a byte."""
    cdef const int64_t[::1] starts = _input(offsets)
    cdef Symbol known[SYMBOLS_MAX]
    cdef Symbol ordered[SYMBOLS_MAX]
    cdef Py_ssize_t i, count = starts.shape[0] - 1
    cdef int64_t at, stop, to = 0, readable = data.shape[0]
    cdef int32_t size, found
    _check_offsets(starts, data.shape[0])
    _read_symbols(sizes, symbols, known)
    _same_length(ends.shape[0], count, "ends")
    if out.shape[0] < 2 * (starts[count] - starts[0]):
        raise ValueError(
            f"out has {out.shape[0]} bytes, expected {2 * (starts[count] - starts[0])}"
        )
    first_array = np.empty(65536, np.uint8)
    cdef SymbolTable table
    table.ordered, table.first = ordered, <uint8_t*>cnp.PyArray_DATA(first_array)
    with nogil:
        _fill_table(&table, known, <int32_t>sizes.shape[0])
        for i in range(count):
            at, stop = starts[i], starts[i + 1]
            while at < stop:
                found = _longest_match(&table, &data[at], stop - at, readable - at, &size)
                if found >= LITERALS:
                    out[to] = ESCAPE
                    out[to + 1] = <uint8_t>found
                    to += 2
                else:
                    out[to] = <uint8_t>found
                    to += 1
                at += size
            ends[i] = to
    return to


def fsst_decode(
    const uint8_t[::1] codes, const uint8_t[::1] sizes, const uint8_t[::1] symbols, int64_t skip,
    uint8_t[::1] out,
):
    """What codes stand for, after the first ``skip`` bytes of it, until ``out`` is full."""
    cdef Symbol known[SYMBOLS_MAX]
    cdef uint64_t words[256]
    cdef uint8_t widths[256]
    cdef uint8_t nothing = 0
    cdef Py_ssize_t i
    cdef Decoded state
    cdef bint enough
    _read_symbols(sizes, symbols, known)
    if skip < 0:
        raise ValueError(f"skip is {skip}, expected at least 0")
    cdef int64_t count = codes.shape[0], size = out.shape[0], over
    cdef const uint8_t* source = &codes[0] if count else &nothing
    cdef uint8_t* target = &out[0] if size else &nothing
    state.at = state.written = state.seen = 0
    with nogil:
        memset(words, 0, sizeof(words))
        memset(widths, UNKNOWN_SIZE, sizeof(widths))
        for i in range(sizes.shape[0]):
            words[i] = known[i].word
            widths[i] = known[i].size
        _skip_symbols(widths, source, count, skip, &state)
        enough = _write_last_symbols(words, widths, source, count, NULL, skip, &state)
        over = state.written - skip
        if enough and over == 0:
            state.written = 0
            _write_symbols(words, widths, source, count, target, size, &state)
            enough = _write_last_symbols(words, widths, source, count, target, size, &state)
            over = state.written - size
    if state.seen & UNKNOWN_SIZE:
        raise ValueError(f"a code is not below {sizes.shape[0]}, the number of symbols")
    if not enough:
        raise ValueError(f"the {count} bytes of codes end before {skip + size} bytes are decoded")
    if over:
        raise ValueError("a symbol goes beyond the value that it belongs to")
    return state.at
