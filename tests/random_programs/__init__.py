"""Random programs over all kinds of operations, control flow and transforms, with a reference.

A program is data (`program`), drawn from a seed (`draw`) out of a table of operations
(`operations`, `more_operations`), and runs on any library with JAX's interface or on NumPy
(`libraries`, `reference`). `check` runs one in many ways and compares; `python -m
tests.random_programs` does so for hours.
"""

from . import more_operations as more_operations
