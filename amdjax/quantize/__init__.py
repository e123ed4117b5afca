"""Functions in few bits: formats, calibration, integer products, and what they cost.

`quantize` transforms a function `f(params, *inputs)`. It is traced; of its matrix products and
convolutions those are replaced one of whose operands follows from `params` alone; everything
between them stays in float, fused with them by the compiler. `Quantized.report` says what that
costs, product by product, and `exclude=report.worst(n)` leaves the worst ones out.

    >>> from amdjax import quantize
    >>> f = lambda p, x: nn.relu(x @ p["a"]) @ p["b"]
    >>> keys = amdjax.random.split(amdjax.random.key(0))
    >>> params = {"a": amdjax.random.normal(keys[0], (8, 16)), "b": jnp.eye(16, 4)}
    >>> batches = [amdjax.random.normal(keys[1], (32, 8))]
    >>> q = quantize.quantize(f, params, batches)
    >>> q
    Quantized(2 of 2 products)
    >>> quantize.sqnr(f(params, batches[0]), q(q.params, batches[0])) > 35
    True
"""

from amdjax.core.boundaries import public_surface as _public_surface
from amdjax.quantize.calibration import (
    MSE as MSE,
    Entropy as Entropy,
    MinMax as MinMax,
    Observer as Observer,
    Percentile as Percentile,
)
from amdjax.quantize.formats import (
    FORMATS as FORMATS,
    Format as Format,
    QuantizedArray as QuantizedArray,
    quantize_array as quantize_array,
)
from amdjax.quantize.linear import (
    dequantize_linear as dequantize_linear,
    quantize_linear as quantize_linear,
)
from amdjax.quantize.programs import Product as Product
from amdjax.quantize.qdq import integer_products as integer_products
from amdjax.quantize.recipes import Recipe as Recipe
from amdjax.quantize.report import Report as Report, Row as Row, sqnr as sqnr
from amdjax.quantize.transform import Quantized as Quantized, quantize as quantize

_public_surface(globals())
