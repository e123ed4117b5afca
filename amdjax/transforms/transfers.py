"""`device_put` inside traced programs: a mark that a value is wanted on a device."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

from amdjax.core.array import asarray_concrete, get_backend
from amdjax.core.lowering import Decompose
from amdjax.core.primitive import Primitive
from amdjax.transforms.zero import Zero, instantiate_zeros


class ArrayCopySemantics(Enum):
    """Whether the result of a transfer may share memory with what was transferred."""

    REUSE_INPUT = 0
    ALWAYS_COPY = 1
    DONATE_INPUT = 2

    def __repr__(self) -> str:
        return f"ArrayCopySemantics.{self.name}"


device_put_p = Primitive("device_put", multiple_results=True)
device_put_p.def_abstract_eval(lambda *avals, **_: list(avals))
# A program runs where its arguments are.
device_put_p.lowering = Decompose(lambda *xs, **_: list(xs))


def _put(*xs: Any, devices: Sequence[Any], **_: Any) -> list[Any]:
    put = get_backend().device_put
    return [put(asarray_concrete(x), d) for x, d in zip(xs, devices, strict=True)]


device_put_p.impl = _put


def put_traced(x: Any, device: Any, src: Any = None) -> Any:
    """A traced value, marked as one that is wanted on a device."""
    copy = ArrayCopySemantics.REUSE_INPUT
    return device_put_p.bind(x, devices=(device,), srcs=(src,), copy_semantics=(copy,))[0]


@device_put_p.def_jvp
def _put_jvp(primals: Any, tangents: Any, **params: Any) -> Any:
    outs = device_put_p.bind(*primals, **params)
    moved = [
        t if type(t) is Zero else device_put_p.bind(t, **_of_one(params, i))[0]
        for i, t in enumerate(tangents)
    ]
    return outs, moved


@device_put_p.def_transpose
def _put_transpose(cts: Any, *xs: Any, **params: Any) -> list[Any]:
    # Back to where they came from, which was not said.
    params = {**params, "devices": (None,) * len(cts), "srcs": params["devices"]}
    return device_put_p.bind(*map(instantiate_zeros, cts), **params)


@device_put_p.def_batch
def _put_batch(axis: Any, args: Any, dims: Any, **params: Any) -> Any:
    return device_put_p.bind(*args, **params), dims


def _of_one(params: dict[str, Any], i: int) -> dict[str, Any]:
    return {name: (values[i],) for name, values in params.items()}
