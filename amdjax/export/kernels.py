"""Machine code and plans that go with a program, and where a program finds them again.

Kernels have the keys of the cache on disk, hashes of their text, the machine and the generator, and
plans those of `jit/plan_keys.py`. What another version of the compiler, another machine or other
settings would make has other keys, is not found, and is made anew.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from amdjax.core.array import asarray_concrete
from amdjax.core.config import enable_x64
from amdjax.core.dims import scope_of, variables_of
from amdjax.core.jaxpr import ClosedJaxpr

from .container import ArtifactError, Data, Members, parsed_json
from .written import late_program, read_program, read_scope, read_unequal, written_program

__all__ = [
    "CHOICES", "Made", "TargetKernels", "example_sizes", "log_differences", "made_for",
    "read_choices", "usual_sizes",
]  # fmt: skip

_logger = logging.getLogger("amdjax.export")
#: What names of members begin with.
_KERNELS, _PLANS = "kernels/", "plans/"
#: Sizes of dimension variables that machine code is made for where no others are named.
SIZES = (2, 8)
_TRIED = (*range(1, 65), *(1 << n for n in range(7, 15)))


@dataclass(frozen=True)
class Made:
    """Machine code for some targets.

    Attributes:
      members: kernels and plans by the names of members.
      facts: for each target what it was made by and for.
    """

    members: dict[str, Data]
    facts: dict[str, Any]


#: The member with measured choices.
CHOICES = "choices.json"
_NAMES = ("machine", "units", "kind", "program", "decisions")


def _written_choices(choices: Mapping[Any, Any]) -> bytes:
    told = [dict(zip(_NAMES, (*key, list(map(list, way))))) for key, way in choices.items()]
    told.sort(key=json.dumps)
    return json.dumps({"choices": told}, indent=1).encode()


def read_choices(data: Data) -> Any:
    """The measured choices of an artifact, for `jit.finding.choices_from`.

    They choose among plans that the compiler lists, each of which is right: anything may stand in
    them.

    Raises:
      ArtifactError: they are none.
    """
    # late: only artifacts with choices need it
    from amdjax.jit.finding import Carried

    told = parsed_json(data, CHOICES).get("choices")
    found: dict[Any, Any] = {}
    for entry in told if isinstance(told, list) else [None]:
        values = [entry.get(name) for name in _NAMES] if isinstance(entry, dict) else [None]
        *key, decisions = values
        if list(map(type, key)) != [str, int, str, str] or not _are_decisions(decisions):
            raise ArtifactError(f"{CHOICES}: {str(entry)[:200]} is no choice")
        found[tuple(key)] = decisions
    return Carried(found, hashlib.sha256(data).hexdigest())


def _are_decisions(told: Any) -> bool:
    return isinstance(told, list) and all(
        isinstance(x, list) and list(map(type, x)) == [str, str, str] for x in told
    )


def made_for(
    exported: Any, known: dict[str, Any], targets: Sequence[str], sizes: Sequence[dict[str, int]],
    bind: Callable[[ClosedJaxpr], ClosedJaxpr] = lambda program: program,
) -> Made:  # fmt: skip
    """The kernels of a program for some targets.

    Args:
      exported: an `Exported`.
      known: what is known of its dimension variables.
      targets: "cpu", or names of GPUs.
      sizes: those of the variables to compile for.
      bind: makes of a program that is read what is compiled.

    Raises:
      ValueError: there is no such target.
    """
    # late: load the compiler
    from amdjax.jit.finding import choices_noted
    from amdjax.jit.kernels import kernels_recorded
    from amdjax.runtime.vm import carried_code
    from amdjax.targets import get

    if isinstance(targets, str) or not all(isinstance(name, str) for name in targets):
        raise ValueError(f"save: targets must be a list of names, got {targets!r}")
    found = {name: None if name == "cpu" else get(name) for name in dict.fromkeys(targets)}
    members: dict[str, Data] = {}
    if "cpu" in found:
        members.update((_member(_KERNELS, "cpu", k), code) for k, code in carried_code().items())
    facts: dict[str, Any] = {}
    programs = _Programs(known, bind)
    work = [(name, at) for name in found for at in sizes]
    with enable_x64(exported.enable_x64), exported.settings(), choices_noted() as choices:
        for name, at in _shown(work, "compiling"):
            program, entry = programs.read(exported.serving(at).program, name)
            with kernels_recorded() as made:
                entry.compile(program, found[name], at)
            for kind, entries in ((_KERNELS, made.kernels), (_PLANS, made.plans | entry.plans())):
                members.update((_member(kind, name, k), data) for k, data in entries.items())
            facts.setdefault(name, _facts(found[name]) | {"sizes": []})["sizes"].append(at)
    if choices:
        members[CHOICES] = _written_choices(choices)
    return Made(members, facts)


class _Programs:
    """Programs as they are read again, each once, and what was compiled of them for a target.

    Args:
      known: what is known of their dimension variables.
      bind: as for `made_for`.
    """

    def __init__(
        self, known: dict[str, Any], bind: Callable[[ClosedJaxpr], ClosedJaxpr]
    ) -> None:  # fmt: skip
        self.known, self.bind = known, bind
        self._read: dict[int, tuple[ClosedJaxpr, ClosedJaxpr]] = {}  # with what keeps ids alive
        self._made: dict[tuple[int, str], _Compiled] = {}

    def read(self, program: ClosedJaxpr, target: str) -> tuple[ClosedJaxpr, _Compiled]:
        """A program, of which no places in the user's code are known; what is compiled of it."""
        if id(program) not in self._read:
            self._read[id(program)] = program, self.bind(_as_read(program, self.known))
        entry = self._made.setdefault((id(program), target), _Compiled())
        return self._read[id(program)][1], entry


class _Compiled:
    """What was compiled of a program for a target."""

    def __init__(self) -> None:
        self._variants: Any = None

    def compile(self, program: ClosedJaxpr, target: Any, sizes: Mapping[str, int]) -> None:
        # late: load the compiler
        from amdjax.jit.cpu.program import compile_for_cpu
        from amdjax.jit.gpu.kernels import compile_device
        from amdjax.jit.variants import Variants

        donated = (False,) * len(program.in_avals)
        names = variables_of(program.in_avals)
        if names:
            if self._variants is None:
                self._variants = Variants(program, donated, (), None, target)
            self._variants.prepare({name: sizes[name] for name in names})
        elif target is None:
            compile_for_cpu(program, donated)
        else:
            compile_device(program, target)

    def plans(self) -> dict[bytes, bytes]:
        """The plans of variants, by the key under which they are found."""
        written = None if self._variants is None else self._variants.written()
        return {} if written is None else dict([written])


def _as_read(program: ClosedJaxpr, known: dict[str, Any]) -> ClosedJaxpr:
    """The program as it is read again."""
    scope, (text, told, _) = read_scope(known), written_program(program, known)
    consts = [asarray_concrete(x) for x in program.consts]
    read = read_program(text, scope, consts)
    read_unequal(known, scope)
    return late_program(text.encode(), told, known, scope, consts, lambda: read) if told else read


def example_sizes(exported: Any, example: Any) -> list[dict[str, int]] | None:
    """Sizes of the dimension variables as users give them: one or several such, or None."""
    # late: loads the compiler
    from amdjax.jit.symbolic import given_sizes

    scope = scope_of(exported.in_avals)
    if example is None or scope is None:
        return None
    several = [example] if isinstance(example, Mapping) else list(example)
    return [given_sizes(sizes, scope, exported.in_avals) for sizes in several]


def usual_sizes(exported: Any) -> list[dict[str, int]]:
    """Sizes of the dimension variables that an artifact is made for where no others are named.

    Some small ones, and for each variable the size 1, for which many functions are traced apart;
    one without variables where there are none, and none where constraints forbid all.
    """
    avals = exported.in_avals
    scope = scope_of(avals)
    if scope is None:
        return [{}]
    names = sorted(variables_of(avals))
    # Unequal ones, as equal ones may be traced apart.
    usual: Callable[[int], dict[str, int]] = lambda n: {name: n + i for i, name in enumerate(names)}
    ones = [dict.fromkeys(chosen, 1) for chosen in _subsets(names)]
    found = [usual(n) for n in SIZES] + [usual(SIZES[-1]) | one for one in ones]
    fitting = [sizes for sizes in found if scope.violated(sizes) is None]
    if fitting:
        return fitting
    tried = [*map(usual, _TRIED), *(dict.fromkeys(names, n) for n in _TRIED)]
    return [sizes for sizes in tried if scope.violated(sizes) is None][:1]


def _subsets(names: Sequence[str]) -> Iterator[Sequence[str]]:
    """Subsets of few names; of many those of one, and all."""
    for count in range(1, len(names) + 1):
        if len(names) <= 3 or count in (1, len(names)):
            yield from itertools.combinations(names, count)


def _shown(work: Sequence[Any], what: str) -> Iterable[Any]:
    """The items, with a bar on a terminal where tqdm is installed."""
    if len(work) > 1 and sys.stderr.isatty():
        try:
            # late: only people who look on need it
            from tqdm.auto import tqdm  # type: ignore[import-untyped]
        except ImportError:
            return work
        return iter(tqdm(work, desc=what, unit="program"))
    return work


def _member(kind: str, target: str, key: bytes) -> str:
    return f"{kind}{target}/{key.hex()}"


def _facts(target: Any) -> dict[str, Any]:
    """What machine code of a target depends on besides its text."""
    # late: load the compiler
    from amdjax.codegen.engine import host
    from amdjax.runtime.cache import compiler_version

    machine = host()
    own = [machine.triple, machine.cpu, machine.features] if target is None else [repr(target)]
    return {"compiler": list(compiler_version()), "machine": own}


def log_differences(told: Any) -> None:
    """Log why machine code will not be found: of each target that another compiler made."""
    # late: loads the compiler
    from amdjax.targets import get, names

    if not _logger.isEnabledFor(logging.DEBUG) or not isinstance(told, dict):
        return
    for name, facts in told.items():
        target = None
        if name != "cpu":
            target = get(name) if name in names() else None
            if target is None:
                _logger.debug("kernels for %s are left aside: there is no such target", name)
                continue
        for what, now in _facts(target).items():
            if not isinstance(facts, dict) or facts.get(what) != now:
                _logger.debug("kernels for %s are compiled again: the %s differs", name, what)


class TargetKernels(Mapping[bytes, bytes]):
    """The kernels and plans of an artifact, of all targets, by their keys."""

    def __init__(self, members: Members):
        self._members = members
        names = (name for name in members.names() if name.startswith((_KERNELS, _PLANS)))
        self._names = {_key(name): name for name in names}

    def __getitem__(self, key: bytes) -> bytes:
        return bytes(self._members[self._names[key]])

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _key(name: str) -> bytes:
    """The key of a kernel or plan; of a member that is none what is the key of nothing."""
    try:
        return bytes.fromhex(name.rsplit("/", 1)[1])
    except ValueError:
        return b""
