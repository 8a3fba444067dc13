"""Linear models of a measured time: coefficients, analysis of variance, and what contradicts them.

Ordinary least squares by statsmodels.  Which model is fitted is decided by its formula; nothing is
chosen here.
"""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

#: Columns of the analysis of variance.
SQUARES, FREEDOM, F_VALUE, CHANCE, SHARE = "sum of squares", "df", "F", "p", "share"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LinearModel:
    """A fitted model.

    Attributes:
        formula: in the language of R, for instance `seconds ~ hosts * batch`.
        coefficients: by term: estimate, low and high (95 % interval), p.
        variance: by term, type II: sum of squares, degrees of freedom, F, p, and the share of the
            sum of all squares; the last row holds the residuals.
        fitted, residuals: of every row, in the unit of the response.
        r_squared, adjusted_r_squared, residual_std, aic: of the whole model.
        normal_p: Shapiro and Wilk's test that residuals are normal.
        even_p: Breusch and Pagan's test that residuals vary alike everywhere.
    """

    formula: str
    coefficients: pd.DataFrame
    variance: pd.DataFrame
    fitted: pd.Series
    residuals: pd.Series
    r_squared: float
    adjusted_r_squared: float
    residual_std: float
    aic: float
    normal_p: float
    even_p: float


def fit_linear(rows: pd.DataFrame, formula: str) -> LinearModel:
    """Fit a model by ordinary least squares.

    Args:
        rows: a row for each launch, with the columns that the formula names.

    Raises:
        ValueError: there are no more rows than coefficients.
    """
    from scipy.stats import shapiro
    from statsmodels.api import stats
    from statsmodels.formula.api import ols
    from statsmodels.stats.diagnostic import het_breuschpagan

    model = ols(formula, rows)
    if len(rows) <= model.exog.shape[1]:
        raise ValueError(f"{len(rows)} launches are too few for {formula}")
    fit = model.fit()
    intervals = fit.conf_int()
    return LinearModel(
        formula=formula,
        coefficients=pd.DataFrame(
            {"estimate": fit.params, "low": intervals[0], "high": intervals[1], "p": fit.pvalues}
        ),
        variance=_variance(stats.anova_lm(fit, typ=2)),
        fitted=fit.fittedvalues,
        residuals=fit.resid,
        r_squared=float(fit.rsquared),
        adjusted_r_squared=float(fit.rsquared_adj),
        residual_std=float(fit.mse_resid**0.5),
        aic=float(fit.aic),
        normal_p=float(shapiro(fit.resid).pvalue),
        even_p=float(het_breuschpagan(fit.resid, model.exog)[1]),
    )


def _variance(table: pd.DataFrame) -> pd.DataFrame:
    named = table.rename(columns={"sum_sq": SQUARES, "df": FREEDOM, "F": F_VALUE, "PR(>F)": CHANCE})
    return named.assign(**{SHARE: named[SQUARES] / named[SQUARES].sum()})
