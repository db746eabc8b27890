"""The demo's film, of a drive that is made up; without OpenGL, what is said instead."""

import sys

import numpy as np
import pytest

from geoaccel_ros.cli.demo.film import check_packages, write_film
from geoaccel_ros.cli.errors import UserError

imageio = pytest.importorskip("imageio.v2", reason="the extra [video] is not installed")


def straight(seconds):
    """Return stamps and poses of a robot in the yard that drives along x at 0.5 m/s."""
    stamps = np.arange(0.0, seconds, 0.02)
    poses = np.tile(np.eye(4), (len(stamps), 1, 1))
    poses[:, 0, 3] = 0.5 * stamps
    poses[:, 2, 3] = 0.1
    return stamps, poses


def like(picture, channel):
    """Return where a picture is mostly of one of red, green and blue."""
    picture = picture.astype(int)
    others = [picture[..., other] for other in range(3) if other != channel]
    return picture[..., channel] > np.maximum(*others) + 50


def test_a_film_shows_the_robot_from_behind_and_its_goal_coming_nearer(tmp_path):
    path = tmp_path / "demo.mp4"
    try:
        write_film(path, "yard", "base_link", *straight(4.0), np.array([[4.0, -0.5]]))
    except UserError as error:
        if "no OpenGL" not in str(error):
            raise
        pytest.skip(str(error))
    with imageio.get_reader(path) as film:
        # No list(film): its length, says imageio, is infinite.
        frames = [frame for frame in film.iter_data()]
        # Four times as fast, 20 frames a second.
        assert len(frames) == 20 and film.get_meta_data()["fps"] == 20
    # The chassis, blue, is in the middle of each; the ball at the goal, green, on its right.
    for frame in (frames[0], frames[-1]):
        rows, columns = np.nonzero(like(frame, 2))
        assert len(rows) > 200 and abs(np.median(columns) - 320) < 10 and np.median(rows) > 240
    balls = [np.nonzero(like(frame, 1)) for frame in (frames[0], frames[-1])]
    assert np.median(balls[0][1]) > 330
    assert np.median(balls[1][0]) > np.median(balls[0][0]) + 20
    assert len(balls[1][0]) > 1.2 * len(balls[0][0])


def test_without_opengl_the_remedy_is_named(tmp_path, monkeypatch):
    # MuJoCo's own word for no rendering at all.
    monkeypatch.setenv("MUJOCO_GL", "disable")
    path = tmp_path / "demo.mp4"
    with pytest.raises(UserError, match="no OpenGL without a screen .disable: .*apt install lib"):
        write_film(path, "yard", "base_link", *straight(1.0), np.empty((0, 2)))
    assert not path.exists()


def test_a_film_that_cannot_be_written(tmp_path):
    path = tmp_path / "absent" / "demo.mp4"
    with pytest.raises(UserError, match="cannot write|no OpenGL"):
        write_film(path, "yard", "base_link", *straight(1.0), np.empty((0, 2)))


def test_packages_that_are_missing_are_named_before_the_drive(monkeypatch):
    check_packages()
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(UserError, match="--video needs imageio-ffmpeg: pip install .*video"):
        check_packages()
