import dataclasses

import numpy as np
import pytest
from numba import cuda, types
from rollout_problems import SYSTEM, free_problem, problem

from geoaccel_ros.backend import BackendError
from geoaccel_ros.control import search_kernels as kernels
from geoaccel_ros.control.covariance import deviation
from geoaccel_ros.control.mppi import Mppi
from geoaccel_ros.control.mppi_config import MppiConfig
from geoaccel_ros.control.plan import weighted_mean
from geoaccel_ros.control.randomisation import parameter_sets, risk
from geoaccel_ros.control.rollouts import CpuRollouts
from geoaccel_ros.control.search import CpuSearch
from geoaccel_ros.control.systems import available, load_system
from geoaccel_ros.control.weights import elite_weights, importance_weights

needs_gpu = pytest.mark.skipif(not cuda.is_available(), reason="no CUDA device")
TRIED = SYSTEM.tried_controls(SYSTEM.parameters())

_f, _d, _i, _b, _u = types.float32, types.float64, types.int32, types.boolean, types.uint32
_SIGNATURES = {
    kernels.draw: (_u[::1], types.uint64, _f[::1]),
    kernels.mix: (
        *(_f[:, :, ::1], _f[:, ::1], _i[::1], _i[::1]),
        *(_f[:, ::1], _f[:, ::1], _f[:, ::1], _f[:, :, ::1]),
    ),
    kernels.combine: (_f[:, ::1], _b[:, ::1], _i, _d),
    kernels.weigh: (
        *(_f[::1], _b[::1], _d, _d, _d, _d),
        *(_f[::1], _d[::1], _i[::1], _d[::1], _u[::1]),
    ),
    kernels.weigh_elites: (_f[::1], _b[::1], _d, _d[::1], _i[::1], _d[::1], _u[::1]),
    kernels.average: (
        *(_f[:, ::1], _f[:, :, ::1], types.UniTuple(_f, 2), types.UniTuple(_f, 2)),
        *(_d[::1], _i[::1], _d[:, ::1], _d[:, ::1], _d[:, ::1]),
    ),
}


def _roll_out_ptx(name, lanes, compute_capability):
    system = load_system(name)
    limits = types.UniTuple(_f, len(system.control))
    arrays = _f[::1], _f[:, ::1], _f[:, :, ::1], _f[:, ::1], _f[:, ::1], _f[:, ::1]
    signature = (*arrays, limits, limits, _f, _f[:, ::1], _b[:, ::1])
    return cuda.compile_ptx(kernels.roll_out(system, lanes), signature, cc=compute_capability)[0]


@pytest.mark.parametrize("kernel", _SIGNATURES, ids=lambda kernel: kernel.__name__)
@pytest.mark.parametrize("compute_capability", [(7, 5), (8, 7), (9, 0), (12, 0)])
def test_compiles_without_a_gpu(kernel, compute_capability):
    ptx, _ = cuda.compile_ptx(kernel, _SIGNATURES[kernel], cc=compute_capability)
    assert f".target sm_{compute_capability[0]}{compute_capability[1]}" in ptx
    assert ".visible .entry" in ptx


@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("name", [name for name in available() if load_system(name).step])
def test_every_system_is_rolled_out_in_float32_and_in_registers(name, lanes):
    ptx = _roll_out_ptx(name, lanes, (8, 7))
    # Nothing is promoted to float64, where a GPU is slow: every constant of the model is float32.
    assert "cvt.f64.f32" not in ptx and "add.f64" not in ptx and "add.rn.f64" not in ptx
    assert ".local" not in ptx


def test_noise_is_drawn_in_registers():
    ptx, _ = cuda.compile_ptx(kernels.draw, _SIGNATURES[kernels.draw], cc=(9, 0))
    assert ".local" not in ptx


def _searched(config, posed):
    """Return a CUDA search, what it found, and its noise, costs, crashes and weights."""
    from geoaccel_ros.control.search_cuda import CudaSearch

    search = CudaSearch(config, SYSTEM, [posed.p], TRIED)
    found = search.search(posed)
    arrays = search._noise, search._costs, search._crashed, search._weights
    return search, found, *(array.copy_to_host() for array in arrays)


def _config(**values):
    return MppiConfig(**{"samples": 1000, "horizon": 40, "seed": 5, **values})


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize(
    "values",
    [
        {},
        {"ess_fraction": 0.3},
        {"temperature": 4.0},
        {"temperature_max": 0.01},
        {"temperature_min": 1e3},
        {"weighting": "cem"},
        {"weighting": "cem", "elite_fraction": 0.0001},
        {"samples": 16, "ess_fraction": 0.3},
        {"samples": 5003},
    ],
)
def test_weighs_and_averages_like_the_cpu(values):
    config = _config(**values)
    posed = problem(seed=3, yaw=0.4)
    _, found, noise, costs, crashed, weights = _searched(config, posed)
    costs, crashed = costs[0], crashed[0]
    if config.weighting == "cem":
        expected = elite_weights(costs, ~crashed, config.elite_fraction)
    else:
        bounds = config.temperature_min, config.temperature_max or np.inf
        expected = importance_weights(
            costs, ~crashed, config.ess_fraction, config.temperature, bounds
        )
    # The temperature is solved until the target is met to a thousandth, by both.
    np.testing.assert_allclose(weights, expected.values, rtol=5e-3, atol=1e-6)
    assert weights.sum() == pytest.approx(1.0, abs=1e-12)
    assert found.ess == pytest.approx(expected.ess, rel=3e-3)
    assert found.ess == pytest.approx(1.0 / np.sum(weights**2), rel=1e-9)
    assert found.temperature == pytest.approx(expected.temperature, rel=3e-3)
    assert found.log_eta == pytest.approx(expected.log_eta, abs=5e-3)
    assert found.at_bound == expected.at_bound
    assert found.counted == np.count_nonzero(weights)
    assert found.collided_fraction == pytest.approx(crashed.mean())
    lower, upper = np.array(posed.lower), np.array(posed.upper)
    mean = weighted_mean(posed.plan, noise, lower, upper, weights)
    np.testing.assert_allclose(found.mean, mean, atol=1e-12)
    k = int(np.argmin(np.where(crashed, np.inf, costs)))
    assert found.best_cost == costs[k]
    np.testing.assert_array_equal(
        found.best, np.clip(posed.plan + noise[:, :, k], lower, upper).astype(float)
    )
    assert found.mean_cost == pytest.approx(costs[weights > 0.0].mean(), rel=1e-5)


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize(
    "values",
    [
        {},
        {"noise": "white"},
        {"noise": "coloured"},
        {"noise_order": 3},
        {"noise_order": 0},
        {"antithetic": True, "samples": 1001},
        {"sigma": (0.0, 0.7)},
    ],
)
def test_noise_is_what_the_sampler_would_draw(values):
    config = _config(**{"samples": 4000, **values})
    posed = problem(seed=3, yaw=0.4)
    search, _, noise, *_ = _searched(config, posed)
    first = 1 + len(TRIED)
    assert not noise[:, :, 0].any()
    free = np.array(config.sigma) > 0.0
    for k, controls in enumerate(TRIED, start=1):
        np.testing.assert_array_equal(
            noise[:, :, k], np.where(free, controls - posed.plan, np.float32(0.0))
        )
    drawn = noise[:, :, first:]
    deviation = drawn.std(axis=2)
    sigma = np.broadcast_to(config.sigma, deviation.shape)
    # Of 4,000 numbers a deviation is known to 1.1 percent; of 80 such, the furthest to 5.
    np.testing.assert_allclose(deviation, sigma, rtol=0.05 if not config.antithetic else 0.12)
    np.testing.assert_array_less(np.abs(drawn.mean(axis=2)), 0.1 * sigma + 1e-9)
    correlation = np.corrcoef(drawn[:, 1])
    cpu = CpuSearch(config, CpuRollouts(SYSTEM, 1), TRIED)._sample(posed.plan, None)[:, 1, first:]
    np.testing.assert_allclose(
        correlation, np.corrcoef(cpu), atol=0.2 if config.antithetic else 0.1
    )
    if config.antithetic:
        half = (config.samples + 1) // 2
        np.testing.assert_array_equal(noise[:, :, half + first :], -noise[:, :, first : half - 1])
    # The next update's is other noise; begun again, it is the same.
    search.search(posed)
    assert (search._noise.copy_to_host()[:, 1, first:] != drawn[:, 1]).mean() > 0.99
    search.reset()
    search.search(posed)
    np.testing.assert_array_equal(search._noise.copy_to_host(), noise)


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize(
    ("measure", "share"), [("mean", 0.3), ("worst", 0.3), ("cvar", 0.3), ("cvar", 0.01)]
)
def test_costs_of_several_sets_become_one_as_on_the_cpu(measure, share):
    from geoaccel_ros.control.search_cuda import CudaSearch

    parameters = SYSTEM.parameters()
    sets = parameter_sets(SYSTEM, parameters, ("v_lag", "robot_radius"), (0.5, 0.2), 5, 1)
    sets = [SYSTEM.pack(p) for p in sets]
    config = _config(parameter_sets=5, risk=measure, risk_share=share)
    posed = problem(seed=3, yaw=0.4)
    search = CudaSearch(config, SYSTEM, sets, TRIED)
    search.search(posed)
    found, crashed = search._costs.copy_to_host()[0], search._crashed.copy_to_host()[0]
    noise = search._noise.copy_to_host()
    each, each_crashed = np.empty((5, 1000), np.float32), np.empty((5, 1000), bool)
    for p, *of_set in zip(sets, each, each_crashed, strict=True):
        CpuRollouts(SYSTEM, 1).run(dataclasses.replace(posed, p=p, noise=noise), *of_set)
    expected, expected_crashed = risk(each, each_crashed, measure, share)
    same = crashed == expected_crashed
    assert same.mean() > 0.99
    np.testing.assert_allclose(found[same], expected[same], rtol=1e-4, atol=1e-3)


@pytest.mark.gpu
@needs_gpu
def test_sigma_of_each_instant_is_drawn_with_and_the_deviation_found():
    from geoaccel_ros.control.search_cuda import CudaSearch

    config = _config(samples=4000)
    posed = problem(seed=3, yaw=0.4)
    search = CudaSearch(config, SYSTEM, [posed.p], TRIED)
    assert search.search(posed).deviation is None
    sigma = np.linspace((0.05, 0.0), (0.4, 0.9), config.horizon)
    found = search.search(posed, sigma)
    noise, weights = search._noise.copy_to_host(), search._weights.copy_to_host()
    drawn = noise[:, :, 1 + len(TRIED) :].std(axis=2)
    np.testing.assert_allclose(drawn, sigma, rtol=0.06)
    lower, upper = np.array(posed.lower), np.array(posed.upper)
    expected = deviation(posed.plan, noise, lower, upper, weights)
    np.testing.assert_allclose(found.deviation, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.gpu
@needs_gpu
def test_a_grid_of_another_size_is_looked_at():
    config = _config()
    first, second = problem(seed=3, yaw=0.4), problem(seed=4, yaw=0.4)
    field = dataclasses.replace(
        second.field, distances=np.ascontiguousarray(second.field.distances[:70, :80])
    )
    detour = dataclasses.replace(
        second.detour, distances=np.ascontiguousarray(second.detour.distances[:70, :80])
    )
    second = dataclasses.replace(second, field=field, detour=detour)
    search, *_ = _searched(config, first)
    for posed in (second, first, problem(seed=6, yaw=-2.0)):
        search.check(posed, CpuRollouts(SYSTEM, 1))


@pytest.mark.gpu
@needs_gpu
def test_nothing_usable_is_said_and_forgotten():
    config = _config()
    posed = problem(seed=3, yaw=0.4)
    search, *_ = _searched(config, posed)
    walled = dataclasses.replace(posed, clearance_limit=np.float32(1000.0))
    found = search.search(walled)
    assert found.counted == 0 and found.collided_fraction == 1.0
    assert found.not_finite_fraction == 0.0 and search.first_not_finite() is None
    overflowing = dataclasses.replace(posed, start=(*posed.start[:4], np.float32(np.nan)))
    found = search.search(overflowing)
    assert found.counted == 0 and found.not_finite_fraction == 1.0
    assert search.first_not_finite()[1] == 0
    assert search.search(posed).counted > 0


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("name", [name for name in available() if load_system(name).step])
def test_rollouts_cost_what_they_cost_on_the_cpu(name):
    from geoaccel_ros.control.search_cuda import CudaSearch

    system = load_system(name)
    posed = problem(seed=5, yaw=3.1) if system.is_planar else free_problem(name, seed=1)
    sigma = tuple(0.2 * (np.array(posed.upper) - np.array(posed.lower)))
    config = MppiConfig(samples=512, horizon=len(posed.plan), sigma=sigma)
    tried = system.tried_controls(system.parameters())
    CudaSearch(config, system, [posed.p], tried).check(posed, CpuRollouts(system, 1))


@pytest.mark.gpu
@needs_gpu
def test_cuda_drives_like_the_cpu():
    """The cost of what is driven is the same but for what another seed changes."""

    def driven(backend, seed):
        mppi = Mppi(MppiConfig(backend=backend, samples=512, seed=seed))
        assert mppi.backend == backend
        state = np.array([0.0, 0.0, 3.1, 0.0, 0.0])
        cost, sent = 0.0, []
        for i in range(60):
            update = mppi.update(state, np.array([-4.0, 1.0]), 0.05 * i)
            sent.append((0.05 * i, update.command))
            state = mppi.predict(state, 0.05 * i, sent[-1:], 0.05 * i)
            cost += 0.05 * np.hypot(state[0] + 4.0, state[1] - 1.0)
        return cost

    cpu = np.array([driven("cpu", seed) for seed in range(6)])
    gpu = np.array([driven("cuda", seed) for seed in range(6)])
    assert abs(cpu.mean() - gpu.mean()) < 3.0 * np.hypot(cpu.std(), gpu.std()) / np.sqrt(5) + 0.01


@pytest.mark.gpu
@needs_gpu
def test_a_kernel_that_computes_otherwise_is_refused(monkeypatch):
    run = CpuRollouts.run

    def wrong(self, posed, costs, crashed):
        run(self, posed, costs, crashed)
        costs *= 1.01

    monkeypatch.setattr(CpuRollouts, "run", wrong)
    with pytest.raises(BackendError, match="differ"):
        Mppi(MppiConfig(backend="cuda", samples=64))
