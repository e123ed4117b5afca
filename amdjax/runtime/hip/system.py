"""What the operating system says about AMD GPUs: hardware, kernel driver, permissions.

Everything is read from files below a root folder, so that tests can bring their own.
"""

from __future__ import annotations

import getpass
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_AMD = "0x1002"
# PCI classes: display controllers, and processing accelerators, as Instinct cards are.
_CLASSES = ("0x03", "0x12")
_WSL_DEVICE = "dev/dxg"


@dataclass(frozen=True)
class Node:
    """A file of the driver's that programs open.

    Args:
      path: such as /dev/kfd.
      group: that owns it.
      is_open: whether this process may read and write it.
    """

    path: str
    group: str
    is_open: bool


@dataclass(frozen=True)
class KernelDriver:
    """The state of the kernel's driver.

    Args:
      cards: PCI ids of AMD's graphics and accelerator cards.
      is_loaded: whether the module amdgpu is there.
      version: of the module; empty for the kernel's own.
      gfx: gfx names of the devices that the driver offers to programs.
      nodes: /dev/kfd and the render nodes that exist.
      is_wsl: whether Windows' driver is used instead.
    """

    cards: tuple[str, ...]
    is_loaded: bool
    version: str
    gfx: tuple[str, ...]
    nodes: tuple[Node, ...]
    is_wsl: bool

    @property
    def kfd(self) -> Node | None:
        """The node through which programs compute."""
        return next((node for node in self.nodes if node.path.endswith("/kfd")), None)


def kernel_driver(root: Path = Path("/")) -> KernelDriver:
    """Look at the system below `root`."""
    module = root / "sys/module/amdgpu"
    return KernelDriver(
        cards=tuple(_cards(root)),
        is_loaded=module.exists(),
        version=_read(module / "version"),
        gfx=tuple(_gfx_names(root)),
        nodes=tuple(_node(path, root) for path in _node_paths(root)),
        is_wsl=(root / _WSL_DEVICE).exists(),
    )


def obstacle(driver: KernelDriver) -> tuple[str, str]:
    """What keeps programs from computing on a GPU, and what to do; empty if nothing does.

    Args:
      driver: what `kernel_driver` found.
    """
    if driver.is_wsl:
        return "", ""
    kfd = driver.kfd
    if kfd is None and not driver.cards and not driver.is_loaded:
        return (
            "there is no AMD GPU",
            "AMDJAX_EMULATE=gfx942 emulates one. In a virtual machine, hand the card through.",
        )
    if kfd is None and not driver.is_loaded:
        return (
            "the kernel driver amdgpu is not loaded",
            "Run 'sudo modprobe amdgpu' and look at 'sudo dmesg | grep amdgpu' if that fails.",
        )
    if kfd is None:
        return (
            "/dev/kfd does not exist, though the driver amdgpu is loaded",
            "In a container, start it with '--device /dev/kfd --device /dev/dri'. Elsewhere the "
            "kernel was built without CONFIG_HSA_AMD.",
        )
    closed = [node for node in driver.nodes if not node.is_open]
    if closed:
        paths = ", ".join(node.path for node in closed)
        return f"user {_user()} may not open {paths}", _way_in(closed)
    return "", ""


def _way_in(closed: Sequence[Node]) -> str:
    """How to get into the groups that own the nodes."""
    container = "In a container, add '--group-add' for the group ids of the host."
    groups = ",".join(dict.fromkeys(node.group for node in closed if node.group != "root"))
    if not groups:
        return f"{container} Elsewhere udev should give them to the group render."
    return f"Run 'sudo usermod -aG {groups} $USER' and log in again. {container}"


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may know no name for it
        return str(os.getuid())


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _cards(root: Path) -> Iterator[str]:
    for folder in sorted(root.glob("sys/bus/pci/devices/*")):
        if _read(folder / "vendor") == _AMD and _read(folder / "class").startswith(_CLASSES):
            yield f"1002:{_read(folder / 'device').removeprefix('0x')}"


def _gfx_names(root: Path) -> Iterator[str]:
    """From the topology that the driver shows; processors are nodes of it too."""
    nodes = root.glob("sys/class/kfd/kfd/topology/nodes/*/properties")
    for path in sorted(nodes, key=lambda p: (len(p.parent.name), p.parent.name)):
        rows = (line.split() for line in _read(path).splitlines())
        fields = {row[0]: row[1] for row in rows if len(row) == 2}
        version = int(fields.get("gfx_target_version", "0"))
        if version:
            yield f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"


def _node_paths(root: Path) -> Iterator[Path]:
    """Of render nodes those of AMD's cards, as far as is known whose they are."""
    if (root / "dev/kfd").exists():
        yield root / "dev/kfd"
        for path in sorted(root.glob("dev/dri/renderD*")):
            if _read(root / f"sys/class/drm/{path.name}/device/vendor") in ("", _AMD):
                yield path


def _node(path: Path, root: Path) -> Node:
    try:
        group = path.group()
    except KeyError:
        group = str(path.stat().st_gid)
    return Node(f"/{path.relative_to(root)}", group, os.access(path, os.R_OK | os.W_OK))
