"""How a kernel is spread over a machine: attributes that leave its results as they are.

The IR carries them from the schedules that choose them to the writers of machine code, and looks
into none of them.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MatrixTiling", "Schedule"]


@dataclass(slots=True)
class Schedule:
    """What a kernel's programs take of a GPU; a CPU runs each of them on one core.

    Args:
      workgroup: threads of a program; 0 for one wave.
      vector: neighboring elements of a tile that a thread holds side by side.
      index_bits: width of an `index`; 32 where every buffer is smaller than 2 GiB.
      places: in LDS, that right operands of products of tiles take in turn; 0 for one each.
    """

    workgroup: int = 0
    vector: int = 1
    index_bits: int = 64
    places: int = 0

    def __str__(self) -> str:
        usual = Schedule()
        shown = ((name, getattr(self, name), getattr(usual, name)) for name in self.__slots__)
        return " ".join(f"{name}={x}" for name, x, default in shown if x != default)


@dataclass(frozen=True, slots=True)
class MatrixTiling:
    """How a workgroup divides a tile of a matrix product among its waves.

    Args:
      instruction: that multiplies, by name.
      operand: dtype in which it takes both operands.
      waves: waves along rows and columns.
      fragments: instructions along rows and columns of each wave.
      depth: of the operands' tiles in local memory.
      stages: tiles of each operand in local memory; 0 for one that is read in turn with products.
    """

    instruction: str
    operand: str
    waves: tuple[int, int]
    fragments: tuple[int, int]
    depth: int
    stages: int

    def __str__(self) -> str:
        waves, fragments = ("x".join(map(str, x)) for x in (self.waves, self.fragments))
        return f"{self.instruction}·{self.operand}·{waves}·{fragments}·{self.depth}·{self.stages}"

    @classmethod
    def parse(cls, text: str) -> MatrixTiling:
        """The tiling that prints as `text`."""
        instruction, operand, waves, fragments, depth, stages = text.split("·")
        high, wide = map(int, waves.split("x"))
        rows, columns = map(int, fragments.split("x"))
        return cls(instruction, operand, (high, wide), (rows, columns), int(depth), int(stages))
