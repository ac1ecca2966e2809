# Runs of equal values: where they start, and values repeated to runs.


cdef int64_t _count_changes(const word_type* values, Py_ssize_t count) noexcept nogil:
    cdef Py_ssize_t i
    cdef int64_t changes = 0
    for i in range(1, count):
        changes += values[i] != values[i - 1]
    return changes


cdef bint _is_aligned(cnp.ndarray array) noexcept:
    """Whether items can be read as words of their size; NumPy calls void arrays aligned."""
    return array.itemsize == 0 or <uintptr_t>cnp.PyArray_DATA(array) % array.itemsize == 0


cdef int64_t _runs(cnp.ndarray array):
    cdef const uint8_t* data = _bytes_in(array)
    cdef Py_ssize_t i, width = array.itemsize, count = array.shape[0]
    cdef int64_t changes = 0
    cdef bint aligned = _is_aligned(array)
    if count == 0:
        return 0
    with nogil:
        if width == 1:
            changes = _count_changes(<const uint8_t*>data, count)
        elif width == 2 and aligned:
            changes = _count_changes(<const uint16_t*>data, count)
        elif width == 4 and aligned:
            changes = _count_changes(<const uint32_t*>data, count)
        elif width == 8 and aligned:
            changes = _count_changes(<const uint64_t*>data, count)
        else:
            for i in range(1, count):
                changes += memcmp(data + i * width, data + (i - 1) * width, width) != 0
    return changes + 1


def count_runs(values):
    """How many runs of equal bytes there are; 0 for no values."""
    return _runs(_input(values))


def run_starts(values, int64_t[::1] out):
    """Where each run of equal bytes starts; ``out`` is ``int64``, shape (count_runs(values),)."""
    cdef cnp.ndarray array = _input(values)
    cdef const uint8_t* data = _bytes_in(array)
    cdef Py_ssize_t i, run = 1, width = array.itemsize, count = array.shape[0]
    _same_length(out.shape[0], _runs(array), "out")
    if count == 0:
        return
    with nogil:
        out[0] = 0
        for i in range(1, count):
            if run == out.shape[0]:
                break
            # Written before it is known to stay: the next start overwrites it.
            out[run] = i
            if width == 8:
                run += memcmp(data + i * 8, data + (i - 1) * 8, 8) != 0
            elif width == 4:
                run += memcmp(data + i * 4, data + (i - 1) * 4, 4) != 0
            else:
                run += memcmp(data + i * width, data + (i - 1) * width, width) != 0


cdef void _fill(
    uint8_t* out, const uint8_t* value, Py_ssize_t count, Py_ssize_t width
) noexcept nogil:
    """One value ``count`` times; long runs by doubling what is there."""
    cdef Py_ssize_t done = width, size = count * width
    if width == 1:
        memset(out, value[0], count)
        return
    memcpy(out, value, width)
    while done < size:
        memcpy(out + done, out, min(done, size - done))
        done += min(done, size - done)


cdef Py_ssize_t _first_run(const int64_t[::1] ends, int64_t slot) noexcept nogil:
    """The run that a slot lies in, by bisection."""
    cdef Py_ssize_t low = 0, high = ends.shape[0], middle
    while low < high:
        middle = (low + high) // 2
        if ends[middle] <= slot:
            low = middle + 1
        else:
            high = middle
    return low


def expand_runs(values, ends, int64_t start, int64_t stop, out):
    """Slots ``start`` to ``stop`` (exclusive) of repeated values."""
    cdef cnp.ndarray array = _input(values), target = _output(out)
    cdef const int64_t[::1] bounds = _input(ends)
    cdef const uint8_t* source = _bytes_in(array)
    cdef uint8_t* to = _bytes_out(target)
    cdef Py_ssize_t width = array.itemsize, run, runs = bounds.shape[0]
    cdef int64_t begin = 0, at
    cdef bint decreasing = False
    if target.itemsize != width:
        raise ValueError(f"out has items of {target.itemsize} bytes, expected {width}")
    _same_length(runs, array.shape[0], "ends")
    if start < 0 or stop < start or stop > (bounds[runs - 1] if runs else 0):
        raise ValueError(f"slots {start} to {stop} are outside of the runs")
    _same_length(target.shape[0], stop - start, "out")
    with nogil:
        for run in range(runs):
            decreasing |= bounds[run] < begin
            begin = bounds[run]
    if decreasing:
        raise ValueError("ends of runs decrease")
    with nogil:
        at = start
        for run in range(_first_run(bounds, start), runs):
            if at >= stop:
                break
            if bounds[run] > at:
                begin = min(bounds[run], stop) - at
                _fill(to, source + run * width, begin, width)
                to += begin * width
                at += begin
