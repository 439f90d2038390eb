"""Series of known truth. One row is one series; every generator draws from the given stream only."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

LEVEL = 10.0  # of the series without a change: noise of one is 10 % of it
SPIKE_SHARE, SPIKE_SIGMAS = 0.01, 10.0
LOGNORMAL_SIGMA = 0.3
STUDENT_FREEDOM = 3
PERIODS = 10


def stream(seed: int, *path: int) -> np.random.Generator:
    """The stream of one cell of one table: the same however many other cells are run."""
    return np.random.default_rng((seed, *path))


def ar1(random: np.random.Generator, rows: int, points: int, rho: float, sigma: float = 1.0) -> Floats:
    """Stationary AR(1) noise of marginal standard deviation `sigma`, shape (rows, points); white for rho = 0.

    The first point has the stationary variance, every innovation a standard deviation of sigma sqrt(1 - rho^2)
    (Box and Jenkins, Time Series Analysis, section 3.2.3).
    """
    noise = random.standard_normal((points, rows))
    noise[1:] *= np.sqrt(1 - rho * rho)
    if rho:
        for at in range(1, points):
            noise[at] += rho * noise[at - 1]
    return np.ascontiguousarray(sigma * noise.T)


def normal(random: np.random.Generator, rows: int, points: int) -> Floats:
    """Independent normal noise around the level, shape (rows, points)."""
    return LEVEL + ar1(random, rows, points, 0.0)


def lognormal(random: np.random.Generator, rows: int, points: int) -> Floats:
    """Lognormal values with a median of the level, shape (rows, points)."""
    return LEVEL * random.lognormal(0.0, LOGNORMAL_SIGMA, (rows, points))


def ar1_half(random: np.random.Generator, rows: int, points: int) -> Floats:
    """AR(1) with a coefficient of 0.5 around the level, shape (rows, points)."""
    return LEVEL + ar1(random, rows, points, 0.5)


def ar1_strong(random: np.random.Generator, rows: int, points: int) -> Floats:
    """AR(1) with a coefficient of 0.8 around the level, shape (rows, points)."""
    return LEVEL + ar1(random, rows, points, 0.8)


def student(random: np.random.Generator, rows: int, points: int) -> Floats:
    """Student's t with three degrees of freedom around the level, shape (rows, points)."""
    return LEVEL + random.standard_t(STUDENT_FREEDOM, (rows, points))


def spikes(random: np.random.Generator, rows: int, points: int) -> Floats:
    """Normal noise of which every hundredth point stands ten sigma higher, shape (rows, points)."""
    values = normal(random, rows, points)
    return values + SPIKE_SIGMAS * (random.random((rows, points)) < SPIKE_SHARE)


def sine(random: np.random.Generator, rows: int, points: int) -> Floats:
    """Normal noise on a sine of ten periods, its amplitude one sigma, its phase drawn, shape (rows, points)."""
    phase = random.uniform(0, 2 * np.pi, (rows, 1))
    season: Floats = np.sin(2 * np.pi * PERIODS * np.arange(points) / points + phase)
    return normal(random, rows, points) + season


def step(
    random: np.random.Generator, rows: int, points: int, change: int, shift: float, rho: float, sigma: float
) -> Floats:
    """Level 1, from index `change` on 1 + `shift`, in AR(1) noise of `sigma`, shape (rows, points)."""
    return ar1(random, rows, points, rho, sigma) + 1 + shift * (np.arange(points) >= change)


def three_shifts(random: np.random.Generator, points: int, shift: float, rho: float, sigma: float) -> Floats:
    """Level 1, up by `shift`, back, and up again, a quarter of the series each, shape (points,)."""
    quarter = np.arange(points) * 4 // points
    values: Floats = ar1(random, 1, points, rho, sigma)[0] + 1 + shift * (quarter % 2)
    return values


WITHOUT_CHANGE: dict[str, Callable[[np.random.Generator, int, int], Floats]] = {
    "normal": normal,
    "lognormal, sigma 0.3": lognormal,
    "AR(1) 0.5": ar1_half,
    "AR(1) 0.8": ar1_strong,
    "Student t3": student,
    "normal, 1 % spikes of 10 sigma": spikes,
    "normal on a sine, 10 periods": sine,
}
