"""Where things stand in source files."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "amdjax"
LAX = sorted((PACKAGE / "lax").rglob("*.py"))


def shown(path):
    return str(path.relative_to(PACKAGE.parent))


def names_in(node):
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def ruled_primitive(statement):
    """The name on which a statement sets a rule: `@p.def_jvp`, `p.def_jvp(…)` or `p.batch = …`."""
    places = []
    if isinstance(statement, ast.FunctionDef):
        places = statement.decorator_list
    elif isinstance(statement, ast.Assign):
        places = statement.targets
    elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        places = [statement.value.func]
    for place in places:
        if isinstance(place, ast.Attribute) and isinstance(place.value, ast.Name):
            return place.value.id
    return None


def last_rules(body):
    """The line at which each primitive of a file has its last rule."""
    found = {}
    for statement in body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            if statement.targets[0].id.endswith("_p"):
                found[statement.targets[0].id] = statement.lineno
        elif (primitive := ruled_primitive(statement)) in found:
            found[primitive] = statement.lineno
    return found


def early_functions(source):
    """Public functions that stand above a rule of a primitive they bind, be it by helpers."""
    body = ast.parse(source).body
    rules = last_rules(body)
    functions = {f.name: f for f in body if isinstance(f, ast.FunctionDef)}
    helpers = {name: names_in(f) for name, f in functions.items() if name.startswith("_")}
    early = []
    for name, function in functions.items():
        if name in helpers:
            continue
        used = names_in(function)
        while more := set().union(*(helpers[h] for h in used & set(helpers))) - used:
            used |= more
        early += [(name, p) for p in used & set(rules) if rules[p] > function.lineno]
    return sorted(early)


@pytest.mark.parametrize("path", LAX, ids=shown)
def test_primitives_stand_above_their_functions(path):
    assert early_functions(path.read_text()) == []


def test_an_early_function_is_found():
    source = "p_p = P()\ndef _bind(x): return p_p.bind(x)\ndef f(x): return _bind(x)\np_p.batch = 1"
    assert early_functions(source) == [("f", "p_p")]


FACADES = {"amdjax", "amdjax.lax", "amdjax.lax.control_flow", "amdjax.lax.linalg"}


@pytest.mark.parametrize("path", [p for p in LAX if p.name != "__init__.py"], ids=shown)
def test_no_file_of_lax_imports_a_facade(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.module not in FACADES
        elif isinstance(node, ast.Import):
            assert not FACADES & {alias.name for alias in node.names}


def unexplained(source):
    """Lines of imports inside functions without a comment `# late: why` above them."""
    lines = source.splitlines()
    late = set()
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            late |= {
                n.lineno for n in ast.walk(function) if isinstance(n, ast.Import | ast.ImportFrom)
            }

    def explained(line):
        above = lines[line - 2].strip()
        return above.startswith("# late: ") or (line - 1 in late and explained(line - 1))

    return sorted(line for line in late if not explained(line))


def test_imports_inside_functions_say_why():
    """One that takes long to load, that may be missing, or whose file stands above."""
    found = {shown(p): unexplained(p.read_text()) for p in sorted(PACKAGE.rglob("*.py"))}
    assert {path: lines for path, lines in found.items() if lines} == {}


def test_an_unexplained_import_is_found():
    assert unexplained("def f():\n    import a\n") == [2]
    assert unexplained("def f():\n    # late: slow\n    import a\n    import b\n") == []
