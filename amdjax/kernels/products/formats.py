"""In which formats float32 may enter products, as `precision` allows."""

from __future__ import annotations

from typing import Any

import numpy as np

from amdjax.core.precision import precision_setting
from amdjax.kernels.products.contraction import accumulate_dtype
from amdjax.kernels.shaped import ShapedContext

#: Formats as good as a precision asks, by its setting; float32 itself always is. `bf16x3` is the
#: sum of three products of parts in bfloat16, `xf32` has ten bits of mantissa. A machine takes the
#: one that it multiplies fastest (`tiling.operand_atoms`).
_FORMATS: dict[str, tuple[str, ...]] = {
    "default": ("xf32", "bf16x3"),
    "high": ("xf32", "bf16x3"),
    "TF32_TF32_F32": ("xf32", "bf16x3"),
    "TF32_TF32_F32_X3": ("xf32x3", "bf16x6"),
    "F16_F16_F16": ("f16", "xf32", "bf16x3"),
    "F16_F16_F32": ("f16", "xf32", "bf16x3"),
    "BF16_BF16_BF16": ("bf16", "xf32", "bf16x3"),
    "BF16_BF16_F32": ("bf16", "xf32", "bf16x3"),
    "BF16_BF16_F32_X3": ("bf16x3", "xf32x3"),
    "BF16_BF16_F32_X6": ("bf16x6",),
    "BF16_BF16_F32_X9": ("bf16x9",),
}


def operand_formats(precision: Any) -> tuple[str, ...]:
    """Formats that may stand for float32 in a product of a precision, or of a setting.

    Of two precisions the higher one counts.

        >>> from amdjax.core.precision import Precision
        >>> operand_formats((Precision.HIGH, Precision.DEFAULT))
        ('xf32', 'bf16x3')
        >>> operand_formats((Precision.HIGH, Precision.HIGHEST)), operand_formats(None)
        ((), ())
    """
    setting = precision if isinstance(precision, str) else precision_setting(precision)
    return _FORMATS.get(setting or "", ())


def sum_dtype(ctx: ShapedContext) -> str:
    """The dtype in which products of an equation, or parts of complex ones, are summed."""
    dtypes = [v.aval.dtype for v in (*ctx.outputs, *ctx.inputs)]
    name = accumulate_dtype(*dtypes)
    is_wide = precision_setting(ctx.params["precision"]) == "F64_F64_F64"
    # Sums of complex numbers are stored as pairs of their own dtype: `precision` is for float32.
    is_real = not any(np.issubdtype(d, np.complexfloating) for d in dtypes)
    return "f64" if name == "f32" and is_wide and is_real else name
