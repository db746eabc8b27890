from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geoaccel_ros.config import Configuration, ConfigurationError, parameter


@dataclass(frozen=True)
class Example(Configuration):
    voxel: float = parameter(0.5, "Edge of a voxel.", unit="m", minimum=0.1, maximum=2.0)
    count: int = parameter(3, "How many.", minimum=1)
    method: str = parameter("fast", "How.", choices=("fast", "exact"))
    enabled: bool = parameter(True, "Whether.")
    goals: tuple[float, ...] = parameter((), "Where to.", minimum=-10.0)


def test_defaults_are_the_declared_ones():
    assert Example().as_dict() == {
        "voxel": 0.5, "count": 3, "method": "fast", "enabled": True, "goals": []
    }  # fmt: skip


def test_an_integer_stands_for_a_decimal_also_in_a_list():
    config = Example.from_mapping({"voxel": 1, "goals": [1, 2.5]})
    assert config.voxel == 1.0 and isinstance(config.voxel, float)
    assert config.goals == (1.0, 2.5) and isinstance(config.goals[0], float)


@given(st.floats(allow_nan=False))
def test_bounds_are_inclusive_and_kept(value):
    if 0.1 <= value <= 2.0:
        assert Example(voxel=value).voxel == value
    else:
        with pytest.raises(ConfigurationError, match="voxel"):
            Example(voxel=value)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"voxel": 9.0}, r"'voxel' is 9.0, must be 0.1 to 2 \(in m\)"),
        ({"voxel": float("nan")}, "'voxel' is nan"),
        ({"voxel": "1.0"}, "'voxel' is '1.0', must be a number"),
        ({"voxel": True}, "'voxel' is True"),
        ({"count": 1.0}, "'count' is 1.0, must be an integer"),
        ({"count": 0}, "'count' is 0, must be >= 1"),
        ({"count": False}, "'count' is False"),
        ({"enabled": 1}, "'enabled' is 1, must be true or false"),
        ({"method": "slow"}, "'method' is 'slow', must be one of fast, exact"),
        ({"goals": 1.0}, "'goals' is 1.0, must be a list"),
        ({"goals": [1.0, "a"]}, "'goals' is 'a', must be a number"),
        ({"goals": [0.0, -11]}, "'goals' is -11.0, must be >= -10"),
        ({"voxl": 1.0}, "unknown parameter 'voxl': did you mean 'voxel'?"),
        ({"zzz": 1.0}, "unknown parameter 'zzz': known: count, enabled, goals, method, voxel"),
    ],
)
def test_a_bad_value_is_refused_by_name(values, message):
    with pytest.raises(ConfigurationError, match=message):
        Example.from_mapping(values)


def test_a_subset_holds_the_values_of_its_own_parameters():
    @dataclass(frozen=True)
    class Other(Configuration):
        rate: float = parameter(1.0, "Rate.")

    @dataclass(frozen=True)
    class Both(Other, Example):
        pass

    assert Both(voxel=1.5, rate=2.0).subset(Example) == Example(voxel=1.5)


def test_a_configuration_cannot_change():
    with pytest.raises(AttributeError):
        Example().voxel = 1.0
