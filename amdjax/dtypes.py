"""Dtypes beyond NumPy's, their promotion, and their hierarchy."""

from amdjax.core.dtypes import bfloat16 as bfloat16
from amdjax.core.dtypes import canonicalize_dtype as canonicalize_dtype
from amdjax.core.dtypes import extended as extended
from amdjax.core.dtypes import finfo as finfo
from amdjax.core.dtypes import float0 as float0
from amdjax.core.dtypes import iinfo as iinfo
from amdjax.core.dtypes import issubdtype as issubdtype
from amdjax.core.dtypes import itemsize_bits as itemsize_bits
from amdjax.core.dtypes import prng_key as prng_key
from amdjax.core.dtypes import result_type as result_type
from amdjax.core.dtypes import scalar_type_of as scalar_type_of
from amdjax.core.errors import TypePromotionError as TypePromotionError
