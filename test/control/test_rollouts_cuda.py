import re

import numpy as np
import pytest
from numba import cuda
from rollout_problems import SYSTEM, free_problem, problem, reference

from geoaccel_ros.backend import BackendError
from geoaccel_ros.control.mppi import Mppi
from geoaccel_ros.control.mppi_config import MppiConfig
from geoaccel_ros.control.rollouts import CpuRollouts
from geoaccel_ros.control.rollouts_cuda import CudaRollouts, compile_to_ptx
from geoaccel_ros.control.systems import available, load_system

needs_gpu = pytest.mark.skipif(not cuda.is_available(), reason="no CUDA device")


@pytest.mark.parametrize(
    "compute_capability", [(7, 5), (8, 0), (8, 7), (8, 9), (9, 0), (10, 0), (12, 0)]
)
def test_compiles_without_a_gpu(compute_capability):
    ptx = compile_to_ptx(SYSTEM, compute_capability)
    assert f".target sm_{compute_capability[0]}{compute_capability[1]}" in ptx
    assert ".visible .entry" in ptx


@pytest.mark.parametrize("name", [name for name in available() if load_system(name).step])
def test_every_system_is_compiled_in_float32_alone(name):
    ptx = compile_to_ptx(load_system(name), (8, 7))
    # Nothing is promoted to float64, where a GPU is slow: every constant of the model is float32.
    assert "cvt.f64.f32" not in ptx and "add.f64" not in ptx and "add.rn.f64" not in ptx


@pytest.mark.parametrize("name", [name for name in available() if load_system(name).step])
def test_nothing_but_the_arguments_of_sines_is_in_local_memory(name):
    # States and terms of the cost are tuples; indexed in a loop they would lie in memory. libdevice
    # reduces the arguments of sines and cosines that are far from zero in an array of 28 bytes.
    ptx = compile_to_ptx(load_system(name), (9, 0))
    depots = [int(size) for size in re.findall(r"__local_depot\d*\[(\d+)\]", ptx)]
    assert depots in ([], [28])


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("yaw", np.radians([-180.0, -90.0, -0.1, 33.0, 179.9, 180.0]))
def test_cuda_equals_cpu_and_the_reference(yaw):
    posed = problem(seed=5, yaw=yaw)
    horizon, _, samples = posed.noise.shape
    cpu = CpuRollouts(SYSTEM, 1)
    rollouts = CudaRollouts(SYSTEM, samples, horizon, cpu)
    costs, expected = np.empty(samples, np.float32), np.empty(samples, np.float32)
    crashed, expected_crashed = np.empty(samples, bool), np.empty(samples, bool)
    rollouts.run(posed, costs, crashed)
    cpu.run(posed, expected, expected_crashed)
    _, exact, _, closest = reference(posed)
    clear_cut = np.abs(closest - posed.clearance_limit) > 1e-4
    np.testing.assert_array_equal(crashed[clear_cut], expected_crashed[clear_cut])
    free = clear_cut & ~crashed
    np.testing.assert_allclose(costs[free], expected[free], rtol=2e-5, atol=2e-4)
    np.testing.assert_allclose(costs[free], exact[free], rtol=2e-5, atol=2e-4)


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("name", ["cartpole", "quadrotor"])
@pytest.mark.parametrize(("horizon", "tolerance"), [(1, 1e-5), (40, 1e-4)])
def test_cuda_equals_cpu_for_systems_without_obstacles(name, horizon, tolerance):
    system = load_system(name)
    posed = free_problem(name, seed=1, horizon=horizon)
    samples = posed.noise.shape[2]
    cpu = CpuRollouts(system, 1)
    costs, expected = np.empty(samples, np.float32), np.empty(samples, np.float32)
    crashed, expected_crashed = np.empty(samples, bool), np.empty(samples, bool)
    CudaRollouts(system, samples, horizon, cpu).run(posed, costs, crashed)
    cpu.run(posed, expected, expected_crashed)
    assert not crashed.any() and not expected_crashed.any()
    np.testing.assert_allclose(costs, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.gpu
@needs_gpu
def test_cuda_drives_like_the_cpu():
    commands = {}
    for backend in ("cpu", "cuda"):
        mppi = Mppi(MppiConfig(backend=backend, samples=512))
        assert mppi.backend == backend
        state = np.array([0.0, 0.0, 3.1, 0.0, 0.0])
        sent = []
        for i in range(60):
            update = mppi.update(state, np.array([-4.0, 1.0]), 0.05 * i)
            sent.append((0.05 * i, update.command))
            state = mppi.predict(state, 0.05 * i, sent[-1:], 0.05 * i)
        commands[backend] = np.array([u for _, u in sent]), state
    # Rounding differs, so the trajectories part slowly; the noise is the same.
    np.testing.assert_allclose(commands["cpu"][0][0], commands["cuda"][0][0], atol=1e-3)
    np.testing.assert_allclose(commands["cpu"][1], commands["cuda"][1], atol=0.1)


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize(
    "system, rollouts", [("diff_drive", "model"), ("cartpole", "model"), ("cartpole", "hybrid")]
)
def test_a_kernel_that_computes_otherwise_is_refused(monkeypatch, system, rollouts):
    run = CpuRollouts.run

    def wrong(self, posed, costs, crashed):
        run(self, posed, costs, crashed)
        costs *= 1.01

    # The kernel is right; who compares must see that the two differ.
    monkeypatch.setattr(CpuRollouts, "run", wrong)
    sigma = (1.0,) * len(load_system(system).control)
    config = MppiConfig(backend="cuda", samples=64, rollouts=rollouts, sigma=sigma)
    with pytest.raises(BackendError, match="differ"):
        Mppi(config, system)
