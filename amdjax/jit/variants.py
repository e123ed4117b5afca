"""The compiled forms of a program of symbolic shapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil
from typing import TYPE_CHECKING, Any

from amdjax.core.backend import get_backend
from amdjax.core.config import config
from amdjax.core.dims import (
    Choice,
    Dim,
    DimSize,
    Guard,
    SizedScope,
    SymbolicScope,
    at_sizes,
    compiled,
    divisor,
    in_units,
    max_dim,
    scope_of,
)
from amdjax.core.dims.polynomial import Polynomial, common_factor, of, text
from amdjax.core.dims.sized import counted
from amdjax.core.errors import InconclusiveDimensionOperation
from amdjax.core.instantiate import check_values, instantiate
from amdjax.core.integers import ceil_div
from amdjax.core.jaxpr import ClosedJaxpr, LateJaxpr
from amdjax.jit.arrays import Runner, SizedRunner

if TYPE_CHECKING:
    from amdjax.targets import GpuTarget

_KEPT = 256  # instances of a program that are ready to run


def keep_recent(table: dict[Any, Any], key: Any, value: Any) -> None:
    """Put an entry at the end of a table, of which the oldest go where there are many."""
    while len(table) >= _KEPT:
        for oldest in tuple(table)[:1]:  # other threads may take some, too
            table.pop(oldest, None)
    table[key] = value


@dataclass(frozen=True, eq=False)
class Guards:
    """Sizes for which one plan was made.

    Attributes:
      required: what has to hold of other sizes of which the plan is right.
      preferred: what holds of those for which the same would be chosen.
      larger: how many choices one counts that was made because sizes are no less than some number,
        where others are.
    """

    required: Sequence[Guard]
    preferred: Sequence[Guard | Choice]
    larger: int = 1

    @cached_property
    def _compared(self) -> tuple[list[Guard], Callable[[Mapping[str, int]], tuple[int, ...]]]:
        """The preferences that compare, and what evaluates all that is compared."""
        preferred = [guard for guard in self.preferred if isinstance(guard, Guard)]
        return preferred, compiled([g.polynomial for g in (*self.required, *preferred)])

    @cached_property
    def _weights(self) -> list[int]:
        """How many choices each preference that compares counts."""
        return [self.larger if _is_at_least(guard) else 1 for guard in self._compared[0]]

    def regrets(self, sizes: Mapping[str, int]) -> int | None:
        """How many choices would be others; None where the plan is not right."""
        preferred, evaluated = self._compared
        values = iter(evaluated(sizes))
        if any(not guard.agrees(next(values)) for guard in self.required):
            return None
        others = sum(
            0 if guard.agrees(value) else weight
            for guard, value, weight in zip(preferred, values, self._weights)
        )
        choices = (choice for choice in self.preferred if isinstance(choice, Choice))
        return others + sum(ceil(min(choice.excess(sizes), 1) / EXCESS) for choice in choices)

    def __str__(self) -> str:
        preferred = [f"preferably {told}" for told in _told(self.preferred)]
        return ", ".join([*_told(self.required), *preferred])


def _told(guards: Sequence[Guard | Choice]) -> list[str]:
    """What guards say; those that bound the same number as one range."""
    ranges: dict[Polynomial, tuple[list[int], list[int]]] = {}
    others: list[str] = []
    for guard in guards:
        if isinstance(guard, Choice) or guard.kind == "eq":
            others.append(str(guard))
            continue
        number, at_least, limit = _bounded(guard)
        ranges.setdefault(number, ([], []))[not at_least].append(limit)
    for number, (least, most) in ranges.items():
        start = f"{max(least)} <= " if least and most else ""
        end = f" <= {min(most)}" if most else f" >= {max(least)}"
        others.append(f"{start}{text(number)}{end}")
    return list(dict.fromkeys(others))


def _is_at_least(guard: Guard) -> bool:
    """Whether a guard bounds a number from below."""
    return guard.kind == "ge" and _bounded(guard)[1]


def _bounded(guard: Guard) -> tuple[Polynomial, bool, int]:
    """What a guard bounds, without a constant or common factors; whether from below; by what."""
    rest = tuple(term for term in guard.polynomial if term[0])
    constant = sum(c for monomial, c in guard.polynomial if not monomial)
    factor = common_factor(rest) * (1 if rest[0][1] > 0 else -1)
    number = tuple((monomial, c // factor) for monomial, c in rest)
    # The guard says `factor * number >= -constant`, or `factor * number < -constant`.
    at_least = guard.answer is (factor > 0)
    first = ceil_div(-constant, factor) if factor > 0 else constant // -factor
    if guard.answer:
        return number, at_least, first
    return number, at_least, first - 1 if factor > 0 else first + 1


@dataclass
class Variant:
    """A compiled form, good for a range of sizes.

    Attributes:
      units: in what the dimension variables are counted that stay symbolic.
      fixed: those that do not, with their sizes.
      program: makes the program of given counts.
      guards: of each sizes for which it was planned, as those in between may be planned otherwise.
      made: how many instances were made.
      uses: how often one was asked for.
    """

    units: Mapping[str, int]
    fixed: Mapping[str, int]
    program: SizedRunner
    guards: list[Guards]
    made: int = 0
    uses: int = 0

    def serves(self, sizes: Mapping[str, int]) -> bool:
        """Whether the variables that are fixed are those of sizes, and have these sizes."""
        return all(sizes[name] == size for name, size in self.fixed.items()) and all(
            sizes[name] > FIXED_UP_TO and sizes[name] % unit == 0
            for name, unit in self.units.items()
        )

    def regrets(self, sizes: Mapping[str, int]) -> int | None:
        """How much would be chosen otherwise for sizes; None where it is not right for them."""
        if not self.serves(sizes):
            return None
        counts = in_units(sizes, self.units)
        found = (guards.regrets(counts) for guards in self.guards)
        return min((n for n in found if n is not None), default=None)

    def workspace(self, scope: SymbolicScope) -> DimSize:
        """Bytes of what is needed at most at once, in the variables of the program."""
        counts = {counted(n, unit): Dim(scope, of(n)) // unit for n, unit in self.units.items()}
        sums = [sum((at_sizes(n, counts) for n in peak), 0) for peak in self.program.peaks()]
        return max_dim(*dict.fromkeys(sums)) if sums else 0

    def __str__(self) -> str:
        fixed = [f"{name} == {size}" for name, size in self.fixed.items()]
        units = self.units.items()
        rest = [f"{n} > {FIXED_UP_TO}" if u == 1 else f"{n} == {u}*{n}_{u}" for n, u in units]
        known = ", ".join([*fixed, *rest])
        return "\n   or ".join(", ".join(filter(None, (known, str(g)))) for g in self.guards)


def _compile_for(program: ClosedJaxpr, target: GpuTarget, donated: Sequence[bool]) -> SizedRunner:
    """A program that is compiled for a GPU that need not be there; it cannot be run."""
    # late: loads the generator for GPUs
    from amdjax.jit.gpu.kernels import compile_sized_device, sized_runner

    def make(sizes: Mapping[str, int]) -> Runner:
        raise RuntimeError(f"the program was compiled for {target.name}, which is not here")

    return sized_runner(*compile_sized_device(program, target, donated), make)


def _aligning(closed: ClosedJaxpr) -> frozenset[str]:
    """The variables on which it depends whether rows of arrays are aligned."""
    outs = [v.aval for eqn in closed.jaxpr.eqns for v in eqn.outvars]
    found: set[str] = set()
    for aval in (*closed.in_avals, *outs):
        row = 1
        for n in reversed(getattr(aval, "shape", ())[1:]):
            if isinstance(n, Dim) and row % ALIGNED:
                found |= n.variables()
            row *= divisor(n)
    return frozenset(found)


#: Sizes up to this one are compiled as they are: much is simpler where an axis has one element.
FIXED_UP_TO = 1


#: On CPUs as many variants are compiled for sizes of which all of them are right, and as many in
#: all for sizes of which any is right.
MOST_CHOSEN, MOST_COMPILED = 6, 8


#: On GPUs a variant is near where this share of its choices would be others; one further away is
#: taken the more there are, and at most so many are compiled of which all are right.
NEAR, FURTHER, MOST_FITTING = 0.05, 0.02, 4

#: A choice made for larger sizes counts as so many, on CPUs and on GPUs: of large tiles much juts
#: out of small sizes, or leaves a GPU idle, and small ones take little longer for large sizes.
LARGER, LARGER_ON_GPU = 2, 3


#: A plan that costs more than about the least counts as one choice for each such share of the least
#: that it costs more, begun or whole, and at most as ten.
EXCESS = 0.1


#: As often it is planned for such sizes; most plans turn out to be those of other sizes.
MOST_PLANNED = 24

#: In what GPUs count sizes that decide whether rows are aligned: rows of multiples of 4 and 16 move
#: in wide accesses, and blocks of 64 need no masks.
GPU_UNITS = (1, 4, 16, 64)
ALIGNED = 16


class Variants:
    """The compiled forms of a program of symbolic shapes.

    Args:
      closed: the program.
      donated: which of its arguments it may overwrite, `refs` left out.
      refs: its leading arguments, which are references known now.
      place: where it runs; None for the host.
      target: a GPU that need not be there, in place of `place`: programs are compiled for it, by
        `prepare`, and cannot be run.
    """

    def __init__(
        self, closed: ClosedJaxpr, donated: Sequence[bool], refs: Sequence[Any], place: Any,
        target: GpuTarget | None = None,
    ):  # fmt: skip
        self.closed, self.donated, self.refs, self.place = closed, donated, refs, place
        self.target = target
        self.on_gpu = target is not None or (place is not None and place.device.platform != "cpu")
        self.aligning = _aligning(closed) if self.on_gpu else frozenset()
        self.known: list[Variant] = self._carried()
        self.reason: str | None = None  # why programs are compiled for single sizes
        # The last used at the end, with the variants that made them.
        self._instances: dict[tuple[tuple[str, int], ...], tuple[Runner, Variant | None]] = {}

    def _carried(self) -> list[Variant]:
        """Those that come with the program in a file."""
        # Other programs are refused, or told apart, where they are compiled.
        watched = config.debug_nans or config.debug_infs or config.debug_key_reuse
        late = isinstance(self.closed, LateJaxpr) and self.target is None
        if not late or self.refs or watched or config.mesh is not None:
            return []
        # late: loads the compiler
        from amdjax.jit.placement import read_sized_placed

        return [
            Variant(v.units, v.fixed, program, [self._guards(*g) for g in v.guards])
            for v, program in read_sized_placed(self.closed, self.donated, self.place)
        ]

    def _guards(self, required: Sequence[Guard], preferred: Sequence[Guard | Choice]) -> Guards:
        return Guards(required, preferred, LARGER_ON_GPU if self.on_gpu else LARGER)

    def written(self) -> tuple[bytes, bytes] | None:
        """Its variants as data, of what was compiled while it was recorded, and their key first."""
        # late: loads the compiler
        from amdjax.jit.placement import sized_key
        from amdjax.jit.stored_variants import written_variants

        key = sized_key(self.closed, self.donated, self.target)
        data = written_variants(
            [(v.units, v.fixed, v.guards, v.program.written) for v in self.known]
        )
        return None if key is None or data is None else (key, data)

    def runner(self, sizes: Mapping[str, int]) -> Runner:
        """The program for given sizes of its dimension variables, as a function of arrays.

        Args:
          sizes: the size of each variable.

        Returns:
          A function of the other arguments than `refs`.

        Raises:
          KeyError: a variable has no size.
          OverflowError: a size that the program computes with is too large for its dtype.
        """
        run, variant = self.instance(sizes)
        if variant is not None:
            variant.uses += 1
        return run

    def instance(self, sizes: Mapping[str, int]) -> tuple[Runner, Variant | None]:
        """As `runner`, with the variant that made it, whose uses the caller counts."""
        key = tuple(sorted(sizes.items()))
        made = self._instances.pop(key, None) or self._made(sizes)
        keep_recent(self._instances, key, made)
        return made

    def prepare(self, sizes: Mapping[str, int]) -> None:
        """Compile the program for given sizes; raises as `runner` does."""
        check_values(self.closed, sizes)
        if self._variant_or_none(sizes) is None:
            program = instantiate(self.closed, sizes)
            if self.target is None:
                get_backend().compile(program, self.donated, self.refs, self.place)
            else:
                # late: loads the generator for GPUs
                from amdjax.jit.gpu.kernels import compile_device

                compile_device(program, self.target, self.donated)

    def most_used(self) -> Variant | None:
        """Of variants that fix no size the one that most calls asked for; None without any."""
        free = [variant for variant in self.known if not variant.fixed]
        return max(free, key=lambda variant: variant.uses, default=None)

    def _made(self, sizes: Mapping[str, int]) -> tuple[Runner, Variant | None]:
        """The program for sizes: by a variant, or for them alone where none can be made."""
        check_values(self.closed, sizes)
        variant = self._variant_or_none(sizes)
        if variant is not None:
            run = variant.program.make(in_units(sizes, variant.units))
            variant.made += 1
            return run, variant
        program = instantiate(self.closed, sizes)
        return get_backend().compile(program, self.donated, self.refs, self.place), None

    def _variant_or_none(self, sizes: Mapping[str, int]) -> Variant | None:
        """The variant for sizes; None where the program cannot be symbolic.

        Only what asks a number of a symbolic size says that. Other errors are the program's own, or
        mistakes of the compiler, which another way to compile would hide.
        """
        if self.reason is None:
            try:
                return self._variant(sizes)
            except InconclusiveDimensionOperation as e:
                self.reason = f"{type(e).__name__}: {e}"
                # late: programs that log have it loaded
                import logging

                logger = logging.getLogger("amdjax.jit")
                logger.debug("A program is compiled for each of its sizes: %s", self.reason)
        return None

    def _variant(self, sizes: Mapping[str, int]) -> Variant:
        """The variant that would be chosen for sizes, or that is nearest to it; perhaps a new one.

        What is planned for other sizes and turns out to be the same program is one variant: the
        program is right for the sizes of both, since each was planned.
        """
        units = {n: self._unit(n, size) for n, size in sizes.items() if size > FIXED_UP_TO}
        alike = [variant for variant in self.known if variant.units == units]
        fitting = [(n, v) for v in alike if (n := v.regrets(sizes)) is not None]
        nearest = min(fitting, key=lambda pair: pair[0], default=None)
        planned = sum(len(variant.guards) for _, variant in fitting)
        if nearest is not None and (
            self._is_near(*nearest, len(fitting), len(alike)) or planned >= MOST_PLANNED
        ):
            return nearest[1]
        fixed = {name: size for name, size in sizes.items() if size <= FIXED_UP_TO}
        left = {name: size for name, size in sizes.items() if name not in fixed}
        known = scope_of((*self.closed.in_avals, *self.closed.out_avals))
        scope = SizedScope(left, known, units)
        program = instantiate(self.closed, {**fixed, **scope.variables()})
        compiled: SizedRunner
        if self.target is not None:
            compiled = _compile_for(program, self.target, self.donated)
        else:
            compiled = get_backend().compile_sized(program, self.donated, self.refs, self.place)
        guards = self._guards(scope.required, scope.preferred)
        scope.close()
        for variant in alike:
            if variant.serves(sizes) and variant.program.identity == compiled.identity:
                variant.guards.append(guards)
                return variant
        variant = Variant(units, fixed, compiled, [guards])
        self.known.append(variant)
        return variant

    def _is_near(self, regrets: int, variant: Variant, fitting: int, known: int) -> bool:
        """Whether a variant is taken where so many choices would be others, and so many fit of
        those that are known.

        The more there are, the further away it may be.
        """
        if not self.on_gpu:
            return not regrets or fitting >= MOST_CHOSEN or known >= MOST_COMPILED
        choices = max(len(guards.preferred) for guards in variant.guards)
        return regrets <= (NEAR + FURTHER * fitting) * choices or fitting >= MOST_FITTING

    def _unit(self, name: str, size: int) -> int:
        """In what a variable is counted that has a size."""
        fitting = (unit for unit in GPU_UNITS if size % unit == 0)
        return max(fitting) if name in self.aligning else 1

    def __str__(self) -> str:
        """For each variant how often it was used, what it is for, and what it launches."""
        parts = [] if self.reason is None else [f"compiled for each size: {self.reason}"]
        launches = _launches([variant.program for variant in self.known])
        common = set.intersection(*map(set, launches)) if len(launches) > 1 else set()
        if common:
            parts.append(f"all launch {', '.join(x for x in launches[0] if x in common)}")
        for i, (variant, own) in enumerate(zip(self.known, launches)):
            calls, sizes = _counted(variant.uses, "call"), _counted(variant.made, "size")
            apart = ", ".join(x for x in own if x not in common)
            parts.append(f"variant {i}: {calls} of {sizes}\n   {variant}")
            parts += [f"   launches {apart}"] if apart else []
        return "\n".join(parts)


def _counted(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def _launches(programs: Sequence[SizedRunner]) -> list[list[str]]:
    """What each program launches; kernels that differ in code have numbers that differ."""
    numbers: dict[str, list[Any]] = {}

    def told(name: str, code: Any, count: Any) -> str:
        known = numbers.setdefault(name, [])  # of what compares and has no hash
        if code not in known:
            known.append(code)
        return f"{name}#{known.index(code)} × {count}"

    return [list(dict.fromkeys(told(*x) for x in p.launches)) for p in programs]
