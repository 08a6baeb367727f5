"""Which questions are asked first, and from how many arms the contenders were chosen."""

import itertools

import numpy as np

from ringside.stats.contenders import questions
from ringside.stats.summary import summarize
from ringside.stats.verdicts import Question, Sample, pair_verdicts
from tests.unit.report.judged import bare

SECONDS = {
    ("serial", 1): 1.0,
    ("mirrored", 1): 1.3,
    ("horovod", 1): 1.6,
    ("mirrored", 2): 1.0,
    ("multi_worker_mirrored", 2): 1.1,
    ("central_storage", 2): 2.0,
    ("horovod", 2): 1.2,
}


def test_headlines_and_serial_are_asked_first() -> None:
    """Each pair once; a headline that is also a pair with serial is one question."""
    summary = summarize(bare(SECONDS))
    apart = {frozenset(("mirrored ×2", "central_storage ×2"))}

    contests, asked_first, others = questions(summary.arms, "serial", apart)

    assert contests[1] == Question("mirrored ×1", "horovod ×1")
    assert contests[2] == Question("mirrored ×2", "horovod ×2", 2, 1)
    pairs = [frozenset((one.first, one.second)) for one in (*asked_first, *others)]
    assert len(asked_first) == 2 + 6
    assert len(set(pairs)) == len(pairs) == 7 * 6 // 2


def test_a_difference_against_serial_is_named_though_there_are_91_pairs() -> None:
    """0.52 times as fast, three launches, fourteen arms: as one of 91 pairs it had no word."""
    random = np.random.default_rng(1)
    labels = ["serial", *(f"arm {k}" for k in range(13))]
    samples = {
        label: [
            Sample(number, 0, rate, dict.fromkeys(range(4), rate))
            for number, rate in enumerate(speed * random.lognormal(0, 0.12, 3))
        ]
        for label, speed in zip(labels, [100.0] + [52.0] * 13, strict=True)
    }
    first = [Question(label, "serial") for label in labels[1:]]
    every = [Question(*pair) for pair in itertools.combinations(labels, 2)]

    asked_first, all_alike = (
        [one for one in pair_verdicts(samples, family) if "serial" in (one.first, one.second)]
        for family in (first, every)
    )

    assert [one.word for one in asked_first].count("faster") == 13
    assert [one.word for one in all_alike].count("faster") < 13
