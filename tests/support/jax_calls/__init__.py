"""Generators of calls of public functions, one module a package; see `tools/record_jax.py`.

A generator module has `FAMILIES`: a dictionary from a family's function, which takes a `Draw` and
returns `(arguments, keywords)`, to the names it draws for. Every `SPOIL_EVERY`-th call of one gets
an argument that mostly does not belong there; modules that spoil every call are about errors alone.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

Spec = Any
Call = tuple[list[Any], dict[str, Any]]
Family = Callable[["Draw"], tuple[list[Spec], dict[str, Spec]]]

SHAPES = [(), (1,), (0,), (3,), (4,), (2, 3), (3, 1), (1, 3), (2, 0), (3, 3), (2, 3, 2), (1, 1, 1)]
PAIRS = [
    ((), ()),
    ((3,), (3,)),
    ((2, 3), (3,)),
    ((2, 3), (2, 3)),
    ((3, 1), (1, 4)),
    ((2, 1, 3), (2, 1)),
    ((), (3,)),
    ((0,), (1,)),
    ((1,), (4,)),
    ((2, 0), (2, 1)),
]
BOOL = ["bool"]
INTS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
FLOATS = ["bfloat16", "float16", "float32", "float64"]
COMPLEX = ["complex64", "complex128"]
REAL = BOOL + INTS + FLOATS
ALL = REAL + COMPLEX
SCALARS = [0, 1, 2, -1, 3, 300, -5, 2.0, -1.5, 0.5, True, False]
DTYPES = [
    "float32",
    "int32",
    "float16",
    "bfloat16",
    "int8",
    "uint8",
    "complex64",
    "bool",
    "int64",
    "float64",
    "uint32",
]


class Draw:
    """Random choices of arguments, the same for the same seed."""

    def __init__(self, seed: str) -> None:
        self.random = Random(zlib.crc32(seed.encode()))
        self.name = ""

    def chance(self, p: float) -> bool:
        return self.random.random() < p

    def pick(self, options: Any) -> Any:
        return self.random.choice(list(options))

    def dtype(self, dtypes: list[str] | None = None) -> str:
        dtypes = dtypes or ALL
        common = [d for d in ("float32", "int32") if d in dtypes]
        return self.pick(common) if common and self.chance(0.35) else self.pick(dtypes)

    def array(
        self,
        shape: Any = None,
        dtypes: list[str] | None = None,
        kind: str = "usual",
        plain: bool = False,
    ) -> Spec:
        """An array, or what stands for one: NumPy's, weakly typed, a scalar."""
        shape = self.pick(SHAPES) if shape is None else shape
        dtype = self.dtype(dtypes)
        how = self.random.random()
        if not plain and shape == () and how < 0.35:
            scalars = [s for s in SCALARS if dtypes is None or type(s).__name__[:3] in str(dtypes)]
            return self.pick(scalars or [1])
        if not plain and how < 0.08 and (dtypes is None or "float32" in dtypes):
            return {"w": [self.pick([2, 1.5]), list(shape)]}
        tag = "n" if how > 0.9 and not plain else "a"
        if kind == "usual" and dtype in FLOATS + COMPLEX and self.chance(0.1):
            kind = "special"
        return {tag: [dtype, list(shape), self.random.randrange(100), kind]}

    def arrays(self, n: int, dtypes: list[str] | None = None, kind: str = "usual") -> list[Spec]:
        """Operands that broadcast against each other, now and then ones that do not."""
        shapes = list(self.pick(PAIRS))
        if self.chance(0.04):
            shapes = [(3,), (4,)]
        shapes = (shapes * n)[:n]
        self.random.shuffle(shapes)
        return [self.array(s, dtypes, kind) for s in shapes]

    def axis(self, none: bool = True) -> Spec:
        choice = self.random.random()
        if none and choice < 0.3:
            return None
        if choice < 0.85:
            return self.pick([0, -1, 1, 0, -1])
        if choice < 0.93:
            return {"t": self.pick([[0], [0, 1], [-1, 0], []])}
        return self.pick([2, -3, 5, {"t": [0, 0]}])

    def one_axis(self) -> Spec:
        return self.pick([0, 0, -1, -1, 1, -2, 4])

    def as_dtype(self, dtypes: list[str] | None = None) -> Spec:
        name = self.pick(dtypes or DTYPES)
        return self.pick([{"d": name}, {"d": name}, name, {"type": "float"}, {"type": "int"}])

    def options(self, **ways: Callable[[], Spec]) -> dict[str, Spec]:
        """Some of the keywords."""
        return {k: make() for k, make in ways.items() if self.chance(0.35)}


BAD = [
    None,
    "x",
    {"object": 0},
    [1, 2],
    [[1.0], [2.0]],
    1.5,
    {"t": [1, 2]},
    {"dict": {}},
    {"c": [1.0, 2.0]},
    {"s": ["float32", 1.5]},
    {"a": ["float32", [2], 1, "usual"]},
    -7,
    99,
    {"slice": [0, 1, None]},
    {"a": ["int32", [], 1, "index"]},
    {"n": ["int64", [1], 1, "index"]},
    {"s": ["int64", 1]},
]


#: Of these the modules about errors take more.
WORSE = [
    *BAD,
    {"t": [-1]},
    {"t": [1.5]},
    {"t": [0, 0]},
    0,
    "float32",
    True,
    {"a": ["float32", [2, 2, 2], 1, "usual"]},
    {"a": ["complex64", [2], 1, "usual"]},
    {"a": ["bool", [3], 1, "usual"]},
    {"n": ["uint32", [3], 1, "usual"]},
    [None],
    {"slice": [0, 2, 0]},
    {"t": [{"t": [1, -1]}]},
]


def spoil(draw: Draw, args: list[Spec], kwargs: dict[str, Spec], options: list[Any] = BAD) -> None:
    """Replace one argument by something that mostly does not belong there."""
    places: list[Any] = [*range(len(args)), *kwargs]
    if not places:
        return
    place = draw.pick(places)
    target: Any = args if isinstance(place, int) else kwargs
    target[place] = draw.pick(options)


def calls(module: Any, prefix: str, each: int) -> Iterator[Any]:
    """`each` calls of every function of a generator module, some of them spoiled."""
    every = getattr(module, "SPOIL_EVERY", 4)
    times = getattr(module, "TIMES", {})
    make, x64_every = getattr(module, "DRAW", Draw), getattr(module, "X64_EVERY", 5)
    kind, options = ("bad ", WORSE) if every == 1 else ("", BAD)
    for family, names in module.FAMILIES.items():
        for name in names.split():
            draw = make(f"{kind}{prefix}.{name}")
            seen = set()
            for i in range(each * times.get(name, 1)):
                draw.name = name
                args, kwargs = family(draw)
                if i % every == every - 1:
                    spoil(draw, args, kwargs, options)
                alone = name.startswith(("Array.", "operator."))
                path = name if alone or not prefix else f"{prefix}.{name}"
                call = [path, int(i % x64_every == 1), args, kwargs]
                if repr(call) not in seen:
                    seen.add(repr(call))
                    yield call
