import numpy as np
import pytest

import amdjax
from amdjax import lax, numpy as jnp, random
from amdjax.core.errors import KeyReuseError
from amdjax.experimental.key_reuse import (
    Forward,
    KeyReuseSignature,
    Sink,
    Source,
    assert_consumed,
    assert_unconsumed,
    check_key_reuse,
    consume,
    function_type_signature,
)

KEY = random.key(0)
KEYS = random.split(KEY, 3)


def twice(key):
    return random.normal(key) + random.uniform(key)


def carried(key):
    def step(key, _):
        key, sub = random.split(key)
        return key, random.bits(sub)

    return lax.scan(step, key, None, length=3)


BAD = {
    "twice": twice,
    "after split": lambda k: (random.split(k), random.uniform(k)),
    "jitted": amdjax.jit(twice),
    "reshaped": lambda k: (random.bits(k), random.bits(k.reshape(1)[0])),
    "after cond": lambda k: (lax.cond(True, random.uniform, lambda k: 0.0, k), random.bits(k)),
    "constant of a loop": lambda k: lax.map(lambda x: x * random.uniform(k), jnp.ones(3)),
    "carry of a loop": lambda k: lax.fori_loop(
        0, 3, lambda i, c: (c[0] + random.uniform(k), c[1]), (0.0, k)
    ),
    "condition": lambda k: lax.while_loop(
        lambda i: i < random.uniform(k), lambda i: i + 1, jnp.float32(0)
    ),
    "batched": lambda k: amdjax.vmap(lambda x: x * twice(k))(jnp.ones(2)),
    "checkpoint": amdjax.checkpoint(twice),
}
GOOD = {
    "split": lambda k: [random.uniform(s) for s in random.split(k, 3)],
    "fold_in": lambda k: [random.uniform(random.fold_in(k, i)) for i in range(3)],
    "clone": lambda k: random.uniform(k) + random.uniform(random.clone(k)),
    "carried": carried,
    "branches": lambda k: lax.cond(True, random.uniform, random.normal, k),
    "compared": lambda k: (k == k, random.uniform(k)),
    "gradient": lambda k: amdjax.grad(amdjax.checkpoint(lambda x: x * random.uniform(k)))(1.0),
    "mapped": lambda k: amdjax.vmap(random.uniform)(random.split(k, 3)),
}


@pytest.mark.parametrize("name", BAD)
def test_use_of_a_key_again_is_found(name):
    with pytest.raises(KeyReuseError):
        check_key_reuse(BAD[name], KEY)
    with amdjax.debug_key_reuse(True), pytest.raises(KeyReuseError):
        BAD[name](random.key(1))
    BAD[name](KEY)


@pytest.mark.parametrize("name", GOOD)
def test_other_uses_pass(name):
    check_key_reuse(GOOD[name], KEY)
    with amdjax.debug_key_reuse(True):
        GOOD[name](random.key(1))


def test_known_keys_are_marked():
    with amdjax.debug_key_reuse(True):
        keys = random.split(random.key(5), 2)
        first, second = keys
        random.normal(first)
        with pytest.raises(KeyReuseError, match="jit-compiled function at index 0"):
            random.normal(first)
        random.normal(second)
        use = amdjax.jit(lambda: random.uniform(keys[0]))
        use()
        with pytest.raises(KeyReuseError, match="Previously-consumed"):
            use()
        with pytest.raises(KeyReuseError, match="random_bits at index 0"):
            random.bits(second)
    random.normal(first)


def test_assertions():
    def part(keys):
        assert_unconsumed(keys)
        random.bits(keys[1])
        assert_consumed(keys, np.array([False, True, False]))

    check_key_reuse(part, KEYS)
    with pytest.raises(AssertionError, match="to be consumed"):
        check_key_reuse(assert_consumed, KEY)
    with pytest.raises(AssertionError, match="not be consumed"):
        check_key_reuse(lambda k: assert_unconsumed(consume(k)), KEY)


@pytest.mark.parametrize(
    "fun, signature",
    [
        (random.bits, KeyReuseSignature(Sink(0))),
        (random.split, KeyReuseSignature(Sink(0), Source(0))),
        (random.clone, KeyReuseSignature(Source(0))),
        (random.key_data, KeyReuseSignature()),
        (lambda k: k[None], KeyReuseSignature(Forward(0, 0))),
        (lambda k: (random.split(k)[0], k), KeyReuseSignature(Sink(0), Source(0), Forward(0, 1))),
    ],
)
def test_signatures(fun, signature):
    assert function_type_signature(fun, KEY) == signature
