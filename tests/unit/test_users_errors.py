"""An error of a user's program in one line: what is wrong first, then the user's own line."""

import subprocess
import sys
from pathlib import Path

import pytest

from ringside_core.specs import RefusalError
from ringside_core.users_errors import essence, in_one_line, last_error, names_a_type, of_users


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("cannot compute Mul [Op:Mul] name: ", "cannot compute Mul"),
        (
            'Exception encountered when calling layer "a" (type A).\n\nno such type\n\n'
            'Call arguments received by layer "a" (type A):\n  • x=1',
            "no such type",
        ),
        (
            'in user code:\n\n    File "a.py", line 3, in augment  *\n        x = layer(x)\n\n'
            "    TypeError: Exception encountered when calling RandomRotation.call().\n    \n"
            "    \x1b[1mInput 'y' has type float32\x1b[0m\n    \n"
            "    Arguments received by RandomRotation.call():\n      • training=True\n",
            "Input 'y' has type float32",
        ),
        (
            'in user code:\n\n    File "a.py", line 1, in call  *\n        x * y\n\n'
            "    TypeError: Input 'y' has type float32\n",
            "TypeError: Input 'y' has type float32",
        ),
        (
            "Graph execution error:\n\nDetected at node Reshape (most recent call last):\n"
            '  File "a.py", line 3, in call\n\nInput has 48 values\n\t [[{{node Reshape}}]] [Op:f]',
            "Input has 48 values",
        ),
        ("{{function_node __wrapped__Reshape}} Input has 48 values", "Input has 48 values"),
        ("", ""),
    ],
)
def test_the_line_that_says_what_is_wrong(text: str, said: str) -> None:
    """Keras and AutoGraph put others around it."""
    assert essence(text) == said
    assert in_one_line(ValueError(text)) == (f"ValueError: {said}" if said else "ValueError")


def test_a_real_traceback_ends_in_the_users_line(tmp_path: Path) -> None:
    """Not in the library's, where it was raised; what was printed before is left out."""
    program = tmp_path / "mine.py"
    program.write_text("import json, sys\nprint('a warning', file=sys.stderr)\njson.loads('{')\n")

    done = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, check=False
    )

    expected = "JSONDecodeError: Expecting property name enclosed in double quotes"
    assert last_error(done.stderr).startswith(expected)
    assert last_error(done.stderr).endswith(f" ({program}, line 3)")


def test_autograph_tells_the_users_line_in_its_text() -> None:
    """Not in the traceback, which is of TensorFlow's files; the kind is said once."""
    lib = 'File "/lib/python3/site-packages/tensorflow/api.py", line 9, in wrapper'
    output = (
        f"Traceback (most recent call last):\n  {lib}\n    raise e\n"
        'ValueError: in user code:\n\n    File "a.py", line 6, in score  *\n        f(x)\n\n'
        "    ValueError: Input has 36 values\n"
    )

    assert last_error(output) == "ValueError: Input has 36 values (a.py, line 6)"


def test_a_program_within_the_checkout_is_a_users() -> None:
    """As those in examples/ are; Ringside's own rooms are not."""
    root = Path(__file__).resolve().parents[2]
    output = (
        "Traceback (most recent call last):\n"
        f'  File "{root}/ringside_core/workloads/script.py", line 3, in run\n    exec(code)\n'
        f'  File "{root}/examples/mine.py", line 7, in <module>\n    fit()\n'
        f'  File "{root}/.venv/lib/python3.11/site-packages/tf_keras/a.py", line 9, in f\n'
        f'  File "{root}/trainers/fit.py", line 5, in fit\n    raise\nValueError: no\n'
    )

    assert last_error(output) == f"ValueError: no ({root}/examples/mine.py, line 7)"


def test_an_error_that_was_caught_is_said_in_one_line(tmp_path: Path) -> None:
    """A user's with the line; a refusal of Ringside's as a whole, without one."""
    program = tmp_path / "mine.py"
    program.write_text("raise ValueError('wrong\\n  and more')")
    with pytest.raises(ValueError) as caught:
        exec(compile(program.read_text(), str(program), "exec"))

    assert of_users(caught.value) == f"ValueError: wrong ({program}, line 1)"
    refused = RefusalError("A rule.", received="a thing", advice="Do this.")
    assert of_users(refused) == "RefusalError: A rule. Received: a thing. Do this."


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cannot compute Mul as input #1 was expected to be a double tensor", True),
        ("Value for attr 'T' of half is not in the list of allowed values", True),
        ("Shapes differ. (/home/me/double_dqn/train.py, line 4)", False),
        ("Shapes differ\n\nCall arguments received:\n  x=tf.Tensor(dtype=float32)", False),
        ("Shapes differ: {{node r}} = Reshape[T=DT_FLOAT](x, y)", False),
    ],
)
def test_an_error_is_about_types_if_it_says_so_itself(text: str, expected: bool) -> None:
    """And not where TensorFlow or Keras only tells what it was given."""
    assert names_a_type(text) == expected
