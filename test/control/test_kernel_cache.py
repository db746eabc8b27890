"""Kernels come from disk, and only where all that they are made of is the same."""

import dataclasses
from collections import namedtuple

import numba
import numpy as np
import pytest
from rollout_problems import SYSTEM, problem

from geoaccel_ros.control.compiling import device_function
from geoaccel_ros.control.kernel_cache import UnknownContent, compile_kept, fingerprint
from geoaccel_ros.control.rollouts import CpuRollouts

ROBOT = """
import math
GRAVITY = 9.81
LIMITS = (1.0, 2.0)

def pull(x, scale=2.0):
    return scale * x - math.sin(x) * GRAVITY

def step(x, p):
    def limited(value):
        return min(value, LIMITS[1])
    return limited(pull(x)) * p.mass + 0.5
"""
EDITS = [
    ("9.81", "9.80"),
    ("(1.0, 2.0)", "(1.0, 2.5)"),
    ("LIMITS[1]", "LIMITS[0]"),
    ("scale=2.0", "scale=3.0"),
    ("scale * x", "scale + x"),
    ("math.sin", "math.cos"),
    ("p.mass", "p.width"),
    ("min(value", "max(value"),
    ("0.5", "0.25"),
]


def robot(source=ROBOT):
    module = {}
    exec(source, module)
    return module["step"]


def compiled(step):
    called = device_function(step)

    def kernel(x, p):
        return called(x, p)

    return compile_kept(kernel, (step,), nogil=True)


def value(kernel, x=0.3):
    # A type of its own, as each process has.
    p = namedtuple("Parameters", ["mass", "width"])
    return kernel(np.float32(x), p(np.float32(2.0), np.float32(5.0)))


def hits(kernel):
    return sum(kernel.stats.cache_hits.values())


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    return tmp_path


def test_the_same_source_is_the_same_function():
    assert fingerprint(robot()) == fingerprint(robot("\n# Elsewhere in the file." + ROBOT))


@pytest.mark.parametrize(("before", "after"), EDITS)
def test_each_edit_makes_another_function(before, after):
    assert ROBOT.count(before) == 1
    assert fingerprint(robot()) != fingerprint(robot(ROBOT.replace(before, after)))


# Both helpers are known, by their names, before the alias is looked up.
ALIASES = """
def square(x):
    return x * x

def absolute(x):
    return abs(x)

used = square

def step(x, p):
    return square(x) + 2.0 * absolute(x) + 3.0 * used(x)
"""
GAINS = """
from collections import namedtuple
GAINS = namedtuple("Gains", "kp kd")(3.0, 4.0)

def step(x, p):
    return GAINS.kp * x
"""
COMPILED = """
from numba import njit

@njit(error_model="python")
def ratio(x):
    return 1.0 / x

def step(x, p, *, half=0.5):
    return ratio(x)
"""


@pytest.mark.parametrize(
    ("source", "before", "after"),
    [
        (ALIASES, "used = square", "used = absolute"),
        (GAINS, "kp kd", "kd kp"),
        (COMPILED, '"python"', '"numpy"'),
        (COMPILED, "half=0.5", "half=0.6"),
        (COMPILED, "*, half", "half"),
    ],
)
def test_what_only_looks_the_same_is_another_function(source, before, after):
    assert source.count(before) == 1
    assert fingerprint(robot(source)) == fingerprint(robot(source))
    assert fingerprint(robot(source)) != fingerprint(robot(source.replace(before, after)))


def test_an_alias_is_not_the_old_kernel():
    old, edited = (
        compiled(robot(source))
        for source in (ALIASES, ALIASES.replace("used = square", "used = absolute"))
    )
    assert value(old) == pytest.approx(0.09 + 0.6 + 0.27)
    assert value(edited) == pytest.approx(0.09 + 0.6 + 0.9)


@pytest.mark.parametrize("value", ["object()", "__import__('numpy').array([None, None])"])
def test_what_cannot_be_compared_is_named(value):
    with pytest.raises(UnknownContent, match="object at|None, None"):
        fingerprint(robot(ROBOT.replace("9.81", value)))


def test_a_kernel_is_compiled_once():
    first, second = compiled(robot()), compiled(robot())
    assert value(first) == value(second)
    assert (hits(first), hits(second)) == (0, 1)


@pytest.mark.parametrize(("before", "after"), [EDITS[0], EDITS[3], EDITS[6]])
def test_an_edited_robot_is_not_the_old_one(before, after):
    old, edited = compiled(robot()), compiled(robot(ROBOT.replace(before, after)))
    assert value(old) != value(edited)
    assert hits(edited) == 0


def test_what_cannot_be_compared_is_compiled_each_time(folder):
    # Numba takes a type for a constant; nobody knows what is in it.
    source = ROBOT.replace("GRAVITY = 9.81", "from numba import float32 as number\nGRAVITY = 9.81")
    kernels = [compiled(robot(source.replace("p.mass", "number(p.mass)"))) for _ in range(2)]
    assert value(kernels[0]) == value(kernels[1]) == value(compiled(robot()))
    assert hits(kernels[1]) == 0


def test_rollouts_from_disk_are_the_same_to_the_bit():
    posed = problem(3, 0.5, samples=90)
    costs, crashed = np.empty((2, 90), np.float32), np.empty((2, 90), bool)
    for run, name in enumerate(("once", "again")):
        rollouts = CpuRollouts(dataclasses.replace(SYSTEM, name=name), 2)
        rollouts.run(posed, costs[run], crashed[run])
        states, terms = rollouts.follow(posed, 7)
        assert np.isfinite(states).all() and len(terms)
        assert hits(rollouts._side_by_side) == hits(rollouts._trace) == run
    assert np.array_equal(*costs) and np.array_equal(*crashed)


def test_a_damaged_file_is_replaced(folder):
    expected = value(compiled(robot()))
    (file,) = folder.rglob("*.nbc")
    file.write_bytes(file.read_bytes()[:1000])
    with pytest.warns(UserWarning, match="compiled again"):
        assert value(compiled(robot())) == expected
    again = compiled(robot())
    assert value(again) == expected and hits(again) == 1


@pytest.mark.parametrize("content", [b"", b"no pickle at all"])
def test_a_damaged_index_is_replaced(folder, content):
    expected = value(compiled(robot()))
    (file,) = folder.rglob("*.nbi")
    file.write_bytes(content)
    with pytest.warns(UserWarning, match="compiled again"):
        assert value(compiled(robot())) == expected
    again = compiled(robot())
    assert value(again) == expected and hits(again) == 1


def test_a_folder_that_cannot_be_written_does_not_matter(folder, monkeypatch):
    kernel = compiled(robot())
    monkeypatch.setattr(kernel._cache._impl.locator, "ensure_cache_path", _full)
    with pytest.warns(UserWarning, match="not kept: .*No space left"):
        assert value(kernel) == value(compiled(robot()))


def _full():
    raise OSError(28, "No space left on device")
