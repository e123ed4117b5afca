"""From kernels to a runnable program: instructions, and a place in memory for every value.

`Planner` takes the steps of a fused program and writes instructions for the machine of
`runtime/vm.py`. Loops and branches become jumps around the instructions of their bodies. Every
value lives in a `Storage`: a slot given by the caller, or a range of the arena. Arena ranges are
packed at the end by the times at which their contents are needed; what is needed again in the next
iteration of a loop is needed until the loop ends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from itertools import zip_longest
from typing import Any, Protocol

import numpy as np

from amdjax import tile
from amdjax.core.config import config, disabled_passes
from amdjax.core.dims import Dim, Estimate, SizedScope
from amdjax.core.errors import InconclusiveDimensionOperation
from amdjax.core.jaxpr import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var
from amdjax.core.lowering import Control, Host, Shaped
from amdjax.core.sharding import Space
from amdjax.jit.constants import compiled_quickly, computed_once, launches
from amdjax.jit.finding import ask_finder
from amdjax.jit.hoisting import Hoisted, independent
from amdjax.jit.horizontal import number, together_on_cpu, together_on_gpu
from amdjax.jit.instructions import (
    HostCall,
    Instruction,
    Label,
    Launch,
    Parallel,
    Plan,
    Storage,
    View,
    Word,
    Zeros,
    packed,
)
from amdjax.jit.memory_limit import Search, keep_within
from amdjax.jit.offloading import copy_near_use, prefetch_copies
from amdjax.jit.partitions import merge_parts
from amdjax.jit.repeats import Repeats
from amdjax.jit.schedule import Schedule, is_shaped, shaped_context
from amdjax.jit.shared_kernels import SharedKernels, may_share
from amdjax.jit.updates import changes_in_place, first_names, readers_first
from amdjax.jit.workspace import FilledWorkspace
from amdjax.kernels.shaped import estimate, has_gpu_kernels, has_kernels, lower_shaped
from amdjax.passes import Changed, Facts, is_on, prepare, prepare_body
from amdjax.passes.barriers import BARRIER
from amdjax.passes.batch_chains import Caches
from amdjax.runtime import vm
from amdjax.schedule.calls import Call, Copy, Temp
from amdjax.schedule.element_loops import separate_numbers
from amdjax.schedule.equations import cost_again, is_bitcast
from amdjax.schedule.fusion import Fusion, Region, Single, fuse, step_reads, step_writes
from amdjax.schedule.gpu.calls import fit_gpu
from amdjax.schedule.gpu.partition import Resident
from amdjax.schedule.horizontal import made_of, run_together
from amdjax.schedule.regions import lower_region
from amdjax.schedule.row_sums import attach_sums
from amdjax.schedule.search import remembering
from amdjax.schedule.transposes import Transpositions, lower_transposes
from amdjax.targets import GpuTarget
from amdjax.targets.cpu import CpuTarget


class Loader(Protocol):
    """Takes kernels as they are made."""

    def start(self, kernels: int) -> None:
        """At least so many will come, if late."""

    def expect(self, kernels: int) -> None:
        """About how many more will come."""

    def add(self, kernel: tile.Kernel) -> None:
        """One more kernel."""


#: What lays out the sub-programs of a `Control` rule, by its name; `control.py` fills it.
CONTROL: dict[str, Callable[[Body, JaxprEqn], None]] = {}


def plan_program(
    closed: ClosedJaxpr,
    target: CpuTarget | GpuTarget,
    donated: Sequence[bool] = (),
    observe: Callable[[str, Any], None] = lambda stage, x: None,
    loader: Loader | None = None,
    by_line: bool = False,
) -> Plan:
    """Lower a whole program.

    Args:
      closed: the program as traced.
      target: the machine.
      donated: which arguments may be overwritten.
      observe: receives (stage, object) for every intermediate form, for dumps.
      loader: receives the kernels as they are made.
      by_line: whether equal steps that the user wrote on different lines get their own kernels.

    Raises:
      InconclusiveDimensionOperation: shapes are symbolic, and no sizes are at hand.
    """
    _refuse_symbolic(closed)
    import_module("amdjax.jit.control")  # it stands on this file, and fills `CONTROL`
    with remembering():
        return Planner(target, observe, loader, by_line).program(closed, donated)


def _refuse_symbolic(closed: ClosedJaxpr) -> None:
    for aval in (*closed.in_avals, *closed.out_avals):
        for n in getattr(aval, "shape", ()):
            if isinstance(n, Dim) and not isinstance(n.scope, SizedScope):
                raise InconclusiveDimensionOperation(
                    f"A program with {aval.str_short()} is not compiled: its shape is symbolic. "
                    "Trace it with make_jaxpr or eval_shape, or give sizes as numbers."
                )


def facts_of(target: CpuTarget | GpuTarget) -> Facts:
    """What passes may ask where a program will run on a machine."""
    caches = None
    if isinstance(target, CpuTarget):
        caches = Caches(target.l2_bytes * target.threads, target.l3_bytes, target.threads)
    return Facts(
        lambda eqn: has_kernels(eqn, target),
        cost_again,
        lambda eqn, fixed: estimate(eqn, target, fixed),
        "cpu" if isinstance(target, CpuTarget) else "gpu",
        caches,
        lambda eqn: has_gpu_kernels(eqn, target),
    )


class Planner:
    def __init__(
        self,
        target: CpuTarget | GpuTarget,
        observe: Callable[[str, Any], None] = lambda stage, x: None,
        loader: Loader | None = None,
        by_line: bool = False,
    ):
        self.target, self.observe, self.loader = target, observe, loader
        self.facts = facts_of(target)
        self.repeats, self.by_line = Repeats(by_line), by_line
        self.fusions: dict[int, tuple[Fusion, Jaxpr]] = {}
        self.transpositions: Transpositions = {}
        #: the kernels that differ in numbers alone; None where they stay apart
        on_cpu = isinstance(target, CpuTarget)
        self.shared = SharedKernels() if on_cpu and is_on("share_kernels") else None
        #: kernels of launches that may turn out to be done once; and what these write
        self.waiting: set[int] = set()
        self.of_constants: set[int] = set()
        self.joins = True  # whether launches of the same code become one on a GPU
        self.instructions: list[Instruction] = []
        self.storages: list[Storage] = []
        self.constants: list[Any] = []
        self.constant_views: dict[Any, View] = {}
        self.hosts: list[HostCall] = []
        self.next_slot = 2
        self.step = -1  # of the whole program that instructions are written for

    # The whole program

    def program(self, closed: ClosedJaxpr, donated: Sequence[bool]) -> Plan:
        ask_finder(self.target)
        if self.loader is not None:
            self.loader.start(sum(map(is_shaped, closed.jaxpr.eqns)))
        overwritten = frozenset(i for i, free in enumerate(donated) if free)
        whole = replace(self.facts, is_whole=True, overwritten=overwritten)
        changed: set[str] = set()

        def note(name: str, before: ClosedJaxpr, after: ClosedJaxpr) -> None:
            self._note(name, before, after)
            if after is not before:
                changed.add(name)

        traced, closed = closed, prepare(closed, whole, note)

        limit = config.memory_limit
        if limit is None:
            return self.planned(closed, donated)

        def needed(program: ClosedJaxpr) -> int:
            plan = Planner(self.target, by_line=self.by_line).planned(program, donated)
            on_cpu = isinstance(self.target, CpuTarget)
            return (computed_once(plan)[0] if on_cpu else plan).arena_bytes

        def unsummed() -> ClosedJaxpr:
            if "sum_after_loops" not in changed:
                return closed
            with disabled_passes((*config.disabled_passes, "sum_after_loops")):
                return prepare(traced, whole)

        search = Search(self.target, lambda step: prepare(step, self.facts), unsummed)
        within = keep_within(closed, limit, needed, search, self._note)
        return self.planned(within, donated)

    def planned(self, closed: ClosedJaxpr, donated: Sequence[bool]) -> Plan:
        """The plan of a program after all passes."""
        jaxpr = closed.jaxpr
        env: dict[Var, View] = {}
        inputs = self.next_slot
        donated = tuple(donated) or (False,) * len(jaxpr.invars)
        for v, free in zip(jaxpr.invars, donated, strict=True):
            env[v] = View(self.given(v, writable=free))
        outputs = self.next_slot
        destinations = [View(self.given(v)) for v in jaxpr.outvars]
        self.input_storages = [env[v].storage for v in jaxpr.invars]
        self.inputs = {id(s): i for i, s in enumerate(self.input_storages)}
        self.outputs = {id(d.storage): i for i, d in enumerate(destinations)}
        self.aliases: dict[int, int] = {}
        self.aliased: set[int] = set()  # arguments that are in `aliases`
        self.bind_constants(closed, env)
        # What is packed of constants is kept with the program (`constants.py`).
        keeps = isinstance(self.target, CpuTarget) and is_on("compute_constants_once")
        fixed = frozenset(jaxpr.constvars if keeps else ())
        self.body(jaxpr, env, destinations, outermost=True, hoisted=Hoisted(fixed))
        self.emit(vm.HALT)
        if self.shared is not None:
            words = (w for i in self.instructions for w in i.words)
            self.share(w for w in words if isinstance(w, tile.Kernel))
            self.instructions = self.shared.written(self.instructions)
        hosted = any(s.space is Space.Host for s in self.storages)
        host_slot = self.slot() if hosted else vm.ZERO
        if isinstance(self.target, GpuTarget):
            self.instructions = prefetch_copies(self.instructions, self.storages)
        constants_at = self.place_constants()
        if not is_on("color_memory"):
            for storage in self.storages:
                storage.first, storage.last = min(storage.first, 0), max(storage.last, self.time)
        sized = any(isinstance(s.nbytes, Dim) for s in self.storages)
        arena_bytes = 0 if sized else packed(self.storages)
        host_bytes = 0 if sized else packed(self.storages, Space.Host)
        in_host = enumerate(self.input_storages)
        plan = Plan(
            self.instructions, self.storages, arena_bytes, self.next_slot, inputs, outputs,
            constants_at, self.constants, self.hosts, self.aliases,
            frozenset(i for i, s in in_host if s.space is Space.Host), host_bytes, host_slot,
        )  # fmt: skip
        if isinstance(self.target, CpuTarget):
            plan = compiled_quickly(plan)
        for kernel in plan.kernels():
            if kernel.runs_once or id(kernel) in self.waiting:
                self.load(kernel)
        return plan

    def given(self, v: Any, writable: bool = True) -> Storage:
        """The memory of an argument or a result."""
        return Storage(v.aval.nbytes, self.slot(), writable, space=v.aval.memory_space)

    def slot(self) -> int:
        self.next_slot += 1
        return self.next_slot - 1

    def bind_constants(self, closed: ClosedJaxpr, env: dict[Var, View]) -> None:
        for v, value in zip(closed.jaxpr.constvars, closed.consts, strict=True):
            env[v] = self.constant(("object", id(value)), value, v.aval.nbytes)

    def constant(self, key: Any, value: Any, nbytes: int) -> View:
        found = self.constant_views.get(key)
        if found is None:
            found = self.constant_views[key] = View(
                Storage(nbytes, -1 - len(self.constants), writable=False)
            )
            self.constants.append(value)
        return found

    def zeros(self, nbytes: int, which: int = 0) -> View:
        """Memory of this program alone that every step finds zero, and leaves zero.

        Steps follow each other, so that one block serves all but those that run together, which
        are told apart by a number; calls of a program do, too, since work on a device is in order.
        """
        zeros = Zeros(nbytes) if isinstance(nbytes, Dim) else np.zeros(nbytes, np.uint8)
        return self.constant(("zeros", nbytes, which), zeros, nbytes)

    def place_constants(self) -> int:
        """Constants get their slots last, when their number is known."""
        start = self.next_slot
        self.next_slot += len(self.constants)
        for view in self.constant_views.values():
            assert view.storage.slot is not None
            view.storage.slot = start - 1 - view.storage.slot
        return start

    # Instructions

    @property
    def time(self) -> int:
        return len(self.instructions)

    def emit(self, opcode: int, *words: Word) -> None:
        for w in words:
            if isinstance(w, View):
                self.touch(w)
        self.instructions.append(Instruction(opcode, list(words), self.step))
        self.load_kernels(self.instructions[-1])

    def load_kernels(self, instruction: Instruction) -> None:
        """Let the kernels of an instruction be compiled that need not wait."""
        kernels = [w for w in instruction.words if isinstance(w, tile.Kernel)]
        if kernels and self.may_run_once(instruction):
            self.waiting.update(map(id, kernels))
            return
        for kernel in kernels:
            if self.shared is None or not may_share(kernel):
                self.load(kernel)

    def load(self, kernel: tile.Kernel) -> None:
        """Let a kernel be compiled."""
        if self.loader is not None:
            if config.check:
                tile.verify(kernel)
            self.loader.add(kernel)

    def may_run_once(self, launch: Instruction) -> bool:
        """Whether a launch reads constants, and what is made of them, or runs once as all do."""
        if isinstance(self.target, GpuTarget) or launch.opcode not in (vm.CALL, vm.CALLS):
            return False
        if config.exec_time_optimization_effort < 0:
            return True
        listed = [
            (p.role, v.storage) for kernel, views in launches(launch)
            for p, v in zip(kernel.params, views, strict=True) if p.role != "size"
        ]  # fmt: skip
        reads = [s for role, s in listed if role == "in"]
        if not reads or not all(_is_constant(s) or id(s) in self.of_constants for s in reads):
            return False
        self.of_constants.update(id(s) for role, s in listed if role != "in")
        return True

    def share(self, kernels: Iterable[tile.Kernel]) -> None:
        """Let those of the kernels be compiled that may be one with others."""
        for kernel in self.shared.add(kernels) if self.shared is not None else ():
            self.load(kernel)

    @contextmanager
    def undecided(self) -> Iterator[Callable[[], None]]:
        """Around instructions that may be replaced, or taken back by what this yields.

        Kernels are loaded, and stages observed, behind it; until then launches are not joined.
        """
        start, storages = self.time, len(self.storages)
        loader, observe = self.loader, self.observe
        seen: list[tuple[str, Any]] = []
        joins, self.joins = self.joins, False
        self.loader, self.observe = None, lambda stage, x: seen.append((stage, x))

        def take_back() -> None:
            del self.instructions[start:], self.storages[storages:]
            seen.clear()

        yield take_back
        self.loader, self.observe, self.joins = loader, observe, joins
        for stage, x in seen:
            observe(stage, x)
        for instruction in self.instructions[start:]:
            self.load_kernels(instruction)

    def touch(self, view: View) -> None:
        s = view.storage
        s.first, s.last = min(s.first, self.time), max(s.last, self.time)

    def fitted(self, calls: Sequence[Call | Copy]) -> Sequence[Call | Copy]:
        """The launches as the machine can do them."""
        return fit_gpu(calls, self.target) if isinstance(self.target, GpuTarget) else calls

    def aligned(self, kernel: tile.Kernel, views: Sequence[View]) -> tile.Kernel:
        """The kernel for arguments that may lie anywhere, as slices of a loop do."""
        if isinstance(self.target, CpuTarget):
            return kernel
        memory = (v.align for v in views if v.storage.slot != vm.ZERO)
        align = min(memory, default=kernel.align)
        return kernel if align >= kernel.align else replace(kernel, align=align)

    def launch(self, launches: Sequence[Launch]) -> None:
        """Write launches that are independent of each other."""
        if len(launches) > 1 and isinstance(self.target, CpuTarget):
            grid, parallel = sum(x.grid for x in launches), _is_parallel(launches)
            self.emit(vm.CALLS, grid, parallel, len(launches), *together_on_cpu(launches))
            return
        if len(launches) > 1 and isinstance(self.target, GpuTarget) and self.joins:
            launches = list(together_on_gpu(launches, self.target, self.by_line))
        for x in launches:
            self.emit(vm.CALL, x.kernel, x.grid, _is_parallel([x]), len(x.views), *x.views)

    def label(self, label: Label) -> None:
        label.position = self.time

    def arena(self, nbytes: int, space: Space = Space.Device) -> View:
        storage = Storage(nbytes, space=space)
        self.storages.append(storage)
        return View(storage)

    def copy(self, to: View, source: View, nbytes: int) -> None:
        if to != source and nbytes:
            self.emit(vm.COPY, to, source, nbytes)

    def loop_scope(self, start: int) -> None:
        """What was made before a loop and is used in it is needed until the loop ends."""
        for s in self.storages:
            if s.first < start <= s.last:
                s.last = max(s.last, self.time)

    # Bodies

    def prepare_body(self, closed: ClosedJaxpr, eqn: JaxprEqn) -> ClosedJaxpr:
        """A loop body or branch of `eqn` after all passes."""
        return prepare_body(closed, eqn, self.facts, self._note)

    def _note(self, name: str, before: ClosedJaxpr, after: ClosedJaxpr) -> None:
        self.observe("changed", Changed(name, before, after))

    def view(self, env: dict[Var, View], atom: Any) -> View:
        if isinstance(atom, Literal):
            value = np.asarray(atom.val, dtype=atom.aval.dtype)
            return self.constant((value.tobytes(), str(value.dtype)), value, atom.aval.nbytes)
        return env[atom]

    def fused(self, jaxpr: Jaxpr, constants: Collection[Var] = ()) -> Fusion:
        """The steps of a prepared program; what is made of `constants` alone is kept."""
        found = self.fusions.get(id(jaxpr))
        if found is None:
            on_gpu = isinstance(self.target, GpuTarget)
            fusion = fuse(separate_numbers(jaxpr), self.target)
            if isinstance(self.target, GpuTarget) and self.target.joins_kernels:
                fusion = attach_sums(fusion)
            fusion = readers_first(fusion)
            fusion = copy_near_use(fusion) if on_gpu else fusion
            # The program is kept too, lest another get its id.
            found = self.fusions[id(jaxpr)] = run_together(fusion, constants, on_gpu), jaxpr
        return found[0]

    def body(
        self, jaxpr: Jaxpr, env: dict[Var, View], destinations: Sequence[View],
        outermost: bool = False, hoisted: Hoisted | None = None,
    ) -> None:  # fmt: skip
        """Write the instructions of a prepared program; results go to `destinations`."""
        hoisted = hoisted or Hoisted()
        fusion, resident = self.fused(jaxpr, hoisted.fixed if outermost else ()), hoisted.resident
        if resident is not None and resident.partition is not None:
            assert isinstance(self.target, GpuTarget)
            fusion = merge_parts(fusion, self.target, resident.partition)
        if outermost:
            hoisted = replace(hoisted, fixed=made_of(fusion, hoisted.fixed))
        jaxpr = fusion.jaxpr
        self.observe("fusion", fusion)
        schedule = Schedule(fusion, self.target, hoisted.fixed, hoisted.resident)
        self.observe("schedule", schedule)
        if self.loader is not None:
            self.loader.expect(len(fusion.steps))
        wanted: dict[Var, View] = {}
        for v, d in zip(jaxpr.outvars, destinations, strict=True):
            if not isinstance(v, Literal) and v not in env:
                wanted.setdefault(v, d)
        # A result that renames or updates another value is that value's place.
        for step in reversed(fusion.steps):
            if isinstance(step, Single) and step.eqn.outvars and step.eqn.outvars[0] in wanted:
                source = step.eqn.invars[0] if step.eqn.invars else None
                if source in env or not isinstance(source, Var):
                    continue
                if is_bitcast(step.eqn) or changes_in_place(step, fusion):
                    wanted.setdefault(source, wanted[step.eqn.outvars[0]])
        body = Body(self, fusion, env, wanted, outermost, hoisted)
        if outermost and self.shared is not None:
            self.share(body.lower_steps())
        body.run()
        for v, d in zip(jaxpr.outvars, destinations, strict=True):
            self.copy(d, self.view(env, v), v.aval.nbytes)

    def hoist(
        self,
        jaxpr: Jaxpr,
        env: dict[Var, View],
        fixed: Collection[Var],
        resident: Resident | None = None,
    ) -> Hoisted:
        """Write, before a loop, what the steps of its body compute of `fixed` variables alone."""
        hoisted = Hoisted(frozenset(fixed), resident)
        fusion = self.fused(jaxpr)
        body = Body(self, fusion, dict(env), {}, False, hoisted)
        for step in fusion.steps if is_on("hoist_from_loops") else ():
            if not isinstance(step, Single) or not is_shaped(step.eqn) or is_bitcast(step.eqn):
                continue
            if any(x in hoisted.fixed for x in step.eqn.invars if isinstance(x, Var)):
                calls = body.shaped(step)
                count = independent(calls, hoisted.fixed)
                temps: dict[Temp, View] = {}
                body.calls(calls[:count], temps)
                hoisted.steps[id(step.eqn)] = calls[count:], temps
        return hoisted


class Body:
    """The steps of one program: the whole one, or the body of a loop or branch."""

    def __init__(
        self, planner: Planner, fusion: Fusion, env: dict[Var, View], wanted: dict[Var, View],
        outermost: bool, hoisted: Hoisted,
    ):  # fmt: skip
        self.p, self.fusion, self.env, self.wanted = planner, fusion, env, wanted
        self.outermost, self.hoisted = outermost, hoisted
        self.first_name = first_names(fusion)
        self.last_use = self._last_uses()
        self.owned: set[int] = set()  # storages this body may overwrite once their value is dead
        self.taken: set[Var] = set()  # dead values whose memory another value has already
        self.contested: Collection[Var] = ()  # read by several of the steps that run together
        once = isinstance(planner.target, CpuTarget) and is_on("fill_workspace_once")
        self.lowered: dict[int, Sequence[Call | Copy]] = {}  # steps, by their ids
        self.filled = FilledWorkspace(planner.storages, planner.arena) if once else None
        self.in_place = is_on("update_in_place")

    def _last_uses(self) -> dict[Var, int]:
        """The last steps that read values, by whichever name."""
        last: dict[Var, int] = {}
        first = self.first_name
        for i, step in enumerate(self.fusion.steps):
            last.update((first.get(v, v), i) for v in step_reads(step) if isinstance(v, Var))
        for v in self.fusion.jaxpr.outvars:
            if isinstance(v, Var):
                last[first.get(v, v)] = len(self.fusion.steps)
        last.update((v, last[x]) for v, x in first.items())
        return last

    def run(self) -> None:
        for position, step in enumerate(self.fusion.steps):
            self.position = position
            if self.outermost:
                self.p.step = position
            together = self.fusion.launch_of(step)
            if len(together) == 1 and isinstance(step, Single):
                self.single(step)
            elif step is together[-1]:
                self.together(together)
        if self.outermost:
            self.p.step = -1

    def together(self, steps: Sequence[Region | Single]) -> None:
        """Write the launches of steps that run together."""
        first = self.first_name
        reads = Counter(
            x for s in steps for x in {first.get(v, v) for v in step_reads(s) if isinstance(v, Var)}
        )
        self.contested = {v for v, n in reads.items() if n > 1}
        listed = [self.region(s) for s in steps if isinstance(s, Region)]
        workspace: list[dict[Temp, View]] = [{} for _ in listed]
        for step in steps:
            if isinstance(step, Single):
                calls, temps = self.hoisted.steps.get(id(step.eqn)) or (self.shaped(step), {})
                listed.append(calls)
                workspace.append(temps)
        for calls in zip_longest(*listed):
            launches = [
                self.launch(call, temps, which)
                for which, (call, temps) in enumerate(zip(calls, workspace, strict=True))
                if call is not None
            ]
            self.p.launch([launch for launch in launches if launch is not None])
        self.contested = ()

    def region(self, step: Region) -> Sequence[Call | Copy]:
        if (found := self.lowered.get(id(step))) is not None:
            return found
        fusion, p = self.fusion, self.p
        resident = self.hoisted.resident
        is_alike = isinstance(p.target, CpuTarget) and not p.by_line
        is_once = is_alike and self.hoisted.fixed.issuperset(step_writes(step))
        turning = lower_transposes(step, fusion, p.target, p.transpositions) if is_once else None
        if turning is not None:
            return turning
        lower = lambda: p.fitted(lower_region(step, fusion, p.target, resident))
        return p.repeats.region(step, fusion, resident, lower)

    def single(self, step: Single) -> None:
        eqn, rule = step.eqn, step.eqn.primitive.lowering
        source = eqn.invars[0] if eqn.invars else None
        if eqn.primitive.name == BARRIER:
            named = zip(eqn.outvars, eqn.invars, strict=True)
            self.env.update((v, self.p.view(self.env, x)) for v, x in named)
            return
        if isinstance(source, Var) and is_bitcast(eqn):
            self.rename(source, eqn.outvars[0])
            return
        if is_shaped(eqn):
            known = self.hoisted.steps.get(id(eqn))
            self.calls(*(known or (self.shaped(step),)))
        elif isinstance(rule, Shaped):
            for v in step_writes(step):
                self.place(v)
        elif isinstance(rule, Control):
            CONTROL[rule.name](self, eqn)
        elif isinstance(rule, Host):
            self.host(eqn, rule)
        else:
            raise NotImplementedError(
                f"translation rule for primitive '{eqn.primitive.name}' not found: give it a "
                "lowering, such as interpreters.mlir.lower_fun of a function of other operations"
            )

    def lower_steps(self) -> list[tile.Kernel]:
        """Lower all steps, and have their kernels compiled while their launches are written.

        Those that may run once wait until that is known.

        Returns:
          The kernels that may be one with others.
        """
        shared: list[tile.Kernel] = []
        known: set[Any] = {*self.hoisted.fixed}
        for step in self.fusion.steps:
            if isinstance(step, Region):
                calls = self.region(step)
            elif is_shaped(step.eqn) and not is_bitcast(step.eqn):
                calls = self.shaped(step)
            else:
                continue
            self.lowered[id(step)] = calls
            for call in calls:
                if isinstance(call, Copy) or call.grid == 0:
                    continue
                if may_share(call.kernel):
                    shared.append(call.kernel)
                elif not _is_known(call, known) and config.exec_time_optimization_effort >= 0:
                    self.p.load(call.kernel)
        return shared

    def shaped(self, step: Single) -> Sequence[Call | Copy]:
        """The launches of a kernel family."""
        if (found := self.lowered.get(id(step))) is not None:
            return found
        p, fixed, resident = self.p, self.hoisted.fixed, self.hoisted.resident
        ctx = shaped_context(step, self.fusion, p.target, fixed, resident)
        lower = lambda: p.fitted(lower_shaped(ctx))
        return p.repeats.single(step, ctx, lower)

    def rename(self, source: Var, result: Var) -> None:
        """Another name for a value; its memory is not taken over while both are in use."""
        view = self.env[source]
        if self.overwritable(source):
            self.taken.add(self.first_name.get(source, source))
        else:
            self.owned.discard(id(view.storage))
            view.storage.writable = False
        self.env[result] = view

    def dead_after(self, v: Var) -> bool:
        return self.last_use.get(v, -1) <= self.position

    def overwritable(self, v: Any) -> bool:
        """Whether the memory of a value may hold another one after this step."""
        if not self.in_place or isinstance(v, Literal):
            return False
        v = self.first_name.get(v, v)
        if v in self.taken:
            return False
        if not self.dead_after(v):
            return False
        if v in self.contested:
            return False
        storage = self.env[v].storage
        if storage.slot is not None:  # what runs a loop's body or a branch may still need it
            return self.outermost and storage.writable and id(storage) in self.p.inputs
        return id(storage) in self.owned

    def place(self, v: Var) -> View:
        """The memory of a value about to be computed."""
        found = self.env.get(v)
        if found is None:
            found = self.wanted.get(v)
            if found is None:
                found = self.p.arena(v.aval.nbytes, v.aval.memory_space)
                self.owned.add(id(found.storage))
            self.env[v] = found
        return found

    def share(self, source: Any, result: Var) -> bool:
        """Let `result` take over the memory of `source`, if that is not needed any more."""
        if result in self.env or not self.overwritable(source):
            return False
        view = self.env[source]
        if source.aval.nbytes != result.aval.nbytes:
            return False
        if source.aval.memory_space is not result.aval.memory_space:
            return False
        wanted = self.wanted.get(result)
        if wanted is None:
            if view.storage.slot is not None:
                return False
        elif view.storage.slot is not None and id(wanted.storage) in self.p.outputs:
            i, o = self.p.inputs[id(view.storage)], self.p.outputs[id(wanted.storage)]
            if i in self.p.aliased or o in self.p.aliases:
                return False
            self.p.aliases[o] = i
            self.p.aliased.add(i)
            view = wanted
        else:
            return False
        self.env[result] = view
        self.taken.add(self.first_name.get(source, source))
        return True

    def calls(self, calls: Sequence[Call | Copy], temps: dict[Temp, View] | None = None) -> None:
        """Write launches; `temps` says where workspace lies, and is told of more."""
        temps = {} if temps is None else temps
        for call in calls:
            if self.filled is None or not self.filled.has(call, calls, temps):
                launch = self.launch(call, temps)
                self.p.launch([] if launch is None else [launch])

    def launch(self, call: Call | Copy, temps: dict[Temp, View], which: int = 0) -> Launch | None:
        """The launch of a call, if it has programs; a copy is written.

        Args:
          call: a launch of a step.
          temps: where workspace of the step lies; it is told of more.
          which: of the steps that run together it is.
        """

        def address(arg: Any) -> View:
            if isinstance(arg, (int, Dim)):
                return number(arg)
            if isinstance(arg, Temp):
                if arg not in temps:
                    nbytes = arg.size * tile.itemsize(arg.dtype)
                    temps[arg] = self.p.zeros(nbytes, which) if arg.zero else self.p.arena(nbytes)
                return temps[arg]
            if isinstance(arg, Var) and arg not in self.env:
                return self.place(arg)
            return self.p.view(self.env, arg)

        if isinstance(call, Copy):
            if not self.share(call.source, call.result):
                result = self.place(call.result)
                self.p.copy(result, address(call.source), call.result.aval.nbytes)
            return None
        if call.grid == 0:
            for a in call.args:
                address(a)
            return None
        # Where programs stay resident, more threads than a kernel is for repeat what it loads.
        for read, written in () if self.hoisted.resident else call.in_place:
            self.share(call.args[read], call.args[written])
        views = tuple(address(a) for a in call.args)
        kernel = self.p.aligned(call.kernel, views)
        return Launch(kernel, call.grid, views, call.nanoseconds)

    def host(self, eqn: JaxprEqn, rule: Host) -> None:
        """A call of Python with views of the operands; results are copied back."""
        reads = [self.p.view(self.env, x) for x in eqn.invars]
        writes = [self.place(v) for v in eqn.outvars]
        in_avals, out_avals = [x.aval for x in eqn.invars], [v.aval for v in eqn.outvars]
        self.p.hosts.append(HostCall(rule.fn, eqn.params, in_avals, out_avals))
        self.p.emit(vm.HOST, len(self.p.hosts) - 1, len(reads) + len(writes), *reads, *writes)


def _is_known(call: Call, known: set[Any]) -> bool:
    """Whether a launch reads nothing but what is `known`, to which is added what it makes."""
    listed = list(zip(call.kernel.params, call.args, strict=True))
    reads = [x for p, x in listed if p.role == "in"]
    if not reads or not all(isinstance(x, Literal) or x in known for x in reads):
        return False
    known.update(x for p, x in listed if p.role not in ("in", "size"))
    return True


def _is_constant(storage: Storage) -> bool:
    """Whether memory has a constant, while slots of these have no places yet."""
    return storage.slot is not None and storage.slot < 0


def _is_parallel(launches: Sequence[Launch]) -> Word:
    """Whether waking other threads pays."""
    programs, nanoseconds = sum(x.grid for x in launches), sum(x.nanoseconds for x in launches)
    parallel = Parallel(programs, nanoseconds)
    known = not isinstance(programs, Dim) and not isinstance(nanoseconds, Estimate)
    return parallel.at({}) if known else parallel
