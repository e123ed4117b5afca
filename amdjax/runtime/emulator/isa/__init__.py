"""Opcode numbers and field layouts of the instruction sets, as data."""
