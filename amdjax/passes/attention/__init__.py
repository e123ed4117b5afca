"""Attention where it is written out; `rewriting.py` says how it is found."""

from amdjax.passes.attention.rewriting import recognize_attention as recognize_attention
from amdjax.passes.attention.views import read_views as read_views
