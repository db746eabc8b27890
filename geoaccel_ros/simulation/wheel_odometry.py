"""Dead reckoning of a differential drive by the angles that its wheels are measured to have."""

import math

import numpy as np

# Below this turn an arc is a chord in double precision, and its radius a division by nothing.
_STRAIGHT = 1e-9  # rad


class WheelOdometer:
    """Integrates wheel angles to a pose, as ros2_control's diff_drive_controller does.

    Between two measurements each wheel is taken to roll at constant speed, so that the pose moves
    on an arc, exactly. It knows nothing of slip: its pose drifts as that of a real robot does.

    Parameters
    ----------
    radius, separation : float
        Of both wheels, and between them; m.

    Attributes
    ----------
    x, y, yaw : float
        Of the point midway between the wheels, m and rad, in the frame where it was last reset.
    """

    def __init__(self, radius: float, separation: float):
        self._radius = radius
        self._separation = separation
        self.reset(0.0, 0.0)

    def reset(self, left: float, right: float) -> None:
        """Begin at the origin, at these angles of the wheels, rad."""
        self.x = self.y = self.yaw = 0.0
        self._left, self._right = left, right

    def update(self, left: float, right: float) -> None:
        """Go on to these angles of the wheels, rad."""
        distance, turn = self.forward_and_turn(left - self._left, right - self._right)
        self._left, self._right = left, right
        before, self.yaw = self.yaw, self.yaw + turn
        if abs(turn) < _STRAIGHT:
            self.x += distance * math.cos(before)
            self.y += distance * math.sin(before)
        else:
            radius = distance / turn
            self.x += radius * (math.sin(self.yaw) - math.sin(before))
            self.y -= radius * (math.cos(self.yaw) - math.cos(before))

    def forward_and_turn(self, left: float, right: float) -> tuple[float, float]:
        """Return the way forward (m) and the turn (rad) of wheels that turn by so much (rad).

        Of their speeds, in rad/s, likewise the robot's, in m/s and rad/s.
        """
        left, right = left * self._radius, right * self._radius
        return (left + right) / 2, (right - left) / self._separation

    @property
    def pose(self) -> np.ndarray:
        """The pose as (4, 4) float64."""
        T = np.eye(4)
        cos, sin = math.cos(self.yaw), math.sin(self.yaw)
        T[:2, :2] = [[cos, -sin], [sin, cos]]
        T[:2, 3] = self.x, self.y
        return T
