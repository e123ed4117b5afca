"""What was measured, on disk: solutions by problem, machine and version of the compiler.

SQLite in WAL mode: many processes read and write at once, and whatever was written stays when one
of them is killed. A database that is damaged is set aside, with a warning, and a new one begun: it
holds nothing that cannot be measured again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import random
import sqlite3
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from amdjax.find.problem import Problem
from amdjax.schedule.search import Decision

T = TypeVar("T")
STATUSES = ("right", "wrong", "failed", "inaccurate")
SCHEMA = 1  # of tables; a database with a later one is left alone
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_BUSY_SECONDS = 30.0  # to wait while another process writes

_TABLES = """
CREATE TABLE problems (
  id INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, kind TEXT NOT NULL, program TEXT NOT NULL
);
CREATE TABLE machines (
  id INTEGER PRIMARY KEY, name TEXT NOT NULL, units INTEGER NOT NULL, UNIQUE (name, units)
);
CREATE TABLE solutions (
  problem INTEGER NOT NULL REFERENCES problems ON DELETE CASCADE,
  machine INTEGER NOT NULL REFERENCES machines,
  version TEXT NOT NULL,
  decisions TEXT NOT NULL,
  status TEXT NOT NULL,
  seconds REAL, spread REAL, workspace INTEGER,
  estimated INTEGER NOT NULL,
  note TEXT NOT NULL, time REAL NOT NULL,
  PRIMARY KEY (problem, machine, version, decisions)
) WITHOUT ROWID;
"""
_COLUMNS = "decisions, status, seconds, spread, workspace, estimated, note"


@dataclass(frozen=True)
class MachineKey:
    """A machine as far as times on it go.

    Args:
      name: the GPU target; the model and features of a CPU.
      units: compute units, or threads.
    """

    name: str
    units: int

    def __str__(self) -> str:
        return f"{self.name}, {self.units} units"


@dataclass(frozen=True)
class Result:
    """What is known of one way to solve a problem.

    Args:
      decisions: the way.
      status: `right`, `wrong`, `failed`, or `inaccurate` of an algorithm that rounds more.
      seconds: of an undisturbed run; None unless it is right.
      spread: how much longer the median of runs took, in seconds.
      workspace: bytes besides arguments and results.
      estimated: whether the time is a model's.
      note: how far results were off, or why it failed.
    """

    decisions: tuple[Decision, ...]
    status: str
    seconds: float | None = None
    spread: float = 0.0
    workspace: int = 0
    estimated: bool = False
    note: str = ""

    def row(self) -> tuple[Any, ...]:
        """The values of the columns."""
        return (
            json.dumps(self.decisions, ensure_ascii=False), self.status, self.seconds, self.spread,
            self.workspace, int(self.estimated), self.note,
        )  # fmt: skip

    @staticmethod
    def of_row(row: Sequence[Any]) -> Result | None:
        """The result of such values; None if a part of them is damaged."""
        try:
            decisions = tuple(Decision(*map(str, x)) for x in json.loads(row[0]))
            seconds = None if row[2] is None else float(row[2])
            is_timed = seconds is not None and 0 < seconds < math.inf
            if row[1] not in STATUSES or is_timed != (row[1] == "right"):
                return None
            rest = float(row[3]), int(row[4]), bool(row[5]), str(row[6])
            return Result(decisions, row[1], seconds, *rest)
        except (ValueError, TypeError):
            return None


class Known(NamedTuple):
    """A result, and where it comes from."""

    problem: Problem
    machine: MachineKey
    version: str
    result: Result


class Database:
    """Results of searches, shared by processes.

    Args:
      path: of the file, made when missing.
      writable: whether results may be recorded; others are read where they lie.

    Raises:
      sqlite3.OperationalError: the file cannot be opened, read or made.
    """

    def __init__(self, path: str | os.PathLike[str], *, writable: bool = True):
        self.path, self.writable = Path(path), writable
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._pid = 0
        with self._connected():
            pass

    # Reading

    def known(self, problems: Sequence[Problem], machine: MachineKey) -> list[Known]:
        """Right ways to solve one of some problems, on this machine and on others of its name."""
        by_key = {_key(problem): problem for problem in problems}
        marks = ", ".join("?" * len(by_key))
        query = f"""SELECT key, units, version, {_COLUMNS} FROM solutions
            JOIN machines ON machines.id = machine JOIN problems ON problems.id = problem
            WHERE key IN ({marks}) AND name = ? AND status = 'right' AND seconds IS NOT NULL"""
        rows = self._read(query, *by_key, machine.name)
        return [
            Known(by_key[key], MachineKey(machine.name, units), version, result)
            for key, units, version, *rest in rows
            if (result := Result.of_row(rest)) is not None
        ]

    def results(self, problem: Problem, machine: MachineKey, version: str) -> list[Result]:
        """All that is known of a problem, the fastest first."""
        query = f"""SELECT {_COLUMNS} FROM solutions JOIN machines ON machines.id = machine
            JOIN problems ON problems.id = problem
            WHERE key = ? AND name = ? AND units = ? AND version = ?
            ORDER BY status != 'right', estimated, seconds"""
        rows = self._read(query, _key(problem), machine.name, machine.units, version)
        return [result for row in rows if (result := Result.of_row(row)) is not None]

    def rows(self) -> Iterator[Known]:
        """Everything, problem by problem."""
        query = f"""SELECT kind, program, name, units, version, {_COLUMNS} FROM solutions
            JOIN machines ON machines.id = machine JOIN problems ON problems.id = problem
            ORDER BY kind, problem, machine, version, status != 'right', estimated, seconds"""
        for kind, program, name, units, version, *rest in self._read(query):
            result = Result.of_row(rest)
            if result is not None:
                yield Known(Problem(kind, program), MachineKey(name, units), version, result)

    # Writing

    def record(self, problem: Problem, machine: MachineKey, version: str, result: Result) -> None:
        """Add a result, in the place of an earlier one; an estimate never replaces a time."""
        key, at = _key(problem), (machine.name, machine.units)

        def insert(db: sqlite3.Connection) -> None:
            db.execute(
                "INSERT OR IGNORE INTO problems (key, kind, program) VALUES (?, ?, ?)",
                (key, problem.kind, problem.program),
            )
            db.execute("INSERT OR IGNORE INTO machines (name, units) VALUES (?, ?)", at)
            db.execute(
                f"""INSERT INTO solutions (problem, machine, version, {_COLUMNS}, time)
                SELECT problems.id, machines.id, ?, ?, ?, ?, ?, ?, ?, ?, ? FROM problems, machines
                WHERE key = ? AND name = ? AND units = ?
                ON CONFLICT DO UPDATE SET status = excluded.status, seconds = excluded.seconds,
                  spread = excluded.spread, workspace = excluded.workspace,
                  estimated = excluded.estimated, note = excluded.note, time = excluded.time
                WHERE excluded.estimated <= solutions.estimated""",
                (version, *result.row(), time.time(), key, *at),
            )

        self._write(insert)

    def forget(self, problem: Problem | None = None, version: str | None = None) -> int:
        """Remove results.

        Args:
          problem: of which; None for all.
          version: of the compiler whose results stay; None to remove those of all.

        Returns:
          How many were removed.
        """
        key = None if problem is None else _key(problem)

        def delete(db: sqlite3.Connection) -> int:
            found = db.execute(
                """DELETE FROM solutions WHERE (? IS NULL OR version != ?)
                AND (? IS NULL OR problem IN (SELECT id FROM problems WHERE key = ?))""",
                (version, version, key, key),
            )
            db.execute("DELETE FROM problems WHERE id NOT IN (SELECT problem FROM solutions)")
            return found.rowcount

        return self._write(delete)

    def close(self) -> None:
        """Give the file back."""
        with self._lock:
            if self._connection is not None and self._pid == os.getpid():
                self._connection.close()
            self._connection = None

    # The file

    def _read(self, query: str, *values: Any) -> list[Any]:
        return self._sound(lambda db: db.execute(query, values).fetchall())

    def _write(self, change: Callable[[sqlite3.Connection], T]) -> T:
        """Change the database, all or nothing."""
        if not self.writable:
            raise sqlite3.OperationalError("it cannot be written")

        def transaction(db: sqlite3.Connection) -> T:
            try:
                db.execute("BEGIN IMMEDIATE")
                result = change(db)
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise
            return result

        return self._sound(transaction)

    def _sound(self, use: Callable[[sqlite3.Connection], T]) -> T:
        """Use the database; one that turns out to be damaged is set aside."""
        with self._connected() as db:
            try:
                return use(db)
            except (sqlite3.DatabaseError, UnicodeDecodeError) as e:
                if not self.writable or not _is_damage(e):
                    raise
                self.close()
                self._set_aside(e)
        with self._connected() as db:
            return use(db)

    @contextlib.contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            # A connection must not be used on the other side of a fork.
            if self._connection is None or self._pid != os.getpid():
                self._connection, self._pid = self._opened(), os.getpid()
            yield self._connection

    def _opened(self) -> sqlite3.Connection:
        if not self.writable:
            return self._only_read()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            return self._prepared()
        except (sqlite3.DatabaseError, UnicodeDecodeError) as e:
            if not _is_damage(e):
                raise
            self._set_aside(e)
            return self._prepared()

    def _only_read(self) -> sqlite3.Connection:
        """A connection to a database that others may be writing to, or that lies where none can."""
        name = f"{self.path.absolute().as_uri()}?mode=ro"
        db = self._connect(name)
        try:
            _schema(db)
        except sqlite3.OperationalError:  # no place for what WAL mode shares
            db.close()
            db = self._connect(f"{name}&immutable=1")
        try:
            self._require_schema(db)
        except BaseException:
            db.close()
            raise
        return db

    def _require_schema(self, db: sqlite3.Connection) -> None:
        schema = _schema(db)
        if schema > SCHEMA:
            raise sqlite3.OperationalError(
                f"{self.path} was written by a later version of amdjax: schema {schema}, "
                f"of which this one knows {SCHEMA}; set AMDJAX_DB_PATH to another file"
            )
        if schema == 0:
            raise sqlite3.OperationalError(f"{self.path} is no database of find")

    def _connect(self, name: str) -> sqlite3.Connection:
        db = sqlite3.connect(
            name, _BUSY_SECONDS, isolation_level=None, check_same_thread=False, uri=True
        )
        db.text_factory = lambda data: data.decode("utf-8", "replace")  # damaged text too
        return db

    def _prepared(self) -> sqlite3.Connection:
        """A connection to a sound database of our schema."""
        db = self._connect(self.path.absolute().as_uri())
        try:
            db.execute("PRAGMA foreign_keys = ON")
            _write_ahead(db)
            db.execute("PRAGMA synchronous = NORMAL")
            if _schema(db) == 0:
                db.execute("BEGIN IMMEDIATE")
                if _schema(db) == 0:  # no other process was faster
                    for statement in filter(str.strip, _TABLES.split(";")):
                        db.execute(statement)
                    db.execute(f"PRAGMA user_version = {SCHEMA}")
                db.execute("COMMIT")
            self._require_schema(db)
            (sound,) = db.execute("PRAGMA quick_check(1)").fetchone()
            if sound != "ok":
                raise _Damaged(sound)
        except BaseException:
            db.close()
            raise
        return db

    def _set_aside(self, error: Exception) -> None:
        aside = self.path.with_name(f"{self.path.name}.damaged-{time.time_ns()}")
        warnings.warn(
            f"{self.path} is damaged ({error}): it is now {aside.name}, and a new one is begun",
            stacklevel=2,
        )
        for suffix in ("", "-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                os.replace(f"{self.path}{suffix}", f"{aside}{suffix}")


def _write_ahead(db: sqlite3.Connection) -> None:
    """Turn WAL mode on.

    The turn takes an exclusive lock while a shared one is held. SQLite does not wait for it, since
    two processes that waited for each other would never end: it is asked for again instead.
    """
    last = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as e:
            if _error_code(e) != sqlite3.SQLITE_BUSY or time.monotonic() > last:
                raise
        time.sleep(random.uniform(0.001, 0.02))


class _Damaged(sqlite3.DatabaseError):
    """A check found damage."""


def _is_damage(error: Exception) -> bool:
    """Whether an error says that a file is damaged, not that it cannot be used now.

    Another table or column than ours is damage, too: the schema's number was looked at before. A
    message that quotes what is damaged may be no text.
    """
    if isinstance(error, sqlite3.Error) and not isinstance(error, _Damaged):
        is_other = any(x in str(error) for x in ("no such", "has no column", "mismatch"))
        return _error_code(error) in _DAMAGE or is_other
    return True


def _error_code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF  # none where Python raised it


def _schema(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def _key(problem: Problem) -> bytes:
    text = f"{problem.kind}\0{problem.program}"
    return hashlib.blake2b(text.encode(), digest_size=16).digest()
