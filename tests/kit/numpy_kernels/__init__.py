"""The kernels in NumPy: what the compiled ones are tested against."""
