"""Axes of written attention by their part in it, and arrays with a dimension for each part.

They are divided into batch, queries, heads that share a head of keys, and so on, so that operands
are moved as little as possible.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from amdjax.core.primitive import Primitive
from amdjax.passes.attention.axes import Axis, Layout, extent, flat, whole
from amdjax.passes.attention.logits import Logits, Placed
from amdjax.transforms import ops

Group = tuple[Axis, ...]


@dataclass(frozen=True)
class Groups:
    """Axes by their part in attention: those of batch, queries, keys, heads and features."""

    batch: Group
    queries: Group
    keys: Group
    key_heads: Group
    shared: Group  # heads that have one head of keys
    features: Group
    value_features: Group

    @property
    def heads(self) -> Group:
        return (*self.key_heads, *self.shared)

    @property
    def query(self) -> tuple[Group, ...]:
        return self.batch, self.queries, self.heads, self.features

    @property
    def key(self) -> tuple[Group, ...]:
        return self.batch, self.keys, self.key_heads, self.features

    @property
    def value(self) -> tuple[Group, ...]:
        return self.batch, self.keys, self.key_heads, self.value_features

    @property
    def out(self) -> tuple[Group, ...]:
        return self.batch, self.queries, self.heads, self.value_features

    @property
    def pairs(self) -> tuple[Group, ...]:
        return self.batch, self.heads, self.queries, self.keys


def groups_of(
    logits: Logits, operands: Sequence[Placed], pairs: Group, keys: Group
) -> Groups | None:
    """The parts of all axes, None where an operand lacks one, or has one too many."""
    query, key, value = (x.axes for x in operands)
    features = tuple(a for a in query if a in key and a not in pairs)
    both = [a for a in key if a in query and a in pairs]
    value_features = tuple(a for a in value if a not in pairs)
    alone = [a for a in query if a in pairs and a not in key]
    complete = (
        set(query) == {*features, *both, *alone}
        and set(key) == {*features, *both, *keys}
        and set(value) == {*value_features, *both, *keys}
        and set(pairs) == {*both, *alone, *keys}
        and all(len(set(axes)) == len(axes) for axes in (query, key, value, pairs))
    )
    if not complete:
        return None
    keys = tuple(a for a in key if a in keys)
    masks = [x.axes for _, x in logits.biases] + [c.value.axes for c in logits.conditions]
    masks += [(d.first, d.second) for d, _ in logits.distances]
    heads = _heads_of_keys(both, key.index(keys[0]), key, [set(m) for m in masks], set(keys))
    masked = {a for axes in masks for a in axes if a in alone}
    if masked:
        queries = [a for a in alone if a in masked]
    else:
        start = min((query.index(a) for a in heads), default=len(query))
        queries = [a for a in alone if query.index(a) < start] or alone
    return Groups(
        tuple(a for a in both if a not in heads), tuple(queries), keys, tuple(heads),
        tuple(a for a in alone if a not in queries), features, value_features,
    )  # fmt: skip


def _heads_of_keys(
    both: list[Axis], first_key: int, key: Group, masks: list[set[Axis]], keys: set[Axis]
) -> list[Axis]:
    """Which of the axes that queries and keys share are heads: those behind the keys in memory.

    But a large mask should not be repeated: then those that it has, or those that it has not.
    """
    heads = [a for a in both if key.index(a) > first_key]
    for mask in masks:
        has = [a for a in both if a in mask]
        if not mask & keys or mask <= {*both, *keys} or not 0 < len(has) < len(both):
            continue
        batch = [a for a in both if a not in heads]
        if any(0 < len(mask & set(part)) < len(part) for part in (batch, heads)):
            return has if both[0] not in mask else [a for a in both if a not in mask]
    return heads


def by_group(x: Any, layout: Layout, groups: Sequence[Group]) -> Any:
    """`x` with a dimension for each group of axes, of length one where it has none of a group."""
    axes = flat(layout)
    x = ops.reshape(x, tuple(a.size for a in axes))
    wanted = [whole(g) if set(whole(g)) & set(axes) else () for g in groups]
    order = [a for g in wanted for a in g]
    held = [a for a in order if a in axes]
    x = ops.transpose(x, tuple(axes.index(a) for a in held))
    if len(held) < len(order):
        places = tuple(order.index(a) for a in held)
        x = ops.broadcast_in_dim(x, tuple(a.size for a in order), places)
    return ops.reshape(x, tuple(extent(g) for g in wanted))


def placed(x: Any, groups: Sequence[Group], to: Placed) -> Any:
    """What has a dimension for each group of axes, as a value that is placed along them."""
    axes = [a for g in groups for a in whole(g)]
    x = ops.reshape(x, tuple(a.size for a in axes))
    x = ops.transpose(x, tuple(axes.index(a) for a in to.axes))
    return ops.convert(ops.reshape(x, to.atom.aval.shape), to.atom.aval.dtype)


def combined(xs: Sequence[Any], combine: str) -> Any:
    """Arrays of four dimensions combined, each repeated as far as others ask for it."""
    shape = tuple(map(max, *(x.aval.shape for x in xs))) if len(xs) > 1 else ()
    out = None
    for x in xs:
        if len(xs) > 1:
            x = ops.broadcast_in_dim(x, shape, (0, 1, 2, 3))
        out = x if out is None else Primitive.by_name[combine].bind(out, x)
    return out
