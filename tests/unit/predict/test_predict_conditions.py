"""A prediction from, or checked by, runs of something else: refused, or told."""

from pathlib import Path
from typing import Any

import pytest

import ringside.cli.main
from ringside.predict.conditions import link_notes, refuse_another, refuse_other_hosts
from ringside.predict.inputs import inputs_of, link_rate
from ringside.predict.predict import Asked, predict
from ringside.predict.prediction import Prediction
from ringside_core.specs import (
    Certificate,
    Comparison,
    Host,
    RefusalError,
    Resources,
    write_whole,
)
from ringside_core.specs.communication import Link
from tests.unit.predict import predicted as made
from tests.unit.stats.factory import MACHINE, arm_of

LINK = Link(sender="left", receiver="right", tool="tcp", bytes=125_000_000, seconds=1)
SLOW = LINK.replace(seconds=10)
TWO_SLOTS = (Host(name="left", slots=2), Host(name="right", slots=2))
TIMES = {1: 0.1, 2: 0.2}


@pytest.mark.parametrize("seconds", [0.88, 1.12])
def test_runs_over_another_link_are_refused(seconds: float) -> None:
    """A link 12 % faster or slower; two measurements of one link may differ by 8 %."""
    runs = made.comparison(TIMES, links=(LINK.replace(seconds=seconds),))

    with pytest.raises(RefusalError, match="the same link"):
        link_notes(runs, made.communication())
    near = made.comparison(TIMES, links=(LINK.replace(seconds=1.08),))
    assert link_notes(near, made.communication()) == ()


def test_another_congestion_control_is_another_link(tmp_path: Path) -> None:
    """Even at the same rate; for the all-reduces and for the runs of the check."""
    cubic, bbr = (LINK.replace(congestion_control=name) for name in ("cubic", "bbr"))
    reduced = made.communication().replace(links=(bbr,))

    with pytest.raises(RefusalError, match="congestion control"):
        link_notes(made.comparison(TIMES, links=(cubic,)), reduced)
    with pytest.raises(RefusalError, match="bbr and cubic"):
        refuse_another(
            prediction(tmp_path), made.comparison(TIMES, links=(cubic,)), four(links=(bbr,))
        )


def test_an_unknown_link_is_told() -> None:
    """Nobody measured it before the runs; one machine has none."""
    (note,) = link_notes(made.comparison(TIMES), made.communication())

    assert "nobody knows whether" in note
    assert link_notes(made.comparison(TIMES, hosts=()), made.communication(hosts=())) == ()


def test_two_replicas_on_one_host_say_nothing_of_a_link() -> None:
    """The first host has two slots, so both replicas are there."""
    runs = made.comparison(TIMES, hosts=TWO_SLOTS)

    with pytest.raises(RefusalError, match="both on left"):
        inputs_of(runs, made.communication(), 1e9)


@pytest.mark.parametrize("hosts", [("left", "host3"), ("host3", "host4"), ()])
def test_all_reduces_of_other_hosts_are_refused(hosts: tuple[str, ...]) -> None:
    """Even if the hostfile has them: the two replicas ran on the first two hosts."""
    runs, reduced = made.comparison(TIMES), made.communication(hosts=hosts)

    with pytest.raises(RefusalError, match="left, right"):
        refuse_other_hosts(runs, reduced, "somewhere")
    refuse_other_hosts(runs, made.communication(hosts=("right", "left")), "somewhere")


def test_settings_of_an_arm_are_matched_exactly() -> None:
    """All-reduces with another setting are of another stack."""
    arm = arm_of("horovod", 2, controller="mpi", btl_tcp_flags=9)
    runs = made.comparison(TIMES)
    arms = tuple(one.replace(options=arm.options) for one in runs.arms)
    runs = runs.replace(
        arms=arms,
        runs=tuple(
            run.replace(
                spec=run.spec.replace(options=arm.options),
                records=tuple(
                    record.replace(spec=record.spec.replace(options=arm.options))
                    for record in run.records
                ),
            )
            for run in runs.runs
        ),
    )

    with pytest.raises(RefusalError, match="none of 'horovod mpi:btl_tcp_flags=9'"):
        inputs_of(runs, made.communication("horovod mpi"), 1e9)
    found, _ = inputs_of(runs, made.communication("horovod mpi:btl_tcp_flags=9"), 1e9)
    assert [one.stack for one in found.values()] == ["horovod mpi:btl_tcp_flags=9"]


def test_parameter_servers_need_a_link_that_is_known_and_used() -> None:
    """Refused if both workers are beside the server, or no rate is known."""
    beside = made.comparison(TIMES, "parameter_server", hosts=TWO_SLOTS, links=(LINK,))
    unknown = made.comparison(TIMES, "parameter_server")
    known = made.comparison(TIMES, "parameter_server", links=(LINK,))

    with pytest.raises(RefusalError, match="both on its host"):
        inputs_of(beside, None, link_rate(None, beside))
    with pytest.raises(RefusalError, match="name a link"):
        inputs_of(unknown, None, link_rate(None, unknown))
    assert link_rate(None, known) == pytest.approx(1e9)
    stacks, _ = inputs_of(known, None, 1e9)
    asked = Asked((4096,), measured_bits_per_s=1e9)
    ((found,), _) = predict(list(stacks.values()), asked, known)
    assert found.steps[0].step_ms >= 4095 * made.GRADIENT * 8 / 1e9 * 1000


def test_a_server_s_link_is_no_faster_than_the_fastest() -> None:
    """One slow link elsewhere does not make all of T(2) communication."""
    slow = LINK.replace(receiver="host3", bytes=LINK.bytes // 10)
    runs = made.comparison(TIMES, "parameter_server", links=(LINK, slow))

    stacks, _ = inputs_of(runs, None, link_rate(None, runs))

    (found,) = stacks.values()
    assert found.link_s == pytest.approx(made.GRADIENT * 8 / 1e9)


def test_what_failed_its_certificate_is_not_predicted() -> None:
    """The message has its name and the reason."""
    runs = made.comparison(TIMES)
    failed = Certificate(
        arm=runs.arms[1],
        spec=runs.runs[1].spec,
        kind="exact",
        steps=3,
        code_version="",
        machine=MACHINE,
        hosts=runs.hosts,
        created_unix_s=0,
        obstacle="weights differ",
    )

    with pytest.raises(RefusalError, match="horovod ×2 is not certified: weights differ"):
        inputs_of(runs.replace(certificates=(failed,)), made.communication(), 1e9)


def test_a_size_without_a_law_is_left_out_with_the_reason() -> None:
    """20 KB among 128 ranks over Open MPI; 64 ranks are predicted."""
    one = made.inputs([0.1], [0.2], stack="horovod mpi", gradient_bytes=20_000)

    (found,), reasons = predict([one], Asked((64, 128)), made.comparison(TIMES))

    assert [step.replicas for step in found.steps] == [64]
    assert list(reasons) == ["horovod ×128"]
    assert "is not known" in reasons["horovod ×128"]


@pytest.mark.parametrize(("rate", "holds"), [(1e8, True), (None, False)])
def test_the_interval_holds_both_laws_of_another_link(rate: float | None, holds: bool) -> None:
    """A stack at 61 % of 1 Gbit/s may also be at 61 % of 100 Mbit/s."""
    beta = made.BETA_S / 0.61
    pair = made.ring_s(2, made.GRADIENT, beta=beta)
    one = made.inputs([0.1, 0.1], [0.1 + pair] * 2, curve=made.curve(beta=beta))

    asked = Asked((4,), measured_bits_per_s=1e9, bits_per_s=rate)
    (found,), _ = predict([one], asked, made.comparison(TIMES))

    there = 1000 * (0.1 + made.ring_s(4, made.GRADIENT, beta=8 / 1e8 / 0.61))
    (step,) = found.steps
    assert step.high_ms is not None
    assert (step.step_ms < 0.97 * there < step.high_ms) is holds


def prediction(tmp_path: Path, *flags: str) -> Prediction:
    """Of 1 Gbit/s, four replicas on four hosts."""
    runs, reduced = tmp_path / "runs.json", tmp_path / "reduced.json"
    write_whole(tmp_path / "runs" / "results.json", made.comparison(TIMES, links=(LINK,)).to_json())
    write_whole(reduced, made.communication().to_json())
    code = ringside.cli.main.run(
        ["predict", str(runs.with_suffix("")), "--communication", str(reduced), "--replicas", "4",
         "--output", str(tmp_path), "--name", "out", *flags]
    )  # fmt: skip
    assert code == 0
    return Prediction.from_json((tmp_path / "out" / "prediction.json").read_text())


def four(**changes: Any) -> Comparison:
    """Runs at four replicas."""
    return made.comparison({4: 0.3}, **{"links": (LINK,), **changes})


def cores(comparison: Comparison, count: int) -> Comparison:
    """The same runs with other resources."""
    return comparison.replace(
        shared=made.SHARED.replace(resources=Resources(cores_per_replica=count))
    )


def test_a_check_must_be_over_the_same_link_with_the_same_means(tmp_path: Path) -> None:
    """Another rate, other cores, another pipeline or two replicas a host are refused."""
    ours, found = made.comparison(TIMES, links=(LINK,)), prediction(tmp_path)

    assert refuse_another(found, ours, four()) == ()
    assert "not known" in refuse_another(found, ours, four(links=()))[0]
    with pytest.raises(RefusalError, match="the link it is for"):
        refuse_another(found, ours, four(links=(SLOW,)))
    with pytest.raises(RefusalError, match="cores_per_replica"):
        refuse_another(found, ours, cores(four(), 8))
    with pytest.raises(RefusalError, match="as many replicas on each host"):
        refuse_another(found, ours, four(hosts=TWO_SLOTS))
    pipeline = made.SHARED.pipeline.replace(prefetch=0)
    other = four(shared=made.SHARED.replace(pipeline=pipeline))
    with pytest.raises(RefusalError, match="pipeline"):
        refuse_another(found, ours, other)


def test_a_check_of_another_link_is_by_runs_over_that_link(tmp_path: Path) -> None:
    """For --rate 100mbit, the check needs runs at 100 Mbit/s."""
    found = prediction(tmp_path, "--rate", "100mbit")

    assert refuse_another(found, made.comparison(TIMES), four(links=(SLOW,))) == ()
    with pytest.raises(RefusalError, match="the link it is for"):
        refuse_another(found, made.comparison(TIMES), four())
