"""Control flow: If, Loop, Scan, SequenceMap.

Loops are compiled where their number of steps is known or nothing is collected, and where what they
carry keeps its shape; else their steps are run one after another, which a traced function can only
do for a number of steps that is known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import amdjax.numpy as jnp
from amdjax import eval_shape, lax, vmap
from amdjax.core.dtypes import canonicalize_dtype
from amdjax.core.trace import Tracer

from ..errors import NotTraceable
from ..registry import integer, is_host, namespace, rule, static

#: What a body may raise as it is traced that could still be run step by step.
_UNTRACEABLE = (TypeError, ValueError, IndexError, NotImplementedError)
#: How many steps of a loop a traced program may hold one after another.
_MOST_UNROLLED = 1024

#: From the number of the step, what is carried, and rows of what is scanned, to whether it goes on,
#: what is carried next, and what is collected.
Step = Callable[[Any, list[Any], list[Any]], tuple[Any, list[Any], list[Any]]]


@rule("If")
def branch(condition: Any, *, node: Any, then_branch: Any, else_branch: Any) -> tuple[Any, ...]:
    """One of two graphs; both are compiled where the condition depends on inputs."""
    if not isinstance(condition, Tracer):
        taken = then_branch if bool(static(condition, "cond").reshape(())) else else_branch
        return tuple(node.graph(taken, []))
    run = lambda graph: lambda: [_array(v) for v in node.graph(graph, [])]
    try:
        return tuple(lax.cond(condition.reshape(()), run(then_branch), run(else_branch)))
    except (
        _UNTRACEABLE
    ) as error:  # branches that differ in shapes or kinds, sizes that depend on it
        raise NotTraceable(
            f"it cannot be compiled where cond depends on inputs: {error}"
        ) from error


def _array(value: Any) -> Any:
    """A value as control flow carries it."""
    if value is None or isinstance(value, list):
        return value if value is None else [_array(v) for v in value]
    if isinstance(value, np.ndarray) and value.dtype == object:
        return jnp.asarray(value.tolist())  # sizes of which some are symbolic
    return jnp.asarray(value)


@rule("Loop")
def loop(
    trips: Any = None, condition: Any = None, *carried: Any, node: Any, body: Any
) -> tuple[Any, ...]:
    """Steps of a graph until a number of them is done or a condition fails."""

    def step(i: Any, carried: list[Any], rows: list[Any]) -> Any:
        going, *rest = node.graph(body, [i, np.asarray(True), *carried])
        return going, rest[: len(carried)], rest[len(carried) :]

    if trips is None and condition is None:
        raise node.error("nothing ends the loop: neither M nor cond is given")
    length = _scalar(trips, "M")
    if isinstance(length, int) and length > np.iinfo(np.int32).max:
        length = None  # exporters write the largest integer for no bound
    going = _scalar(condition, "cond")
    steps = _Steps(node, step, list(carried), [], length, True if going is None else going)
    carried_out, collected = steps.run()
    if not collected:
        collected = [_nothing(v) for v in body.outputs[1 + len(carried) :]]
    return *carried_out, *collected


def _scalar(value: Any, name: str) -> Any:
    """A number that is known as Python's, else as it is."""
    if value is None:
        return None
    if isinstance(value, Tracer):
        return value.reshape(())
    if value.dtype == bool:
        return bool(static(value, name).reshape(()))
    return integer(value, name)


def _nothing(value: Any) -> Any:
    """What a loop collects that made no step, by what its model says of shapes."""
    shape = [n if isinstance(n, int) else 0 for n in value.shape or ()]
    return jnp.zeros((0, *shape), value.dtype or np.float32)


@rule("Scan", since=9)
def scan(
    *operands: Any, node: Any, body: Any, num_scan_inputs: int, scan_input_axes: Any = None,
    scan_input_directions: Any = None, scan_output_axes: Any = None,
    scan_output_directions: Any = None,
) -> tuple[Any, ...]:  # fmt: skip
    """A graph over rows of arrays."""
    states = list(operands[: len(operands) - num_scan_inputs])
    rows = list(operands[len(states) :])
    axes, backward = _each(scan_input_axes, rows), _each(scan_input_directions, rows)
    rows = [_flipped(_moved(x, a, 0), b) for x, a, b in zip(rows, axes, backward)]

    def step(i: Any, carried: list[Any], rows: list[Any]) -> Any:
        made = node.graph(body, [*carried, *rows])
        return np.asarray(True), made[: len(states)], made[len(states) :]

    states, collected = _Steps(node, step, states, rows, _common_length(node, rows)).run()
    axes, backward = _each(scan_output_axes, collected), _each(scan_output_directions, collected)
    found = [_moved(_flipped(y, b), 0, a) for y, a, b in zip(collected, axes, backward)]
    return *states, *found


def _each(values: Any, of: Sequence[Any]) -> list[int]:
    return [0] * len(of) if values is None else [int(v) for v in values]


def _moved(x: Any, source: int, to: int) -> Any:
    return x if source == to else namespace(x).moveaxis(x, source, to)


def _flipped(x: Any, backward: int) -> Any:
    return namespace(x).flip(x, 0) if backward else x


def _common_length(node: Any, rows: Sequence[Any]) -> Any:
    lengths = [x.shape[0] for x in rows]
    if any(n != lengths[0] for n in lengths):
        raise node.error(f"what is scanned must have one length, got {lengths}")
    return lengths[0]


@rule("Scan", since=8)
def scan_batch(
    lengths: Any, *operands: Any, node: Any, body: Any, num_scan_inputs: int, directions: Any = None
) -> tuple[Any, ...]:
    """A graph over rows of each example of a batch, which may have lengths of their own."""
    count = len(operands) - num_scan_inputs
    backward = _each(directions, operands[count:])
    operands = tuple(map(_array, operands))

    def one(length: Any, *operands: Any) -> list[Any]:
        states, rows = list(operands[:count]), list(operands[count:])
        rows = [_flipped(x, b) for x, b in zip(rows, backward)]

        def step(carried: list[Any], now: tuple[Any, list[Any]]) -> Any:
            i, rows = now
            made = [_array(v) for v in node.graph(body, [*carried, *rows])]
            if length is None:
                return made[:count], made[count:]
            kept = [jnp.where(i < length, new, old) for new, old in zip(made, carried)]
            return kept, [jnp.where(i < length, y, jnp.zeros_like(y)) for y in made[count:]]

        turns = jnp.arange(_common_length(node, rows))
        states, collected = lax.scan(step, states, (turns, rows))
        return [*states, *collected]

    if lengths is None:
        return tuple(vmap(lambda *xs: one(None, *xs))(*operands))
    return tuple(vmap(one)(jnp.asarray(lengths), *operands))


@rule("SequenceMap")
def sequence_map(sequence: list[Any], *others: Any, node: Any, body: Any) -> Any:
    """A graph over the items of sequences; tensors are the same for all."""
    for other in others:
        if isinstance(other, list) and len(other) != len(sequence):
            raise node.error(f"sequences must have one length, got {len(sequence)}, {len(other)}")
    inputs = (sequence, *others)
    pick = lambda i: [x[i] if isinstance(x, list) else x for x in inputs]
    found = [node.graph(body, pick(i)) for i in range(len(sequence))]
    return tuple([items[k] for items in found] for k in range(len(body.outputs)))


@dataclass
class _Steps:
    """A loop: its step, what it starts with, and how long it goes on."""

    node: Any
    step: Step
    carried: list[Any]
    rows: list[Any]
    length: Any = None  # an integer, a symbolic dimension, a traced scalar; None for no bound
    going: Any = True

    def run(self) -> tuple[list[Any], list[Any]]:
        """What is carried at the end, and what was collected, stacked."""
        if is_host([*self.carried, *self.rows]) and self._is_counted:
            done = self._one_by_one(host_only=True)
            if done is not None:
                return done
        done, reason = self._compiled()
        if done is not None:
            return done
        if not self._is_counted:
            raise NotTraceable(
                f"how often it runs depends on inputs of a traced function: {reason}"
            )
        done = self._one_by_one(reason=reason)
        assert done is not None
        return done

    @property
    def _is_counted(self) -> bool:
        """Whether it is known how many steps there are at most, and whether there is one."""
        is_number = self.length is None or isinstance(self.length, int)
        return is_number and isinstance(self.going, bool)

    def _compiled(self) -> tuple[tuple[list[Any], list[Any]] | None, Any]:
        """The loop as one operation, or None and why not."""
        if self.going is False:
            return None, "it makes no step"
        always: list[bool | None] = []

        def traced(i: Any, carried: list[Any], rows: list[Any]) -> Any:
            going, carried, collected = self.step(i, carried, rows)
            always.append(bool(going) if is_host(going) else None)
            return [_array(v) for v in carried], [_array(v) for v in collected]

        try:
            carried = [_array(v) for v in self.carried]
            rows = [_array(x) for x in self.rows]
            first = [_row(x) if self.length == 0 else x[0] for x in rows]
            new, collected = eval_shape(traced, np.asarray(0, np.int64), carried, first)
        except _UNTRACEABLE as error:
            return None, error
        if not _alike(carried, new):
            return None, "what it carries changes its shape"
        is_known = not isinstance(self.length, Tracer) and self.length is not None
        if self.going is True and always[-1] and is_known:
            return self._scan(carried, rows), ""
        if collected or rows or always[-1] is False:
            return None, "what it collects has a size that is known only at the end"
        return (self._while(carried), []), ""

    def _scan(self, carried: list[Any], rows: list[Any]) -> tuple[list[Any], list[Any]]:
        def step(carried: list[Any], now: tuple[Any, list[Any]]) -> Any:
            _, new, collected = self.step(now[0], carried, now[1])
            return [_array(v) for v in new], [_array(v) for v in collected]

        turns = jnp.arange(self.length, dtype=canonicalize_dtype(np.int64))
        return lax.scan(step, carried, (turns, rows))

    def _while(self, carried: list[Any]) -> list[Any]:
        def goes_on(state: Any) -> Any:
            i, going, _ = state
            return going if self.length is None else going & (i < self.length)

        def step(state: Any) -> Any:
            i, _, carried = state
            going, new, _ = self.step(i, carried, [])
            return i + 1, jnp.asarray(going).reshape(()), [_array(v) for v in new]

        start = jnp.asarray(0, canonicalize_dtype(np.int64)), jnp.asarray(self.going), carried
        return lax.while_loop(goes_on, step, start)[2]

    def _one_by_one(
        self, host_only: bool = False, reason: Any = ""
    ) -> tuple[list[Any], list[Any]] | None:
        """All steps in turn; None where only host arrays were wanted and others came out."""
        i, going, carried = 0, self.going, self.carried
        collected: list[list[Any]] = []
        while going and (self.length is None or i < self.length):
            rows = [x[i] for x in self.rows]
            going, carried, made = self.step(np.asarray(i, np.int64), carried, rows)
            if host_only and not is_host([going, *carried, *made]):
                return None
            if isinstance(going, Tracer):
                raise NotTraceable(f"cond depends on inputs of a traced function: {reason}")
            going = bool(static(going, "cond").reshape(()))
            collected.append(made)
            i += 1
            if i > _MOST_UNROLLED and any(isinstance(v, Tracer) for v in carried + made):
                raise NotTraceable(f"it has too many steps for a traced function: {reason}")
        stacked = [namespace(*ys).stack([*ys]) for ys in zip(*collected)]
        return carried, stacked


def _row(x: Any) -> Any:
    return jnp.zeros(x.shape[1:], x.dtype)


def _alike(old: Sequence[Any], new: Sequence[Any]) -> bool:
    """Whether values have the same shapes and dtypes; sequences never have."""
    return all(
        not isinstance(b, list) and not isinstance(a, list) and a is not None and b is not None
        and a.shape == b.shape and a.dtype == b.dtype
        for a, b in zip(old, new)
    )  # fmt: skip
