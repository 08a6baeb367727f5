"""Damaged documents: each is refused with one message, or read as what it says."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringside_core.specs import RefusalError
from ringside_core.specs.noun import Document
from tests.unit.fuzz.damage import damaged_json, seeded
from tests.unit.report.collectives import communication
from tests.unit.report.proofs import certificate
from tests.unit.stats.factory import arm_of, comparison_of, simple_run

pytestmark = pytest.mark.nightly
RUNS = [simple_run("horovod", 2, 1.0, number=k, position=k) for k in (0, 1)]
ARM = arm_of("horovod", 2)
WHOLE: dict[str, Document] = {
    "RunSpec": RUNS[0].records[0].spec,
    "RunRecord": RUNS[0].records[0],
    "Comparison": comparison_of([ARM], RUNS),
    "Certificate": certificate(ARM),
    "Communication": communication(np.random.default_rng(0)),
}


@pytest.mark.parametrize("name", WHOLE)
@seeded
@given(data=st.data())
def test_a_damaged_document_is_refused_or_read(name: str, data: st.DataObject) -> None:
    """Never another error; what is read is written as the same again."""
    whole = WHOLE[name]
    text = data.draw(damaged_json(json.loads(whole.to_json())))

    try:
        read = type(whole).from_json(text, origin="file.json")
    except RefusalError as error:
        assert "file.json" in str(error)
        return

    again = type(whole).from_json(read.to_json())
    assert again.to_json() == read.to_json()
