import os
import random
import signal
import subprocess
import sys
import threading
import time

import pytest

from amdjax.codegen import engine as E
from amdjax.core.config import config
from amdjax.runtime import cache as C
from tests.support.native_helpers import ROOT, run_python

KEY = bytes(range(32))
DATA = os.urandom(5000)


def key(i):
    return C.hashlib.sha256(str(i).encode()).digest()


def fresh(path, **options):
    """A cache as another process would see it: nothing in memory yet."""
    return C.ObjectCache(path, **options)


def test_put_get(tmp_path):
    store = fresh(tmp_path / "a" / "b")
    assert store.get(KEY) is None
    store.put(KEY, DATA)
    assert store.get(KEY) == DATA
    assert fresh(tmp_path / "a" / "b").get(KEY) == DATA
    assert (store.hits, store.misses) == (1, 1)
    store.clear()
    assert store.get(KEY) is None and store.size() == 0


def test_key_depends_on_everything(monkeypatch):
    base = C.key_for("text", 2)
    assert base == C.key_for("text", 2) and len(base) == 32
    assert len({base, C.key_for("text", 1), C.key_for("texu", 2)}) == 3
    for module, name, version in (
        (C, "CODEGEN_VERSION", -1), (C.llvmlite, "__version__", "0"),
        (C.llvm, "llvm_version_info", (1,)), (C, "sources_digest", lambda: "others"),
    ):  # fmt: skip
        with monkeypatch.context() as patch:
            patch.setattr(module, name, version)
            assert C.key_for("text", 2) != base
    assert C.key_for("text", 2) == base


def test_key_depends_on_the_sources_of_the_generator(monkeypatch, tmp_path):
    """An entry that was made before an edit of, say, a function's polynomial is not found."""
    found = set()
    for text in ("x * y", "x + y"):
        for name in ("codegen/math", "tile"):
            (tmp_path / name).mkdir(parents=True, exist_ok=True)
        (tmp_path / "codegen/math/exp.py").write_text(text)
        (tmp_path / "tile/builder.py").write_text("")
        monkeypatch.setattr(C, "__file__", str(tmp_path / "runtime" / "cache.py"))
        found.add(C.sources_digest.__wrapped__())
    assert len(found) == 2
    monkeypatch.setattr(C, "__file__", str(tmp_path / "archive.zip" / "runtime" / "cache.py"))
    assert C.sources_digest.__wrapped__() == ""


@pytest.mark.parametrize("size", [0, 1, 7, 40, 56, 100, len(DATA)])
def test_truncated_entry_is_a_miss_and_goes(tmp_path, size):
    store = fresh(tmp_path)
    store.put(KEY, DATA)
    os.truncate(store.path(KEY), size)
    other = fresh(tmp_path)
    assert other.get(KEY) is None
    assert not os.path.exists(other.path(KEY))


def test_any_flipped_bit_is_a_miss(tmp_path):
    store = fresh(tmp_path)
    store.put(KEY, DATA[:300])
    with open(store.path(KEY), "rb") as file:
        whole = file.read()
    rng = random.Random(0)
    for position in [*range(64), *rng.sample(range(64, len(whole)), 60)]:
        damaged = bytearray(whole)
        damaged[position] ^= 1 << rng.randrange(8)
        with open(store.path(KEY), "wb") as file:
            file.write(damaged)
        assert fresh(tmp_path).get(KEY) is None


def test_entry_under_a_wrong_name_is_a_miss(tmp_path):
    store = fresh(tmp_path)
    store.put(KEY, DATA)
    other = key(1)
    os.makedirs(os.path.dirname(store.path(other)), exist_ok=True)
    os.rename(store.path(KEY), store.path(other))
    assert fresh(tmp_path).get(other) is None


def test_eviction_removes_the_least_recently_used(tmp_path):
    store = fresh(tmp_path, max_bytes=10**9)
    now = time.time()
    for i in range(100):
        store.put(key(i), bytes(1000))
        os.utime(store.path(key(i)), (now - 1000 + i, now - 1000 + i))
    store.max_bytes = 50_000
    store.evict()
    assert 30_000 < store.size() <= 50_000
    reader = fresh(tmp_path)
    assert reader.get(key(99)) is not None and reader.get(key(0)) is None


def test_size_stays_bounded_while_writing(tmp_path):
    store = fresh(tmp_path, max_bytes=100_000)
    for i in range(1000):
        store.put(key(i), bytes(1000))
    assert store.size() < 110_000


def test_unlimited_and_tiny_limits(tmp_path):
    store = fresh(tmp_path, max_bytes=-1)
    for i in range(50):
        store.put(key(i), DATA)
    assert store.size() > 50 * len(DATA)
    small = fresh(tmp_path / "small", max_bytes=10)
    small.put(KEY, DATA)
    assert small.size() == 0 and small.get(KEY) == DATA


def test_a_hit_makes_an_old_entry_recent(tmp_path):
    store = fresh(tmp_path)
    store.put(KEY, DATA)
    os.utime(store.path(KEY), (1, 1))
    assert fresh(tmp_path).get(KEY) == DATA
    assert time.time() - os.stat(store.path(KEY)).st_mtime < 60


def test_memory_layer_is_bounded():
    store = C.ObjectCache(None, memory_bytes=10_000)
    for i in range(100):
        store.put(key(i), bytes(1000))
    assert store._recent_bytes <= 10_000
    assert store.get(key(99)) is not None and store.get(key(0)) is None


def test_unusable_folders_are_done_without(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    for place in (file, file / "below", "/proc/nowhere"):
        store = C.ObjectCache(place)
        store.put(KEY, DATA)
        assert store.get(KEY) == DATA and store.directory is None


def refused(folder):
    with pytest.warns(UserWarning, match="others may write"):
        store = C.ObjectCache(folder)
    store.put(KEY, DATA)
    return store.directory is None and not list(folder.glob("*/*")) and store.get(KEY) == DATA


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o720, 0o702, 0o1777, 0o2775])
def test_folder_open_to_others_is_not_used(tmp_path, mode):
    tmp_path.chmod(mode)
    assert refused(tmp_path)


@pytest.mark.parametrize("mode", [0o700, 0o755, 0o500])
def test_folder_that_others_may_only_read_is_used(tmp_path, mode):
    tmp_path.chmod(mode)
    try:
        assert C.ObjectCache(tmp_path).directory == str(tmp_path)
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.parametrize(
    "mode,safe", [(0o775, False), (0o757, False), (0o1777, True), (0o755, True)]
)
@pytest.mark.parametrize("depth", [1, 2])
def test_folders_above_decide_too(tmp_path, depth, mode, safe):
    """Who may write to one of them can put another folder in place of the cache."""
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True, mode=0o700)
    folder.parent.chmod(0o700)
    folder.parents[depth - 1].chmod(mode)
    assert (C.ObjectCache(folder).directory == str(folder)) if safe else refused(folder)


def test_a_link_is_judged_by_what_it_points_to(tmp_path):
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "link").symlink_to(tmp_path / "open")
    assert refused(tmp_path / "link")


@pytest.mark.parametrize("mode", [0o770, 0o707])
def test_subfolder_open_to_others_is_not_used(tmp_path, mode):
    fresh(tmp_path).put(KEY, DATA)
    (folder,) = (x for x in tmp_path.iterdir() if x.is_dir())
    folder.chmod(mode)
    assert fresh(tmp_path).get(KEY) is None
    other = KEY[:1] + os.urandom(31)
    fresh(tmp_path).put(other, DATA)
    assert fresh(tmp_path).get(other) is None
    folder.chmod(0o700)
    assert fresh(tmp_path).get(KEY) == DATA


def test_folders_are_made_for_the_user_alone(tmp_path):
    before = os.umask(0)
    try:
        fresh(tmp_path / "x" / "y").put(KEY, DATA)
    finally:
        os.umask(before)
    made = [p for p in (tmp_path / "x").rglob("*") if p.is_dir()]
    assert len(made) == 2 and all(p.stat().st_mode & 0o077 == 0 for p in [tmp_path / "x", *made])


def test_disk_errors_are_silent(tmp_path, monkeypatch):
    """A full or read-only disk: every write fails."""
    store = fresh(tmp_path)

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(C.os, "open", full)
    store.put(KEY, DATA)
    assert store.get(KEY) == DATA
    assert fresh(tmp_path).get(KEY) is None


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_read_only_folder(tmp_path):
    fresh(tmp_path).put(KEY, DATA)
    tmp_path.chmod(0o500)
    try:
        store = fresh(tmp_path)
        assert store.get(KEY) == DATA
        store.put(key(1), DATA)
        assert store.get(key(1)) == DATA
    finally:
        tmp_path.chmod(0o700)


def test_disk_that_fills_up_in_the_middle_leaves_nothing(tmp_path, monkeypatch):
    store = fresh(tmp_path)

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(C.os, "replace", full)
    store.put(KEY, DATA)
    assert [f for f in tmp_path.rglob("*") if f.is_file()] == []


WRITER = """
import hashlib, sys
from amdjax.runtime.cache import ObjectCache
store = ObjectCache(sys.argv[1], memory_bytes=0)
seed = int(sys.argv[2])
for i in range(int(sys.argv[3])):
    key = hashlib.sha256(str(i % 50).encode()).digest()
    data = (key * 3000)[: 50000 + i % 50]
    found = store.get(key)
    assert found in (None, data), "damaged entry"
    store.put(key, data)
    if i == 0: print("started", flush=True)
"""


def start_writer(path, seed, rounds):
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), str(seed), str(rounds)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
    )


def check_all(path):
    store = C.ObjectCache(path, memory_bytes=0)
    whole = 0
    for i in range(50):
        k = key(i)
        data = store.get(k)
        assert data in (None, (k * 3000)[: 50000 + i])
        whole += data is not None
    return store, whole


@pytest.mark.turns(3)
def test_writers_killed_at_any_moment(tmp_path):
    for i in range(6):
        writer = start_writer(tmp_path, i, 10**9)
        assert writer.stdout.readline() == b"started\n"
        time.sleep(0.01 * i)
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
    store, whole = check_all(tmp_path)
    assert whole > 0
    left = [p for p in tmp_path.rglob(".*") if p.is_file() and p.name != ".scanned"]
    for path in left:  # leftovers go once they are old
        os.utime(path, (1, 1))
    store.evict()
    assert not any(p.exists() for p in left)


def test_processes_write_and_read_at_once(tmp_path):
    writers = [start_writer(tmp_path, i, 300) for i in range(4)]
    for writer in writers:
        writer.stdout.read()
        assert writer.wait() == 0
        writer.stdout.close()
    assert check_all(tmp_path)[1] == 50


def test_threads_share_a_cache(tmp_path):
    store = fresh(tmp_path, max_bytes=500_000, memory_bytes=20_000)
    failures = []

    def work(seed):
        rng = random.Random(seed)
        for _ in range(300):
            k = key(rng.randrange(60))
            if store.get(k) not in (None, k * 100):
                failures.append(k)
            store.put(k, k * 100)

    workers = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures


MODULE = "define i64 @f() nounwind {\n  ret i64 NUMBER\n}\n"


def test_compile_cached_compiles_each_text_once(tmp_path, monkeypatch):
    before = config.cache_dir
    compiled = []

    def count(texts, **options):
        compiled.extend(texts)
        return [E.compile_ir(t) for t in texts]

    monkeypatch.setattr(C, "compile_many", count)
    try:
        config.update("cache_dir", str(tmp_path))
        texts = [MODULE.replace("NUMBER", str(i)) for i in (1, 2, 1, 3, 2)]
        first = C.compile_cached(texts)
        assert first[0] == first[2] and first[1] == first[4] and len(compiled) == 3
        C._current = None  # as in a new process
        assert C.compile_cached(texts) == first and len(compiled) == 3
        config.update("cache_dir", "off")
        assert C.object_cache().directory is None
        assert C.compile_cached(texts) == first and len(compiled) == 6
    finally:
        config.update("cache_dir", before)


def test_default_place(tmp_path):
    code = "from amdjax.runtime import cache\nprint(cache.object_cache().directory)"
    unset = {"AMDJAX_CACHE_DIR": "", "XDG_CACHE_HOME": str(tmp_path)}
    assert run_python(code, **unset).strip() == str(tmp_path / "amdjax")
    unset = {"AMDJAX_CACHE_DIR": "", "XDG_CACHE_HOME": "", "HOME": str(tmp_path)}
    if sys.platform == "linux":
        assert run_python(code, **unset).strip() == str(tmp_path / ".cache" / "amdjax")
    assert run_python(code, AMDJAX_CACHE_DIR="off").strip() == "None"


def test_second_process_compiles_nothing(tmp_path):
    code = (
        "from tests.support.native_helpers import library\n"
        "from amdjax.codegen import compile_worker\n"
        "count = 0\noriginal = compile_worker.Compiler.object_code\n"
        "def counted(*args):\n    global count\n    count += 1\n    return original(*args)\n"
        "compile_worker.Compiler.object_code = counted\nlibrary()\nprint(count)"
    )
    first = run_python(code, AMDJAX_CACHE_DIR=str(tmp_path))
    second = run_python(code, AMDJAX_CACHE_DIR=str(tmp_path))
    assert (first.strip(), second.strip()) == ("2", "0")


def parts(*sizes):
    generator = C.np.random.default_rng(0)
    return [generator.integers(0, 256, n, C.np.uint8) for n in sizes]


def test_mapped_entries(tmp_path):
    """Parts are as they were, aligned; entries of other sizes are none."""
    made = parts(1, 0, 200_000, 64, 77)
    sizes = [len(x) for x in made]
    assert fresh(tmp_path).mapped(KEY, sizes) is None
    fresh(tmp_path).put_mapped(KEY, made)
    found = fresh(tmp_path).mapped(KEY, sizes)
    for x, y in zip(made, found, strict=True):
        assert x.tobytes() == y.tobytes() and not y.flags.writeable
        assert y.ctypes.data % 64 == 0 or not y.size
    assert fresh(tmp_path).mapped(KEY, [*sizes, 64]) is None
    assert fresh(tmp_path).mapped(key(1), sizes) is None
    fresh(tmp_path).clear()
    assert found[2].tobytes() == made[2].tobytes()  # while it is mapped


@pytest.mark.parametrize("at", (0, 20, 40, 64 + 5, 100_000, 150_000, -1))
def test_damaged_mapped_entries_are_removed(tmp_path, at):
    store, made = fresh(tmp_path), parts(150_000, 777)
    store.put_mapped(KEY, made)
    with open(store.path(KEY), "r+b") as file:
        file.seek(at if at >= 0 else 64 + 150_016 + 776)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 1]))
    assert store.mapped(KEY, [150_000, 777]) is None
    assert not os.path.exists(store.path(KEY))


def test_large_mapped_entries_are_not_kept(tmp_path):
    store = fresh(tmp_path, max_bytes=400_000)
    store.put_mapped(KEY, parts(150_000))
    assert store.size() == 0
    store.put_mapped(KEY, parts(50_000))
    assert store.size() > 50_000


def test_disks_of_others_are_not_mapped(tmp_path, monkeypatch):
    """Where another computer deletes a file, it is gone for those who have mapped it, too."""
    store = fresh(tmp_path)
    assert store.maps
    monkeypatch.setattr(os, "major", lambda device: 0)
    store.put_mapped(KEY, parts(50_000))
    assert not store.maps and store.size() == 0
    assert not C.ObjectCache(None).maps
