"""Parameters of the controller of each robot."""

import pytest

from geoaccel_ros.config import ConfigurationError
from geoaccel_ros.control.systems import available, load_system
from geoaccel_ros.ros.controller_config import PlanarControllerConfig, controller_config


@pytest.mark.parametrize("name", available())
def test_a_robot_s_own_parameters_and_sampling_are_the_node_s(name):
    system, config = load_system(name), controller_config(name)()
    own = system.parameters()
    assert config.subset(system.parameters) == own
    assert config.system == name
    for parameter, value in system.sampling.items():
        assert getattr(config, parameter) == value
    assert isinstance(config, PlanarControllerConfig) == system.is_planar


def test_a_robot_without_obstacles_has_no_parameters_of_theirs():
    names = [parameter.name for parameter in controller_config("quadrotor").parameters()]
    assert "mass" in names and "obstacle_timeout" not in names and "v_max" not in names
    assert controller_config("quadrotor")().at_goal == "hold"
    assert controller_config("diff_drive")().at_goal == "stop"


def test_what_a_plan_can_go_on_with_is_live():
    live = {p.name for p in controller_config("quadrotor").parameters() if p.live}
    own = {p.name for p in load_system("quadrotor").parameters.parameters()}
    assert own | {"sigma", "samples", "command_delay", "state_timeout"} <= live
    assert not live & {"horizon", "dt", "backend", "rate", "system", "noise", "parameter_sets"}


def test_what_does_not_fit_the_robot_is_refused():
    config = controller_config("quadrotor")
    with pytest.raises(ConfigurationError, match="'goals' has 4 numbers, must have x and y and z"):
        config(goals=(0.0, 0.0, 1.0, 2.0))
    with pytest.raises(ConfigurationError, match="'sigma' has 2 values"):
        config(sigma=(0.1, 0.2))


def test_a_parameter_of_the_controller_s_name_is_refused(tmp_path):
    text = open(load_system("cartpole").step.__code__.co_filename).read()
    robot = tmp_path / "robot.py"
    robot.write_text(text.replace("cart_mass", "rate"))
    with pytest.raises(ConfigurationError, match="'rate' has the name of one of the controller's"):
        controller_config(str(robot))
