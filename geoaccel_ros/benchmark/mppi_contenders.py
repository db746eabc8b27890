"""Other MPPI controllers: a state in, a command out, of the same problems."""

from collections.abc import Callable

import numpy as np

from geoaccel_ros.benchmark.mppi_models import MODELS
from geoaccel_ros.benchmark.mppi_problems import Problem
from geoaccel_ros.benchmark.peers import Peer


class TextbookMppi:
    """The paper's algorithm, line by line, in NumPy: float32 arrays of all samples.

    Williams et al. 2018, "Information-theoretic model predictive control: theory and applications
    to autonomous driving", algorithm 2; samples are held to the limits before they are rolled out.
    """

    def __init__(self, problem: Problem, seed: int = 0):
        system = problem.loaded()
        self._problem = problem
        self._model = MODELS[problem.system](problem, np, lambda v: np.array(v, np.float32))
        self._limits = [np.float32(limit) for limit in system.limits(system.parameters())]
        self._sigma = np.array(problem.sigma, np.float32)
        self._before = np.array(problem.before, np.float32)
        self._plan = np.tile(self._before, (problem.horizon, 1))
        self._generator = np.random.default_rng(seed)

    def command(self, state: np.ndarray) -> np.ndarray:
        """Return the command (U,) of a state (X,), and keep the rest of the plan."""
        shape = self._problem.samples, *self._plan.shape
        noise = self._generator.standard_normal(shape, np.float32) * self._sigma
        controls = np.clip(self._plan + noise, *self._limits)
        noise = controls - self._plan
        costs = self.costs(state, controls)
        costs += self._problem.temperature * np.einsum(
            "tu,ktu->k", self._plan / self._sigma**2, noise
        )
        weights = np.exp((costs.min() - costs) / self._problem.temperature)
        weights /= weights.sum()
        self._plan += np.einsum("k,ktu->tu", weights, noise)
        self._before = self._plan[0].copy()
        self._plan = np.concatenate((self._plan[1:], self._plan[-1:]))
        return self._before

    def costs(self, state: np.ndarray, controls: np.ndarray) -> np.ndarray:
        """Return the costs (K,) of ``controls`` (K, T, U) from a state (X,) on."""
        model, dt = self._model, np.float32(self._problem.dt)
        x = np.tile(np.asarray(state, np.float32), (len(controls), 1))
        costs = np.zeros(len(controls), np.float32)
        before = self._before
        for t in range(controls.shape[1]):
            u = controls[:, t]
            x = model.step(x, u)
            costs += dt * model.running(x, u, before)
            before = u
        return costs + model.terminal(x)


def textbook(problem: Problem, device: str, threads: int) -> Callable[[np.ndarray], np.ndarray]:
    """Return NumPy's commands: always on one thread of the CPU."""
    return TextbookMppi(problem).command


def pytorch_mppi(problem: Problem, device: str, threads: int) -> Callable[[np.ndarray], np.ndarray]:
    """Return pytorch_mppi's commands on a device of PyTorch, float32, without gradients.

    The terminal cost is added to the last running one: given by itself, the package would keep all
    states for it.
    """
    import torch
    from pytorch_mppi import MPPI

    torch.set_num_threads(threads)

    def array(values):
        return torch.tensor(values, dtype=torch.float32, device=device)

    system = problem.loaded()
    model = MODELS[problem.system](problem, torch, array)
    last, dt = problem.horizon - 1, problem.dt
    before = array(problem.before)

    def running(x, u, t):
        nonlocal before
        cost = dt * model.running(x, u, before)
        before = u
        return cost + model.terminal(x) if t == last else cost

    lower, upper = (array(limit) for limit in system.limits(system.parameters()))
    plan = array(problem.before).repeat(problem.horizon, 1)
    controller = MPPI(
        lambda x, u, t: model.step(x, u),
        running,
        len(system.state),
        torch.diag(array(problem.sigma) ** 2),
        num_samples=problem.samples,
        horizon=problem.horizon,
        device=device,
        lambda_=problem.temperature,
        u_min=lower,
        u_max=upper,
        u_init=array(problem.before),
        U_init=plan,
        step_dependent_dynamics=True,
    )
    in_force = before

    def command(state: np.ndarray) -> np.ndarray:
        nonlocal before, in_force
        before = in_force
        with torch.inference_mode():
            in_force = controller.command(state)
            return in_force.cpu().numpy()

    return command


PEERS = (
    Peer("pytorch_mppi", "pytorch-mppi", "pytorch_mppi", pytorch_mppi),
    Peer("NumPy, the paper", "numpy", "numpy", textbook),
)
