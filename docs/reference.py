"""Pages of the reference, written from signatures and docstrings of the imported package.

Many docstrings are completed when their module is loaded (`amdjax.core.docs`), so that only the
running package has them all.
"""

import importlib
import inspect
import re
import shutil
from collections import defaultdict
from pathlib import Path

from sphinx.util.inspect import stringify_signature

MODULES = {
    "Transformations": ("amdjax", "amdjax.ad", "amdjax.ad_checkpoint", "amdjax.checkpoint_policies",
                        "amdjax.custom_batching", "amdjax.custom_derivatives"),
    "Arrays": ("amdjax.numpy", "amdjax.numpy.fft", "amdjax.numpy.linalg", "amdjax.lax",
               "amdjax.lax.linalg", "amdjax.ops", "amdjax.random", "amdjax.image",
               "amdjax.dlpack", "amdjax.ref"),
    "Scientific functions": tuple(
        f"amdjax.scipy.{name}"
        for name in ("cluster.vq", "fft", "integrate", "interpolate", "linalg", "ndimage",
                     "optimize", "signal", "sparse.linalg", "spatial.transform", "special", "stats")
    ),
    "Networks": ("amdjax.nn", "amdjax.nn.data", "amdjax.nn.initializers", "amdjax.rnn",
                 "amdjax.optim", "amdjax.quantize"),
    "Models from files": ("amdjax.onnx", "amdjax.tf"),
    "Pytrees": ("amdjax.tree", "amdjax.tree_util", "amdjax.flatten_util"),
    "Devices and tools": ("amdjax.sharding", "amdjax.distributed", "amdjax.debug",
                          "amdjax.profiler", "amdjax.monitoring", "amdjax.stages",
                          "amdjax.find", "amdjax.export", "amdjax.test_util"),
}  # fmt: skip

FIELDS = {"Args": ":param {}:", "Raises": ":raises {}:"}


def write(folder: Path) -> None:
    """Write a page for each module, and one that lists them."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    lines = ["# API reference", ""]
    for heading, modules in MODULES.items():
        lines += ["```{toctree}", f":caption: {heading}", ":maxdepth: 1", "", *modules, "```", ""]
        for module in modules:
            (folder / f"{module}.md").write_text(page(module))
    (folder / "index.md").write_text("\n".join(lines))


def page(name: str) -> str:
    """The page of a module."""
    module = importlib.import_module(name)
    parts = [f"# {name}", f"```{{py:module}} {name}\n```", inspect.getdoc(module) or ""]
    parts += [entry(*found) for found in offered(module)]
    for below in vars(module).values() if name == "amdjax.scipy.stats" else ():
        # A distribution is a module.
        if inspect.ismodule(below) and (hasattr(below, "pdf") or hasattr(below, "pmf")):
            parts += [f"## {below.__name__}", f"```{{py:module}} {below.__name__}\n```"]
            parts += [inspect.getdoc(below), *(entry(*found) for found in offered(below))]
    return "\n\n".join(parts) + "\n"


def offered(module) -> list[tuple[list[str], object]]:
    """What a module offers to call, with all its names."""
    names = getattr(module, "__all__", None) or [n for n in vars(module) if n[0] != "_"]
    if module.__name__ == "amdjax":
        names = sorted({*names, *module._ELSEWHERE, "jit"}, key=str.lower)
    found, values = defaultdict(list), {}
    for name in names:
        value = getattr(module, name)
        home = str(getattr(inspect.unwrap(value), "__module__", ""))
        ours = home.startswith("amdjax") and not inspect.ismodule(value)
        if callable(value) and (ours or value is module.__dict__.get("jit")):
            found[id(value)].append(name)
            values[id(value)] = value
    return [(names, values[key]) for key, names in found.items()]


def entry(names: list[str], value: object) -> str:
    """A function or class as a directive of Sphinx's Python domain."""
    kind = "class" if isinstance(value, type) else "function"
    heads = [f"{name}{signature(value)}" for name in names]
    return directive(kind, heads, body(inspect.getdoc(value) or "") + methods(value))


def directive(kind: str, heads: list[str], text: str) -> str:
    """One of Sphinx's directives; `heads` are several where names share a text."""
    fence = "`" * (5 if kind in ("class", "function") else 4)
    return "\n".join([f"{fence}{{py:{kind}}} " + "\n".join(heads), "", text, fence])


def methods(value: object) -> str:
    """The public methods that a class of ours defines."""
    if not isinstance(value, type):
        return ""
    found = []
    for name, member in vars(value).items():
        function = getattr(member, "__func__", member)
        if name[0] != "_" and inspect.isfunction(function) and function.__doc__:
            text = body(inspect.getdoc(function))
            found.append(directive("method", [f"{name}{signature(function)}"], text))
    return "\n\n" + "\n\n".join(found)


def signature(value: object) -> str:
    """Parameters with their types and defaults."""
    try:
        inner = value if isinstance(value, type) else inspect.unwrap(value)
        text = stringify_signature(inspect.signature(inner))
    except (TypeError, ValueError):
        return "(…)"
    # A default such as <function zeros at 0x7f18> is called by its name.
    return re.sub(r"<(?:function |class ')?([\w.]+)[^<>]*>", r"\1", text)


def body(doc: str) -> str:
    """A docstring as Markdown, its sections as fields."""
    parts: list[str] = []
    section, entries, example = "", [], []
    for line in doc.splitlines():
        if line.rstrip(":") in ("Args", "Returns", "Raises", "Example") and line.endswith(":"):
            section = line[:-1]
        elif section == "Example":
            example.append(line[2:])
        elif section and line.startswith("   ") and entries:
            entries[-1] += " " + line.strip()
        elif section and line.strip():
            entries.append(field(section, line.strip(), entries))
        elif not section:
            parts.append(line)
    text = "\n".join(parts).strip() + "\n\n" + "\n".join(e for e in entries if e)
    if example:
        text += "\n\n```pycon\n" + "\n".join(example).strip("\n") + "\n```"
    return text + "\n"


def field(section: str, line: str, before: list[str]) -> str:
    """A line of a section as a field; what is returned may take several lines."""
    if section == "Returns":
        if before and before[-1].startswith(":returns:"):
            before[-1] += " " + line
            return ""
        return f":returns: {line}"
    name, colon, text = line.partition(": ")
    return f"{FIELDS[section].format(name)} {text}" if colon else line
