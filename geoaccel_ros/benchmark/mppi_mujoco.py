"""Our rollouts in MuJoCo beside its own: what the costs and the controls take of its throughput."""

import time

import mujoco
import numpy as np
from mujoco.rollout import Rollout

from geoaccel_ros.benchmark.mppi_problems import CARTPOLE, bare_problem
from geoaccel_ros.control.rollouts_mujoco import MujocoRollouts
from geoaccel_ros.control.samplers import Sampler

# Enough that what does not grow with them does not count.
_SAMPLES = 512


def relative_throughput(threads: int, repetitions: int) -> float:
    """Return ours over bare ``mujoco.rollout``'s, the cartpole's: median of rounds in turns.

    Both start from the same state with the same controls and record the same states. Ours also
    makes the controls of plan and noise and adds up the costs.
    """
    system = CARTPOLE.loaded()
    parameters = system.parameters()
    samples, horizon, dt = _SAMPLES, CARTPOLE.horizon, CARTPOLE.dt
    noise = Sampler(samples, np.eye(horizon), CARTPOLE.sigma, 0).sample()
    problem = bare_problem(CARTPOLE, noise)
    ours = MujocoRollouts(system, parameters, samples, horizon, dt, threads)
    costs, crashed = np.empty(samples, np.float32), np.empty(samples, bool)

    model = system.mujoco_model(parameters)
    model.opt.timestep = dt / ours.substeps
    model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_AUTORESET
    pool = Rollout(nthread=threads if threads > 1 else 0)
    data = [mujoco.MjData(model) for _ in range(threads)]
    start = np.concatenate(([0.0], CARTPOLE.start))
    starts = np.tile(start, (samples, 1))
    controls = np.repeat(noise.transpose(2, 0, 1), ours.substeps, axis=1).astype(float)
    steps = controls.shape[1]
    states = np.empty((samples, steps, len(start)))
    sensors = np.empty((samples, steps, model.nsensordata))

    def bare() -> None:
        pool.rollout(
            [model] * samples,
            data,
            starts,
            controls,
            skip_checks=True,
            nstep=steps,
            state=states,
            sensordata=sensors,
        )

    ratios = []
    for round_ in range(repetitions + 1):
        begin = time.perf_counter()
        ours.run(problem, costs, crashed)
        middle = time.perf_counter()
        bare()
        end = time.perf_counter()
        if round_:
            ratios.append((end - middle) / (middle - begin))
    return float(np.median(ratios))
