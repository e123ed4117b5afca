"""Tiles that asynchronous copies bring to LDS, where a product takes its right operand from there.

A loop that carries what it loaded in its last round, only to multiply by it, need not hold that:
loads become copies that run while the round before multiplies. There is LDS for two tiles. What the
loop carries is in which of them the tile lies; its rounds begin by waiting for all copies, and for
each other, so that the other one may be written.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from amdjax import tile
from amdjax.targets import GpuTarget
from amdjax.targets.mma import CELL_BYTES, WARPGROUP_ROW_BYTES, tile_atoms
from amdjax.tile import ops


@dataclass(frozen=True)
class CopiedTile:
    """Two tiles in LDS, of which a loop uses one while it brings the other.

    Args:
      name: of the memory.
      rows, columns: as they lie there, columns side by side.
      itemsize: of an element.
    """

    name: str
    rows: int
    columns: int
    itemsize: int

    @property
    def nbytes(self) -> int:
        """Of one tile."""
        return self.rows * self.columns * self.itemsize


@dataclass
class CopiedTiles:
    """What lies so in a kernel, by numbers of values.

    Attributes:
      tiles: of values that loops carry, with their transposes.
      transposes: which of these are.
      partners: of a load, the tile that is used meanwhile; None before the loop.
      waiting: identities of the loops' bodies.
    """

    tiles: dict[int, CopiedTile] = field(default_factory=dict)
    transposes: set[int] = field(default_factory=set)
    partners: dict[int, tile.Value | None] = field(default_factory=dict)
    waiting: set[int] = field(default_factory=set)


def copied_tiles(kernel: tile.Kernel, target: GpuTarget) -> CopiedTiles:
    """The tiles of a kernel that may lie so."""
    found = CopiedTiles()
    if not any(reads_lds(op, target) for op in tile.nested_ops(kernel.body)):
        return found
    uses = _Uses(kernel, target)
    placed: list[tuple[int, set[int]]] = []
    for chain in uses.chains():
        loads = uses.copies(chain)
        if loads is not None:
            scope = uses.scope(chain)
            taken = {number for number, others in placed if scope & others}
            number = next(i for i in range(len(taken) + 1) if i not in taken)
            placed.append((number, scope))
            _note(found, uses, chain, loads, f"tiles.{number}")
    return found


def reads_lds(op: tile.Op, target: GpuTarget) -> bool:
    """Whether an operation is a product that takes its right operand from LDS by itself."""
    if not isinstance(op, ops.Dot) or op.tiling is None:
        return False
    tiling = op.tiling
    atoms = tile_atoms(target, tiling.operand, op.result.dtype)
    return any(atom.from_lds and atom.name == tiling.instruction for atom in atoms)


def _note(
    found: CopiedTiles, uses: _Uses, chain: list[_Carried], loads: dict[int, tile.Value | None],
    name: str,
) -> None:  # fmt: skip
    v = chain[0].argument
    rows, columns = v.shape
    copied = CopiedTile(name, rows, columns, tile.itemsize(v.dtype))
    found.partners |= loads
    found.tiles |= dict.fromkeys(loads, copied)
    for link in chain:
        found.waiting.add(id(link.loop.body))
        for number in (link.argument.number, link.loop.results[link.at].number):
            found.tiles[number] = copied
        for op in uses.readers(link.argument):
            if isinstance(op, ops.Transpose):
                found.tiles[op.result.number] = copied
                found.transposes.add(op.result.number)


@dataclass(frozen=True)
class _Carried:
    """A tile that a loop carries, the `at`th."""

    loop: ops.For
    at: int

    @property
    def init(self) -> tile.Value:
        return self.loop.init[self.at]

    @property
    def argument(self) -> tile.Value:
        return self.loop.body.args[1 + self.at]

    @property
    def following(self) -> tile.Value:
        return self.loop.body.yields[self.at]


class _Uses:
    """What makes and what reads each value of a kernel."""

    def __init__(self, kernel: tile.Kernel, target: GpuTarget):
        self.kernel, self.target = kernel, target
        self._makers: dict[int, tile.Op] = {}
        self._readers: dict[int, list[tile.Op]] = {}
        self._yielded: dict[int, int] = {}
        self._block: dict[int, int] = {}
        self._written = set[str]()
        self._loops: list[ops.For] = []
        self._note(kernel.body)

    def _note(self, block: tile.Block) -> None:
        for op in block.ops:
            self._block[id(op)] = id(block)
            for v in op.results:
                self._makers[v.number] = op
            for v in op.operands:
                self._readers.setdefault(v.number, []).append(op)
            if isinstance(op, ops.For):
                self._loops.append(op)
            elif not isinstance(op, (ops.Load, ops.LoadAt)) and hasattr(op, "buffer"):
                self._written.add(op.buffer.name)
            for inner in op.blocks:
                self._note(inner)
        for v in block.yields:
            self._yielded[v.number] = self._yielded.get(v.number, 0) + 1

    def readers(self, v: tile.Value) -> list[tile.Op]:
        return self._readers.get(v.number, [])

    def scope(self, chain: list[_Carried]) -> set[int]:
        """The block of the loops and those within; others that share one need other memory."""
        found = {self._block[id(chain[0].loop)]}
        blocks = [link.loop.body for link in chain]
        while blocks:
            block = blocks.pop()
            found.add(id(block))
            blocks += [inner for op in block.ops for inner in op.blocks]
        return found

    def chains(self) -> Iterator[list[_Carried]]:
        """Loops each of which goes on with what the one before it had at its end."""
        carried = [_Carried(loop, i) for loop in self._loops for i in range(len(loop.init))]
        by_init = {x.init.number: x for x in carried}
        for x in carried:
            if isinstance(self._makers.get(x.init.number), ops.For):
                continue
            chain = [x]
            while (following := by_init.get(_result(chain[-1]).number)) is not None:
                chain.append(following)
            yield chain

    def copies(self, chain: list[_Carried]) -> dict[int, tile.Value | None] | None:
        """The loads of a chain, with what is used meanwhile; None if they are no copies."""
        first = self._makers.get(chain[0].init.number)
        loads: dict[int, tile.Value | None] = {chain[0].init.number: None}
        # Loaded anew whenever the loops begin: these write over it.
        together = {self._block[id(op)] for op in (first, *(x.loop for x in chain)) if op}
        if len(together) > 1 or not self._is_copy(chain[0].init, yielded=0):
            return None
        for i, link in enumerate(chain):
            following, result = link.following, _result(link)
            if not (self._is_copy(following, yielded=1) and self._only_multiplies(link.argument)):
                return None
            if self._block[id(self._makers[following.number])] != id(link.loop.body):
                return None
            # Used by the next loop of the chain alone, and by none behind the last one.
            if len(self.readers(result)) != (i + 1 < len(chain)) or self._is_yielded(result):
                return None
            loads[following.number] = link.argument
        return loads

    def _is_yielded(self, v: tile.Value) -> bool:
        return v.number in self._yielded

    def _is_copy(self, v: tile.Value, yielded: int) -> bool:
        """Whether a tile is loaded in whole cells, and carried by one loop only."""
        op = self._makers.get(v.number)
        if not isinstance(op, ops.Load) or len(v.shape) != 2:
            return False
        if (len(self.readers(v)), self._yielded.get(v.number, 0)) != (1 - yielded, yielded):
            return False
        size, (rows, columns) = tile.itemsize(v.dtype), v.shape
        cell, (far, near) = CELL_BYTES // size, op.strides
        whole = columns * size % WARPGROUP_ROW_BYTES == 0 and rows % 8 == 0
        aligned = self.kernel.align >= CELL_BYTES and op.divisibility % cell == 0
        aligned &= near == 1 and far is not None and far % cell == 0
        masked = op.mask is not None and (op.other != 0 or op.mask_constancy % cell != 0)
        unchanged = op.buffer.role == "in" and op.buffer.name not in self._written
        return size == 2 and whole and aligned and unchanged and not masked

    def _only_multiplies(self, v: tile.Value) -> bool:
        """Whether all readers are products that take it, or its transpose, from LDS."""
        if self._is_yielded(v) or not self.readers(v):
            return False
        for op in self.readers(v):
            if isinstance(op, ops.Transpose):
                users, operand = self.readers(op.result), op.result
                if self._is_yielded(operand) or not users:
                    return False
            else:
                users, operand = [op], v
            for user in users:
                if not (isinstance(user, ops.Dot) and reads_lds(user, self.target)):
                    return False
                taken = [v.number for v in user.operands].count(operand.number)
                if user.b.number != operand.number or taken > 1:
                    return False
        return True


def _result(link: _Carried) -> tile.Value:
    return link.loop.results[link.at]
