# Blocks of packed integers, checked and unpacked, whole or in part; see bitpack.pxi.

cdef int _check_block(
    const uint8_t* block, int64_t available, Py_ssize_t count, int word_bytes, BlockPlan* plan
) noexcept nogil:
    """Whether a block of so many values is well-formed; ``plan`` gets all but its base."""
    cdef uint16_t position
    cdef int previous = -1, k
    cdef const uint8_t* positions
    if available < BLOCK_HEADER + word_bytes:
        return BLOCK_SIZE
    plan.width = block[0]
    plan.patch_count = block[1]
    plan.patch_bytes = block[2]
    if plan.width > 8 * word_bytes or block[3]:
        return BLOCK_WIDTH
    if plan.patch_count and (
        not 1 <= plan.patch_bytes <= word_bytes or plan.width == 8 * word_bytes
    ):
        return BLOCK_PATCH
    if available != _block_bytes(count, word_bytes, plan):
        return BLOCK_SIZE
    positions = block + BLOCK_HEADER + word_bytes + ((count * plan.width + 7) >> 3)
    for k in range(plan.patch_count):
        memcpy(&position, positions + 2 * k, 2)
        if position <= previous or position >= count:
            return BLOCK_PATCH
        previous = position
    return BLOCK_FINE


cdef void _unpack_block(
    const uint8_t* block, Py_ssize_t count, const BlockPlan* plan, word_type base, word_type* out
) noexcept nogil:
    """All values of a block that was checked, over a base that may be another than its own."""
    cdef uint64_t high
    cdef uint16_t position
    cdef Py_ssize_t i
    cdef int k
    cdef const uint8_t* packed = block + BLOCK_HEADER + sizeof(word_type)
    cdef const uint8_t* positions = packed + ((count * plan.width + 7) >> 3)
    cdef const uint8_t* patches = positions + 2 * plan.patch_count
    if plan.width == 0:
        for i in range(count):
            out[i] = base
    elif count == BLOCK_VALUES:
        _unpack_lanes(packed, base, plan.width, out)
    else:
        _unpack_sequence(packed, count, base, plan.width, out)
    for k in range(plan.patch_count):
        high = 0
        memcpy(&position, positions + 2 * k, 2)
        memcpy(&high, patches + k * plan.patch_bytes, plan.patch_bytes)
        out[position] += <word_type>(high << plan.width)


cdef int _read_block(
    const uint8_t* block, int64_t available, Py_ssize_t count, word_type* out
) noexcept nogil:
    """Check one block, then decode all its values."""
    cdef BlockPlan plan
    cdef word_type base
    cdef int error = _check_block(block, available, count, sizeof(word_type), &plan)
    if error == BLOCK_FINE:
        memcpy(&base, block + BLOCK_HEADER, sizeof(word_type))
        _unpack_block(block, count, &plan, base, out)
    return error


cdef void _unpack_part(
    const uint8_t* block, Py_ssize_t count, const BlockPlan* plan, Py_ssize_t start,
    Py_ssize_t stop, word_type* out,
) noexcept nogil:
    """Values ``start`` to ``stop`` (exclusive) of a block that was checked."""
    cdef int lanes = ROW_BYTES // sizeof(word_type), first = start // lanes
    cdef word_type base
    cdef word_type whole[BLOCK_VALUES]
    cdef uint64_t high
    cdef uint16_t position
    cdef int k
    cdef const uint8_t* packed = block + BLOCK_HEADER + sizeof(word_type)
    cdef const uint8_t* positions = packed + ((count * plan.width + 7) >> 3)
    cdef const uint8_t* patches = positions + 2 * plan.patch_count
    memcpy(&base, block + BLOCK_HEADER, sizeof(word_type))
    if plan.width == 0 or count < BLOCK_VALUES:
        _unpack_block(block, count, plan, base, &whole[0])
        memcpy(out, &whole[start], (stop - start) * sizeof(word_type))
        return
    _unpack_rows(packed, base, plan.width, first, (stop + lanes - 1) // lanes, &whole[0])
    memcpy(out, &whole[start - first * lanes], (stop - start) * sizeof(word_type))
    for k in range(plan.patch_count):
        memcpy(&position, positions + 2 * k, 2)
        if position >= stop:
            break
        if position >= start:
            high = 0
            memcpy(&high, patches + k * plan.patch_bytes, plan.patch_bytes)
            out[position - start] += <word_type>(high << plan.width)


cdef int _bitpack_decode(
    const uint8_t* payload,
    int64_t payload_size,
    Py_ssize_t count,
    Py_ssize_t start,
    Py_ssize_t stop,
    word_type* out,
    Py_ssize_t* at_block,
) noexcept nogil:
    cdef Py_ssize_t blocks = (count + BLOCK_VALUES - 1) // BLOCK_VALUES, block, size, first
    cdef const uint8_t* ends = payload + PAYLOAD_HEADER
    cdef const uint8_t* body = ends + 4 * blocks
    cdef int64_t body_size = payload_size - PAYLOAD_HEADER - 4 * blocks
    cdef uint32_t begin, end
    cdef BlockPlan plan
    cdef int error
    for block in range(start // BLOCK_VALUES, (stop + BLOCK_VALUES - 1) // BLOCK_VALUES):
        at_block[0] = block
        begin = 0
        if block:
            memcpy(&begin, ends + 4 * (block - 1), 4)
        memcpy(&end, ends + 4 * block, 4)
        if begin > end or end > body_size:
            return BLOCK_OUTSIDE
        first = block * BLOCK_VALUES
        size = min(count - first, BLOCK_VALUES)
        if start <= first and first + size <= stop:
            error = _read_block(body + begin, end - begin, size, out + (first - start))
        else:
            error = _check_block(body + begin, end - begin, size, sizeof(word_type), &plan)
            if error == BLOCK_FINE:
                _unpack_part(
                    body + begin, size, &plan, max(start - first, 0), min(stop - first, size),
                    out + max(first - start, 0),
                )
        if error:
            return error
    return BLOCK_FINE
