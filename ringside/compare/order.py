"""In which order the arms of a round run: drawn, and a function of the seed and the round alone."""

import random

from ringside_core.specs import Arm

FEW = 3


def round_order(arms: tuple[Arm, ...], number: int, seed: int) -> tuple[Arm, ...]:
    """The arms in the order of round `number`; whoever goes on later finds the same one.

    Drawn anew for every round, so that an arm does not always follow the same one; in rounds, so
    that a slow spell of the machine is spread over all arms. Of at most FEW arms the second round
    is the first one backwards: drawn, all orders would too often be the same, and drift not be told
    from a difference (docs/decisions/0005-verdicts.md).
    """
    backwards = number == 1 and len(arms) <= FEW
    shuffled = list(arms)
    random.Random(f"{seed}/{0 if backwards else number}").shuffle(shuffled)
    return tuple(reversed(shuffled) if backwards else shuffled)
