"""What the readers of DWARF sections share: numbers, strings, the forms that values take."""

from __future__ import annotations

from collections.abc import Mapping

STRING, STRP, LINE_STRP, UDATA, SDATA, DATA16 = 0x08, 0x0E, 0x1F, 0x0F, 0x0D, 0x1E
FIXED = {0x0B: 1, 0x05: 2, 0x06: 4, 0x07: 8}  # DW_FORM_data1 … data8


class Reader:
    """Numbers and strings of a section, one after the other.

    Args:
        data: the section.
        at: where to begin.
    """

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data, self.at = data, at

    def number(self, size: int) -> int:
        self.at += size
        return int.from_bytes(self.data[self.at - size : self.at], "little")

    def uleb(self) -> int:
        result = shift = 0
        while True:
            byte = self.number(1)
            result |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return result

    def sleb(self) -> int:
        start, value = self.at, self.uleb()
        bits = 7 * (self.at - start)
        return value - (value >> (bits - 1) << bits)

    def string(self) -> str:
        end = self.data.index(b"\0", self.at)
        text = self.data[self.at : end].decode(errors="replace")
        self.at = end + 1
        return text


def plain_value(r: Reader, form: int, sections: Mapping[str, bytes]) -> str | int:
    """A value of a form that needs nothing but the sections to be understood.

    Raises:
        KeyError: the form is none of these.
    """
    if form == STRING:
        return r.string()
    if form in (STRP, LINE_STRP):
        name = ".debug_line_str" if form == LINE_STRP else ".debug_str"
        return Reader(sections[name], r.number(4)).string()
    if form == UDATA:
        return r.uleb()
    if form == SDATA:
        return r.sleb()
    return r.number(16 if form == DATA16 else FIXED[form])
