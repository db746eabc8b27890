"""What `make acceptance` says of runs: its lines, its table and its exit status."""

import sys

import acceptance.__main__ as program
import pytest
from acceptance import drive
from acceptance.rows import Row, Series


def series(*wrong: int, runs: int = 3) -> Series:
    """Return runs whose number is their outcome; those of the numbers ``wrong`` fail."""

    def run(folder, seed):
        (folder / "node.log").write_text("said")
        assert seed not in wrong, "it\nfell"
        return {"number": seed}

    def largest(outcomes):
        return f"largest {max(outcome['number'] for outcome in outcomes)}"

    def small(outcome):
        assert outcome["number"] < 2, "too large"

    rows = (Row("robot: runs", "good", largest), Row("robot: small", "< 2", largest, small))
    return Series(run, runs, rows)


@pytest.fixture
def accept(monkeypatch, tmp_path, capsys):
    """Run the program on some series; return its status, its lines and the table's file."""
    monkeypatch.setattr(program, "TABLE", tmp_path / "acceptance.md")
    monkeypatch.setattr(program.tempfile, "tempdir", str(tmp_path))

    def accept(kinds, *arguments):
        monkeypatch.setattr(program, "SERIES", kinds)
        monkeypatch.setattr(sys, "argv", ["acceptance", *arguments])
        status = program.main()
        return status, capsys.readouterr().out.splitlines(), program.TABLE

    return accept


def test_all_rows_hold(accept, tmp_path):
    status, lines, table = accept({"robot": [series(runs=2)]})
    assert status == 0 and lines[-1] == "PASS 2/2"
    assert "| robot: small | < 2 | 2 of 2: largest 1 |" in table.read_text()
    # Logs of good runs are not kept.
    assert [path.name for path in tmp_path.iterdir()] == ["acceptance.md"]


def test_a_run_that_fails_and_one_that_does_not_do(accept, tmp_path):
    status, lines, table = accept({"robot": [series(1)], "other": [series(runs=1)]})
    assert status == 1 and lines[-1] == "FAIL 2/4"
    failed, bad = (line for line in lines if "FAILED" in line)
    assert "2/3" in failed and "it fell" in failed and "3/3" in bad and "too large" in bad
    text = table.read_text()
    assert "| robot: runs | good | **fails** 2 of 3: largest 2 |" in text
    assert "| robot: small | < 2 | **fails** 1 of 3: largest 0 |" in text
    assert len(list(tmp_path.glob("acceptance_robot_*/node.log"))) == 2


@pytest.mark.parametrize("part", [["--rows", "robot"], ["--seeds", "1"]])
def test_a_part_leaves_the_table_as_it_is(accept, part):
    status, lines, table = accept({"robot": [series(runs=1)], "other": [series(runs=1)]}, *part)
    assert status == 0 and not table.exists()


def test_no_run_is_no_pass(accept, capsys):
    with pytest.raises(SystemExit):
        accept({"robot": [series()]}, "--seeds", "0")
    assert "at least 1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "rows"),
    [
        ({}, (True, True)),
        ({"goal_reached": False}, (False, True)),
        ({"contacts": 1}, (False, True)),
        ({"path_ratio": 1.31}, (False, True)),
        ({"missed_share": 0.011}, (True, False)),
        ({"realtime_factor": 0.94}, (True, False)),
    ],
)
def test_a_drive_is_judged(change, rows):
    outcome = {
        "goal_reached": True,
        "contacts": 0,
        "path_ratio": 1.29,
        "missed_share": 0.009,
        "realtime_factor": 0.96,
        **change,
    }
    results = [program.Result(row) for row in drive.SERIES[0].rows]
    assert [not result.take(outcome) for result in results] == list(rows)
