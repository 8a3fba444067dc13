"""Linear models against data whose coefficients are known."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest

from analysis.published.pcad_shown import CHANCE, FREEDOM, SHARE, fit_linear


def launches(noise: float = 1.0, curve: float = 0.0) -> pd.DataFrame:
    """Seconds that are 10 + 3 hosts + 5 for a slow model, and bend if asked for."""
    rng = np.random.default_rng(7)
    rows = [
        {
            "model": model,
            "hosts": hosts,
            "seconds": 10 + 3 * hosts + 5 * (model == "slow") + curve * hosts**2,
        }
        for model, hosts, _ in itertools.product(("fast", "slow"), range(1, 6), range(6))
    ]
    table = pd.DataFrame(rows)
    return table.assign(seconds=table["seconds"] + noise * rng.normal(size=len(table)))


def test_coefficients_that_made_the_data_lie_in_their_intervals() -> None:
    model = fit_linear(launches(), "seconds ~ C(model) + hosts")
    for term, true in (("Intercept", 10.0), ("C(model)[T.slow]", 5.0), ("hosts", 3.0)):
        own = model.coefficients.loc[[term]]
        assert own["low"].iloc[0] < true < own["high"].iloc[0]
    assert model.residual_std == pytest.approx(1.0, abs=0.2)
    assert model.normal_p > 0.05
    assert model.even_p > 0.05


def test_the_shares_of_variance_are_those_of_a_balanced_design() -> None:
    rows = launches()
    model = fit_linear(rows, "seconds ~ C(model) + hosts")
    assert model.variance[SHARE].sum() == pytest.approx(1.0)
    # In a balanced design the sum of squares between models is that of their means.
    between = rows.groupby("model")["seconds"].transform("mean") - rows["seconds"].mean()
    total = ((rows["seconds"] - rows["seconds"].mean()) ** 2).sum()
    share = model.variance[SHARE]["C(model)"]
    assert share == pytest.approx((between**2).sum() / total)
    assert model.r_squared == pytest.approx(1 - model.variance[SHARE]["Residual"])
    assert model.variance[FREEDOM]["Residual"] == len(rows) - 3


def test_a_bend_is_seen_by_the_quadratic_model_only() -> None:
    bent = launches(noise=0.1, curve=2.0)
    straight = fit_linear(bent, "seconds ~ C(model) + hosts")
    quadratic = fit_linear(bent, "seconds ~ C(model) + hosts + I(hosts ** 2)")
    assert quadratic.residual_std < straight.residual_std / 5
    assert quadratic.aic < straight.aic
    assert quadratic.variance[CHANCE]["I(hosts ** 2)"] < 1e-6


def test_residuals_that_grow_are_told() -> None:
    rows = launches(noise=0.0)
    grown = rows["hosts"] ** 2 * np.random.default_rng(1).normal(size=len(rows))
    model = fit_linear(rows.assign(seconds=rows["seconds"] + grown), "seconds ~ C(model) + hosts")
    assert model.even_p < 0.01


def test_no_more_launches_than_coefficients_are_refused() -> None:
    with pytest.raises(ValueError, match="too few"):
        fit_linear(launches().iloc[[0, 35]], "seconds ~ hosts")
