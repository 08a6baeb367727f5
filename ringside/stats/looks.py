"""How much chance the words of a comparison may spend, if somebody looks at it more than once.

Who goes on until something is called finds something: each look at equal arms is another chance of
a false word. So the looks of one comparison share the 5 % that one look has (Lan and DeMets 1983:
alpha spending, here at looks whose number nobody knows before).
"""

from ringside.stats.verdicts import CHANCE
from ringside_core.specs import Comparison

LATER = 0.01  # for all looks after the first one together


def level(comparison: Comparison) -> float:
    """The probability of a false word that each family of questions may have at this look.

    Rounds that were counted before (`--rounds`) cannot be followed by a second look, so their only
    look has it all. Otherwise the first look has CHANCE − LATER, and look k has LATER ÷ 2^(k−1): by
    the union bound all looks together have CHANCE, however many there are.
    """
    before = len(comparison.looks)
    if before:
        return LATER / 2.0**before
    return CHANCE if comparison.asked.counted else CHANCE - LATER
