"""Machinery of the back is made of parts: no class stands on a chain of others."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "amdjax"
#: Classes of a chain at most. Those of tile operations are what their lowerings are found by, and a
#: HIP device is a GPU, which is a device.
DEEPEST = {
    "codegen": 2, "emulator": 2, "jit": 2, "kernels": 2, "passes": 2, "runtime": 3, "schedule": 2,
    "targets": 2, "tile": 3,
}  # fmt: skip


def bases(trees):
    """The names of each class's bases."""
    return {
        node.name: [name for base in node.bases if (name := base_name(base))]
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }


def base_name(node):
    """`A` of `A`, `module.A` and `A[T]`."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return getattr(node, "id", None) or getattr(node, "attr", None)


def chain(name, known):
    """The longest chain of classes of the package from one up."""
    found = [chain(base, known) for base in known.get(name, ()) if base != name and base in known]
    return [name, *max(found, key=len, default=[])]


@pytest.mark.parametrize("room", DEEPEST)
def test_classes_stand_on_few_others(room):
    trees = [ast.parse(path.read_text()) for path in sorted((PACKAGE / room).rglob("*.py"))]
    known = bases(trees)
    chains = [chain(name, known) for name in known]
    deep = [x for x in chains if len(x) > DEEPEST[room] and not x[-1].endswith("Error")]
    assert [" -> ".join(x) for x in deep] == []


def test_chains_are_found():
    known = bases(
        [ast.parse("class A: pass\nclass B(x.A): pass\nclass C(B[int], Generic[T]): pass")]
    )
    assert chain("C", known) == ["C", "B", "A"] and chain("A", known) == ["A"]
