"""Files of artifacts with something changed, by chance or on purpose; as a script, many of them.

`python -m tests.export.mutations 100000` reads as many and tells what became of them.
"""

import hashlib
import io
import json
import resource
import sys
import time
import zipfile
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import amdjax
import amdjax.numpy as jnp
from amdjax import export, lax
from amdjax.core.config import State
from amdjax.export import container
from amdjax.jit.stored_variants import read_variants

MARKS = b"0123456789()[]{}:;,.'<>*^-+ nmaf\n\\\""
HOSTILE = [
    None, True, -1, 0, 1 << 62, 10**40, 1e308, "", "..", "/etc/passwd", "x" * 10_000, [], {},
    ["tuple", ["tuple"]], [[[[[]]]]], {"a": {"b": []}}, "program.txt", "9^64^64^64", "main", "n",
]  # fmt: skip


def subject():
    """The members of an artifact that has a bit of everything, and its manifest."""

    def f(x, *, w):
        with amdjax.named_scope("sum"):
            y = lax.scan(lambda c, r: (c + r, r.argmax()), x[0], x)[0]
        z = lax.cond(y.sum() > 0, lambda v: v * 2, jnp.sin, y[::2])
        return {"y": [z @ x[:, ::2].T, None], "w": w[jnp.array([1, 0])] + np.arange(3.0)}

    scope = export.SymbolicScope(["n >= 2", "mod(m, 2) == 0"])
    spec = lambda text: amdjax.ShapeDtypeStruct(export.symbolic_shape(text, scope=scope), "f4")
    e = export.export(amdjax.jit(f))(spec("n, m"), w=spec("2, 3"))
    sizes, plans = {"n": 4, "m": 6}, (State("keep_plans")(True), State("check")(False))
    with TemporaryDirectory() as folder, plans[0], plans[1]:
        e.save(folder + "/f", targets=["cpu", "gfx1100"], example=sizes, key=("k", b"secret"))
        members = container.Members(Path(folder, "f").read_bytes())
    contents = {name: bytes(members[name]) for name in members.names()}
    return contents, members.manifest


def written(members, manifest):
    """A file whose hashes are right, whatever its members are."""
    told = {k: v for k, v in manifest.items() if k != "hashes"}
    return container.write(members, told, key=("k", b"secret"))


def bits(rng, blob):
    """Some bytes of the file flipped."""
    damaged = bytearray(blob)
    for at in rng.integers(0, len(blob), rng.integers(1, 4)):
        damaged[at] ^= 1 << int(rng.integers(8))
    return bytes(damaged)


def cut(rng, blob):
    """The file cut short, or parts of it left out or twice."""
    a, b = sorted(rng.integers(0, len(blob), 2))
    return (blob[:a], blob[:a] + blob[b:], blob[:b] + blob[a:], blob + blob[a:b])[rng.integers(4)]


def text(rng, data):
    """A text with some characters changed."""
    damaged = bytearray(data)
    for _ in range(rng.integers(1, 4)):
        at, count = int(rng.integers(len(damaged) + 1)), int(rng.integers(0, 4))
        damaged[at : at + int(rng.integers(3))] = rng.choice(bytearray(MARKS), count).tobytes()
    return bytes(damaged)


def words(rng, data):
    """A text of which some words are others of it."""
    found = data.split(b" ")
    for _ in range(rng.integers(1, 4)):
        found[rng.integers(len(found))] = found[rng.integers(len(found))]
    return b" ".join(found)


def values(rng, told):
    """JSON of which a value is another one, or is missing."""
    copy = json.loads(json.dumps(told))
    here = copy
    while True:
        keys = list(here) if isinstance(here, dict) else list(range(len(here)))
        if not keys:
            return copy
        key = keys[rng.integers(len(keys))]
        if isinstance(here[key], (dict, list)) and rng.random() < 0.7:
            here = here[key]
        elif rng.random() < 0.2:
            del here[key]
            return copy
        else:
            here[key] = HOSTILE[rng.integers(len(HOSTILE))]
            return copy


def mutated(rng, members, manifest, blob):
    """A file in which one thing is wrong, with right hashes where it is in a member."""
    kind = rng.integers(10)
    if kind < 2:
        return (bits, cut)[kind](rng, blob)
    members, names = dict(members), sorted(members)
    name = names[rng.integers(len(names))]
    programs = [n for n in names if n.startswith("program")]
    program = programs[rng.integers(len(programs))]
    if kind == 2:
        other = names[rng.integers(len(names))]
        members[name], members[other] = members[other], members[name]
    elif kind == 3 and rng.random() < 0.8:
        manifest = values(rng, manifest)
    elif kind == 3:
        told = values(rng, json.loads(members["names.json"]))
        members["names.json"] = json.dumps(told).encode()
    elif kind in (4, 5):
        members[program] = (text, words)[kind - 4](rng, members[program])
    elif kind == 6:
        members[name] = bits(rng, members[name])
    elif kind == 9:
        plans = [n for n in names if n.startswith("plans/")]
        plan = plans[rng.integers(len(plans))]
        members[plan] = json.dumps(values(rng, json.loads(members[plan]))).encode()
    elif kind == 7:
        members.pop(name)
        members[str(rng.choice(["../a", "/a", "a/b/c/d/e", "a\\b", "", "kernels/cpu/zz"]))] = b"x"
    else:
        told = json.dumps(manifest).encode()
        return raw(members | {"manifest.json": text(rng, told)})
    return written(members, manifest)


def raw(members):
    """A plain archive, as others write it."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return file.getvalue()


def outcome(blob):
    """ "refused", "read", or that and what a trusted file's plans are.

    Anything but an `ArtifactError`, or a `ValueError` for a plan, is raised.
    """
    try:
        consts = export.deserialize(blob).program.consts
    except export.ArtifactError as e:
        assert str(e)
        return "refused"
    members = container.Members(blob)
    for name in members.names():
        if name.startswith("plans/"):
            try:
                read_variants(bytes(members[name]), consts)
            except ValueError:
                return "read but for a plan"
    return "read"


def main(count, seed=0):
    members, manifest = subject()
    blob = written(members, manifest)
    assert outcome(blob) == "read"
    rng, seen, slowest = np.random.default_rng(seed), Counter(), 0.0
    start = time.process_time()
    for i in range(count):
        changed = mutated(rng, members, manifest, blob)
        before = time.process_time()
        try:
            seen[outcome(changed)] += 1
        except BaseException:
            digest = hashlib.sha256(changed).hexdigest()[:8]
            Path(f"mutation-{digest}.amdjax").write_bytes(changed)
            print(f"file {i} of seed {seed} is kept as mutation-{digest}.amdjax")
            raise
        slowest = max(slowest, time.process_time() - before)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(
        f"{count} files in {time.process_time() - start:.0f} s: {dict(seen)}; the slowest took "
        f"{slowest:.2f} s, memory was at most {peak} MiB"
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
