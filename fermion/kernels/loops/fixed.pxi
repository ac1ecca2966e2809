# Fixed-width values: filling nulls, and integers of 16 and 32 bytes.


def fill_nulls(values, const uint8_t[::1] bits):
    """Overwrite null slots with the last valid value before them, or zero bytes, in place."""
    cdef cnp.ndarray array = _output(values)
    cdef uint8_t* data = _bytes_out(array)
    cdef Py_ssize_t count = array.shape[0], width = array.itemsize, at = 0, size, slot
    cdef uint64_t word, full
    _bit_range(bits.shape[0], 0, count, "bits")
    with nogil:
        while at < count:
            size = min(count - at, 64)
            full = ~<uint64_t>0 >> (64 - size)
            word = _load_bits(&bits[0], at, size) ^ full  # now 1 is null
            while word:
                slot = at + fermion_trailing_zeros64(word)
                word &= word - 1
                if slot == 0:
                    memset(data, 0, width)
                elif width == 8:
                    memcpy(data + slot * 8, data + slot * 8 - 8, 8)
                elif width == 4:
                    memcpy(data + slot * 4, data + slot * 4 - 4, 4)
                else:
                    memcpy(data + slot * width, data + (slot - 1) * width, width)
            at += size


def narrow_fixed(values, out):
    """Low 8 bytes of two's-complement integers of 16 or 32 bytes."""
    cdef cnp.ndarray array = _input(values)
    cdef int64_t[::1] target = out
    cdef const uint8_t* data = _bytes_in(array)
    cdef Py_ssize_t i, word, words = array.itemsize // 8, count = array.shape[0]
    cdef int64_t low, other
    cdef uint64_t wrong = 0
    if array.itemsize not in (16, 32):
        raise ValueError(f"values are {array.itemsize} bytes wide, expected 16 or 32")
    _same_length(target.shape[0], count, "out")
    with nogil:
        for i in range(count):
            memcpy(&low, data + i * words * 8, 8)
            target[i] = low
            for word in range(1, words):
                memcpy(&other, data + (i * words + word) * 8, 8)
                wrong |= <uint64_t>(other ^ (low >> 63))
    return wrong == 0


def widen_fixed(values, out):
    """Sign-extend ``int64`` to items of 16 or 32 bytes."""
    cdef const int64_t[::1] source = _input(values)
    cdef cnp.ndarray target = _output(out)
    cdef uint8_t* data = _bytes_out(target)
    cdef Py_ssize_t i, word, words = target.itemsize // 8
    cdef int64_t value, sign
    if target.itemsize not in (16, 32):
        raise ValueError(f"out is {target.itemsize} bytes wide, expected 16 or 32")
    _same_length(target.shape[0], source.shape[0], "out")
    with nogil:
        for i in range(source.shape[0]):
            value = source[i]
            sign = value >> 63
            memcpy(data + i * words * 8, &value, 8)
            for word in range(1, words):
                memcpy(data + (i * words + word) * 8, &sign, 8)
