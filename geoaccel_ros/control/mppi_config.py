"""Parameters of MPPI's sampling."""

from dataclasses import dataclass

import numpy as np

from geoaccel_ros.config import Configuration, ConfigurationError, parameter
from geoaccel_ros.control.systems import System


@dataclass(frozen=True)
class MppiConfig(Configuration):
    """The sampling; the robot and its costs are the system's own parameters."""

    samples: int = parameter(1024, "Rollouts in an update.", minimum=16, maximum=1 << 20)
    horizon: int = parameter(50, "Steps of a rollout.", minimum=2, maximum=1000)
    dt: float = parameter(0.1, "Step of a rollout.", unit="s", minimum=0.001, maximum=1.0)
    sigma: tuple[float, ...] = parameter(
        (0.3, 0.7),
        "Standard deviation of the noise on each control, in its unit; 0 freezes that control.",
        minimum=0.0,
    )
    noise: str = parameter(
        "knots",
        "Noise is drawn at knots and interpolated; or white, each step its own; or coloured.",
        choices=("knots", "white", "coloured"),
    )
    noise_knots: int = parameter(8, "Knots of the horizon.", minimum=2)
    noise_order: int = parameter(
        1, "Between knots: 0 holds, 1 mixes two, 3 is a cubic spline.", minimum=0, maximum=3
    )
    noise_exponent: float = parameter(
        1.0,
        "Power of coloured noise falls with the frequency to this power.",
        minimum=0.0,
        maximum=3.0,
    )
    antithetic: bool = parameter(False, "Half of the samples are the negatives of the others.")
    weighting: str = parameter(
        "mppi",
        "Weights fall exponentially with the cost, or are equal for the elites (CEM).",
        choices=("mppi", "cem"),
    )
    ess_fraction: float = parameter(
        0.03,
        "Share of the samples that should count in the average; the temperature follows from it.",
        minimum=0.0001,
        maximum=1.0,
    )
    temperature: float = parameter(
        0.0, "Temperature of the weights, in the unit of the costs; 0 solves for it.", minimum=0.0
    )
    temperature_min: float = parameter(0.0, "Smallest temperature that is solved for.", minimum=0.0)
    temperature_max: float = parameter(
        0.0, "Largest temperature that is solved for; 0: any.", minimum=0.0
    )
    elite_fraction: float = parameter(
        0.03,
        "Share of the samples that are elites of the cross-entropy method.",
        minimum=0.0001,
        maximum=1.0,
    )
    smoothing_window: int = parameter(
        0, "The plan is smoothed over so many of its steps, an odd number; 0: not.", minimum=0
    )
    smoothing_order: int = parameter(
        2, "Order of the polynomials that smooth it.", minimum=0, maximum=9
    )
    sigma_adaptation: float = parameter(
        0.0,
        "Share that the good samples' own deviation has in the next update's sigma; 0: sigma stays "
        "what it is.",
        minimum=0.0,
        maximum=1.0,
    )
    sigma_floor: float = parameter(
        0.1, "Smallest adapted sigma, as a share of sigma.", minimum=0.0, maximum=1.0
    )
    parameter_sets: int = parameter(
        1,
        "Sets of the robot's parameters that each sample is rolled out with; the first is its own.",
        minimum=1,
        maximum=64,
    )
    randomised: tuple[str, ...] = parameter(
        (), "Names of the robot's parameters that the other sets vary."
    )
    randomised_by: tuple[float, ...] = parameter(
        (), "By how much of its value, up and down, each of them varies.", minimum=0.0, maximum=0.99
    )
    risk: str = parameter(
        "mean",
        "What a sample costs: the mean over the sets, the worst, or the mean of the worst (CVaR).",
        choices=("mean", "worst", "cvar"),
    )
    risk_share: float = parameter(
        0.25, "Share of the sets that are the worst, for cvar.", minimum=0.01, maximum=1.0
    )
    evidence_memory: float = parameter(
        0.0,
        "Sets count by how well they predicted what was measured for about so long; 0: equally.",
        unit="s",
        minimum=0.0,
        maximum=100.0,
    )
    plan_hold: float = parameter(
        0.2,
        "Where no rollout has a finite cost, or updates are late, the last plan is followed for so "
        "long; then the safe command.",
        unit="s",
        minimum=0.0,
        maximum=10.0,
    )
    rate_limits: tuple[float, ...] = parameter(
        (), "Largest change of each control a second; 0, or none given: any.", minimum=0.0
    )
    command_delay: float = parameter(
        0.05,
        "Time from sending a command until the robot acts on it.",
        unit="s",
        minimum=0.0,
        maximum=1.0,
    )
    seed: int = parameter(0, "Seed of the noise; the same one gives the same commands.", minimum=0)
    threads: int = parameter(1, "CPU threads of the rollouts.", minimum=1, maximum=1024)
    backend: str = parameter("auto", "Where rollouts run.", choices=("auto", "cpu", "cuda"))
    rollouts: str = parameter(
        "model",
        "Rolled out by the system's own step; by MuJoCo, as is a system without one; or by the "
        "step, and the best of them by MuJoCo again, whose costs count.",
        choices=("model", "mujoco", "hybrid"),
    )
    mujoco_timestep: float = parameter(
        0.0,
        "MuJoCo's step in rollouts, shortened so that dt is a multiple of it; 0: its model's.",
        unit="s",
        minimum=0.0,
        maximum=1.0,
    )
    hybrid_share: float = parameter(
        0.1,
        "Share of the samples that MuJoCo rolls out again.",
        minimum=0.0001,
        maximum=1.0,
    )

    @classmethod
    def for_system(cls, system: System, **values) -> "MppiConfig":
        """Return the sampling that suits a robot, its module's SAMPLING, but for ``values``."""
        return cls.from_mapping({**system.sampling, **values})

    def rolled_out_by(self, system: System) -> str:
        """Return which of the choices of ``rollouts`` it is for a system."""
        return "mujoco" if self.rollouts == "model" and system.step is None else self.rollouts

    def check(self, system: System) -> None:
        """Raise ConfigurationError if parameters do not fit the robot or each other."""
        controls = system.control
        self._check_rollouts(system)
        if len(self.sigma) != len(controls):
            raise ConfigurationError(
                f"parameter 'sigma' has {len(self.sigma)} values, must have one for each of "
                + ", ".join(controls)
            )
        if self.noise_order == 2:
            raise ConfigurationError("parameter 'noise_order' is 2, must be 0, 1 or 3")
        if 0.0 < self.temperature_max < self.temperature_min:
            raise ConfigurationError(
                f"parameter 'temperature_min' is {self.temperature_min:g}, must be at most "
                f"temperature_max, {self.temperature_max:g}"
            )
        self._check_smoothing(controls)
        self._check_sets()

    def warning(self, system: System, lower: np.ndarray, upper: np.ndarray) -> str:
        """Return which sigma is above a quarter of its control's range, (U,) each; empty if none.

        Most samples then lie at the limits: the plan jitters, and little between them is tried.
        """
        quarters = 0.25 * (np.asarray(upper) - np.asarray(lower))
        large = [
            f"{name}: {sigma:g}, above {quarter:g}"
            for name, sigma, quarter in zip(system.control, self.sigma, quarters, strict=True)
            if sigma > quarter
        ]
        return f"sigma is more than a quarter of the range of {'; '.join(large)}" if large else ""

    def _check_sets(self) -> None:
        names = self.randomised
        if len(names) != len(self.randomised_by) or len(set(names)) != len(names):
            raise ConfigurationError(
                f"parameter 'randomised_by' has {len(self.randomised_by)} values, must have one "
                f"for each of the {len(names)} names in randomised, each named once"
            )
        if self.evidence_memory and self.parameter_sets == 1:
            raise ConfigurationError(
                f"parameter 'evidence_memory' is {self.evidence_memory:g} and parameter_sets 1: "
                "must be 0, or there must be sets to choose from"
            )
        if (self.parameter_sets > 1) != bool(names):
            raise ConfigurationError(
                f"parameter 'parameter_sets' is {self.parameter_sets} and 'randomised' names "
                f"{len(names)}: several sets need parameters that vary, and these several sets"
            )

    def _check_rollouts(self, system: System) -> None:
        kind = self.rolled_out_by(system)
        if kind != "model" and system.model is None:
            raise ConfigurationError(
                f"parameter 'rollouts' is {kind}, system '{system.name}' has no MuJoCo model: it "
                "defines no MODEL"
            )
        if kind == "hybrid" and system.step is None:
            raise ConfigurationError(
                f"parameter 'rollouts' is hybrid, system '{system.name}' has no step that could "
                "screen samples: must be mujoco"
            )
        if kind == "mujoco" and self.backend == "cuda":
            raise ConfigurationError(
                f"parameter 'backend' is cuda, MuJoCo rolls system '{system.name}' out on the CPU: "
                "must be auto or cpu"
            )

    def _check_smoothing(self, controls: tuple[str, ...]) -> None:
        window, order = self.smoothing_window, self.smoothing_order
        if window and not window % 2:
            raise ConfigurationError(f"parameter 'smoothing_window' is {window}, must be odd, or 0")
        if window // 2 >= self.horizon:
            raise ConfigurationError(
                f"parameter 'smoothing_window' is {window}, must be less than twice the horizon, "
                f"{self.horizon}"
            )
        if window and order >= window:
            raise ConfigurationError(
                f"parameter 'smoothing_order' is {order}, must be less than smoothing_window, "
                f"{window}"
            )
        if len(self.rate_limits) not in (0, len(controls)):
            raise ConfigurationError(
                f"parameter 'rate_limits' has {len(self.rate_limits)} values, must have one for "
                f"each of {', '.join(controls)}, or none"
            )
