"""What happens to files and variables: strategies of hypothesis, and how many cases there are."""

import copy
import json
import os
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

CASES = int(os.environ.get("RINGSIDE_FUZZ_CASES", "30"))
"""Of each of 13 tests: 390 in all; with RINGSIDE_FUZZ_CASES=770, 10,010."""

# The same cases in each run. No time is asserted; pytest's own limit ends a hang.
seeded = settings(
    max_examples=CASES,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

LONG = 10**400  # no float, and more than 64 bits
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.sampled_from([2**31, 2**63, -(2**63), 2**64, LONG, 1e308, -0.0, 1e-320])
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["", "0", "²", "٣", "\0", "a\nb", "nan", "1e5", "../x", "\ud800", "{}"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)


@st.composite
def damaged(draw: st.DrawFn, body: Any) -> Any:
    """A JSON value of which one to three parts are other values, are missing, or stand twice."""
    body = copy.deepcopy(body)
    for _ in range(draw(st.integers(1, 3))):
        place = body
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            if not keys:
                break
            key = draw(st.sampled_from(keys))
            inside = place[key]
            if isinstance(inside, dict | list) and inside and draw(st.integers(0, 3)):
                place = inside
                continue
            how = draw(st.sampled_from(["other", "missing", "twice"]))
            if how == "missing":
                del place[key]
            elif how == "twice" and isinstance(place, list):
                place.insert(key, copy.deepcopy(inside))
            elif how == "twice":
                place[draw(st.text(max_size=4))] = inside
            else:
                place[key] = draw(VALUES)
            break
    return body


@st.composite
def damaged_json(draw: st.DrawFn, body: Any) -> str:
    """The text of a damaged JSON value; of some, the text is damaged too."""
    text = json.dumps(draw(damaged(body)))
    return draw(damaged_text(text)) if not draw(st.integers(0, 3)) else text


@st.composite
def damaged_text(draw: st.DrawFn, text: str) -> str:
    """A text that is cut off, or with a few characters instead of others."""
    start = draw(st.integers(0, len(text)))
    end = draw(st.sampled_from([start, min(len(text), start + 3), len(text)]))
    return text[:start] + draw(st.text(max_size=5)) + text[end:]


@st.composite
def damaged_bytes(draw: st.DrawFn, content: bytes) -> bytes:
    """A file that is cut off, or with a few bytes instead of others."""
    start = draw(st.integers(0, len(content)))
    end = draw(st.sampled_from([start, min(len(content), start + 4), len(content)]))
    return content[:start] + draw(st.binary(max_size=8)) + content[end:]
