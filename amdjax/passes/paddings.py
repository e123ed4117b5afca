"""Convolutions of bytes that are padded with a number: padding of their own, of zeros.

What lies outside a quantized image is stored as its zero point. So an image is padded with that
before a convolution, which cannot be done as the image is made, since the zero point is no zero to
the convolution: it is written twice. Here numbers are moved by the zero point, which takes 16
bits, or bytes without sign if it is the lowest int8, as after a ReLU; then what is outside is
zero, and each sum lacks the zero point times the sum of the kernel, which is added: sums of
integers are the same bit for bit. Which way is fastest, estimates of the target tell. They take the
kernel for a constant, both before and after.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from amdjax.core.dims import cheapest, choosing
from amdjax.core.jaxpr import ClosedJaxpr, JaxprEqn, Literal, Var
from amdjax.core.primitive import Primitive
from amdjax.passes.cleanup import eliminate_dead_code
from amdjax.passes.layouts import CONVOLUTION, Nanoseconds

#: What an element of a padded image takes to be written and read once more.
NANOSECONDS_PER_ELEMENT = 0.2
#: Operations on a single number through which it is followed.
_NUMBERS = {"reshape", "squeeze", "broadcast_in_dim", "convert_element_type", "copy"}


def pad_in_convolutions(closed: ClosedJaxpr, nanoseconds: Nanoseconds) -> ClosedJaxpr:
    """The program without images of bytes that are padded for convolutions, where that pays.

    Args:
      closed: the program.
      nanoseconds: about how long a convolution takes.
    """
    makers = {v: e for e in closed.eqns for v in e.outvars}
    if not any(_pad_of(e, makers) for e in closed.eqns):
        return closed
    readers = Counter(x for e in closed.eqns for x in e.invars if isinstance(x, Var))
    eqns: list[JaxprEqn] = []
    for eqn in closed.eqns:
        pad = _pad_of(eqn, makers)
        zero = None if pad is None else _number(pad.invars[1], makers)
        if pad is None or zero is None or readers[pad.outvars[0]] > 1:
            eqns.append(eqn)
            continue
        image, kernel = (x.aval.dtype for x in eqn.invars)
        lowest = image == kernel == np.int8 and zero == np.iinfo(np.int8).min
        ways = [
            _Moved(eqn, pad, zero, of_bytes) for of_bytes in ([True, False] if lowest else [False])
        ]
        with choosing():
            saved = pad.outvars[0].aval.size * NANOSECONDS_PER_ELEMENT
            times = [
                nanoseconds(e, [v for v in e.invars[1:] if isinstance(v, Var)])
                for e in (eqn, *(way.convolution for way in ways))
            ]
            chosen = cheapest([times[0] + saved, *times[1:]])
        eqns += ways[chosen - 1].eqns if chosen else [eqn]
    if len(eqns) == len(closed.eqns):
        return closed
    return eliminate_dead_code(closed.replace(jaxpr=closed.jaxpr.replace(eqns=eqns)))


def _pad_of(eqn: JaxprEqn, makers: dict[Var, JaxprEqn]) -> JaxprEqn | None:
    """What pads the image of a convolution of bytes in 32 bits, along positions alone."""
    image = eqn.invars[0] if eqn.primitive.name == CONVOLUTION else None
    pad = makers.get(image) if isinstance(image, Var) else None
    if pad is None or pad.primitive.name != "pad" or eqn.params["batch_group_count"] != 1:
        return None
    of_bytes = str(pad.outvars[0].aval.dtype) in ("int8", "uint8")
    if not of_bytes or eqn.outvars[0].aval.dtype != np.int32:
        return None
    batch, features, *space = eqn.params["dimension_numbers"].lhs_spec
    config = pad.params["padding_config"]
    ones = all(n == 1 for n in eqn.params["lhs_dilation"] or ())
    known = all(isinstance(n, int) for d in space for n in config[d])
    inside = not known or any(low < 0 or high < 0 or between for low, high, between in config)
    along = any(any(config[d][:2]) for d in space) and not any(
        n for d in (batch, features) for n in config[d]
    )
    return pad if ones and along and not inside and not _is_padded(eqn) else None


def _is_padded(eqn: JaxprEqn) -> bool:
    return any(n != 0 for pair in eqn.params["padding"] for n in pair)


def _number(x: Any, makers: dict[Var, JaxprEqn]) -> int | None:
    """The value of an integer that the program tells."""
    if isinstance(x, Literal):
        return int(np.asarray(x.val).astype(x.aval.dtype))
    maker = makers.get(x)
    if maker is None or maker.primitive.name not in _NUMBERS or x.aval.size != 1:
        return None
    if x.aval.dtype.kind not in "iu" or maker.invars[0].aval.dtype.kind not in "iu":
        return None
    value = _number(maker.invars[0], makers)
    return None if value is None else int(np.asarray(value).astype(x.aval.dtype))


class _Moved:
    """A convolution of an image whose numbers are moved by the number that it is padded with.

    Args:
      eqn: the convolution.
      pad: what pads its image.
      zero: with this number.
      of_bytes: whether they stay bytes, the lowest of which is zero.

    Attributes:
      eqns: equations of the same result.
      convolution: the convolution among them.
    """

    def __init__(self, eqn: JaxprEqn, pad: JaxprEqn, zero: int, of_bytes: bool) -> None:
        self.eqns: list[JaxprEqn] = []
        self.source = eqn.source
        (result,), numbers = eqn.outvars, eqn.params["dimension_numbers"]
        image, kernel = pad.invars[0], eqn.invars[1]
        if of_bytes:
            image = self._named("bitcast_convert_type", image, new_dtype=np.dtype(np.uint8))
            image = self._named("xor", image, Literal(np.uint8(128)))
        else:
            short = np.dtype(np.int16)
            image = self._named("sub", self._converted(image, short), Literal(short.type(zero)))
            kernel = self._converted(kernel, short)
        config = pad.params["padding_config"]
        padding = tuple(tuple(config[d][:2]) for d in numbers.lhs_spec[2:])
        wide = np.dtype(np.int32)
        params = {**eqn.params, "padding": padding, "preferred_element_type": wide}
        sums = self._named(CONVOLUTION, image, kernel, **params)
        self.convolution = self.eqns[-1]
        over = tuple(sorted(numbers.rhs_spec[1:]))
        of_kernel = self._named(
            "reduce_sum", self._converted(eqn.invars[1], wide), axes=over, out_sharding=None
        )
        added = self._named("mul", of_kernel, Literal(wide.type(zero)))
        added = self._named(
            "broadcast_in_dim", added, shape=result.aval.shape, sharding=None,
            broadcast_dimensions=(numbers.out_spec[1],),
        )  # fmt: skip
        self._named("add", sums, added)
        self.eqns[-1] = self.eqns[-1].replace(outvars=[result])

    def _converted(self, x: Any, dtype: np.dtype[Any]) -> Any:
        params = {"new_dtype": dtype, "weak_type": False, "sharding": None}
        return self._named("convert_element_type", x, **params)

    def _named(self, name: str, *operands: Any, **params: Any) -> Any:
        primitive = Primitive.by_name[name]
        assert primitive.abstract_eval is not None
        v = Var(primitive.abstract_eval(*(x.aval for x in operands), **params))
        self.eqns.append(JaxprEqn(primitive, list(operands), [v], params, source=self.source))
        return v
