"""Tile programs to loaded machine code, each distinct one compiled once, on CPUs and GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, Protocol, TypeVar

from amdjax import tile
from amdjax.codegen.compile_worker import Machine
from amdjax.codegen.engine import Compilation
from amdjax.core.context import entered
from amdjax.core.instantiate import type_at
from amdjax.core.jaxpr import ClosedJaxpr, LateJaxpr
from amdjax.jit.instructions import Plan
from amdjax.jit.plan_keys import PlanKey, plan_key
from amdjax.jit.stored_plans import read_plan, written_plan
from amdjax.jit.stored_variants import StoredVariant, read_variants, variants_key
from amdjax.runtime.cache import SOURCE, entry_key, object_cache

Loaded = TypeVar("Loaded")
LoadedIn = TypeVar("LoadedIn", covariant=True)

_loaded: dict[bytes, Any] = {}  # by cache key
_of_plans: dict[bytes, Any] = {}  # those whose tile programs are not known


@dataclass(frozen=True)
class Recorded:
    """What was compiled, by the keys under which a source has it.

    Attributes:
      kernels: machine code.
      plans: of programs.
    """

    kernels: dict[bytes, bytes] = field(default_factory=dict)
    plans: dict[bytes, bytes] = field(default_factory=dict)


_record: ContextVar[Recorded | None] = ContextVar("kernel record", default=None)


def kernels_from(source: Mapping[bytes, bytes]) -> AbstractContextManager[object]:
    """In here kernels and plans are taken from a source, by their keys, before any other place."""
    return entered(SOURCE, source)


def kernels_recorded() -> AbstractContextManager[Recorded]:
    """What gets the kernels and plans of what is compiled in here, as a source has them."""
    return entered(_record, Recorded())


def is_carried() -> bool:
    """Whether kernels come from elsewhere or are made for elsewhere, where lines tell nothing."""
    return SOURCE.get() is not None or _record.get() is not None


def clear_loaded() -> None:
    """Forget compiled kernels; programs that use them keep them alive."""
    _loaded.clear()
    _of_plans.clear()


class KernelGenerator(Protocol[LoadedIn]):
    """How tile programs become machine code of one machine.

    Attributes:
      opt: LLVM's level, as for `compile_ir`.
      machine: what helper processes compile for; None for this computer.
      seconds_per_kernel: what compiling one takes, as if for this computer; `Compilation` knows
        what other machines take.
    """

    opt: int
    machine: Machine | None
    seconds_per_kernel: float

    def facts(self) -> Sequence[str]:
        """What besides a kernel's identity decides its machine code."""

    def named(self, kernel: tile.Kernel) -> tile.Kernel:
        """The kernel under the name of its function, of a grid without size: those do not count."""

    def identity(self, kernel: tile.Kernel) -> str:
        """The text that tells a named kernel from others."""

    def llvm(self, kernel: tile.Kernel) -> str:
        """LLVM IR of a named kernel."""

    def module(self, llvm: str) -> str:
        """The IR as it is compiled."""

    def entry(self, kernel: tile.Kernel, llvm: str, data: bytes) -> bytes:
        """What is kept on disk of the object code."""

    def load(self, kernel: tile.Kernel, entry: bytes) -> LoadedIn:
        """The kernel, ready for use, from what is kept on disk."""


class KernelLoader(Generic[Loaded]):
    """The kernels of a program; what is neither in memory nor on disk is compiled.

    Kernels are added as the program is planned, so that helper processes compile the first ones
    while the last ones are being made.
    """

    def __init__(self, generator: KernelGenerator[Loaded]) -> None:
        self.generator = generator
        self._keys: dict[int, tuple[tile.Kernel, bytes]] = {}  # by id; kernels stay alive
        self._found: dict[bytes, Loaded] = {}
        self._compiling: dict[bytes, tuple[tile.Kernel, str]] = {}
        self._compilation = Compilation(opt=generator.opt, machine=generator.machine)
        self._source, self._record = SOURCE.get(), _record.get()

    @cached_property
    def _facts(self) -> Sequence[str]:
        return self.generator.facts()

    def expect(self, kernels: int) -> None:
        """Announce about how many kernels will come."""
        self._compilation.expect(kernels * self.generator.seconds_per_kernel)

    def start(self, kernels: int) -> None:
        """Have helpers start, if there is work for them, before so many kernels are made."""
        if self.generator.machine is None:
            self._compilation.start(kernels * self.generator.seconds_per_kernel)

    def add(self, kernel: tile.Kernel) -> None:
        """Take one more kernel."""
        if id(kernel) in self._keys:
            return
        made = self.generator
        named = made.named(kernel)
        key = entry_key(made.identity(named), *self._facts)
        self._keys[id(kernel)] = kernel, key
        if key in self._found or key in self._compiling:
            return
        found = None if self._record is not None else _loaded.get(key)
        if found is None and (entry := self._entry(key, kernel.name)) is not None:
            found = _loaded.setdefault(key, made.load(named, entry))
        if found is not None:
            self._found[key] = found
            return
        llvm = made.llvm(named)
        self._compiling[key] = named, llvm
        self._compilation.add(made.module(llvm))

    def _entry(self, key: bytes, name: str) -> bytes | None:
        """A kernel that was compiled before, from a source or the disk."""
        found = None
        if self._source is not None and (found := self._source.get(key)) is None:
            # late: programs that log have it loaded
            import logging

            logging.getLogger("amdjax.jit").debug(
                "kernel %s is compiled here: no source has it", name
            )
        if found is None:
            found = object_cache().get(key)
        if found is not None and self._record is not None:
            self._record.kernels[key] = found
        return found

    # Plans, whose kernels are known by their keys alone

    def key(self, closed: ClosedJaxpr, donated: Sequence[bool], machine: Any) -> PlanKey | None:
        """Under what the plan of a program is kept; None where nothing keeps it."""
        stays = self._source is None and self._record is None
        if stays and object_cache().directory is None:
            return None
        return plan_key(closed, donated, machine, self.generator.facts())

    def read(self, key: PlanKey, consts: Sequence[Any]) -> tuple[Plan, dict[int, Loaded]] | None:
        """A program's plan that was kept, and its kernels by their ids; None without all of it.

        Args:
          key: of the plan.
          consts: the constants of the program.
        """
        if self._record is not None:
            return None
        data = None if self._source is None else self._source.get(key.carried)
        for found in (data, object_cache().get(key.local) if data is None else None):
            try:
                stored = None if found is None else read_plan(found, consts)
            except ValueError:
                continue
            if stored is not None and (kernels := self.of_keys(stored.keys)) is not None:
                return stored.plan, kernels
        return None

    def of_keys(self, keys: Sequence[tuple[tile.Kernel, bytes]]) -> dict[int, Loaded] | None:
        """Loaded kernels by ids; None if one is missing."""
        made: dict[int, Loaded] = {}
        for kernel, key in keys:
            found = _loaded.get(key) or _of_plans.get(key)
            if found is None:
                if (entry := self._entry(key, kernel.name)) is None:
                    return None
                loaded = self.generator.load(self.generator.named(kernel), entry)
                found = _of_plans.setdefault(key, loaded)
            made[id(kernel)] = found
        return made

    @property
    def has_source(self) -> bool:
        """Whether plans come from elsewhere, and are not to be made anew."""
        return self._source is not None and self._record is None

    @property
    def is_recording(self) -> bool:
        """Whether what is compiled is to go with a program in a file."""
        return self._record is not None

    def variants_key(
        self, closed: ClosedJaxpr, donated: Sequence[bool], machine: Any
    ) -> bytes | None:
        """The key of the variants that come with a program of symbolic shapes; None for another."""
        if not isinstance(closed, LateJaxpr):
            return None
        key = self.key(closed, donated, machine)
        return None if key is None else variants_key(key)

    def variants(
        self, closed: ClosedJaxpr, donated: Sequence[bool], machine: Any
    ) -> list[tuple[StoredVariant, list[Any], dict[int, Loaded]]]:
        """The variants that come with a program, without its being planned; those that are whole.

        Args:
          closed: the program.
          donated: which of its arguments may be overwritten.
          machine: the target.

        Returns:
          Of each the plan, the types of its results, and kernels by ids.
        """
        key = self.variants_key(closed, donated, machine) if self.has_source else None
        data = None if self._source is None or key is None else self._source.get(key)
        try:
            stored = [] if data is None else read_variants(data, closed.consts)
        except ValueError:
            return []
        found = []
        for variant in stored:
            kernels = self.of_keys(variant.stored.keys)
            if kernels is not None:
                out_avals = [type_at(a, variant.dimensions) for a in closed.out_avals]
                found.append((variant, out_avals, kernels))
        return found

    def written(self, plan: Plan, consts: Sequence[Any]) -> bytes | None:
        """A plan whose kernels were added as data, where what is compiled is recorded."""
        if self._record is None:
            return None
        return written_plan(plan, consts, {number: k for number, (_, k) in self._keys.items()})

    def keep(self, key: PlanKey, plan: Plan, consts: Sequence[Any]) -> None:
        """Keep the plan of a program whose kernels were added."""
        written = written_plan(plan, consts, {number: k for number, (_, k) in self._keys.items()})
        if written is None:
            return
        object_cache().put(key.local, written)
        if self._record is not None:
            self._record.plans[key.carried] = written

    def load(self) -> dict[int, Loaded]:
        """What was added, by the ids of the tile programs."""
        compiled = self._compilation.finish()
        for (key, (kernel, llvm)), data in zip(self._compiling.items(), compiled, strict=True):
            entry = self.generator.entry(kernel, llvm, data)
            object_cache().put(key, entry)
            if self._record is not None:
                self._record.kernels[key] = entry
            self._found[key] = _loaded.setdefault(key, self.generator.load(kernel, entry))
        return {number: self._found[key] for number, (_, key) in self._keys.items()}

    def cancel(self) -> None:
        """The program could not be planned."""
        self._compilation.cancel()
