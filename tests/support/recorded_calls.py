"""Calls of public functions as data, and what came of them.

A call is `[function, x64, arguments, keywords]`: the function's path below the package, and
arguments in a small vocabulary of JSON, so that the same call can be made of JAX, when it is
recorded (`tools/record_jax.py`), and of amdjax, when it is replayed. Arrays are described by a
dtype, a shape, a seed and the kind of values, never stored.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import io
import json
import operator
import re
import warnings
import zlib

import ml_dtypes
import numpy as np

from tests.support import recorded_programs

#: What JAX raises by accident rather than by design; an error of ours that says what is wrong
#: with an argument answers it.
ACCIDENTAL = {
    "AssertionError",
    "AttributeError",
    "KeyError",
    "JaxRuntimeError",
    "XlaRuntimeError",
    "MLIRError",
    "RecursionError",
    "UnboundLocalError",
    "RuntimeError",
    "NameError",
    "StopIteration",
    "MemoryError",
    "InvalidInputException",
    "ZeroDivisionError",
    "Unhashable",
    "SystemError",
}
OF_ARGUMENTS = {"TypeError", "ValueError", "IndexError", "NotImplementedError", "OverflowError"}
#: Of NumPy's ufuncs, and of lists and tuples where arrays are wanted: no tracer was given.
AS_TYPE_ERROR = {"UFuncTypeError", "TracerArrayConversionError", "UnexpectedTracerError"}
#: Ways to make a call; of the last two only the types of what it gives are known.
MODES = ("eager", "jit", "vmap", "grad", "types", "slopes")
TYPES = ("types", "slopes")
ARRAYS = ("a", "w", "n")


class Nothing:
    """An object that no function takes."""

    def __repr__(self):
        return "Nothing()"


def dtype_named(name):
    return np.dtype(getattr(ml_dtypes, name, name))


@functools.lru_cache(10000)
def values(dtype, shape, seed, kind):
    """The elements of an array, the same on every machine."""
    rng, dtype = np.random.RandomState(seed), dtype_named(dtype)
    size = int(np.prod(shape))
    if dtype.kind == "b":
        flat = rng.randint(0, 2, size)
    elif dtype.kind in "iu":
        low = 0 if dtype.kind == "u" or kind in ("positive", "index") else -5
        flat = rng.randint(low, 6 if kind != "index" else 3, size) + (kind == "positive")
    else:
        # Few digits: every dtype holds them exactly, and none lies near a function's pole.
        flat = np.round(rng.normal(size=size) * 12) / 8 + 1 / 16
        if dtype.kind == "c":
            flat = flat + 1j * (np.round(rng.normal(size=size) * 12) / 8 + 1 / 16)
        if kind == "positive":
            flat = np.abs(flat)
        elif kind == "unit":
            flat = (flat % 0.875) + 0.0625 if dtype.kind != "c" else flat / 8
        elif kind == "index":
            flat = np.abs(np.round(flat)) % 3
        elif kind == "special":
            odd = rng.choice([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0], size=size)
            flat = np.where(rng.rand(size) < 0.5, odd, flat)
    flat = np.sort(flat) if kind == "sorted" else flat
    array = np.reshape(flat, shape)
    if kind == "definite":
        array = array @ np.conj(np.swapaxes(array, -1, -2)) + 4 * np.eye(shape[-1])
    with np.errstate(all="ignore"):
        return array.astype(dtype)


CALLABLES = {
    "sum": lambda numpy: numpy.sum,
    "sin": lambda numpy: numpy.sin,
    "add": lambda numpy: numpy.add,
    "sort": lambda numpy: numpy.sort,
    "negate": lambda numpy: lambda x: -x,
    "triu": lambda numpy: numpy.triu,
    "pair": lambda numpy: lambda x, y: x - 2 * y,
    "double": lambda numpy: lambda x: 2 * x,
    "less": lambda numpy: lambda x: x < 3,
    "body": lambda numpy: lambda i, x: x + i,
    "step": lambda numpy: lambda c, x: (c + x, c * x),
    "second": lambda numpy: lambda x, y: y,
}


def decode(spec, package):
    """The Python value that an argument's description means to `package` (jax or amdjax)."""
    if isinstance(spec, list):
        return [decode(s, package) for s in spec]
    if not isinstance(spec, dict):
        return spec
    ((tag, value),) = spec.items()
    again = functools.partial(decode, package=package)
    numpy = package.numpy
    return {
        "a": lambda: numpy.asarray(_array(value)),
        "n": lambda: _array(value),
        "w": lambda: numpy.broadcast_to(numpy.asarray(again(value[0])), tuple(value[1])),
        "s": lambda: dtype_named(value[0]).type(value[1]),
        "c": lambda: complex(*value),
        "d": lambda: dtype_named(value),
        "t": lambda: tuple(map(again, value)),
        "f": lambda: CALLABLES[value](numpy),
        "slice": lambda: slice(*map(again, value)),
        "dict": lambda: {k: again(v) for k, v in value.items()},
        "type": lambda: {"int": int, "float": float, "bool": bool, "complex": complex}[value],
        "scalar": lambda: getattr(numpy, value),
        "key": lambda: package.random.key(value),
        "...": lambda: ...,
        "object": Nothing,
        "name": lambda: resolve(value, package),
        "first": lambda: again(value)[0],
        "call": lambda: find(value[0], package)(**again({"dict": value[1]})),
    }[tag]()


def _array(spec):
    dtype, shape, seed, kind = spec
    return values(dtype, tuple(shape), seed, kind)


def find(path, package):
    """The function at `numpy.linalg.norm`, `Array.sum`, `operator.add`."""
    head, _, rest = path.partition(".")
    if head == "operator":
        return getattr(operator, rest)
    if head == "Array":
        return lambda self, *args, **kwargs: getattr(package.numpy.asarray(self), rest)(
            *args, **kwargs
        )
    if head == "made":
        make = resolve(rest, package)
        return functools.wraps(make)(lambda f, *args, **options: make(f, **options)(*args))
    if head == "programs":
        return functools.partial(getattr(recorded_programs, rest), package)
    fun = resolve(path, package)
    module, _, name = path.rpartition(".")
    if module == "nn.initializers" and name not in ("zeros", "ones"):
        return lambda *args, **kwargs: fun(**kwargs)(*args)
    return fun


def resolve(path, package):
    """What stands at a path; a name that is a function and a module is the function."""
    found, names = package, path.split(".")
    for i, name in enumerate(names):
        if not hasattr(found, name):
            importlib.import_module(".".join([package.__name__, *names[: i + 1]]))
        found = getattr(found, name)
    return found


def _of_arrays(spec):
    """Whether a description is that of an array, or of a list or tuple of arrays."""
    if isinstance(spec, dict):
        ((tag, value),) = spec.items()
        return tag in ARRAYS or (tag == "t" and _of_arrays(value))
    return isinstance(spec, list) and bool(spec) and all(map(_of_arrays, spec))


class Call:
    """A call made ready for one package: what is traced is apart from what is not."""

    def __init__(self, call, package):
        self.package = package
        self.path, self.x64, args, kwargs = call
        package.config.update("jax_enable_x64", bool(self.x64))
        self.fun = find(self.path, package)
        self.args = [decode(a, package) for a in args]
        self.kwargs = {k: decode(v, package) for k, v in kwargs.items()}
        tagged = [*enumerate(args), *kwargs.items()]
        self.traced = [k for k, a in tagged if _of_arrays(a)]

    def _get(self, key):
        return self.args[key] if isinstance(key, int) else self.kwargs[key]

    def with_traced(self, traced):
        args, kwargs = list(self.args), dict(self.kwargs)
        for key, value in zip(self.traced, traced, strict=True):
            if isinstance(key, int):
                args[key] = value
            else:
                kwargs[key] = value
        return self.fun(*args, **kwargs)

    def eager(self):
        return self.fun(*self.args, **self.kwargs)

    def jit(self):
        return self.package.jit(lambda t: self.with_traced(t))([self._get(k) for k in self.traced])

    def vmap(self):
        numpy, tree_map = self.package.numpy, self.package.tree_util.tree_map

        def twice(x):
            x = numpy.asarray(x)
            return numpy.stack([x, x[::-1] if x.ndim else x])

        rows = tree_map(twice, [self._get(k) for k in self.traced])
        out = self.package.vmap(lambda t: self.with_traced(t))(rows)
        return tree_map(lambda y: y[0], out)

    def types(self):
        return self._told(self.with_traced, [self._get(k) for k in self.traced])

    def slopes(self):
        return self._told(self.grad)

    def _told(self, f, *args):
        return self.package.tree_util.tree_map(_Told, self.package.eval_shape(f, *args))

    def grad(self):
        numpy = self.package.numpy

        def loss(t):
            leaves = self.package.tree_util.tree_leaves(self.with_traced(t))
            parts = [numpy.sum(numpy.real(y)) for y in leaves if _is_inexact(y)]
            return functools.reduce(operator.add, parts)

        return self.package.grad(loss, allow_int=True)([self._get(k) for k in self.traced])

    def differentiable(self):
        leaves = self.package.tree_util.tree_leaves([self._get(k) for k in self.traced])
        kinds = [np.dtype(numpy_dtype(x)) for x in leaves]
        return any(k in (np.float32, np.float64, np.complex64) for k in kinds)


class _Told:
    """A result of which only the type is known."""

    def __init__(self, type):
        self.type = type


def _is_inexact(y):
    return hasattr(y, "dtype") and np.dtype(y.dtype).kind not in "biu" and "int" not in y.dtype.name


def numpy_dtype(x):
    return getattr(x, "dtype", np.asarray(x).dtype)


def outcome(thunk, package):
    """What a call gives and its values, or an error's classes and its text."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            found = []
            described = _describe(thunk(), package, found)
            return described, found
        except Exception as e:
            # JAX hashes options that it compiles for; what they are is not looked at before.
            names = [c.__name__ for c in type(e).__mro__ if c not in (BaseException, object)]
            if "hashable" in str(e):
                names.insert(0, "Unhashable")
            return {"error": names}, [str(e)]


def _describe(value, package, found):
    if isinstance(value, dict):
        return {"dict": {str(k): _describe(v, package, found) for k, v in sorted(value.items())}}
    if isinstance(value, (tuple, list)):
        return {type(value).__name__: [_describe(v, package, found) for v in value]}
    if isinstance(value, _Told):
        return [str(value.type.dtype), list(value.type.shape), int(bool(value.type.weak_type))]
    if isinstance(value, package.Array) and not isinstance(value.dtype, np.dtype):
        data = package.random.key_data(value)
        return {str(value.dtype): [_describe(data, package, found)]}
    if isinstance(value, package.Array):
        found.append(np.asarray(value))
        return [value.dtype.name, list(value.shape), int(bool(value.weak_type))]
    if isinstance(value, (np.ndarray, np.generic)):
        found.append(np.asarray(value))
        return ["numpy", value.dtype.name, list(value.shape)]
    if callable(value) and not isinstance(value, type):
        return {"python": "callable"}
    return {"python": repr(value).replace("amdjax", "jax").replace("ArrayImpl", "Array")}


#: Units in the last place of a result's dtype by which values may differ, relative to its largest.
_ROUNDINGS = {
    "bfloat16": 4,
    "float16": 8,
    "float32": 64,
    "float64": 256,
    "complex64": 128,
    "complex128": 512,
}


def close(ours, theirs, slack=1.0):
    """Whether values agree up to rounding; integers exactly."""
    if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
        return False
    if ours.dtype.names or not ours.size:
        return True
    if ours.dtype.name not in _ROUNDINGS:
        return bool((ours == theirs).all())
    wide = np.complex128 if ours.dtype.kind == "c" else np.float64
    a, b = ours.astype(wide), theirs.astype(wide)
    eps = float(ml_dtypes.finfo(ours.dtype).eps)
    with np.errstate(all="ignore"):
        largest = np.max(np.abs(b), where=np.isfinite(b), initial=0.0)
        bound = slack * _ROUNDINGS[ours.dtype.name] * eps * np.maximum(np.abs(b), largest / 16)
        same = (a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= bound + eps * eps)
    return bool(same.all())


def _plain(described):
    """JAX's literals, which are Python's numbers that know their dtype, as arrays."""
    if isinstance(described, list):
        return [_plain(part) for part in described]
    if isinstance(described, dict):
        literal = re.fullmatch(r"Typed\w+\(.*, dtype=(\w+)\)", str(described.get("python")))
        if literal:
            return [literal[1], [], 1]
        return {kind: _plain(part) for kind, part in described.items()}
    return described


def differences(ours, theirs, slack=1.0, check_values=True):
    """What distinguishes our outcome from a recorded one, None if nothing that counts."""
    (mine, my_values), (recorded, their_values) = ours, (_plain(theirs[0]), theirs[1])
    if isinstance(recorded, dict) and "error" in recorded:
        theirs_is = recorded["error"][0]
        if theirs_is in AS_TYPE_ERROR:
            theirs_is = "TypeError"
        if not (isinstance(mine, dict) and "error" in mine):
            # What JAX has not implemented we may have.
            lenient = theirs_is in ACCIDENTAL or theirs_is == "NotImplementedError"
            return None if lenient else f"accepted; JAX raises {theirs_is}"
        of_arguments = not OF_ARGUMENTS.isdisjoint(mine["error"])
        if theirs_is in mine["error"] or (theirs_is in ACCIDENTAL and of_arguments):
            return None
        return f"raises {mine['error'][0]}; JAX {theirs_is}"
    if isinstance(mine, dict) and "error" in mine:
        return f"raises {mine['error'][0]}; JAX gives {json.dumps(recorded)}"
    if mine != recorded:
        return f"{json.dumps(mine)}; JAX {json.dumps(recorded)}"
    if check_values and recorded == theirs[0]:
        for a, b in zip(my_values, their_values, strict=True):
            if not close(a, b, slack):
                return f"{a.tolist()}; JAX {b.tolist()}"
    return None


# The file: one text of JSON and one run of bytes, compressed.


def save(path, cases):
    """Write `[(call, {mode: outcome}), …]`; an outcome "same" needs no values of its own."""
    text, blob = [], io.BytesIO()
    for call, outcomes in cases:
        told = {}
        for mode, found in outcomes.items():
            if found == "same":
                told[mode] = "same"
                continue
            described, arrays = found
            told[mode] = described
            for a in [] if "error" in described else arrays:
                blob.write(np.ascontiguousarray(a).tobytes())
        text.append(json.dumps([call, told], separators=(",", ":")))
    raw = np.frombuffer("\n".join(text).encode(), np.uint8)
    np.savez(
        path,
        cases=np.frombuffer(zlib.compress(raw.tobytes(), 9), np.uint8),
        values=np.frombuffer(zlib.compress(blob.getvalue(), 9), np.uint8),
    )


def load(path):
    """`[(call, {mode: outcome}), …]` as they were saved."""
    with np.load(path, allow_pickle=False) as file:
        text = zlib.decompress(file["cases"].tobytes()).decode()
        blob = zlib.decompress(file["values"].tobytes())
    at, cases = 0, []
    for line in text.split("\n"):
        call, told = json.loads(line)
        outcomes = {}
        for mode, described in told.items():
            if described == "same":
                outcomes[mode] = "same"
                continue
            arrays = []
            for dtype, shape in [] if mode in TYPES else _leaves(described):
                if not dtype.itemsize:  # float0
                    arrays.append(np.zeros(shape, dtype))
                    continue
                size = dtype.itemsize * int(np.prod(shape))
                arrays.append(np.frombuffer(blob[at : at + size], dtype).reshape(shape))
                at += size
            outcomes[mode] = described, arrays
        cases.append((call, outcomes))
    return cases


def _leaves(described):
    if isinstance(described, list):
        name, shape = described[-2:] if described[0] == "numpy" else described[:2]
        if name != "float0" and not name.startswith("void"):
            yield dtype_named(name), shape
        else:
            yield np.dtype([("float0", np.void, 0)]), shape
    elif "dict" in described:
        for part in described["dict"].values():
            yield from _leaves(part)
    elif "error" not in described and "python" not in described:
        (parts,) = described.values()
        for part in parts:
            yield from _leaves(part)


def departures(path):
    """The `(call, mode)` that are known to differ from JAX."""
    if not path.exists():
        return set()
    lines = (json.loads(line) for line in path.read_text().splitlines())
    return {(json.dumps(call), mode) for call, mode, _ in lines}


#: Functions whose results are settled only up to a sign, an order or a basis, or extrapolated as
#: `odeint`'s at times that are not sorted.
UNSETTLED = re.compile(
    r"linalg\.(eig|eigh|svd|qr|schur|eigvals)$|\.empty|partition|rng_uniform|numpy\.roots|odeint$"
)
#: Functions whose results are texts.
PRINTS = re.compile(r"array_repr$|array_str$|array2string$")
#: Decompositions and transforms round more than a few operations do.
ROUGH = re.compile(
    r"special|random|linalg|fft|poly|gelu|roots|cov|corr|logspace|geomspace|unwrap|i0|var|std"
)


def unclear(call, message, made):
    """Whether an error says nothing of its call: no argument's name, no value, not who refuses."""
    if call[0].startswith("operator."):  # Python's own words, which name no operand
        return False
    try:
        parameters = inspect.signature(made.fun).parameters
    except (TypeError, ValueError):
        parameters = {}
    arguments = [*call[2], *call[3].values()]
    words = {word for value in arguments for word in _shown(value, made.package)}
    name = call[0].rpartition(".")[2]
    names = {name, getattr(made.fun, "__name__", name), *parameters, *call[3], "axis"}
    # A letter is a name where it is quoted, listed or said something of.
    letters = "|".join(re.escape(n) for n in names if len(n) == 1)
    longer = [re.escape(n) for n in names if len(n) > 1]
    known = rf"\b({'|'.join(longer)})\b|(^|\W)({letters})(['`,:=]| must| has| should)"
    return not (re.search(known, message) or any(w in message for w in words if len(w) > 1))


def _shown(spec, package):
    """How a message can show an argument: as itself, or by its type, dtype or shape."""
    if isinstance(spec, dict) and (array := next((spec[k] for k in ARRAYS if k in spec), None)):
        dtype, shape = array[:2]
        yield from (str(tuple(shape)), str(list(shape)), str(dtype), f"{len(shape)}-dimensional")
        return
    parts = spec.get("t", []) if isinstance(spec, dict) else spec
    for part in parts if isinstance(parts, list) else []:
        yield from _shown(part, package)
    value = decode(spec, package)
    yield from (repr(value), str(value), repr(type(value)))
    if isinstance(value, (bool, int, float, complex, np.generic)):
        yield package.numpy.result_type(value).name
    if isinstance(value, (bool, int, float, complex, np.generic, list, tuple)):
        with contextlib.suppress(ValueError):
            yield str(np.shape(value))


def replay(call, outcomes, modes=MODES):
    """`(mode, what differs)` of a recorded call made of amdjax.

    Two of the modes are none of JAX's: a `message` that says nothing, and arrays `printed` by a
    call that succeeds, which takes longer than most calls.
    """
    import amdjax

    made = Call(call, amdjax)
    slack = 16 if ROUGH.search(call[0]) else 1
    settled = not UNSETTLED.search(call[0])
    for mode, expected in outcomes.items():
        if mode not in modes:
            continue
        expected = outcomes["eager"] if expected == "same" else expected
        printed = []
        watched = getattr(made, mode) if PRINTS.search(call[0]) else _watched(made, mode, printed)
        ours = outcome(watched, amdjax)
        if printed and "error" not in ours[0]:
            yield "printed", f"arrays of shapes {printed} were written out, as for a message"
        check = settled and not (mode == "grad" and "linalg" in call[0])
        if mode == "grad":
            ours, expected = ((_strong(told), arrays) for told, arrays in (ours, expected))
        told = differences(ours, expected, slack if mode == "eager" else 4 * slack, check)
        if told:
            yield mode, told
        if mode == "eager" and "error" in ours[0] and unclear(call, ours[1][0], made):
            yield "message", ours[1][0]


def _watched(made, mode, printed):
    """A call that notes the shapes of arrays of NumPy that it writes out as text."""

    def run():
        with np.printoptions(override_repr=lambda x: printed.append(x.shape) or "array"):
            return getattr(made, mode)()

    return run


def _strong(described):
    """A description of gradients without their weak types."""
    if isinstance(described, list):
        return described if described[0] == "numpy" else [*described[:2], 0]
    if "error" in described or "python" in described:
        return described
    ((kind, parts),) = described.items()
    return {kind: [_strong(part) for part in parts]}
