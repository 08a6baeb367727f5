"""A program of `benchmarks/programs.py` through Ringside: what a user writes.

ringside launch benchmarks/through_ringside.py --backend mirrored --replicas 2 -- digits
"""

import sys

import ringside
from benchmarks.programs import PROGRAMS, whole
from ringside import tf

program = PROGRAMS[sys.argv[1]]
with ringside.scope():
    model = program.compiled(tf)
data = program.data(tf, program.batch, whole if program.draws else ringside.shard)
ringside.fit(model, data, steps_per_epoch=program.steps)
