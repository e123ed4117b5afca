"""Compiled objects on disk, shared by processes and runs.

One file an entry, named by its key, in 256 folders. A file is written under another name, then
renamed, so readers see whole entries or none whenever a process dies, and no process ever waits
for another. (A database was the alternative: a read of it costs more than open-read-close of a
file of this size, a writer locks the others out, and its locks do not work on every network home
folder.) Each entry carries a checksum; one that fails it is removed and compiled again. Anything
that goes wrong with the disk makes the cache smaller or useless, never an error.

Entries are machine code, so a folder is used only if none but its owner, who is the user or root,
may write to it, and the same holds of its subfolders and of all folders above it: who may write to
one of those can put another folder in its place. Folders above may be open to all if they are
sticky, as `/tmp` is, where names are their owners' to change.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import mmap
import os
import stat
import struct
import sys
import threading
import time
import warnings
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite
import numpy as np
from llvmlite import binding as llvm

from amdjax.codegen.engine import CODEGEN_VERSION, compile_ir, compile_many, host
from amdjax.codegen.restricted import Source
from amdjax.core.config import LOADED_AT, config
from amdjax.core.integers import round_up

#: What has entries that are taken before any other; `jit.kernels.kernels_from` sets it.
SOURCE: ContextVar[Mapping[bytes, bytes] | None] = ContextVar("source", default=None)

# Format mark, then a digest of the rest of the file: key and payload.
_MAGIC = b"AMDJAX1\n"
_DIGEST_BYTES = 16
_HEADER = struct.Struct(f"<8s{_DIGEST_BYTES}s32s")

# Where parts of entries that are mapped begin, and blocks of them that are summed.
_ALIGN, _BLOCK = 64, 1 << 16
# An entry that is mapped takes no larger share of the cache than one in so many.
_SHARES = 4

_MEMORY_BYTES = 64 << 20
# A hit marks an entry as used, at most this often, so that hits seldom write.
_TOUCH_SECONDS = 6 * 3600
# Folders of the package with what makes machine code of a kernel's text.
_GENERATOR = ("codegen", "jit/cpu", "jit/gpu", "targets", "tile")
# Between two looks at the size of the whole cache, by any process.
_SCAN_SECONDS = 600
# Leftovers of processes that died while writing.
_STALE_SECONDS = 3600


def default_directory() -> Path:
    """`$XDG_CACHE_HOME/amdjax`, or the system's usual place for caches."""
    base = os.environ.get("XDG_CACHE_HOME")
    if base and os.path.isabs(base):
        return Path(base) / "amdjax"
    home = Path(os.path.expanduser("~"))
    return home / ("Library/Caches" if sys.platform == "darwin" else ".cache") / "amdjax"


def configured_directory() -> Path | None:
    """Where the flags put the cache; None when it is off."""
    text = config.cache_dir
    if not config.enable_compilation_cache or (text or "").strip().lower() in ("off", "0", "none"):
        return None
    return Path(text).expanduser() if text else default_directory()


def compiler_version() -> tuple[str, ...]:
    """What makes machine code here, to the version."""
    version = ".".join(map(str, llvm.llvm_version_info))
    return version, llvmlite.__version__, str(CODEGEN_VERSION), sources_digest()


@cache
def sources_digest() -> str:
    """A digest of the code that makes machine code of kernels, whose text is in the keys.

    So nothing that an older state of it made is found, whether or not its version was raised. It
    takes some milliseconds, once in a process; where the package is no folder it is empty.
    """
    root = _package()
    found = (_sources(os.path.join(root, *name.split("/"))) for name in _GENERATOR)
    files = [path for folder in found for path, _ in folder]
    return _contents(root, files).hex() if files else ""


# Folders and files with nothing that plans programs.
_NOT_PLANNING = frozenset(
    ("__pycache__", "doctor", "driver", "emulator", "export", "find", "image", "onnx", "tf")
)


@cache
def package_digest() -> str | None:
    """A digest of the code that plans programs.

    None where it is not known: the package is no folder, or was changed after it was loaded.

    It is kept under what changes with any file, since to read them all takes longer.
    """
    root = _package()
    files, state = list[str](), hashlib.sha256(b"sources")
    for path, status in sorted(_sources(root), key=lambda pair: pair[0]):
        if max(status.st_mtime, status.st_ctime) > LOADED_AT:
            return None
        files.append(path)
        known = status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_dev
        state.update(f"{path} {known}".encode())
    if not files:
        return None
    key = state.digest()
    found = object_cache().get(key)
    if found is None:
        found = _contents(root, files)
        object_cache().put(key, found)
    return found.hex()


def _package() -> str:
    return os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def _contents(root: str, files: Iterable[str]) -> bytes:
    """A digest of files in a folder, and of their names there."""
    digest = hashlib.sha256()
    for path in sorted(files):
        with open(path, "rb", buffering=0) as file:  # there are many
            data = file.readall()
        digest.update(f"{path[len(root) :]} {len(data)} ".encode())
        digest.update(data)
    return digest.digest()


def _sources(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    for entry in _scandir(folder):
        if entry.name in _NOT_PLANNING:
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _sources(entry.path)
        elif entry.name.endswith(".py"):
            yield entry.path, entry.stat()


def entry_key(text: str, *facts: str) -> bytes:
    """The 32-byte key of what our generator and LLVM, of these versions, make of a text.

    Args:
      text: what identifies it.
      facts: what else decides it: the machine, options.
    """
    return hashlib.sha256("\0".join((*facts, *compiler_version(), text)).encode()).digest()


def key_for(text: str | Source, opt: int = 2) -> bytes:
    """The key of the object code that IR, or what becomes IR, compiles to for this computer."""
    machine = host()
    text = text if isinstance(text, str) else repr(text)
    return entry_key(text, machine.triple, machine.cpu, machine.features, str(opt))


def _digest(key: bytes, data: bytes) -> bytes:
    return hashlib.blake2b(key + data, digest_size=_DIGEST_BYTES).digest()


class ObjectCache:
    """Bytes by 32-byte key: the most recent in memory, all in `directory` unless that is None.

    Args:
        directory: made when missing; an unusable one leaves the memory layer.
        max_bytes: the oldest entries by last use go above this; negative means no limit.
        memory_bytes: size of the memory layer.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str] | None,
        max_bytes: int = 2**30,
        memory_bytes: int = _MEMORY_BYTES,
    ) -> None:
        self.max_bytes = max_bytes
        self._recent: OrderedDict[bytes, bytes] = OrderedDict()
        self._recent_bytes = 0
        self._recent_limit = memory_bytes
        self._lock = threading.Lock()
        self._written = 0
        self._names = itertools.count()
        self._root = _usable(directory)
        self._safe: dict[str, bool] = {}
        self.hits = self.misses = 0

    @property
    def directory(self) -> str | None:
        """The folder in use."""
        return self._root

    def path(self, key: bytes) -> str:
        name = key.hex()
        return f"{self._root}{os.sep}{name[:2]}{os.sep}{name[2:]}"

    def get(self, key: bytes) -> bytes | None:
        """The bytes stored under `key`, or None."""
        data = self._recent.get(key)
        if data is None and self._root is not None:
            data = self._read(key)
            if data is not None:
                self._remember(key, data)
        if data is None:
            self.misses += 1
        else:
            self.hits += 1
        return data

    def put(self, key: bytes, data: bytes) -> None:
        """Store; failures of the disk are silent."""
        self._remember(key, data)
        if self._root is None or 0 <= self.max_bytes < len(data):
            return
        self._store(key, (_HEADER.pack(_MAGIC, _digest(key, data), key), data), len(data))

    @property
    def maps(self) -> bool:
        """Whether entries can be mapped: files that others delete stay there while they are.

        So it is on a disk of this computer, but not on those of others.
        """
        if self._root is None or not hasattr(os, "major"):
            return False
        with contextlib.suppress(OSError):
            return os.major(os.stat(self._root).st_dev) != 0
        return False

    def put_mapped(self, key: bytes, parts: Sequence[np.ndarray]) -> None:
        """Store bytes that `mapped` gives; failures of the disk are silent.

        Args:
          key: under which nothing else is stored.
          parts: arrays of bytes.
        """
        total = sum(round_up(len(part), _ALIGN) for part in parts)
        if not self.maps or 0 <= self.max_bytes < _SHARES * total:
            return

        def chunks() -> Iterator[Any]:
            yield _HEADER.pack(_MAGIC, _sums(key, parts), key).ljust(_ALIGN, b"\0")
            for part in parts:
                yield part.data
                yield bytes(-len(part) % _ALIGN)

        self._store(key, chunks(), total)

    def mapped(self, key: bytes, sizes: Sequence[int]) -> list[np.ndarray] | None:
        """The bytes stored under `key`, mapped into memory and aligned; None without them.

        Args:
          key: under which they were stored.
          sizes: of the parts.
        """
        path = "" if self._root is None else self.path(key)
        if not path or not self._is_safe(os.path.dirname(path)) or not self.maps:
            return None
        starts = [*itertools.accumulate((round_up(n, _ALIGN) for n in sizes), initial=_ALIGN)]
        try:
            with open(path, "rb", buffering=0) as file:
                status = os.fstat(file.fileno())
                if status.st_size != starts[-1]:
                    return None
                whole = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError):
            return None
        parts = [np.ndarray(n, np.uint8, whole, at) for n, at in zip(sizes, starts)]
        if whole[: _HEADER.size] != _HEADER.pack(_MAGIC, _sums(key, parts), key):
            _remove(path)
            return None
        self._touch(path, status)
        return parts

    def clear(self) -> None:
        """Forget everything, on disk too."""
        with self._lock:
            self._recent.clear()
            self._recent_bytes = 0
        for _, _, path in self._entries():
            _remove(path)

    def size(self) -> int:
        """Bytes on disk."""
        return sum(size for _, size, _ in self._entries())

    def evict(self) -> None:
        """Bring the folder below its limit, least recently used entries first."""
        self._written = 0
        entries = sorted(self._entries())
        total = sum(size for _, size, _ in entries)
        # Some room, so that the next scan is not due at once.
        target = self.max_bytes - self.max_bytes // 8
        if total <= self.max_bytes or self.max_bytes < 0:
            return
        for _, size, path in entries:
            if total <= target:
                break
            _remove(path)
            total -= size

    def _remember(self, key: bytes, data: bytes) -> None:
        if len(data) > self._recent_limit:
            return
        with self._lock:
            old = self._recent.pop(key, b"")
            self._recent[key] = data
            self._recent_bytes += len(data) - len(old)
            while self._recent_bytes > self._recent_limit:
                self._recent_bytes -= len(self._recent.popitem(last=False)[1])

    def _read(self, key: bytes) -> bytes | None:
        path = self.path(key)
        if not self._is_safe(os.path.dirname(path)):
            return None
        try:
            handle = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        except OSError:
            return None
        try:
            status = os.fstat(handle)
            raw = os.read(handle, status.st_size)
        except OSError:
            return None
        finally:
            os.close(handle)
        data = _checked(key, raw)
        if data is None:
            _remove(path)
        else:
            self._touch(path, status)
        return data

    def _store(self, key: bytes, chunks: Iterable[Any], size: int) -> None:
        """Write a file, and bring the folder below its limit if need be."""
        try:
            self._write(key, chunks)
        except OSError:
            return
        self._written += size
        if self.max_bytes >= 0 and self._scan_is_due():
            self.evict()

    def _touch(self, path: str, status: os.stat_result) -> None:
        """Mark an entry as used."""
        if time.time() - status.st_mtime > _TOUCH_SECONDS:
            with contextlib.suppress(OSError):
                os.utime(path)

    def _write(self, key: bytes, chunks: Iterable[Any]) -> None:
        path = self.path(key)
        folder = os.path.dirname(path)
        if not self._is_safe(folder):
            return
        temporary = f"{folder}{os.sep}.{os.getpid()}-{id(self):x}-{next(self._names)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
        try:
            handle = os.open(temporary, flags, 0o600)
        except FileNotFoundError:
            os.makedirs(folder, 0o700, exist_ok=True)
            handle = os.open(temporary, flags, 0o600)
        try:
            with os.fdopen(handle, "wb") as file:
                file.writelines(chunks)
            os.replace(temporary, path)
        except OSError:
            _remove(temporary)
            raise

    def _is_safe(self, folder: str) -> bool:
        """Whether a subfolder is missing or ours alone to write to; looked up once."""
        safe = self._safe.get(folder)
        if safe is None:
            try:
                safe = not _open_to_others(os.stat(folder))
            except OSError:
                return True  # made when an entry is written
            self._safe[folder] = safe
        return safe

    def _entries(self) -> list[tuple[float, int, str]]:
        """Last use, size and path of every entry; removes what dead writers left."""
        found = []
        now = time.time()
        for folder in _scandir(self._root) if self._root else ():
            for entry in _scandir(folder.path):
                try:
                    status = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                if not entry.name.startswith("."):
                    found.append((status.st_mtime, status.st_size, entry.path))
                elif now - status.st_mtime > _STALE_SECONDS:
                    _remove(entry.path)
        return found

    def _scan_is_due(self) -> bool:
        """Every so many bytes of this process, or some minutes after the last process's scan."""
        mark = f"{self._root}{os.sep}.scanned"
        due = self._written > self.max_bytes // 32
        try:
            due = due or time.time() - os.stat(mark).st_mtime > _SCAN_SECONDS
            if due:
                os.utime(mark)
        except OSError:
            due = True
            with contextlib.suppress(OSError), open(mark, "wb"):
                pass
        return due


def _checked(key: bytes, raw: bytes) -> bytes | None:
    """The payload of a file's content if it is whole and belongs to `key`."""
    if len(raw) < _HEADER.size:
        return None
    magic, digest, stored_key = _HEADER.unpack_from(raw)
    data = raw[_HEADER.size :]
    if magic != _MAGIC or stored_key != key or digest != _digest(key, data):
        return None
    return data


def _sums(key: bytes, parts: Sequence[np.ndarray]) -> bytes:
    """A digest of what a damaged disk leaves of arrays, as fast as they are read.

    It is made of the sums of blocks, so that it is not for those who look for equal ones.
    """
    digest = hashlib.blake2b(key, digest_size=_DIGEST_BYTES)
    for part in parts:
        whole = len(part) // _BLOCK * _BLOCK
        words = part[:whole].view(np.uint64).reshape(-1, _BLOCK // 8)
        digest.update(words.sum(axis=1).tobytes())
        digest.update(part[whole:].data)
    return digest.digest()


def _usable(directory: str | os.PathLike[str] | None) -> str | None:
    """The folder's name if it exists or can be made, and only we (or root) can write to it."""
    if directory is None:
        return None
    path = os.path.realpath(os.fspath(directory))
    try:
        _make_folders(path)
        unsafe = _unsafe_folder(path)
    except OSError:
        return None
    if unsafe is not None:
        where = "it" if unsafe == path else unsafe
        warnings.warn(
            f"the cache of compiled kernels {path} is not used, since others may write to {where}; "
            f"`chmod go-w {unsafe}` if it is yours, or set AMDJAX_CACHE_DIR to another folder",
            stacklevel=2,
        )
        return None
    return path


def _make_folders(path: str) -> None:
    """Make a folder, and those above it that are missing, for the user alone."""
    missing, above = [], path
    while not os.path.isdir(above):
        missing.append(above)
        above = os.path.dirname(above)
    for folder in reversed(missing):
        with contextlib.suppress(FileExistsError):  # another process was faster
            os.mkdir(folder, 0o700)
    if not os.path.isdir(path):
        raise NotADirectoryError(path)


def _unsafe_folder(path: str) -> str | None:
    """The first of a folder and those above it by which others could alter its contents."""
    if _open_to_others(os.stat(path)):
        return path
    while (above := os.path.dirname(path)) != path:
        path, status = above, os.stat(above)
        if _open_to_others(status) and not status.st_mode & stat.S_ISVTX:
            return path
    return None


def _open_to_others(status: os.stat_result) -> bool:
    """Whether anybody but the user and root may write, by mode or as the owner."""
    if not hasattr(os, "getuid"):
        return False
    writable = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return bool(writable) or status.st_uid not in (os.getuid(), 0)


def _scandir(path: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(path) as entries:
            return list(entries)
    except OSError:
        return []


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)


_current: tuple[tuple[Path | None, int], ObjectCache] | None = None


def object_cache() -> ObjectCache:
    """The cache that the flags describe now."""
    global _current
    wanted = (configured_directory(), int(config.cache_max_bytes))
    current = _current
    if current is None or current[0] != wanted:
        current = _current = (wanted, ObjectCache(*wanted))
    return current[1]


def compile_cached(texts: Sequence[str | Source], *, opt: int = 2) -> list[bytes]:
    """Object code of each text, compiling (and storing) only what the cache lacks."""
    store = object_cache()
    keys, carried = [key_for(text, opt) for text in texts], SOURCE.get() or {}
    found = {key: carried.get(key) or store.get(key) for key in dict.fromkeys(keys)}
    missing = {key: str(text) for key, text in zip(keys, texts) if found[key] is None}
    if len(missing) == 1:
        [(key, text)] = missing.items()
        compiled = [compile_ir(text, opt=opt)]
    else:
        compiled = compile_many(list(missing.values()), opt=opt)
    for key, data in zip(missing, compiled):
        found[key] = data
        store.put(key, data)
    return [found[key] for key in keys]  # type: ignore[misc]
