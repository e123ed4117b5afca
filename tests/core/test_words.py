"""Names of the compiler are terms of the field, spelled as in America."""

import ast
import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "amdjax"
TREES = ("amdjax", "benchmarks", "docs", "examples", "notebooks", "tests", "tools")
ROOMS = (
    "codegen", "emulator", "jit", "kernels", "passes", "runtime", "schedule", "targets", "tile",
)  # fmt: skip
BACK = [path for room in ROOMS for path in sorted((PACKAGE / room).rglob("*.py"))]
FRONT = sorted(set(PACKAGE.rglob("*.py")) - set(BACK))

#: In any name, and what is said instead.
NOT_SAID = {
    "walk": "traverse, pass", "walks": "passes", "walked": "traversed", "walking": "traversal",
    "dear": "expensive", "nobody": "none", "whoever": "the owner", "somebody": "any",
    "neighbour": "adjacent", "neighbours": "contiguity", "thin": "few columns",
    "sideways": "transposed", "sofar": "prefix", "piece": "split", "pieces": "splits",
    "moves": "shifts, transfers, layout conversion", "members": "batch, elements",
    "around": "outer", "ahead": "prefetch distance",
}  # fmt: skip
#: What the front, whose names are JAX's and of other fields, does not say either.
NOWHERE_SAID = (
    "walks", "walked", "walking", "dear", "nobody", "whoever", "somebody", "neighbour",
    "neighbours", "sideways", "sofar",
)  # fmt: skip
#: As the whole name of a field: adverbs say how something is, fields are nouns.
ADVERBS = {
    "across", "along", "alone", "apart", "aside", "before", "beside", "down", "elsewhere",
    "everywhere", "far", "near", "there", "together", "up",
}  # fmt: skip

#: Stems and endings that are spelled otherwise in America.
BRITISH = re.compile(
    r"(?:[a-z]al|mmar|ular|ear|eter|ogn|[kt]en|chron|ector|[tnx]im|[mt]or|metr|cret|quant|dom)"
    r"is(?:e[drs]?|ing|ations?)\b"
    r"|behaviour|neighbour|colour|flavour|favour|honour|centre|labelled|modelled|cancelled|artefact"
    r"|misspelt|towards",
    re.IGNORECASE,
)
#: Not said in prose either.
PERSONAL = re.compile(r"\b(?:nobody|whoever|somebody|dear(?:er|est)?)\b", re.IGNORECASE)
OF_OTHERS = "optx.minimise"
"""A name of another library, which spells it so."""


def words(name):
    """The words of a name in snake or camel case."""
    return [w.lower() for w in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


def names(tree):
    """(line, name, whether it is a field) of all that a file defines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.lineno, node.name, False
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg, False
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr, True
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id, False
        if isinstance(node, ast.ClassDef):
            for field in node.body:
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                    yield field.lineno, field.target.id, True


def wrong(tree):
    """What is wrong with the names of a file."""
    for line, name, is_field in names(tree):
        for word in NOT_SAID.keys() & words(name):
            yield f"line {line}: {name}; say {NOT_SAID[word]}"
        if is_field and name.strip("_") in ADVERBS:
            yield f"line {line}: the field {name} is no noun"
        if is_field and name.strip("_") == "unit":
            yield f"line {line}: the field {name}; say granularity, tile, batch, compile unit"


@pytest.mark.parametrize("path", BACK, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_names_are_terms_of_the_field(path):
    found = [f"{path.name}: a file" for word in words(path.stem) if word in NOT_SAID]
    assert [*found, *wrong(ast.parse(path.read_text()))] == []


def test_names_of_the_front_are_terms_too():
    found = {str(p): [n for _, n, _ in names(ast.parse(p.read_text()))] for p in FRONT}
    bad = [(p, n) for p, all_names in found.items() for n in all_names
           if set(NOWHERE_SAID) & set(words(n))]  # fmt: skip
    assert bad == []


@pytest.mark.parametrize(
    "text",
    [
        "def row_walks(): pass", "class RowWalk: pass", "def f(neighbours): pass", "x.apart = 1",
        "class A:\n    ahead: int", "self._together = 2", "for nobody in (): pass",
        "def f(pieces): pass", "x.unit = 1", "class A:\n    far: tuple",
    ],
)  # fmt: skip
def test_words_are_found(text):
    assert list(wrong(ast.parse(text)))


@pytest.mark.parametrize(
    "text", ["near = 1", "lanes_apart = 2", "crosswalks = 3", "x.distance = 1"]
)
def test_other_words_may_be_said(text):
    assert not list(wrong(ast.parse(text)))


def test_british_words_are_found():
    assert len(BRITISH.findall("optimised factorisation of neighbours")) == 3
    assert not BRITISH.search("arise, precise, promise, otherwise, initialized, toward the center")


@pytest.mark.parametrize("tree", ["amdjax", "docs"])
def test_prose_is_impersonal(tree):
    files = [p for kind in ("py", "md") for p in (PACKAGE.parent / tree).rglob(f"*.{kind}")]
    assert [str(p) for p in files if PERSONAL.search(p.read_text())] == []


@pytest.mark.parametrize("tree", TREES)
def test_spelling_is_american(tree):
    files = [
        p for kind in ("py", "md", "ipynb") for p in (PACKAGE.parent / tree).rglob(f"*.{kind}")
    ]
    found = {
        str(path): sorted({m[0] for m in BRITISH.finditer(path.read_text().replace(OF_OTHERS, ""))})
        for path in files
        if path != Path(__file__) and "_build" not in path.parts
    }
    assert {path: words for path, words in found.items() if words} == {}
