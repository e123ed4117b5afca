"""Native code that remembers what waves stored since their last barrier.

The shadow of an allocation holds 1 for a byte that was written, or a tag that says which wave of
which worker did it just now. The places of tags are logged, so that a barrier, or the end of the
workgroup, can make ones of them. A log that is full forgets early, which hides races but makes
none up.
"""

from __future__ import annotations

LOG = "amdjax_emulator_log"
CAPACITY = 1 << 14  # entries of two words

FORGET = """
def forget(context):
    "Every tag that was logged becomes 1."
    log = context[LOG // 8]
    for i in range(number(context, LOG_COUNT // 8)):
        fill(log[2 * i], number(log, 2 * i + 1), 1)
    context[LOG_COUNT // 8] = 0
"""

SOURCE = """
def amdjax_emulator_log(context, place, size: i64):
    if number(context, LOG_COUNT // 8) == CAPACITY:
        forget(context)
    count = number(context, LOG_COUNT // 8)
    entry = context[LOG // 8] + 2 * count
    entry[0] = place
    entry[1] = size
    context[LOG_COUNT // 8] = count + 1
"""
