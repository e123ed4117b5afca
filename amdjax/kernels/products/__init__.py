"""Matrix products, convolutions and the gradients of both.

`dot_general` (`dot.py`) and convolutions (`convolution.py`) are stated as contractions
`out[b, i, j] = Σ_k a[b, i, k] b[b, k, j]`, in which each index may stand for several loops
(`contraction.py`). `program.py` is a tile program of one while it is written, `writing.py` stores
its result behind the epilogue, `split_k.py` adds the parts of sums whose depth programs share.

On CPUs (`cpu/dispatch.py`) the solver is taken that is estimated to be fastest (`costs.py`):

- `cpu/depthwise.py`, `cpu/depthwise_gradient.py`: convolutions whose groups have one feature, or
  few, by lanes (`cpu/lane_convolution.py`), and the gradients of kernels of one feature.
- `cpu/few_columns.py`: convolutions with very few features in their result.
- `cpu/direct.py`: plain matrices, read where they lie; `cpu/rank_updates.py`: few rows times a
  large one, which is read in its own order; `cpu/streamed.py`: as few times one that was packed
  before; `cpu/plain.py`: what these share.
- `cpu/amx.py`: bfloat16 and bytes where the CPU has AMX.
- `cpu/vnni.py`: bfloat16 and bytes where vector instructions sum the products in a word.
- `cpu/implicit.py`: convolutions whose windows overlap, read from a padded copy
  (`window_copy.py`); `cpu/implicit_gradient.py`: gradients of their kernels, from such a copy.
- `cpu/explicit_columns.py`: convolutions whose windows are written out as a matrix.
- `cpu/winograd.py`: 3×3 convolutions by transforms, where less accurate results are asked for.
- `cpu/packed.py`: all products, from packed panels (`packing.py`, `reading.py`) in blocks that fit
  the caches (`blocking.py`), by one micro-kernel (`micro_kernel.py`).

Groups of rows or of depth whose sizes are known as a program runs (`grouped.py`) are packed
products, whose programs find their group themselves.

AMX and VNNI pack words (`words.py`).

Which file is asked when, in this order:

- On GPUs (`gpu/dispatch.py`):
  - `gpu/depthwise.py`, `gpu/depthwise_gradient.py`: convolutions whose groups have one feature, and
    the gradients of their kernels.
  - `gpu/padded_groups.py`: convolutions with few features a group, after their operands are packed
    by a launch of `gpu/layout_conversion.py`.
  - `gpu/complex.py`: complex numbers, as four real products in one program.
  - `gpu/grouped.py`: groups of rows or of depth, whose sizes are known as a program runs.
  - `gpu/contraction.py`: all others; `tiling.py` chooses the instruction, the tile and split-K,
    `operands.py` says where elements lie.
"""
