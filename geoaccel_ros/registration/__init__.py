"""Registration of point clouds."""

from geoaccel_ros.registration.icp import RegistrationConfig, Target, register
from geoaccel_ros.registration.result import Registration, RegistrationWarning

__all__ = ["Registration", "RegistrationConfig", "RegistrationWarning", "Target", "register"]
