"""Teach a small GPT to write documentation, one character at a time.

The text is that of `char_lstm.py`. Training reads windows of it with causal attention, each time of
another length, for which one trace serves; writing keeps the keys and values of all positions in
caches, so that each new character costs one position.

    python examples/char_gpt.py --help
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from typing import Any

import numpy as np
from char_lstm import Corpus, checked_args, corpus_for

import amdjax
import amdjax.numpy as jnp
from amdjax import lax, nn, optim, random


class Block(nn.Module):
    """Attention and two products, each added to what goes past them."""

    norm: nn.RMSNorm
    attention: nn.MultiHeadAttention
    mlp: nn.Sequential

    def __init__(self, features: int, heads: int, *, key: Any) -> None:
        k1, k2, k3 = random.split(key, 3)
        self.norm = nn.RMSNorm(features)
        self.attention = nn.MultiHeadAttention(features, heads, rope="halves", key=k1)
        self.mlp = nn.Sequential([
            nn.RMSNorm(features), nn.Dense(features, 4 * features, key=k2), nn.gelu,
            nn.Dense(4 * features, features, key=k3),
        ])  # fmt: skip

    def __call__(self, x: Any, cache: nn.KVCache | None = None) -> Any:
        if cache is None:
            attended = self.attention(self.norm(x), is_causal=True)
        else:
            attended, cache = self.attention(self.norm(x), cache=cache)
        x = x + attended
        return x + self.mlp(x), cache


class CharGPT(nn.Module):
    """Predicts the next character from all before it.

    `model(ids)` takes characters `(batch, time)` and returns logits `(batch, time, alphabet)`; with
    a list of caches, one for each block, it goes on behind what they hold and returns them too.
    """

    embedding: nn.Embedding
    blocks: list[Block]
    head: nn.Sequential

    def __init__(
        self, characters: int, features: int, heads: int, layers: int, *, key: Any
    ) -> None:
        k1, k2, *keys = random.split(key, layers + 2)
        self.embedding = nn.Embedding(characters, features, key=k1)
        self.blocks = [Block(features, heads, key=k) for k in keys]
        self.head = nn.Sequential([
            nn.RMSNorm(features), nn.Dense(features, characters, key=k2)
        ])  # fmt: skip

    def __call__(self, ids: Any, caches: list[nn.KVCache] | None = None) -> Any:
        x = self.embedding(ids)
        after = []
        for block, cache in zip(self.blocks, caches or [None] * len(self.blocks), strict=True):
            x, cache = block(x, cache)
            after.append(cache)
        logits = self.head(x)
        return logits if caches is None else (logits, after)

    def caches(self, batch: int, size: int) -> list[nn.KVCache]:
        """Empty caches for `batch` texts of at most `size` characters."""
        attention = self.blocks[0].attention
        width = attention.query.kernel.shape[1] // attention.heads
        return [nn.KVCache(batch, size, heads=attention.heads, features=width) for _ in self.blocks]


def loss_fn(model: CharGPT, ids: Any) -> Any:
    """Mean cross entropy of each character of `ids`, `(batch, time + 1)`, but the first."""
    return nn.softmax_cross_entropy(model(ids[:, :-1]), ids[:, 1:])


def make_train_step(optimizer: optim.GradientTransformation) -> Any:
    """`train_step(model, opt_state, ids) -> (model, opt_state, loss)`, for texts of any length."""

    @partial(amdjax.jit, donate_argnums=(0, 1), symbolic={"ids": "b, t"}, constraints=["t >= 2"])
    def train_step(model: Any, opt_state: Any, ids: Any) -> Any:
        loss, grads = amdjax.value_and_grad(loss_fn)(model, ids)
        updates, opt_state = optimizer.update(grads, opt_state, model)
        return optim.apply_updates(model, updates), opt_state, loss

    return train_step


@partial(amdjax.jit, static_argnames="length", symbolic={"prompt": "t"})
def generate(model: CharGPT, key: Any, prompt: Any, temperature: Any, length: int) -> Any:
    """Characters that continue a prompt: one pass over it, then a loop with caches."""
    caches = model.caches(1, prompt.shape[0] + length)
    logits, caches = model(prompt[None], caches)

    def draw(carry: Any, key: Any) -> Any:
        caches, logits = carry
        character = random.categorical(key, logits / temperature)
        logits, caches = model(character[:, None], caches)
        return (caches, logits[:, -1]), character[0]

    return lax.scan(draw, (caches, logits[:, -1]), random.split(key, length))[1]


def sample(
    model: CharGPT, corpus: Corpus, prompt: str, length: int, temperature: float, seed: int
) -> str:
    """A prompt and what the network makes of it."""
    ids = generate(model, random.key(seed), corpus.encode(prompt), max(temperature, 1e-4), length)
    return prompt + corpus.decode(ids)


def train(
    corpus: Corpus,
    *,
    seconds: float = 30.0,
    steps: int | None = None,
    features: int = 64,
    heads: int = 4,
    layers: int = 2,
    batch: int = 8,
    length: int = 256,
    seed: int = 0,
    log: Any = print,
) -> tuple[CharGPT, list[float]]:
    """Train until time or steps are over; return the network and the loss of each step.

    Texts of a step are as long as one another, and from a quarter of `length` to all of it.
    """
    model = CharGPT(len(corpus.alphabet), features, heads, layers, key=random.key(seed))
    optimizer = optim.chain(optim.clip_by_global_norm(1.0), optim.adamw(3e-3))
    opt_state = optimizer.init(model)
    train_step = make_train_step(optimizer)
    log(nn.summary(model, jnp.zeros((batch, length), jnp.int32)))
    places = np.random.default_rng(seed)
    losses: list[float] = []
    began = shown = time.perf_counter()
    while len(losses) != steps and time.perf_counter() - began < seconds:
        window = np.arange(places.integers(-(-length // 4), length + 1) + 1)
        starts = places.integers(0, len(corpus.ids) - length, (batch, 1))
        model, opt_state, loss = train_step(model, opt_state, corpus.ids[starts + window])
        losses.append(float(loss))
        if time.perf_counter() - shown > 3:
            log(f"step {len(losses):5}  loss {np.mean(losses[-20:]):.3f}")
            shown = time.perf_counter()
    return model, losses


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--seconds", type=float, default=30.0, help="how long to train")
    add("--steps", type=int, help="stop after so many steps")
    add("--features", type=int, default=64, help="features of a position")
    add("--heads", type=int, default=4, help="heads of attention")
    add("--layers", type=int, default=2, help="blocks")
    add("--batch", type=int, default=8, help="windows of text in a step")
    add("--length", type=int, default=256, help="characters of the longest window")
    add("--characters", type=int, default=1_000_000, help="characters of text to learn from")
    add("--prompt", default="Return ", help="how the sample begins")
    add("--sample", type=int, default=200, help="characters of the sample, best within a window")
    add("--temperature", type=float, default=0.6, help="0: most probable, 1: as learned, or wilder")
    add("--seed", type=int, default=0, help="of parameters, windows and sample")
    args = checked_args(parser, argv)
    if args.features % (2 * args.heads):
        parser.error(f"argument --features: must be a multiple of twice --heads, {2 * args.heads}")
    return args


def main(argv: list[str] | None = None) -> None:
    """Train and print a sample."""
    args = parse_args(argv)
    corpus = corpus_for(args)
    if len(corpus.ids) <= args.length:
        raise SystemExit(
            f"--characters: {len(corpus.ids):,} are too few for --length {args.length}"
        )
    model, losses = train(
        corpus, seconds=args.seconds, steps=args.steps, features=args.features, heads=args.heads,
        layers=args.layers, batch=args.batch, length=args.length, seed=args.seed,
    )  # fmt: skip
    last = float(np.mean(losses[-20:]))
    print(f"{len(losses)} steps, loss {last:.3f} ({last / np.log(2):.2f} bits a character)\n")
    print(sample(model, corpus, args.prompt, args.sample, args.temperature, args.seed))


if __name__ == "__main__":
    main()
