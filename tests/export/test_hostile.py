"""Files that are damaged, or made on purpose: an error that names the member, and nothing else."""

import hashlib
import io
import json
import os
import zipfile
from itertools import pairwise

import numpy as np
import pytest

import amdjax
from amdjax import export
from amdjax.export import container, weights
from tests.export.mutations import mutated, outcome, raw, subject, written

COUNT = int(os.environ.get("AMDJAX_TEST_MUTATIONS", "300"))


@pytest.fixture(scope="module")
def parts():
    return subject()


def refusal(blob):
    with pytest.raises(export.ArtifactError) as raised:
        export.deserialize(blob)
    return str(raised.value)


@pytest.mark.parametrize("seed", range(4))
def test_mutations_are_refused_or_other_programs(parts, seed):
    members, manifest = parts
    blob, rng = written(members, manifest), np.random.default_rng([seed, os.getpid()])
    assert outcome(blob) == "read"
    seen = {outcome(mutated(rng, members, manifest, blob)) for _ in range(COUNT // 4)}
    assert seen == {"refused", "read", "read but for a plan"}


def test_no_bit_of_a_member_may_change(parts):
    blob, rng = written(*parts), np.random.default_rng(0)
    with zipfile.ZipFile(io.BytesIO(blob)) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    for name, data in contents.items():
        start = blob.index(data)
        for at in rng.integers(start, start + len(data), 20):
            damaged = bytearray(blob)
            damaged[at] ^= 1 << int(rng.integers(8))
            assert name in refusal(damaged) or "manifest.json" in refusal(damaged)
    for at in rng.integers(0, len(blob), 50):
        refusal(blob[:at])


def test_no_bit_of_a_block_may_change(monkeypatch):
    """Large members are hashed in blocks, by several threads."""
    data = np.random.default_rng(0).bytes(3 * 4096 + 7)
    with monkeypatch.context() as small:
        small.setattr(container, "_BLOCK", 4096)
        blob = container.write({"large": data, "small": b"x"}, {})
        members = container.Members(blob)
        members.check()
        assert bytes(members["large"]) == data and len(members.manifest["hashes"]["large"]) == 4
        start = blob.index(data)
        for at in (0, 4095, 4096, 2 * 4096 + 1, len(data) - 1):
            damaged = bytearray(blob)
            damaged[start + at] ^= 1
            with pytest.raises(export.ArtifactError, match="large is damaged"):
                container.Members(damaged).check()
        told = members.manifest["hashes"]["large"]
        for wrong in (told[:3], [*told, told[0]], told[::-1], told[0], 7, [None] * 4, {}):
            with pytest.raises(export.ArtifactError, match="large is damaged"):
                container.Members(hashed(data, wrong)).check()
        whole = hashlib.sha256(data).hexdigest()  # as earlier versions had it
        container.Members(hashed(data, whole)).check()


def test_parts_are_one_member(monkeypatch):
    monkeypatch.setattr(container, "_BLOCK", 64)
    data = np.random.default_rng(0).bytes(300)
    whole = container.write({"x": data, "y": b""}, {})
    for cuts in ([], [64], [1, 2, 63, 64, 65, 256], [299], [128, 128]):
        ends = [0, *cuts, len(data)]
        parts = [memoryview(data)[a:b] for a, b in pairwise(ends)]
        assert container.write({"x": parts, "y": []}, {}) == whole
    members = container.Members(whole)
    members.check()
    assert bytes(members["x"]) == data and len(members.manifest["hashes"]["x"]) == 5


def hashed(data, told):
    """An archive of one member, of which this is told for a hash."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(container, "hashed", lambda data: told)
        return container.write({"large": data}, {})


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("f32[n,m]", "f32[n,99999999999999]"),
        ("f32[n,m]", "f32[n," + "(" * 300 + "m" + ")" * 300 + "]"),
        ("f32[n,m]", "f32[n,((((n+m+1)^64)^64)^64)^64]"),
        ("f32[n,m]", "f32[n,9^64^64]"),
        ("{ lambda", "{ lambda" + "[" * 100_000),
        ("{ lambda", "let x = " * 50_000 + "{ lambda"),
        (":i32[2]", ":i32[361 = 1"),
        ("argmax", "__import__"),
        ("argmax", "pure_callback"),
        ("scan", "while"),
        ("length=n", "length=" + "9" * 5000),
        (" scan", " scan" * 2),
    ],
)
def test_texts_that_are_no_program(parts, old, new):
    members, manifest = parts
    text = members["program.txt"].decode()
    assert old in text
    changed = members | {"program.txt": text.replace(old, new).encode()}
    assert "program" in refusal(written(changed, manifest))


DIMENSIONS = [
    ("constraints", ["mod(m, 2) == 9^64^64^64"]),
    ("constraints", ["n >= " + "(" * 5000]),
    ("constraints", "n >= 2"),
    ("unequal", ["9^64^64^64"]),
    ("assumed", [["n", "import"]]),
    ("assumed", [["n"]]),
    ("narrower", {"m_to_2": [1]}),
    ("narrower", {"m_to_2": [2, 1]}),
    ("narrower", {"m_to_2": [-1, 1 << 40]}),
    ("narrower", {"m)": [1, 2]}),
    ("narrower", ["m"]),
]


@pytest.mark.parametrize(("key", "value"), DIMENSIONS)
def test_dimensions_that_are_none(parts, key, value):
    members, manifest = parts
    changed = manifest | {"dimensions": {**manifest["dimensions"], key: value}}
    assert "manifest.json" in refusal(written(members, changed))


def nested(depth):
    return ["tuple", nested(depth - 1)] if depth else 0


def deep(text):
    """A manifest as JSON of some depth, which the writer of JSON does not reach."""
    return b'{"a": ' + text * 200_000


MANIFESTS = {
    "schema": ({"schema": 3}, "it has the schema 3, this reads 1 to 2"),
    "format": ({"format": "zip"}, "this is no artifact"),
    "tree": ({"in_tree": nested(200)}, "values in values"),
    "code": ({"in_tree": ["exec", 0]}, "manifest.json"),
    "leaves": ({"in_tree": ["tuple", 0]}, "do not fit"),
    "no programs": ({"programs": {}}, "manifest.json"),
    "cyclic": ({"programs": {"main": "main"}}, "manifest.json"),
    "another text": (
        {"programs": {"main": {"text": "weights.safetensors", "constants": [], "out_tree": 0}}},
        "weights.safetensors: the program cannot be read",
    ),
    "no text": (
        {"programs": {"main": {"text": "../x", "constants": [], "out_tree": 0}}},
        "../x is missing",
    ),
    "huge": ({"arrays": {"constant.0": ["f32", [1 << 40, 1 << 40]]}}, "weights.safetensors"),
    "negative": ({"arrays": {"constant.0": ["f32", [-1]]}}, "weights.safetensors"),
    "dtype": ({"arrays": {"constant.0": ["object", [1]]}}, "weights.safetensors"),
    "platforms": ({"platforms": ["tpu"]}, "manifest.json"),
    "interface": ({"interface": {"params": ["x"]}}, "manifest.json"),
    "interface's inputs": (
        {"interface": {"params": [], "inputs": [], "outputs": []}}, "parameters and inputs",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MANIFESTS)
def test_manifests_that_do_not_fit(parts, name):
    change, told = MANIFESTS[name]
    assert told in refusal(written(parts[0], parts[1] | change))


@pytest.mark.parametrize("text", [b"[", b'{"a":', b'["a",{"b":'])
def test_manifests_of_depth(text):
    assert "values in values" in refusal(aligned({"manifest.json": deep(text)}))


def aligned(members, change=lambda name, info: info):
    """An archive as artifacts are, of any names and contents."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in members.items():
            container._add(archive, file, name, memoryview(data))
    return file.getvalue()


@pytest.mark.parametrize(
    "name", ["../a", "/a", "a/../b", "C:\\a", "a//b", ".", "kernels/cpu/..", "é", "a" * 200]
)
def test_names_that_lead_elsewhere(name):
    assert "is no name of a member" in refusal(aligned({name: b"x"}))


def test_archives_of_other_forms(parts):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("manifest.json", bytes(100 << 20))
    assert len(file.getvalue()) < 1 << 20 and "compressed" in refusal(file.getvalue())
    assert "not aligned" in refusal(raw({"manifest.json": b"{}", "a": b"x"}))
    with pytest.warns(UserWarning, match="Duplicate"):
        twice = io.BytesIO()
        with zipfile.ZipFile(twice, "w") as archive:
            for _ in range(2):
                container._add(archive, twice, "manifest.json", memoryview(b"{}"))
    assert "is there twice" in refusal(twice.getvalue())
    good = written(*parts)
    assert "follow" in refusal(b"#!/bin/sh\n" + good)
    assert "no artifact" in refusal(good[:-2] + b"\x04\x00abcd")
    assert "manifest.json is missing" in refusal(aligned({"a": b"x"}))
    extra = aligned({"manifest.json": b'{"hashes": {}}', "a": b"x"})
    assert "a is missing in manifest.json" in refusal(extra)
    missing = aligned({"manifest.json": b'{"hashes": {"b": ""}}'})
    assert "b is missing in the archive" in refusal(missing)
    for blob in (b"", b"PK", bytes(1000), b"PK\x05\x06" + bytes(18)):
        refusal(blob)
    assert "export it again" in refusal(b"amdjax-exported\n" + bytes(100))


def test_members_may_not_overlap(parts):
    """Two names of one place: what a bomb is made of."""
    blob = bytearray(aligned({"a": b"x" * 64, "b": b"x" * 64}))
    directory = blob.rindex(b"PK\x01\x02")
    blob[directory + 42 : directory + 46] = bytes(4)  # the second is where the first one is
    assert "does not follow" in refusal(blob)


def test_what_headers_say_twice_has_to_agree():
    good = aligned({"a": b"x" * 64})
    for at, size in ((26, 2), (18, 4), (22, 4), (8, 2), (6, 2), (14, 4), (0, 2)):
        damaged = bytearray(good)
        damaged[at : at + size] = (77).to_bytes(size, "little")
        assert refusal(damaged).startswith("deserialize: ")


@pytest.mark.parametrize(
    ("header", "told"),
    [
        (b"[" * 1000, "values in values"),
        (b'{"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}', "cut short"),
        (b'{"x": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}}', "gaps"),
        (b'{"x": {"dtype": "I32", "shape": [2], "data_offsets": [0, 8]}}', "differs"),
        (b'{"x": {"dtype": "F32", "shape": [3], "data_offsets": [0, 12]}}', "differs"),
        (b'{"y": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}', "other arrays"),
        (b'{"x": 1}', "weights"),
        (b"[]", "no object"),
    ],
)
def test_weights_that_do_not_fit(header, told):
    data = memoryview(len(header).to_bytes(8, "little") + header + bytes(4))
    with pytest.raises(export.ArtifactError, match=told):
        weights.unpack(data, {"x": ["f32", [2]]}, "weights")


def test_weights_cut_short():
    packed = b"".join(weights.pack({"x": np.ones(3, np.float32)}))
    wanted = {"x": ["f32", [3]]}
    assert weights.unpack(memoryview(packed), wanted, "w")["x"].tolist() == [1, 1, 1]
    for cut in (packed[:-1], packed + b"x", packed[:4], (1 << 62).to_bytes(8, "little") + packed):
        with pytest.raises(export.ArtifactError, match=r"^w: "):
            weights.unpack(memoryview(cut), wanted, "w")


def test_signatures(parts, tmp_path):
    members, manifest = parts
    path = tmp_path / "f"
    path.write_bytes(written(members, manifest))
    load = lambda **keys: amdjax.load_artifact(path, keys=keys).is_trusted
    assert load(k=b"secret") and load(k=b"secret", other=b"") and not load(other=b"secret")
    with pytest.raises(export.ArtifactError, match=r"signature\.json: it does not hold for .* 'k'"):
        load(k=b"another")
    # A manifest with other hashes is not the one that was signed.
    told = {**manifest, "hashes": dict(manifest["hashes"])}
    kernel = next(name for name in members if name.startswith("kernels/"))
    told["hashes"][kernel] = hashlib.sha256(b"evil").hexdigest()
    with zipfile.ZipFile(path) as archive:
        signature = archive.read("signature.json")
    evil = {"manifest.json": json.dumps(told).encode(), "signature.json": signature}
    path.write_bytes(aligned(evil | members | {kernel: b"evil"}))
    assert not amdjax.load_artifact(path).is_trusted
    with pytest.raises(export.ArtifactError, match="does not hold"):
        load(k=b"secret")


def test_what_is_no_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        amdjax.load_artifact(tmp_path / "none")
    (tmp_path / "empty").touch()
    with pytest.raises(export.ArtifactError, match="empty"):
        amdjax.load_artifact(tmp_path / "empty")
    with pytest.raises(TypeError, match="path must be a path, got bytes"):
        amdjax.load_artifact(b"PK")
