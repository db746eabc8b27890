import dataclasses
import sys

import numba
import numpy as np
import pytest

from geoaccel_ros.backend import BackendError
from geoaccel_ros.config import ConfigurationError
from geoaccel_ros.control import mppi as mppi_module
from geoaccel_ros.control.distance_field import DistanceField, distances_to
from geoaccel_ros.control.mppi import Mppi
from geoaccel_ros.control.mppi_config import MppiConfig
from geoaccel_ros.control.systems import load_system
from geoaccel_ros.control.systems.diff_drive import Parameters

CONFIG = MppiConfig(backend="cpu", samples=256, horizon=30)
AT_REST = np.zeros(5)
GOAL = np.array([4.0, 1.0])
# Sets of parameters.
VARIED = {"parameter_sets": 4, "randomised": ("v_lag", "w_lag"), "randomised_by": (0.9, 0.9)}


def _field(occupied, resolution=0.1):
    rows, columns = occupied.shape
    origin = -0.5 * resolution * np.array([columns - 1, rows - 1])
    return DistanceField(distances_to(occupied, resolution), origin, resolution, 0.0)


def _ring(radius):
    """A closed round wall of that inner radius around the origin."""
    y, x = 0.1 * (np.indices((101, 101)) - 50)
    return _field(np.hypot(x, y) >= radius)


def _drive(mppi, updates, state=AT_REST, goal=GOAL, period=0.05):
    """Drive the model itself; return the updates and the last state."""
    found = []
    for i in range(updates):
        found.append(mppi.update(state, goal, period * i))
        state = mppi.predict(state, period * i, [(period * i - 1.0, found[-1].command)], period * i)
    return found, state


def test_an_update_says_all_that_it_promises():
    mppi = Mppi(CONFIG)
    state = np.array([10.0, -20.0, 3.0, 0.5, 0.1])
    update = mppi.update(state, np.array([14.0, -21.0]), 7.0)
    assert update.ok and update.reason == ""
    assert update.command.shape == (2,) and update.command.dtype == np.float64
    assert update.controls.shape == (30, 2) and update.plan.shape == (31, 5)
    np.testing.assert_allclose(update.plan[0], state, atol=1e-5)
    np.testing.assert_array_equal(update.command, update.controls[0])
    assert update.ess == pytest.approx(0.03 * 256, rel=0.01)
    assert update.temperature > 0.0 and update.collided_fraction == 0.0
    assert update.min_cost < update.mean_cost


def test_the_plan_is_what_the_model_makes_of_its_controls():
    mppi = Mppi(CONFIG)
    update = _drive(mppi, 5)[0][-1]
    p = mppi.system.pack(Parameters(), np.float64)
    x = tuple(np.float64(value) for value in update.plan[0])
    for control, expected in zip(update.controls, update.plan[1:], strict=True):
        x = mppi.system.step(x, tuple(control), p, CONFIG.dt)
        np.testing.assert_allclose(x, expected, atol=1e-4)


def test_commands_and_plans_stay_within_the_limits():
    mppi = Mppi(dataclasses.replace(CONFIG, sigma=(5.0, 5.0)))
    for update in _drive(mppi, 20, goal=np.array([-9.0, 0.5]))[0]:
        assert (update.controls >= mppi.limits[0]).all()
        assert (update.controls <= mppi.limits[1]).all()
    np.testing.assert_array_equal(mppi.limits[0], [-0.3, -1.5])


def test_the_same_seed_gives_the_same_bits():
    def commands(mppi):
        return np.array([update.command for update in _drive(mppi, 10)[0]])

    mppi = Mppi(CONFIG)
    first = commands(mppi)
    np.testing.assert_array_equal(first, commands(Mppi(CONFIG)))
    np.testing.assert_array_equal(first, commands(Mppi(dataclasses.replace(CONFIG, threads=3))))
    assert (first != commands(Mppi(dataclasses.replace(CONFIG, seed=1)))).any()
    mppi.reset()
    np.testing.assert_array_equal(first, commands(mppi))


def test_controllers_share_no_state():
    alone, _ = _drive(Mppi(CONFIG), 6)
    one, other = Mppi(CONFIG), Mppi(CONFIG)
    state = AT_REST
    for i, expected in enumerate(alone):
        other.update(np.array([1.0, 1.0, 2.0, 0.0, 0.0]), -GOAL, 3.0 * i)
        update = one.update(state, GOAL, 0.05 * i)
        np.testing.assert_array_equal(update.command, expected.command)
        state = one.predict(state, 0.05 * i, [(0.05 * i - 1.0, update.command)], 0.05 * i)


def test_sigma_zero_freezes_an_axis():
    mppi = Mppi(dataclasses.replace(CONFIG, sigma=(0.3, 0.0)))
    updates, state = _drive(mppi, 40, goal=np.array([3.0, 0.0]))
    controls = np.array([update.controls for update in updates])
    assert (controls[..., 1] == 0.0).all() and np.isfinite(controls).all()
    assert state[0] > 1.0
    still = Mppi(dataclasses.replace(CONFIG, sigma=(0.0, 0.0)))
    update = still.update(AT_REST, GOAL, 0.0)
    assert update.ok and (update.controls == 0.0).all()


@pytest.mark.parametrize(
    ("state", "goal", "reason"),
    [
        (np.array([0.0, np.nan, 0.0, 0.0, 0.0]), GOAL, "state"),
        (np.array([0.0, 0.0, np.inf, 0.0, 0.0]), GOAL, "state"),
        (np.zeros(4), GOAL, "state"),
        (AT_REST, np.array([1.0, np.nan]), "goal"),
        (AT_REST, np.array([1.0]), "goal"),
    ],
)
def test_what_is_not_finite_stops_the_robot_and_is_not_remembered(state, goal, reason):
    mppi = Mppi(CONFIG)
    _drive(mppi, 3)
    update = mppi.update(state, goal, 0.2)
    assert not update.ok and reason in update.reason
    np.testing.assert_array_equal(update.command, [0.0, 0.0])
    assert update.plan.shape == (0, 5) and (update.controls == 0.0).all()
    assert len(mppi.rollouts(5)[0]) == 0
    after = mppi.update(AT_REST, GOAL, 0.25)
    assert after.ok and np.isfinite(after.controls).all()


def test_further_components_of_a_goal_are_ignored():
    first = Mppi(CONFIG).update(AT_REST, GOAL, 0.0)
    second = Mppi(CONFIG).update(AT_REST, np.array([*GOAL, np.nan]), 0.0)
    np.testing.assert_array_equal(first.controls, second.controls)


def test_costs_that_are_all_equal_weigh_the_same():
    weights = {field.name: 0.0 for field in dataclasses.fields(Parameters)}
    weights = {name: 0.0 for name in weights if name.endswith("_weight")}
    mppi = Mppi(CONFIG, parameters=Parameters(**weights))
    update = mppi.update(AT_REST, GOAL, 0.0)
    assert update.ok and update.ess == pytest.approx(256.0)
    np.testing.assert_allclose(mppi.rollouts(256)[1], 1.0 / 256)


def test_a_robot_that_cannot_but_collide_brakes():
    mppi = Mppi(CONFIG)
    mppi.set_obstacles(_ring(0.6))
    # From 1.2 m/s it takes 0.5 m to stop, and the margin leaves 0.17 m.
    update = mppi.update(np.array([0.0, 0.0, 0.0, 1.2, 0.0]), GOAL, 0.0)
    assert not update.ok and update.reason == "every rollout collides"
    np.testing.assert_array_equal(update.command, [0.0, 0.0])
    assert update.collided_fraction == 1.0
    assert mppi.update(AT_REST, GOAL, 0.05).ok


def test_a_robot_that_is_shut_in_stays_where_it_is():
    mppi = Mppi(CONFIG)
    mppi.set_obstacles(_ring(0.7))
    updates, state = _drive(mppi, 100)
    assert all(update.ok for update in updates)
    assert np.hypot(*state[:2]) < 0.7 - 0.43 + 0.02


def test_a_robot_inside_the_margin_may_leave_it_but_not_go_deeper():
    occupied = np.zeros((101, 101), bool)
    occupied[:, 54:] = True  # 0.4 m ahead of the robot: touching the margin of 0.43 m
    mppi = Mppi(CONFIG)
    mppi.set_obstacles(_field(occupied))
    updates, state = _drive(mppi, 100, goal=np.array([-3.0, 0.0]))
    assert all(update.ok for update in updates)
    assert max(update.plan[:, 0].max() for update in updates) < 0.03
    assert state[0] < -1.0


@pytest.mark.parametrize("offset", [0.0, 0.03, 0.09, 0.2])
@pytest.mark.parametrize("speed", [0.0, 1.2])
def test_a_robot_with_a_wall_inside_it_stops_instead_of_driving_through(offset, speed):
    occupied = np.zeros((101, 101), bool)
    occupied[:, 50] = True
    mppi = Mppi(CONFIG)
    mppi.set_obstacles(_field(occupied))
    update = mppi.update(np.array([-offset, 0.0, 0.0, speed, 0.0]), GOAL, 0.0)
    assert not update.ok and update.reason == "every rollout collides"
    np.testing.assert_array_equal(update.command, [0.0, 0.0])


@pytest.mark.parametrize("seed", range(5))
def test_two_ways_around_a_pillar_are_not_averaged_into_it(seed):
    occupied = np.zeros((141, 141), bool)
    occupied[66:75, 90:99] = True
    field = _field(occupied)
    mppi = Mppi(dataclasses.replace(CONFIG, seed=seed, ess_fraction=0.5))
    mppi.set_obstacles(field)
    for update in _drive(mppi, 60, goal=np.array([5.0, 0.0]))[0]:
        assert update.ok
        # The field is sampled at the steps of the plan, as in the rollouts.
        assert field.at(update.plan[:, :2]).min() > 0.42


def test_plan_is_carried_over_in_time():
    def frozen():
        """A controller that has a plan, and that from now on adds nothing to it."""
        mppi = Mppi(CONFIG)
        _drive(mppi, 10)
        mppi._search._sampler.sample = lambda sigma: np.zeros((30, 2, 256), np.float32)
        return mppi, mppi.update(AT_REST, GOAL, 0.5).controls

    for shift in (0.05, 0.1, 0.25):
        mppi, plan = frozen()
        at = np.minimum(np.arange(30) + shift / 0.1, 29)
        expected = np.array([np.interp(at, np.arange(30), axis) for axis in plan.T]).T
        best = mppi.update(AT_REST, GOAL, 0.5 + shift).controls
        np.testing.assert_allclose(best, expected, atol=1e-5)


@pytest.mark.parametrize("stamp", [-100.0, 1000.0])
def test_a_plan_for_another_time_is_dropped(stamp):
    mppi = Mppi(CONFIG)
    _drive(mppi, 20)
    mppi._search._sampler.sample = lambda sigma: np.zeros((30, 2, 256), np.float32)
    update = mppi.update(AT_REST, GOAL, stamp)
    # Left are the maneuvers, of which none moves the robot.
    assert (update.controls[:, 0] == 0.0).all()


def test_command_delay_is_predicted_through_the_commands_sent():
    state = np.array([0.0, 0.0, 0.0, 1.0, 0.0])
    sent = [(0.0, np.array([1.0, 0.0])), (0.1, np.array([0.0, 0.0]))]
    late = Mppi(dataclasses.replace(CONFIG, command_delay=0.2))
    prompt = Mppi(dataclasses.replace(CONFIG, command_delay=0.0))
    # The stop sent at 0.1 s acts from 0.3 s on: at full speed until then.
    np.testing.assert_allclose(late.predict(state, 0.0, sent, 0.1)[[0, 3]], [0.3, 1.0], atol=1e-6)
    assert prompt.predict(state, 0.0, sent, 0.3)[0] < 0.28


def test_rollouts_are_those_of_the_last_update():
    mppi = Mppi(CONFIG)
    assert mppi.rollouts(5)[0].shape == (0, 31, 5)
    state = np.array([10.0, -20.0, 3.0, 0.5, 0.1])
    mppi.update(state, np.array([14.0, -21.0]), 0.0)
    trajectories, weights = mppi.rollouts(12)
    assert trajectories.shape == (12, 31, 5) and weights.shape == (12,)
    np.testing.assert_allclose(trajectories[:, 0], np.tile(state, (12, 1)), atol=1e-5)
    assert (np.diff(weights) <= 0.0).all() and weights.sum() > 0.5
    assert len(np.unique(trajectories[:, -1, 0])) == 12
    everything, all_weights = mppi.rollouts(10_000)
    assert len(everything) == 256 and all_weights.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(Parameters)])
def test_every_parameter_of_the_robot_matters(name):
    def controls(parameters):
        mppi = Mppi(CONFIG, parameters=parameters)
        occupied = np.zeros((141, 141), bool)
        occupied[66:80, 82:85] = True
        mppi.set_obstacles(_field(occupied))
        goals = (np.array([4.0, 0.0]), np.array([-0.3, 0.3]))
        return np.array(
            [update.controls for goal in goals for update in _drive(mppi, 8, goal=goal)[0]]
        )

    changed = dataclasses.replace(Parameters(), **{name: 1.5 * getattr(Parameters(), name)})
    assert (controls(Parameters()) != controls(changed)).any()


def test_unknown_system_is_named_and_a_wrong_sigma_refused():
    with pytest.raises(ConfigurationError, match="unknown system 'diff_drivee'.*diff_drive"):
        Mppi(CONFIG, system="diff_drivee")
    with pytest.raises(ConfigurationError, match="sigma.*v_command, w_command"):
        Mppi(dataclasses.replace(CONFIG, sigma=(0.3,)))
    with pytest.raises(ConfigurationError, match="noise_order.* 2, must be 0, 1 or 3"):
        Mppi(dataclasses.replace(CONFIG, noise_order=2))
    with pytest.raises(ConfigurationError, match="temperature_min.* 2, must be at most.* 1"):
        Mppi(dataclasses.replace(CONFIG, temperature_min=2.0, temperature_max=1.0))


def test_weights_are_those_that_were_asked_for():
    def first(**changed):
        mppi = Mppi(dataclasses.replace(CONFIG, **changed))
        return mppi.update(AT_REST, GOAL, 0.0), mppi.rollouts(256)[1]

    solved, weights = first()
    assert not solved.at_bound
    assert solved.log_eta == pytest.approx(-np.log(weights[0]), rel=1e-9)
    fixed, _ = first(temperature=3.0)
    assert (fixed.temperature, fixed.at_bound) == (3.0, False)
    for name, factor in (("temperature_min", 2.0), ("temperature_max", 0.5)):
        bound = factor * solved.temperature
        bounded, _ = first(**{name: bound})
        assert bounded.temperature == bound and bounded.at_bound
        assert (bounded.ess > solved.ess) == (factor > 1.0)
    elites, weights = first(weighting="cem", elite_fraction=0.05)
    assert (elites.ess, elites.temperature) == (13.0, 0.0)  # of 256
    np.testing.assert_allclose(weights[:14], [1.0 / 13.0] * 13 + [0.0])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"smoothing_window": 4}, "smoothing_window.* 4, must be odd, or 0"),
        ({"smoothing_window": 61}, "smoothing_window.* 61, must be less than twice the horizon"),
        ({"smoothing_window": 3, "smoothing_order": 3}, "smoothing_order.* 3, must be less than"),
        ({"rate_limits": (1.0,)}, "rate_limits.* 1 values, must have one for each of v_command"),
    ],
)
def test_smoothing_and_limits_of_rate_that_do_not_fit_are_refused(changed, message):
    with pytest.raises(ConfigurationError, match=message):
        Mppi(dataclasses.replace(CONFIG, **changed))


@pytest.mark.parametrize("window", [0, 7])
@pytest.mark.parametrize("period", [0.03, 0.1, 0.25])
def test_limits_of_rate_hold_from_command_to_command_and_within_plans(window, period):
    rates = np.array([0.8, 2.0])
    mppi = Mppi(
        dataclasses.replace(
            CONFIG, smoothing_window=window, rate_limits=tuple(rates), sigma=(2.0, 2.0)
        )
    )
    updates, _ = _drive(mppi, 30, goal=np.array([-2.0, 3.0]), period=period)
    commands = np.array([update.command for update in updates])
    # Of the first one the period is not known: it counts as a step.
    durations = np.append(CONFIG.dt, np.full(29, period))[:, None]
    change = np.abs(np.diff(commands, axis=0, prepend=0.0))
    assert (change <= rates * durations + 1e-9).all()
    assert (change > 0.99 * rates * durations).any(axis=0).all()
    for update in updates:
        change = np.abs(np.diff(update.controls, axis=0))
        assert (change <= rates * CONFIG.dt + 1e-9).all()
        assert (update.controls >= mppi.limits[0]).all()
        assert (update.controls <= mppi.limits[1]).all()


def test_the_plan_is_the_mean_of_the_elites():
    system = load_system("cartpole")
    config = MppiConfig.for_system(system, samples=512, backend="cpu", weighting="cem")
    mppi = Mppi(config, "cartpole")
    p, x = system.pack(system.parameters(), np.float64), (0.0, np.pi, 0.0, 0.0)
    means = 0
    for i in range(60):
        update = mppi.update(np.array(x), np.zeros(1), 0.02 * i)
        controls, _, weights = mppi.samples()
        mean = np.tensordot(weights, controls.astype(float), 1)
        means += np.allclose(update.controls, mean, atol=1e-4)
        x = system.step(x, tuple(update.command), p, 0.02)
    assert means > 50


def test_limits_of_rate_begin_with_what_was_sent_in_truth():
    mppi = Mppi(dataclasses.replace(CONFIG, rate_limits=(0.8, 2.0), sigma=(2.0, 2.0)))
    returned = mppi.update(AT_REST, GOAL, 7.0).command
    # In its place, and once more before the next update.
    played = [(7.0, np.array([-0.2, 0.5])), (7.08, np.array([-0.25, 0.6]))]
    mppi.go_on_from(played)
    command = mppi.update(AT_REST, GOAL, 7.1).command
    change = command - played[-1][1]
    assert abs(returned[0] - played[-1][1][0]) > 0.2
    assert (np.abs(change) <= 0.02 * np.array([0.8, 2.0]) + 1e-9).all() and change[0] > 0.0
    mppi.go_on_from([])
    after = mppi.update(AT_REST, GOAL, 7.2).command
    assert (np.abs(after - command) <= 0.1 * np.array([0.8, 2.0]) + 1e-9).all()


def test_an_update_that_failed_is_followed_by_one_that_does_not(monkeypatch):
    mppi = Mppi(dataclasses.replace(CONFIG, rate_limits=(0.8, 2.0), sigma=(2.0, 2.0)))
    search = mppi._search.search
    monkeypatch.setattr(mppi._search, "search", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        mppi.update(AT_REST, GOAL, 7.0)
    monkeypatch.setattr(mppi._search, "search", search)
    # Of what was sent nothing is known: a step's change, from the safe command.
    command = mppi.update(AT_REST, GOAL, 7.3).command
    assert (np.abs(command) <= CONFIG.dt * np.array([0.8, 2.0]) + 1e-9).all()


def test_smoothing_takes_most_of_the_jitter_from_white_noise_and_none_of_the_way():
    def drive(window):
        # Without a cost of its change nothing else keeps the command from jittering.
        mppi = Mppi(
            dataclasses.replace(CONFIG, noise="white", smoothing_window=window),
            parameters=Parameters(change_weight=0.0),
        )
        updates, state = _drive(mppi, 80)
        commands = np.array([update.command for update in updates])
        return np.abs(np.diff(commands, axis=0)).mean(axis=0), np.hypot(*(state[:2] - GOAL))

    (rough, rough_distance), (smooth, smooth_distance) = drive(0), drive(9)
    assert (smooth < 0.5 * rough).all()
    assert smooth_distance < rough_distance + 0.2 < 0.8


@pytest.mark.parametrize("seed", range(3))
def test_smoothing_is_left_out_where_it_would_not_stop_in_time(seed):
    occupied = np.zeros((101, 101), bool)
    occupied[:, 59:] = True  # 0.47 m to the margin: about one sample in a hundred stops before it
    mppi = Mppi(dataclasses.replace(CONFIG, seed=seed, smoothing_window=29, smoothing_order=0))
    mppi.set_obstacles(_field(occupied))
    mppi._command = np.array([1.2, 0.0])
    update = mppi.update(np.array([0.0, 0.0, 0.0, 1.2, 0.0]), np.array([0.5, 0.0]), 0.0)
    assert update.ok and update.collided_fraction > 0.9
    assert mppi._field.at(update.plan[:, :2]).min() > 0.42


def test_commands_are_remembered_as_long_as_smoothing_looks_back_and_not_from_the_future():
    mppi = Mppi(dataclasses.replace(CONFIG, smoothing_window=3))
    for stamp in (*0.02 * np.arange(50), 0.45, 0.5):
        mppi.update(AT_REST, GOAL, stamp)
    stamps = [stamp for stamp, _ in mppi._sent]
    assert stamps[-2:] == [0.45, 0.5] and (np.diff(stamps) > 0.0).all()
    assert len(stamps) < 20
    mppi.update(AT_REST, GOAL, 0.9)
    assert mppi._sent[0][0] == 0.5


def test_limits_of_rate_that_leave_no_free_plan_are_told():
    # At 1.2 m/s, 1.1 m before the margin: braking at once is free, letting go slowly is not.
    occupied = np.zeros((101, 101), bool)
    occupied[:, 65:] = True
    for rates, ok in (((0.0, 0.0), True), ((0.3, 0.0), False)):
        mppi = Mppi(dataclasses.replace(CONFIG, rate_limits=rates))
        mppi.set_obstacles(_field(occupied))
        mppi._command = np.array([1.2, 0.0])
        update = mppi.update(np.array([0.0, 0.0, 0.0, 1.2, 0.0]), np.array([0.5, 0.0]), 0.0)
        assert update.ok == ok
    assert update.reason == "every plan within the limits of rate collides"
    np.testing.assert_array_equal(update.command, [0.0, 0.0])
    assert len(mppi.rollouts(5)[0]) == 0


def test_the_age_of_the_plan_is_told():
    mppi = Mppi(CONFIG)
    ages = [mppi.update(AT_REST, GOAL, stamp).plan_age for stamp in (7.0, 7.05, 7.3, 5.0, 50.0)]
    np.testing.assert_allclose(ages, [np.nan, 0.05, 0.25, np.nan, np.nan], atol=1e-9)
    mppi.update(np.full(5, np.nan), GOAL, 50.1)
    assert mppi.update(AT_REST, GOAL, 50.2).plan_age == pytest.approx(0.1)


@pytest.mark.parametrize(
    "noise",
    [
        {"noise_order": 0},
        {"noise_order": 3},
        {"noise": "white"},
        {"noise": "coloured"},
        {"noise": "coloured", "noise_exponent": 2.0},
        {"noise_knots": 4},
        {"antithetic": True},
        {"temperature": 0.5},
        {"weighting": "cem"},
        {"smoothing_window": 9},
        {"smoothing_window": 9, "smoothing_order": 4},
        {"rate_limits": (1.0, 2.0)},
        {"sigma_adaptation": 0.5},
        {"sigma_adaptation": 0.5, "sigma_floor": 0.5},
        VARIED,
        VARIED | {"risk": "worst"},
        VARIED | {"risk": "cvar", "risk_share": 0.5},
    ],
    ids=str,
)
def test_every_parameter_of_the_update_drives_to_the_goal_in_its_own_way(noise):
    def drive(**changed):
        updates, state = _drive(Mppi(dataclasses.replace(CONFIG, **changed)), 100)
        return np.array([update.command for update in updates]), state

    commands, state = drive(**noise)
    assert (commands != drive()[0]).any()
    # 5 s at 1.2 m/s at most; the goal is 4.1 m away. White noise, which cancels, creeps.
    assert np.hypot(*(state[:2] - GOAL)) < (3.8 if noise.get("noise") == "white" else 0.4)


def test_cuda_that_cannot_be_had_is_an_error_and_auto_says_why(monkeypatch):
    monkeypatch.setattr(mppi_module, "_cuda_problem", lambda: "there is no GPU today")
    with pytest.raises(BackendError, match="there is no GPU today"):
        Mppi(dataclasses.replace(CONFIG, backend="cuda"))
    mppi = Mppi(dataclasses.replace(CONFIG, backend="auto"))
    assert (mppi.backend, mppi.backend_reason) == ("cpu", "there is no GPU today")
    assert Mppi(CONFIG).backend_reason == "asked for"


def test_without_numba_cuda_the_cpu_is_used(monkeypatch):
    monkeypatch.delitem(sys.modules, "geoaccel_ros.control.rollouts_cuda", False)
    monkeypatch.setitem(sys.modules, "numba.cuda", None)
    monkeypatch.delattr(numba, "cuda", raising=False)
    mppi = Mppi(dataclasses.replace(CONFIG, backend="auto"))
    assert mppi.backend == "cpu" and "geoaccel_ros[cuda]" in mppi.backend_reason
