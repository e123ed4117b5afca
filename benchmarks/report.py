"""The table on the terminal, the Markdown page and its picture."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Row = dict[str, Any]

#: Begin the parts of the page that other modules than ``benchmarks`` write, in their order.
SHAPES_MARK = "<!-- below: written by python -m benchmarks.shapes_report -->"
MODELS_MARK = "<!-- below: written by python -m benchmarks.onnx_models -->"
GPU_MARK = "<!-- below: written by python -m benchmarks.gpu -->"
NETWORKS_MARK = "<!-- below: written by python -m benchmarks.gpu_models -->"
MARKS = (SHAPES_MARK, MODELS_MARK, GPU_MARK, NETWORKS_MARK)

LABELS = {
    "amdjax": "amdjax",
    "jax": "JAX",
    "torch": "PyTorch",
    "torch.compile": "PyTorch compiled",
}


def seconds_text(seconds: float) -> str:
    """Three digits and a unit."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def best_torch(row: Row) -> float | None:
    times = [t for name, t in row["seconds"].items() if name.startswith("torch")]
    return min(times, default=None)


def speedup(row: Row, other: str) -> float | None:
    """How many times faster amdjax is than ``other``: "jax", or "torch" for its faster form."""
    ours = row["seconds"].get("amdjax")
    theirs = best_torch(row) if other == "torch" else row["seconds"].get(other)
    return theirs / ours if ours and theirs else None


def geometric_mean(values: Iterable[float | None]) -> float | None:
    logs = [math.log(v) for v in values if v]
    return math.exp(sum(logs) / len(logs)) if logs else None


def ratio_text(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}×" if ratio < 100 else f"{ratio:.0f}×"


def cell(row: Row, lib: str) -> str:
    if lib in row["seconds"]:
        return seconds_text(row["seconds"][lib])
    return "error" if lib in row["errors"] else "–"


def fastest(row: Row) -> str:
    times = row["seconds"]
    return LABELS[min(times, key=times.get)] if times else ""


def figures_of(row: Row) -> list[str]:
    """What there is to tell of a row beside its times, a line for each library."""
    return [
        f"{LABELS[lib]}: {'; '.join(f'{name}: {text}' for name, text in figures.items())}"
        for lib, figures in row.get("figures", {}).items()
    ]


class Terminal:
    """Rows as they come, under a header."""

    def __init__(self, libs: list[str]):
        self.libs = libs

    def header(self) -> str:
        cells = "".join(f"{LABELS[lib]:>18}" for lib in self.libs)
        return f"{'workload':<40}{cells}{'vs JAX':>10}{'vs torch':>10}"

    def row(self, row: Row) -> str:
        cells = "".join(f"{cell(row, lib):>18}" for lib in self.libs)
        ratios = f"{ratio_text(speedup(row, 'jax')):>10}{ratio_text(speedup(row, 'torch')):>10}"
        lines = [f"{row['name']:<40}{cells}{ratios}"]
        lines += [f"    {figures}" for figures in figures_of(row)]
        lines += [f"    error: {LABELS[lib]}: {text}" for lib, text in row["errors"].items()]
        return "\n".join(lines)

    def footer(self, rows: list[Row]) -> str:
        lines = []
        for other in ("jax", "torch"):
            ratios = [speedup(row, other) for row in rows]
            mean, counted = geometric_mean(ratios), [r for r in ratios if r]
            if mean:
                slower = sum(r < 1 for r in counted)
                lines.append(
                    f"geometric mean against {LABELS[other]}: {mean:.2f}× over {len(counted)} "
                    f"workloads, slower in {slower}"
                )
        failed = sum(bool(row["errors"]) for row in rows)
        return "\n".join([*lines, f"{len(rows)} workloads, {failed} with errors"])


def markdown(rows: list[Row], libs: list[str], machine: dict[str, str], picture: str | None) -> str:
    """The page for ``docs/benchmarks.md``."""
    torch = "the faster of eager and compiled" if "torch.compile" in libs else "its eager calls"
    out = [
        "# Benchmarks",
        "",
        "Written by `python -m benchmarks`: all libraries do the same work in the same run, in",
        "interleaved rounds; the figures are medians. Their results were compared before they were",
        "timed. A ratio above 1 means that amdjax is faster; against PyTorch it is taken to",
        f"{torch}. Forward pass and gradient are timed together in rows",
        "named “gradient”. Disk caches are off for cold compiles.",
        "",
    ]
    out += [f"- {label}: {text}" for label, text in machine.items()]
    out += [
        "",
        "| against | geometric mean | workloads | faster | slower |",
        "|---|--:|--:|--:|--:|",
    ]
    for other in ("jax", "torch"):
        ratios = [r for r in (speedup(row, other) for row in rows) if r]
        mean = geometric_mean(ratios)
        if mean:
            faster = sum(r > 1 for r in ratios)
            out.append(
                f"| {LABELS[other]} | {mean:.2f}× | {len(ratios)} | {faster} "
                f"| {len(ratios) - faster} |"
            )
    if picture:
        out += ["", f"![Speed-up over JAX and PyTorch]({picture})"]
    for family in dict.fromkeys(row["family"] for row in rows):
        heads = " | ".join(LABELS[lib] for lib in libs)
        out += ["", f"## {family.replace('_', ' ').capitalize()}", ""]
        out += [f"| workload | {heads} | vs JAX | vs PyTorch | fastest |"]
        out += ["|---|" + "--:|" * (len(libs) + 2) + "---|"]
        for row in rows:
            if row["family"] != family:
                continue
            cells = " | ".join(cell(row, lib) for lib in libs)
            ratios = f"{ratio_text(speedup(row, 'jax'))} | {ratio_text(speedup(row, 'torch'))}"
            out.append(f"| {row['name']} | {cells} | {ratios} | {fastest(row)} |")
        told = [(r["name"], text) for r in rows if r["family"] == family for text in figures_of(r)]
        out += ["", *(f"- {name}: {text}" for name, text in told)] if told else []
    torch_first = [row["name"] for row in rows if fastest(row).startswith("PyTorch")]
    if torch_first:
        out += [
            "",
            "## Where PyTorch is fastest",
            "",
            "These are next: " + "; ".join(torch_first) + ".",
        ]
    errors = [(row["name"], lib, text) for row in rows for lib, text in row["errors"].items()]
    if errors:
        out += ["", "## Errors", ""]
        out += [f"- {name}, {LABELS[lib]}: {text}" for name, lib, text in errors]
    return "\n".join(out) + "\n"


def with_section(page: Path, mark: str, section: str) -> str:
    """A page's text with another part behind a mark; "" is what stands before all marks."""
    text = page.read_text(encoding="utf-8") if page.exists() else "# Benchmarks\n"
    parts = {}
    for other in reversed(MARKS):
        text, found, part = text.partition(other)
        if found:
            parts[other] = part
    parts = {**parts, "": text, mark: section}
    texts = [f"{m}\n\n{parts[m].strip()}".strip() for m in ("", *MARKS) if m in parts]
    return "\n\n".join(texts) + "\n"


def draw(rows: list[Row], path: Path) -> bool:
    """A bar for each ratio; False where there is nothing to draw or nothing to draw with."""
    drawn = [row for row in rows if speedup(row, "jax") or speedup(row, "torch")]
    try:
        import matplotlib
    except ImportError:
        return False
    if not drawn:
        return False
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "amdjax"
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 0.24 * len(drawn) + 1.2))
    places = range(len(drawn))
    for other, offset, color in (("jax", -0.2, "tab:blue"), ("torch", 0.2, "tab:orange")):
        values = [speedup(row, other) or float("nan") for row in drawn]
        axes.barh([p + offset for p in places], values, 0.4, label=LABELS[other], color=color)
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.set(xscale="log", xlabel="amdjax's speed-up over", ylim=(len(drawn) - 0.4, -0.6))
    axes.set_yticks(list(places), [row["name"] for row in drawn], fontsize=7)
    axes.legend(loc="lower right")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
    return True
