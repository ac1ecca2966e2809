"""Builds the kernel module; everything else is in pyproject.toml."""

import os

import numpy
from Cython.Build import cythonize
from setuptools import Extension, setup

# Python's own flags ask for symbols, which are nine tenths of the module and a third of its time.
DEBUG_SYMBOLS = [] if "-g" in os.environ.get("CFLAGS", "").split() else ["-g0"]

setup(
    ext_modules=cythonize(
        [
            Extension(
                "fermion.kernels._compiled",
                ["fermion/kernels/_compiled.pyx"],
                include_dirs=[numpy.get_include()],
                define_macros=[("NPY_NO_DEPRECATED_API", "NPY_1_7_API_VERSION")],
                extra_compile_args=["-O3", *DEBUG_SYMBOLS],
            )
        ],
        language_level=3,
    )
)
