"""How much later the slowest of equal ranks is: every step waits for it."""

from __future__ import annotations

from jax.scipy.special import ndtri

from jaxperf.core.numerics import Scalar

PLOTTING = 0.375  # of the plotting position [1]


def slowest_score(ranks: Scalar) -> Scalar:
    """The expected largest of `ranks` independent standard normals; 0 for one.

    Phi^-1((n - a) / (n + 1 - 2 a)), a = 3/8 (Blom 1958, Statistical Estimates and Transformed Beta-Variables). It
    stays below sqrt(2 ln n), its limit; against the exact mean it is off by 5 % for two ranks, by less than 1 % from
    eight on.

    **Arguments:** `ranks`: at least one, need not be an integer [1].
    """
    return -ndtri((1.0 - PLOTTING) / (ranks + 1.0 - 2.0 * PLOTTING))


def straggling_time(work: Scalar, ranks: Scalar, spread: Scalar) -> Scalar:
    """What a step waits for the slowest of its ranks: spread x `slowest_score` x work [s].

    The ranks' own times for `work` are normal about it, each the same in every micro-batch; messages are not slower.

    **Arguments:** `work`: what the nominal rank computes and waits for by schedule [s]; `spread`: standard deviation
    of a rank's time over its mean [1].
    """
    return spread * slowest_score(ranks) * work
