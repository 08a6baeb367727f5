"""Documents of all-reduces: older files are read."""

import json

from ringside_core.specs import Communication, Comparison
from tests.unit.predict import measured


def test_files_that_name_the_operation_and_the_tool_are_read() -> None:
    """Both had one value in schema 3; a comparison holds links of its own, too."""
    found = measured.communication()
    body = json.loads(found.to_json())
    for stack in body["stacks"]:
        stack["timings"] = [{"operation": "allreduce", **one} for one in stack["timings"]]
    body["links"] = [{"tool": "tcp", **one} for one in body["links"]]
    compared = json.loads(measured.comparison({1: 0.1}, links=found.links).to_json())

    compared["links"] = body["links"]

    assert Communication.from_json(json.dumps(body)) == found
    assert Comparison.from_json(json.dumps(compared)).links == found.links
