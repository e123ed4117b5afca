"""No file of the package imports, be it late or for types alone, what imports it."""

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "amdjax"


def imported(name, source, files):
    """The files among some that one imports anywhere; its name ends in `.__init__` if it is one."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = name.split(".")[: -node.level] if node.level else []
            module = ".".join([*above, *filter(None, [node.module])])
            for inner in (f"{module}.{alias.name}" for alias in node.names):
                yield inner if {inner, f"{inner}.__init__"} & files else module


def circle(sources):
    """The files of a circle of imports, if there is one."""
    files = sources.keys()
    graph = {
        name.removesuffix(".__init__"): {
            module
            for module in imported(name, source, files)
            if {module, f"{module}.__init__"} & files and module != name.removesuffix(".__init__")
        }
        for name, source in sources.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def test_files_stand_one_above_the_other():
    root = PACKAGE.parent
    sources = {
        ".".join(path.relative_to(root).with_suffix("").parts): path.read_text()
        for path in PACKAGE.rglob("*.py")
    }
    assert circle(sources) == []


def test_a_circle_is_found():
    late = {"a.b": "from a import c", "a.c": "def f():\n    from .b import x", "a.__init__": ""}
    assert set(circle(late)) == {"a.b", "a.c"}
    assert circle({**late, "a.c": "import d"}) == []
    assert circle({"a.__init__": "from . import b", "a.b": "import a"})
