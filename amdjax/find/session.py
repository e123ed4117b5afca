"""One problem on one machine: its programs, whether they are right, and how long they take."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from amdjax.core import dtypes
from amdjax.core.array import asarray_concrete
from amdjax.core.backend import get_backend
from amdjax.core.config import enable_x64
from amdjax.core.jaxpr import ClosedJaxpr
from amdjax.find.arguments import as_float64, in_float64, random_arguments, whole_arguments
from amdjax.find.database import Result
from amdjax.find.known import applying
from amdjax.find.model import (
    SAMPLABLE,
    counted,
    emulated_program,
    estimated_seconds,
    is_here,
    written,
)
from amdjax.find.problem import Problem, decided, problem_of, steps
from amdjax.find.program import Program
from amdjax.find.stopwatch import Stopwatch
from amdjax.jit.cpu.program import compile_for_cpu
from amdjax.schedule.search import FAMILIES, Decision, Decisions, UnknownDecision
from amdjax.schedule.writer import Machine
from amdjax.targets import GpuTarget

if TYPE_CHECKING:
    from amdjax.emulator.debug.counters import Counters
    from amdjax.emulator.debug.timing import Traced

UNIT_SAMPLES = 9
SETTLED = 2  # samples besides the least that have to be about as short ...
MOST_SAMPLES = 40  # ... unless there are so many
SLOW = 3.0  # times as long as the usual plan: not worth more than one look
#: Kinds of which every right plan gives equal results for small whole numbers.
EXACT = ("product", "convolution", "sort", "selection", "scan", "scatter")
SUMS = ("product", "convolution")
WORSE = 8.0  # times the usual plan's error that another plan's may be
ULPS = 4.0  # of the largest result that it may be off besides


def compiled(closed: ClosedJaxpr, machine: Machine, emulated: bool = False) -> Program:
    """A program for a machine of this computer, or for an emulated one."""
    if isinstance(machine, GpuTarget) and emulated:
        return emulated_program(closed, machine)
    if isinstance(machine, GpuTarget):
        # late: loads with the first GPU
        from amdjax.jit.gpu.executable import GpuExecutable, device_of

        executable = GpuExecutable(closed, machine, (), lambda stage, x: None)
        return Program(executable, executable.plan.arena_bytes, device_of(machine))
    program = compile_for_cpu(closed)
    return Program(program, program.plan.arena_bytes)


def require_machine(machine: Machine, model: bool) -> None:
    """Raise ValueError unless plans can be timed on a machine, or by a model of it."""
    if not isinstance(machine, GpuTarget):
        if model:
            raise ValueError("there is no model of CPUs, which are measured")
    elif model and not machine.is_amdgpu:
        raise ValueError(f"there is no model of {machine.name}")
    elif not model and not is_here(machine):
        raise ValueError(f"{machine.name} is not here; a model can rank its plans (model=True)")


class Session:
    """Tries ways to solve one problem.

    Args:
      problem: what is to be computed.
      machine: what computes it.
      model: whether times are those of a model, of a GPU that is emulated.

    Raises:
      ValueError: the problem, as a program, is not one step; or the machine is not there.
    """

    def __init__(self, problem: Problem, machine: Machine, model: bool = False):
        self.problem, self.machine, self.model = problem, machine, model
        require_machine(machine, model)
        if not problem.is_whole:
            raise ValueError(f"a parameter of this problem is a function: {problem}")
        found = [step for step in steps(problem.closed, machine) if problem_of(step) == problem]
        if len(found) != 1:
            raise ValueError(f"this problem is no step of a program for {machine}: {problem}")
        (self._step,) = found

    # Decisions

    def plan(self, wanted: Sequence[Decision | None] = (), *, listing: bool = False) -> Decisions:
        """What is decided, planning by `wanted`, and with `listing` what could have been."""
        return decided(self._step, self.machine, wanted, listing=listing)

    def has(self, decisions: Sequence[Decision]) -> bool:
        """Whether all that was decided can be: solvers and their plans change with their code."""
        try:
            self.plan(decisions)
        except UnknownDecision:
            return False
        return True

    @cached_property
    def usual(self) -> tuple[Decision, ...]:
        """What is decided without measuring."""
        return tuple(self.plan().taken)

    def compile(self, decisions: Sequence[Decision]) -> Program:
        """The program by these decisions."""
        with applying({self.problem: decisions}):
            return compiled(self.problem.closed, self.machine, self.model)

    # Measuring

    @cached_property
    def _arguments(self) -> list[np.ndarray]:
        return random_arguments(self.problem)

    @cached_property
    def _arrays(self) -> list[Any]:
        """Arguments where the programs run."""
        arrays, device = [asarray_concrete(x) for x in self._arguments], self._usual_program.device
        return [x if device is None else get_backend().device_put(x, device) for x in arrays]

    @cached_property
    def _usual_program(self) -> Program:
        return self.compile(self.usual)

    @cached_property
    def _reference(self) -> _Reference:
        return _Reference(self)

    @cached_property
    def _usual_watch(self) -> Stopwatch:
        return Stopwatch(self._usual_program, self._arrays)

    @cached_property
    def usual_seconds(self) -> float:
        """Of an undisturbed run by what is decided without measuring: the unit of other times."""
        if self.model:
            return self._estimated(self.outcome(self._usual_program, self._arguments))
        watch = self._usual_watch
        while len(watch.samples) < UNIT_SAMPLES or not _is_settled(watch.samples):
            watch.sample()
        return min(watch.samples)

    def measure(self, decisions: Sequence[Decision], rounds: int = 5) -> Result:
        """Compile, compare with the reference, and time beside the usual plan."""
        decisions = tuple(decisions)
        try:
            program = self.compile(decisions)
            outcome = self.outcome(program, self._arguments)
            wrong = self._reference.fault(program, outcome, decisions)
            if self.model:
                seconds, spread = self._estimated(outcome), 0.0
            else:
                seconds, spread = (0.0, 0.0) if wrong else self._time(program, rounds)
        except Exception as e:  # whatever goes wrong with a plan, others are left
            return Result(decisions, "failed", note=f"{type(e).__name__}: {e}"[:500])
        if wrong is not None:
            status = "inaccurate" if any(map(_is_approximate, decisions)) else "wrong"
            return Result(decisions, status, workspace=program.workspace, note=wrong)
        return Result(decisions, "right", seconds, spread, program.workspace, self.model)

    def outcome(self, program: Program, arguments: Sequence[np.ndarray]) -> Outcome:
        """What a run gives; of a model, sampled where a launch is long."""
        if not self.model:
            return Outcome(program.results(arguments))
        arrays = [asarray_concrete(x) for x in arguments]
        found, launches, traces = counted(program.run, arrays, self.problem.kind in SAMPLABLE)
        results = [np.asarray(x) for x in found]
        return Outcome(results, [written(x, launches) for x in results], launches, traces)

    def _estimated(self, outcome: Outcome) -> float:
        assert isinstance(self.machine, GpuTarget)
        return estimated_seconds(outcome.traces, self.machine)

    def _time(self, program: Program, rounds: int) -> tuple[float, float]:
        """Of an undisturbed run, and how much longer the median run is.

        Other programs disturb some runs: the least disturbed of several are compared with those of
        the usual plan, taken in turn, whose time is known best.
        """
        watch = Stopwatch(program, self._arrays)
        quick = min(watch.sample(), watch.sample())
        if quick > SLOW * self.usual_seconds:
            return quick, 0.0
        usual: list[float] = []
        found: list[float] = []
        while len(found) < rounds or not (_is_settled(usual) and _is_settled(found)):
            usual.append(self._usual_watch.sample())
            found.append(watch.sample())
        seconds = self.usual_seconds * min(found) / min(usual)
        return seconds, seconds * (statistics.median(found) / min(found) - 1)


def _is_settled(samples: Sequence[float]) -> bool:
    """Whether several of the least are about equal, so that nothing disturbed them."""
    least = sorted(samples)[: SETTLED + 1]
    return len(samples) >= MOST_SAMPLES or least[-1] <= 1.05 * least[0]


@dataclass(frozen=True)
class Outcome:
    """What a run of a program gave.

    Args:
      results: arrays.
      written: for each which elements are as a whole run has them; None if all are.
      launches: what the emulator counted of each.
      traces: what workgroups of each did.
    """

    results: list[np.ndarray]
    written: Sequence[np.ndarray | None] = ()
    launches: Sequence[Counters] = ()
    traces: Sequence[Traced | None] = ()

    @property
    def is_whole(self) -> bool:
        """Whether nothing was left out."""
        return all(mask is None for mask in self.written)


class _Reference:
    """What results have to be: those in float64, as nearly as the usual plan's are."""

    def __init__(self, session: Session):
        self._session, problem = session, session.problem
        usual = session._usual_program
        self._usual = session.outcome(usual, session._arguments)
        self._exact = self._on_the_cpu(in_float64(problem), as_float64(session._arguments))
        if self._exact is None and self._usual.is_whole:
            self._exact = [x.astype(np.float64) for x in self._usual.results]
        elif self._exact is None:
            self._exact = self._on_the_cpu(problem.closed, session._arguments)
        #: Of products, the largest results where nothing cancels: errors of sums grow with them.
        self._sums = [0.0] * len(self._usual.results)
        if problem.kind in SUMS and self._usual.is_whole:
            sizes = [np.abs(x) if x.dtype.kind in "fV" else x for x in session._arguments]
            largest = self._on_the_cpu(in_float64(problem), as_float64(sizes))
            self._sums = [_finite_max(x) for x in largest] if largest else self._sums
        self._whole: list[np.ndarray] | None = None
        if problem.kind in EXACT and self._usual.is_whole and not _has_short_floats(problem):
            self._whole_arguments = whole_arguments(problem)
            self._whole = usual.results(self._whole_arguments)

    @staticmethod
    def _on_the_cpu(
        closed: ClosedJaxpr | None, arguments: Sequence[np.ndarray]
    ) -> list[np.ndarray] | None:
        if closed is None:
            return None
        with enable_x64(True), applying({}):
            program = compile_for_cpu(closed)
            return [np.asarray(x) for x in program([asarray_concrete(x) for x in arguments])]

    def fault(
        self, program: Program, outcome: Outcome, decisions: Sequence[Decision]
    ) -> str | None:
        """How results are wrong; None if they are right."""
        assert self._exact is not None
        usual, approximate = self._usual, any(map(_is_approximate, decisions))
        for i, (x, exact) in enumerate(zip(outcome.results, self._exact, strict=True)):
            if usual.is_whole and outcome.is_whole:
                sums = 0.0 if approximate else self._sums[i]
                text = _difference(x, usual.results[i], exact, sums)
            else:
                text = _difference_in_samples(
                    *_sample(outcome, i, exact), *_sample(usual, i, exact)
                )
            if text is not None:
                return text
        if self._whole is None or not outcome.is_whole or approximate:
            return None
        for x, y in zip(program.results(self._whole_arguments), self._whole, strict=True):
            if not _nearly_equal(x, y):
                return f"results differ for whole numbers, by {_largest(x, y):.3g}"
        return None


def _sample(outcome: Outcome, i: int, exact: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The elements of a result that are known, and what they should be."""
    x, mask = outcome.results[i], outcome.written[i] if outcome.written else None
    return (x.ravel(), exact.ravel()) if mask is None else (x[mask], exact[mask])


def _difference_in_samples(
    x: np.ndarray, exact: np.ndarray, usual: np.ndarray, of_usual: np.ndarray
) -> str | None:
    """As `_difference`, where different elements are known of a plan's results and the usual's."""
    if not dtypes.issubdtype(x.dtype, np.inexact):
        return None if np.array_equal(x, exact) else "results are not equal"
    (found, exact), (usual, of_usual) = (
        tuple(a.astype(_wide(a))[np.isfinite(b.astype(_wide(b)))] for a in (y, b))
        for y, b in ((x, exact), (usual, of_usual))
    )
    if not np.isfinite(found).all():
        return "results are not finite"
    if not found.size or not usual.size:
        return None
    error, known = np.abs(found - exact).max(), np.abs(usual - of_usual).max()
    bound = WORSE * known + ULPS * float(dtypes.finfo(x.dtype).eps) * np.abs(exact).max()
    return None if error <= bound else f"error {error:.3g} exceeds {bound:.3g}"


def _is_approximate(decision: Decision) -> bool:
    solvers = FAMILIES[decision.family].solvers
    return any(solver.name == decision.solver and solver.approximate for solver in solvers)


def _has_short_floats(problem: Problem) -> bool:
    """Whether sums may be rounded to 16 bits or fewer on the way."""
    short = (np.float16, dtypes.bfloat16)
    return problem.kind == "scan" and any(a.dtype in short for a in problem.closed.in_avals)


def _finite_max(x: np.ndarray) -> float:
    """The largest finite value of an array, at least 0."""
    return float(np.abs(x[np.isfinite(x)]).max(initial=0.0))


def _difference(x: np.ndarray, usual: np.ndarray, exact: np.ndarray, sums: float) -> str | None:
    if not dtypes.issubdtype(x.dtype, np.inexact):
        return None if np.array_equal(x, usual) else "results are not equal"
    found, usual, exact = (np.asarray(a).astype(_wide(a)) for a in (x, usual, exact))
    finite = np.isfinite(usual) & np.isfinite(exact)
    if not np.array_equal(np.isfinite(found) | ~finite, np.ones(finite.shape, bool)):
        return "results are not finite"
    if not np.array_equal(found[~finite], usual[~finite], equal_nan=True):
        return "results differ where they are not finite"
    if not finite.any():
        return None
    found, usual, exact = found[finite], usual[finite], exact[finite]
    error, known = np.abs(found - exact).max(), np.abs(usual - exact).max()
    eps = float(dtypes.finfo(x.dtype).eps)
    bound = WORSE * known + ULPS * eps * np.abs(exact).max() + eps * sums
    return None if error <= bound else f"error {error:.3g} exceeds {bound:.3g}"


def _wide(x: np.ndarray) -> Any:
    return np.complex128 if x.dtype.kind == "c" else np.float64


def _largest(x: np.ndarray, y: np.ndarray) -> float:
    return float(np.abs(x.astype(_wide(x)) - y.astype(_wide(y))).max(initial=0.0))


def _nearly_equal(x: np.ndarray, y: np.ndarray) -> bool:
    """Whether numbers differ by the last bits at most, as elementary functions behind sums do."""
    if not dtypes.issubdtype(x.dtype, np.inexact):
        return np.array_equal(x, y)
    a, b = x.astype(_wide(x)), y.astype(_wide(y))
    return np.allclose(a, b, ULPS * float(dtypes.finfo(x.dtype).eps), 0.0, equal_nan=True)
