"""A bound for the false positives of a filter."""

import math


def most_false_positives(trials: int, rate: float) -> float:
    """Returns a bound that a number with the binomial distribution B(trials, rate) exceeds with a probability below
    2e-14.

    It is Bernstein's inequality at eight standard deviations, which filter/tests/promises/rates.rs explains.
    """
    z = 8
    variance = trials * rate * (1 - rate)
    return trials * rate + z**2 / 6 + math.sqrt(z**4 / 36 + z**2 * variance)
