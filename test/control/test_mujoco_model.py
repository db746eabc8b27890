"""A system that is a MuJoCo model: where its file lies, and what must fit."""

import mujoco
import numpy as np
import pytest

from geoaccel_ros.config import ConfigurationError
from geoaccel_ros.control.systems import available, load_system

# Nothing but the model says how it moves: there is no step.
PUCK = '''
"""A puck on a rail."""

from dataclasses import dataclass

from geoaccel_ros.config import Configuration, parameter

STATE = ("x", "v")
CONTROL = ("force",)
GOAL = ("x",)
RUNNING = ("goal",)
TERMINAL = ("speed",)
MODEL = "rail.xml"


@dataclass(frozen=True)
class Parameters(Configuration):
    mass: float = parameter(2.0, "Mass.", unit="kg", minimum=0.1)
    goal_weight: float = parameter(1.0, "Cost of a second at a metre from the goal.")
    final_speed_weight: float = parameter(1.0, "Cost of ending at 1 m/s.")


def limits(p):
    return (-4.0,), (4.0,)


def apply(model, p):
    model.body_mass[1] = p.mass


def running(x, u, u_before, goal, p):
    off = x[0] - goal[0]
    return (p.goal_weight * off * off,)


def terminal(x, goal, p):
    return (p.final_speed_weight * x[1] * x[1],)
'''
RAIL = """
<mujoco>
  <worldbody>
    <body>
      <joint name="rail" type="slide" axis="1 0 0"/>
      <geom size="0.1" mass="1"/>
    </body>
  </worldbody>
  <actuator><motor joint="rail"/></actuator>
</mujoco>
"""


def _puck(folder, text=PUCK, model=RAIL):
    (folder / "puck.py").write_text(text, encoding="utf-8")
    (folder / "rail.xml").write_text(model, encoding="utf-8")
    return str(folder / "puck.py")


def test_a_model_beside_the_file_takes_the_parameters(tmp_path):
    system = load_system(_puck(tmp_path))
    assert system.step is None and system.model == tmp_path / "rail.xml"
    model = system.mujoco_model(system.parameters(mass=5.0))
    assert model.body_mass[1] == 5.0
    # What follows from the mass follows.
    assert model.body_subtreemass[0] == 5.0
    data = mujoco.MjData(model)
    data.ctrl[:] = 2.0
    mujoco.mj_forward(model, data)
    np.testing.assert_allclose(data.qacc, 0.4)


@pytest.mark.parametrize("place", ["absolute", "bundled"])
def test_a_model_may_lie_elsewhere(tmp_path, place):
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "rail.xml").write_text(RAIL, encoding="utf-8")
    elsewhere = {"absolute": str(tmp_path / "models" / "rail.xml"), "bundled": "cartpole.xml"}
    text = PUCK.replace('MODEL = "rail.xml"', f'MODEL = "{elsewhere[place]}"')
    system = load_system(_puck(tmp_path, text))
    assert system.model.is_absolute() and system.model.parent.name == "models"


@pytest.mark.parametrize(
    ("text", "model", "message"),
    [
        (
            PUCK.replace("rail.xml", "rale.xml"),
            RAIL,
            r"MODEL 'rale.xml' does not exist: no file .*or ",
        ),
        (PUCK.replace("model, p", "model"), RAIL, r"apply must take \(model, p\)"),
        (PUCK.replace('MODEL = "rail.xml"\n', ""), RAIL, "does not define step"),
        (PUCK.replace('"v")', '"v", "w")'), RAIL, r"nq \+ nv = 2 and nu = 1, STATE has 3 "),
        (
            PUCK.replace('("force",)', '("a", "b")').replace(
                "(-4.0,), (4.0,)", "(-4.0, -4.0), (4.0, 4.0)"
            ),
            RAIL,
            r"nu = 1, .* CONTROL 2",
        ),
        (PUCK, RAIL.replace("<motor joint", "<motor joynt"), "rail.xml: XML Error: .*joynt"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path, text, model, message):
    with pytest.raises(ConfigurationError, match=f"puck.py'.*{message}") as raised:
        system = load_system(_puck(tmp_path, text, model))
        system.mujoco_model(system.parameters())
    assert "\n" not in str(raised.value)


def test_without_a_model_there_is_none_to_load():
    system = load_system("diff_drive")
    with pytest.raises(ConfigurationError, match="'diff_drive' has no MuJoCo model"):
        system.mujoco_model(system.parameters())


@pytest.mark.parametrize("name", [name for name in available() if load_system(name).model])
def test_a_bundled_model_fits(name):
    system = load_system(name)
    model = system.mujoco_model(system.pack(system.parameters(), np.float64))
    # What the file says is what the parameters are at their defaults.
    as_written = mujoco.MjModel.from_xml_path(str(system.model))
    np.testing.assert_allclose(model.body_mass, as_written.body_mass)
    np.testing.assert_allclose(model.body_inertia, as_written.body_inertia)
    lower, upper = (np.array(limit) for limit in system.limits(system.parameters()))
    np.testing.assert_allclose(model.actuator_ctrlrange, np.transpose([lower, upper]))
