"""The file of an artifact: a zip archive of plain members, written whole or not at all.

Members are stored as they are, one behind the other, each at a multiple of `ALIGN` bytes, so that a
file that is mapped into memory is its members. `manifest.json` has the SHA-256 of every other
member, of large ones that of each block; `signature.json`, where there is one, authenticates the
manifest. Reading trusts nothing: what an archive may have and this one has not (compression,
comments, gaps, names twice or of other folders) is refused.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import io
import json
import os
import re
import struct
import threading
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from amdjax.core.files import replaced

from .file_map import file_of, mapped

__all__ = [
    "ALIGN", "MANIFEST", "ArtifactError", "Content", "Data", "Members", "hashed", "parsed_json",
    "write", "write_file",
]  # fmt: skip

Data = bytes | bytearray | memoryview
Content = Data | list[Data]  # parts one behind the other, which are not joined in memory

ALIGN = 64
MANIFEST, SIGNATURE = "manifest.json", "signature.json"
JSON_BYTES = 64 << 20  # of JSON
DEPTH = 100  # of values in values
MOST_MEMBERS = 1 << 16
_BLOCK = 4 << 20  # bytes that are hashed at once, by any thread
_MOST_THREADS = 8
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}(/[A-Za-z0-9_.-]{1,128}){0,3}")
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')
_LOCAL = struct.Struct("<4s5H3I2H")  # what stands before a member
_EPOCH = (1980, 1, 1, 0, 0, 0)  # equal contents are equal files
_PADDING = 0xD935  # the field of archives that aligns members


class ArtifactError(ValueError):
    """An artifact that cannot be read; the message names the member."""


# Writing


def write(members: Mapping[str, Content], manifest: Mapping[str, Any], *, key: Any = None) -> bytes:
    """An archive as bytes.

    Args:
      members: contents by name.
      manifest: what is said of them; hashes are added.
      key: None, or (name, bytes) by which the manifest is signed.
    """
    file = io.BytesIO()
    _write(file, members, manifest, key)
    return file.getvalue()


def write_file(
    path: str | os.PathLike[str], members: Mapping[str, Content], manifest: Mapping[str, Any],
    *, key: Any = None,
) -> None:  # fmt: skip
    """An archive as a file: written beside it, and renamed when it is on disk as a whole."""
    with replaced(path) as aside, open(aside, "xb") as file:
        _write(file, members, manifest, key)


def _write(
    file: Any, members: Mapping[str, Content], manifest: Mapping[str, Any], key: Any
) -> None:
    hashes = {name: hashed(data) for name, data in members.items()}
    told = json.dumps({**manifest, "hashes": hashes}, indent=1, sort_keys=True).encode()
    everything: dict[str, Content] = {MANIFEST: told}
    if key is not None:
        everything[SIGNATURE] = _signed(told, *key)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for name, data in (everything | dict(members)).items():
            _add(archive, file, name, data)


def _add(archive: zipfile.ZipFile, file: Any, name: str, content: Content) -> None:
    parts = _parts(content)
    info = zipfile.ZipInfo(name, _EPOCH)
    info.file_size = size = sum(map(len, parts))
    # Room for what the archive writes itself where sizes have more than 32 bits.
    own = 20 if size > zipfile.ZIP64_LIMIT else 0
    start = file.tell() + _LOCAL.size + len(name) + own + 4
    info.extra = struct.pack("<HH", _PADDING, -start % ALIGN) + bytes(-start % ALIGN)
    with archive.open(info, "w", force_zip64=bool(own)) as member:
        for part in parts:
            member.write(part)


def hashed(content: Content) -> str | list[str]:
    """The SHA-256 of a member, or of each of its blocks."""
    found, digest, room = list[str](), hashlib.sha256(), _BLOCK
    for part in _parts(content):
        while len(part):
            if not room:
                found.append(digest.hexdigest())
                digest, room = hashlib.sha256(), _BLOCK
            digest.update(part[:room])
            part, room = part[room:], room - min(room, len(part))
    found.append(digest.hexdigest())
    return found if len(found) > 1 else found[0]


def _parts(content: Content) -> list[memoryview]:
    """The contents of a member, as they lie in memory."""
    parts = content if isinstance(content, list) else [content]
    return [memoryview(part).cast("B") for part in parts]


def _blocks(data: memoryview) -> list[memoryview]:
    return [data[at : at + _BLOCK] for at in range(0, max(len(data), 1), _BLOCK)]


def _signed(manifest: bytes, name: str, key: bytes) -> bytes:
    mac = hmac.new(key, manifest, hashlib.sha256).hexdigest()
    return json.dumps({"algorithm": "HMAC-SHA256", "key": name, "mac": mac}).encode()


# Reading


class Members:
    """The members of an archive, whose hashes are those that its manifest has.

    They are hashed by threads while they are read: what is made of the archive counts only once
    `check` has returned. Large ones of a file that has not changed since are hashed once.

    Args:
      source: a path, whose file is mapped into memory, or bytes.

    Attributes:
      manifest: what the manifest says, in JSON.

    Raises:
      ArtifactError: it is no archive of this form, or a member is damaged.
      FileNotFoundError: there is no such file.
    """

    def __init__(self, source: str | os.PathLike[str] | Data):
        self.data = _contents(source)
        self._file = file_of(self.data)
        self._places = _places(self.data)
        if MANIFEST not in self._places:
            raise ArtifactError(f"{MANIFEST} is missing")
        self.manifest = parsed_json(self[MANIFEST], MANIFEST)
        hashes = self.manifest.get("hashes")
        if not isinstance(hashes, dict):
            raise ArtifactError(f"{MANIFEST}: hashes of members are missing")
        for name in self.names() ^ hashes.keys():
            where = MANIFEST if name in self._places else "the archive"
            raise ArtifactError(f"{name} is missing in {where}")
        self._damaged: list[str] = []
        self._waiting: list[tuple[str, memoryview, Any]] = []
        small: list[tuple[str, memoryview, Any]] = []
        for name, told in hashes.items():
            blocks = _blocks(self[name])
            if isinstance(told, str):  # as large ones had it before
                blocks, told = [self[name]], [told]
            if not isinstance(told, list) or len(told) != len(blocks):
                raise ArtifactError(f"{name} is damaged: it has not the blocks of the manifest")
            into = self._waiting if len(self[name]) > _BLOCK else small
            into += [(name, *pair) for pair in zip(blocks, told, strict=True)]
        if self._waiting and self._seen() is not None:
            self._waiting = []
        self._is_new = bool(self._waiting)
        self._hashing: list[threading.Thread] = []
        if self._waiting:
            # late: only large files need it
            from amdjax.runtime.environment import requested_threads

            others = max(min(len(self._waiting), requested_threads() - 1, _MOST_THREADS), 1)
            self._hashing += [threading.Thread(target=self._hash) for _ in range(others)]
        for thread in self._hashing:
            thread.daemon = True
            thread.start()
        for part in small:
            self._hash_one(*part)
        if self._damaged:
            self.check()

    def _hash(self) -> None:
        """Take part in what is left."""
        with contextlib.suppress(IndexError):
            while True:
                self._hash_one(*self._waiting.pop())

    def _hash_one(self, name: str, data: memoryview, told: Any) -> None:
        if hashlib.sha256(data).hexdigest() != told:
            self._damaged.append(name)

    def check(self) -> None:
        """Wait until all members are hashed.

        Raises:
          ArtifactError: one is damaged.
        """
        self._hash()
        for thread in self._hashing:
            thread.join()
        for name in self._damaged:
            raise ArtifactError(f"{name} is damaged: its hash is not that of the manifest")
        if self._is_new:
            self._seen(b"whole")

    def _seen(self, now: bytes | None = None) -> bytes | None:
        """What is known of a file whose large members were hashed before; keeps what is `now`."""
        if self._file is None or self._file.state is None:
            return None
        # late: only large files need it
        from amdjax.runtime.cache import object_cache

        told = f"artifact {self._file.state} ".encode() + bytes(self[MANIFEST])
        key = hashlib.sha256(told).digest()
        if now is not None:
            object_cache().put(key, now)
        return object_cache().get(key)

    def names(self) -> set[str]:
        """Names of the members that the manifest tells of."""
        return self._places.keys() - {MANIFEST, SIGNATURE}

    def __contains__(self, name: str) -> bool:
        return name in self._places

    def __getitem__(self, name: str) -> memoryview:
        if name not in self._places:
            raise ArtifactError(f"{name} is missing")
        start, size = self._places[name]
        return self.data[start : start + size]

    def signed_by(self, keys: Mapping[str, bytes]) -> str | None:
        """The name of the key, among some, by which the manifest is signed; None for another.

        Raises:
          ArtifactError: the signature names one of the keys, and does not hold.
        """
        if SIGNATURE not in self._places:
            return None
        told = parsed_json(self[SIGNATURE], SIGNATURE)
        name, mac = told.get("key"), told.get("mac")
        if told.get("algorithm") != "HMAC-SHA256" or not isinstance(mac, str):
            return None
        if not isinstance(name, str) or name not in keys:
            return None
        expected = hmac.new(keys[name], self[MANIFEST], hashlib.sha256).hexdigest()
        if not hmac.compare_digest(expected.encode(), mac.encode()):
            raise ArtifactError(f"{SIGNATURE}: it does not hold for the key {name!r}")
        return name


def parsed_json(data: Data, member: str) -> dict[str, Any]:
    """Bytes that are an object of JSON, none too large nor deep.

    Raises:
      ArtifactError: they are not.
    """
    if len(data) > JSON_BYTES:
        raise ArtifactError(f"{member}: it is too large, of {len(data)} bytes")
    text = bytes(data)
    # What reads JSON calls itself for each level, on a stack that it does not measure.
    marks = np.frombuffer(_STRING.sub(b"", text), np.uint8)
    opened = np.isin(marks, np.frombuffer(b"[{", np.uint8)).astype(np.int64)
    closed = np.isin(marks, np.frombuffer(b"]}", np.uint8))
    if np.cumsum(opened - closed).max(initial=0) > DEPTH:
        raise ArtifactError(f"{member}: more than {DEPTH} values in values")
    try:
        found = json.loads(text, object_pairs_hook=_object)
    except ValueError as e:
        raise ArtifactError(f"{member}: {e}") from None
    if not isinstance(found, dict):
        raise ArtifactError(f"{member}: it is no object")
    return found


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands twice in an object")
    return found


def _contents(source: str | os.PathLike[str] | Data) -> memoryview:
    if not isinstance(source, (str, os.PathLike)):
        return memoryview(source).cast("B").toreadonly()
    found = mapped(Path(source))
    if not found:
        raise ArtifactError("the file is empty")
    return memoryview(found)


def _places(data: memoryview) -> dict[str, tuple[int, int]]:
    """Where members are, of an archive that has nothing else: starts and sizes by name."""
    try:
        archive = zipfile.ZipFile(_File(data))
        infos = archive.infolist()
    except Exception as e:  # archives made on purpose raise what is not documented
        raise ArtifactError(f"this is no artifact, or it is cut short: {e}") from None
    if len(infos) > MOST_MEMBERS or archive.comment:
        raise ArtifactError("this is no artifact: it has comments, or too many members")
    found: dict[str, tuple[int, int]] = {}
    end = 0
    for info in infos:
        name = info.filename
        if not _NAME.fullmatch(name) or {".", ".."} & set(name.split("/")):
            raise ArtifactError(f"{name[:200]!r} is no name of a member")
        if name in found:
            raise ArtifactError(f"{name} is there twice")
        if info.header_offset != end:
            raise ArtifactError(f"{name} does not follow the member before it")
        start = _start(data, info)
        end = start + info.file_size
        found[name] = start, info.file_size
    if end != archive.start_dir:
        raise ArtifactError("there is something between the members and the archive's directory")
    return found


def _start(data: memoryview, info: zipfile.ZipInfo) -> int:
    """Where the contents of a member start, whose two headers say the same."""
    name, at = info.filename, info.header_offset
    refuse = lambda why: ArtifactError(f"{name}: {why}")
    if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size:
        raise refuse("it is compressed")
    if info.flag_bits or info.comment:
        raise refuse("it is encrypted, or has a comment")
    if at + _LOCAL.size > len(data):
        raise refuse("it is cut short")
    magic, _, flags, method, _, _, crc, _, size, named, extra = _LOCAL.unpack_from(data, at)
    start = at + _LOCAL.size + named + extra
    if bytes(data[at + _LOCAL.size :][:named]) != name.encode() or magic != b"PK\x03\x04":
        raise refuse("it is called otherwise where it stands")
    known = info.file_size if info.file_size <= zipfile.ZIP64_LIMIT else 0xFFFFFFFF
    if (flags, method, crc, size) != (0, zipfile.ZIP_STORED, info.CRC, known):
        raise refuse("what is said of it differs from what is said where it stands")
    if name in (MANIFEST, SIGNATURE) and zlib.crc32(data[start:][: info.file_size]) != crc:
        raise refuse("it is damaged: its checksum is not that of the archive")
    if start % ALIGN or start + info.file_size > len(data):
        raise refuse("it is not aligned, or cut short")
    return start


class _File(io.RawIOBase):
    """Bytes as a file, without a copy of them."""

    def __init__(self, data: memoryview):
        self.data, self.at = data, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.at

    def seek(self, offset: int, whence: int = 0) -> int:
        at = offset + (0, self.at, len(self.data))[whence]
        if at < 0:
            raise OSError("before the start")
        self.at = at
        return at

    def read(self, size: int = -1) -> bytes:
        end = len(self.data) if size < 0 else self.at + size
        found = bytes(self.data[self.at : end])
        self.at += len(found)
        return found
