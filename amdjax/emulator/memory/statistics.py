"""What enters memory accesses of a wave in the statistics of their instruction."""

from __future__ import annotations

SOURCE = """
def amdjax_emulator_note(context, record, addresses, mask: i64, bytes: i32, is_lds: i32):
    index = (address(record) - number(context, RECORDS // 8)) // RECORD
    row = context[STATISTICS // 8] + STATISTICS_WORDS * index
    size = resized(bytes, "i64")
    active = ones(mask)
    tally(row, ACCESSES, 1 if active != 0 else 0)
    tally(row, ACTIVE, active)
    if is_lds:
        note_banks(context, row, addresses, mask, size)
    else:
        note_lines(context, row, addresses, mask, size, 6, LINES_64, IDEAL_64)
        note_lines(context, row, addresses, mask, size, 7, LINES_128, IDEAL_128)

def tally(row, word: i64, amount: i64):
    row[word] = number(row, word) + amount

def with_item(items, count: i64, item: i64) -> i64:
    "How many different items there are with one more."
    items[count] = item  # which ends the search
    i: i64 = 0
    while number(items, i) != item:
        i = i + 1
    return count + 1 if i == count else count

def note_lines(
    context, row, addresses, mask: i64, size: i64, shift: i64, touched: i64, ideal: i64
):
    "Distinct lines of 2^shift bytes, and how few could do."
    items = stack(2 * LANES + 1)
    count: i64 = 0
    for lane in range(LANES):
        if (mask >> lane) % 2 == 1:
            first = number(addresses, lane)
            count = with_item(items, count, first >> shift)
            count = with_item(items, count, (first + size - 1) >> shift)
    tally(row, touched, count)
    if touched == LINES_64:
        for i in range(count):
            push(context, 8 * number(items, i) + DETAIL_MARK)
    # Lanes that read one place need less than all their bytes.
    full = (ones(mask) * size + (1 << shift) - 1) >> shift
    tally(row, ideal, umin(full, count))

def note_banks(context, row, addresses, mask: i64, size: i64):
    "Cycles of LDS: a dword of each bank at a time, for as many lanes as together ask for as many."
    banks = number(context, BANKS // 8)
    words = (size + 3) >> 2
    together = banks // words
    items = stack(65)
    counts = stack(64)
    for group in range((LANES + together - 1) // together):
        fill(counts, 512, 0)
        count: i64 = 0
        most: i64 = 0
        for k in range(together):
            lane = group * together + k
            if lane < LANES and (mask >> lane) % 2 == 1:
                first = number(addresses, lane) >> 2
                for i in range(words):
                    with_this = with_item(items, count, first + i)
                    if with_this != count:
                        bank = (first + i) % banks
                        counts[bank] = number(counts, bank) + 1
                        most = umax(most, number(counts, bank))
                        count = with_this
        push(context, 8 * most + DETAIL_MARK)
        tally(row, BANK_CYCLES, most)
        tally(row, BANK_IDEAL, 1 if most != 0 else 0)
"""
