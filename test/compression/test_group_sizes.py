"""compression/group_sizes.py: the fastest size is found, kept, and shared between processes."""

import json
from concurrent.futures import ProcessPoolExecutor

import pytest

from geoaccel_ros.compression.group_sizes import GroupSizes, cache_path

CANDIDATES = [32, 64, 128]


def measure(sizes, task, seconds):
    """Work until nothing is measured any more; return the size chosen and the runs it took."""
    for run in range(100):
        size, measured = sizes.choose(task, CANDIDATES)
        if not measured:
            return size, run
        sizes.record(task, size, seconds[size], CANDIDATES)
    raise AssertionError("never chosen")


@pytest.mark.parametrize("fastest", CANDIDATES)
def test_the_fastest_is_chosen_after_a_few_runs_of_each(tmp_path, fastest):
    sizes = GroupSizes(tmp_path / "deeper" / "sizes.json")
    seconds = dict.fromkeys(CANDIDATES, 2.0) | {fastest: 1.0}
    assert measure(sizes, "a", seconds) == (fastest, 9)
    assert measure(sizes, "a", seconds) == (fastest, 0)


def test_a_slow_first_run_does_not_count(tmp_path):
    sizes = GroupSizes(tmp_path / "sizes.json")
    first = set()
    while True:
        size, measured = sizes.choose("a", CANDIDATES)
        if not measured:
            break
        seconds = 1.0 if size == 64 else 2.0
        sizes.record("a", size, seconds if size in first else 100.0, CANDIDATES)
        first.add(size)
    assert size == 64


def test_choices_are_kept(tmp_path):
    path = tmp_path / "sizes.json"
    measure(GroupSizes(path), "a", {32: 2, 64: 1, 128: 3})
    measure(GroupSizes(path), "b", {32: 1, 64: 2, 128: 3})
    assert GroupSizes(path).choose("a", CANDIDATES) == (64, False)
    assert json.loads(path.read_text()) == {"a": 64, "b": 32}


def test_a_size_that_is_not_possible_is_measured_again(tmp_path):
    path = tmp_path / "sizes.json"
    path.write_text('{"a": 4096}')
    assert GroupSizes(path).choose("a", CANDIDATES) == (32, True)


@pytest.mark.parametrize("content", ["", "{", "[1]", '{"a": "x"}', "\x00\xff", '{"a": [64]}'])
def test_a_damaged_file_is_ignored(tmp_path, content):
    path = tmp_path / "sizes.json"
    path.write_text(content, encoding="latin-1")
    assert measure(GroupSizes(path), "a", {32: 2, 64: 1, 128: 3})[0] == 64
    assert json.loads(path.read_text()) == {"a": 64}


def test_a_place_that_cannot_be_written_is_ignored(tmp_path):
    (tmp_path / "file").write_text("")
    sizes = GroupSizes(tmp_path / "file" / "sizes.json")
    assert measure(sizes, "a", {32: 2, 64: 1, 128: 3}) == (64, 9)
    assert measure(sizes, "a", {32: 2, 64: 1, 128: 3}) == (64, 0)


def _measure_in_process(path, task):
    measure(GroupSizes(path), task, {32: 2, 64: 1, 128: 3})
    return json.loads(path.read_text())


def test_processes_never_see_half_a_file(tmp_path):
    path = tmp_path / "sizes.json"
    with ProcessPoolExecutor(2) as pool:
        seen = list(pool.map(_measure_in_process, [path] * 40, map(str, range(40))))
    assert all(set(content.values()) == {64} for content in seen)
    # Nothing else is left lying about.
    assert list(tmp_path.iterdir()) == [path]


def test_the_file_is_in_the_cache_directory(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = cache_path("NVIDIA CUDA: H200 / 550.1")
    assert path == tmp_path / "geoaccel_ros" / "group_sizes_NVIDIA_CUDA_H200_550.1.json"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_path("a").parent == tmp_path / ".cache" / "geoaccel_ros"
