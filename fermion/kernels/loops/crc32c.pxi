# Checksums.

from cpython.buffer cimport (
    PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer,
)

cdef extern from "crc32c.h":
    void crc32c_initialise() noexcept
    uint32_t crc32c_update(
        uint32_t seed, const uint8_t* data, size_t length, int portable
    ) noexcept nogil

crc32c_initialise()


def crc32c(data, uint32_t seed=0, *, bint portable=False):
    """CRC-32C (Castagnoli) of a contiguous buffer."""
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if view.len < 4096:
            return crc32c_update(seed, <const uint8_t*>view.buf, view.len, portable)
        with nogil:
            seed = crc32c_update(seed, <const uint8_t*>view.buf, view.len, portable)
        return seed
    finally:
        PyBuffer_Release(&view)
