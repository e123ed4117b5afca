"""Cuts a program into kernels.

Three kinds of equations: those with element rules, which can be computed wherever they are needed;
reductions; and the rest (shaped kernels, control flow, callbacks), which are steps of their own.

1. *Roots* are the values that a kernel computes once for each of their elements: what must be in
   memory, every reduction, and what would cost too much to compute again at each use. All other
   values are inlined into the index expressions of their readers.
2. *Regions* gather roots that have the same domain, so that they become one kernel. A region may
   hold reductions over some of its axes together with what follows from them along the same rows:
   softmax and its like are one region.

`str(fusion)` tells what was decided.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any

from amdjax.core.dims import Dim, choosing, same_shape
from amdjax.core.jaxpr import Jaxpr, JaxprEqn, Literal, Var
from amdjax.core.lowering import Pointwise, Reduce, Shaped
from amdjax.passes import is_on
from amdjax.schedule.computed import (
    ComputedOperand,
    computable_operand,
    computed_operand,
    made_of,
)
from amdjax.schedule.element_loops import ElementLoop, element_loops
from amdjax.schedule.equations import (
    RECOMPUTE_LIMIT,
    is_bitcast,
    is_inlinable,
    own_cost,
    reads_many,
    size_of,
)
from amdjax.schedule.index import Index, LoopVar, placed
from amdjax.schedule.reads import Recorder, shared_by_steps
from amdjax.targets import GpuTarget
from amdjax.targets.cpu import CpuTarget

#: The same where memory takes longer: on a GPU, and for large values made of little. Within a
#: kernel nothing is computed twice.
RECOMPUTE_LIMIT_FAR = 20
SPREAD = 8  # such a value is so many times larger than all it is made of
INLINE_LIMIT = 256  # operations inlined into one root
REGION_ROOTS = 16
REGION_COST = 1200
#: Fewer rows than this do not keep the threads busy, so nothing may wait for a whole row.
FEW_ROWS = 16
TALL = 1024
#: Elements of all values that one program of a GPU computes for a row while others have none, where
#: starting a kernel for all of them costs less; more of a value that reads no more than sums do.
ONE_PROGRAM = 1 << 12
LARGE = 1 << 15
#: Up to this many elements a launch costs more than sharing one saves in memory traffic.
SMALL_DOMAIN = 2048
NEWEST = 64  # regions that share an operand, or a small domain, among which one is looked for


def _long_axes(shape: Iterable[int]) -> tuple[int, ...]:
    return tuple(n for n in shape if n != 1)


Loops = Mapping[JaxprEqn, ElementLoop]


@dataclass(eq=False)
class Root:
    """A value computed once per element of its domain.

    Attributes:
      eqn: the equation that makes it.
      domain: extents of the loops over it: the result's shape, or the operand's for a reduction;
        axes of length one are left out, there and in `axes`.
      axes: the reduced axes; None unless a reduction.
      reads: roots and memory it reads, with the index in terms of `dims`.
      level: the pass of its region that computes it.
      row: computed once per row of its region instead of once per element.
      loop: the control flow it is, if it is some.
    """

    eqn: JaxprEqn
    domain: tuple[int, ...]
    axes: tuple[int, ...] | None
    dims: tuple[LoopVar, ...] = ()
    reads: list[tuple[Var, tuple[Index, ...]]] = field(default_factory=list)
    cost: float = 0.0
    level: int = 0
    row: bool = False
    loop: ElementLoop | None = None

    @property
    def stacked(self) -> Sequence[Var]:
        """Values with an element for each step of a loop; the loop stores them."""
        return self.loop.stacked if self.loop is not None else ()

    @property
    def points(self) -> list[Var]:
        """Values with an element for each point of the domain, or of its rows."""
        loop = self.loop
        return (
            self.vars
            if loop is None
            else [v for v in loop.finals if same_shape(v.aval.shape, loop.shape)]
        )

    @property
    def vars(self) -> list[Var]:
        return list(self.eqn.outvars)

    @property
    def is_reduction(self) -> bool:
        return self.axes is not None


@dataclass(eq=False)
class Region:
    """Roots that share a domain and become one kernel.

    Attributes:
      domain: extents of the loops over it.
      axes: those that it reduces over; None if it has no reductions.
      roots: what it computes.
      number: of the step.
      sums: a region of the same domain that reduces over the other axes, and is a part of this.
    """

    domain: tuple[int, ...]
    axes: tuple[int, ...] | None = None
    roots: list[Root] = field(default_factory=list)
    number: int = 0
    sums: Region | None = None

    @property
    def parts(self) -> list[Region]:
        """The region, and what is a part of it."""
        return [self] if self.sums is None else [self, self.sums]

    @property
    def row_axes(self) -> tuple[int, ...]:
        reduced = self.axes or ()
        return tuple(i for i in range(len(self.domain)) if i not in reduced)

    @property
    def row_shape(self) -> tuple[int, ...]:
        return tuple(self.domain[i] for i in self.row_axes)


@dataclass(eq=False)
class Single:
    """An equation that is a step of its own, and what its kernel computes beside it.

    Attributes:
      eqn: the equation.
      number: of the step.
      epilogue: elementwise work on its result.
      computed: an operand that is made of less.
      sums: what reduces blocks of rows of what is stored, and goes on with the results.
    """

    eqn: JaxprEqn
    number: int = 0
    epilogue: Region | None = None
    computed: ComputedOperand | None = None
    sums: Region | None = None

    @property
    def reads(self) -> list[Any]:
        """What the equation itself reads from memory."""
        if (computed := self.computed) is None:
            return list(self.eqn.invars)
        others = (x for side, x in enumerate(self.eqn.invars) if side != computed.side)
        return [*others, *computed.reads]


@dataclass
class Fusion:
    """The steps of a program in order, and which values they leave in memory.

    Attributes:
      launches: of steps that share a launch, which follow each other, all of them.
    """

    jaxpr: Jaxpr
    steps: list[Region | Single]
    producers: dict[Var, JaxprEqn]
    stored: set[Var]
    roots: set[Var]
    launches: Mapping[Region | Single, tuple[Region | Single, ...]] = field(default_factory=dict)

    @cached_property
    def readers(self) -> Mapping[Var, Sequence[Region | Single]]:
        """The steps that read each value, in order."""
        readers: dict[Var, list[Region | Single]] = {}
        for step in self.steps:
            for v in _variables(step):
                readers.setdefault(v, []).append(step)
        return readers

    @cached_property
    def results(self) -> frozenset[Var]:
        return frozenset(v for v in self.jaxpr.outvars if not isinstance(v, Literal))

    def launch_of(self, step: Region | Single) -> tuple[Region | Single, ...]:
        """The steps that share a launch with this one, itself included."""
        return self.launches.get(step, (step,))

    def launch_sizes(self, region: Region) -> list[int]:
        """Points of the domain of each region in a launch."""
        return [size_of(r.domain) for r in self.launch_of(region) if isinstance(r, Region)]

    def __str__(self) -> str:
        return describe(self)


def _expands(eqn: JaxprEqn, operand: Var) -> bool:
    """Whether elements of the operand are needed several times for one pass over the results."""
    if reads_many(eqn):
        return True
    if not eqn.outvars:
        return False
    return size_of(eqn.outvars[0].aval.shape) > 1.5 * size_of(operand.aval.shape)


def fuse(jaxpr: Jaxpr, machine: CpuTarget | GpuTarget | None = None) -> Fusion:
    """Decide the kernels of a program that has only lowerable equations.

    Args:
      jaxpr: the program.
      machine: what it will run on. On a GPU computing again is cheaper than memory.
    """
    gpu = machine if isinstance(machine, GpuTarget) else None
    on_gpu = gpu is not None
    producers = {v: e for e in jaxpr.eqns for v in e.outvars}
    loops = element_loops(jaxpr)
    with choosing():
        if is_on("inline_elementwise"):
            root_vars, behind, computed = _choose_roots(jaxpr, producers, on_gpu, loops)
        else:
            root_vars, behind, computed = set(producers), set(), {}
        inline = {v: e for v, e in producers.items() if is_inlinable(e) or e in loops}
        steps = _Clusters(jaxpr, inline, root_vars, behind, loops, gpu, computed).run()
        steps = _attach_epilogues(steps) if is_on("fuse_epilogues") else steps
    return Fusion(jaxpr, steps, inline, _stored(jaxpr, steps), root_vars)


def _choose_roots(
    jaxpr: Jaxpr, producers: dict[Var, JaxprEqn], on_gpu: bool, loops: Loops
) -> tuple[set[Var], set[Var], dict[JaxprEqn, ComputedOperand]]:
    """The roots, those of them that are stored in place of a product, and the operands that
    products compute.
    """
    readers: dict[Var, list[JaxprEqn]] = {}
    computing: dict[JaxprEqn, ComputedOperand] = {}
    able = not on_gpu and is_on("compute_operands")
    needed = {v for v in jaxpr.outvars if not isinstance(v, Literal)}
    for eqn in reversed(jaxpr.eqns):
        renamed = is_bitcast(eqn) and eqn.outvars[0] in needed
        for v in dict.fromkeys(x for x in eqn.invars if not isinstance(x, Literal)):
            # Who reads another name of a value reads the value.
            users = readers.get(eqn.outvars[0], []) if is_bitcast(eqn) else [eqn]
            readers.setdefault(v, []).extend(users)
            computes = is_inlinable(eqn) or eqn in loops
            computes = computes or isinstance(eqn.primitive.lowering, Reduce)
            if renamed or not (computes or (able and v is computable_operand(eqn, producers))):
                needed.add(v)
    roots: set[Var] = set()
    optional: set[Var] = set()  # of them, those that could be computed again
    cost: dict[Var, float] = {}
    count: dict[Var, int] = {}
    read: dict[Var, dict[Var, Any]] = {}  # what is read for all of a value, with bytes
    products: dict[Var, Var] = {}  # those that are read for a value alone, in place
    behind: set[Var] = set()
    for eqn in jaxpr.eqns:
        if not is_inlinable(eqn):
            roots.update(eqn.outvars)
            if able and (matrix := computable_operand(eqn, producers)) is not None:
                stored = roots - _private(eqn, matrix, producers, roots, optional, readers)
                operand = computed_operand(eqn, matrix, producers, stored)
                if operand is None:
                    roots.update((matrix, *_names(matrix, producers)))
                else:
                    computing[eqn] = operand
                    roots &= stored
            if on_gpu and _takes_epilogue(eqn) and is_on("fuse_epilogues"):
                products.update((v, v) for v in eqn.outvars)
            continue
        inputs = [x for x in dict.fromkeys(eqn.invars) if not isinstance(x, Literal)]
        inlined = [x for x in inputs if x in producers and x not in roots]
        share = _amortised(eqn) if on_gpu else lambda x: 1.0
        total = own_cost(eqn) + sum(cost[x] * share(x) for x in inlined)
        total += 0.5 * (len(inputs) - len(inlined))
        operations = 1 + sum(count[x] for x in inlined)
        sources = _sources(eqn, inputs, {x: read[x] for x in inlined})
        nbytes = sum(sources.values())
        several = len(eqn.outvars) > 1
        for v in eqn.outvars:
            users = [u for u in readers.get(v, []) if u not in loops]  # they read all once
            large = operations > INLINE_LIMIT and not is_bitcast(eqn)
            is_far = on_gpu or _is_spread(v, nbytes)
            again = not is_bitcast(eqn) and (
                _is_worth_keeping(v, users, total, is_far)
                or (on_gpu and len(users) > 1 and _reads_much(v, nbytes))
            )
            found = [products[x] for x in inputs if x in products and len(readers[x]) == 1]
            if _stays_in_place(eqn) and len(found) == 1:
                products[v] = found[0]
            if v in needed or large or several:
                roots.add(v)
            elif len(users) > 1 and _takes_place(v, products.get(v)):
                roots.add(v)
                behind.add(v)
            elif again:
                kept = _named(inlined[0], producers) if _is_wider(eqn) and inlined else v
                roots.add(kept)
                optional.add(kept)
                if kept is not v:  # which readers convert
                    total, operations = own_cost(eqn) + 0.5, 1
                    sources = {kept: kept.aval.nbytes}
            cost[v], count[v], read[v] = total, operations, sources
    if on_gpu:
        return roots, behind, computing
    return roots - shared_by_steps(jaxpr, producers, roots, optional), behind, computing


def _private(
    product: JaxprEqn, matrix: Var, producers: Mapping[Var, JaxprEqn], roots: Set[Var],
    optional: Set[Var], readers: Mapping[Var, Sequence[JaxprEqn]],
) -> Set[Var]:  # fmt: skip
    """Roots that need not be if a product computes an operand, since nothing else reads them."""
    private = optional & roots
    while True:
        own = made_of(matrix, producers, roots - private)
        inside = {id(product), *map(id, own.values())}
        kept = {v for v in private if any(id(u) not in inside for u in readers.get(v, ()))}
        if not kept:
            return private & own.keys()
        private = private - kept


def _stays_in_place(eqn: JaxprEqn) -> bool:
    """Whether elements are computed of those at the same place."""
    return isinstance(eqn.primitive.lowering, Pointwise)


def _takes_place(v: Var, product: Var | None) -> bool:
    """Whether a value that is read several times is stored in place of a large product.

    What it is computed of beside the product is then read once.
    """
    if product is None or not same_shape(v.aval.shape, product.aval.shape):
        return False
    return v.aval.nbytes <= product.aval.nbytes and size_of(v.aval.shape) >= LARGE


def _sources(
    eqn: JaxprEqn, inputs: Sequence[Var], inlined: Mapping[Var, dict[Var, Any]]
) -> dict[Var, Any]:
    """What is read for all of a result, and bytes of it: no more of an operand than that has."""
    size = size_of(eqn.outvars[0].aval.shape) if eqn.outvars else 0
    found: dict[Var, Any] = {}
    for x in inputs:
        whole = size_of(x.aval.shape)
        share = 1 if reads_many(eqn) or whole <= size else size / whole
        reads = inlined.get(x, {x: x.aval.nbytes})
        if share == 1 and not found:
            found.update(reads)  # all at once: sums of many terms have one source more each
            continue
        for source, nbytes in reads.items():
            found.setdefault(source, nbytes * share)
    return found


def _reads_much(v: Var, nbytes: Any) -> bool:
    """Whether two that compute a large value read more than if one wrote it for the other.

    As where a transformer's layers add to what all before them added to.
    """
    return size_of(v.aval.shape) >= LARGE and 2 * nbytes > 5 * v.aval.nbytes


def _is_spread(v: Var, nbytes: Any) -> bool:
    """Whether a value is large and made of much less."""
    return size_of(v.aval.shape) >= LARGE and nbytes * SPREAD <= v.aval.nbytes


def _is_worth_keeping(v: Var, users: Sequence[JaxprEqn], cost: float, is_far: bool) -> bool:
    """Whether a value costs too much to be computed wherever it is read.

    `is_far` says that an element takes longer from memory than a few operations.
    """
    if any(_expands(u, v) for u in users):
        return cost > RECOMPUTE_LIMIT
    return len(users) > 1 and cost > (RECOMPUTE_LIMIT_FAR if is_far else RECOMPUTE_LIMIT)


def _is_wider(eqn: JaxprEqn) -> bool:
    """Whether the result takes more bits in memory than what it is converted from."""
    if eqn.primitive.name != "convert_element_type":
        return False
    return bool(eqn.outvars[0].aval.dtype.itemsize > eqn.invars[0].aval.dtype.itemsize)


def _named(v: Var, producers: dict[Var, JaxprEqn]) -> Var:
    """The value in whose memory a value lies: another name needs that to be there."""
    return [v, *_names(v, producers)][-1]


def _names(v: Var, producers: dict[Var, JaxprEqn]) -> Iterator[Var]:
    """What else is stored in the memory of a value, if it is another name."""
    while v in producers and is_bitcast(producers[v]):
        (v,) = (x for x in producers[v].invars if isinstance(x, Var))
        yield v


def _amortised(eqn: JaxprEqn) -> Callable[[Var], float]:
    """How much of the cost of an operand falls on one element of the result."""
    size = max(size_of(eqn.outvars[0].aval.shape), 1) if eqn.outvars else 1
    return lambda x: min(1.0, size_of(x.aval.shape) / size)


class _Clusters:
    """Puts each root into a region, in the order of the equations."""

    def __init__(
        self,
        jaxpr: Jaxpr,
        inline: dict[Var, JaxprEqn],
        roots: set[Var],
        behind: set[Var],
        loops: Loops,
        gpu: GpuTarget | None,
        computed: Mapping[JaxprEqn, ComputedOperand],
    ):
        self.behind, self.computed = behind, computed
        self.joins = gpu is not None and gpu.joins_kernels
        self.jaxpr, self.inline, self.roots, self.loops = jaxpr, inline, roots, loops
        self.on_gpu, self.fuses = gpu is not None, is_on("fuse_regions")
        self.steps: list[Region | Single] = []
        self.step_of: dict[Var, int] = {}
        self.root_of: dict[Var, Root] = {}
        self.readers: dict[Var, dict[int, None]] = {}  # numbers of regions, oldest first
        self.waits: list[int] = []  # by step, a bit for each that it waits for, directly or not
        self.followers: list[list[int]] = []  # by step, those that read what it makes
        self.last_effect: int | None = None

    def run(self) -> list[Region | Single]:
        for eqn in self.jaxpr.eqns:
            if is_bitcast(eqn) and eqn.outvars[0] in self.roots:
                self._single(eqn)  # another name for the same memory
            elif eqn in self.loops:
                self._place(self._loop_root(self.loops[eqn]))
            elif is_inlinable(eqn):
                if any(v in self.roots for v in eqn.outvars):
                    self._place(self._element_root(eqn))
            elif isinstance(eqn.primitive.lowering, Reduce):
                self._place(self._reduction_root(eqn))
            else:
                self._single(eqn)
        return self._ordered()

    # Roots

    def _element_root(self, eqn: JaxprEqn) -> Root:
        root = Root(eqn, _long_axes(eqn.outvars[0].aval.shape), None)
        recorder = self._recorder(root, own=eqn.outvars)
        self._trace(root, recorder, list(eqn.outvars))
        return root

    def _loop_root(self, loop: ElementLoop) -> Root:
        root = Root(loop.eqn, _long_axes(loop.shape), None, loop=loop)
        recorder = self._recorder(root, own=loop.eqn.outvars)
        recorder.results(loop.eqn, placed(map(Index.of, root.dims), loop.shape))
        root.reads = list(dict.fromkeys(recorder.reads))
        root.cost = loop.size
        return root

    def _reduction_root(self, eqn: JaxprEqn) -> Root:
        shape = tuple(eqn.invars[0].aval.shape)
        long = [i for i, n in enumerate(shape) if n != 1]
        axes = tuple(k for k, i in enumerate(long) if i in eqn.params["axes"])
        root = Root(eqn, _long_axes(shape), axes)
        operands = [x for x in eqn.invars if same_shape(x.aval.shape, shape)]
        self._trace(root, self._recorder(root, own=()), operands)
        return root

    def _recorder(self, root: Root, own: Collection[Var]) -> Recorder:
        """What follows a root's reads, with indices over loop variables of its own."""
        root.dims = tuple(LoopVar(f"i{k}", n) for k, n in enumerate(root.domain))
        return Recorder(self.inline, self.roots, root.dims, own=own)

    @staticmethod
    def _trace(root: Root, recorder: Recorder, atoms: Sequence[Any]) -> None:
        """Record what a root reads to compute elements of `atoms`."""
        for atom in atoms:
            if not isinstance(atom, Literal):
                recorder.value(atom, placed(map(Index.of, root.dims), atom.aval.shape))
        root.reads = list(dict.fromkeys(recorder.reads))
        root.cost = sum(op.cost for op in recorder.k.block.ops)

    # Placing

    def _inputs(self, root: Root) -> set[int]:
        return {self.step_of[v] for v, _ in root.reads if v in self.step_of}

    def _place(self, root: Root) -> None:
        inputs = self._inputs(root)
        apart = not self.behind.isdisjoint(root.vars)
        for number in self._candidates(root, inputs) if self.fuses and not apart else ():
            region = self.steps[number]
            assert isinstance(region, Region)
            if self._joins(root, region, inputs):
                self._add(root, region, inputs)
                return
        region = Region(root.domain, root.axes, [], len(self.steps))
        self._append(region)
        self._add(root, region, inputs)

    def _append(self, step: Region | Single) -> None:
        self.steps.append(step)
        self.waits.append(0)
        self.followers.append([])

    def _candidates(self, root: Root, inputs: set[int]) -> list[int]:
        """Regions worth joining, newest first: those it reads, then those that read the same."""
        # Sizes are asked for last: of symbolic ones each question limits what is made.
        numbers = set(inputs)
        for v in dict.fromkeys(v for v, _ in root.reads):
            others = {*islice(reversed(self.readers.get(v, {})), NEWEST)} - numbers
            if others and size_of(v.aval.shape) >= min(max(size_of(root.domain), 2), 65):
                numbers |= others
        near = set[int]()
        if any(isinstance(n, Dim) for n in root.domain) or size_of(root.domain) <= SMALL_DOMAIN:
            near.update(range(max(0, len(self.steps) - NEWEST), len(self.steps)))
            near -= numbers
        alike = {n for n in near if same_shape(self._domain(n) or (), root.domain)}
        if alike and size_of(root.domain) <= SMALL_DOMAIN:
            numbers |= {n for n in alike if self._is_few(root, n)}
        found = sorted((n for n in numbers if self._domain(n) is not None), reverse=True)
        # Those with reductions first: what follows from one along the rows may go on there.
        return sorted(found, key=lambda n: (n not in inputs, not self._reduces(n)))

    def _is_few(self, root: Root, number: int) -> bool:
        """Whether a root with nothing in common with a region belongs into its kernel.

        On a GPU maps share a launch anyway (`horizontal.py`), and rather the code of their equals.
        """
        alike = self.on_gpu and not root.is_reduction and not self._reduces(number)
        return not alike or size_of(root.domain) == 1

    def _domain(self, number: int) -> tuple[int, ...] | None:
        region = self.steps[number]
        return region.domain if isinstance(region, Region) else None

    def _reduces(self, number: int) -> bool:
        region = self.steps[number]
        return isinstance(region, Region) and region.axes is not None

    def _joins(self, root: Root, region: Region, inputs: set[int]) -> bool:
        if (
            len(region.roots) >= REGION_ROOTS
            or root.cost + sum(r.cost for r in region.roots) > REGION_COST
        ):
            return False
        if any(self.waits[i] >> region.number & 1 for i in inputs if i != region.number):
            return False  # it also reads something that waits for the region
        if _would_wait(root, region) or (root.is_reduction and self._is_behind(region)):
            return False
        row = self._shape_fits(root, region)
        return row is not None and self._reads_fit(root, region, row)

    def _is_behind(self, region: Region) -> bool:
        """Whether a region is computed as a product is."""
        return any(v in self.behind for root in region.roots for v in root.vars)

    def _shape_fits(self, root: Root, region: Region) -> bool | None:
        """Whether the root is computed per row; None if it does not belong."""
        same = same_shape(root.domain, region.domain)
        if root.is_reduction:
            if same and region.axes in (None, root.axes) and root.domain:
                return False
            return None
        if same:
            return False
        if region.axes is not None and same_shape(root.domain, region.row_shape):
            return True
        return None

    def _canonical(
        self, root: Root, other: Root, var: Var, region: Region, row: bool
    ) -> tuple[Index, ...]:
        """The index at which `root` must read `var` of `other` for both to run in one loop nest."""
        axes = region.axes if region.axes is not None else root.axes
        kept = [i for i in range(len(region.domain)) if i not in (axes or ())]
        dims = dict(zip(kept, root.dims, strict=True)) if row else dict(enumerate(root.dims))
        per_row = other.row or other.is_reduction
        wanted = kept if per_row else range(len(region.domain))
        symbols = [Index.of(dims[i]) if i in dims else Index(-1) for i in wanted]
        return placed(symbols, var.aval.shape)

    def _reads_fit(self, root: Root, region: Region, row: bool) -> bool:
        level, waits = 0, False
        for v, index in root.reads:
            if self.step_of.get(v) != region.number:
                continue
            other = self.root_of[v]
            if v in other.stacked or (row and not (other.row or other.is_reduction)):
                return False
            if index != self._canonical(root, other, v, region, row):
                return False
            waits = waits or other.is_reduction or other.row or other.level > 0
            per_row = other.row or other.is_reduction
            level = max(level, other.level + (1 if per_row and not row else 0))
        if row and not waits:
            return False  # a small value of its own; let it run apart
        if waits and not row and not self._rows_suffice(region, root):
            return False
        root.level, root.row = level, row
        return True

    def _rows_suffice(self, region: Region, root: Root) -> bool:
        """Whether one thread may read a whole row several times, for one value more."""
        total, rows = size_of(region.domain), size_of(region.row_shape)
        values = 1 + sum(not (r.row or r.is_reduction) for r in region.roots)
        if self.joins and rows < FEW_ROWS and total * values > rows * ONE_PROGRAM:
            known = {v for r in region.roots for v in (*r.vars, *(v for v, _ in r.reads))}
            if values > 1 or any(v not in known and v.aval.size > rows for v, _ in root.reads):
                return False
        if total < LARGE:
            return True
        if region.row_axes and region.row_axes[-1] == len(region.domain) - 1:
            if total // max(rows, 1) > TALL:
                return False  # a bundle of columns would not stay in the cache between passes
            rows = rows // 64  # columns run side by side in vector lanes
        return rows >= FEW_ROWS

    def _add(self, root: Root, region: Region, inputs: set[int]) -> None:
        region.roots.append(root)
        for v, _ in root.reads:
            self.readers.setdefault(v, {})[region.number] = None
        if root.is_reduction:
            region.axes = root.axes
        for v in root.vars:
            self.step_of[v] = region.number
            self.root_of[v] = root
        self._depend(region.number, inputs)

    def _depend(self, number: int, inputs: set[int]) -> None:
        new = 0
        for i in inputs - {number}:
            new |= self.waits[i] | 1 << i
            self.followers[i].append(number)
        changed = [number]  # what waits for a step waits for all that it waits for
        while changed:
            step = changed.pop()
            if (waits := self.waits[step] | new) != self.waits[step]:
                self.waits[step] = waits
                changed += self.followers[step]

    def _single(self, eqn: JaxprEqn) -> None:
        number = len(self.steps)
        single = Single(eqn, number, computed=self.computed.get(eqn))
        self._append(single)
        inputs = {self.step_of[v] for v in single.reads if isinstance(v, Var) and v in self.step_of}
        if eqn.effects:  # effects keep their order
            inputs |= set() if self.last_effect is None else {self.last_effect}
            self.last_effect = number
        for v in eqn.outvars:
            self.step_of[v] = number
        self._depend(number, inputs)

    def _ordered(self) -> list[Region | Single]:
        """Steps in an order in which each finds its inputs ready; the original one where free."""
        out: list[Region | Single] = []
        begun = 0
        for n in range(len(self.steps)):
            stack = [] if begun >> n & 1 else [n]
            while stack:
                begun |= 1 << stack[-1]
                missing = self.waits[stack[-1]] & ~begun
                if missing:
                    stack.append((missing & -missing).bit_length() - 1)
                else:
                    out.append(self.steps[stack.pop()])
        return out


def _would_wait(root: Root, region: Region) -> bool:
    """Whether a loop and a reduction would share a kernel, where one waits for the other's rows."""
    roots = [root, *region.roots]
    return any(r.loop for r in roots) and any(r.is_reduction for r in roots)


def _stored(jaxpr: Jaxpr, steps: list[Region | Single]) -> set[Var]:
    """Values that must be in memory: results, and what another step reads."""
    stored = {v for v in jaxpr.outvars if not isinstance(v, Literal)}
    for step in steps:
        stored.update(v for v in step_reads(step) if not isinstance(v, Literal))
    for step in steps:
        if isinstance(step, Single) and step.epilogue is None:
            stored.update(step.eqn.outvars)
    return stored


def _regions(step: Region | Single) -> list[Region]:
    if isinstance(step, Region):
        return step.parts
    return [region for region in (step.epilogue, step.sums) if region is not None]


def step_reads(step: Region | Single) -> list[Any]:
    """Variables a step reads from memory, its own values excluded."""
    regions = _regions(step)
    own = {v for region in regions for r in region.roots for v in r.vars}
    reads: list[Any] = [
        v for region in regions for r in region.roots for v, _ in r.reads if v not in own
    ]
    if isinstance(step, Single):
        made = set(step.eqn.outvars)
        reads = [*step.reads, *(v for v in reads if v not in made)]
    return reads


def step_writes(step: Region | Single) -> list[Var]:
    """Variables a step makes."""
    made = [v for region in _regions(step) for r in region.roots for v in r.vars]
    return made if isinstance(step, Region) else [*step.eqn.outvars, *made]


def _attach_epilogues(steps: Sequence[Region | Single]) -> list[Region | Single]:
    """Let products and convolutions compute the elementwise work that follows on their tiles."""
    order = _Order(steps)
    for single in steps:
        if not isinstance(single, Single) or not _takes_epilogue(single.eqn):
            continue
        (result,) = single.eqn.outvars
        first = next((s for s in order.readers.get(result, ()) if s is not single), None)
        if isinstance(first, Region) and _fits_behind(first, result):
            order.merge(single, first)
    return sorted(order.places, key=order.places.__getitem__)


class _Order:
    """Steps in order, of which one of two may move to where both can be, and takes the other.

    Attributes:
      places: of the steps, which compare as they follow each other.
      readers: of values, in order.
      makers: of values.
    """

    def __init__(self, steps: Sequence[Region | Single]) -> None:
        self.places: dict[Region | Single, tuple[int, ...]] = {s: (i,) for i, s in enumerate(steps)}
        self.readers: dict[Var, list[Region | Single]] = {}
        self.makers = {v: s for s in steps for v in step_writes(s)}
        self._moved = 0
        for step in steps:
            for v in _variables(step):
                self.readers.setdefault(v, []).append(step)

    def merge(self, single: Single, behind: Region) -> None:
        """Run a region behind a product as soon as what it reads beside it is there.

        What else reads what it may update in place has done so. Earlier is better, for the operands
        of the product are in memory until then.
        """
        other = _variables(behind)
        large = [v for v in other if same_shape(_long_axes(v.aval.shape), behind.domain)]
        end = self.places[behind]
        before = [self.places[self.makers[v]] for v in other if v in self.makers]
        before += [p for v in large if (p := self._last_reader(v, end)) is not None]
        latest = max((p for p in before if p < end), default=())
        self._remove(single)
        self._remove(behind)
        single.epilogue = behind
        if latest > self.places[single]:  # right behind it, before what was put there earlier
            self._moved += 1
            self.places[single] = (*latest, -self._moved)
        for v in _variables(single):
            insort(self.readers.setdefault(v, []), single, key=self.places.__getitem__)
        self.makers.update((v, single) for v in step_writes(single))
        del self.places[behind]

    def _place_among(self, readers: list[Region | Single], place: tuple[int, ...]) -> int:
        return bisect_left(readers, place, key=self.places.__getitem__)

    def _last_reader(self, v: Var, end: tuple[int, ...]) -> tuple[int, ...] | None:
        """The place of the last step before an end that reads a value."""
        readers = self.readers[v]
        at = self._place_among(readers, end)
        return self.places[readers[at - 1]] if at else None

    def _remove(self, step: Region | Single) -> None:
        for v in _variables(step):
            readers = self.readers[v]
            del readers[self._place_among(readers, self.places[step])]


def _variables(step: Region | Single) -> dict[Var, None]:
    return dict.fromkeys(v for v in step_reads(step) if not isinstance(v, Literal))


def _takes_epilogue(eqn: JaxprEqn) -> bool:
    rule = eqn.primitive.lowering
    return isinstance(rule, Shaped) and rule.epilogue


def _fits_behind(region: Region, result: Var) -> bool:
    """Whether every root is elementwise over the result's domain and reads it in place."""
    if (
        region.axes is not None
        or not same_shape(region.domain, _long_axes(result.aval.shape))
        or result.aval.dtype.kind == "c"
    ):
        return False
    for root in region.roots:
        if root.cost > 200 or root.loop is not None:
            return False
        here = placed(map(Index.of, root.dims), result.aval.shape)
        if any(v is result and index != here for v, index in root.reads):
            return False
    return True


def describe(fusion: Fusion) -> str:
    """The kernels of a program as text, one a line, with what each computes."""
    names: dict[Any, str] = {}

    def name(v: Any) -> str:
        if isinstance(v, Literal):
            return str(v.val)
        return names.setdefault(v, f"v{len(names)}") + f":{v.aval.str_short()}"

    lines = []
    for step in fusion.steps:
        made = [v for v in step_writes(step) if v in fusion.stored]
        reads = dict.fromkeys(name(v) for v in step_reads(step))
        lines.append(f"{', '.join(map(name, made))} = {_contents(step)} ({', '.join(reads)})")
    return "\n".join(lines)


def _contents(step: Region | Single) -> str:
    """What a step computes, in the names of primitives."""
    if isinstance(step, Single):
        behind = "".join(f" then {_contents(region)}" for region in _regions(step))
        made = step.computed and step.computed.producers[step.computed.var].primitive.name
        return step.eqn.primitive.name + (f" of {made}" if made else "") + behind
    inner = " ".join(r.eqn.primitive.name for r in step.roots)
    domain = "×".join(map(str, step.domain)) or "one"
    axes = "" if step.axes is None else f" axes {','.join(map(str, step.axes))} of"
    sums = "" if step.sums is None else f" and {_contents(step.sums)}"
    return f"{inner} over{axes} {domain}{sums}"
