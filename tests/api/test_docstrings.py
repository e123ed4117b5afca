"""Every public function says what it takes, gives and refuses, and shows a call.

The rule is read off signatures and sources: each parameter is described under `Args:` by its name
and nothing else is, `Returns:` is there unless nothing is returned, `Raises:` names the errors that
the function's own lines raise, and an `Example:` ends it. What the docstrings say of arguments that
many functions share (what is no array, an axis out of range, `out`) is tried on the functions.
"""

import ast
import enum
import importlib
import inspect
import re
import textwrap
import typing

import numpy as np
import pytest

import amdjax
from amdjax.experimental import sparse
from amdjax.scipy import special

pytestmark = pytest.mark.turns(1)  # what only one case sees

DISTRIBUTIONS = [
    name
    for name, value in vars(amdjax.scipy.stats).items()
    if inspect.ismodule(value) and hasattr(value, "pdf" if hasattr(value, "pdf") else "pmf")
]
MODULES = (
    *("numpy", "numpy.fft", "numpy.linalg", "nn", "nn.data", "nn.initializers", "optim", "rnn"),
    *("quantize", "onnx"),
    *("scipy.cluster.vq", "scipy.fft", "scipy.integrate", "scipy.interpolate", "scipy.linalg"),
    *("scipy.ndimage", "scipy.optimize", "scipy.signal", "scipy.sparse.linalg"),
    *("scipy.spatial.transform", "scipy.special", "scipy.stats"),
    *(f"scipy.stats.{name}" for name in DISTRIBUTIONS),
    *("", "lax", "lax.linalg", "random", "image", "tree", "tree_util", "flatten_util", "ops"),
    *("ad", "ad_checkpoint", "checkpoint_policies", "custom_batching", "custom_derivatives", "ref"),
    *("tf", "sharding", "dlpack", "debug", "profiler", "monitoring", "distributed", "stages"),
    *("test_util", "experimental", "example_libraries.optimizers", "example_libraries.stax"),
    *(f"experimental.{name}" for name in ("checkify", "jet", "key_reuse", "layout", "mesh_utils")),
    *(f"experimental.{name}" for name in ("multihost_utils", "ode", "pjit", "random", "rnn")),
    *(f"experimental.{name}" for name in ("shard_map", "sparse", "sparse.linalg", "sparse.util")),
    *(f"extend.{name}" for name in ("backend", "core", "core.primitives", "linear_util", "random")),
    *(f"extend.{name}" for name in ("source_info_util", "tracebacks", "values")),
    *(f"interpreters.{name}" for name in ("ad", "batching", "mlir", "partial_eval", "xla")),
)

SECTIONS = ("Args", "Returns", "Raises", "Example")


def public(module):
    """The functions and classes of amdjax that a module offers, each once."""
    seen = set()
    names = getattr(module, "__all__", None) or [n for n in vars(module) if not n.startswith("_")]
    for name in names:
        value = getattr(module, name)
        if inspect.ismodule(value) or not callable(value) or id(value) in seen:
            continue
        inner = value if isinstance(value, type) else inspect.unwrap(value)
        if str(getattr(inner, "__module__", "")).startswith("amdjax"):
            seen.add(id(value))
            yield name, value


CALLABLES = [
    pytest.param(f"{module}.{name}".strip("."), value, id=f"{module}.{name}".strip("."))
    for module in MODULES
    for name, value in public(importlib.import_module(f"amdjax.{module}".rstrip(".")))
]
FUNCTIONS = [case for case in CALLABLES if not isinstance(case.values[1], type)]


def parsed(doc):
    """The text before all sections, and the lines of each."""
    text, sections = [], {}
    current = text
    for line in doc.splitlines():
        if line.rstrip(":") in SECTIONS and line.endswith(":"):
            current = sections.setdefault(line.rstrip(":"), [])
            continue
        if line.lstrip().startswith(">>>"):  # which needs no heading
            current = sections.setdefault("Example", [])
        current.append(line)
    return "\n".join(text), sections


def described(lines):
    """The names that stand before a colon in the lines of a section."""
    heads = [re.match(r"  ([\w*, `]+):", line) for line in lines if not line.startswith("   ")]
    return [name.strip(" *`") for head in heads if head for name in head[1].split(",")]


def parameters(value):
    """Those of a function, or of the making of an object; None where they are not its own."""
    if isinstance(value, type):
        if issubclass(value, (enum.Enum, BaseException)) or getattr(value, "_is_protocol", False):
            return None
        own = value.__init__ is not object.__init__ or hasattr(value, "_fields")
        if not own or type(value).__call__ is not type.__call__:
            return None
    signature = inspect.signature(value if isinstance(value, type) else inspect.unwrap(value))
    return [p for p in signature.parameters.values() if not p.name.startswith("_")]


def raised(function):
    """The classes of errors that the lines of a function itself raise."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function))))
    except (OSError, TypeError, SyntaxError):
        return set()
    made = (n.exc.func for n in ast.walk(tree) if isinstance(n, ast.Raise) and _called(n.exc))
    names = {f.attr if isinstance(f, ast.Attribute) else f.id for f in made}
    return {name for name in names if name[0].isupper()}  # others are functions that make errors


def _called(node):
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute)


def returns_nothing(value):
    annotation = getattr(inspect.unwrap(value), "__annotations__", {}).get("return")
    nothing = ("None", None, type(None), "NoReturn", typing.NoReturn)
    return annotation in nothing or "NotImplementedError: always." in value.__doc__


@pytest.mark.parametrize(("name", "value"), CALLABLES)
def test_documented(name, value):
    doc = inspect.getdoc(value) or ""
    text, sections = parsed(doc)
    assert text.partition("\n\n")[0].strip().endswith("."), "a sentence stands first"
    assert list(sections) == [s for s in SECTIONS if s in sections], "sections in order"
    wanted = parameters(value)
    if wanted is None:
        return
    names = [p.name for p in wanted]
    takes = described(sections.get("Args", ()))
    rest = next((p.name for p in wanted if p.kind is p.VAR_KEYWORD), None)
    if rest not in takes and set(takes) > set(names) - {rest}:  # those of `**kwargs` by name
        names = takes
    assert sorted(takes) == sorted(names), "what `Args:` describes are the parameters"
    if isinstance(value, type):
        return
    assert returns_nothing(value) or "Returns" in sections, "what is returned"
    errors = [line.strip().rstrip(".") for line in sections.get("Raises", ())]
    errors = [line for line in errors if re.match(r"\w+: ", line)]
    assert len(errors) == len(set(errors)), "each error once"
    missing = raised(value) - set(described(sections.get("Raises", ())))
    assert not missing, f"errors that `Raises:` lacks: {missing}"
    if "NotImplementedError: always." not in doc:
        assert any(">>>" in line for line in sections.get("Example", ())), "an example"


#: Where the classes are defined whose methods are documented as functions are, but for examples.
ROOMS = (
    *("core.array", "nn", "rnn", "optim", "jit.stages", "profiler", "transforms.staging"),
    *("transforms.custom_vmap", "experimental.random", "experimental.sparse", "random.key_reuse"),
)


def methods():
    """The public methods and properties of the classes in `ROOMS`, each once."""
    classes = [case.values[1] for case in CALLABLES if isinstance(case.values[1], type)]
    rooms = tuple(f"amdjax.{room}" for room in ROOMS)
    bases = {base: None for cls in (*classes, amdjax.ref.Ref) for base in cls.__mro__}
    for cls in bases:
        if cls.__module__.startswith(rooms) or cls is amdjax.ref.Ref:
            for name, value in vars(cls).items():
                value = getattr(value, "__func__", value)
                if name[0] != "_" and (inspect.isfunction(value) or isinstance(value, property)):
                    yield pytest.param(value, id=f"{cls.__module__[7:]}.{cls.__name__}.{name}")


@pytest.mark.parametrize("method", list(methods()))
def test_methods_documented(method):
    doc = inspect.getdoc(method) or ""
    text, sections = parsed(doc)
    assert text.partition("\n\n")[0].strip().endswith("."), "a sentence stands first"
    if isinstance(method, property) or re.search(r"\b([Aa]s|[Ss]ee) `", doc):
        return  # what it refers to says the rest
    inner = inspect.unwrap(method)
    names = set(inspect.signature(inner).parameters) - {"self", "cls"}
    takes = set(described(sections.get("Args", ())))
    assert takes in (names, names | {"a"}, names - {"a"}), "what `Args:` describes"
    assert not names - {"a"} or returns_nothing(inner) or "Returns" in sections, "what is returned"


NO_ARRAY = "TypeError: for what is neither an array nor a number."


def with_phrase(phrase):
    return [case for case in FUNCTIONS if phrase in (case.values[1].__doc__ or "")]


@pytest.mark.parametrize(("name", "function"), with_phrase(NO_ARRAY))
def test_refuses_what_is_no_array(name, function):
    wanted = [p for p in parameters(function) if p.default is p.empty]
    arrays = [p.annotation == "ArrayLike" for p in wanted]
    args = ["no array" if array else 2 for array in arrays] if any(arrays) else ["no array"]
    keywords = {"inplace": False} if "inplace" in inspect.signature(function).parameters else {}
    with pytest.raises(TypeError):
        function(*args, **keywords)


def calls(name, function):
    """The calls of a function in its example, as (callee, args, keywords) of values."""
    short = name.rpartition(".")[2]
    space = {"jnp": amdjax.numpy, "np": np, "amdjax": amdjax, "special": special, "sparse": sparse}
    space |= {name: getattr(amdjax, name) for name in ("lax", "nn", "optim", "random", "rnn")}
    lines = [
        line.strip()[4:] for line in function.__doc__.splitlines() if line.strip()[:3] == ">>>"
    ]
    for line in lines:
        tree = ast.parse(line)
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == short:
                value = lambda n: eval(compile(ast.Expression(n), "", "eval"), space)
                yield (
                    [value(a) for a in node.args],
                    {k.arg: value(k.value) for k in node.keywords},
                )
        if isinstance(tree.body[0], ast.Assign | ast.Import):
            exec(compile(tree, "", "exec"), space)


SHARED = {
    "out": (1.0, NotImplementedError, "NotImplementedError: if `out` is given."),
    "axis": (99, ValueError, "ValueError: for an axis out of range"),
    "axes": ((99, 98), ValueError, "ValueError: for an axis out of range"),
}


@pytest.mark.parametrize(
    ("name", "function", "parameter"),
    [
        pytest.param(*case.values, parameter, id=f"{case.id}-{parameter}")
        for parameter, (_, _, phrase) in SHARED.items()
        for case in with_phrase(phrase)
        if parameter in [p.name for p in parameters(case.values[1])]
    ],
)
def test_refuses_shared_arguments(name, function, parameter):
    value, error, _ = SHARED[parameter]
    order = [
        p.name
        for p in parameters(function)
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    for args, keywords in calls(name, function):
        if parameter in order[: len(args)]:
            args[order.index(parameter)] = value
        else:
            keywords[parameter] = value
        with pytest.raises(error):
            function(*args, **keywords)
        return
    pytest.skip("the example calls it by another name")


def test_tables_describe_parameters():
    from amdjax.lax import _docs as lax
    from amdjax.nn import _docs as nn
    from amdjax.numpy import _docs as numpy
    from amdjax.optim import _docs as optim
    from amdjax.scipy.special import _docs as functions

    tables = {
        amdjax.numpy: numpy.FAMILIES,
        amdjax.numpy.fft: numpy.FFT,
        amdjax.numpy.linalg: numpy.LINALG,
        amdjax.lax: lax.FAMILIES,
        amdjax.nn: nn.FAMILIES,
        amdjax.nn.initializers: nn.INITIALIZERS,
        amdjax.optim: optim.FAMILIES,
        amdjax.scipy.special: functions.FAMILIES,
    }
    for module, families in tables.items():
        for family in families:
            functions = [getattr(module, name) for name in family.names]
            names = {p.name for function in functions for p in parameters(function)}
            assert set(family.parameters) <= names, family.names
