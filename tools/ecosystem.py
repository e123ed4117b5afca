"""Uses libraries written for JAX on amdjax, compares with JAX's numbers, writes docs/ecosystem.md.

    python tools/ecosystem.py             # run on amdjax, compare, write the table
    python tools/ecosystem.py --record    # run on JAX itself, write tools/ecosystem.json
    python tools/ecosystem.py optax flax  # only these; the table is not written

Libraries are installed as they are published, without JAX: `pip install --no-deps optax …`. What is
done with them is in `ecosystem_uses.py`; each use runs in a process of its own.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import pathlib
import subprocess
import sys
import time
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
RECORDED = HERE / "ecosystem.json"
TABLE = HERE.parent / "docs" / "ecosystem.md"
LIMIT = 300.0  # seconds a use may take
TOLERANCE = 2e-3
"""Of the largest number: float32 sums in another order, carried through a training or a chain."""

_CHILD = """
import json, sys, traceback
sys.path.insert(0, {folder!r})
{alias}
import jax, numpy as np
import ecosystem_uses as uses
try:
    found = getattr(uses, {use!r})()
    leaves = {{k: np.asarray(v, np.float64) for k, v in found.items()}}
    answer = {{k: [list(v.shape), v.ravel()[:24].tolist(), float(np.abs(v).sum())]
              for k, v in leaves.items()}}
except Exception as e:
    traceback.print_exc()
    answer = {{"error": f"{{type(e).__name__}}: {{e}}"[:400]}}
print("\\nANSWER" + json.dumps(answer))
"""


def run(use: str, alias: bool) -> dict[str, Any]:
    """What a use returns, in a process of its own: shapes, first numbers and sums of magnitudes."""
    code = _CHILD.format(folder=str(HERE), use=use, alias="import amdjax.as_jax" if alias else "")
    try:
        child = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT, check=False
        )
    except subprocess.TimeoutExpired:
        return {"error": f"took more than {LIMIT:.0f} s"}
    lines = [l for l in child.stdout.splitlines() if l.startswith("ANSWER")]
    if not lines:
        return {"error": f"process ended with {child.returncode}: {child.stderr[-400:]}"}
    answer = json.loads(lines[-1].removeprefix("ANSWER"))
    if "error" in answer and os.environ.get("ECOSYSTEM_VERBOSE"):
        print(child.stderr[-6000:])
    return answer


def differences(found: dict[str, Any], expected: dict[str, Any]) -> list[str]:
    """What differs from JAX's numbers, in words; nothing if all agree."""
    wrong = [f"{k} is missing" for k in expected.keys() - found.keys()]
    for name in expected.keys() & found.keys():
        (shape, first, total), (shape_, first_, total_) = found[name], expected[name]
        if shape != shape_:
            wrong.append(f"{name} has shape {shape}, JAX's has {shape_}")
            continue
        size = max([abs(x) for x in first_] + [1e-3])
        off = max([abs(x - y) for x, y in zip(first, first_)] + [0.0]) / size
        off = max(off, abs(total - total_) / max(total_, 1e-3))
        if not off <= TOLERANCE:
            wrong.append(f"{name} is off by {off:.1e} of its largest number")
    return sorted(wrong)


def version(library: str) -> str:
    """The installed version of a library."""
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def main() -> None:
    """Run what was asked for."""
    sys.path.insert(0, str(HERE))
    from ecosystem_uses import USES

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("libraries", nargs="*", help=", ".join(USES))
    parser.add_argument("--record", action="store_true", help="run on JAX, write the numbers")
    arguments = parser.parse_args()
    chosen = arguments.libraries or list(USES)
    recorded = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    rows, failed = [], 0
    for library in chosen:
        notes, seconds = [], 0.0
        for use in USES[library]:
            start = time.perf_counter()
            found = run(use.__name__, alias=not arguments.record)
            seconds += time.perf_counter() - start
            if arguments.record:
                if "error" not in found:
                    recorded[use.__name__] = found
                notes += [found["error"]] if "error" in found else []
            elif "error" in found:
                notes.append(f"{use.__name__}: {found['error'].splitlines()[0]}")
            elif use.__name__ not in recorded:
                notes.append(f"{use.__name__}: JAX's numbers are not recorded")
            else:
                wrong = differences(found, recorded[use.__name__])
                notes += [f"{use.__name__}: {w}" for w in wrong]
        failed += bool(notes)
        rows.append((library, version(library), [u.__name__ for u in USES[library]], notes))
        print(
            f"{library:18} {version(library):12} {seconds:6.1f} s  {'; '.join(notes) or 'ok'}",
            flush=True,
        )
    if arguments.record:
        RECORDED.write_text(dump(recorded))
    elif not arguments.libraries:
        TABLE.write_text(table(rows))
    raise SystemExit(failed)


def dump(recorded: dict[str, Any]) -> str:
    """The numbers as JSON, a line for each array, to seven digits."""

    def short(x: Any) -> Any:
        return [short(v) for v in x] if isinstance(x, list) else float(f"{x:.7g}")

    uses = []
    for use, arrays in sorted(recorded.items()):
        lines = [
            f"  {json.dumps(name)}: {json.dumps([shape, short(first), short(total)])}"
            for name, (shape, first, total) in sorted(arrays.items())
        ]
        uses.append(f"{json.dumps(use)}: {{\n" + ",\n".join(lines) + "\n}")
    return "{\n" + ",\n".join(uses) + "\n}\n"


HEAD = """\
# Libraries written for JAX

They run unmodified through the alias: `import amdjax.as_jax` before anything else, or
`python -m amdjax.as_jax script.py`. `jax` then means amdjax in that process, with the interface of
JAX {release}. Real JAX is not needed, nor touched where it is installed.

```python
import amdjax.as_jax
import jax, optax, flax.linen as nn
```

Libraries that declare JAX as a dependency are installed without it, with `pip install --no-deps`.
`tools/ecosystem.py` makes this table: each use trains or samples from a fixed seed, and its numbers
agree with JAX's to {tolerance:g} of the largest of an array, or the row says what does not.
Line searches and NUTS run in float64: in float32 the last bit decides, on JAX itself too.

| library | version | uses | on amdjax |
|---|---|---|---|
"""


def table(rows: list[Any]) -> str:
    """The text of docs/ecosystem.md."""
    from amdjax.as_jax import JAX_VERSION

    lines = []
    for library, number, uses, notes in rows:
        names = ", ".join(use.partition("_")[2].replace("_", " ") for use in uses)
        lines.append(f"| {library} | {number} | {names} | {'; '.join(notes) or 'as JAX'} |\n")
    return HEAD.format(release=JAX_VERSION, tolerance=TOLERANCE) + "".join(lines)


if __name__ == "__main__":
    main()
