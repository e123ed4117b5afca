"""Dtypes beyond NumPy's, their promotion, and their hierarchy."""

from amdjax.core.dtypes import (
    bfloat16 as bfloat16,
    canonicalize_dtype as canonicalize_dtype,
    extended as extended,
    finfo as finfo,
    float0 as float0,
    iinfo as iinfo,
    issubdtype as issubdtype,
    itemsize_bits as itemsize_bits,
    prng_key as prng_key,
    scalar_type_of as scalar_type_of,
)
from amdjax.core.errors import TypePromotionError as TypePromotionError
from amdjax.core.promotion import result_type as result_type
