"""At which places the elements of a value read others, and which it reads for several at once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from amdjax import tile
from amdjax.core.jaxpr import Jaxpr, JaxprEqn, Literal, Var
from amdjax.schedule.element import ElementBuilder, Reader
from amdjax.schedule.equations import is_inlinable
from amdjax.schedule.index import Index, LoopVar, linear, placed
from amdjax.schedule.values import El, compute_dtype, part_dtype, short_dtype

FEW = 4  # steps of a loop that are written one after the other
LANES = 8  # steps of the loop around it that are enough for vectors
SHARED = 600  # operations of them together, and of what they share


class Recorder(ElementBuilder):
    """Follows the reads of a root without producing code that anybody keeps.

    Args:
      producers: of what is computed.
      roots: what is read, but for `own`.
      dims: loops of the root.
      watched: inlined values of which it is told where they are read.
      own: what the root makes.
    """

    def __init__(
        self, producers: dict[Var, JaxprEqn], roots: set[Var], dims: Sequence[LoopVar],
        watched: Iterable[Var] = (), own: Collection[Var] = (),
    ):  # fmt: skip
        super().__init__(
            tile.Builder("reads"), producers, lambda v: tile.Buffer("x", "f32", "in"), self._stop
        )
        self.roots, self.own = roots, own
        self.reads: list[tuple[Var, tuple[Index, ...]]] = []
        self.places: dict[Var, set[Any]] = {v: set() for v in watched}
        for d in dims:
            self.scalars[d] = self.k.program_id()

    def _stop(self, var: Var, index: tuple[Index, ...]) -> El | None:
        if var in self.places:
            self.places[var].add((index, tuple(self.guards)))
        if var in self.producers and (var not in self.roots or var in self.own):
            return None
        self.reads.append((var, index))
        return self.dummy(var)

    def dummy(self, var: Var) -> El:
        """A value of the right type; each variable has one of its own."""
        dtype = short_dtype(var.aval.dtype)
        parts = 2 if dtype in ("c64", "c128") else 1
        buffer = tile.Buffer(f"v{id(var)}", compute_dtype(part_dtype(dtype)), "in")
        return El(dtype, *(self.k.load(buffer, j) for j in range(parts)))


class Tracer(ElementBuilder):
    """Records the offsets of all memory accesses, and indices used in other ways.

    Args:
      producers: of what is computed.
      special: values that are at hand.
      stored: of what steps of loops make, what is kept.
    """

    def __init__(
        self, producers: Mapping[Var, JaxprEqn], special: Reader, stored: Collection[Var] = ()
    ):
        super().__init__(tile.Builder("trace"), dict(producers), _any_buffer, special)
        self.offsets: list[tuple[Var, Index]] = []
        self.stepwise: list[tuple[Var, Index]] = []
        self.stored = stored
        self.irregular: list[Index] = []
        self._any = self.k.program_id()

    def spread_anywhere(self, loops: Iterable[LoopVar]) -> None:
        """Let loops have places, whichever."""
        for var in loops:
            self.scalars[var] = self._any

    def dummy(self, var: Var) -> El:
        """An element of a variable."""
        dtype = short_dtype(var.aval.dtype)
        parts = 2 if dtype in ("c64", "c128") else 1
        buffer = tile.Buffer("x", compute_dtype(part_dtype(dtype)), "in")
        return El(dtype, *(self.k.load(buffer, 0) for _ in range(parts)))

    def load(self, var: Var, offset: Index) -> El:
        self.offsets.append((var, offset))
        return self.dummy(var)

    def put(self, var: Var, index: tuple[Index, ...], x: El) -> None:
        if var in self.stored:
            self.stepwise.append((var, linear(index, var.aval.shape)))

    def index_tile(self, i: Index) -> tile.Value:
        self.irregular.append(i)
        return self._any


def _any_buffer(var: Var) -> tile.Buffer:
    return tile.Buffer("x", "f32", "in")


def shared_by_steps(
    jaxpr: Jaxpr, producers: dict[Var, JaxprEqn], roots: set[Var], optional: Collection[Var]
) -> set[Var]:
    """Roots that need not be, since the few steps of the innermost loop of their reader share them.

    As what follows from a point alone in a kernel over the channels of points: written out, the
    steps read it at one place, so that it is computed once, and not stored for another kernel.

    Args:
      jaxpr: the program.
      producers: the equation of each value.
      roots: values that kernels compute once for each element.
      optional: those that could be computed wherever they are read.
    """
    found: set[Var] = set()
    inlined = {v: e for v, e in producers.items() if is_inlinable(e)}
    for end, values in _by_reader(jaxpr, roots - set(optional), optional).items():
        shape = end.aval.shape
        dims = [LoopVar(f"i{i}", m) for i, m in enumerate(m for m in shape if m != 1)]
        if len(dims) < 2 or not _has_few_steps(shape[-1]) or dims[-2].extent < LANES:
            continue
        recorder = Recorder(inlined, roots - {end, *values}, dims, values)
        for i in range(shape[-1]):
            recorder.value(end, placed([*map(Index.of, dims[:-1]), Index(i)], shape))
        once = all(len(places) == 1 for places in recorder.places.values())
        if once and sum(1 for _ in tile.nested_ops(recorder.k.block)) <= SHARED:
            found.update(values)
    return found


def _has_few_steps(n: int) -> bool:
    return isinstance(n, int) and 1 < n <= FEW


def _by_reader(jaxpr: Jaxpr, roots: set[Var], values: Collection[Var]) -> dict[Var, list[Var]]:
    """Values by the only root in which all that is made of them ends, if that is a map."""
    ends: dict[Var, Var | None] = {}  # None for several, and what is no map
    for eqn in reversed(jaxpr.eqns):
        end = None
        if is_inlinable(eqn) and len(eqn.outvars) == 1:
            (result,) = eqn.outvars
            end = result if result in roots else ends.get(result)
        for x in eqn.invars:
            if not isinstance(x, Literal):
                ends[x] = end if ends.get(x, end) is end else None
    found: dict[Var, list[Var]] = {}
    for v in values:
        if (reader := ends.get(v)) is not None:
            found.setdefault(reader, []).append(v)
    return found
