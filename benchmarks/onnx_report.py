"""What `benchmarks.onnx_models` measured, as lines of a terminal and as a section of the page."""

from __future__ import annotations

from typing import Any

from . import report

NAMES = ("amdjax", "onnxruntime", "torch", "torch.compile")
LABELS = report.LABELS | {"onnxruntime": "onnxruntime"}

Row = dict[str, Any]
Starts = dict[str, dict[str, float]]


def best_other(row: Row, seconds: str = "seconds") -> tuple[str, float] | None:
    others = {lib: t for lib, t in row[seconds].items() if lib != "amdjax"}
    return min(others.items(), key=lambda item: item[1]) if others else None


def ratio(row: Row, seconds: str = "seconds") -> float | None:
    """How many times faster amdjax is than the best of the others."""
    best, ours = best_other(row, seconds), row[seconds].get("amdjax")
    return best[1] / ours if best and ours else None


def line(row: Row) -> str:
    cells = "".join(f"{report.cell(row, lib):>12}" for lib in NAMES)
    best = best_other(row)
    medians, least = (report.ratio_text(ratio(row, s)) for s in ("seconds", "least"))
    lines = [f"{_name(row):<46}{cells}{medians:>8}{least:>8}  {LABELS[best[0]] if best else ''}"]
    lines += [f"    error: {LABELS[lib]}: {text}" for lib, text in row["errors"].items()]
    return "\n".join(lines)


def section(
    rows: list[Row], starts: Starts, about: dict[str, str], gpu: tuple[list[Row], dict] | None
) -> str:
    """The part of the page; `gpu` are rows of a GPU and what is to be known of its machine."""
    lines = [
        "## Models from files",
        "",
        "Written by `python -m benchmarks.onnx_models`: networks with random weights that",
        "PyTorch exports, with a symbolic batch; a row is one run, libraries in turns, medians. A",
        "ratio above 1 means that amdjax is faster than the best of the others; the last column is",
        "that of the least times. int8: `amdjax.quantize`, onnxruntime's static quantization, and",
        "PyTorch's own, which is static for convolutions and dynamic for transformers.",
        "",
        *_table(rows, about, NAMES),
    ]
    if starts:
        lines += ["", *_starts_table(starts)]
    if gpu:
        libs = tuple(lib for lib in NAMES if any(lib in row["seconds"] for row in gpu[0]))
        lines += [
            "",
            "On a GPU, as PTX. fp16: products of float16 and sums of float32, in amdjax by",
            '`quantize(dtype="float16")`, in PyTorch by `autocast`.',
            "",
            *_table(*gpu, libs),
        ]
    return "\n".join(lines) + "\n"


def _table(rows: list[Row], about: dict[str, str], libs: tuple[str, ...]) -> list[str]:
    """The machine, a line for each row, the means, and errors if there are any."""
    heads = " | ".join(LABELS[lib] for lib in libs)
    lines = [
        *(f"- {label}: {text}" for label, text in about.items()),
        "",
        f"| model | batch | | {heads} | ratio | of least times |",
        "|---|--:|---|" + "--:|" * (len(libs) + 2),
    ]
    for row in rows:
        cells = " | ".join(report.cell(row, lib) for lib in libs)
        ratios = " | ".join(report.ratio_text(ratio(row, s)) for s in ("seconds", "least"))
        lines.append(
            f"| {row['name']} | {row['batch']} | {row['precision']} | {cells} | {ratios} |"
        )
    lines += ["", *means(rows)]
    told = [(r, lib, text) for r in rows for lib, text in r["errors"].items()]
    if told:
        lines += ["", "Errors:", ""]
        lines += [f"- {_name(row)}, {LABELS[lib]}: {text}" for row, lib, text in told]
    return lines


def means(rows: list[Row]) -> list[str]:
    """Sentences on the ratios of each precision, and of all."""
    lines = []
    precisions = list(dict.fromkeys(row["precision"] for row in rows))
    for precision in (*precisions, *([""] if len(precisions) > 1 else [])):
        ratios = [ratio(row) for row in rows if precision in ("", row["precision"])]
        counted = [x for x in ratios if x]
        if counted:
            mean, few = report.geometric_mean(counted), sum(x >= 1 for x in counted)
            lines.append(
                f"- Geometric mean, {precision or 'all'}: {mean:.2f}×; at least the best of the "
                f"others in {few} of {len(counted)}."
            )
    return lines


#: What is told of starts, and its heads.
STARTS = {
    "amdjax": "amdjax", "again": "with disk cache", "artifact": "from an artifact",
    "onnxruntime": "onnxruntime",
}  # fmt: skip


def _starts_table(starts: Starts) -> list[str]:
    heads = " | ".join(STARTS.values())
    lines = [
        "Seconds until a program for a batch of one is ready: reading and compiling, without",
        "and with what an earlier process left in the disk cache; loading an artifact with its",
        "machine code; onnxruntime's session. The ratio is that of onnxruntime's to compiling.",
        "",
        f"| model | {heads} | ratio |",
        "|---|" + "--:|" * (len(STARTS) + 1),
    ]
    for name, found in starts.items():
        cells = " | ".join(report.seconds_text(found[k]) if k in found else "–" for k in STARTS)
        times = report.ratio_text(found["onnxruntime"] / found["amdjax"])
        lines.append(f"| {name} | {cells} | {times} |")
    return lines


def starts_line(name: str, found: dict[str, float]) -> str:
    """Times until a program is ready, on a terminal."""
    told = (f"{STARTS[k]} {report.seconds_text(t)}" for k, t in found.items())
    return f"{name}, ready: {', '.join(told)}"


def _name(row: Row) -> str:
    return f"{row['name']}, batch {row['batch']}, {row['precision']}"
