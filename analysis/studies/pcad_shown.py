"""The study of PCAD: the time of an epoch by model, loop, batch and hosts, and models of that time.

Decides which models are fitted, and what is shown of them.  The original's text has no numbers, so
there are none beside ours.
"""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy.special import ndtri

from analysis.data.cases import Case, Point
from analysis.figures.curves import curves_of
from analysis.figures.marks import known
from analysis.figures.save import DrawnFigure
from analysis.figures.style import (
    COLOURS,
    FAINT,
    new_figure,
    style,
)
from analysis.stats.statistics import compare, estimate
from analysis.studies.shown import (
    Shown,
    marks_from,
    model_name,
    plot_panels,
    shown_study,
    texts_of,
)
from analysis.wording import count_text, number, ratio_text, with_interval

TEXTS = texts_of("pcad")

#: Images of an epoch of TinyImageNet-200.
EPOCH = 100_000

#: Fewer different settings fit no model.
FEWEST_SETTINGS = 20

#: All factors with their interactions of two; the quadratic model bends along both numbers.
LINEAR = "seconds ~ (C(model) + C(loop) + batch + hosts) ** 2"
MODELS: Mapping[str, str] = {
    "linear": LINEAR,
    "quadratic": f"{LINEAR} + I(batch ** 2) + I(hosts ** 2)",
    "quadratic, of the logarithm": f"log_{LINEAR} + I(batch ** 2) + I(hosts ** 2)",
}


def _show(cases: Sequence[Case]) -> Shown:
    launches = pd.DataFrame([*_launches(cases)])
    if launches.empty:
        return Shown()
    cells = _times(launches)
    empty = " Empty: no rate." * bool((cells == "").any(axis=None))
    times = TEXTS.table("times", cells, more=empty)
    figures = [_time_figure(launches)]
    fitted = _fitted(launches)
    if not fitted:
        told = "Too few settings or launches were measured to fit models of the time."
        return Shown(sentences=[told], tables=[times], figures=figures)
    tables = [times, TEXTS.table("fits", _fits(fitted))]
    tables += [
        TEXTS.table("variance", _anova(fit), title=f"Analysis of variance, {name}")
        for name, fit in fitted.items()
    ]
    return Shown(
        sentences=_sentences(launches), tables=tables, figures=[*figures, _residual_figure(fitted)]
    )


def _launches(cases: Sequence[Case]) -> Iterator[dict[str, object]]:
    for case in cases:
        for point in case.points:
            for turn, rate in point.rates.items():
                seconds = EPOCH / rate
                told = {"turn": turn, "seconds": seconds, "log_seconds": math.log(seconds)}
                yield {**_factors(point), **told}


def _factors(point: Point) -> dict[str, object]:
    load = point.experiment.workload
    return {
        "model": model_name(point.experiment),
        "loop": "sync" if point.experiment.strategy.as_shipped else "ctl",
        "batch": load.batch_per_worker,
        "hosts": point.num_workers,
    }


def _sentences(launches: pd.DataFrame) -> list[str]:
    """What more hosts bring with either loop, of the batches of which both ends are measured."""
    told = []
    few, most = int(launches["hosts"].min()), int(launches["hosts"].max())
    for (model, loop), own in launches.groupby(["model", "loop"]):
        gains = [
            f"{ratio_text(*compare(ends[few], ends[most]).ends)} with a batch of {batch}"
            for batch, alike in own.groupby("batch")
            for ends in [_by_hosts(alike)]
            if {few, most} <= ends.keys()
        ]
        said = f"no batch was measured on {_hosts_text(few)} and on {_hosts_text(most)}"
        if gains:
            so_fast = f"times as fast as on {_hosts_text(few)}"
            said = f"an epoch on {_hosts_text(most)} is so many {so_fast}: {', '.join(gains)}"
        told.append(f"{model}, {loop}: {said}.")
    return told


def _by_hosts(alike: pd.DataFrame) -> dict[Hashable, pd.Series]:
    """Seconds of an epoch by turn, for each number of hosts."""
    by_turn = alike.set_index("turn")
    return {hosts: own["seconds"] for hosts, own in by_turn.groupby("hosts")}


def _times(launches: pd.DataFrame) -> pd.DataFrame:
    """A row for each model, loop and batch; a column for each number of hosts."""

    def cell(seconds: pd.Series) -> str:
        return with_interval(number, *estimate(seconds).ends)

    grouped = launches.groupby(["model", "loop", "batch", "hosts"])["seconds"]
    table = grouped.apply(cell).unstack("hosts").fillna("").reset_index()
    return table.astype(str).rename(columns=lambda name: _hosts_text(name))


def _hosts_text(name: object) -> str:
    return count_text(name, "host") if isinstance(name, int) else str(name)


#: What statsmodels fits, which has no types; by ordinary least squares.
Fits = Mapping[str, Any]


def _fitted(launches: pd.DataFrame) -> Fits:
    """Every model, or none where there are too few settings or launches for one."""
    from statsmodels.formula.api import ols

    settings = launches[["model", "loop", "batch", "hosts"]].drop_duplicates()
    if len(settings) < FEWEST_SETTINGS or (settings.nunique() < 2).any():
        return {}
    models = {name: ols(formula, launches) for name, formula in MODELS.items()}
    if any(len(launches) <= model.exog.shape[1] for model in models.values()):
        return {}
    return {name: model.fit() for name, model in models.items()}


def _fits(fitted: Fits) -> pd.DataFrame:
    """With the tests that residuals are normal (Shapiro, Wilk) and alike (Breusch, Pagan)."""
    from scipy.stats import shapiro
    from statsmodels.stats.diagnostic import het_breuschpagan

    return pd.DataFrame(
        [
            {
                "model": name,
                "terms": str(len(fit.params)),
                "R\N{SUPERSCRIPT TWO}": f"{fit.rsquared:.4f}",
                "adj. R\N{SUPERSCRIPT TWO}": f"{fit.rsquared_adj:.4f}",
                "resid. std": number(fit.mse_resid**0.5),
                "AIC": f"{fit.aic:.1f}",
                "p, normal": _chance(shapiro(fit.resid).pvalue),
                "p, alike": _chance(het_breuschpagan(fit.resid, fit.model.exog)[1]),
            }
            for name, fit in fitted.items()
        ]
    )


def _anova(fit: Any) -> pd.DataFrame:
    """Type II."""
    from statsmodels.api import stats

    rows = stats.anova_lm(fit, typ=2)
    shares = rows["sum_sq"] / rows["sum_sq"].sum()
    return pd.DataFrame(
        {
            "term": [_term_text(str(term)) for term in rows.index],
            "df": rows["df"].map(lambda count: f"{count:.0f}"),
            # A machine rounds as it likes what is 0.
            "F": rows["F"].round(9).map(number),
            "p": rows["PR(>F)"].map(_chance),
            "share": shares.map(lambda share: f"{share:.1%}"),
        }
    )


def _term_text(term: str) -> str:
    """`C(model):batch` as `model x batch`."""
    plain = term.replace("C(model)", "model").replace("C(loop)", "loop")
    plain = re.sub(r"I\((\w+) \*\* 2\)", "\\1\N{SUPERSCRIPT TWO}", plain)
    return plain.replace(":", " x ").replace("Residual", "residuals")


def _chance(p: float) -> str:
    if math.isnan(p):
        return ""
    return "below 0.001" if p < 0.001 else f"{p:.3f}"


def _time_figure(launches: pd.DataFrame) -> DrawnFigure:
    factors = ["model", "loop", "batch", "hosts"]
    data = launches.sort_values([*factors, "turn"])
    return TEXTS.figure("epoch", _drawn_times(launches, factors), data)


def _drawn_times(launches: pd.DataFrame, factors: Sequence[str]) -> Figure:
    rows = [
        dict(zip(factors, names, strict=True))
        | dict(zip(("seconds", "low", "high"), map(known, estimate(own).ends), strict=True))
        | {"launches": tuple(own)}
        for names, own in launches.groupby([*factors])["seconds"]
    ]
    table = pd.DataFrame(rows)
    marks = marks_from(table.assign(x=table["hosts"]), table["seconds"])
    batches = sorted(marks["batch"].unique())
    marks = marks.assign(label=marks["batch"].map("batch {}".format))
    panels = {
        f"{model}, {loop}": curves_of(own, [f"batch {batch}" for batch in batches])
        for (loop, model), own in marks.groupby(["loop", "model"], sort=True)
    }
    ticks = {float(count): str(count) for count in sorted(marks["hosts"].unique())}
    labels = "hosts", "seconds of an epoch"
    return plot_panels(panels, ticks, labels, columns=launches["model"].nunique())


def _residual_figure(fitted: Fits) -> DrawnFigure:
    data = [
        pd.DataFrame({"model": name, "fitted": fit.fittedvalues, "residual": fit.resid})
        for name, fit in fitted.items()
    ]
    return TEXTS.figure("residuals", _drawn_residuals(fitted), pd.concat(data))


def _drawn_residuals(fitted: Fits) -> Figure:
    with style():
        figure, grid = new_figure(2, len(fitted), 4.6)
        for column, (name, fit) in enumerate(fitted.items()):
            above, below = grid[column], grid[len(fitted) + column]
            above.plot(fit.fittedvalues, fit.resid, "o", color=COLOURS[0], ms=3)
            above.axhline(0.0, color=FAINT, linewidth=0.8)
            above.set_title(name.replace(", ", ",\n"), loc="left")
            above.set_xlabel("fitted")
            scaled = np.sort(fit.resid) / fit.mse_resid**0.5
            # Blom's places of sorted values (1958).
            ranks = (np.arange(1, len(scaled) + 1) - 0.375) / (len(scaled) + 0.25)
            normal = ndtri(ranks)
            below.plot(normal, scaled, "o", color=COLOURS[0], ms=3)
            below.plot(normal, normal, color=FAINT, linewidth=0.8)
            below.set_xlabel("normal")
        grid[0].set_ylabel("residual")
        grid[len(fitted)].set_ylabel("residual, std")
    return figure


PCAD = shown_study("pcad", _show)
