"""Options that come from a configuration, and the configuration that comes of them."""

import argparse
from dataclasses import dataclass

import pytest

from geoaccel_ros.cli.options import add_options, configuration
from geoaccel_ros.config import Configuration, parameter


@dataclass(frozen=True)
class Example(Configuration):
    voxel_size: tuple[float, ...] = parameter((), "Edges.", unit="m", minimum=0.1, maximum=2.0)
    count: int = parameter(3, "At least 2 % of all", minimum=1)
    method: str = parameter("fast", "How", choices=("fast", "exact"))
    enabled: bool = parameter(True, "Whether")
    label: str = parameter("", "What it is called")


def parser(**kwargs):
    made = argparse.ArgumentParser(prog="example")
    add_options(made, Example, **kwargs)
    return made


def parsed(*arguments, **kwargs):
    return configuration(parser(**kwargs).parse_args(arguments), Example)


def test_nothing_given_is_the_defaults():
    assert parsed() == Example()


def test_every_type():
    found = parsed("--voxel-size", "1,0.5", "--count", "7", "--method", "exact", "--no-enabled",
                   "--label", "5")  # fmt: skip
    assert found == Example((1.0, 0.5), 7, "exact", False, "5")
    assert parsed("--enabled", "--voxel-size", "1") == Example((1.0,))


def test_items_of_a_list_may_come_one_by_one():
    found = parsed("--voxel-size", "1,0.5", "--voxel-size", "2")
    assert found == Example((1.0, 0.5, 2.0))


def test_aliases_and_the_names_wanted():
    assert parsed("--size", "1", aliases={"voxel_size": "--size"}).voxel_size == (1.0,)
    text = parser(names=("method", "count")).format_help()
    assert text.index("--method") < text.index("--count")
    assert "--enabled" not in text


def test_help_tells_range_unit_choices_and_default():
    text = " ".join(parser().format_help().split())
    assert "--voxel-size M[,M...] Edges (0.1 to 2 m; default: none)" in text
    assert "--count N At least 2 % of all (>= 1; default: 3)" in text
    assert "--method {fast,exact} How (default: fast)" in text
    assert "--enabled, --no-enabled Whether (default: yes)" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--voxel-size", "1,3"], "'voxel_size' is 3.0, must be 0.1 to 2 (in m)"),
        (["--voxel-size", "1,"], "'voxel_size' is '', must be a number"),
        (["--voxel-size", "nan"], "'voxel_size' is nan, must be a finite number"),
        (["--count", "1.5"], "'count' is '1.5', must be an integer"),
        (["--count", "0"], "'count' is 0, must be >= 1"),
        (["--method", "slow"], "'method' is 'slow', must be one of fast, exact"),
    ],
)
def test_what_is_not_accepted_is_wrong_usage(arguments, message, capsys):
    with pytest.raises(SystemExit) as raised:
        parsed(*arguments)
    assert raised.value.code == 2
    assert message in capsys.readouterr().err
