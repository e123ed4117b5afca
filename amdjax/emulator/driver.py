"""The native driver: runs workgroups one after the other, every wave from barrier to barrier.

Workgroups that are resident together take turns: each runs until one of its waves sleeps.
"""

from __future__ import annotations

RUN = "amdjax_emulator_run_groups"
TURN = "amdjax_emulator_run_turn"
#: The same with a trace of what waves do.
TRACED = {name: f"{name}_traced" for name in (RUN, TURN)}

# Words of the launch block. LDS_BYTES of LDS_MEMORY are set anew for each workgroup, and of the
# shadows WRITTEN and (at barriers too) RACES as many bytes as say so. A wave that runs LONGEST
# instructions without a barrier is taken not to end. Of a workgroup that takes turns: whether it
# has BEGUN, and whether a wave SLEPT when they last ran, so that the others' barrier still waits.
(STATES, STATE_BYTES, WAVES, TEMPLATE, LDS_MEMORY, LDS_BYTES, GRID_X, GRID_Y, FIRST, LAST,
 ID_X, ID_Y, ID_Z, FAULTED, WRITTEN, WRITTEN_BYTES, RACES, RACES_BYTES, ONE_BARRIER, GROUP,
 CONTEXT, LONGEST, BEGUN, SLEPT, APART, LAUNCH_WORDS) = range(26)  # fmt: skip


#: The functions; LDS that nothing wrote is recognizable.
SOURCE = '''
def amdjax_emulator_run_groups(launch) -> i32:
    "All workgroups, one after the other; none of their waves sleeps."
    waiting = stack(1)
    first = number(launch, FIRST)
    for k in range(number(launch, LAST) - first):
        set_up(launch, first + k)
        waiting[0] = 1
        while number(waiting, 0) != 0:
            fault = run_stretches(launch, waiting)
            if fault != RUNNING:
                return fault
    return RUNNING

def amdjax_emulator_run_turn(launch) -> i32:
    "The first workgroup until a wave of it sleeps, or to its end."
    if number(launch, BEGUN) == 0:
        set_up(launch, number(launch, FIRST))
        launch[BEGUN] = 1
    waiting = stack(1)
    waiting[0] = 1
    while number(waiting, 0) != 0:
        fault = run_stretches(launch, waiting)
        if fault != RUNNING:
            return fault
        if number(launch, SLEPT) != 0:
            return ASLEEP
    return RUNNING

def wave_of(launch, index: i64) -> ptr:
    return behind(launch[STATES], index * number(launch, STATE_BYTES))

def set_up(launch, index: i64):
    "Waves and LDS of a workgroup as they start."
    launch[GROUP] = index
    launch[APART] = 0
    waves = number(launch, WAVES)
    move(launch[STATES], launch[TEMPLATE], waves * number(launch, STATE_BYTES))
    fill(launch[LDS_MEMORY], number(launch, LDS_BYTES), 0xCC)
    fill(launch[WRITTEN], number(launch, WRITTEN_BYTES), 0)
    fill(launch[RACES], number(launch, RACES_BYTES), 0)
    row = index // number(launch, GRID_X)
    x = resized(index % number(launch, GRID_X), "i32")
    y = resized(row % number(launch, GRID_Y), "i32")
    z = resized(row // number(launch, GRID_Y), "i32")
    for w in range(waves):
        wave = wave_of(launch, w)
        store(behind(wave, number(launch, ID_X)), x, "i32 align 2")
        store(behind(wave, number(launch, ID_Y)), y, "i32 align 2")
        # z may share a register with y.
        store(behind(wave, number(launch, ID_Z)), z, "i32 align 2")

def run_wave(launch, wave) -> i32:
    "Run records until one stops the wave; the status."
    context = launch[CONTEXT]
    store(behind(wave, STATUS), 0, "i32")
    if TRACED:
        push(context, address(wave) + WAVE_MARK)
    record: ptr = wave[PC // 8]
    left: i64 = number(launch, LONGEST)
    while record and left != 0:
        record[COUNT // 8] = number(record, COUNT // 8) + 1
        if TRACED:
            push(context, address(record))
        record = ask("ptr", record[HANDLER // 8], wave, record)
        left = left - 1
    if record:
        wave[PC // 8] = record
        return ENDLESS
    return load(behind(wave, STATUS), "i32")

def stopped(launch, wave, status: i32) -> i32:
    forget(launch[CONTEXT])
    launch[FAULTED] = wave
    return status

def run_stretches(launch, waiting) -> i32:
    """One stretch of every wave that has not ended and need not wait; what stops the launch.

    Writes down where waves wait, 0 for nowhere. Ended waves do not hold up the others' barrier; if
    a wave sleeps they go on waiting. Every other workgroup goes through its waves backwards: a wave
    that overwrites what another reads is found when it comes first.
    """
    waves = number(launch, WAVES)
    place: i64 = 0
    unsettled: i32 = 0  # whether those that wait left stores behind
    asleep: i64 = 0
    last: ptr = None  # that waits
    ends: i1 = False
    for k in range(waves):
        wave = wave_of(launch, waves - 1 - k if number(launch, GROUP) % 2 == 1 else k)
        before = load(behind(wave, STATUS), "i32")
        status: i32 = before
        if before != ENDED and not (before == BARRIER and number(launch, SLEPT) != 0):
            status = run_wave(launch, wave)
        if status == ASLEEP:
            asleep = 1
        elif status == ENDED:
            ends = True
        elif status == BARRIER:
            mine = number(wave, PC // 8)
            if place != 0 and place != mine:
                launch[APART] = 1
            unsettled = unsettled | load(behind(wave, UNSETTLED), "i32")
            place = mine
            last = wave
        elif status > BARRIER:
            return stopped(launch, wave, status)
    launch[SLEPT] = asleep
    if ends and place != 0 and number(launch, ONE_BARRIER) != 0 and number(launch, APART) != 0:
        return stopped(launch, last, DIVERGENT_BARRIER)
    if asleep == 0:
        fill(launch[RACES], number(launch, RACES_BYTES), 0)
        if unsettled == 0:
            forget(launch[CONTEXT])
    waiting[0] = place
    return RUNNING
'''
