"""`python -m tests.support.killed_searches FOLDER KILLS PROCESSES`: searches that are killed.

Children of this process search, tell what was recorded, and are killed at random times; the next
goes on with what it finds. Nothing that was recorded may be missing afterwards, and no database may
be found to be damaged. Prints how many were killed, and how many were through before.
"""

import os
import random
import signal
import sys
import time
import warnings

import numpy as np

import amdjax.numpy as jnp
from amdjax import find
from amdjax.core.config import config
from amdjax.find.database import Database

X = np.random.default_rng(0).standard_normal((40, 56)).astype(np.float32)


def function(x):
    return jnp.sort(jnp.tanh(x @ x.T), axis=0) + jnp.cumsum(x, axis=1).sum()


def name_of(problem, machine, version, result):
    return repr((str(problem), result.decisions)).encode()


def search(path, pipe):
    """Search all, and write to a pipe what was recorded, a line each."""
    config.update("db_path", path)
    record = Database.record

    def recorded(self, *entry):
        record(self, *entry)
        os.write(pipe, name_of(*entry) + b"\n")

    Database.record = recorded
    find.tune(function, X, budget=60, quiet=True)


def started(path):
    """The id of a child that searches, and the end of its pipe."""
    end, pipe = os.pipe()
    child = os.fork()
    if child:
        os.close(pipe)
        return child, end
    try:
        search(path, pipe)
    except BaseException as e:  # what a child fails with is told by its status
        print(f"{type(e).__name__}: {e}", file=sys.stderr)
        os._exit(1)
    os._exit(0)


def told(end):
    """The whole lines of a pipe whose writers are gone."""
    with os.fdopen(end, "rb") as file:
        return {line[:-1] for line in file if line.endswith(b"\n")}


def main(folder, kills, processes):
    warnings.simplefilter("error")  # such as of a damaged database
    rng, number, recorded = random.Random(0), 0, set()
    killed = through = 0
    while killed < kills:
        path = f"{folder}/{number}.db"
        children = [started(path) for _ in range(processes)]
        time.sleep(rng.uniform(0.0, 1.5))
        statuses = []
        for child, end in children:
            os.kill(child, signal.SIGKILL)
            statuses.append(os.waitpid(child, 0)[1])
            recorded |= told(end)
        assert set(statuses) <= {0, signal.SIGKILL}, statuses
        database = Database(path)
        found = {name_of(*known) for known in database.rows()}
        assert found >= recorded, recorded - found
        database.close()
        killed += statuses.count(signal.SIGKILL)
        through += statuses.count(0)
        if 0 in statuses:
            number, recorded = number + 1, set()
    print(f"{killed} killed, {through} through")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
