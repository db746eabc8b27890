"""The parameter files that the package ships agree with the code that reads them."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from geoaccel_ros.control.systems import load_system
from geoaccel_ros.ros.controller_config import controller_config
from geoaccel_ros.simulation.floorplan import goals
from geoaccel_ros.simulation.world import load_model

ROOT = Path(__file__).resolve().parent.parent
CONFIGS = {
    "lidar_odometry": "LidarOdometryConfig",
    "cloud_encoder": "CloudEncoderConfig",
    "cloud_decoder": "CloudDecoderConfig",
    "mppi_controller": "MppiControllerConfig",
    "mujoco_simulation": "MujocoSimulationConfig",
}


def config_type(name):
    return getattr(importlib.import_module(f"geoaccel_ros.nodes.{name}"), CONFIGS[name])


def parameters(file, section):
    return yaml.safe_load((ROOT / "config" / file).read_text())[section]["ros__parameters"]


def test_they_are_what_the_generator_writes():
    command = [sys.executable, str(ROOT / "tools" / "generate_config.py"), "--check"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("name", CONFIGS)
def test_a_node_s_file_holds_its_defaults(name):
    config = config_type(name)
    assert config.from_mapping(parameters(f"{name}.yaml", f"/**/{name}")) == config()


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("file", ["demo.yaml", "corridor.yaml"])
def test_the_demo_s_values_are_accepted(file, name):
    config_type(name).from_mapping(parameters(file, name))


@pytest.mark.parametrize("system", ["cartpole", "quadrotor", "quadruped"])
def test_a_robot_s_controller_file_is_accepted(system):
    values = parameters(f"{system}_controller.yaml", "/**/mppi_controller")
    config = controller_config(system).from_mapping(values)
    assert config.system == system and len(config.goals) == len(load_system(system).goal)


@pytest.mark.parametrize(("file", "world"), [("demo.yaml", "yard"), ("corridor.yaml", "corridor")])
def test_the_demo_s_goals_are_the_world_s(file, world):
    listed = parameters(file, "mppi_controller")["goals"]
    assert parameters(file, "mujoco_simulation")["model"] == world
    assert listed == goals(load_model(world)).ravel().tolist()


def test_names_of_fields_in_the_docs_are_strings_to_yaml():
    lists = [
        found
        for file in (ROOT / "docs").glob("*.md")
        for found in re.findall(r"(?:lossless|quantise): \[.*?\]", file.read_text())
    ]
    assert len(lists) >= 2
    for text in lists:
        (names,) = yaml.safe_load(text).values()
        assert names and all(isinstance(name, str) for name in names), text


@pytest.mark.parametrize("name", CONFIGS)
def test_every_parameter_says_what_it_is(name):
    for parameter in config_type(name).parameters():
        assert len(parameter.description) > 5 and parameter.description[0].isupper()
