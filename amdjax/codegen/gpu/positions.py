"""How a workgroup holds tiles: elements in registers, or functions of their position.

A scalar is one LLVM value, the same in all threads. A tile is `Held`, each thread having a vector
of its elements, or `Positional`: what follows from the position of an element (counts, masks of
tails, constants) is not held but computed where it is needed, in whatever layout it is needed, and
so needs no data movement.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from amdjax.codegen import llvm
from amdjax.codegen.gpu.fragments import FragmentLayout
from amdjax.codegen.gpu.layout import Layout, Place, Threads
from amdjax.codegen.gpu.registers import joined, splat
from amdjax.codegen.llvm import I32, Value


@dataclass(frozen=True, slots=True)
class Held:
    """The registers of one thread: a vector, or a scalar where it is one."""

    value: Value


@dataclass(frozen=True, slots=True)
class Coordinates:
    """Positions along each axis of the elements that a thread holds, as vectors of i32.

    Args:
      key: equal for equal positions.
      registers: length of the vectors.
      axis: computes the positions along an axis.
      pair_axis: the axis along which each two registers are neighbors, the first at an even place;
        None where that is not known.
    """

    key: tuple[object, ...]
    registers: int
    axis: Callable[[int], Value]
    pair_axis: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Positional:
    """A tile as a function of position."""

    at: Callable[[Coordinates], Value]


class Deferred:
    """A tile that reaches the registers of its layout where an op of its own asks for it."""


Rep = Value | Held | Positional | Deferred
AnyLayout = Layout | FragmentLayout


class Layouts:
    """The layouts of one kernel's tiles, and where the elements of each thread are.

    Args:
      threads: of the workgroup; positions are computed at the kernel's head.
      workgroup: how many there are.
      vector: neighbors that a thread holds side by side where there are enough elements.
    """

    def __init__(self, threads: Threads, workgroup: int, vector: int):
        self.threads, self.workgroup, self.vector = threads, workgroup, vector
        self._layouts: dict[tuple[int, ...], Layout] = {}
        self._axes: dict[tuple[AnyLayout, int, int], Value] = {}

    def of(self, shape: tuple[int, ...]) -> Layout:
        """How tiles of a shape are held in this kernel."""
        if shape not in self._layouts:
            self._layouts[shape] = Layout(shape, self.workgroup, self.vector)
        return self._layouts[shape]

    def places(self, layout: AnyLayout) -> Sequence[tuple[Place, ...]]:
        return layout.places(self.threads)

    def guards(self, layout: AnyLayout) -> list[Value | None]:
        """For each register: whether it holds an element; None for always."""
        t, last = self.threads, self.workgroup - 1
        bounds = [layout.last_thread(r) for r in range(layout.registers)]
        return [None if b >= last else t.compare("sle", t.number, max(b, -1)) for b in bounds]

    def owner(self, layout: AnyLayout) -> Value | None:
        """Whether the thread is the first that holds its elements; None if it is the only one."""
        return layout.owner(self.threads)

    def coordinates(self, layout: AnyLayout) -> Coordinates:
        """The positions of the elements of a layout."""
        return self._spaced(layout, 1)

    def leaders(self, layout: AnyLayout) -> Coordinates:
        """The positions of the first of each few elements that a thread holds side by side."""
        return self._spaced(layout, layout.width)

    def _spaced(self, layout: AnyLayout, step: int) -> Coordinates:
        """The positions of each `step`th element of a thread."""

        def axis(a: int) -> Value:
            key = (layout, step, a)
            if isinstance(layout, FragmentLayout):  # too many to hold through the kernel
                return self._positions([p[a] for p in self.places(layout)[::step]])
            if key not in self._axes:
                places = [p[a] for p in self.places(layout)[::step]]
                self._axes[key] = self.threads.at_head(lambda: self._positions(places))
            return self._axes[key]

        pairs = layout.minor_axis if step == 1 and layout.width > 1 else None
        return Coordinates((layout, step), layout.registers // step, axis, pairs)

    def _positions(self, places: Sequence[Place]) -> Value:
        f, n, steps = self.threads.f, len(places), [p.step for p in places]
        constants = llvm.vector("i32", steps) if n > 1 else llvm.const(I32, steps[0])
        bases = [p.base for p in places]
        if all(b is None for b in bases):
            return constants
        if all(b == bases[0] for b in bases):
            assert bases[0] is not None
            return f.add(splat(f, bases[0], n), constants)
        parts = [llvm.const(I32, 0) if b is None else b for b in bases]
        return f.add(joined(f, parts), constants)
