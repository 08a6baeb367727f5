"""Functions that a person names: what is missing is called by what it was to be."""

import pytest

from ringside_core.specs import RefusalError
from ringside_core.workloads.registry import load_function


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("nowhere.py:odd", "The filter's file must exist"),
        ("nowhere.at_all:odd", "The filter's module must be importable"),
    ],
)
def test_a_missing_filter_is_called_a_filter(reference: str, words: str) -> None:
    """It is not called a workload."""
    with pytest.raises(RefusalError, match=words):
        load_function(reference, what="filter")
