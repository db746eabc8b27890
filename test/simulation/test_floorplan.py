"""Footprints of known shapes, and the yard's promises: wide gaps, free goals, no straight way."""

import itertools

import mujoco
import numpy as np
import pytest

from geoaccel_ros.simulation.floorplan import goals, obstacle_footprints
from geoaccel_ros.simulation.world import load_model

# Half of the narrowest gap that the yard promises.
CLEARANCE = 0.8


def area(polygon):
    x, y = polygon.T
    return (x @ np.roll(y, -1) - y @ np.roll(x, -1)) / 2


def test_footprints_of_known_shapes():
    model = mujoco.MjModel.from_xml_string(
        """
        <mujoco><worldbody>
          <geom type="plane" size="9 9 1"/>
          <geom type="box" pos="0 0 0.05" size="1 1 0.05"/>
          <body pos="3 0 0" euler="0 0 90"><geom type="box" pos="1 0 1" size="0.5 0.2 1"/></body>
          <geom type="cylinder" pos="-2 1 0.5" size="0.5 0.5"/>
          <geom type="sphere" pos="0 4 0.5" size="0.25"/>
          <body pos="5 5 1"><freejoint/><geom type="box" size="1 1 1"/></body>
        </worldbody></mujoco>
        """
    )
    # MuJoCo numbers the geoms of the world before those of its bodies.
    cylinder, sphere, box = obstacle_footprints(model)
    assert {tuple(corner) for corner in box.round(9)} == {
        (2.8, 0.5), (3.2, 0.5), (3.2, 1.5), (2.8, 1.5)
    }  # fmt: skip
    assert area(box) == pytest.approx(0.4)
    np.testing.assert_allclose(np.linalg.norm(cylinder - [-2, 1], axis=1), 0.5)
    np.testing.assert_allclose(np.linalg.norm(sphere - [0, 4], axis=1), 0.25)


def test_no_goals_unless_the_model_proposes_some():
    assert goals(mujoco.MjModel.from_xml_string("<mujoco/>")).shape == (0, 2)


@pytest.fixture(scope="module")
def yard():
    model = load_model("yard")
    names = [
        model.geom(g).name
        for g in range(model.ngeom)
        if model.body_weldid[model.geom_bodyid[g]] == 0 and model.geom(g).name != "floor"
    ]
    footprints = obstacle_footprints(model)
    assert len(names) == len(footprints)
    return dict(zip(names, footprints, strict=True)), goals(model)


def to_segments(points, polygon):
    """Return the least distance of points (N, 2) to the edges of a polygon or of a segment."""
    a, b = polygon, np.roll(polygon, -1, axis=0)
    along = b - a
    t = ((points[:, None] - a) * along).sum(-1) / (along**2).sum(-1)
    nearest = a + np.clip(t, 0, 1)[..., None] * along
    return np.linalg.norm(points[:, None] - nearest, axis=-1).min()


def gap(a, b):
    """Return the distance of two convex polygons that do not overlap."""
    return min(to_segments(a, b), to_segments(b, a))


def test_everything_in_the_yard_stands_apart(yard):
    footprints, _ = yard
    for (name_a, a), (name_b, b) in itertools.combinations(footprints.items(), 2):
        joined = {name_a.split("_")[0], name_b.split("_")[0]}
        if joined in ({"wall"}, {"ramp"}):
            continue
        assert gap(a, b) >= 2 * CLEARANCE, (name_a, name_b)


def test_goals_and_start_are_free(yard):
    footprints, positions = yard
    for position in [np.zeros(2), *positions]:
        for name, footprint in footprints.items():
            assert to_segments(position[None], footprint) > 1.5, (position, name)


def test_goals_ask_for_a_long_drive_with_detours(yard):
    footprints, positions = yard
    way = np.vstack([[0.0, 0.0], positions])
    assert 45 <= np.linalg.norm(np.diff(way, axis=0), axis=1).sum() <= 60
    blocked = 0
    for start, end in itertools.pairwise(way):
        line = start + np.linspace(0, 1, 500)[:, None] * (end - start)
        # A robot of 0.35 m radius that kept to the line would hit something.
        blocked += any(to_segments(line, f) < 0.35 for f in footprints.values())
    assert blocked == 5
