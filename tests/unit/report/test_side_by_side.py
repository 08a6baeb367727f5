"""Two comparisons side by side: regressions are found, unlike experiments are refused."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

import ringside.cli.main
from ringside.report.side_by_side import (
    guard,
    render_side_by_side_table,
    summary_of,
    write_side_by_side,
)
from ringside.stats.side_by_side import _against, ratio_of_means, side_by_side
from ringside_core.specs import Comparison, RefusalError, Run, Shared, write_whole
from tests.unit.report.hostile import MARKUP
from tests.unit.report.proofs import recertified, without_backend
from tests.unit.report.small import small
from tests.unit.report.views import printed
from tests.unit.stats.factory import FAILED, MACHINE, TAKEN, arm_of, weak


def slower(run: Run, factor: float) -> Run:
    """The same run in so many times the time."""
    return run.replace(
        records=tuple(
            one.replace(
                epochs=tuple(
                    epoch.replace(
                        train_s=epoch.train_s * factor,
                        step_end_s=tuple(end * factor for end in epoch.step_end_s),
                    )
                    for epoch in one.epochs
                )
            )
            for one in run.records
        )
    )


def later(**factors: float) -> Comparison:
    """The small comparison once more, some arms in so many times the time."""
    scaled = [slower(run, factors.get(run.arm.split()[0], 1.0)) for run in small().runs]
    return small().replace(name="later", runs=tuple(scaled))


def test_ratio_by_welch() -> None:
    """Against scipy's own test and the interval by hand, Welch and Satterthwaite."""
    random = np.random.default_rng(1)
    before, now = random.lognormal(7, 0.05, 6).tolist(), random.lognormal(7.1, 0.01, 4).tolist()
    x, y = np.log(now), np.log(before)
    parts = x.var(ddof=1) / 4, y.var(ddof=1) / 6
    df = sum(parts) ** 2 / (parts[0] ** 2 / 3 + parts[1] ** 2 / 5)
    half = stats.t.ppf(0.975, df) * np.sqrt(sum(parts))

    ratio, p = ratio_of_means(before, now)

    assert ratio.value == pytest.approx(stats.gmean(now) / stats.gmean(before), rel=1e-12)
    assert ratio.interval is not None
    mean = x.mean() - y.mean()
    ends = (ratio.interval.low, ratio.interval.high)
    assert ends == pytest.approx((np.exp(mean - half), np.exp(mean + half)), rel=1e-9)
    assert p == pytest.approx(2 * stats.t.sf(abs(mean) / np.sqrt(sum(parts)), df), rel=1e-9)


def test_a_regression_and_an_improvement_are_reported() -> None:
    """Only what changed is called; for the rest it cannot tell."""
    two = side_by_side(small(), later(horovod=1.25, mirrored=0.8))

    words = {one.label: one.word for one in two.changes}
    assert words == {"serial": "cannot tell", "mirrored ×2": "faster", "horovod ×2": "slower"}
    (bad,) = [one for one in two.changes if one.regression]
    assert bad.ratio.value == pytest.approx(1 / 1.25, rel=1e-9)
    assert bad.ratio.interval is not None and bad.ratio.interval.high < 1
    assert "1 arm slower: horovod ×2 0.80× [" in summary_of(two)
    assert "1 arm faster: mirrored ×2 1.25× [" in summary_of(two)
    assert two.serial is not None and two.serial.word == "cannot tell"


def test_certificates_lost_and_gained_are_reported() -> None:
    """An arm that is not comparable is not judged, even if it is slow."""
    lost = recertified(later(horovod=2.0), "horovod ×2")

    there, back = side_by_side(small(), lost), side_by_side(lost, small())

    certificates = {one.label: one.certificate for one in there.changes}
    assert certificates == {"serial": "", "mirrored ×2": "", "horovod ×2": "lost"}
    assert {one.word for one in there.changes} == {"cannot tell"}
    assert "No longer comparable: horovod ×2." in summary_of(there)
    assert "Now comparable: horovod ×2." in summary_of(back)


def test_what_differs_around_is_reported_first(tmp_path: Path) -> None:
    """Packages and kernels may differ; they are often what is compared."""
    packages = {**MACHINE.packages, "horovod": "0.29.0"}
    now = without_backend(later(), "horovod")
    now = now.replace(machine=MACHINE.replace(packages=packages, kernel="Linux 7"))

    two = side_by_side(small(), now)
    write_side_by_side(two, tmp_path, names=("a", "b"))

    assert ("horovod", "0.28.1", "0.29.0") in two.differs
    assert ("kernel", "Linux 6.1.0", "Linux 7") in two.differs
    assert two.only_before == ("horovod ×2",)
    text = (tmp_path / "side_by_side.md").read_text()
    assert text.index("0.29.0") < text.index("Faster or slower?")
    assert "Only before: horovod ×2" in text


def test_a_changed_machine_is_seen_in_the_serial_arm_and_taken_off_the_others() -> None:
    """If serial is as much slower, the stack is not the cause."""
    two = side_by_side(small(), later(serial=1.3, mirrored=1.3, horovod=1.3))

    said = " ".join(printed(render_side_by_side_table(two), 120).split())

    assert "serial, which is not distributed, is now 0.77×" in said
    ratios = [one.ratio.value for one in two.changes]
    assert ratios == pytest.approx([1 / 1.3, 1.0, 1.0], rel=1e-9)
    assert [one.word for one in two.changes] == ["cannot tell"] * 3
    assert "it is what the others are measured against" in two.changes[0].reason


@pytest.mark.parametrize("shift", [0.0, 0.02])
def test_what_hours_have_in_common_is_no_change_of_a_stack(shift: float) -> None:
    """Equal arms and serial, 1 % of noise, and a shift that all runs of one hour share."""
    random = np.random.default_rng(3)
    called = 0
    for _ in range(400):
        hours = [
            np.exp(shift * random.normal() + 0.01 * random.normal(size=(3, 4))) for _ in range(2)
        ]
        rates = [
            {name: dict(enumerate(row)) for name, row in zip("sab", hour.tolist(), strict=True)}
            for hour in hours
        ]
        p_values = [
            ratio_of_means(*(_against(one, label, "s") for one in rates))[1] for label in "ab"
        ]
        called += min(p for p in p_values if p is not None) <= 0.025  # Holm's first step

    assert called / 400 <= 0.06


def with_spec(**changes: Any) -> Callable[[Comparison], Comparison]:
    """A comparison whose every spec is another one."""

    def changed(comparison: Comparison) -> Comparison:
        runs = [
            run.replace(
                spec=run.spec.replace(**changes),
                records=tuple(one.replace(spec=run.spec.replace(**changes)) for one in run.records),
            )
            for run in comparison.runs
        ]
        shared = Shared.from_run(runs[0].spec)
        return comparison.replace(runs=tuple(runs), certificates=(), shared=shared)

    return changed


def through_mpi(comparison: Comparison) -> Comparison:
    """An arm of the same label, with another controller."""
    *others, arm = comparison.arms
    mpi = arm_of("horovod", 2, controller="mpi").replace(label=arm.label, group=arm.group)
    kept = [run for run in comparison.runs if run.arm != arm.label]
    return comparison.replace(arms=(*others, mpi), runs=tuple(kept), certificates=())


def on(**changes: Any) -> Callable[[Comparison], Comparison]:
    """A comparison on another machine."""
    return lambda comparison: comparison.replace(machine=MACHINE.replace(**changes))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (with_spec(global_batch=8), "global_batch of the spec: 4 before, 8 now"),
        (on(cpu_model="Slow CPU"), "'Example CPU 9000' before, 'Slow CPU' now"),
        (on(gpus=("H100",)), "gpus of the machine"),
        (weak, "scaling of the comparison: 'strong' before"),
        (through_mpi, "options.controller of the arm 'horovod ×2'"),
    ],
)
def test_unlike_experiments_are_never_mixed(
    change: Callable[[Comparison], Comparison], words: str
) -> None:
    """They are refused with both values."""
    with pytest.raises(RefusalError) as refused:
        side_by_side(small(), change(small()))

    assert words in str(refused.value)


def test_the_command_writes_both_pages_and_no_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`ringside report a b` reports a regression, and the exit code stays 0."""
    for name, comparison in (("a", small()), ("b", later(horovod=1.5))):
        write_whole(tmp_path / name / "results.json", comparison.to_json())

    code = ringside.cli.main.run(["report", str(tmp_path / "a"), str(tmp_path / "b")])

    said = capsys.readouterr().out
    assert code == 0
    assert "1 arm slower: horovod ×2" in said
    assert {path.name for path in (tmp_path / "b").iterdir()} == {
        "results.json",
        "side_by_side.html",
        "side_by_side.md",
    }
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["results.json"]


@pytest.mark.parametrize(
    ("factors", "most", "code", "words"),
    [
        ({"horovod": 1.12}, "5%", 1, "Slower by more than 5 %: horovod ×2 0.89× ["),
        ({"horovod": 1.12}, "20", 0, "No arm is shown to be slower by more than 20 %."),
        ({}, "5%", 0, "No arm is shown to be slower by more than 5 %."),
    ],
)
def test_a_job_is_guarded(
    factors: dict[str, float],
    most: str,
    code: int,
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """By its exit code and one sentence."""
    for name, comparison in (("a", small()), ("b", later(**factors))):
        write_whole(tmp_path / name / "results.json", comparison.to_json())
    folders = [str(tmp_path / "a"), str(tmp_path / "b")]

    assert ringside.cli.main.run(["report", *folders, "--fail-if-slower", most]) == code
    assert words in " ".join(capsys.readouterr().out.split())


def test_a_lost_certificate_fails_the_guard() -> None:
    """Nothing is known of the speed of such an arm."""
    lost = recertified(small(), "horovod ×2")
    assert guard(side_by_side(small(), lost), 0.05) == (
        True,
        "No longer comparable: horovod ×2.",
    )


def changed(**changes: Any) -> Comparison:
    """The small comparison, each run with these."""
    return small().replace(runs=tuple(run.replace(**changes) for run in small().runs))


def dead() -> Comparison:
    """The small comparison, in which no run of horovod ends."""
    return small().replace(
        runs=tuple(
            run.replace(outcome=FAILED) if "horovod" in run.arm else run for run in small().runs
        )
    )


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (without_backend(small(), "horovod"), "No longer measured: horovod ×2."),
        (dead(), "No longer measured: horovod ×2."),
        (changed(load=TAKEN), "No verdict: other programs took 85 % of the processors"),
        (changed(outcome=FAILED), "No verdict: no arm has an interval in both."),
    ],
)
def test_an_arm_of_which_nothing_is_known_fails_the_guard(now: Comparison, words: str) -> None:
    """It was measured before; to pass would say that it is as fast."""
    two = side_by_side(small(), now)
    fails, said = guard(two, 0.05)

    assert fails
    assert words in said
    assert all(one.word == "cannot tell" for one in two.changes)
    assert f"for any of {len(small().arms)} arms" not in summary_of(two)


def test_the_earlier_comparison_comes_first() -> None:
    """Else what became slower would be called faster."""
    now = small().replace(created_unix_s=small().created_unix_s + 1)
    with pytest.raises(RefusalError, match="first folder must be of the earlier"):
        side_by_side(now, small())


def test_an_equal_pair_passes_and_a_slower_one_does_not() -> None:
    """Twenty times each: launches that scatter by 1 %, and one arm that is 10 % slower."""
    random = np.random.default_rng(5)

    def again(factor: float) -> Comparison:
        runs = [
            slower(run, random.lognormal(0, 0.01) * (factor if "horovod" in run.arm else 1.0))
            for run in small().runs
        ]
        return small().replace(name="again", runs=tuple(runs))

    for _ in range(20):
        before = again(1.0)
        assert not guard(side_by_side(before, again(1.0)), 0.05)[0]
        assert guard(side_by_side(before, again(1.1)), 0.05)[0]


@pytest.mark.parametrize("given", [["--fail-if-slower", "x"], ["--fail-if-slower", "5%"]])
def test_a_guard_needs_a_percentage_and_two_folders(
    given: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line, exit code 2."""
    write_whole(tmp_path / "results.json", small().to_json())

    assert ringside.cli.main.run(["report", str(tmp_path), *given]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_markup_stays_text(tmp_path: Path) -> None:
    """A script in a label, a name or a version is shown on every page, and never run."""
    label = f"serial {MARKUP} | [red]x[/red]"

    def hostile(version: str) -> Comparison:
        one = small()
        arms = tuple(arm.replace(label=label) if arm.label == "serial" else arm for arm in one.arms)
        return one.replace(
            name=MARKUP,
            arms=arms,
            finalists=tuple(arm.label for arm in arms),
            runs=tuple(run.replace(arm=label) if run.arm == "serial" else run for run in one.runs),
            certificates=(),
            machine=MACHINE.replace(packages={MARKUP: version}),
        )

    two = side_by_side(hostile("1"), hostile(f"2{MARKUP}"))
    page = write_side_by_side(two, tmp_path, names=(MARKUP, "b")).read_text()
    shown = printed(render_side_by_side_table(two), 200)

    assert "<script" not in page
    assert page.count("&lt;script&gt;") >= 4
    text = (tmp_path / "side_by_side.md").read_text()
    assert re.search(r"(?<!\\)<script", text) is None
    assert re.search(r"(?<!\\)\| \[red", text) is None
    assert "[red]x[/red]" in "".join(shown.split()).replace("|", "")
