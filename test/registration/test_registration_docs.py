"""What docs/registration.md shows is run."""

import re
from pathlib import Path

import numpy as np

DOCS = Path(__file__).resolve().parents[2] / "docs" / "registration.md"


def test_the_example_in_python(capsys):
    (example,) = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    names = {}
    exec(compile(example, str(DOCS), "exec"), names)
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert names["again"].converged
    expected = np.eye(4)
    expected[:3, 3] = 0.5, 0.2, 0.1
    np.testing.assert_allclose(names["again"].T_target_source, expected, atol=0.02)
