"""What a reader needs to know of the machine and the versions, and nothing that names it."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import import_module, metadata
from pathlib import Path


def cpu_model() -> str:
    """The processor's marketing name, as far as the system tells."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def vector_extensions() -> str:
    """The widest of the usual vector extensions."""
    try:
        flags = set(Path("/proc/cpuinfo").read_text().split())
    except OSError:
        return ""
    widest = [name for name in ("avx512f", "avx2", "sve", "asimd") if name in flags][:1]
    return ", ".join(widest + [name for name in ("avx512_bf16", "amx_bf16") if name in flags])


def memory_gib() -> float:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    except (ValueError, OSError, AttributeError):
        return float("nan")


def available_cpus() -> list[int]:
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        pass
    # amdjax may run from a checkout that was never installed.
    try:
        return str(import_module(package).__version__)
    except (ImportError, AttributeError):
        return "not installed"


def gpu_model() -> str:
    """The name of the first NVIDIA GPU, as its driver tells."""
    query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        return subprocess.run(query, capture_output=True, text=True).stdout.partition("\n")[0]
    except OSError:
        return "unknown"


def describe(threads: int, device: str = "cpu") -> dict[str, str]:
    """Machine and versions as labeled text."""
    packages = ("amdjax", "llvmlite", "jax", "jaxlib", "torch", "numpy")
    extensions = vector_extensions()
    return {
        "CPU": cpu_model() + (f" ({extensions})" if extensions else ""),
        **({} if device == "cpu" else {"GPU": gpu_model()}),
        "cores used": str(threads),
        "memory": f"{memory_gib():.0f} GiB",
        "system": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "versions": ", ".join(f"{name} {version(name)}" for name in packages),
    }
