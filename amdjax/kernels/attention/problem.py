"""What attention kernels compute: sizes, which pairs take part, where operands lie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from amdjax.core.jaxpr import JaxprEqn
from amdjax.core.views import viewed
from amdjax.kernels.loops import row_major
from amdjax.kernels.products.formats import operand_formats
from amdjax.schedule.values import compute_dtype, short_dtype

#: The logit of pairs that take no part, as in the definition (`lax/attention/operands.py`).
LEAST_LOGIT = -0.7 * 3.4028234663852886e38
#: Bytes of scratch, on the stack of a thread, that a kernel may have.
MOST_SCRATCH = 4 << 20
#: What the greatest logit of no keys is.
LOWEST = {"f32": -3.4028234663852886e38, "f64": -1.7976931348623157e308}


@dataclass(frozen=True)
class Attention:
    """An attention, or the gradient of one.

    Args:
      batch: entries of the batch.
      queries: positions of queries ...
      keys: ... and of keys.
      heads: of queries.
      key_heads: as many share a head of keys as `heads` is a multiple of these.
      features: of queries and keys.
      value_features: of values.
      dtype: of queries, keys and values.
      given: which optional operands there are.
      bias: strides of the bias by batch, head, query and key, 0 where it has one element.
      mask: the same of the mask.
      bias_dtype: of the bias.
      scale: factor of the logits.
      is_causal: keys behind a query take no part.
      window: how many keys before and behind the place of a query take part; None: all.
      rate: probability of a weight to be dropped.
      out_dtype: of the result, or of gradients of operands.
      formats: that may stand for float32 in products (`products/formats.py`).
    """

    batch: int
    queries: int
    keys: int
    heads: int
    key_heads: int
    features: int
    value_features: int
    dtype: str
    given: tuple[str, ...]
    bias: tuple[int, ...]
    mask: tuple[int, ...]
    bias_dtype: str
    scale: float
    is_causal: bool
    window: tuple[int, int] | None
    rate: float = 0.0
    out_dtype: str = ""
    formats: tuple[str, ...] = ()

    @staticmethod
    def of(eqn: JaxprEqn) -> Attention:
        given, params = tuple(eqn.params["given"]), eqn.params
        avals = [x.aval for x in eqn.invars[: 3 + len(given)]]
        query, key, value, *optional = viewed(avals, params.get("views", ()))
        shapes = {name: x.shape for name, x in zip(given, optional, strict=True)}
        dtypes = {name: short_dtype(x.dtype) for name, x in zip(given, optional, strict=True)}
        batch, queries, heads, features = query.shape
        return Attention(
            batch, queries, key.shape[1], heads, key.shape[2], features, value.shape[3],
            short_dtype(query.dtype), given, _strides(shapes.get("bias")),
            _strides(shapes.get("mask")), dtypes.get("bias", ""), float(params["scale"]),
            params["is_causal"], params["window"], params.get("rate", 0.0),
            short_dtype(eqn.outvars[0].aval.dtype), operand_formats(params.get("precision")),
        )  # fmt: skip

    @property
    def group(self) -> int:
        """Heads that share a head of keys."""
        return self.heads // self.key_heads

    @property
    def accumulate(self) -> str:
        """The dtype of logits, weights and sums."""
        return compute_dtype(self.dtype)

    @property
    def may_lack_keys(self) -> bool:
        """Whether a query may take no key at all into account: its weights are then all equal."""
        return bool({*self.given} - {"seeds", "factors"}) or self.window is not None

    @property
    def is_masked_by_position(self) -> bool:
        """Whether places of queries and keys say which pairs take part."""
        lengths = {"query_lengths", "key_value_lengths"} & {*self.given}
        return self.is_causal or self.window is not None or bool(lengths)

    def operand(self, name: str, atoms: Sequence[Any]) -> Any:
        """The atom of an optional operand, of an equation's."""
        return atoms[3 + self.given.index(name)]

    def __str__(self) -> str:
        size = f"{self.batch}×{self.heads} of {self.queries}×{self.keys}×{self.features}"
        if self.value_features != self.features:
            size += f"×{self.value_features}"
        shared = f", {self.group} heads to one of keys" if self.group > 1 else ""
        causal = " causal" if self.is_causal else ""
        window = f" window {self.window[0]} {self.window[1]}" if self.window else ""
        dropping = f" dropping {self.rate:g}" if self.rate else ""
        return f"{size} in {self.dtype}{causal}{window}{dropping}{shared}"


@dataclass(frozen=True)
class Layout:
    """Where queries, keys or values lie: distances in elements, those of features being one.

    Args:
      offset: of the first.
      batch, line, head: from one to the next.
    """

    offset: int
    batch: int
    line: int
    head: int

    @staticmethod
    def of(eqn: JaxprEqn, which: int) -> Layout:
        """Of an operand by its number."""
        views = eqn.params.get("views", ())
        view = views[which] if which < len(views) else None
        if view is not None:
            return Layout(view.offset, *view.strides[:3])
        return Layout(0, *row_major(eqn.invars[which].aval.shape)[:3])


def _strides(shape: tuple[int, ...] | None) -> tuple[int, ...]:
    if shape is None:
        return ()
    return tuple(s if n > 1 else 0 for n, s in zip(shape, row_major(shape), strict=True))
