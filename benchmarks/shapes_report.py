"""``python -m benchmarks.shapes_report FILE ...``: the page's section on programs of many shapes.

A file is what ``python -m benchmarks --only shapes --json FILE`` wrote; rows of later files take
the place of those of earlier ones of the same machine.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from . import report
from .shapes import PROGRAMS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "benchmarks.md"
#: What is told of a program, and the heads.
FIGURES = {
    "median": "median", "worst": "worst", "variants": "variants", "compile": "compile",
    "dispatch": "dispatch",
}  # fmt: skip
OTHERS = ("jax", "torch", "torch.compile")


def table(rows: list[report.Row]) -> list[str]:
    """Programs, a line each, beside amdjax's own programs of single sizes and the others."""
    others = [lib for lib in OTHERS if any(lib in row["seconds"] for row in rows)]
    heads = [*FIGURES.values(), *(report.LABELS[lib] for lib in others)]
    lines = [f"| program | {' | '.join(heads)} |", "|---|" + "--:|" * len(heads)]
    for row in rows:
        figures = row["figures"].get("amdjax", {})
        cells = [figures.get(name, "–") for name in FIGURES]
        cells += [_times(row, lib) for lib in others]
        lines.append(f"| {row['name']} | {' | '.join(cells)} |")
    return lines


def serving(rows: list[report.Row]) -> list[str]:
    """Loops over requests, a line each: seconds in all, as multiples of amdjax's."""
    told = []
    for row in rows:
        if not any(lib in row["seconds"] for lib in OTHERS):
            continue
        others = (f"{report.LABELS[lib]} {_times(row, lib)}" for lib in OTHERS)
        ours = report.cell(row, "amdjax")
        told.append(f"- {row['name']}, compiling included: amdjax {ours}; {', '.join(others)}")
    return told


def section(files: list[Path]) -> str:
    """The part of the page, a table for each machine."""
    lines = [
        "## One compile, many shapes",
        "",
        "Programs compiled for all sizes ([shapes.md](shapes.md)), run at sizes from 1 to 64 and",
        "1 to 512. median, worst: the speed at these sizes beside amdjax's own program of each;",
        "compile: the time of a first call beside that of a program of one size, medians over",
        "five sizes; dispatch: what a call of microseconds costs more. Times of the others are",
        "multiples of amdjax's: JAX compiles a program for each size, PyTorch with `dynamic=True`.",
    ]
    for about, rows in machines(files):
        programs = [row for row in rows if row["name"] in {p.name for p in PROGRAMS}]
        loops = [row for row in rows if row not in programs]
        lines += ["", *(f"- {label}: {text}" for label, text in about.items())]
        lines += ["", *table(programs)] if programs else []
        lines += ["", *serving(loops)] if loops else []
        told = [(row["name"], lib, text) for row in rows for lib, text in row["errors"].items()]
        lines += [f"- {name}, {report.LABELS[lib]}: {text}" for name, lib, text in told]
    return "\n".join(lines) + "\n"


def machines(files: list[Path]) -> list[tuple[dict[str, str], list[report.Row]]]:
    """What is known of each machine, and its rows."""
    found: list[tuple[dict[str, str], dict[str, report.Row]]] = []
    for file in files:
        run = json.loads(file.read_text())
        if not found or found[-1][0] != run["machine"]:
            found.append((run["machine"], {}))
        found[-1][1].update((row["name"], row) for row in run["rows"])
    return [(about, list(rows.values())) for about, rows in found]


def _times(row: report.Row, lib: str) -> str:
    ours, theirs = row["seconds"].get("amdjax"), row["seconds"].get(lib)
    return report.ratio_text(theirs / ours) if ours and theirs else "–"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shapes_report", description=__doc__)
    parser.add_argument(
        "files", type=Path, nargs="+", metavar="FILE", help="of one machine after another"
    )
    parser.add_argument("--markdown", type=Path, default=PAGE, help="the page to write into")
    args = parser.parse_args()
    text = report.with_section(args.markdown, report.SHAPES_MARK, section(args.files))
    args.markdown.write_text(text, encoding="utf-8")
    print(f"wrote {args.markdown}")


if __name__ == "__main__":
    main()
