"""What the runtime reads from outside: flags, usable cores, memory."""

from __future__ import annotations

import math
import os
from pathlib import Path

from amdjax.core.config import config


def spin_microseconds() -> float:
    """How long an idle worker thread looks for work before it sleeps (`AMDJAX_SPIN_US`)."""
    text = os.environ.get("AMDJAX_SPIN_US", "")
    try:
        return max(float(text), 0.0) if text else 50.0
    except ValueError:
        raise ValueError(f"AMDJAX_SPIN_US={text!r} is not a number of microseconds.") from None


def requested_threads() -> int:
    """`AMDJAX_NUM_THREADS`, or the number of cores this process may use."""
    wanted = config.num_threads
    return usable_cores() if wanted is None else int(wanted)


def usable_cores() -> int:
    """Cores by affinity, less if a container's quota allows less."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    return max(1, math.ceil(min(cores, _cgroup_cores())))


def _cgroup_cores() -> float:
    """Cores that the control group's quota is worth; infinite without one."""
    best = math.inf
    for folder in _cgroup_folders("cpu"):
        try:
            if (folder / "cpu.max").exists():
                quota, period = (folder / "cpu.max").read_text().split()
            else:
                quota = (folder / "cpu.cfs_quota_us").read_text().strip()
                period = (folder / "cpu.cfs_period_us").read_text().strip()
            if quota not in ("max", "-1"):
                best = min(best, int(quota) / int(period))
        except (OSError, ValueError):
            continue
    return best


def _cgroup_folders(controller: str) -> list[Path]:
    """Folders of this process's control group and the groups around it, versions 1 and 2."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    folders = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        root = Path("/sys/fs/cgroup")
        if controllers:
            root /= controller
        inner = root / path.lstrip("/")
        chain = [inner, *inner.parents]
        folders += chain[: chain.index(root) + 1] if root in chain else [root]
    return folders


def memory_bytes() -> int:
    """Memory this process may use: the machine's, or the control group's limit if lower."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        total = 8 << 30
    for folder in _cgroup_folders("memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            try:
                total = min(total, int((folder / name).read_text()))
            except (OSError, ValueError):
                continue
    return total
