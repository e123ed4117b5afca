"""Attention where it is written out; `rewriting.py` says how it is found."""

from amdjax.passes.attention.rewriting import recognize_attention as recognize_attention
