"""A test bed of simulated systems, to measure what rhovec does on traces that are not random ones.

    from reproduction.systems import SYSTEMS
    car = SYSTEMS["transmission-like"]
    fit, test = car.traces(2000, seed=0), car.traces(2000, seed=1, part="test")    # (n, V, P) float32

The systems follow published equations, with our own numbers where the publication gives none, and are
named "...-like" for that: nothing measured on them is a result of the benchmark of a similar name. The
inputs of `part="fit"` are piecewise constant (`pieces`), those of `part="test"` are sums of waves
(`waves`), so that what is fitted on the one meets other inputs and another seed on the other. All traces
of a call are simulated together, thousands of them in about a second.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from rhovec.formula.schema import Schema
from rhovec.library import requirements

PARTS = ("fit", "test")

Draw = Callable[[np.random.Generator, int, int, float, float], np.ndarray]


@dataclass(frozen=True)
class Published:
    """A requirement in names, units and seconds, and where it was published."""

    id: str
    text: str
    source: str


@dataclass(frozen=True)
class System:
    """A simulated system, and the published requirements about it."""

    name: str
    title: str
    equations: str  # where they come from
    variables: tuple[str, ...]
    dt: float  # seconds per step
    points: int
    simulate: Callable[[np.random.Generator, int, str], np.ndarray]  # (n, V, P)
    requirements: tuple[Published, ...]
    channels: tuple[str, ...] = ()  # that formulae speak about; by default the variables
    discrete: tuple[str, ...] = ()
    units: Mapping[str, str] = field(default_factory=dict)

    def traces(self, n: int, seed: int = 0, part: str = "fit") -> np.ndarray:
        """n traces (n, variables, points) float32; part: "fit" or "test", two classes of inputs."""
        if part not in PARTS:
            raise ValueError(f"part must be fit or test, not {part!r}")
        rng = np.random.default_rng([seed, PARTS.index(part)])
        return self.simulate(rng, n, part).astype(np.float32)

    def schema(self, traces: np.ndarray) -> Schema:
        """The channels with mean and standard deviation from traces (n, variables, points)."""
        return Schema.fit(
            [f"{channel} >= 0" for channel in self.channels or self.variables],
            traces,
            self.variables,
            dt=self.dt,
            discrete=self.discrete,
            tolerance=1,
            units=self.units,
        )


# -- inputs ----------------------------------------------------------------------------------------


def pieces(rng: np.random.Generator, n: int, points: int, low: float, high: float) -> np.ndarray:
    """Piecewise constant inputs (n, points): 1 to 8 pieces, which start at uniform times and have
    uniform levels in [low, high]."""
    most = 8
    levels = rng.uniform(low, high, (n, most))
    starts = np.sort(rng.integers(1, points, (n, most - 1)), axis=1)
    starts[np.arange(most - 1) >= rng.integers(0, most, (n, 1))] = points
    piece = (np.arange(points) >= np.sort(starts, axis=1)[:, :, None]).sum(axis=1)
    return np.take_along_axis(levels, piece, axis=1)


def waves(rng: np.random.Generator, n: int, points: int, low: float, high: float) -> np.ndarray:
    """Smooth inputs (n, points): a uniform level and three sines of 1/2 to 6 periods per trace, with
    random phases and sizes, clipped to [low, high]."""
    share = np.arange(points) / points
    size, phase, periods = rng.uniform([[[0.0]], [[0.0]], [[0.5]]], [[[0.4]], [[1.0]], [[6.0]]],
                                       (3, n, 3))[..., None]  # fmt: skip
    sines: np.ndarray = (size * np.sin(2 * np.pi * (periods * share + phase))).sum(axis=1)
    share_of_range: np.ndarray = np.clip(rng.uniform(0, 1, (n, 1)) + sines, 0, 1)
    return low + (high - low) * share_of_range


DRAWS: Mapping[str, Draw] = {"fit": pieces, "test": waves}


# -- chasing cars ----------------------------------------------------------------------------------

CAR_STEP = 0.1  # seconds of the integration
THRUST, BRAKE, DRAG = 3.0, 6.0, 0.05  # of the leading car: m/s^2, m/s^2, 1/s
STRONGEST = (-8.0, 2.5)  # braking and acceleration of a follower, m/s^2
AIM = 4.0  # m/s by which it wants to be faster while it chases, and slower while it yields
START = 10.0  # speed, m/s
TOUCH = 3.0  # gap below which it is never faster than the car ahead, m
FAR, NEAR = 14.0, 8.5  # gaps at which it starts to chase or to yield, m
SETTLED = 11.0  # gap at which it stops doing either


def chasing_cars(rng: np.random.Generator, n: int, part: str) -> np.ndarray:
    """Positions y1 ... y5 and speeds v1 ... v5 of five cars in a row, (n, 10, points), one per second.

    Car 5 leads, driven by throttle and brake in [0, 1]. A follower has three modes: it chases when the
    gap is above FAR, yields when it is below NEAR, and otherwise takes the speed of the car ahead; it
    leaves a mode at SETTLED, and does not touch the car ahead. All start 10 m apart at START.
    """
    points = 101
    draw = DRAWS[part]
    throttle, brake = (draw(rng, n, points, 0, 1) for _ in range(2))
    push = THRUST * throttle - BRAKE * brake * (throttle < 0.5)
    y = np.repeat(10.0 * np.arange(5)[:, None], n, axis=1)
    v = np.full((5, n), START)
    mode = np.zeros((4, n))  # 1 chasing, -1 yielding
    out = np.empty((10, points, n))
    for point in range(points):
        out[:5, point], out[5:, point] = y, v
        for _ in range(round(1 / CAR_STEP)):
            gap = y[1:] - y[:-1]
            mode = np.where(gap > FAR, 1, np.where(gap < NEAR, -1, mode))
            mode = np.where(mode * (gap - SETTLED) <= 0, 0, mode)
            follow = np.clip(2 * (v[1:] + AIM * mode - v[:-1]), *STRONGEST)
            rate = np.concatenate([follow, push[:, point][None] - DRAG * v[4:]])
            v = np.clip(v + CAR_STEP * rate, 0, 50)
            for i in range(3, -1, -1):
                v[i] = np.where(gap[i] < TOUCH, np.minimum(v[i], v[i + 1]), v[i])
            y = y + CAR_STEP * v
    return out.transpose(2, 0, 1)


def cars_by_gaps(rng: np.random.Generator, n: int, part: str) -> np.ndarray:
    """The same cars as gaps and their rates, (n, 8, points): gap1 is y2 - y1, rate1 its derivative."""
    out = chasing_cars(rng, n, part)
    return np.concatenate([np.diff(out[:, :5], axis=1), np.diff(out[:, 5:], axis=1)], axis=1)


# -- automatic transmission ------------------------------------------------------------------------

DRIVE_STEP = 0.02
RATIOS = np.array([2.393, 1.45, 1.0, 0.677])  # of the gears
FINAL_DRIVE, WHEEL_INERTIA, ENGINE_INERTIA = 3.23, 12.1, 0.022  # inertias per rpm/s in ft lb
ROLLING, AIR = 40.0, 0.02  # load in ft lb: constant, and per mph^2
MPH = 60 * 2 * np.pi / 5280  # per wheel rpm, for a wheel radius of 1 ft
# Speeds in mph at which a gear is left upwards or downwards, by throttle; a row per pair of gears.
UP_AT, DOWN_AT = (0, 25, 35, 50, 90, 100), (0, 5, 40, 50, 90, 100)
UP = ((10, 10, 15, 23, 40, 40), (30, 30, 30, 41, 70, 70), (50, 50, 50, 60, 100, 100))
DOWN = ((5, 5, 5, 5, 30, 30), (20, 20, 25, 30, 50, 50), (35, 35, 40, 50, 80, 80))
SHIFT_DELAY = 0.08  # seconds for which the condition must hold


def engine_torque(throttle: np.ndarray, rpm: np.ndarray) -> np.ndarray:
    """Torque in ft lb: friction with the throttle closed, about 250 at most with it open."""
    closed = -(20 + 0.025 * (rpm - 800))
    opened = 250 - 55 * ((rpm - 3600) / 2400) ** 2
    share = 1 - np.exp(-throttle / 100 * 12_000 / (rpm + 800))
    torque: np.ndarray = closed + (opened - closed) * share
    return torque


def transmission(rng: np.random.Generator, n: int, part: str) -> np.ndarray:
    """speed, rpm, gear, throttle and brake of a car, (n, 5, points), two per second.

    Engine and impeller, torque converter, gears, final drive and wheels; shifts by speed and throttle.
    The car starts at rest in first gear; the brake is used while the throttle is below 40 %.
    """
    points = 101
    draw = DRAWS[part]
    throttle = draw(rng, n, points, 0, 100)
    brake = draw(rng, n, points, 0, 325) * (throttle < 40)
    up = [np.interp(throttle, UP_AT, row) for row in UP]
    down = [np.interp(throttle, DOWN_AT, row) for row in DOWN]
    never = np.full(throttle.shape, np.inf)
    above, below = np.stack([*up, never]), np.stack([-never, *down])  # (gear, n, points)
    rpm, wheel = np.full(n, 1000.0), np.zeros(n)
    gear, waited = np.zeros(n, int), np.zeros((2, n))
    every = np.arange(n)
    out = np.empty((5, points, n))
    for point in range(points):
        out[:, point] = MPH * wheel, rpm, gear + 1, throttle[:, point], brake[:, point]
        for _ in range(round(0.5 / DRIVE_STEP)):
            speed = MPH * wheel
            turbine = RATIOS[gear] * FINAL_DRIVE * wheel
            ratio = np.clip(turbine / rpm, 0, 1)
            capacity = 137 + 30 * ratio**2 + 75 * ratio**12  # the converter's K factor
            impeller = (rpm / capacity) ** 2 * (ratio < 1)
            boost = np.maximum(2.2 - 1.37 * ratio, 1)  # the converter's torque ratio
            torque = engine_torque(throttle[:, point], rpm)
            load = ROLLING + AIR * speed**2 + brake[:, point]  # which also holds a car at rest
            driven = FINAL_DRIVE * RATIOS[gear] * boost * impeller
            rpm = np.clip(rpm + DRIVE_STEP * (torque - impeller) / ENGINE_INERTIA, 600, 6000)
            wheel = np.maximum(wheel + DRIVE_STEP * (driven - load) / WHEEL_INERTIA, 0)
            asked = np.stack([speed > above[gear, every, point], speed < below[gear, every, point]])
            waited = np.where(asked, waited + DRIVE_STEP, 0)
            shift = waited >= SHIFT_DELAY
            gear = gear + shift[0] - shift[1]
            waited[:, shift.any(axis=0)] = 0
    return out.transpose(2, 0, 1)


# -- fuel control ----------------------------------------------------------------------------------

FUEL_STEP = 0.02
# The constants of the polynomial model, c1 ... c26 of the publication.
C = (0.0, 0.41328, -0.366, 0.08979, -0.0337, 0.0001, 2.821, -0.05231, 0.10299, -0.00063, 1.0, 14.7, 0.9,
     0.04, 0.14, 13.893, -35.2518, 20.7364, 2.6287, -1.592, -2.3421, 2.7799, -0.3273, 1.0, 1.0, 1.0,
     4.0)  # fmt: skip
RICH = 12.5  # ratio that is aimed at in power mode
STARTUP = 10.0  # seconds without feedback
POWER_ON, POWER_OFF = 70.0, 50.0  # throttle angles, deg
THROTTLE_RATE = 10.0  # of the first-order throttle, 1/s


def fuel_control(rng: np.random.Generator, n: int, part: str) -> np.ndarray:
    """pedal, engine_speed, AF, AFref, mu and mode, (n, 6, points), two per second.

    Manifold pressure p, measured ratio, the controller's estimate of p, and its integrator. mode is 1
    while power is asked for. The pedal is drawn in [8.8, 81.2] deg, the engine speed in [900, 1100] rpm.
    """
    points = 101
    pedal = DRAWS[part](rng, n, points, 8.8, 81.2)
    rpm = rng.uniform(900, 1100, n)
    w = rpm * 2 * np.pi / 60

    def pumped(p: np.ndarray) -> np.ndarray:
        """Air into the cylinders at the manifold pressure p, g/s."""
        flow: np.ndarray = C[2] + C[3] * w * p + C[4] * w * p**2 + C[5] * w**2 * p
        return flow

    angle = pedal[:, 0]
    p, estimate = np.full(n, 0.8), np.full(n, 0.8)
    ratio, integral = np.full(n, 14.7), np.zeros(n)
    power = np.zeros(n, bool)
    out = np.empty((6, points, n))
    for point in range(points):
        started = point * 0.5 >= STARTUP
        aim = np.where(power & started, RICH, C[11])
        out[:, point] = pedal[:, point], rpm, ratio, aim, (ratio - aim) / aim, power & started
        for _ in range(round(0.5 / FUEL_STEP)):
            angle = angle + FUEL_STEP * THROTTLE_RATE * (pedal[:, point] - angle)
            power = np.where(power, angle > POWER_OFF, angle >= POWER_ON)
            closed = started & ~power  # feedback only in normal mode
            aim = np.where(power & started, RICH, C[11])
            error = C[24] * ratio - C[11]
            command = pumped(estimate) / aim
            command = np.where(closed, command * (1 + integral + C[13] * error), command)
            fuel = C[25] * command
            opening = C[6] + C[7] * angle + C[8] * angle**2 + C[9] * angle**3
            inflow = 2 * opening * (C[20] * p**2 + C[21] * p + C[22])
            air = C[12] * pumped(p)
            mixed = C[15] + C[16] * fuel + C[17] * fuel**2 + C[18] * air + C[19] * air * fuel
            ratio = ratio + FUEL_STEP * C[26] * (mixed - ratio)
            # The pressure settles within milliseconds when the throttle is open: an implicit step.
            slope = 2 * opening * (2 * C[20] * p + C[21])
            p, estimate = (
                p
                + FUEL_STEP * C[1] * (inflow - air) / (1 - FUEL_STEP * C[1] * np.minimum(slope, 0)),
                estimate + FUEL_STEP * C[1] * (C[23] * inflow - pumped(estimate)),
            )
            integral = np.where(closed, integral + FUEL_STEP * C[14] * error, integral)
    return out.transpose(2, 0, 1)


# -- unicycle --------------------------------------------------------------------------------------

ROBOT_STEP = 0.1
TURN, TOP_SPEED = 2.0, 1.2  # largest turning rate, 1/s, and speed


def unicycle(rng: np.random.Generator, n: int, part: str) -> np.ndarray:
    """px, py, heading and speed of a robot on a floor of 15 by 10, (n, 4, points), two per second.

    It starts in the lower left corner and steers towards the goal (7.5, 8.5). fit: by way of two points
    drawn uniformly on the floor, each left after a uniform time of 0 to 10 s. test: straight, with waves
    of up to 1.5 rad added to its bearing. Its cruising speed is uniform in [0.4, 1] of the top speed,
    and it slows down near the goal.
    """
    points = 61
    x, y = rng.uniform(0, 3, n), rng.uniform(0, 3, n)
    heading, cruise = rng.uniform(0, np.pi / 2, n), TOP_SPEED * rng.uniform(0.4, 1, n)
    goal = np.full((n, 2), [7.5, 8.5])
    if part == "fit":
        by_way = rng.uniform(0, [10, 10], (2, n, 2))
        until = np.cumsum(rng.uniform(0, 10, (2, n)), axis=0)
        sway = np.zeros((n, points))
    else:
        by_way, until = np.repeat(goal[None], 2, axis=0), np.zeros((2, n))
        sway = waves(rng, n, points, -1.5, 1.5)
    speed = np.zeros(n)
    out = np.empty((4, points, n))
    for point in range(points):
        out[:, point] = x, y, np.arctan2(np.sin(heading), np.cos(heading)), speed
        passed = (point * 0.5 >= until).sum(axis=0)
        aim = np.choose(passed[:, None], [*by_way, goal])
        for _ in range(round(0.5 / ROBOT_STEP)):
            dx, dy = aim[:, 0] - x, aim[:, 1] - y
            far = np.minimum(np.hypot(dx, dy), 1)
            off = np.arctan2(dy, dx) + sway[:, point] - heading
            turn = far * np.clip(2 * np.arctan2(np.sin(off), np.cos(off)), -TURN, TURN)
            speed = speed + ROBOT_STEP * 2 * (cruise * far - speed)
            x, y = (
                x + ROBOT_STEP * speed * np.cos(heading),
                y + ROBOT_STEP * speed * np.sin(heading),
            )
            heading = heading + ROBOT_STEP * turn
    return out.transpose(2, 0, 1)


# -- chemical and epidemic processes ---------------------------------------------------------------


def jump_process(
    rng: np.random.Generator,
    start: np.ndarray,
    changes: np.ndarray,
    rates: Callable[[np.ndarray], np.ndarray],
    times: np.ndarray,
) -> np.ndarray:
    """Exact traces (n, species, points) of a Markov jump process, all simulated together.

    start (species, n); changes (reactions, species); rates maps a state (species, n) to (reactions, n).
    """
    state = start.astype(float)
    species, n = state.shape
    clock, point = np.zeros(n), np.zeros(n, int)
    out = np.empty((n, species, len(times)))
    every = np.arange(n)
    while (alive := point < len(times)).any():
        rate = rates(state)
        total = rate.sum(axis=0)
        with np.errstate(divide="ignore"):
            clock = clock + rng.exponential(size=n) / total  # infinite where nothing can happen
        # The state was the same at all sampling times before this jump.
        while (due := alive & (times[np.minimum(point, len(times) - 1)] < clock)).any():
            out[every[due], :, point[due]] = state[:, due].T
            point[due] += 1
            alive = point < len(times)
        chosen = (rng.uniform(size=n) * total >= np.cumsum(rate, axis=0)).sum(axis=0)
        state = np.where(alive, state + changes[np.minimum(chosen, len(changes) - 1)].T, state)
    return out


def sir(rng: np.random.Generator, n: int, part: str) -> np.ndarray:
    """S, I and R of an epidemic among 100, (n, 3, points), a point per time unit.

    fit: 5 are infected at first, rates of infection and recovery uniform in [0.05, 0.3] and [0.02, 0.2].
    test: 10 are infected at first, both rates log-uniform in the same ranges.
    """
    points = 121
    low, high = np.array([[0.05], [0.02]]), np.array([[0.3], [0.2]])
    share = rng.uniform(size=(2, n))
    k = low + (high - low) * share if part == "fit" else low * (high / low) ** share
    infected = 5 if part == "fit" else 10
    start = np.repeat(np.array([[100 - infected], [infected], [0]]), n, axis=1)

    def rates(state: np.ndarray) -> np.ndarray:
        return np.stack([k[0] * state[0] * state[1] / 100, k[1] * state[1]])

    return jump_process(
        rng, start, np.array([[-1, 1, 0], [0, -1, 1]]), rates, np.arange(points, dtype=float)
    )


# -- the bed ---------------------------------------------------------------------------------------


def from_library(*systems: str, names: Mapping[str, str] | None = None) -> tuple[Published, ...]:
    """The package's published requirements of these systems; names: texts to replace in them."""
    out = []
    for requirement in requirements():
        if requirement.system.name in systems:
            text = " ".join(requirement.text.split())
            for old, new in (names or {}).items():
                text = text.replace(old, new)
            source = f"{requirement.source.work} ({requirement.source.year}), {requirement.label}"
            out.append(Published(requirement.id, text, source))
    return tuple(out)


GAPS = {f"y{i + 1} - y{i}": f"gap{i}" for i in range(1, 5)}
CARS = (
    "after the example of J. Hu, J. Lygeros, S. Sastry: Towards a theory of stochastic hybrid systems "
    "(2000); numbers chosen here"
)
SMOOTHED = (
    "L. Bortolussi, D. Milios, G. Sanguinetti: Smoothed model checking for uncertain continuous-time "
    "Markov chains (2016), the SIR model"
)

SYSTEMS: Mapping[str, System] = {
    system.name: system
    for system in (
        System(
            "chasing-cars-like", "Five cars that follow each other", CARS,
            tuple(f"y{i}" for i in range(1, 6)), 1.0, 101,
            lambda rng, n, part: chasing_cars(rng, n, part)[:, :5],
            from_library("chasing-cars"),
            channels=tuple(GAPS), units={f"y{i}": "m" for i in range(1, 6)},
        ),
        System(
            "chasing-cars-8-like", "The same five cars: gaps, and how fast they open", CARS,
            (*GAPS.values(), *(f"rate{i}" for i in range(1, 5))), 1.0, 101, cars_by_gaps,
            from_library("chasing-cars", names=GAPS),
            units={gap: "m" for gap in GAPS.values()} | {f"rate{i}": "m/s" for i in range(1, 5)},
        ),
        System(
            "transmission-like", "A car with an automatic transmission of four gears",
            "equations, ratios, inertias and shift schedule of the MathWorks example Modeling an "
            "Automatic Transmission Controller; engine map and converter are smooth curves chosen here",
            ("speed", "rpm", "gear", "throttle", "brake"), 0.5, 101, transmission,
            from_library("transmission"),
            discrete=("gear",),
            units={"speed": "mph", "rpm": "rpm", "throttle": "%", "brake": "ft lb"},
        ),
        System(
            "fuel-control-like", "Air-fuel ratio control, the polynomial model",
            "X. Jin, J. V. Deshmukh, J. Kapinski, K. Ueda, K. Butts: Powertrain control verification "
            "benchmark (2014), the polynomial model, with its first-order throttle and its modes",
            ("pedal", "engine_speed", "AF", "AFref", "mu", "mode"), 0.5, 101, fuel_control,
            from_library("powertrain", "fuel-control"),
            discrete=("mode",), units={"pedal": "deg", "engine_speed": "rpm"},
        ),
        System(
            "unicycle-like", "A robot that goes around an obstacle to a goal",
            "the kinematic unicycle; floor, obstacle and goal of the reach-avoid example of stlpy "
            "(V. Kurtz and H. Lin, 2022); steering chosen here",
            ("px", "py", "heading", "speed"), 0.5, 61, unicycle,
            from_library("mobile-robot"),
            units={"heading": "rad"},
        ),
        System(
            "sir-like", "An epidemic among a hundred people, as a Markov jump process", SMOOTHED,
            ("S", "I", "R"), 1.0, 121, sir,
            (
                Published(
                    "sir-extinct", "always[0,99] I > 0.5 and eventually[100,120] I < 0.5",
                    SMOOTHED + ": the epidemic ends between 100 and 120",
                ),
            ),
        ),
    )
}  # fmt: skip
