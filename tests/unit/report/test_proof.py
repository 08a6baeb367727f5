"""What a report says of certificates, and whom it leaves out of every ranking."""

import csv
import io
import re

from ringside.report.blocks import Bullets, Section, Table
from ringside.report.data import render_csv
from ringside.report.html import render_html
from ringside.report.markdown import escaped, render_markdown
from ringside.report.sections.proof import not_comparable, proof_section
from ringside.report.table import render_table
from ringside.report.view import View, view_of
from ringside.stats.summary import summarize
from ringside_core.specs import Comparison
from tests.unit.report.bout import bout, mixed_bout
from tests.unit.report.proofs import answered, certificate, deviation, failed, parity, recertified
from tests.unit.report.views import (
    bout_plots,
    bout_view,
    mixed_view,
    printed,
    section_of,
)
from tests.unit.stats.factory import arm_of, comparison_of, simple_run

APART = ["mirrored ×2", "multi_worker_mirrored ×2", "horovod:controller=mpi ×2"]


def three(*keep: str) -> Comparison:
    """Serial, one_device and mirrored ×1, of which those named have a passing certificate."""
    arms = [arm_of(name) for name in ("serial", "one_device", "mirrored")]
    runs = [simple_run(arm.backend, 1, 1.0 + k, position=k) for k, arm in enumerate(arms)]
    return comparison_of(
        arms, runs, certificates=tuple(certificate(a) for a in arms if a.backend in keep)
    )


def proof(comparison: Comparison) -> Section:
    """The section of the proof."""
    return proof_section(summarize(comparison))


def certificates_in(view: View) -> Table:
    """The table of certificates in a view."""
    return next(one for one in section_of(view, "same").blocks if isinstance(one, Table))


def test_answer_when_all_are_certified() -> None:
    """The largest float64 deviation of all arms, and how many go by counting."""
    worse = parity("float64", deviation(4.5e-13, 7))

    found = proof(recertified(bout(), "horovod ×1", lambda one: one.replace(checks=(worse,))))

    assert found.sure
    assert found.answer == (
        "Yes. All 15 arms are certified: 14 agree with the serial run to 4.5e-13 or better in "
        "float64; 1, asynchronous, where each update waits for the one before."
    )


def test_answer_when_none_is_certified() -> None:
    """Not verified is not failed; the lead first says that nothing is ranked."""
    serial = failed(certificate(arm_of("serial")))
    lost = three().replace(certificates=(serial,))

    assert proof(three()).answer == "Not known: no arm was verified, so no arm is ranked."
    assert proof(lost).answer == "No: of 3 arms none is certified, so no arm is ranked."
    for comparison in (three(), lost):
        view = view_of(comparison)
        assert view.lead.startswith("No arm is comparable, so no arm is ranked. digits, ")
        assert view.headline.word == "no arm"
    assert view_of(three("serial")).lead.startswith("digits, ")


def test_answer_claims_no_more_than_was_seen() -> None:
    """The largest deviation of any kind; equal bits or rounding are said as such."""
    slot = parity("float64", deviation(2e-15, 1, kind="slots", name="000 m"))
    zero = parity("float64", deviation(0.0, 1))

    def answer(check: object) -> str:
        proofs = [c.replace(checks=(check,)) for c in three("serial").certificates]
        return proof(three().replace(certificates=tuple(proofs))).answer

    assert "1 agrees with the serial run to 2.0e-15 or better in float64" in answer(slot)
    assert "1 agrees with the serial run to the last bit in float64" in answer(zero)
    assert "1 is equal to the serial run within rounding" in answer(answered("training ledger"))


def test_table_of_certificates() -> None:
    """Where the deviation is, what else was asked, and why not."""
    table = certificates_in(mixed_view())
    rows = {row[0].main: row for row in table.rows}
    names = [column.name for column in table.columns]

    certified = dict(zip(names, rows["horovod ×2"], strict=True))
    lost = dict(zip(names, rows["horovod:controller=mpi ×2"], strict=True))

    assert (certified["Certified"].main, certified["Certified"].note) == ("exact", "20 steps")
    assert certified["Float64"].main == "3.1e-15"
    assert certified["Float64"].note == "weights 002 dense/kernel:0, step 1"
    assert certified["Float32"].main == "1.5e-06"
    assert certified["Ledger"].main == "passed"
    assert certified["Evaluation, predictions"].main == "passed"
    assert certified["Other checks"].note == "each gradient once"
    assert certified["Differs by design"].main == "1 layer"
    assert certified["Why not"].main == ""
    assert (lost["Certified"].main, lost["Certified"].note) == ("no", "failed")
    assert lost["Float64"].main == "3.1e-02" and lost["Float64"].bad
    assert lost["Evaluation, predictions"].main == "–"
    assert lost["Why not"].main.startswith("float64 parity: largest deviation 3.1e-02")
    assert rows["parameter_server ×2"][1].main == "in turn"
    assert rows["mirrored ×2"][1].note == "not for these runs"
    assert rows["multi_worker_mirrored ×2"][1].note == "not verified"
    assert "Why not" not in [column.name for column in certificates_in(bout_view()).columns]


def test_verdicts_leave_out_what_is_not_comparable() -> None:
    """Such an arm is in no headline and no pair; a caveat names it first."""
    view = mixed_view()
    judged = {label for one in view.summary.pairs for label in one.names}
    said = view.headline.sentence

    assert "trains" in said and "Horovod" in said  # the one over MPI was faster
    assert not judged & set(APART)
    assert not any(label in said for label in APART)
    (careful,) = section_of(view, "caveats").blocks
    assert isinstance(careful, Bullets)
    assert careful.items[0][0].startswith(
        "mirrored ×2, multi_worker_mirrored ×2 and horovod:controller=mpi ×2: "
    )
    assert "not comparable" not in str(section_of(bout_view(), "caveats"))


def test_every_format_says_who_is_not_comparable_and_why() -> None:
    """HTML, Markdown, terminal and CSV; each arm and each reason."""
    view = mixed_view()
    page = re.sub(r"<wbr>", "", render_html(view, [*bout_plots().values()]))
    shown = " ".join(printed(render_table(mixed_bout()), 120).split())
    rows = list(csv.DictReader(io.StringIO(render_csv(view.summary))))

    assert [arms for arms, _ in not_comparable(view.summary)] == APART
    for arms, reason in not_comparable(view.summary):
        assert reason in page
        assert f"- **{escaped(arms)}**: {escaped(reason)}" in render_markdown(view)
        assert f"not comparable {arms}: {reason}" in shown
        cells = {(r["comparable"], r["not_comparable_because"]) for r in rows if r["arm"] == arms}
        assert cells == {("no", reason)}
    certified = {one.arm.label for one in mixed_bout().certificates} - set(APART)
    others = {(r["comparable"], r["not_comparable_because"]) for r in rows if r["arm"] in certified}
    assert others == {("yes", "")}
    assert '<tbody class="apart">' in page
    assert "| **Not comparable, and not ranked** |" in render_markdown(view)
    assert shown.count("comp. comp.") == 3
    for text in (page, render_markdown(view), shown):
        assert "12 of 15 arms are certified" in text
