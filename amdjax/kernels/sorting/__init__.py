"""Sorting and the greatest elements along an axis.

`sort.py` chooses: bitonic networks or digits on GPUs (`gpu/`), networks for short rows or digits
for long ones on CPUs (`cpu/`). `top_k.py` finds few of many in one pass. What is sorted are
unsigned keys (`keys.py`); how rows are read and written is in `rows.py`.
"""

from amdjax.kernels.sorting import sort as sort, top_k as top_k
