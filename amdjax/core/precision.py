"""How exactly products are computed, as users ask for it."""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

import numpy as np

from amdjax.core.config import config
from amdjax.core.dtypes import short_dtype_name
from amdjax.typing import DTypeLike

__all__ = [
    "DotAlgorithm", "DotAlgorithmPreset", "Precision", "PrecisionLike", "canonical_precision",
    "precision_setting",
]  # fmt: skip

_SPELLINGS = {
    "default": 0,
    "fastest": 0,
    "bfloat16": 0,
    "high": 1,
    "bfloat16_3x": 1,
    "tensorfloat32": 1,
    "highest": 2,
    "float32": 2,
}


class Precision(enum.Enum):
    """How exactly a matrix product of float32 is computed where hardware offers a choice.

    Made from a member's number or from one of the strings `default`, `fastest`, `bfloat16`,
    `high`, `bfloat16_3x`, `tensorfloat32`, `highest`, `float32`.
    """

    DEFAULT = 0
    HIGH = 1
    HIGHEST = 2

    @classmethod
    def _missing_(cls, value: object) -> Precision | None:
        if value is None:
            return cls.DEFAULT
        number = _SPELLINGS.get(value) if isinstance(value, str) else None
        return None if number is None else cls(number)

    def __repr__(self) -> str:
        return f"{type(self).__name__}.{self.name}"

    def __str__(self) -> str:
        return self.name


class DotAlgorithm(NamedTuple):
    """An exact statement of how a product is computed, in the terms of StableHLO.

    Args:
      lhs_precision_type: dtype to which the left operand is rounded.
      rhs_precision_type: dtype to which the right operand is rounded.
      accumulation_type: dtype of the sums.
      lhs_component_count: how many parts of that dtype stand for a left element.
      rhs_component_count: how many parts of that dtype stand for a right element.
      num_primitive_operations: how many products of parts are added.
      allow_imprecise_accumulation: whether sums may be kept in fewer bits.
    """

    lhs_precision_type: DTypeLike
    rhs_precision_type: DTypeLike
    accumulation_type: DTypeLike
    lhs_component_count: int = 1
    rhs_component_count: int = 1
    num_primitive_operations: int = 1
    allow_imprecise_accumulation: bool = False


class DotAlgorithmPreset(enum.Enum):
    """Names of algorithms: the types of the operands, that of the sums, and a count of passes."""

    DEFAULT = enum.auto()
    ANY_F8_ANY_F8_F32 = enum.auto()
    ANY_F8_ANY_F8_F32_FAST_ACCUM = enum.auto()
    ANY_F8_ANY_F8_ANY = enum.auto()
    ANY_F8_ANY_F8_ANY_FAST_ACCUM = enum.auto()
    F16_F16_F16 = enum.auto()
    F16_F16_F32 = enum.auto()
    BF16_BF16_BF16 = enum.auto()
    BF16_BF16_F32 = enum.auto()
    BF16_BF16_F32_X3 = enum.auto()
    BF16_BF16_F32_X6 = enum.auto()
    BF16_BF16_F32_X9 = enum.auto()
    TF32_TF32_F32 = enum.auto()
    TF32_TF32_F32_X3 = enum.auto()
    F32_F32_F32 = enum.auto()
    F64_F64_F64 = enum.auto()

    def __repr__(self) -> str:
        return f"{type(self).__name__}.{self.name}"

    def __str__(self) -> str:
        return self.name


PrecisionLike = (
    None
    | str
    | Precision
    | tuple[str, str]
    | tuple[Precision, Precision]
    | DotAlgorithm
    | DotAlgorithmPreset
)


def canonical_precision(precision: Any) -> Any:
    """A pair of `Precision`, an algorithm, or None.

    Raises:
      ValueError: for anything that does not name a precision.
    """
    if precision is None:
        precision = config.default_matmul_precision
        if precision is None:
            return None
    if isinstance(precision, (DotAlgorithm, DotAlgorithmPreset)):
        return precision
    if isinstance(precision, str) and precision in DotAlgorithmPreset.__members__:
        return DotAlgorithmPreset[precision]
    pair = precision if isinstance(precision, (tuple, list)) else (precision, precision)
    try:
        left, right = map(Precision, pair)
    except ValueError:
        raise ValueError(
            f"precision must be None, a lax.Precision or one of {list(_SPELLINGS)}, a pair of "
            f"these, or a lax.DotAlgorithm or the name of a lax.DotAlgorithmPreset; got "
            f"{precision!r}."
        ) from None
    return left, right


def precision_setting(precision: Any) -> str | None:
    """The setting that asks for as much as a canonical precision: of a pair for the higher one.

    An algorithm that is no preset asks for full precision.

        >>> precision_setting((Precision.HIGH, Precision.DEFAULT))
        'high'
    """
    if precision is None:
        return None
    if isinstance(precision, DotAlgorithmPreset):
        name = precision.name
    elif isinstance(precision, DotAlgorithm):
        left, right, sums = (short_dtype_name(np.dtype(x)).upper() for x in precision[:3])
        count = precision.num_primitive_operations
        name = f"{left}_{right}_{sums}" + (f"_X{count}" if count > 1 else "")
        name = name if name in DotAlgorithmPreset.__members__ else "HIGHEST"
    else:
        name = max(precision, key=lambda p: p.value).name
    return name.lower() if name in ("DEFAULT", "HIGH", "HIGHEST") else name
