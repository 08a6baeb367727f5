"""results.csv: one row for each run, as any tool reads it."""

import csv
import io

from ringside.report.data import render_csv
from ringside.stats.summary import summarize
from ringside_core.specs import Load
from tests.unit.stats.factory import arm_of, comparison_of, simple_run

BUSY = Load(wall_s=10.0, cores=2, others_cpu_s=8.0, steal_cpu_s=0.0)


def test_breakdown_arms_twins_and_disturbed_rounds_have_rows() -> None:
    """Every run has a row that says what it is and whether its round counts."""
    arm = arm_of("horovod", 2)
    twin = arm.replace(label="horovod ×2 again", group="horovod again", twin_of=arm.label)
    quick = arm.replace(label="quick", group="quick", ablation="no_reduction")
    runs = [
        simple_run("horovod", 2, 1.0, number=number, position=3 * number + place).replace(
            arm=one.label, load=BUSY if number == 4 else None
        )
        for number in range(5)
        for place, one in enumerate((arm, twin, quick))
    ]
    quick_runs = [
        run.replace(
            spec=run.spec.replace(ablation="no_reduction", save="record"),
            records=tuple(
                one.replace(spec=one.spec.replace(ablation="no_reduction", save="record"))
                for one in run.records
            ),
        )
        if run.arm == "quick"
        else run
        for run in runs
    ]

    summary = summarize(comparison_of([arm, twin, quick], quick_runs))
    rows = list(csv.DictReader(io.StringIO(render_csv(summary))))

    assert [row["arm"] for row in rows] == [arm.label, twin.label, quick.label] * 5
    assert {row["arm"]: row["twin_of"] for row in rows}[twin.label] == arm.label
    assert {row["arm"]: row["ablation"] for row in rows}["quick"] == "no_reduction"
    assert [row["round_counts"] for row in rows] == ["yes"] * 12 + ["no"] * 3
    assert "others used 40 % of its cores" in rows[-1]["disturbed_by"]
    assert {row["comparable"] for row in rows if row["arm"] == "quick"} == {"no"}
    assert None not in {value for row in rows for value in row.values()}
